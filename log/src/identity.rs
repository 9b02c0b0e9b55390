//! The identity file: who a directory belongs to. It can never restore a lost log (R1).

use crate::disk::Disk;
use crate::record::u32_at;
use crate::whole;
use holdfast_consensus::fault::NO_REPLACEMENT;
use holdfast_consensus::{ClusterId, MemberId, Membership, codec};
use serde::{Deserialize, Serialize};
use std::io;

/// How far the forming of a cluster has come (R7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdentityState {
    /// The member has a durable id and belongs to no cluster yet.
    Empty,
    /// This member founds the cluster; its first entry may not be durable yet.
    Founding {
        /// The first configuration.
        membership: Membership,
    },
    /// The member belongs to the cluster.
    Formed,
}

/// What a directory says about its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The member; must equal the id in the log's segment headers (R1).
    pub member: MemberId,
    /// The configured node name.
    pub name: String,
    /// The cluster; zero while there is none.
    pub cluster: ClusterId,
    /// Recovery epoch (R8).
    pub epoch: u64,
    /// State of forming.
    pub state: IdentityState,
    /// Inode number and birth time of this file in nanoseconds (R2); not recorded yet.
    pub place: Option<(u64, u64)>,
}

/// The identity file.
pub(crate) const IDENTITY: &str = "identity";
const MAGIC: [u8; 8] = *b"HFIDENTY";
/// Version of the identity file that this build reads and writes.
const FORMAT: u32 = 1;
/// Largest identity that is believed, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Why an identity file cannot be used.
#[derive(Debug)]
pub(crate) enum BadIdentity {
    Disk(io::Error),
    /// The text names both sides and the remedy.
    Refused(String),
}

impl Identity {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let body = codec::encode("identity", self).map_err(|e| e.to_string())?;
        let len = u32::try_from(body.len()).map_err(|e| e.to_string())?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&body);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < 20 || bytes[..8] != MAGIC {
            return Err("it is not an identity file".into());
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT {
            return Err(format!(
                "it has identity format {version}, this build reads {FORMAT}; install the build that wrote it"
            ));
        }
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c::crc32c(body) != u32_at(crc, 0) || u32_at(bytes, 12) as usize != body.len() - 16 {
            return Err("its checksum does not match".into());
        }
        codec::decode("identity", &body[16..]).map_err(|e| e.to_string())
    }

    /// Reads the identity of a directory; `None` if there is none.
    pub(crate) fn read<D: Disk>(disk: &D) -> Result<Option<Self>, BadIdentity> {
        let refused = |why: String| {
            BadIdentity::Refused(format!(
                "the file `{IDENTITY}` of the data directory cannot be used: {why}; nothing was changed. If the file \
                 is damaged, put it back from a copy of this very directory. {NO_REPLACEMENT}"
            ))
        };
        match whole::read(disk, IDENTITY, BYTES_MAX) {
            Ok(bytes) => bytes.map(|bytes| Self::decode(&bytes).map_err(refused)).transpose(),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(refused(e.to_string())),
            Err(e) => Err(BadIdentity::Disk(e)),
        }
    }

    /// Replaces the identity of a directory; durable when it returns.
    pub(crate) fn write<D: Disk>(&self, disk: &D) -> Result<(), BadIdentity> {
        let bytes = self.encode().map_err(BadIdentity::Refused)?;
        whole::replace(disk, IDENTITY, &bytes).map_err(BadIdentity::Disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Identity {
        Identity {
            member: MemberId(7),
            name: "a".into(),
            cluster: ClusterId(9),
            epoch: 3,
            state: IdentityState::Formed,
            place: None,
        }
    }

    #[test]
    fn an_identity_survives_a_round_trip_and_no_flipped_byte() {
        let bytes = example().encode().unwrap();
        assert_eq!(Identity::decode(&bytes).unwrap(), example());
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(Identity::decode(&bad).is_err(), "byte {at}");
        }
        for len in 0..bytes.len() {
            assert!(Identity::decode(&bytes[..len]).is_err(), "length {len}");
        }
    }

    #[test]
    fn the_identity_file_has_these_bytes() {
        let bytes = example().encode().unwrap();
        let mut expected = b"HFIDENTY".to_vec();
        expected.extend_from_slice(&[1, 0, 0, 0, 46, 0, 0, 0]);
        expected.extend_from_slice(&7u64.to_le_bytes());
        expected.extend_from_slice(&1u64.to_le_bytes());
        expected.extend_from_slice(b"a");
        expected.extend_from_slice(&9u128.to_le_bytes());
        expected.extend_from_slice(&3u64.to_le_bytes());
        expected.extend_from_slice(&2u32.to_le_bytes());
        expected.push(0);
        assert_eq!(bytes[..bytes.len() - 4], expected);
    }

    #[test]
    fn a_newer_identity_is_refused_by_both_versions() {
        let mut bytes = example().encode().unwrap();
        bytes[8] = 2;
        let why = Identity::decode(&bytes).unwrap_err();
        assert!(why.contains("format 2") && why.contains("reads 1"), "{why}");
    }
}

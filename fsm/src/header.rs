//! The header of a state: everything about it that is not a record. Written in the same
//! transaction as the effects it describes, and first in every snapshot.

use crate::command::kind;
use crate::records::Counts;
use holdfast_consensus::codec;
use holdfast_consensus::{ClusterId, Index, LogId, Membership, Micros, SnapshotMeta};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Magic of the header row of a store.
pub const STORE_MAGIC: [u8; 4] = *b"HFST";
/// Version of the store's records and header.
pub const STORE_VERSION: u16 = 2;
/// Key of the header row: below every table.
pub(crate) const HEADER_KEY: [u8; 1] = [0];

/// The header of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The cluster.
    pub cluster: ClusterId,
    /// Recovery epoch of the log that feeds the state.
    pub epoch: u64,
    /// State epoch, for stamps: zero until an import changes it.
    pub state_epoch: u64,
    /// The Raft group.
    pub group: u64,
    /// The last applied entry.
    pub last: LogId,
    /// Log time of that entry.
    pub time: Micros,
    /// The last *applied* configuration.
    pub membership: Membership,
    /// Index of the entry that carries it; zero before the first.
    pub membership_index: Index,
    /// State digest: the sum of the hashes of all records.
    pub digest: u128,
    /// Newest entry type ever applied; never goes back.
    pub newest_type: u16,
    /// Rows per table.
    pub counts: Counts,
}

/// Why a header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderFault {
    /// Not a header, or one whose checksum does not match.
    #[error("{0}")]
    Damaged(String),
    /// Written by a newer build.
    #[error(
        "written in format {found}, and this build knows formats up to {known}; install a newer build"
    )]
    NewerFormat {
        /// The format found.
        found: u16,
        /// The newest that this build knows.
        known: u16,
    },
    /// Written by a build from before the first release.
    #[error(
        "written in format {found}, which no released build ever wrote, and this build reads format {known}; use the build that wrote it"
    )]
    OlderFormat {
        /// The format found.
        found: u16,
        /// The one that this build reads.
        known: u16,
    },
    /// It has applied an entry type that this build does not know.
    #[error(
        "has applied entry type {found}, and this build knows types up to {known}; install a newer build"
    )]
    NewerType {
        /// The newest type applied.
        found: u16,
        /// The newest that this build knows.
        known: u16,
    },
}

impl HeaderFault {
    /// The fault of a format that is not the one known.
    pub(crate) const fn other_format(found: u16, known: u16) -> Self {
        if found < known {
            Self::OlderFormat { found, known }
        } else {
            Self::NewerFormat { found, known }
        }
    }
}

impl Header {
    /// Encodes it as `magic, version: u16, crc32c: u32 of the body, body`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = codec::encode("header", self)
            .expect("a header is a few hundred bytes, far below the codec's limit");
        let mut out = Vec::with_capacity(10 + body.len());
        out.extend_from_slice(&STORE_MAGIC);
        out.extend_from_slice(&STORE_VERSION.to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    /// Decodes and verifies it.
    ///
    /// # Errors
    /// [`HeaderFault`].
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let damaged = |what: &str| HeaderFault::Damaged(what.to_owned());
        let (magic, rest) =
            bytes.split_first_chunk::<4>().ok_or_else(|| damaged("the header is cut short"))?;
        if *magic != STORE_MAGIC {
            return Err(damaged("the header has another magic"));
        }
        let (version, rest) =
            rest.split_first_chunk::<2>().ok_or_else(|| damaged("the header is cut short"))?;
        let found = u16::from_le_bytes(*version);
        if found != STORE_VERSION {
            return Err(HeaderFault::other_format(found, STORE_VERSION));
        }
        let (crc, body) =
            rest.split_first_chunk::<4>().ok_or_else(|| damaged("the header is cut short"))?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(damaged("the header's checksum does not match"));
        }
        let header: Self =
            codec::decode("header", body).map_err(|e| HeaderFault::Damaged(e.to_string()))?;
        if header.newest_type > kind::NEWEST {
            let (found, known) = (header.newest_type, kind::NEWEST);
            return Err(HeaderFault::NewerType { found, known });
        }
        Ok(header)
    }

    /// The label of a snapshot of this state; its length is not known yet.
    #[must_use]
    pub fn label(&self) -> SnapshotMeta {
        SnapshotMeta {
            last: self.last,
            time: self.time,
            membership: self.membership.clone(),
            membership_index: self.membership_index,
            group: self.group,
            cluster: self.cluster,
            epoch: self.epoch,
            digest: self.digest,
            bytes: 0,
            newest_type: self.newest_type,
        }
    }

    /// Names the first field in which a label differs from this header, if any does.
    #[must_use]
    pub fn differs_from(&self, label: &SnapshotMeta) -> Option<&'static str> {
        let mine = self.label();
        [
            (mine.last == label.last, "last entry"),
            (mine.time == label.time, "log time"),
            (mine.membership == label.membership, "configuration"),
            (mine.membership_index == label.membership_index, "index of the configuration"),
            (mine.group == label.group, "group"),
            (mine.cluster == label.cluster, "cluster"),
            (mine.epoch == label.epoch, "recovery epoch"),
            (mine.digest == label.digest, "digest"),
            (mine.newest_type == label.newest_type, "newest entry type"),
        ]
        .into_iter()
        .find_map(|(equal, field)| (!equal).then_some(field))
    }
}

//! The vote and the last purged id: a small file that is replaced whole.
//!
//! CRC-32C of the rest u32, then the rest (bincode).

use holdfast_log::{Disk, whole};
use openraft::{LogId, NodeId, Vote};
use serde::{Deserialize, Serialize};
use std::io;

const PATH: &str = "openraft";
/// Most bytes that are believed: ids of nodes are short.
const BYTES_MAX: u64 = 1 << 20;
const CRC: usize = 4;

/// What openraft wants to be kept beside the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Saved<N: NodeId> {
    pub(crate) vote: Option<Vote<N>>,
    pub(crate) purged: Option<LogId<N>>,
}

impl<N: NodeId> Default for Saved<N> {
    fn default() -> Self {
        Self { vote: None, purged: None }
    }
}

fn broken(why: impl std::fmt::Display) -> io::Error {
    let what = format!("the file `{PATH}` with vote and purged id: {why}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<N: NodeId> Saved<N> {
    /// What was saved last; `None` if nothing ever was.
    pub(crate) fn read<D: Disk>(disk: &D) -> io::Result<Option<Self>> {
        let Some(bytes) = whole::read(disk, PATH, BYTES_MAX)? else { return Ok(None) };
        let (crc, rest) = bytes.split_first_chunk::<CRC>().ok_or_else(|| broken("too short"))?;
        if u32::from_le_bytes(*crc) != crc32c::crc32c(rest) {
            return Err(broken("its checksum does not match"));
        }
        let decoded = bincode::serde::decode_from_slice(rest, bincode::config::standard());
        decoded.map(|(saved, _)| Some(saved)).map_err(broken)
    }

    /// Replaces what was saved; durable when this returns.
    pub(crate) fn write<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let rest = bincode::serde::encode_to_vec(self, bincode::config::standard());
        let rest = rest.map_err(broken)?;
        let mut bytes = crc32c::crc32c(&rest).to_le_bytes().to_vec();
        bytes.extend_from_slice(&rest);
        whole::replace(disk, PATH, &bytes)
    }
}

//! The newest snapshot and the configuration in force: a file that is replaced whole.
//!
//! CRC-32C of the rest u32, length of the configuration u32, configuration, snapshot (both protobuf).

use holdfast_log::{Disk, whole};
use protobuf::Message;
use raft::prelude::{ConfState, Snapshot};
use std::fmt::Display;
use std::io;

const PATH: &str = "raft-rs";
/// Most bytes that are believed: a snapshot is kept whole, and is sent in one message.
const BYTES_MAX: u64 = 1 << 30;
const WORD: usize = 4;

/// What raft-rs wants to be kept beside the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    pub(crate) conf: ConfState,
    pub(crate) snapshot: Snapshot,
}

fn broken(why: impl Display) -> io::Error {
    let what = format!("the file `{PATH}` with snapshot and configuration: {why}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Kept {
    /// What was kept last; `None` if nothing ever was.
    pub(crate) fn read<D: Disk>(disk: &D) -> io::Result<Option<Self>> {
        let Some(bytes) = whole::read(disk, PATH, BYTES_MAX)? else { return Ok(None) };
        let (crc, rest) = bytes.split_first_chunk::<WORD>().ok_or_else(|| broken("too short"))?;
        if u32::from_le_bytes(*crc) != crc32c::crc32c(rest) {
            return Err(broken("its checksum does not match"));
        }
        let (len, rest) = rest.split_first_chunk::<WORD>().ok_or_else(|| broken("too short"))?;
        let conf = usize::try_from(u32::from_le_bytes(*len)).map_err(broken)?;
        let (conf, snapshot) = rest.split_at_checked(conf).ok_or_else(|| broken("too short"))?;
        let conf = ConfState::parse_from_bytes(conf).map_err(broken)?;
        let snapshot = Snapshot::parse_from_bytes(snapshot).map_err(broken)?;
        Ok(Some(Self { conf, snapshot }))
    }

    /// Replaces what was kept; durable when this returns.
    pub(crate) fn write<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let conf = self.conf.write_to_bytes().map_err(broken)?;
        let mut rest = u32::try_from(conf.len()).map_err(broken)?.to_le_bytes().to_vec();
        rest.extend_from_slice(&conf);
        rest.extend_from_slice(&self.snapshot.write_to_bytes().map_err(broken)?);
        let mut bytes = crc32c::crc32c(&rest).to_le_bytes().to_vec();
        bytes.extend_from_slice(&rest);
        whole::replace(disk, PATH, &bytes)
    }
}

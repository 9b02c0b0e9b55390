//! The newest snapshot and the configuration in force: a file that is replaced whole.
//!
//! CRC-32C of the rest u32, length of the configuration u32, configuration, snapshot (both protobuf).
//! Written under another name, synced, renamed, directory synced: a power cut leaves the old one or
//! the new one.

use holdfast_log::{Disk, DiskFile, Mode};
use protobuf::Message;
use raft::prelude::{ConfState, Snapshot};
use std::fmt::Display;
use std::io;

const PATH: &str = "raft-rs";
const NEW: &str = "raft-rs.new";
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
        let file = match disk.open(PATH, Mode::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = vec![0; usize::try_from(file.len()?).map_err(broken)?];
        file.read_at(0, &mut bytes)?;
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
        match disk.unlink(NEW) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = disk.open(NEW, Mode::CreateNew)?;
        file.write_at(0, &bytes)?;
        file.sync()?;
        disk.rename(NEW, PATH)?;
        disk.sync_dir("")
    }
}

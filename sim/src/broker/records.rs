//! Files of fixed-size records: partition logs and the accepted-record log of the small broker.
//!
//! A record is acknowledged only after its bytes were synced. What a crash tore off the end is
//! recognised by the checksum and overwritten by the next append; nothing in the middle is ever
//! rewritten. Reading is done on the bytes, so that the oracle can read a disk image with nobody
//! running.

use bytes::{Buf, BufMut};
use holdfast_consensus::Micros;
use holdfast_log::disk::{Disk, DiskFile, Mode};
use holdfast_log::mem_disk::MemDisk;
use std::io;

/// Bytes of a record: id, time, checksum.
pub const RECORD: usize = 24;

/// A message of the broker: what it holds does not matter, that it is there does.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Names it: unique in a run.
    pub id: u64,
    /// When it was accepted, in true virtual time.
    pub time: Micros,
}

impl Record {
    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        (&mut out[0..8]).put_u64_le(self.id);
        (&mut out[8..16]).put_u64_le(self.time);
        let sum = sum(&out[..16]);
        (&mut out[16..24]).put_u64_le(sum);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut id, mut time, mut found) = (&bytes[0..8], &bytes[8..16], &bytes[16..24]);
        (found.get_u64_le() == sum(&bytes[..16]))
            .then(|| Self { id: id.get_u64_le(), time: time.get_u64_le() })
    }
}

/// Never zero: a hole of zeros that a crash left is not a record.
fn sum(bytes: &[u8]) -> u64 {
    crate::hash::of_bytes(bytes) | 1
}

/// The records of a file's bytes, up to the first that is not whole.
#[must_use]
pub fn parse(bytes: &[u8]) -> Vec<Record> {
    bytes.chunks_exact(RECORD).map_while(Record::decode).collect()
}

/// The records of a file; none if there is no such file.
///
/// # Errors
/// What the disk says, but for a file that is not there.
pub fn read(disk: &MemDisk, path: &str) -> io::Result<Vec<Record>> {
    match disk.open(path, Mode::Read) {
        Ok(file) => Ok(parse(&whole(&file)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// The bytes of a file.
///
/// # Errors
/// What the disk says.
pub fn whole(file: &impl DiskFile) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Appends records behind the last whole one and syncs; returns the offset (in records) of the
/// first. The directory must exist.
///
/// # Errors
/// What the disk says: then nothing of it may be counted on.
pub fn append(disk: &MemDisk, path: &str, records: &[Record]) -> io::Result<u64> {
    let (file, created) = match disk.open(path, Mode::Write) {
        Ok(file) => (file, false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (disk.open(path, Mode::CreateNew)?, true),
        Err(e) => return Err(e),
    };
    let held = parse(&whole(&file)?).len();
    let bytes: Vec<u8> = records.iter().flat_map(|record| record.encode()).collect();
    file.write_at((held * RECORD) as u64, &bytes)?;
    file.sync()?;
    if created {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        disk.sync_dir(dir)?;
    }
    Ok(held as u64)
}

/// Replaces a small file as a whole: written beside, synced, renamed, directory synced.
///
/// # Errors
/// What the disk says: then the old content or the new one stands.
pub fn replace(disk: &MemDisk, path: &str, content: &[u8]) -> io::Result<()> {
    let beside = format!("{path}.new");
    match disk.unlink(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.open(&beside, Mode::CreateNew)?;
    file.write_at(0, content)?;
    file.sync()?;
    disk.rename(&beside, path)?;
    disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir))
}

/// The content of a small file; `None` if there is none.
///
/// # Errors
/// What the disk says, but for a file that is not there.
pub fn content(disk: &MemDisk, path: &str) -> io::Result<Option<Vec<u8>>> {
    match disk.open(path, Mode::Read) {
        Ok(file) => whole(&file).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_log::mem_disk::LoseAll;

    fn record(id: u64) -> Record {
        Record { id, time: id * 10 }
    }

    #[test]
    fn what_was_appended_is_read_back_and_a_torn_end_is_overwritten() {
        let disk = MemDisk::new();
        disk.make_dir("d").expect("made");
        assert_eq!(append(&disk, "d/log", &[record(1), record(2)]).expect("appended"), 0);
        let file = disk.open("d/log", Mode::Write).expect("there");
        file.write_at(2 * RECORD as u64, &[7; 10]).expect("torn");
        drop(file);
        assert_eq!(read(&disk, "d/log").expect("read"), [record(1), record(2)]);
        assert_eq!(append(&disk, "d/log", &[record(3)]).expect("appended"), 2);
        assert_eq!(read(&disk, "d/log").expect("read"), [record(1), record(2), record(3)]);
        assert_eq!(read(&disk, "d/none").expect("read"), []);
    }

    #[test]
    fn a_record_that_was_appended_survives_a_power_loss_and_zeros_are_none() {
        let disk = MemDisk::new();
        disk.make_dir("d").expect("made");
        disk.sync_dir("").expect("synced");
        append(&disk, "d/log", &[record(1)]).expect("appended");
        let disk = disk.crash(&mut LoseAll);
        assert_eq!(read(&disk, "d/log").expect("read"), [record(1)]);
        assert_eq!(parse(&[0; 3 * RECORD]), []);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let disk = MemDisk::new();
        assert_eq!(content(&disk, "f").expect("read"), None);
        replace(&disk, "f", b"one").expect("replaced");
        replace(&disk, "f", b"two").expect("replaced");
        assert_eq!(content(&disk, "f").expect("read").as_deref(), Some(&b"two"[..]));
    }
}

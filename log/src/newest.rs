//! Which segment is the newest, noted outside of it. A log whose newest segment file is gone reads
//! like one that was never continued; this note tells the two apart, and the member is held
//! instead of coming back without what it acknowledged (R1, R4, R16).
//!
//! The file `newest` has two blocks that are written in turn, so that a torn write leaves the other:
//! magic 8, version u32, CRC-32C u32 over the unique id, unique id u64. The note never runs ahead of
//! the segments: it is written when the name of a segment is durable, before anything is
//! acknowledged from it. It may lag, be damaged or be missing: then it tells nothing.

use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::{is_full, poison};
use crate::position::{BLOCK, BLOCK_BYTES, LOG_DIR};
use crate::record::{u32_at, u64_at};
use holdfast_consensus::fault::LogFault;
use std::io;

const PATH: &str = "log/newest";
const MAGIC: [u8; 8] = *b"HFNEWEST";
const FORMAT: u32 = 1;
const LEN: usize = 24;

/// The note, open for writing.
#[derive(Debug)]
pub(crate) struct Newest<F> {
    file: F,
    /// The block that is written next.
    slot: u64,
}

/// The unique id in a block; zero if it holds none.
fn noted(bytes: &[u8; LEN]) -> u64 {
    let unique = u64_at(bytes, 16);
    let sound = bytes[..8] == MAGIC
        && u32_at(bytes, 8) == FORMAT
        && u32_at(bytes, 12) == crc32c::crc32c(&unique.to_le_bytes());
    if sound { unique } else { 0 }
}

fn blocks<F: DiskFile>(file: &F) -> io::Result<[u64; 2]> {
    let mut found = [0; 2];
    for (slot, offset) in found.iter_mut().zip([0, BLOCK]) {
        let mut bytes = [0; LEN];
        if file.len()? >= offset + BLOCK {
            file.read_at(offset, &mut bytes)?;
        }
        *slot = noted(&bytes);
    }
    Ok(found)
}

/// The highest unique id that was noted; zero if none can be read.
pub(crate) fn read<D: Disk>(disk: &D) -> io::Result<u64> {
    match disk.open(PATH, Mode::Read) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        file => blocks(&file?).map(|[a, b]| a.max(b)),
    }
}

impl<F: DiskFile> Newest<F> {
    /// Opens the note, or makes it. `None` if there is no space for it: a full disk keeps no log
    /// from opening.
    pub(crate) fn open<D: Disk<File = F>>(disk: &D) -> Result<Option<Self>, LogFault> {
        match Self::try_open(disk) {
            Ok(note) => Ok(Some(note)),
            Err(e) if is_full(&e) => Ok(None),
            Err(e) => Err(poison("open the note of the newest segment", e)),
        }
    }

    /// Notes a segment before anything is reported from it: should it be lost, that shows.
    pub(crate) fn noting<D: Disk<File = F>>(
        disk: &D,
        unique: u64,
    ) -> Result<Option<Self>, LogFault> {
        let mut newest = Self::open(disk)?;
        newest.as_mut().map_or(Ok(()), |newest| newest.note(unique))?;
        Ok(newest)
    }

    fn try_open<D: Disk<File = F>>(disk: &D) -> io::Result<Self> {
        let file = match disk.open(PATH, Mode::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => disk.open(PATH, Mode::CreateNew)?,
            file => file?,
        };
        let len = file.len()?;
        if len < 2 * BLOCK {
            crate::spare::fill(&file, len, 2 * BLOCK)?;
            file.sync()?;
            disk.sync_dir(LOG_DIR)?;
        }
        let [first, second] = blocks(&file)?;
        let slot = u64::from(first > second);
        Ok(Self { file, slot })
    }

    /// The segment with this unique id is there, durably.
    pub(crate) fn note(&mut self, unique: u64) -> Result<(), LogFault> {
        let mut block = vec![0; BLOCK_BYTES];
        let id = unique.to_le_bytes();
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        block[12..16].copy_from_slice(&crc32c::crc32c(&id).to_le_bytes());
        block[16..24].copy_from_slice(&id);
        (self.file.write_at(self.slot * BLOCK, &block))
            .and_then(|()| self.file.sync())
            .map_err(|e| poison("note the newest segment", e))?;
        self.slot = 1 - self.slot;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem_disk::{LoseAll, MemDisk};

    #[test]
    fn the_note_survives_a_torn_block_and_tells_nothing_when_it_cannot() {
        let mut disk = MemDisk::new();
        disk.make_dir(LOG_DIR).unwrap();
        disk.sync_dir("").unwrap();
        assert_eq!(read(&disk).unwrap(), 0);
        for unique in [3, 4, 9] {
            let mut note = Newest::open(&disk).unwrap().unwrap();
            note.note(unique).unwrap();
            disk = disk.crash(&mut LoseAll);
            assert_eq!(read(&disk).unwrap(), unique);
        }
        let file = disk.open(PATH, Mode::Write).unwrap();
        let newest = blocks(&file).unwrap().iter().position(|id| *id == 9).unwrap() as u64;
        file.write_at(newest * BLOCK + 17, &[1]).unwrap();
        assert_eq!(read(&disk).unwrap(), 4, "the block before is still there");
        Newest::open(&disk).unwrap().unwrap().note(10).unwrap();
        assert_eq!(blocks(&file).unwrap().iter().max(), Some(&10));
        assert!(blocks(&file).unwrap().contains(&4), "the damaged block was the one to write");
        let full = MemDisk::new();
        full.make_dir(LOG_DIR).unwrap();
        full.set_budget(Some(0));
        assert!(Newest::open(&full).unwrap().is_none());
    }
}

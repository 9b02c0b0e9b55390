//! A disk that lies: damage below what was synced.
//!
//! # What is injected, by name and never by chance
//! - **Rot** ([`MemDisk::flip_bit`]): one bit of a file is another from now on, on the medium too.
//! - **A lost write** ([`MemDisk::lose_next`]): a write and the sync behind it report success, the
//!   bytes read back while the process and its page cache live, and a power loss may show that they
//!   never reached the medium.
//! - **A misdirected write** ([`MemDisk::misdirect_next`]): the bytes land elsewhere in the same
//!   file, over what was there, and the right place keeps what it held.
//!
//! A disk put back from a backup, wiped or swapped is [`MemDisk::with_files`].
//!
//! # What a campaign draws
//! Raft assumes that what was synced stays. A cluster survives its breach only with an answer of
//! its own. Rot below the proved position has one (rules 9, 14 and 15), and campaigns draw it; lost
//! and misdirected writes, and whole disks (rules 1 to 5), are for scenarios that record what happens
//! now, and for tests of a log that must refuse what does not verify.

use super::MemDisk;
use super::image::{Image, Ino, Node, SectorState};
use std::io;

/// How the next write on a path lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// It never reaches the medium.
    Lost,
    /// It lands at this offset.
    At(u64),
}

impl MemDisk {
    /// Flips one bit (0 to 7) of one byte of a file, durably and unseen by any process.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, or `UnexpectedEof` behind the end of the file.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> io::Result<()> {
        let mut image = self.image();
        let ino = image.file_at(path)?;
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let file = image.get_mut(ino)?;
        let mask = 1 << (bit & 7);
        let byte = file.now.get_mut(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        *byte ^= mask;
        if let Some(byte) = file.durable.get_mut(at) {
            *byte ^= mask;
        }
        Ok(())
    }

    /// The next write on a path that contains `path_part` never reaches the medium, and neither
    /// does anything else that its sectors held unsynced.
    pub fn lose_next(&self, path_part: &str) {
        self.image().lies.push((Lie::Lost, path_part.to_owned()));
    }

    /// The next write on a path that contains `path_part` lands at `offset` of its file instead;
    /// what would lie behind the file's end is dropped.
    pub fn misdirect_next(&self, path_part: &str, offset: u64) {
        self.image().lies.push((Lie::At(offset), path_part.to_owned()));
    }
}

impl Image {
    /// How a write on this file lies, if it does.
    pub(super) fn take_lie(&mut self, ino: Ino) -> Option<Lie> {
        if self.lies.is_empty() {
            return None;
        }
        let named = self.names.iter().find(|(_, node)| **node == Node::File(ino));
        let path = named.map(|(path, _)| path.clone())?;
        let hit = self.lies.iter().position(|(_, part)| path.contains(part.as_str()))?;
        Some(self.lies.remove(hit).0)
    }

    /// Sectors that were just written are as a failed sync leaves them: readable, and lost.
    pub(super) fn forget_sectors(&mut self, ino: Ino, first: usize, last: usize) -> io::Result<()> {
        let file = self.get_mut(ino)?;
        file.state[first..=last].fill(SectorState::Lost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LoseAll, Op, SECTOR};
    use super::*;
    use crate::disk::{Disk, DiskFile, Mode};

    fn disk() -> MemDisk {
        MemDisk::from_files([("log/a".to_owned(), vec![7; SECTOR * 3])].into())
    }

    fn bytes(disk: &MemDisk) -> Vec<u8> {
        disk.files().remove("log/a").expect("there")
    }

    #[test]
    fn a_flipped_bit_stays_flipped_through_a_power_loss() {
        let disk = disk();
        disk.flip_bit("log/a", 600, 3).expect("there");
        assert!(disk.flip_bit("log/a", 6000, 3).is_err(), "behind the end");
        assert!(disk.flip_bit("log/b", 0, 0).is_err(), "no such file");
        let after = bytes(&disk.crash(&mut LoseAll));
        assert_eq!((after[599], after[600], after[601]), (7, 7 ^ 8, 7));
    }

    #[test]
    fn a_lost_write_reads_back_until_the_power_fails() {
        let disk = disk();
        let file = disk.open("log/a", Mode::Write).expect("open");
        disk.lose_next("log/");
        file.write_at(0, &[1; 10]).expect("reports success");
        file.write_at(SECTOR as u64, &[2; 10]).expect("an honest one");
        file.sync().expect("reports success");
        assert_eq!(file.share(0, 10).expect("reads back"), [1; 10].as_slice());
        let after = bytes(&disk.crash(&mut LoseAll));
        assert_eq!(after[..10], [7; 10], "it never reached the medium");
        assert_eq!(after[SECTOR..SECTOR + 10], [2; 10], "the next one did");
    }

    #[test]
    fn a_misdirected_write_spares_its_place_and_hits_another() {
        let disk = disk();
        let file = disk.open("log/a", Mode::Write).expect("open");
        disk.misdirect_next("log/a", SECTOR as u64);
        file.write_at(0, &[1; 10]).expect("reports success");
        file.sync().expect("sync");
        let after = bytes(&disk.crash(&mut LoseAll));
        assert_eq!(after[..10], [7; 10]);
        assert_eq!(after[SECTOR..SECTOR + 10], [1; 10]);
    }

    #[test]
    fn a_planned_read_fails_once_and_a_disk_without_room_takes_no_name() {
        let disk = disk();
        let file = disk.open("log/a", Mode::Read).expect("open");
        disk.fail_next(Op::Read, "log/");
        assert!(file.read_at(0, &mut [0; 4]).is_err());
        assert!(file.read_at(0, &mut [0; 4]).is_ok(), "once");
        disk.set_budget(Some(disk.used()));
        for full in [disk.rename("log/a", "log/b"), disk.make_dir("d")] {
            assert_eq!(full.expect_err("full").kind(), io::ErrorKind::StorageFull);
        }
        assert!(disk.open("log/c", Mode::CreateNew).is_err());
        disk.set_budget(None);
        disk.rename("log/a", "log/b").expect("there is room again");
    }
}

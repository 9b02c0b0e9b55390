//! A disk in memory that loses, at a power cut, what a real one may lose.
//!
//! # What is injected
//! - **Power loss** ([`MemDisk::crash`]): every 512-byte sector written since the last successful
//!   sync of its file comes back old, new, in a version between the two, or torn (head new, tail
//!   old), each sector for itself and in no order. A sector that held nothing but zeros when it was
//!   last synced may come back as garbage too. The length of a file is the synced one or the
//!   newest. Each creation, removal and rename since the last sync of its directory is kept or
//!   undone for itself; one that builds on an undone operation on the same name is undone with it,
//!   and a rename is never half done: that of a directory moves everything beneath it or nothing.
//!   What was synced inside a directory stays with the directory, wherever it is found.
//! - **Process kill** ([`MemDisk::kill`]): all written bytes stay (the page cache survives), what
//!   was unsynced is still unsynced.
//! - **Fuse** ([`MemDisk::set_fuse`]): after n more mutating operations everything fails with an
//!   I/O error and the image freezes: a crash inside a job, whatever the code does afterwards.
//! - **Failing operations** ([`MemDisk::fail_next`]): the operation reports an I/O error. After a
//!   failed sync the bytes still read back, a later sync reports success without writing them, and
//!   a power loss may lose them; only writing them again helps.
//! - **Full disk** ([`MemDisk::set_budget`]): what would take the sum of file lengths over the
//!   budget reports `StorageFull`; with less than a sector left so does whatever needs room for a
//!   name: a creation, a directory, a rename. Space comes back with the budget.
//!
//! # What is never injected
//! Damage to bytes that a successful sync covered (it can be asked for by name, see `rot`), garbage in a sector that held durable bytes
//! (drives promise that an interrupted write changes no byte outside its range), a directory that
//! loses an entry nobody touched. A cluster must survive everything above without losing an
//! acknowledged write, because POSIX promises no more than this: content after `fdatasync`, names
//! after `fsync` of the directory.

mod crash;
#[cfg(test)]
mod dir_tests;
mod image;
mod names;
mod points;
mod rot;
#[cfg(test)]
mod tests;

use crate::disk::{Disk, DiskFile, Mode};
use bytes::Bytes;
pub use crash::{KeepAll, LoseAll, PowerLoss, RandomLoss, SectorFate};
pub(crate) use image::mix;
use image::{Image, Ino};
pub use points::{Coverage, CrashPoint, Outcome, Reach, Visit};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that reach the medium together.
pub const SECTOR: usize = 512;

/// A disk in memory. A clone is another handle to the same disk.
#[derive(Clone, Default)]
pub struct MemDisk {
    image: Arc<Mutex<Image>>,
}

/// What an operation does, to name it in [`MemDisk::fail_next`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Creation of a file or directory.
    Create,
    /// A positioned write.
    Write,
    /// A change of length.
    SetLen,
    /// A sync of content.
    Sync,
    /// A rename.
    Rename,
    /// A removal.
    Unlink,
    /// A sync of a directory.
    SyncDir,
    /// A removal of a directory.
    RemoveDir,
    /// A positioned read.
    Read,
}

/// Operations on one class of files.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Positioned reads.
    pub reads: u64,
    /// Positioned writes.
    pub writes: u64,
    /// Syncs of content.
    pub syncs: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// Operations since the disk was made; crash and kill carry them on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Files of the log, snapshots included.
    pub log: OpCounts,
    /// Files of the store: those whose path contains `store` or ends in `.redb`.
    pub store: OpCounts,
    /// Mutating operations of any kind, failed ones not counted.
    pub mutations: u64,
    /// Operations that failed because of [`MemDisk::fail_next`].
    pub failed: u64,
    /// Operations that failed for want of space.
    pub full: u64,
}

impl MemDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk that holds these files, all durable. Directories are made as needed.
    #[must_use]
    pub fn from_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        Self { image: Arc::new(Mutex::new(Image::from_files(files))) }
    }

    /// The named files as they read now, by path.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.image().files()
    }

    /// Another disk that holds the files below these directories as a power loss would leave them at
    /// worst: as they were last synced, under their durable names. This one goes on untouched.
    #[must_use]
    pub fn synced(&self, under: &[&str]) -> Self {
        Self::from_files(self.image().synced(under))
    }

    /// The disk after somebody changed its content while nothing ran: these files and no other,
    /// all durable. Counts, hash and budget go on. Every handle and lock of this one is dead.
    #[must_use]
    pub fn with_files(&self, files: BTreeMap<String, Vec<u8>>) -> Self {
        let mut image = self.image();
        let mut after = Image::from_files(files);
        (after.counts, after.hash) = (image.counts, image.hash);
        (after.budget, after.next_ino) = (image.budget, after.next_ino.max(image.next_ino));
        image.kill();
        Self { image: Arc::new(Mutex::new(after)) }
    }

    /// After `left` more mutating operations every operation fails and nothing changes any more;
    /// `None` takes the fuse out.
    pub fn set_fuse(&self, left: Option<u64>) {
        self.image().fuse = left;
    }

    /// True if the fuse has blown.
    #[must_use]
    pub fn is_blown(&self) -> bool {
        self.image().fuse == Some(0)
    }

    /// Most bytes that all files may have together, by length; `None` for no limit.
    pub fn set_budget(&self, bytes: Option<u64>) {
        self.image().budget = bytes;
    }

    /// Bytes that all files have together now, by length.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.image().used
    }

    /// Makes the next operation of this kind fail on a path that contains `path_part`.
    pub fn fail_next(&self, op: Op, path_part: &str) {
        self.image().planned.push((op, path_part.to_owned()));
    }

    /// Takes back every [`MemDisk::fail_next`] that has not struck yet.
    pub fn clear_failures(&self) {
        self.image().planned.clear();
    }

    /// Operations so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        self.image().counts
    }

    /// A rolling hash of every mutating operation: kind, path, offset, length, data.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.image().hash
    }

    /// The disk after the power failed and came back. Every handle and lock of this one is dead:
    /// it fails for ever and changes nothing.
    #[must_use]
    pub fn crash(&self, loss: &mut dyn PowerLoss) -> Self {
        let mut image = self.image();
        let survivor = crash::survive(&mut image, loss);
        image.kill();
        Self { image: Arc::new(Mutex::new(survivor)) }
    }

    /// The disk after the process was killed: all that was written is still there. Every handle
    /// and lock of this one is dead.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut image = self.image();
        let survivor = image.take_over();
        image.kill();
        Self { image: Arc::new(Mutex::new(survivor)) }
    }

    fn image(&self) -> MutexGuard<'_, Image> {
        // A panic elsewhere leaves the image as consistent as a crash would.
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for MemDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let image = self.image();
        f.debug_struct("MemDisk").field("files", &image.names.len()).finish_non_exhaustive()
    }
}

impl Disk for MemDisk {
    type File = MemFile;

    fn open(&self, path: &str, mode: Mode) -> io::Result<MemFile> {
        let ino = self.image().open(path, mode)?;
        Ok(MemFile { disk: self.clone(), ino, writable: mode != Mode::Read })
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.image().list(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.image().rename(from, to)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.image().unlink(path)
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.image().make_dir(path)
    }

    fn is_dir(&self, path: &str) -> io::Result<bool> {
        self.image().is_dir(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.image().remove_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.image().sync_dir(path)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.image().lock(path)?;
        Ok(Box::new(Lock { disk: self.clone(), path: path.to_owned() }))
    }
}

/// A held lock.
struct Lock {
    disk: MemDisk,
    path: String,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.disk.image().locks.remove(&self.path);
    }
}

/// An open file of a [`MemDisk`].
pub struct MemFile {
    disk: MemDisk,
    ino: Ino,
    writable: bool,
}

impl std::fmt::Debug for MemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemFile").field("ino", &self.ino).finish_non_exhaustive()
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.disk.image().close(self.ino);
    }
}

impl MemFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file was opened for reading"))
    }
}

impl DiskFile for MemFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.image().len(self.ino)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.image().set_len(self.ino, len)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut image = self.disk.image();
        into.copy_from_slice(image.read(self.ino, offset, into.len())?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.disk.image().write(self.ino, offset, data)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.image().sync(self.ino)
    }

    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        Ok(Bytes::copy_from_slice(self.disk.image().read(self.ino, offset, len)?))
    }

    /// What was given out is a copy.
    fn is_shared(&self) -> bool {
        false
    }
}

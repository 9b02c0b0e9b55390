//! The seam to the disk. Every file of a replica, the store's too, goes through it, so that the
//! simulator owns every byte and can fail, delay or crash between any two operations.

#[cfg(unix)]
pub mod real;

use bytes::Bytes;
use std::fmt::Debug;
use std::io;

/// A disk, or a directory of one. Paths are relative, separated by `/`, without `.` or `..`.
/// A clone is another handle to the same disk.
pub trait Disk: Clone + Send + Sync + Debug + 'static {
    /// An open file.
    type File: DiskFile;

    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` (for [`Mode::CreateNew`]), `StorageFull`, or what the system says.
    fn open(&self, path: &str, mode: Mode) -> io::Result<Self::File>;
    /// Names of the entries of a directory, sorted. The root is `""`.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Renames a file, replacing the file that stands at `to`; or a directory with everything
    /// beneath it, to a name that must be free. One operation: a crash keeps or undoes it whole.
    /// Durable after [`Disk::sync_dir`] of both parents.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the system says.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Makes a directory; one that exists is fine. Durable after syncing its parent.
    ///
    /// # Errors
    /// What the system says.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// True if a directory stands at the path, false if a file does.
    ///
    /// # Errors
    /// `NotFound` if nothing does, or what the system says.
    fn is_dir(&self, path: &str) -> io::Result<bool>;
    /// Removes an empty directory. Durable after syncing its parent.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, or what the system says.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// On how many threads a start may read files at once. More than one only where the order of
    /// reads has no meaning: a simulated disk counts every operation, and keeps the default of one.
    fn lanes(&self) -> usize {
        1
    }
    /// An error unless this process may read and write what stands at the path, and search it if it is
    /// a directory. A disk without users and permissions says yes to everything.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, `ReadOnlyFilesystem`, or what the system says.
    fn permits(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }
    /// Locks a file (creating it if needed) against every other process until the value drops.
    ///
    /// # Errors
    /// `WouldBlock` if somebody holds it.
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>>;
}

/// How to open a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An existing file, for reading only.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that must not exist yet, for reading and writing.
    CreateNew,
}

/// An open file. All methods take `&self`: the store's backend needs that.
pub trait DiskFile: Send + Sync + Debug + 'static {
    /// Length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;
    /// True if the file has no bytes.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) the file.
    ///
    /// # Errors
    /// `StorageFull`, or what the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reads exactly `into.len()` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` behind the end, or what the system says.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`, extending the file if needed.
    ///
    /// # Errors
    /// `StorageFull`, or what the system says; some of the bytes may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes content and length durable (`fdatasync`). After an error the written bytes may be
    /// readable and yet lost (R12): never call it again to make up for a failure.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self) -> io::Result<()>;
    /// Bytes `offset..offset + len` for sharing: a view into a map on a real disk, a copy on one
    /// in memory. Only for ranges that were verified by [`DiskFile::read_at`] in this open and
    /// that are never written again.
    ///
    /// # Errors
    /// As [`DiskFile::read_at`].
    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes>;
    /// Advice: these bytes need not stay in memory, so that the next read of them asks the medium.
    /// A system that does not take it reads what it has, and that is no error.
    fn forget(&self, _offset: u64, _len: u64) {}
    /// True if somebody may still hold bytes that [`DiskFile::share`] gave out: then nothing of the
    /// file may be written again (R17). What cannot tell says yes, and is never used again.
    fn is_shared(&self) -> bool {
        true
    }
}

//! The real disk: the only user of `std::fs` in the crate.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the one module that touches std::fs"
)]

pub mod mapped;

use super::{Disk, DiskFile, Mode};
use crate::map::Map;
use bytes::Bytes;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most threads that a start reads files on: beyond this memory is the limit, not the processor.
const LANES_MAX: usize = 4;

/// A directory of the real file system. Errors carry the operation and the path.
#[derive(Clone, Debug)]
pub struct RealDisk {
    root: Arc<PathBuf>,
}

impl RealDisk {
    /// A disk rooted at an existing directory.
    ///
    /// # Errors
    /// `NotFound` or `NotADirectory` if there is none.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        let meta = fs::metadata(&root).map_err(|e| named("open", &root, &e))?;
        if !meta.is_dir() {
            let why = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(named("open", &root, &why));
        }
        Ok(Self { root: Arc::new(root) })
    }

    /// A disk rooted at a directory that is made, with its parents, if it does not exist.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        let mut missing = Vec::new();
        let mut at = root.as_path();
        while !at.as_os_str().is_empty() && !at.exists() {
            missing.push(at.to_path_buf());
            let Some(parent) = at.parent() else { break };
            at = parent;
        }
        for dir in missing.iter().rev() {
            if let Err(e) = fs::create_dir(dir)
                && e.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(named("create directory", dir, &e));
            }
            let parent = match dir.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            sync_directory(parent)?;
        }
        Self::open(root)
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// True if some process holds this lock file (see [`Disk::lock`]), even if the file is gone.
    /// Nothing is written, and no file is made; the lock is shared for a moment, in which nobody
    /// could take it.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_locked(&self, path: &str) -> io::Result<bool> {
        let path = self.path(path)?;
        let dir = File::open(holder(&path)).map_err(|e| named("open", holder(&path), &e))?;
        if matches!(dir.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return Ok(true);
        }
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file.map_err(|e| named("open", &path, &e))?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(named("look at the lock", &path, &e)),
        }
    }

    fn path(&self, relative: &str) -> io::Result<PathBuf> {
        let path = Path::new(relative);
        if path.components().all(|c| matches!(c, Component::Normal(_))) {
            Ok(self.root.join(path))
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{relative:?} is not a relative path without `.` and `..`"),
            ))
        }
    }
}

/// The error with operation and path, of the same kind.
fn named(operation: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{operation} {}: {error}", path.display()))
}

/// The directory that a file lies in.
fn holder(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Locks the directory of a lock file. `None` where directories cannot be locked, as on file systems
/// that lock only what is open for writing: the file alone has to do there.
fn lock_holder(path: &Path) -> io::Result<Option<File>> {
    let dir = File::open(holder(path)).map_err(|e| named("open", holder(path), &e))?;
    match dir.try_lock() {
        Ok(()) => Ok(Some(dir)),
        Err(TryLockError::WouldBlock) => {
            Err(named("lock", path, &io::Error::from(io::ErrorKind::WouldBlock)))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|e| named("sync directory", path, &e))
}

impl Disk for RealDisk {
    type File = RealFile;

    fn open(&self, path: &str, mode: Mode) -> io::Result<RealFile> {
        let path = self.path(path)?;
        let mut options = OpenOptions::new();
        match mode {
            Mode::Read => options.read(true),
            Mode::Write => options.read(true).write(true),
            Mode::CreateNew => options.read(true).write(true).create_new(true),
        };
        let file = options.open(&path).map_err(|e| named("open", &path, &e))?;
        // The system opens a directory for reading as well, and fails only at the first read.
        if mode == Mode::Read && file.metadata().is_ok_and(|meta| meta.is_dir()) {
            return Err(named("open", &path, &io::Error::from(io::ErrorKind::IsADirectory)));
        }
        Ok(RealFile { file, path, map: Mutex::new(None), outlived: AtomicBool::new(false) })
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let path = self.path(dir)?;
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path)? {
                // A name that is not UTF-8 is none of ours.
                if let Ok(name) = entry?.file_name().into_string() {
                    names.push(name);
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        list().map_err(|e| named("list", &path, &e))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from)?, self.path(to)?);
        // The system would let a directory replace an empty one; the seam asks for a free name.
        if from.is_dir() && to.exists() {
            let why = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(named("rename a directory to", &to, &why));
        }
        fs::rename(&from, &to).map_err(|e| named("rename", &from, &e))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let path = self.path(path)?;
        fs::remove_file(&path).map_err(|e| named("remove", &path, &e))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let path = self.path(path)?;
        match fs::create_dir(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            result => result.map_err(|e| named("create directory", &path, &e)),
        }
    }

    fn is_dir(&self, path: &str) -> io::Result<bool> {
        let path = self.path(path)?;
        let meta = fs::symlink_metadata(&path).map_err(|e| named("look at", &path, &e))?;
        Ok(meta.is_dir())
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let path = self.path(path)?;
        fs::remove_dir(&path).map_err(|e| named("remove directory", &path, &e))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        sync_directory(&self.path(path)?)
    }

    fn lanes(&self) -> usize {
        std::thread::available_parallelism().map_or(1, |cores| cores.get().min(LANES_MAX))
    }

    fn permits(&self, path: &str) -> io::Result<()> {
        use rustix::fs::Access;
        let path = self.path(path)?;
        let search = if path.is_dir() { Access::EXEC_OK } else { Access::empty() };
        rustix::fs::access(&path, Access::READ_OK | Access::WRITE_OK | search)
            .map_err(|e| named("use", &path, &e.into()))
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        let path = self.path(path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| named("open", &path, &e))?;
        match file.try_lock() {
            // A lock file can be removed under its holder, and the next process would lock another
            // one: the directory goes wherever the data go. The locks go with the descriptors, even
            // if the process is killed.
            Ok(()) => Ok(Box::new((file, lock_holder(&path)?))),
            Err(TryLockError::WouldBlock) => {
                Err(named("lock", &path, &io::Error::from(io::ErrorKind::WouldBlock)))
            }
            Err(TryLockError::Error(e)) => Err(named("lock", &path, &e)),
        }
    }
}

/// An open file of a [`RealDisk`].
#[derive(Debug)]
pub struct RealFile {
    file: File,
    path: PathBuf,
    /// Made at the first [`DiskFile::share`]. Invariant: never longer than the file.
    map: Mutex<Option<Map>>,
    /// An older, shorter map had views when it was replaced: nobody counts those any more.
    outlived: AtomicBool,
}

impl RealFile {
    fn named<T>(&self, operation: &str, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| named(operation, &self.path, &e))
    }

    fn behind_the_end(&self, offset: u64, len: usize) -> io::Error {
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("read {}: {len} bytes at {offset} reach behind the end", self.path.display()),
        )
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        self.named("stat", self.file.metadata()).map(|m| m.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if map.as_ref().is_some_and(|map| len < map.len() as u64) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("cut {}: the file is mapped", self.path.display()),
            ));
        }
        self.named("resize", self.file.set_len(len))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.named("read", self.file.read_exact_at(into, offset))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.named("write", self.file.write_all_at(data, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.named("sync", self.file.sync_data())
    }

    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let Ok(start) = usize::try_from(offset) else {
            return Err(self.behind_the_end(offset, len));
        };
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = map.as_ref().and_then(|map| map.view(start, len)) {
            return Ok(view);
        }
        // Not mapped yet, or the file has grown since: older views keep their own map.
        let size = self.len()?;
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= size);
        let (true, Ok(size)) = (fits, usize::try_from(size)) else {
            return Err(self.behind_the_end(offset, len));
        };
        let fresh = self.named("map", Map::new(&self.file, size))?;
        let view = fresh.view(start, len);
        if map.replace(fresh).is_some_and(|mut older| !older.is_alone()) {
            self.outlived.store(true, Ordering::Release);
        }
        view.ok_or_else(|| self.behind_the_end(offset, len))
    }

    #[cfg(target_os = "linux")]
    fn forget(&self, offset: u64, len: u64) {
        use rustix::fs::{Advice, fadvise};
        // What is mapped and in use, or not written back yet, stays where it is.
        fadvise(&self.file, offset, std::num::NonZeroU64::new(len), Advice::DontNeed).ok();
    }

    fn is_shared(&self) -> bool {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let viewed = map.as_mut().is_some_and(|map| !map.is_alone());
        viewed || self.outlived.load(Ordering::Acquire)
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;

//! The other way to write: stores through a shared map, made durable by `msync`. Kept to be measured
//! beside [`RealDisk`] (the book says what came of it); no node uses it, and none should. A store into
//! a page that the device has no space for, or cannot read, kills the process with `SIGBUS`, where a
//! write returns an error.

use super::{RealDisk, RealFile, named};
use crate::disk::{Disk, DiskFile, Mode};
use crate::map::Store;
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A [`RealDisk`] on which bytes that a file has already are changed through a map of it. Whatever makes
/// a file longer is written, since a map ends where its file ended.
#[derive(Clone, Debug)]
pub struct MappedDisk(RealDisk);

impl MappedDisk {
    /// As [`RealDisk::create`].
    ///
    /// # Errors
    /// What the system says.
    pub fn create(root: impl Into<PathBuf>) -> io::Result<Self> {
        RealDisk::create(root).map(Self)
    }
}

impl Disk for MappedDisk {
    type File = MappedFile;

    fn open(&self, path: &str, mode: Mode) -> io::Result<MappedFile> {
        let inner = self.0.open(path, mode)?;
        Ok(MappedFile { inner, writable: mode != Mode::Read, state: Mutex::default() })
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.0.unlink(path)
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.0.make_dir(path)
    }
    fn is_dir(&self, path: &str) -> io::Result<bool> {
        self.0.is_dir(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.0.remove_dir(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn lanes(&self) -> usize {
        self.0.lanes()
    }
    fn permits(&self, path: &str) -> io::Result<()> {
        self.0.permits(path)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }
}

/// An open file of a [`MappedDisk`].
#[derive(Debug)]
pub struct MappedFile {
    inner: RealFile,
    writable: bool,
    state: Mutex<State>,
}

/// What was written since the last sync, and which way.
#[derive(Debug, Default)]
struct State {
    /// Made at the first write to bytes that are there.
    store: Option<Store>,
    /// From the first byte to the last that was stored.
    stored: Option<Range<usize>>,
    /// The file was written or resized as well.
    written: bool,
}

impl State {
    /// Stores bytes that the file has already; false if it ends before them.
    fn put(&mut self, inner: &RealFile, offset: u64, data: &[u8]) -> io::Result<bool> {
        let (Ok(start), Ok(len)) = (usize::try_from(offset), usize::try_from(inner.len()?)) else {
            return Ok(false);
        };
        let Some(end) = start.checked_add(data.len()).filter(|end| *end <= len && start < *end)
        else {
            return Ok(false);
        };
        if self.store.as_ref().is_none_or(|store| store.len() < end) {
            self.flush(inner)?;
            self.store = Some(Store::new(&inner.file, len)?);
        }
        let Some(store) = &mut self.store else { return Ok(false) };
        store.put(start, data);
        let before = self.stored.take().unwrap_or(start..end);
        self.stored = Some(before.start.min(start)..before.end.max(end));
        Ok(true)
    }

    fn flush(&mut self, inner: &RealFile) -> io::Result<()> {
        if let (Some(store), Some(stored)) = (&self.store, self.stored.take()) {
            store.flush(stored)?;
        }
        if std::mem::take(&mut self.written) {
            inner.sync()?;
        }
        Ok(())
    }
}

impl MappedFile {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named<T>(&self, operation: &str, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| named(operation, &self.inner.path, &e))
    }
}

impl DiskFile for MappedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.store.as_ref().is_some_and(|store| len < store.len() as u64) {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "the file is mapped");
            return self.named("cut", Err(why));
        }
        state.written = true;
        self.inner.set_len(len)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if self.writable && self.named("store into", state.put(&self.inner, offset, data))? {
            return Ok(());
        }
        state.written = true;
        self.inner.write_at(offset, data)
    }

    fn sync(&self) -> io::Result<()> {
        let flushed = self.state().flush(&self.inner);
        self.named("sync", flushed)
    }

    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.inner.share(offset, len)
    }

    fn forget(&self, offset: u64, len: u64) {
        self.inner.forget(offset, len);
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
}

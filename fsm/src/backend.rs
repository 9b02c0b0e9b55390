//! The store's file as redb sees it: a [`DiskFile`] behind a gate.
//!
//! redb writes when a database is dropped, and that write would make effects durable that the log
//! does not cover yet (R22), or touch a file whose sync has failed (R21). So every database is
//! *sealed* before it is dropped: behind a closed gate nothing reaches the disk any more. A store
//! that ends this way is in the state of its last checkpoint, exactly as after kill -9; since
//! checkpoints use quick-repair, opening it again is cheap.

use holdfast_consensus::fault::StoreFault;
use holdfast_log::disk::DiskFile;
use redb::StorageBackend;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes written at a time when blocks are reserved.
const ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What is known about the health of one open store file.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    sealed: AtomicBool,
    /// Set once a sync has failed: the file must never be used again, since its pages may read
    /// back as written and yet be lost.
    sync_failed: AtomicBool,
    /// The first error that the disk gave.
    first: Mutex<Option<(io::ErrorKind, String)>>,
}

impl Gate {
    /// Lets nothing through from now on.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    pub(crate) fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire)
    }

    /// The fault to report when the store failed with `error` while doing `what`. redb latches
    /// and wraps errors; the first one from the disk says what really happened.
    pub(crate) fn fault(&self, what: &str, error: impl Into<redb::Error>) -> StoreFault {
        let error = error.into();
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match first {
            Some((io::ErrorKind::StorageFull, detail)) => {
                StoreFault::Full { detail: format!("{what}: {detail}") }
            }
            Some((_, detail)) => StoreFault::Poisoned { detail: format!("{what}: {detail}") },
            None => match error {
                redb::Error::Corrupted(detail) => {
                    StoreFault::Untrusted(format!("{what}: the file is damaged: {detail}"))
                }
                redb::Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => {
                    StoreFault::Untrusted(format!("{what}: {e}"))
                }
                other => StoreFault::Poisoned { detail: format!("{what}: {other}") },
            },
        }
    }

    fn pass(&self) -> io::Result<()> {
        if self.sealed.load(Ordering::Acquire) {
            return Err(io::Error::other("the store is closed"));
        }
        Ok(())
    }

    fn note<T>(&self, operation: &str, result: io::Result<T>) -> io::Result<T> {
        if let Err(e) = &result {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| (e.kind(), format!("{operation}: {e}")));
        }
        result
    }
}

/// The backend of one open store file.
#[derive(Debug)]
pub(crate) struct Backend<F> {
    file: F,
    gate: Arc<Gate>,
    /// Write zeros over new blocks when the file grows, so that a full disk shows in one place,
    /// before any page is written there.
    reserve: bool,
}

impl<F: DiskFile> Backend<F> {
    pub(crate) fn new(file: F, gate: Arc<Gate>, reserve: bool) -> Self {
        Self { file, gate, reserve }
    }

    fn grow(&self, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let piece = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.file.write_at(at, &ZEROS[..piece])?;
            at += piece as u64;
        }
        Ok(())
    }
}

impl<F: DiskFile> StorageBackend for Backend<F> {
    fn len(&self) -> io::Result<u64> {
        self.gate.pass()?;
        self.gate.note("length", self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.gate.pass()?;
        self.gate.note("read", self.file.read_at(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.gate.pass()?;
        let result = self.file.len().and_then(|old| match len > old && self.reserve {
            true => self.grow(old, len),
            false => self.file.set_len(len),
        });
        self.gate.note("resize", result)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass()?;
        let result = self.file.sync();
        if result.is_err() {
            self.gate.sync_failed.store(true, Ordering::Release);
        }
        self.gate.note("sync", result)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.gate.pass()?;
        self.gate.note("write", self.file.write_at(offset, data))
    }
}

//! The store's file as redb sees it: a [`DiskFile`] behind a gate.
//!
//! redb writes when a database is dropped, and that write would make effects durable that the log
//! does not cover yet (R22), or touch a file whose sync has failed (R21). So every database is
//! *sealed* before it is dropped: behind a closed gate nothing reaches the disk any more. A store
//! that ends this way is in the state of its last checkpoint, exactly as after kill -9; since
//! checkpoints use quick-repair, opening it again is cheap.

use crate::contain::contained;
use crate::reserve::GiveUp;
use holdfast_consensus::fault::StoreFault;
use holdfast_log::disk::DiskFile;
use redb::StorageBackend;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes written at a time when blocks are reserved.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What is known about the health of one open store file.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    sealed: AtomicBool,
    /// Set once a sync has failed: the file must never be used again, since its pages may read
    /// back as written and yet be lost.
    sync_failed: AtomicBool,
    /// Length of the file, in bytes.
    len: AtomicU64,
    /// The first error that the disk gave.
    first: Mutex<Option<(io::ErrorKind, String)>>,
}

impl Gate {
    /// Lets nothing through from now on.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// Length of the store's file as far as it is written, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire)
    }

    /// Runs one call of redb that does `what`. If it panics, nothing reaches the file any more.
    pub(crate) fn run<T, E: Into<redb::Error>>(
        &self,
        what: &str,
        act: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, StoreFault> {
        match contained(act) {
            Ok(result) => result.map_err(|e| self.fault(what, e)),
            Err(text) => {
                self.seal();
                let damage =
                    || StoreFault::Untrusted(format!("{what}: the file is damaged: {text}"));
                Err(self.first_fault(what).unwrap_or_else(damage))
            }
        }
    }

    /// The fault to report when the store failed with `error` while doing `what`. redb latches
    /// and wraps errors; the first one from the disk says what really happened.
    fn fault(&self, what: &str, error: impl Into<redb::Error>) -> StoreFault {
        let error = error.into();
        self.first_fault(what).unwrap_or_else(|| match error {
            error if is_damaged(&error) => {
                StoreFault::Untrusted(format!("{what}: the file is damaged: {error}"))
            }
            other => StoreFault::Poisoned { detail: format!("{what}: {other}") },
        })
    }

    /// The fault that the disk gave first, if it gave any.
    fn first_fault(&self, what: &str) -> Option<StoreFault> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
        first.map(|(kind, detail)| match kind {
            io::ErrorKind::StorageFull => StoreFault::Full { detail: format!("{what}: {detail}") },
            kind if is_damage(kind) => {
                StoreFault::Untrusted(format!("{what}: the file is damaged: {detail}"))
            }
            _ => StoreFault::Poisoned { detail: format!("{what}: {detail}") },
        })
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

/// Errors that say something of the file's content, not of the disk: what is no database, and a
/// page that lies behind the end.
fn is_damage(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Errors of redb that a healthy file of ours never gives: a version, a table or a type of a table
/// that we never wrote.
fn is_damaged(error: &redb::Error) -> bool {
    use redb::Error as E;
    match error {
        E::Io(e) => is_damage(e.kind()),
        E::Corrupted(_)
        | E::UpgradeRequired(_)
        | E::TableDoesNotExist(_)
        | E::TableIsMultimap(_)
        | E::TableTypeMismatch { .. }
        | E::TypeDefinitionChanged { .. } => true,
        _ => false,
    }
}

/// Something that redb asked of a file that is still held.
#[derive(Debug)]
enum HeldOp {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

/// The file of one open store. While it is *held*, what redb writes stays in memory, in order: so
/// a store is opened and looked at before the first byte of it changes (opening writes, R20, and a
/// refused store keeps every byte, R28).
#[derive(Debug)]
pub(crate) struct StoreFile<F> {
    file: F,
    gate: Arc<Gate>,
    /// Write zeros over new blocks when the file grows, so that a full disk shows in one place,
    /// before any page is written there.
    reserve: bool,
    /// What is given up where there is no space to grow.
    keeps: Option<Arc<dyn GiveUp>>,
    is_held: AtomicBool,
    held: Mutex<Vec<HeldOp>>,
}

impl<F: DiskFile> StoreFile<F> {
    pub(crate) fn new(
        file: F,
        gate: Arc<Gate>,
        reserve: bool,
        keeps: Option<Arc<dyn GiveUp>>,
        held: bool,
    ) -> Self {
        let is_held = AtomicBool::new(held);
        gate.len.store(file.len().unwrap_or(0), Ordering::Release);
        Self { file, gate, reserve, keeps, is_held, held: Mutex::new(Vec::new()) }
    }

    /// Carries out what was held back, in its order, and holds nothing from now on.
    pub(crate) fn release(&self) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for op in held.drain(..) {
            match op {
                HeldOp::Write(offset, data) => self.write_through(offset, &data)?,
                HeldOp::SetLen(len) => self.resize_through(len)?,
                HeldOp::Sync => self.sync_through()?,
            }
        }
        self.is_held.store(false, Ordering::Release);
        Ok(())
    }

    fn hold(&self, op: impl FnOnce() -> HeldOp) -> bool {
        let is_held = self.is_held.load(Ordering::Acquire);
        if is_held {
            self.held.lock().unwrap_or_else(PoisonError::into_inner).push(op());
        }
        is_held
    }

    fn write_through(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.gate.note("write", self.file.write_at(offset, data))
    }

    fn resize_through(&self, len: u64) -> io::Result<()> {
        let result = self.file.len().and_then(|old| match len > old && self.reserve {
            true => match self.grow(old, len) {
                Err(e) if e.kind() == io::ErrorKind::StorageFull && self.gives_up() => {
                    self.grow(old, len)
                }
                grown => grown,
            },
            false => self.file.set_len(len),
        });
        if result.is_ok() {
            self.gate.len.store(len, Ordering::Release);
        }
        self.gate.note("resize", result)
    }

    fn sync_through(&self) -> io::Result<()> {
        let result = self.file.sync();
        if result.is_err() {
            self.gate.sync_failed.store(true, Ordering::Release);
        }
        self.gate.note("sync", result)
    }

    fn gives_up(&self) -> bool {
        self.keeps.as_ref().is_some_and(|keeps| keeps.give_up())
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

    /// Length as redb sees it.
    fn seen_len(&self) -> io::Result<u64> {
        let mut len = self.gate.note("length", self.file.len())?;
        if self.is_held.load(Ordering::Acquire) {
            for op in self.held.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                match op {
                    HeldOp::Write(offset, data) => len = len.max(offset + data.len() as u64),
                    HeldOp::SetLen(to) => len = *to,
                    HeldOp::Sync => {}
                }
            }
        }
        Ok(len)
    }

    /// Reads the file as redb sees it: what is on the disk, then what is held over it.
    fn read_held(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if end > self.seen_len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.fill(0);
        let on_disk = self.gate.note("length", self.file.len())?.saturating_sub(offset);
        let on_disk = usize::try_from(on_disk).unwrap_or(usize::MAX).min(out.len());
        self.gate.note("read", self.file.read_at(offset, &mut out[..on_disk]))?;
        for op in self.held.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            match op {
                HeldOp::Write(at, data) => patch(offset, out, *at, data),
                HeldOp::SetLen(len) if *len < end => {
                    let kept = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
                    out[kept..].fill(0);
                }
                HeldOp::SetLen(_) | HeldOp::Sync => {}
            }
        }
        Ok(())
    }
}

/// Copies the part of `data` (at `at`) that lies in `out` (at `offset`).
fn patch(offset: u64, out: &mut [u8], at: u64, data: &[u8]) {
    let from = at.max(offset);
    let to = (at + data.len() as u64).min(offset + out.len() as u64);
    if from < to {
        let index = |position: u64, base: u64| {
            usize::try_from(position - base).expect("a position inside a buffer in memory")
        };
        out[index(from, offset)..index(to, offset)]
            .copy_from_slice(&data[index(from, at)..index(to, at)]);
    }
}

/// The backend of one open store file.
#[derive(Debug)]
pub(crate) struct Backend<F>(pub(crate) Arc<StoreFile<F>>);

impl<F: DiskFile> StorageBackend for Backend<F> {
    fn len(&self) -> io::Result<u64> {
        self.0.gate.pass()?;
        self.0.seen_len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.gate.pass()?;
        if self.0.is_held.load(Ordering::Acquire) {
            return self.0.read_held(offset, out);
        }
        self.0.gate.note("read", self.0.file.read_at(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.gate.pass()?;
        if self.0.hold(|| HeldOp::SetLen(len)) { Ok(()) } else { self.0.resize_through(len) }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.gate.pass()?;
        if self.0.hold(|| HeldOp::Sync) { Ok(()) } else { self.0.sync_through() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.gate.pass()?;
        if self.0.hold(|| HeldOp::Write(offset, data.to_vec())) {
            return Ok(());
        }
        self.0.write_through(offset, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_log::MemDisk;
    use holdfast_log::disk::{Disk, Mode};

    fn held_file(disk: &MemDisk) -> Backend<<MemDisk as Disk>::File> {
        let file = disk.open("store/a", Mode::Write).unwrap();
        Backend(Arc::new(StoreFile::new(file, Arc::new(Gate::default()), false, None, true)))
    }

    #[test]
    fn a_held_file_reads_as_written_and_changes_only_when_it_is_released() {
        let files = [("store/a".to_owned(), vec![1u8; 10])];
        let disk = MemDisk::from_files(files.into());
        let before = disk.trace_hash();
        let backend = held_file(&disk);
        backend.write(8, &[2; 4]).unwrap();
        backend.set_len(11).unwrap();
        backend.set_len(20).unwrap();
        backend.sync_data().unwrap();
        assert_eq!(backend.len().unwrap(), 20);
        let mut seen = [9u8; 20];
        backend.read(0, &mut seen).unwrap();
        let mut want = [0u8; 20];
        want[..8].fill(1);
        want[8..11].fill(2);
        assert_eq!(seen, want);
        assert!(backend.read(15, &mut [0; 6]).is_err(), "behind the end");
        assert_eq!(disk.trace_hash(), before, "nothing has reached the disk");
        backend.0.release().unwrap();
        assert_eq!(disk.files()["store/a"], want);
    }

    #[test]
    fn a_sealed_file_lets_nothing_through() {
        let disk = MemDisk::from_files([("store/a".to_owned(), vec![1u8; 10])].into());
        let backend = held_file(&disk);
        backend.0.release().unwrap();
        backend.0.gate.seal();
        let before = disk.trace_hash();
        assert!(backend.write(0, &[2]).is_err());
        assert!(backend.set_len(0).is_err());
        assert!(backend.sync_data().is_err());
        assert!(backend.read(0, &mut [0]).is_err());
        assert!(!backend.0.gate.sync_failed(), "a closed gate is not a failed sync");
        assert_eq!(disk.trace_hash(), before);
    }
}

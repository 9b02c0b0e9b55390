//! Spare segments: preallocated and zero-filled, so that a later write neither allocates nor
//! extends anything. A segment that the log gave up becomes the next spare: its blocks are there
//! already, and what is left in them carries another salt and never verifies.

use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::{create_fault, poison};
use crate::position::{LOG_DIR, Name};
use crate::segment::FIRST_BATCH;
use crate::sync::{AtomicBool, Ordering};
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::traits::SpareWork;
use std::io;
use std::sync::Arc;

/// Bytes of one write while a file is filled: small, so that a large page-cache folio never forms.
const FILL_WRITE: usize = 64 << 10;
/// Bytes that one step of [`Spare`] fills.
const FILL_STEP: u64 = 1 << 20;

/// A complete spare on disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpareFile {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// Made by this process, so that nothing was ever written into it under its number.
    pub(crate) fresh: bool,
    /// It was a segment before, and may hold the bytes of that.
    pub(crate) used: bool,
}

/// What the log and a spare under preparation tell each other.
#[derive(Debug, Default)]
pub(crate) struct Making {
    /// A spare is being made.
    pub(crate) busy: AtomicBool,
    /// The last attempt failed.
    pub(crate) failed: AtomicBool,
}

/// A spare segment under preparation.
#[derive(Debug)]
pub struct Spare<D: Disk> {
    disk: D,
    number: u64,
    bytes: u64,
    file: Option<D::File>,
    filled: u64,
    done: bool,
    /// It is a segment that was given up: there under its unfinished name, and long enough.
    used: bool,
    making: Arc<Making>,
}

impl<D: Disk> Spare<D> {
    pub(crate) fn new(disk: D, number: u64, bytes: u64, making: Arc<Making>) -> Self {
        making.busy.store(true, Ordering::Release);
        Self { disk, number, bytes, file: None, filled: 0, done: false, used: false, making }
    }

    /// A given-up segment, to be used again under this number.
    pub(crate) fn again(disk: D, number: u64, bytes: u64, making: Arc<Making>) -> Self {
        let mut spare = Self::new(disk, number, bytes, making);
        spare.used = true;
        spare
    }

    /// The finished spare, or `None` if it is not finished.
    pub(crate) fn finished(&self) -> Option<SpareFile> {
        let (number, bytes, used) = (self.number, self.bytes, self.used);
        self.done.then_some(SpareFile { number, bytes, fresh: true, used })
    }

    fn unfinished_path(&self) -> String {
        Name::Unfinished { number: self.number }.path()
    }

    fn try_step(&mut self) -> io::Result<bool> {
        let path = self.unfinished_path();
        if self.used {
            // Without a header, and durably so, before there is a name under which it is taken (R16).
            let file = self.disk.open(&path, Mode::Write)?;
            fill(&file, 0, FIRST_BATCH)?;
            let len = file.len()?;
            fill(&file, len, self.bytes)?;
            file.sync()?;
            return self.name(&path);
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.disk.open(&path, Mode::CreateNew)?),
        };
        let end = (self.filled + FILL_STEP).min(self.bytes);
        fill(file, self.filled, end)?;
        self.filled = end;
        if self.filled < self.bytes {
            return Ok(false);
        }
        file.sync()?;
        self.name(&path)
    }

    fn name(&mut self, path: &str) -> io::Result<bool> {
        self.disk.rename(path, &Name::Spare { number: self.number }.path())?;
        self.disk.sync_dir(LOG_DIR)?;
        self.done = true;
        Ok(true)
    }
}

impl<D: Disk> SpareWork for Spare<D> {
    fn step(&mut self) -> Result<bool, LogFault> {
        if self.done {
            return Ok(true);
        }
        self.try_step().map_err(|e| {
            self.making.failed.store(true, Ordering::Release);
            create_fault("prepare the next segment", &e)
        })
    }
}

impl<D: Disk> Drop for Spare<D> {
    fn drop(&mut self) {
        self.making.busy.store(false, Ordering::Release);
        if (self.file.is_some() || self.used) && !self.done {
            self.file = None;
            // What cannot be removed now is removed by the next open.
            self.disk.unlink(&self.unfinished_path()).ok();
        }
    }
}

/// Writes zeros over `from..to`.
pub(crate) fn fill<F: DiskFile>(file: &F, mut from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; FILL_WRITE] = [0; FILL_WRITE];
    while from < to {
        let piece = usize::try_from(to - from).unwrap_or(FILL_WRITE).min(FILL_WRITE);
        file.write_at(from, &ZEROS[..piece])?;
        from += piece as u64;
    }
    Ok(())
}

/// Makes a complete spare at once.
pub(crate) fn make_now<D: Disk>(disk: &D, number: u64, bytes: u64) -> Result<SpareFile, LogFault> {
    let making = Arc::new(Making::default());
    let mut spare = Spare::new(disk.clone(), number, bytes, making);
    while !spare.step()? {}
    spare.finished().ok_or_else(|| poison("prepare a segment", "it was not finished"))
}

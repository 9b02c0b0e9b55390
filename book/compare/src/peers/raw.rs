//! The limit: positioned write and fdatasync of the bare payload to a file that was filled before.
//!
//! Durable by `File::sync_data` after every batch.

use super::Peer;
use crate::batch::Batch;
use crate::error::CompareError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Length of the file; written from the front again when it is full, as over a recycled segment.
const FILE: u64 = 64 << 20;
/// Bytes of one write of the filling, as the log fills its own: the page cache keeps what came in one
/// write as one folio, and over folios of 4 KiB the same bytes take up to twice as long (`log-ways`).
const FILL: usize = 64 << 10;

/// The bare disk.
#[derive(Debug)]
pub(crate) struct Raw {
    file: File,
    offset: u64,
}

impl Raw {
    /// Makes the file, filled with zeros and synced, so that no write allocates.
    pub(crate) fn create(dir: &Path) -> Result<Self, CompareError> {
        let path = dir.join("raw");
        let make = || {
            let file = File::create_new(&path)?;
            for offset in (0..FILE).step_by(FILL) {
                file.write_all_at(&[0; FILL], offset)?;
            }
            file.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(|e| CompareError::disk("fill", &path, &e))?;
        Ok(Self { file, offset: 0 })
    }
}

impl Peer for Raw {
    fn append(&mut self, batch: &Batch) -> Result<(), CompareError> {
        let len = batch.whole.len() as u64;
        if self.offset + len > FILE {
            self.offset = 0;
        }
        (self.file.write_all_at(&batch.whole, self.offset))
            .and_then(|()| self.file.sync_data())
            .map_err(|e| CompareError::peer("raw", "append", e))?;
        self.offset += len;
        Ok(())
    }
}

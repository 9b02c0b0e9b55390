//! okaywal, a write-ahead log, with its default settings. A batch is one entry of it with a chunk
//! for each of ours; what is behind the newest segment is given up at once (`LogVoid`), which is the
//! least work it can be given.
//!
//! Durable by `commit`, which returns after the sync that covers the entry.

use super::Peer;
use crate::batch::Batch;
use crate::error::CompareError;
use ::okaywal::{LogVoid, WriteAheadLog};
use std::path::Path;

const NAME: &str = "okaywal";

/// okaywal.
pub(crate) struct Okaywal {
    log: WriteAheadLog,
}

impl Okaywal {
    /// Opens or creates a log.
    pub(crate) fn open(dir: &Path) -> Result<Self, CompareError> {
        let log = WriteAheadLog::recover(dir, LogVoid);
        Ok(Self { log: log.map_err(|e| CompareError::peer(NAME, "open", e))? })
    }
}

impl Peer for Okaywal {
    fn append(&mut self, batch: &Batch) -> Result<(), CompareError> {
        let append = || {
            let mut entry = self.log.begin_entry()?;
            for (_, payload) in batch.entries() {
                entry.write_chunk(&payload)?;
            }
            entry.commit()
        };
        append().map(drop).map_err(|e| CompareError::peer(NAME, "append", e))
    }
}

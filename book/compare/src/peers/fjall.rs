//! fjall, an embedded store, with one keyspace from index to payload.
//!
//! Durable by `PersistMode::SyncData` on every batch: the commit returns after the fdatasync of its
//! journal.

use super::Peer;
use crate::batch::Batch;
use crate::error::CompareError;
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::fmt::Display;
use std::path::Path;

const NAME: &str = "fjall";

/// fjall.
pub(crate) struct Fjall {
    store: Database,
    log: Keyspace,
}

fn failed<E: Display>(operation: &'static str) -> impl Fn(E) -> CompareError {
    move |e| CompareError::peer(NAME, operation, e)
}

impl Fjall {
    /// Opens or creates a store.
    pub(crate) fn open(dir: &Path) -> Result<Self, CompareError> {
        let store = Database::builder(dir).open().map_err(failed("open"))?;
        let log = store.keyspace("log", KeyspaceCreateOptions::default).map_err(failed("open"))?;
        Ok(Self { store, log })
    }

    /// Index of the last entry; zero if there is none.
    pub(crate) fn last(&self) -> Result<u64, CompareError> {
        let Some(last) = self.log.last_key_value() else { return Ok(0) };
        let key = last.key().map_err(failed("read"))?;
        let key: [u8; 8] =
            key.as_ref().try_into().map_err(|_| CompareError::peer(NAME, "read", "a bad key"))?;
        Ok(u64::from_be_bytes(key))
    }
}

impl Peer for Fjall {
    fn append(&mut self, batch: &Batch) -> Result<(), CompareError> {
        let mut write = self.store.batch().durability(Some(PersistMode::SyncData));
        for (index, payload) in batch.entries() {
            write.insert(&self.log, index.to_be_bytes(), &payload[..]);
        }
        write.commit().map_err(failed("append"))
    }
}

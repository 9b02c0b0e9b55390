//! redb, an embedded store, with one table from index to payload.
//!
//! Durable by `Durability::Immediate`: a commit returns after its sync.

use super::Peer;
use crate::batch::Batch;
use crate::error::CompareError;
use ::redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::fmt::Display;
use std::path::Path;

const NAME: &str = "redb";
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");

/// redb.
pub(crate) struct Redb {
    store: Database,
}

fn failed<E: Display>(operation: &'static str) -> impl Fn(E) -> CompareError {
    move |e| CompareError::peer(NAME, operation, e)
}

impl Redb {
    /// Opens or creates a store.
    pub(crate) fn open(dir: &Path) -> Result<Self, CompareError> {
        let store = Database::create(dir.join("log.redb")).map_err(failed("open"))?;
        Ok(Self { store })
    }

    /// Index of the last entry; zero if there is none.
    pub(crate) fn last(&self) -> Result<u64, CompareError> {
        let read = self.store.begin_read().map_err(failed("read"))?;
        let table = read.open_table(LOG).map_err(failed("read"))?;
        let last = table.last().map_err(failed("read"))?;
        Ok(last.map_or(0, |(index, _)| index.value()))
    }
}

impl Peer for Redb {
    fn append(&mut self, batch: &Batch) -> Result<(), CompareError> {
        let mut write = self.store.begin_write().map_err(failed("append"))?;
        write.set_durability(Durability::Immediate).map_err(failed("append"))?;
        {
            let mut table = write.open_table(LOG).map_err(failed("append"))?;
            for (index, payload) in batch.entries() {
                table.insert(index, &payload[..]).map_err(failed("append"))?;
            }
        }
        write.commit().map_err(failed("append"))
    }
}

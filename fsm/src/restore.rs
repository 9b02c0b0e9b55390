//! A second store, filled from a snapshot stream beside the live one.

use crate::header::Header;
use crate::records;
use crate::rows::Rows;
use crate::snapshot::{Parser, Part};
use crate::store::Store;
use holdfast_consensus::SnapshotMeta;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::SnapshotSink;

/// A state under construction. It is verified against its own footer and against its label, made
/// durable and walked whole when the footer arrives; only then can it be adopted.
pub struct Restore {
    store: Store,
    path: String,
    label: SnapshotMeta,
    offset: u64,
    parser: Parser,
    /// The header of the stream.
    wanted: Option<Header>,
    /// What was written so far: same header, digest and counts of the records.
    written: Header,
    complete: bool,
    /// Set by the first error: a stream that went wrong once is never completed.
    broken: bool,
}

impl Restore {
    pub(crate) fn new(store: Store, path: String, label: SnapshotMeta, written: Header) -> Self {
        Self {
            store,
            path,
            label,
            offset: 0,
            parser: Parser::default(),
            wanted: None,
            written,
            complete: false,
            broken: false,
        }
    }

    /// Path of the file and last entry of the state.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn label(&self) -> &SnapshotMeta {
        &self.label
    }

    /// True once everything has been verified and is durable.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete && !self.broken
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), StoreFault> {
        self.parser.feed(chunk);
        while let Some(part) = self.parser.next_part().map_err(StoreFault::Snapshot)? {
            match part {
                Part::Header(header) => self.header(*header)?,
                Part::Records(rows) => {
                    let txn = self.store.begin(true)?;
                    let gate = self.store.gate();
                    let mut map = Rows::open(&txn, gate, &self.written)?;
                    for (table, key, value) in rows {
                        map.put_raw(table, &records::key(table, &key), &value)?;
                    }
                    map.finish(&mut self.written)?;
                    self.store.commit(txn)?;
                }
                Part::Footer { digest, counts } => {
                    if (digest, counts) != (self.written.digest, self.written.counts) {
                        return Err(mismatch("the records do not match the footer"));
                    }
                    self.finish()?;
                }
            }
        }
        Ok(())
    }

    fn header(&mut self, header: Header) -> Result<(), StoreFault> {
        if let Some(field) = header.differs_from(&self.label) {
            return Err(StoreFault::Snapshot(format!(
                "its header and its label differ in the {field}: nothing was installed"
            )));
        }
        self.wanted = Some(header);
        Ok(())
    }

    /// Writes the header, makes everything durable, and walks it.
    fn finish(&mut self) -> Result<(), StoreFault> {
        let wanted = self.wanted.take().ok_or_else(|| mismatch("it has no header"))?;
        if (wanted.digest, wanted.counts) != (self.written.digest, self.written.counts) {
            return Err(mismatch("the records do not match the header"));
        }
        self.written = wanted;
        let txn = self.store.begin(false)?;
        Rows::open(&txn, self.store.gate(), &self.written)?.finish(&mut self.written)?;
        self.store.commit(txn)?;
        self.store.read()?.verify()?;
        self.complete = true;
        Ok(())
    }
}

fn mismatch(what: &str) -> StoreFault {
    StoreFault::Snapshot(format!("{what}: nothing was installed"))
}

impl SnapshotSink for Restore {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn put_chunk(&mut self, offset: u64, chunk: &[u8]) -> Result<(), StoreFault> {
        if self.broken {
            return Err(mismatch("an earlier chunk did not verify"));
        }
        if offset != self.offset {
            return Err(StoreFault::Snapshot(format!(
                "a chunk at offset {offset} where {} was expected",
                self.offset
            )));
        }
        let result = self.take(chunk);
        match &result {
            Ok(()) => self.offset += chunk.len() as u64,
            Err(_) => self.broken = true,
        }
        result
    }
}

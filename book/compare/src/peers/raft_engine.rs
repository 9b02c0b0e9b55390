//! raft-engine, the log of TiKV, with its default settings but for compression: the payloads cannot
//! be compressed, and trying would only cost it.
//!
//! Durable by `write(.., sync = true)`, which returns after an fdatasync.

use super::{Peer, Replay};
use crate::batch::Batch;
use crate::error::CompareError;
use ::raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};
use bytes::Bytes;
use protobuf::well_known_types::BytesValue;
use std::path::Path;

const NAME: &str = "raft-engine";
const GROUP: u64 = 1;
/// Most bytes of one fetch.
const FETCH: usize = 1 << 20;
/// Most entries of one fetch.
const STEP: u64 = 4096;

/// Bytes of the index before the payload.
const INDEX: usize = 8;

/// What entries are: protobuf messages that know their index, as it demands. This is the smallest
/// there is (eight bytes of index and the payload in one field), so that it costs it as little as
/// can be.
#[derive(Clone)]
struct Payload;

impl MessageExt for Payload {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        let index = entry.value.first_chunk::<INDEX>();
        index.map_or(0, |index| u64::from_le_bytes(*index))
    }
}

fn message((index, payload): (u64, Bytes)) -> BytesValue {
    let mut value = Vec::with_capacity(INDEX + payload.len());
    value.extend_from_slice(&index.to_le_bytes());
    value.extend_from_slice(&payload);
    BytesValue { value, ..BytesValue::default() }
}

/// raft-engine.
pub(crate) struct RaftEngine {
    engine: Engine,
    batch: LogBatch,
}

impl RaftEngine {
    /// Opens or creates an engine.
    pub(crate) fn open(dir: &Path) -> Result<Self, CompareError> {
        let config = Config {
            dir: dir.to_string_lossy().into_owned(),
            batch_compression_threshold: ReadableSize(0),
            ..Config::default()
        };
        let engine = Engine::open(config).map_err(|e| CompareError::peer(NAME, "open", e))?;
        Ok(Self { engine, batch: LogBatch::default() })
    }

    /// Index of the last entry; zero if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.engine.last_index(GROUP).unwrap_or_default()
    }
}

impl Peer for RaftEngine {
    fn append(&mut self, batch: &Batch) -> Result<(), CompareError> {
        let messages: Vec<BytesValue> = batch.entries().map(message).collect();
        let result = self.batch.add_entries::<Payload>(GROUP, &messages);
        result.map_err(|e| CompareError::peer(NAME, "append", e))?;
        let written = self.engine.write(&mut self.batch, true);
        written.map_err(|e| CompareError::peer(NAME, "append", e))?;
        Ok(())
    }
}

impl Replay for RaftEngine {
    /// Checksums are verified by each read: those of whole blocks.
    fn read_all(&mut self, last: u64) -> Result<u64, CompareError> {
        let (mut from, mut bytes, mut piece) = (1, 0, Vec::new());
        while from <= last {
            piece.clear();
            let end = (from + STEP).min(last + 1);
            let count = (self.engine)
                .fetch_entries_to::<Payload>(GROUP, from, end, Some(FETCH), &mut piece)
                .map_err(|e| CompareError::peer(NAME, "read", e))?;
            if count == 0 {
                return Err(CompareError::peer(NAME, "read", format!("no entry {from}")));
            }
            bytes += piece.iter().map(|entry| (entry.value.len() - INDEX) as u64).sum::<u64>();
            from += count as u64;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn an_entry_knows_its_index_and_keeps_its_payload() {
        let entry = message((0x0102_0304, Bytes::from_static(b"payload")));
        assert_eq!(Payload::index(&entry), 0x0102_0304);
        assert_eq!(&entry.value[INDEX..], b"payload");
    }
}

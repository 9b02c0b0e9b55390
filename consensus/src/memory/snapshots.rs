//! Snapshot files in memory.

use super::locked;
use crate::fault::StoreFault;
use crate::traits::{SNAPSHOT_CHUNK_MAX, SnapshotSink, SnapshotSource, SnapshotStore};
use crate::types::SnapshotMeta;
use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// Published files that are kept.
const KEPT: usize = 2;

#[derive(Clone, Debug)]
struct File {
    meta: SnapshotMeta,
    chunks: Vec<Bytes>,
    /// Set by [`MemorySnapshots::corrupt`]: reading must find it out.
    corrupt: bool,
}

impl File {
    fn len(&self) -> u64 {
        self.chunks.iter().map(|c| c.len() as u64).sum()
    }
}

#[derive(Debug, Default)]
struct State {
    published: Vec<File>,
    partial: Option<File>,
    generation: u64,
    failing: u32,
}

/// Snapshot files in memory; clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemorySnapshots {
    state: Arc<Mutex<State>>,
}

impl MemorySnapshots {
    /// Flips a byte, so to say, in the newest published file that is still good. False if there
    /// is none.
    #[must_use]
    pub fn corrupt(&self) -> bool {
        let mut state = locked(&self.state);
        state.published.iter_mut().rfind(|f| !f.corrupt).is_some_and(|file| {
            file.corrupt = true;
            true
        })
    }

    /// The next `count` publications fail.
    pub fn fail_publish(&self, count: u32) {
        locked(&self.state).failing = count;
    }

    /// The process dies: writers that still exist can change nothing more.
    pub(super) fn crash(&self) {
        locked(&self.state).generation += 1;
    }
}

fn stale() -> StoreFault {
    StoreFault::Snapshot("the partial file was replaced or the process died".into())
}

impl SnapshotStore for MemorySnapshots {
    type Writer = MemorySnapshotWriter;
    type Reader = MemorySnapshotReader;

    fn create(&self, meta: &SnapshotMeta) -> Result<MemorySnapshotWriter, StoreFault> {
        let mut state = locked(&self.state);
        // Whoever wrote the partial file before is cut off: one writer at a time.
        state.generation += 1;
        if state.partial.as_ref().is_none_or(|p| p.meta != *meta) {
            state.partial = Some(File { meta: meta.clone(), chunks: Vec::new(), corrupt: false });
        }
        let offset = state.partial.as_ref().map_or(0, File::len);
        let generation = state.generation;
        drop(state);
        Ok(MemorySnapshotWriter { state: Arc::clone(&self.state), generation, offset })
    }

    fn publish(&self, writer: MemorySnapshotWriter) -> Result<SnapshotMeta, StoreFault> {
        let mut state = locked(&self.state);
        if state.generation != writer.generation {
            return Err(stale());
        }
        let Some(mut file) = state.partial.take() else { return Err(stale()) };
        if state.failing > 0 {
            state.failing -= 1;
            return Err(StoreFault::Poisoned { detail: "a failure was asked for".into() });
        }
        if file.meta.bytes != 0 && file.meta.bytes != file.len() {
            let (want, have) = (file.meta.bytes, file.len());
            return Err(StoreFault::Snapshot(format!(
                "{have} bytes arrived, {want} were announced"
            )));
        }
        file.meta.bytes = file.len();
        let meta = file.meta.clone();
        state.published.retain(|f| f.meta.last != meta.last);
        state.published.push(file);
        state.published.sort_by_key(|f| f.meta.last.index);
        let surplus = state.published.len().saturating_sub(KEPT);
        state.published.drain(..surplus);
        Ok(meta)
    }

    fn newest(&self) -> Option<SnapshotMeta> {
        let state = locked(&self.state);
        state.published.iter().rfind(|f| !f.corrupt).map(|f| f.meta.clone())
    }

    fn open(&self, meta: &SnapshotMeta, offset: u64) -> Result<MemorySnapshotReader, StoreFault> {
        let state = locked(&self.state);
        let Some(file) = state.published.iter().find(|f| f.meta == *meta) else {
            return Err(StoreFault::Snapshot(format!("no snapshot at {} is published", meta.last)));
        };
        if file.corrupt {
            return Err(StoreFault::Snapshot(format!("the snapshot at {} is damaged", meta.last)));
        }
        let mut at = 0;
        let mut left = file.chunks.clone();
        while at < offset && !left.is_empty() {
            at += left.remove(0).len() as u64;
        }
        if at != offset {
            return Err(StoreFault::Snapshot(format!("{offset} is no chunk boundary")));
        }
        left.reverse();
        Ok(MemorySnapshotReader { left })
    }
}

/// Writes a snapshot file in memory.
#[derive(Debug)]
pub struct MemorySnapshotWriter {
    state: Arc<Mutex<State>>,
    generation: u64,
    offset: u64,
}

impl SnapshotSink for MemorySnapshotWriter {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn put_chunk(&mut self, offset: u64, chunk: &[u8]) -> Result<(), StoreFault> {
        let mut state = locked(&self.state);
        if state.generation != self.generation {
            return Err(stale());
        }
        if offset != self.offset || chunk.is_empty() || chunk.len() > SNAPSHOT_CHUNK_MAX {
            return Err(StoreFault::Snapshot(format!(
                "a chunk of {} bytes at {offset} is not what follows {}",
                chunk.len(),
                self.offset,
            )));
        }
        let Some(file) = state.partial.as_mut() else { return Err(stale()) };
        file.chunks.push(Bytes::copy_from_slice(chunk));
        self.offset += chunk.len() as u64;
        Ok(())
    }
}

/// Reads a snapshot file in memory.
#[derive(Debug)]
pub struct MemorySnapshotReader {
    /// Chunks still to come, last first.
    left: Vec<Bytes>,
}

impl SnapshotSource for MemorySnapshotReader {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, StoreFault> {
        Ok(self.left.pop())
    }
}

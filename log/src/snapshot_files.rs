//! Snapshot files: written, verified by reading back, published by rename, two kept.

use crate::disk::Disk;
use bytes::Bytes;
use holdfast_consensus::SnapshotMeta;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::{SnapshotSink, SnapshotSource, SnapshotStore};

fn unfinished() -> StoreFault {
    StoreFault::Snapshot("snapshot files are not written yet in this build".into())
}

/// The snapshot files of a replica, in the directory `snap`.
#[derive(Clone, Debug)]
pub struct SnapshotFiles<D: Disk> {
    pub(crate) _disk: D,
}

/// Writes one snapshot file.
#[derive(Debug)]
pub struct SnapshotWriter<D: Disk> {
    _file: D::File,
}

/// Reads one snapshot file.
#[derive(Debug)]
pub struct SnapshotReader<D: Disk> {
    _file: D::File,
}

impl<D: Disk> SnapshotStore for SnapshotFiles<D> {
    type Writer = SnapshotWriter<D>;
    type Reader = SnapshotReader<D>;

    fn create(&self, _meta: &SnapshotMeta) -> Result<Self::Writer, StoreFault> {
        Err(unfinished())
    }
    fn publish(&self, _writer: Self::Writer) -> Result<SnapshotMeta, StoreFault> {
        Err(unfinished())
    }
    fn newest(&self) -> Option<SnapshotMeta> {
        None
    }
    fn open(&self, _meta: &SnapshotMeta, _offset: u64) -> Result<Self::Reader, StoreFault> {
        Err(unfinished())
    }
}

impl<D: Disk> SnapshotSink for SnapshotWriter<D> {
    fn offset(&self) -> u64 {
        0
    }
    fn put_chunk(&mut self, _offset: u64, _chunk: &[u8]) -> Result<(), StoreFault> {
        Err(unfinished())
    }
}

impl<D: Disk> SnapshotSource for SnapshotReader<D> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, StoreFault> {
        Err(unfinished())
    }
}

//! The segmented log (DESIGN section 5).

use crate::disk::Disk;
use crate::snapshot_files::SnapshotFiles;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{
    ClusterId, Entries, Index, LogId, MemberId, Recovered, Seq, SnapshotMeta,
};

/// Settings of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Length of a segment in bytes: a multiple of 4096, at least 16384.
    pub segment_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20 }
    }
}

/// Whose log it is; stands in every segment header.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The member: lives in the log alone and dies with it (R1).
    pub member: MemberId,
    /// Raft group (R44).
    pub group: u64,
    /// The cluster; zero until one is formed.
    pub cluster: ClusterId,
    /// Recovery epoch (R8).
    pub epoch: u64,
}

fn unfinished() -> LogFault {
    LogFault::Refused("the log is not written yet in this build".into())
}

/// A durable log in the directory `log` of a disk.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
}

impl<D: Disk> Log<D> {
    /// Opens the log, or creates it if there is none, and proves what it holds (R9, R12).
    ///
    /// # Errors
    /// [`LogFault::Damaged`] or [`LogFault::Refused`] with every byte untouched; [`LogFault::Full`]
    /// or [`LogFault::Poisoned`] as the disk says.
    pub fn open(disk: D, owner: Owner, options: LogOptions) -> Result<Self, LogFault> {
        let _ = (owner, options);
        Ok(Self { disk })
    }

    /// Whose log it is.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::default()
    }
}

/// Reads durable entries, from any thread, while the writer goes on.
#[derive(Clone, Debug)]
pub struct Reader<D: Disk> {
    _disk: D,
}

/// A spare segment under preparation.
#[derive(Debug)]
pub struct Spare<D: Disk> {
    _disk: D,
}

impl<D: Disk> LogStore for Log<D> {
    type Reader = Reader<D>;
    type Snapshots = SnapshotFiles<D>;
    type Spare = Spare<D>;

    fn recovered(&self) -> Recovered {
        Recovered::default()
    }
    fn reader(&self) -> Self::Reader {
        Reader { _disk: self.disk.clone() }
    }
    fn snapshots(&self) -> Self::Snapshots {
        SnapshotFiles { _disk: self.disk.clone() }
    }
    fn persist(&mut self, _batches: &[Persist]) -> Result<Seq, LogFault> {
        Err(unfinished())
    }
    fn watermark(&mut self, _commit: Index) -> Result<(), LogFault> {
        Err(unfinished())
    }
    fn spare(&mut self) -> Option<Self::Spare> {
        None
    }
    fn add_spare(&mut self, _spare: Self::Spare) -> Result<(), LogFault> {
        Err(unfinished())
    }
    fn low(&self) -> bool {
        false
    }
    fn compact(&mut self, _through: Index) -> Result<Index, LogFault> {
        Err(unfinished())
    }
    fn reset(&mut self, _to: &SnapshotMeta) -> Result<LogId, LogFault> {
        Err(unfinished())
    }
    fn reopen(&mut self) -> Result<Recovered, LogFault> {
        Err(unfinished())
    }
}

impl<D: Disk> LogReader for Reader<D> {
    fn read(&self, _from: Index, _to: Index, _max_bytes: usize) -> Result<Entries, LogFault> {
        Err(unfinished())
    }
}

impl<D: Disk> SpareWork for Spare<D> {
    fn step(&mut self) -> Result<bool, LogFault> {
        Err(unfinished())
    }
}

//! The log of Holdfast, as a node drives it: one `persist` a batch, spare segments prepared on a
//! thread beside it.
//!
//! Durable by `persist` itself: it returns after the fdatasync of all its batches; there is no
//! setting that would make it return earlier.

use super::{Peer, Replay};
use crate::batch::Batch;
use crate::error::CompareError;
use bytes::Bytes;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{Body, Entries, Entry, HardState, Index, LogId, MemberId, Seq, Term};
use holdfast_log::{Disk, Log, LogOptions, Owner, Spare};
use std::io;
use std::thread::JoinHandle;

const NAME: &str = "holdfast";
/// Entries between two compactions of a log that gives up behind itself what it has.
const COMPACT_EVERY: u64 = 1 << 14;
/// Weight of one read, in bytes.
const READ: usize = 1 << 20;

type Making<D> = JoinHandle<Result<Spare<D>, String>>;

/// The log of Holdfast, on a disk that is written one way or another.
pub(crate) struct Holdfast<D: Disk> {
    log: Log<D>,
    seq: u64,
    compact: bool,
    compacted: u64,
    spare: Option<Making<D>>,
}

fn fault(operation: &'static str) -> impl Fn(holdfast_consensus::fault::LogFault) -> CompareError {
    move |fault| CompareError::peer(NAME, operation, fault)
}

impl<D: Disk> Holdfast<D> {
    /// Opens or creates a log with segments of 64 MiB. With `compact` it gives up what lies far
    /// behind, so that a long run does not fill the disk.
    pub(crate) fn open(disk: io::Result<D>, compact: bool) -> Result<Self, CompareError> {
        let disk = disk.map_err(|e| CompareError::peer(NAME, "open", e))?;
        let owner = Owner { member: MemberId(1), ..Owner::default() };
        let options = LogOptions { segment_bytes: 64 << 20 };
        let log = Log::open(disk, owner, options).map_err(fault("open"))?;
        Ok(Self { log, seq: 0, compact, compacted: 0, spare: None })
    }

    /// Index of the last entry.
    pub(crate) fn last(&self) -> u64 {
        self.log.recovered().last.index.0
    }

    /// Has the next segment prepared, and takes it when it is ready.
    fn prepare(&mut self) -> Result<(), CompareError> {
        if let Some(made) = self.spare.take_if(|made| made.is_finished()) {
            let spare = made.join().map_err(|_| CompareError::peer(NAME, "prepare", "it panicked"));
            let spare = spare?.map_err(|e| CompareError::peer(NAME, "prepare", e))?;
            self.log.add_spare(spare).map_err(fault("take a spare"))?;
        }
        if self.spare.is_none()
            && let Some(mut spare) = self.log.spare()
        {
            self.spare = Some(std::thread::spawn(move || {
                while !spare.step().map_err(|fault| fault.to_string())? {}
                Ok(spare)
            }));
        }
        Ok(())
    }
}

/// The entries of a batch, sharing its bytes.
fn entries(batch: &Batch) -> Vec<Entry> {
    let entry = |(index, payload): (u64, Bytes)| Entry {
        id: LogId::new(1, index),
        time: index,
        body: Body::Command(payload),
    };
    batch.entries().map(entry).collect()
}

impl<D: Disk> Peer for Holdfast<D> {
    fn append(&mut self, batch: &Batch) -> Result<(), CompareError> {
        let append = Entries::new(entries(batch))
            .ok_or_else(|| CompareError::peer(NAME, "append", "entries out of order"))?;
        self.seq += 1;
        let hard = (self.seq == 1).then_some(HardState { term: Term(1), voted_for: None });
        let persist = Persist { seq: Seq(self.seq), truncate_from: None, append, hard };
        self.log.persist(&[persist]).map_err(fault("append"))?;
        self.prepare()?;
        if self.compact && batch.first >= self.compacted + COMPACT_EVERY {
            self.log.compact(Index(batch.first - 1)).map_err(fault("compact"))?;
            self.compacted = batch.first;
        }
        Ok(())
    }
}

impl<D: Disk> Replay for Holdfast<D> {
    /// Every entry's own checksum is verified by each read.
    fn read_all(&mut self, last: u64) -> Result<u64, CompareError> {
        let reader = self.log.reader();
        let (mut from, mut bytes) = (Index(1), 0);
        while from.0 <= last {
            let piece = reader.read(from, Index(last), READ).map_err(fault("read"))?;
            for entry in piece.iter() {
                if let Body::Command(payload) = &entry.body {
                    bytes += payload.len() as u64;
                }
            }
            let read = piece.last().ok_or_else(|| CompareError::peer(NAME, "read", "no entry"))?;
            from = read.index.next();
        }
        Ok(bytes)
    }
}

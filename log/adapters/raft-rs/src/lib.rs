//! The log of Holdfast as raft-rs's `Storage`.
//!
//! Reading is `Storage`; writing follows the order of a `Ready`: [`HoldfastStorage::apply_snapshot`],
//! then [`HoldfastStorage::append`] with entries and hard state in one sync. Both are durable when
//! they return, so messages may be sent after them. A clone is another handle to the same storage.
//! After a failure the log takes nothing until it is opened again.

mod kept;

use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{
    Body, Entries, Entry as OurEntry, HardState as OurHard, Index, LogId, MemberId, Seq,
    SnapshotMeta, Term,
};
use holdfast_log::{Disk, Log, LogOptions, Owner, Reader, RealDisk, Spare};
use kept::Kept;
use protobuf::Message;
use raft::prelude::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use thiserror::Error as ThisError;

/// Weight of one read, in bytes.
const READ: usize = 1 << 20;

/// Why a storage cannot be opened or written.
#[derive(Debug, ThisError)]
pub enum Fault {
    /// The log: damaged, held, of another owner, full, or the disk failed.
    #[error(transparent)]
    Log(#[from] LogFault),
    /// A file beside the log, its lock among them.
    #[error("{0}")]
    Disk(#[from] io::Error),
    /// Something is missing or does not fit; the text says what.
    #[error("{0}")]
    Refused(String),
}

/// The log, as raft-rs's storage.
pub struct HoldfastStorage<D: Disk = RealDisk> {
    shared: Arc<Shared<D>>,
}

impl<D: Disk> Clone for HoldfastStorage<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<D: Disk> {
    disk: D,
    reader: Reader<D>,
    writer: Mutex<Writer<D>>,
    /// Never held over an operation of the disk, so that reads do not wait for writes.
    seen: RwLock<Seen>,
    /// Keeps other processes out.
    _lock: Box<dyn Send + Sync>,
}

/// A spare segment that was prepared beside the log.
type Made<D> = Mutex<Option<Spare<D>>>;

struct Writer<D: Disk> {
    log: Log<D>,
    seq: u64,
    made: Arc<Made<D>>,
}

/// What is durable, as raft-rs names it.
#[derive(Clone, Debug)]
struct Seen {
    hard: HardState,
    kept: Arc<Kept>,
    /// The entry before the first one that may be asked for.
    base: LogId,
    last: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Store(StorageError::Other(Box::new(error)))
}

/// Where the log goes on behind a snapshot.
fn base_at(last: LogId) -> SnapshotMeta {
    SnapshotMeta {
        last,
        time: 0,
        membership: Default::default(),
        membership_index: Index(0),
        group: 0,
        cluster: Default::default(),
        epoch: 0,
        digest: 0,
        bytes: 0,
        newest_type: 0,
    }
}

fn snapshot_id(snapshot: &Snapshot) -> LogId {
    LogId::new(snapshot.get_metadata().term, snapshot.get_metadata().index)
}

impl<D: Disk> HoldfastStorage<D> {
    /// Opens the storage on this disk, or creates it empty. `owner` names the node and its group; a
    /// log that belongs to another one is refused.
    ///
    /// # Errors
    /// [`Fault`], with nothing changed. Damage is an error here: raft-rs has no way to fetch single
    /// entries again.
    pub fn open(disk: D, owner: Owner, options: LogOptions) -> Result<Self, Fault> {
        let guard = disk.lock("lock")?;
        let mut log = Log::open(disk.clone(), owner, options)?;
        let found = log.recovered();
        if let Some(why) = found.held {
            return Err(Fault::Log(LogFault::Held { why }));
        }
        if let (Some(first), Some(last)) = (found.holes.first(), found.holes.last()) {
            let detail = "entries are damaged; set the directory aside and add the node anew";
            let (first, last) = (first.index, last.index);
            return Err(Fault::Log(LogFault::Damaged { first, last, detail: detail.into() }));
        }
        let empty = found.last == LogId::default() && found.hard == OurHard::default();
        let kept = match Kept::read(&disk)? {
            Some(kept) => kept,
            None if empty => {
                let none = Kept::default();
                none.write(&disk)?;
                none
            }
            None => {
                let why = "the log is in use but the file `raft-rs` beside it is gone, and with it the snapshot: \
                           put it back, or set the directory aside and add the node anew";
                return Err(Fault::Refused(why.into()));
            }
        };
        // The power went away between keeping a snapshot and moving the base of the log to it.
        let snapshot = snapshot_id(&kept.snapshot);
        let behind = snapshot.index > found.last.index;
        if behind
            || (snapshot.index > found.base.index && term_at(&log, snapshot)? != snapshot.term)
        {
            log.reset(&base_at(snapshot))?;
        }
        let now = log.recovered();
        let mut hard = HardState::new();
        hard.set_term(now.hard.term.0.max(snapshot.term.0));
        hard.set_vote(now.hard.voted_for.map_or(0, |member| member.0));
        hard.set_commit(now.commit.0.max(snapshot.index.0));
        let kept = Arc::new(kept);
        let seen = Seen { hard, kept, base: now.base, last: now.last.index.0 };
        let (reader, writer) =
            (log.reader(), Mutex::new(Writer { log, seq: 0, made: Arc::default() }));
        let seen = RwLock::new(seen);
        let shared = Shared { disk, reader, writer, seen, _lock: guard };
        Ok(Self { shared: Arc::new(shared) })
    }

    fn seen(&self) -> Seen {
        self.shared.seen.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.shared.seen.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Appends entries, in place of any that are there from the first of them on, and the hard state,
    /// with one sync. The commit index goes along with the next sync.
    ///
    /// # Errors
    /// [`Fault`]; entries that leave a gap or reach into a snapshot are refused, nothing is written.
    pub fn append(&self, entries: &[Entry], hard: Option<&HardState>) -> Result<(), Fault> {
        let mut writer = lock(&self.shared.writer);
        let made = lock(&writer.made).take();
        made.map_or(Ok(()), |spare| writer.log.add_spare(spare))?;
        let before = self.seen();
        let end = before.last + 1;
        let first = entries.first().map(Entry::get_index);
        let ours = entries.iter().map(encode).collect::<Result<_, _>>()?;
        let append = Entries::new(ours)
            .ok_or_else(|| Fault::Refused("the entries do not follow one another".into()))?;
        writer.seq += 1;
        let batch = Persist {
            seq: Seq(writer.seq),
            truncate_from: first.filter(|first| *first < end).map(Index),
            append,
            hard: hard.map(|hard| OurHard {
                term: Term(hard.get_term()),
                voted_for: Some(MemberId(hard.get_vote())).filter(|vote| vote.0 != 0),
            }),
        };
        if !entries.is_empty() || hard.is_some() {
            writer.log.persist(&[batch])?;
        }
        if let Some(hard) = hard
            && hard.get_commit() > before.hard.get_commit()
        {
            writer.log.watermark(Index(hard.get_commit()))?;
        }
        self.change(|seen| {
            seen.last = entries.last().map_or(seen.last, Entry::get_index);
            seen.hard = hard.cloned().unwrap_or_else(|| seen.hard.clone());
        });
        if let Some(spare) = writer.log.spare() {
            let made = Arc::clone(&writer.made);
            // A failure, of the thread too, shows in the append that needs the spare: that one makes
            // it, or says why not.
            std::thread::Builder::new().spawn(move || prepare(spare, &made).ok()).ok();
        }
        Ok(())
    }

    /// Keeps the configuration in force; durable when this returns.
    ///
    /// # Errors
    /// [`Fault::Disk`].
    pub fn set_conf_state(&self, conf: ConfState) -> Result<(), Fault> {
        self.keep(|kept| kept.conf = conf)
    }

    /// Keeps a snapshot that the application took of its own state, for [`Storage::snapshot`];
    /// durable when this returns. Entries are given up by [`HoldfastStorage::compact`].
    ///
    /// # Errors
    /// [`Fault::Disk`].
    pub fn keep_snapshot(&self, snapshot: Snapshot) -> Result<(), Fault> {
        self.keep(|kept| kept.snapshot = snapshot)
    }

    fn keep(&self, change: impl FnOnce(&mut Kept)) -> Result<(), Fault> {
        let _writer = lock(&self.shared.writer);
        let mut kept = self.seen().kept.as_ref().clone();
        change(&mut kept);
        kept.write(&self.shared.disk)?;
        self.change(|seen| seen.kept = Arc::new(kept));
        Ok(())
    }

    /// Takes a snapshot of the leader in place of the log; durable when this returns.
    ///
    /// # Errors
    /// [`Fault::Refused`] if the storage is further already, or what the disk says.
    pub fn apply_snapshot(&self, snapshot: Snapshot) -> Result<(), Fault> {
        let last = snapshot_id(&snapshot);
        if last.index <= self.seen().base.index {
            return Err(Fault::Refused(format!("the snapshot at {last} is out of date")));
        }
        // First the snapshot, then the base: a start finishes what lies between (R25).
        self.keep(|kept| {
            kept.conf = snapshot.get_metadata().get_conf_state().clone();
            kept.snapshot = snapshot;
        })?;
        let mut writer = lock(&self.shared.writer);
        writer.log.reset(&base_at(last))?;
        let now = writer.log.recovered();
        self.change(|seen| {
            (seen.base, seen.last) = (last, now.last.index.0);
            seen.hard.set_term(seen.hard.get_term().max(last.term.0));
            seen.hard.set_commit(seen.hard.get_commit().max(last.index.0));
        });
        Ok(())
    }

    /// Gives up entries before `index`, as far as whole segments can go; none of them may be asked
    /// for again. Returns the first index that is left.
    ///
    /// # Errors
    /// [`Fault::Refused`] beyond the newest snapshot that was kept, since nothing could bring a
    /// follower over the gap; [`Fault::Log`].
    pub fn compact(&self, index: u64) -> Result<u64, Fault> {
        let mut writer = lock(&self.shared.writer);
        let covered = snapshot_id(&self.seen().kept.snapshot).index.0;
        if index > covered + 1 {
            return Err(Fault::Refused(format!(
                "entries before {index} cannot go: the newest snapshot ends at {covered}"
            )));
        }
        writer.log.compact(Index(index.saturating_sub(1)))?;
        let base = writer.log.recovered().base;
        self.change(|seen| seen.base = base);
        Ok(base.index.0 + 1)
    }

    fn read(&self, from: u64, to: u64, max: u64) -> raft::Result<Vec<Entry>> {
        let (mut from, mut entries, mut size) = (from, Vec::new(), 0u64);
        while from <= to {
            let piece = self.shared.reader.read(Index(from), Index(to), READ).map_err(other)?;
            for entry in piece.iter() {
                let entry = decode(entry)?;
                size = size.saturating_add(u64::from(entry.compute_size()));
                if size > max && !entries.is_empty() {
                    return Ok(entries);
                }
                entries.push(entry);
            }
            let Some(read) = piece.last() else { break };
            from = read.index.0 + 1;
        }
        Ok(entries)
    }
}

/// Makes a spare segment and leaves it for the next append. It holds nothing of the log, which may be
/// closed and opened again meanwhile.
fn prepare<D: Disk>(mut spare: Spare<D>, made: &Made<D>) -> Result<(), LogFault> {
    while !spare.step()? {}
    *lock(made) = Some(spare);
    Ok(())
}

/// Term of the entry where a snapshot ends. Another one than the snapshot's: the power went away
/// between keeping the leader's snapshot and giving up what it replaces.
fn term_at<D: Disk>(log: &Log<D>, snapshot: LogId) -> Result<Term, Fault> {
    let read = log.reader().read(snapshot.index, snapshot.index, READ)?;
    Ok(read.first().map_or(Term(0), |id| id.term))
}

fn encode(entry: &Entry) -> Result<OurEntry, Fault> {
    let bytes = entry.write_to_bytes().map_err(|e| Fault::Refused(e.to_string()))?;
    let id = LogId::new(entry.get_term(), entry.get_index());
    Ok(OurEntry { id, time: 0, body: Body::Command(bytes.into()) })
}

fn decode(entry: &OurEntry) -> raft::Result<Entry> {
    match &entry.body {
        Body::Command(bytes) => Entry::parse_from_bytes(bytes).map_err(other),
        _ => Err(other(Fault::Refused(format!("entry {} is none of raft-rs", entry.id)))),
    }
}

impl<D: Disk> Storage for HoldfastStorage<D> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let seen = self.seen();
        Ok(RaftState::new(seen.hard, seen.kept.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let seen = self.seen();
        if low <= seen.base.index.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(
            high <= seen.last + 1,
            "entries up to {high} were asked for, {} is last",
            seen.last
        );
        self.read(low, high.saturating_sub(1), max_size.into().unwrap_or(u64::MAX))
    }

    fn term(&self, idx: u64) -> raft::Result<u64> {
        let seen = self.seen();
        if idx == seen.base.index.0 {
            return Ok(seen.base.term.0);
        }
        if idx < seen.base.index.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if idx > seen.last {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let read = self.shared.reader.read(Index(idx), Index(idx), READ).map_err(other)?;
        let term = read.first().map(|id| id.term.0);
        term.ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.seen().base.index.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.seen().last)
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let seen = self.seen();
        let index = seen.kept.snapshot.get_metadata().get_index();
        if index == 0 || index < request_index {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(seen.kept.snapshot.clone())
    }
}

//! The log of Holdfast as openraft's `RaftLogStorage`.
//!
//! What is acknowledged is durable: `append`, `save_vote`, `truncate` and `purge` return after the
//! sync of what they wrote. Entries of openraft are numbered from zero, those of the log from one, so
//! every index here is one more than openraft's. After a failure the log takes nothing until it is
//! opened again, which is what openraft does with a storage error too: it stops.
#![expect(clippy::result_large_err, reason = "the error is openraft's own type")]

mod saved;

use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader as _, LogStore, SpareWork};
use holdfast_consensus::{Body, Entries, Entry, Index, LogId as OurId, Seq, SnapshotMeta, Term};
use holdfast_log::{Disk, Log, LogOptions, Owner, Reader, RealDisk, Spare};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, LogId, LogState, OptionalSend, RaftLogId, RaftLogReader, RaftTypeConfig,
    StorageError, StorageIOError, Vote,
};
use saved::Saved;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Display};
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Weight of one read, in bytes.
const READ: usize = 1 << 20;

type Id<C> = LogId<<C as RaftTypeConfig>::NodeId>;
type Failure<C> = StorageError<<C as RaftTypeConfig>::NodeId>;

/// Why a log cannot be opened. Nothing of it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The log itself: damaged, held, of another owner, or the disk failed.
    #[error(transparent)]
    Log(#[from] LogFault),
    /// A file beside the log, its lock among them.
    #[error("{0}")]
    Disk(#[from] io::Error),
    /// Something is missing or does not fit; the text says what to do.
    #[error("{0}")]
    Refused(String),
}

/// The log, as openraft's log storage and log reader. A clone is another handle to the same log.
pub struct HoldfastLog<C: RaftTypeConfig, D: Disk = RealDisk> {
    shared: Arc<Shared<C, D>>,
}

impl<C: RaftTypeConfig, D: Disk> Clone for HoldfastLog<C, D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<C: RaftTypeConfig, D: Disk> {
    disk: D,
    reader: Reader<D>,
    writer: Mutex<Writer<D>>,
    /// Never held over an operation of the disk, so that reads do not wait for writes.
    seen: Mutex<Seen<C>>,
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

/// What is durable, as openraft names it.
struct Seen<C: RaftTypeConfig> {
    saved: Saved<C::NodeId>,
    /// The last entry that is not purged.
    last: Option<Id<C>>,
    committed: Option<Id<C>>,
    /// Nothing is held up to here, purged or not: the log may have begun behind it.
    base: Index,
}

/// The index of the log for one of openraft.
const fn ours(index: u64) -> Index {
    Index(index + 1)
}

fn write_failed<C: RaftTypeConfig>(why: impl Display) -> Failure<C> {
    StorageIOError::write_logs(AnyError::error(why)).into()
}

fn read_failed<C: RaftTypeConfig>(why: impl Display) -> Failure<C> {
    StorageIOError::read_logs(AnyError::error(why)).into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what waits for the disk where it holds up no task.
async fn blocking<C: RaftTypeConfig, T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Failure<C>> + Send + 'static,
) -> Result<T, Failure<C>> {
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result,
        Err(e) => Err(write_failed::<C>(e)),
    }
}

impl<C, D> HoldfastLog<C, D>
where
    C: RaftTypeConfig,
    C::NodeId: Copy,
    C::Entry: Serialize + DeserializeOwned,
    D: Disk,
{
    /// Opens the log on this disk, or creates it. `owner` names the node and its group; a log that
    /// belongs to another one is refused.
    ///
    /// # Errors
    /// [`OpenError`]. Damage is an error here: openraft has no way to fetch single entries again.
    pub fn open(disk: D, owner: Owner, options: LogOptions) -> Result<Self, OpenError> {
        let guard = disk.lock("lock")?;
        let mut log = Log::open(disk.clone(), owner, options)?;
        let found = log.recovered();
        if let Some(why) = found.held {
            return Err(OpenError::Log(LogFault::Held { why }));
        }
        if let (Some(first), Some(last)) = (found.holes.first(), found.holes.last()) {
            let detail = "entries are damaged; set the directory aside and add the node anew";
            let (first, last) = (first.index, last.index);
            return Err(OpenError::Log(LogFault::Damaged { first, last, detail: detail.into() }));
        }
        let saved = match Saved::<C::NodeId>::read(&disk)? {
            Some(saved) => saved,
            None if found.last == OurId::default() => {
                let none = Saved::default();
                none.write(&disk)?;
                none
            }
            None => {
                let why = "the log holds entries but the file `openraft` beside it is gone, and with it the vote: \
                           put it back, or set the directory aside and add the node anew";
                return Err(OpenError::Refused(why.into()));
            }
        };
        // A purge that reached behind the end was cut short: its file is there, its base is not.
        if let Some(purged) = saved.purged.filter(|id| ours(id.index) > found.last.index) {
            log.reset(&base_at(purged.leader_id.term, ours(purged.index)))?;
        }
        let (purged, base) = (saved.purged, log.recovered().base.index);
        let (reader, writer) =
            (log.reader(), Mutex::new(Writer { log, seq: 0, made: Arc::default() }));
        let seen = Mutex::new(Seen { saved, last: None, committed: None, base });
        let shared = Shared { disk, reader, writer, seen, _lock: guard };
        let refused = |e: Failure<C>| OpenError::Refused(e.to_string());
        let last = shared.id_at(found.last.index).map_err(refused)?;
        let committed = shared.id_at(found.commit).map_err(refused)?;
        let mut seen = lock(&shared.seen);
        seen.last = last;
        // What was purged was committed before.
        seen.committed = committed.or(purged.filter(|_| found.commit > Index(0)));
        drop(seen);
        Ok(Self { shared: Arc::new(shared) })
    }
}

/// Makes a spare segment and leaves it for the next append. It holds nothing of the log, which may be
/// closed and opened again meanwhile.
fn prepare<D: Disk>(mut spare: Spare<D>, made: &Made<D>) -> Result<(), LogFault> {
    while !spare.step()? {}
    *lock(made) = Some(spare);
    Ok(())
}

/// A base that says nothing but where the log goes on.
fn base_at(term: u64, index: Index) -> SnapshotMeta {
    let last = OurId { term: Term(term), index };
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

fn encode<C>(entry: &C::Entry) -> Result<Entry, Failure<C>>
where
    C: RaftTypeConfig,
    C::NodeId: Copy,
    C::Entry: Serialize,
{
    let id = entry.get_log_id();
    let bytes = bincode::serde::encode_to_vec(entry, bincode::config::standard());
    let body = Body::Command(bytes.map_err(write_failed::<C>)?.into());
    let id = OurId { term: Term(id.leader_id.term), index: ours(id.index) };
    Ok(Entry { id, time: 0, body })
}

fn decode<C>(entry: &Entry) -> Result<C::Entry, Failure<C>>
where
    C: RaftTypeConfig,
    C::Entry: DeserializeOwned,
{
    let Body::Command(bytes) = &entry.body else {
        return Err(read_failed::<C>(format!("entry {} is none of openraft", entry.id)));
    };
    let decoded = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
    decoded.map(|(entry, _)| entry).map_err(read_failed::<C>)
}

impl<C, D> Shared<C, D>
where
    C: RaftTypeConfig,
    C::NodeId: Copy,
    C::Entry: Serialize + DeserializeOwned,
    D: Disk,
{
    /// The first index that is there and not purged.
    fn first(&self) -> Index {
        let seen = lock(&self.seen);
        seen.saved.purged.map_or(Index(0), |id| ours(id.index)).max(seen.base).next()
    }

    /// Entries of `from..=to` that are there and not purged.
    fn read(&self, from: Index, to: Index) -> Result<Vec<C::Entry>, Failure<C>> {
        let last = lock(&self.seen).last.map_or(Index(0), |id| ours(id.index));
        let (mut from, to) = (from.max(self.first()), to.min(last));
        let mut entries = Vec::new();
        while from <= to {
            let piece = self.reader.read(from, to, READ).map_err(read_failed::<C>)?;
            for entry in piece.iter() {
                entries.push(decode::<C>(entry)?);
            }
            let Some(read) = piece.last() else { break };
            from = read.index.next();
        }
        Ok(entries)
    }

    /// The whole id of an entry, if it is there and not purged.
    fn id_at(&self, index: Index) -> Result<Option<Id<C>>, Failure<C>> {
        if index < self.first() {
            return Ok(None);
        }
        let read = self.reader.read(index, index, READ).map_err(read_failed::<C>)?;
        read.iter().next().map(|entry| Ok(*decode::<C>(entry)?.get_log_id())).transpose()
    }

    fn persist(
        &self,
        writer: &mut Writer<D>,
        truncate_from: Option<Index>,
        entries: Vec<Entry>,
    ) -> Result<(), Failure<C>> {
        let append = Entries::new(entries);
        let append = append.ok_or_else(|| write_failed::<C>("entries that leave a gap"))?;
        writer.seq += 1;
        let batch = Persist { seq: Seq(writer.seq), truncate_from, append, hard: None };
        writer.log.persist(&[batch]).map(drop).map_err(write_failed::<C>)
    }

    /// Appends, and returns a spare to prepare if the log wants one.
    fn append(&self, mut entries: Vec<Entry>, last: Id<C>) -> Result<Option<Spare<D>>, Failure<C>> {
        let mut writer = lock(&self.writer);
        let made = lock(&writer.made).take();
        made.map_or(Ok(()), |spare| writer.log.add_spare(spare)).map_err(write_failed::<C>)?;
        // What is purged was applied: it is not wanted again.
        let purged = lock(&self.seen).saved.purged.map_or(Index(0), |id| ours(id.index));
        entries.retain(|entry| entry.id.index > purged);
        let Some(first) = entries.first().map(|entry| entry.id.index) else { return Ok(None) };
        let next = writer.log.recovered().last.index.next();
        // A log without entries begins wherever openraft begins.
        if first > next && lock(&self.seen).last.is_none() {
            writer.log.reset(&base_at(0, first.prev())).map_err(write_failed::<C>)?;
            lock(&self.seen).base = first.prev();
        }
        // Entries that are there already are replaced, whole or not at all.
        let cut = (first < next).then_some(first);
        self.persist(&mut writer, cut, entries)?;
        lock(&self.seen).last = Some(last);
        Ok(writer.log.spare())
    }

    fn truncate(&self, from: Index) -> Result<(), Failure<C>> {
        let mut writer = lock(&self.writer);
        if from <= writer.log.recovered().last.index {
            self.persist(&mut writer, Some(from), Vec::new())?;
        }
        let last = self.id_at(from.prev())?;
        lock(&self.seen).last = last;
        Ok(())
    }

    fn purge(&self, id: Id<C>) -> Result<(), Failure<C>> {
        let mut writer = lock(&self.writer);
        let mut saved = lock(&self.seen).saved.clone();
        if saved.purged.is_some_and(|purged| purged.index >= id.index) {
            return Ok(());
        }
        saved.purged = Some(id);
        // First what is purged, then the entries: a power cut between leaves some that nobody sees.
        saved.write(&self.disk).map_err(write_failed::<C>)?;
        let mut seen = lock(&self.seen);
        seen.saved = saved;
        seen.last = seen.last.filter(|last| last.index > id.index);
        drop(seen);
        let (index, last) = (ours(id.index), writer.log.recovered().last.index);
        if index > last {
            writer.log.reset(&base_at(id.leader_id.term, index)).map_err(write_failed::<C>)?;
        } else {
            writer.log.compact(index).map_err(write_failed::<C>)?;
        }
        Ok(())
    }

    fn save_vote(&self, vote: Vote<C::NodeId>) -> Result<(), Failure<C>> {
        let _writer = lock(&self.writer);
        let mut saved = lock(&self.seen).saved.clone();
        saved.vote = Some(vote);
        let failed = |e: io::Error| StorageIOError::write_vote(AnyError::new(&e));
        saved.write(&self.disk).map_err(failed)?;
        lock(&self.seen).saved = saved;
        Ok(())
    }

    fn save_committed(&self, id: Id<C>) -> Result<(), Failure<C>> {
        let mut writer = lock(&self.writer);
        writer.log.watermark(ours(id.index)).map_err(write_failed::<C>)?;
        lock(&self.seen).committed = Some(id);
        Ok(())
    }
}

impl<C, D> RaftLogReader<C> for HoldfastLog<C, D>
where
    C: RaftTypeConfig,
    C::NodeId: Copy,
    C::Entry: Serialize + DeserializeOwned,
    D: Disk,
{
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>, Failure<C>> {
        let from = match range.start_bound() {
            Bound::Included(at) => Index(at.saturating_add(1)),
            Bound::Excluded(at) => Index(at.saturating_add(2)),
            Bound::Unbounded => Index(0),
        };
        let to = match range.end_bound() {
            Bound::Included(at) => Index(at.saturating_add(1)),
            // One less for the bound, one more for the numbering.
            Bound::Excluded(at) => Index(*at),
            Bound::Unbounded => Index(u64::MAX),
        };
        let shared = Arc::clone(&self.shared);
        blocking::<C, _>(move || shared.read(from, to)).await
    }
}

impl<C, D> RaftLogStorage<C> for HoldfastLog<C, D>
where
    C: RaftTypeConfig,
    C::NodeId: Copy,
    C::Entry: Serialize + DeserializeOwned,
    D: Disk,
{
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, Failure<C>> {
        let seen = lock(&self.shared.seen);
        let last_purged_log_id = seen.saved.purged;
        Ok(LogState { last_purged_log_id, last_log_id: seen.last.or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), Failure<C>> {
        let (shared, vote) = (Arc::clone(&self.shared), *vote);
        blocking::<C, _>(move || shared.save_vote(vote)).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, Failure<C>> {
        Ok(lock(&self.shared.seen).saved.vote)
    }

    async fn save_committed(&mut self, committed: Option<Id<C>>) -> Result<(), Failure<C>> {
        let Some(id) = committed else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        blocking::<C, _>(move || shared.save_committed(id)).await
    }

    async fn read_committed(&mut self) -> Result<Option<Id<C>>, Failure<C>> {
        Ok(lock(&self.shared.seen).committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), Failure<C>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (mut encoded, mut last) = (Vec::new(), None);
        for entry in entries {
            last = Some(*entry.get_log_id());
            encoded.push(encode::<C>(&entry)?);
        }
        let Some(last) = last else {
            callback.log_io_completed(Ok(()));
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        let appended = blocking::<C, _>(move || shared.append(encoded, last)).await;
        let told = appended.as_ref().map(drop).map_err(|e| io::Error::other(e.to_string()));
        callback.log_io_completed(told);
        if let Some(spare) = appended? {
            // A failure shows in the append that needs the spare: that one tries again, and says
            // what the disk says.
            let made = Arc::clone(&lock(&self.shared.writer).made);
            tokio::task::spawn_blocking(move || prepare(spare, &made).ok());
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: Id<C>) -> Result<(), Failure<C>> {
        let shared = Arc::clone(&self.shared);
        blocking::<C, _>(move || shared.truncate(ours(log_id.index))).await
    }

    async fn purge(&mut self, log_id: Id<C>) -> Result<(), Failure<C>> {
        let shared = Arc::clone(&self.shared);
        blocking::<C, _>(move || shared.purge(log_id)).await
    }
}

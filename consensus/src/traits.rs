//! What the replica driver needs of a log and of a state machine. `holdfast-log` and
//! `holdfast-fsm` implement these; so may an embedder, with the suites of [`crate::conformance`].
//!
//! All traits are blocking. Each of the two owners (log lane, apply lane) calls its object from
//! one thread at a time; readers, views and snapshot handles are used from any thread meanwhile.

use crate::damage::Hole;
use crate::entries::Entries;
use crate::fault::{LogFault, StoreFault};
use crate::io::Persist;
use crate::types::{Entry, Index, LogId, Micros, Recovered, Seq, SnapshotMeta};
use bytes::Bytes;

/// A durable log with its hard state. Owned by the log lane: a single writer.
pub trait LogStore: Send + 'static {
    /// Concurrent reader of durable entries.
    type Reader: LogReader;
    /// The snapshot files that belong to the log.
    type Snapshots: SnapshotStore;
    /// A segment being prepared away from the log lane.
    type Spare: SpareWork;

    /// What the last open, reset or reopen proved.
    fn recovered(&self) -> Recovered;
    /// A reader.
    fn reader(&self) -> Self::Reader;
    /// The snapshot store.
    fn snapshots(&self) -> Self::Snapshots;
    /// Carries out all batches in order, then makes them durable with ONE sync. Returns the
    /// highest sequence number.
    ///
    /// # Errors
    /// [`LogFault::Full`] if there was no space for them, before anything was written: the log is
    /// as it was, and the call may be repeated (R45). Any other error poisons the log: nothing of
    /// these batches may be counted durable by this process, and only [`LogStore::reopen`] helps.
    /// While the log is [low](LogStore::low), commands are refused before votes and the entries
    /// that carry none.
    fn persist(&mut self, batches: &[Persist]) -> Result<Seq, LogFault>;
    /// Stores the durable position and this commit index (R10); durable with the next batch or
    /// after a second call with nothing written between.
    ///
    /// # Errors
    /// As [`LogStore::persist`].
    fn watermark(&mut self, commit: Index) -> Result<(), LogFault>;
    /// Fills holes (R15): makes these entries durable, each in the place of the damaged entry at
    /// its index, with one sync. Returns the indexes at which the given entry stands and can be read
    /// now, ascending: those that were filled, and those where it stood all along, since whoever
    /// called them damaged met a read that failed for a moment. Any other entry at an index that is
    /// no hole is skipped. Bytes of the damaged record stay as they are.
    ///
    /// The caller vouches for the entries; the log checks what it can: an entry of another
    /// identity than the one it has kept, or of a term that its neighbours rule out, is
    /// [`LogFault::Refused`], and then nothing was written and the log is not poisoned.
    ///
    /// # Errors
    /// As [`LogStore::persist`], and [`LogFault::Refused`].
    fn repair(&mut self, entries: &[Entry]) -> Result<Vec<Index>, LogFault>;
    /// A spare that is wanted and not yet being made.
    fn spare(&mut self) -> Option<Self::Spare>;
    /// Takes a finished spare.
    ///
    /// # Errors
    /// As [`LogStore::persist`].
    fn add_spare(&mut self, spare: Self::Spare) -> Result<(), LogFault>;
    /// True while the log could not roll to another segment and keep the one that a restart needs.
    fn low(&self) -> bool;
    /// False while the log is low and would refuse even a small command.
    fn has_room(&self) -> bool {
        true
    }
    /// Gives up whole segments whose entries are all at or below `through`; returns the first
    /// index still held. The entry before it is never a hole of unknown identity: it becomes the
    /// base, whose term must be known.
    ///
    /// # Errors
    /// As [`LogStore::persist`].
    fn compact(&mut self, through: Index) -> Result<Index, LogFault>;
    /// Puts a durable base at `to.last` (R25): keeps the suffix if the entry there has the same
    /// term, else starts empty after it. A hole of unknown identity there has the same term if its
    /// neighbours allow it ([`Recovered::may_hold`]). Returns the last entry of the log afterwards.
    ///
    /// # Errors
    /// As [`LogStore::persist`].
    fn reset(&mut self, to: &SnapshotMeta) -> Result<LogId, LogFault>;
    /// Opens the log again after a fault (R12): what cannot be proved durable is cut or copied
    /// before it counts.
    ///
    /// # Errors
    /// Any [`LogFault`]; may be tried again.
    fn reopen(&mut self) -> Result<Recovered, LogFault>;
}

/// Reads durable entries, from any thread, while the writer goes on.
pub trait LogReader: Clone + Send + Sync + 'static {
    /// Entries `from..=to`, stopping after `max_bytes` of weight (but at least one entry), and
    /// before the first one that does not verify.
    ///
    /// # Errors
    /// [`LogFault::Compacted`], [`LogFault::Damaged`] if the entry at `from` does not verify, or [`LogFault::Poisoned`]; asking for
    /// entries that are not durable is [`LogFault::Refused`].
    fn read(&self, from: Index, to: Index, max_bytes: usize) -> Result<Entries, LogFault>;
    /// What the log has kept of the identities of entries that do not verify: a hole for every
    /// index of `from..=to`, from memory. A log that keeps nothing beside its records knows none.
    fn holes(&self, from: Index, to: Index) -> Vec<Hole> {
        (from.0..=to.0).map(|index| Hole { index: Index(index), known: None }).collect()
    }
}

/// A spare segment under preparation; runs on a lane of its own, a bounded piece at a time.
pub trait SpareWork: Send + 'static {
    /// Does the next piece; true when the spare is complete and durable.
    ///
    /// # Errors
    /// [`LogFault::Full`] if there is no space (nothing is left behind), or another fault.
    fn step(&mut self) -> Result<bool, LogFault>;
}

/// The snapshot files of a replica.
pub trait SnapshotStore: Clone + Send + 'static {
    /// Writes one.
    type Writer: SnapshotSink;
    /// Reads one.
    type Reader: SnapshotSource;

    /// Begins a snapshot, or resumes a partial file with an equal label
    /// ([`SnapshotSink::offset`] tells where).
    ///
    /// # Errors
    /// [`StoreFault::Full`], [`StoreFault::Poisoned`] or [`StoreFault::Snapshot`].
    fn create(&self, meta: &SnapshotMeta) -> Result<Self::Writer, StoreFault>;
    /// Completes it: read back and verified, synced, renamed, directory synced, all but the
    /// newest two removed. Returns the label with its length in bytes.
    ///
    /// # Errors
    /// As [`SnapshotStore::create`]; then nothing was published.
    fn publish(&self, writer: Self::Writer) -> Result<SnapshotMeta, StoreFault>;
    /// The newest published snapshot that verified.
    fn newest(&self) -> Option<SnapshotMeta>;
    /// Opens a published snapshot for reading its content from `offset` (a chunk boundary).
    ///
    /// # Errors
    /// [`StoreFault::Snapshot`] if there is none with that label or it does not verify.
    fn open(&self, meta: &SnapshotMeta, offset: u64) -> Result<Self::Reader, StoreFault>;
}

/// Largest chunk that a [`SnapshotSource`] may return, in bytes.
pub const SNAPSHOT_CHUNK_MAX: usize = 256 << 10;

/// Yields the content of a snapshot, chunk by chunk.
pub trait SnapshotSource: Send + 'static {
    /// The next chunk (at most [`SNAPSHOT_CHUNK_MAX`] bytes), or `None` at the end.
    ///
    /// # Errors
    /// [`StoreFault::Snapshot`] or [`StoreFault::Poisoned`].
    fn next_chunk(&mut self) -> Result<Option<Bytes>, StoreFault>;
}

/// Takes the content of a snapshot, chunk by chunk.
pub trait SnapshotSink: Send + 'static {
    /// The offset that the next chunk must have.
    fn offset(&self) -> u64;
    /// Takes the chunk at `offset`.
    ///
    /// # Errors
    /// [`StoreFault::Snapshot`] if the offset is not the wanted one; else as the disk says.
    fn put_chunk(&mut self, offset: u64, chunk: &[u8]) -> Result<(), StoreFault>;
}

/// How far a state machine has come.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Last entry whose effects the machine holds.
    pub last: LogId,
    /// Last entry whose effects are durable (the last completed checkpoint).
    pub durable: LogId,
    /// State digest at `last`.
    pub digest: u128,
    /// Entries handed again and skipped since open.
    pub skipped: u64,
}

/// A deterministic state machine. Owned by the apply lane.
///
/// Determinism: `apply` may read nothing but its arguments and its own state. The same entries in
/// the same order give the same state, replies and digest on every replica.
pub trait StateMachine: Send + 'static {
    /// Local reads from any thread.
    type View: Clone + Send + Sync + 'static;
    /// An immutable image of the state; must not borrow from the machine.
    type Image: SnapshotSource;
    /// A second state under construction beside the live one.
    type Restore: SnapshotSink;

    /// How far it has come.
    fn applied(&self) -> Applied;
    /// A view for local reads.
    fn view(&self) -> Self::View;
    /// Applies entries in one transaction. Entries at or below `applied().last` are skipped and
    /// counted; a gap is [`StoreFault::Untrusted`]. A deterministic refusal is a reply, not an
    /// error. On an error nothing of the batch took effect, unless the store must be reopened.
    ///
    /// # Errors
    /// [`StoreFault::UnknownType`] stops the replica; others are retried after
    /// [`StateMachine::reopen`].
    fn apply(
        &mut self,
        entries: &Entries,
        replies: &mut Vec<(Index, Bytes)>,
    ) -> Result<Applied, StoreFault>;
    /// Makes all effects durable: afterwards `durable == last`. The driver calls it only when the
    /// log's durable watermark covers `last` (R22).
    ///
    /// # Errors
    /// Any store fault.
    fn checkpoint(&mut self) -> Result<Applied, StoreFault>;
    /// Pins an image together with its label, both from one read transaction (R24). The label's
    /// configuration is the one in force at `last`.
    ///
    /// # Errors
    /// Any store fault.
    fn pin(&mut self) -> Result<(SnapshotMeta, Self::Image), StoreFault>;
    /// Begins a second state beside the live one.
    ///
    /// # Errors
    /// Any store fault.
    fn restore(&mut self, meta: &SnapshotMeta) -> Result<Self::Restore, StoreFault>;
    /// Verifies the restored state against its label, makes it durable and swaps it in (R25).
    /// Ignored (dropped, current state returned) if the machine has already applied more.
    ///
    /// # Errors
    /// [`StoreFault::Snapshot`] if it does not verify: the live state is untouched.
    fn adopt(&mut self, restored: Self::Restore) -> Result<Applied, StoreFault>;
    /// True while the machine may soon find no space (R45): it goes on, but wants nothing new.
    fn low(&self) -> bool {
        false
    }
    /// Tries to end that; called now and then while it lasts.
    fn make_room(&mut self) {}
    /// Opens the store again after a fault. May return a lower `last`; entries are then handed
    /// again. A machine that refused a job with [`StoreFault::Full`] before it touched its store
    /// need not close it.
    ///
    /// # Errors
    /// Any store fault; may be tried again.
    fn reopen(&mut self) -> Result<Applied, StoreFault>;

    /// True if applying a command gives space back: such commands are taken while a disk is full,
    /// so that clients can make room (R45). A wrong answer costs space, never data.
    fn frees(command: &Bytes) -> bool {
        let _ = command;
        false
    }

    /// Answers a question about the state, for [`crate::job::Call::Confirm`]: the answer and the
    /// applied index of the very read that it comes from. Called on a leader that has proved
    /// itself, from any thread. `None` says "unknown": a question that does not decode, a read
    /// that fails, a state that may not be trusted. A machine that answers no questions keeps
    /// this default.
    fn confirm(view: &Self::View, question: &Bytes) -> Option<(Index, Bytes)> {
        let (_, _) = (view, question);
        None
    }
}

/// Contact with the current leader, for the guard (R35): what this leader itself said since boot
/// and since the last install.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The leader.
    pub leader: crate::types::MemberId,
    /// Its term.
    pub term: crate::types::Term,
    /// Its uncapped commit index.
    pub commit: Index,
    /// True if it has committed an entry of its own term.
    pub own_term: bool,
    /// When it was heard.
    pub at: Micros,
}

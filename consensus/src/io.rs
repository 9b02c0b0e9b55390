//! What goes into the core and what comes out.

use crate::damage::Hole;
use crate::entries::Entries;
use crate::event::Event;
use crate::fault::{LogFault, Refusal};
use crate::message::{Message, SendLane};
use crate::types::{
    Body, Entry, FetchId, HardState, Index, LogId, MemberId, Micros, Recovered, Seq, SnapshotMeta,
    Term, Ticket, TransferId,
};
use bytes::Bytes;

/// One batch for the log, carried out in this order: truncate, append, hard state. The sequence
/// number is its only name, never (term, index): the same (term, index) can be written twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// Names this batch.
    pub seq: Seq,
    /// Cut the log from this index on, before appending.
    pub truncate_from: Option<Index>,
    /// Entries that follow the (cut) log without a gap.
    pub append: Entries,
    /// The hard state from here on, if it changed.
    pub hard: Option<HardState>,
}

impl Persist {
    /// True if a command is among the entries: what clients wrote, and not what keeps a term or a
    /// configuration going.
    #[must_use]
    pub fn has_commands(&self) -> bool {
        self.append.iter().any(|e| matches!(e.body, Body::Command(_)))
    }
}

/// Something the core learns.
#[derive(Debug)]
pub enum Input {
    /// [`next_deadline`](crate::core::Core::next_deadline) has passed.
    Wake,
    /// A message from a peer: authenticated by the transport and bounded by the decoder.
    Message {
        /// The sender.
        from: MemberId,
        /// The message.
        message: Message,
    },
    /// A peer's host refused a reconnect after a reset: evidence for pre-vote, never for safety.
    PeerReset {
        /// The peer.
        peer: MemberId,
    },
    /// Commands to append, if this replica leads.
    Propose {
        /// Commands, each with the ticket that its place is reported under.
        batch: Vec<(Ticket, Bytes)>,
    },
    /// As [`Input::Propose`], for commands that give space back: they are taken while disks are full
    /// (R45).
    Free {
        /// Commands, each with the ticket that its place is reported under.
        batch: Vec<(Ticket, Bytes)>,
    },
    /// A read index is wanted (dissertation 6.4).
    ReadIndex {
        /// Names the request.
        ticket: Ticket,
        /// Give up at this time.
        deadline: Micros,
    },
    /// Every persist with a sequence number up to `through` is on stable storage.
    Persisted {
        /// Highest such number.
        through: Seq,
    },
    /// A persist failed and the log was poisoned: nothing from `at` on is durable, or ever will
    /// be under its old sequence number. The driver has dropped every queued persist and reset
    /// from `at` on; the core issues anew, after [`Input::Reopened`], what it still needs. `at`
    /// may lie beyond the last number issued: then another write to the log failed.
    PersistFailed {
        /// The first failed sequence number.
        at: Seq,
        /// The fault.
        fault: LogFault,
    },
    /// The log was reopened after [`Input::PersistFailed`]: it durably ends at `last` with `hard`.
    /// The core persists again, from memory, what it still holds above that.
    Reopened {
        /// Durable end of the log.
        last: LogId,
        /// Durable hard state.
        hard: HardState,
        /// Entries that are durable and do not verify.
        holes: Vec<Hole>,
    },
    /// There was no space for a persist, and nothing was written of it (R45). The driver has
    /// dropped it, every persist and reset behind it and a repair that waits; the core issues anew, at once, what it
    /// still needs.
    NoSpace {
        /// The log as it is on disk, cut or not.
        log: Box<Recovered>,
    },
    /// Whether the log would find space for another command: none is taken before it would (R45).
    Room {
        /// False after a write that found no space, until this is said to be over.
        has: bool,
    },
    /// Durable entries were found damaged while they were read (R15): all that is known of them.
    Damaged {
        /// The damaged entries, ascending.
        holes: Vec<Hole>,
    },
    /// The write that [`Effect::Repair`] asked for is over.
    Repaired {
        /// Indexes that it filled; empty if it was refused.
        filled: Vec<Index>,
    },
    /// Entries that [`Effect::Fetch`] asked for.
    Fetched {
        /// Names the request.
        fetch: FetchId,
        /// The entries, or why there are none.
        entries: Result<Entries, LogFault>,
    },
    /// The state machine has applied up to here.
    Applied {
        /// Last applied index.
        through: Index,
    },
    /// A snapshot was published and verified.
    Snapshotted {
        /// Its label.
        meta: SnapshotMeta,
    },
    /// The log gave up entries before `first`.
    Compacted {
        /// First index still held.
        first: Index,
    },
    /// An outgoing snapshot transfer ended.
    TransferEnded {
        /// Its name.
        transfer: TransferId,
        /// True if the follower has the snapshot.
        ok: bool,
    },
    /// A snapshot that [`Effect::Expect`] asked for is complete: verified, published, durable.
    /// The core checks again that it is still wanted and answers with [`Effect::Reset`] (R25).
    SnapshotReceived {
        /// Its label.
        meta: SnapshotMeta,
    },
    /// A snapshot that [`Effect::Expect`] asked for will not come; the leader will offer again.
    SnapshotAborted {
        /// The transfer.
        transfer: TransferId,
    },
    /// The next spare segment cannot be had, or can again.
    Headroom {
        /// True while it cannot.
        low: bool,
    },
    /// Hand leadership to this voter, if this replica leads: within one election timeout it is
    /// asked to stand as soon as it holds the whole log; proposals are refused meanwhile.
    Transfer {
        /// The voter.
        to: MemberId,
    },
}

/// Something the world must do.
///
/// Every effect may be carried out at once and in any order, with one exception: persists
/// and resets are first in, first out. Whatever promises something waits inside the core until the persist it
/// depends on is durable, so that no world can acknowledge too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make this batch durable.
    Persist(Persist),
    /// Put a durable base at the end of a received snapshot (R25). First in, first out with the
    /// persists, and completed like them by [`Input::Persisted`]. When it is durable, the driver
    /// rebuilds the state machine from the snapshot before it applies anything behind it.
    Reset {
        /// Names this write, from the same sequence as the persists.
        seq: Seq,
        /// Label of the snapshot.
        meta: SnapshotMeta,
        /// Last entry of the log afterwards, as the core knows it: `meta.last`, or the end of the
        /// suffix that is kept because the entry at `meta.last` matches. The log must agree.
        last: LogId,
    },
    /// Put these entries, which others gave back, in the place of damaged ones (R15); answered by
    /// [`Input::Repaired`], or by [`Input::PersistFailed`] or [`Input::NoSpace`]. At most one is out. In no order with
    /// the persists: a log skips what is no hole any more.
    Repair {
        /// The entries, ascending.
        entries: Vec<Entry>,
    },
    /// Send a message.
    Send {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: Message,
        /// How it may queue.
        lane: SendLane,
    },
    /// Read entries older than the cached tail from the log.
    Fetch {
        /// Names the request.
        fetch: FetchId,
        /// The follower that needs them: reads for one peer queue behind no other's.
        peer: MemberId,
        /// First index.
        from: Index,
        /// Last index, inclusive.
        to: Index,
        /// Stop after this weight (but return at least one entry).
        max_bytes: usize,
    },
    /// Entries up to here are committed. Monotone.
    Commit {
        /// The last committed entry.
        through: LogId,
    },
    /// A proposal has a place in the log; its outcome follows by index and term.
    Accepted {
        /// The proposal.
        ticket: Ticket,
        /// Its place.
        at: LogId,
    },
    /// A proposal or read was refused and never entered the log: not committed for sure.
    Refused {
        /// The proposal or read.
        ticket: Ticket,
        /// Why.
        why: Refusal,
    },
    /// Proposals from this index on were cut here. Their outcome is unknown: another member may
    /// still hold and commit them.
    Lost {
        /// First index that was cut.
        from: Index,
    },
    /// A read may be served once the replica has applied `index`.
    ReadAt {
        /// The read.
        ticket: Ticket,
        /// The index.
        index: Index,
    },
    /// Send a snapshot to a peer: offer it, then its chunks.
    Ship {
        /// Names the transfer.
        transfer: TransferId,
        /// The receiver.
        to: MemberId,
        /// The leader's term, for the offer and the chunks.
        term: Term,
        /// Label of the snapshot.
        meta: SnapshotMeta,
    },
    /// Stop an outgoing transfer (the peer was found not to need it, or leadership ended).
    StopShip {
        /// Names the transfer.
        transfer: TransferId,
    },
    /// Get ready to receive a snapshot.
    Expect {
        /// Names the transfer.
        transfer: TransferId,
        /// The sender.
        from: MemberId,
        /// The sender's term.
        term: Term,
        /// Label of the snapshot.
        meta: SnapshotMeta,
    },
    /// Something to observe.
    Observe(Event),
    /// This replica must stop; it has told nobody anything untrue.
    Stop(crate::fault::StopReason),
}

/// Settings of the core. All times in microseconds, all sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// This member.
    pub member: MemberId,
    /// Shortest election timeout.
    pub election_min: Micros,
    /// Longest election timeout (exclusive).
    pub election_max: Micros,
    /// Heartbeat interval.
    pub heartbeat: Micros,
    /// Most bytes of entries in one append.
    pub append_bytes: usize,
    /// Most bytes of entries in flight to one peer.
    pub window_bytes: usize,
    /// Most appends with entries in flight to one peer.
    pub window_messages: usize,
    /// Most bytes of entries that the leader holds uncommitted; beyond it callers get `Busy`.
    pub uncommitted_bytes: usize,
    /// Most bytes of durable entries kept in memory for followers and the applier.
    pub cache_bytes: usize,
    /// Largest command.
    pub command_bytes: usize,
    /// Most reads waiting for confirmation.
    pub reads: usize,
    /// A leader whose oldest write is outstanding this long steps down, whatever its disk usually
    /// takes; before that, after an election timeout or four times the 99th percentile of its
    /// writes, whichever is longer (R41).
    pub write_stall: Micros,
}

impl CoreConfig {
    /// The defaults for a member: heartbeats every 50 ms, elections after 150 to 300 ms.
    #[must_use]
    pub const fn new(member: MemberId) -> Self {
        Self {
            member,
            election_min: 150_000,
            election_max: 300_000,
            heartbeat: 50_000,
            append_bytes: 1 << 20,
            window_bytes: 8 << 20,
            window_messages: 64,
            uncommitted_bytes: 64 << 20,
            cache_bytes: 16 << 20,
            command_bytes: 1 << 20,
            reads: 65_536,
            write_stall: 2_000_000,
        }
    }
}

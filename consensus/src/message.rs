//! The messages between replicas. Frame and handshake carry version, cluster id, recovery epoch,
//! group and member ids; the message itself does not repeat them.

use crate::damage::Hole;
use crate::entries::Entries;
use crate::fault::Refusal;
use crate::types::{Entry, Index, LogId, MemberId, Micros, SnapshotMeta, Term, Ticket, TransferId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A message between two replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Request for a vote or a pre-vote (Raft 5.2, dissertation 9.6).
    Vote {
        /// The term stood for; in a pre-vote the term that would be stood for.
        term: Term,
        /// True for a pre-vote, which changes nothing at the receiver.
        pre: bool,
        /// Last entry of the candidate's log.
        last: LogId,
        /// True if a leader asked the candidate to stand: overrides leader stickiness.
        transfer: bool,
    },
    /// Answer to [`Message::Vote`].
    VoteReply {
        /// If granted, the term that was asked for; else the voter's own current term.
        term: Term,
        /// As in the request.
        pre: bool,
        /// The term of the request that this answers.
        asked: Term,
        /// The verdict.
        granted: bool,
    },
    /// The leader asks a voter to stand at once (dissertation 3.10, R38).
    TimeoutNow {
        /// The leader's term.
        term: Term,
        /// The leader's last entry: who does not hold it ignores the request.
        last: LogId,
        /// How long the request stays good, in microseconds from receipt.
        within: Micros,
    },
    /// Entries or a heartbeat (empty).
    Append {
        /// The leader's term.
        term: Term,
        /// Number of the leader's round in this term: keys reads, and binds replies to requests.
        round: u64,
        /// The entry before `entries`.
        prev: LogId,
        /// The leader's commit index, not capped by what the receiver holds (R35).
        commit: Index,
        /// True if the leader has committed an entry of its own term (R35).
        commit_own_term: bool,
        /// Consecutive entries from `prev.index + 1`.
        entries: Entries,
    },
    /// Answer to [`Message::Append`].
    AppendReply {
        /// The follower's term.
        term: Term,
        /// The round of the request.
        round: u64,
        /// The durable log id, capped at what the request matched, or the conflict.
        result: Result<LogId, Conflict>,
        /// "I will help elect nobody else for this long", in microseconds (R37); 0 promises nothing.
        promise: Micros,
        /// True if the follower can take no more segments (R45).
        low: bool,
    },
    /// The leader offers a snapshot to a follower whose next entry was compacted.
    SnapshotOffer {
        /// The leader's term.
        term: Term,
        /// Name of this transfer.
        transfer: TransferId,
        /// Label of the snapshot.
        meta: SnapshotMeta,
    },
    /// A piece of the snapshot.
    SnapshotChunk {
        /// The leader's term.
        term: Term,
        /// Name of the transfer.
        transfer: TransferId,
        /// Offset of `bytes` in the content.
        offset: u64,
        /// The piece.
        bytes: Bytes,
    },
    /// Answer to an offer or a chunk.
    SnapshotAck {
        /// The follower's term.
        term: Term,
        /// Name of the transfer.
        transfer: TransferId,
        /// The next offset wanted (resume point).
        next: u64,
        /// What became of the transfer so far.
        state: TransferState,
    },
    /// A call that a replica passes on to the leader.
    Forward {
        /// The asker's ticket, returned in the reply.
        ticket: Ticket,
        /// The term of the leader that is meant: in any other term it is refused, so that the
        /// asker can tell when it can no longer enter a log.
        term: Term,
        /// The command.
        command: Bytes,
        /// How long the asker still waits, in microseconds.
        within: Micros,
    },
    /// Answer to [`Message::Forward`].
    ForwardReply {
        /// The asker's ticket.
        ticket: Ticket,
        /// The outcome.
        outcome: Outcome,
    },
    /// A replica asks the leader for a read index (dissertation 6.4).
    ReadIndex {
        /// The asker's ticket.
        ticket: Ticket,
        /// How long the asker still waits, in microseconds.
        within: Micros,
    },
    /// Answer to [`Message::ReadIndex`].
    ReadIndexReply {
        /// The asker's ticket.
        ticket: Ticket,
        /// The index to wait for, or why there is none.
        result: Result<Index, Refusal>,
    },
    /// A replica asks the leader a question about the replicated state, which only a leader that
    /// has proved itself answers (SCENARIOS section 4).
    Confirm {
        /// The asker's ticket, returned in the reply.
        ticket: Ticket,
        /// How long the asker still waits, in microseconds.
        within: Micros,
        /// The question, at most [`CONFIRM_QUESTION_MAX`] bytes; the state machine's own encoding.
        question: Bytes,
    },
    /// A member asks for entries that are damaged in its log (R15). Any member answers with what
    /// it holds of those whose identity is given, whatever it knows of leaders and commit indexes;
    /// only a leader answers about the others, and only at or below its commit index.
    Repair {
        /// Number of the request, returned in the reply.
        ask: u64,
        /// What is wanted, ascending; at most [`REPAIR_WANTS_MAX`].
        wants: Vec<Hole>,
    },
    /// Answer to [`Message::Repair`].
    RepairReply {
        /// Number of the request.
        ask: u64,
        /// Entries that were asked for, ascending; at most [`REPAIR_WANTS_MAX`]. What is missing
        /// the sender does not hold, or did not fit.
        entries: Vec<Entry>,
    },
    /// Answer to [`Message::Confirm`].
    ConfirmReply {
        /// The asker's ticket.
        ticket: Ticket,
        /// What was answered; any refusal means "unknown".
        result: Result<Confirmation, Refusal>,
    },
}

/// Most entries that one [`Message::Repair`] asks for.
pub const REPAIR_WANTS_MAX: usize = 64;
/// Largest question of a [`Message::Confirm`], in bytes.
pub const CONFIRM_QUESTION_MAX: usize = 4 << 10;
/// Largest answer of a [`Confirmation`], in bytes.
pub const CONFIRM_ANSWER_MAX: usize = 4 << 10;

/// What a proven leader answered to a question about the replicated state: it led `term` by a
/// quorum round sent after the question arrived, had applied everything committed before that,
/// and read the answer from its state at `index`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    /// The leader that answered.
    pub leader: MemberId,
    /// The term that it led.
    pub term: Term,
    /// Applied index of the very read that the answer comes from.
    pub index: Index,
    /// The answer, at most [`CONFIRM_ANSWER_MAX`] bytes; the state machine's own encoding.
    pub answer: Bytes,
}

/// Where a snapshot transfer stands at its receiver.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferState {
    /// More chunks are wanted, from `next`.
    Wanted,
    /// Installed, or not needed any more.
    Done,
    /// The receiver gave up; offer again later.
    Failed,
}

/// Why an append did not match, for fast back-off by term (Raft 5.3, last paragraphs).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conflict {
    /// The `prev` that did not match, so that the leader can tell an old answer from a new one.
    pub prev: LogId,
    /// The follower's last index; before a hole of unknown identity at `prev` (R15), the last one
    /// whose term it knows.
    pub last: Index,
    /// The follower's term at `prev.index`; `None` if it does not know, never zero for "unknown".
    pub term: Option<Term>,
    /// First index that the follower holds of that term (or its `last + 1` if `term` is `None`).
    pub first_of_term: Index,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Committed and applied, with the state machine's answer.
    Committed {
        /// The entry.
        at: LogId,
        /// The state machine's answer.
        result: Bytes,
    },
    /// A read may be served from the local replica.
    Ready {
        /// The local replica has applied at least this.
        applied: Index,
        /// How old the answer may be, in microseconds; 0 for a linearizable one.
        age: Micros,
    },
    /// It never took effect and never will: safe to try again.
    NotCommitted(Refusal),
    /// It may or may not take effect later: retry only under the same session and sequence.
    Unknown(Refusal),
    /// A proven leader answered a question, and the local replica has applied at least the index
    /// that it was answered at.
    Confirmed(Confirmation),
}

/// How a message may queue. Heartbeats and votes never wait behind bulk data.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendLane {
    /// Small and timely: votes, heartbeats, replies, reads.
    Urgent,
    /// Entries, forwards and snapshot chunks.
    Bulk,
}

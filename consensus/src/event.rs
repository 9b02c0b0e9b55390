//! What happens inside, as values: the real node turns them into logs and metrics, the simulator
//! into a trace. No event decides anything.

use crate::types::{Index, LogId, MemberId, Micros, Term, TransferId};

/// The role of a replica.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleKind {
    /// Follows a leader, or waits for one. Learners and members without a configuration too.
    Follower,
    /// Asks whether an election could be won (dissertation 9.6).
    PreCandidate,
    /// Stands in an election.
    Candidate,
    /// Leads.
    Leader,
}

impl RoleKind {
    /// The word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Follower => "follower",
            Self::PreCandidate => "pre-candidate",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
        }
    }
}

/// Why a leader gave up its role.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepDown {
    /// A higher term was seen.
    HigherTerm,
    /// No quorum answered within an election timeout.
    LostQuorum,
    /// Its own write failed.
    WriteFailed,
    /// Its own write found no space (R45).
    NoSpace,
    /// Its oldest write took too long.
    WriteStalled,
    /// An entry of its own log does not verify any more (R15).
    Damaged,
    /// It is no voter of the committed configuration.
    Removed,
}

impl StepDown {
    /// The reason as people read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HigherTerm => "a higher term was seen",
            Self::LostQuorum => "no quorum answered within an election timeout",
            Self::WriteFailed => "its own write failed",
            Self::NoSpace => "its own write found no space",
            Self::WriteStalled => "its oldest write took too long",
            Self::Damaged => "an entry of its own log does not verify",
            Self::Removed => "it is no voter any more",
        }
    }
}

/// Why a suffix of the log was cut. It was not known to be committed here in any case.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cut {
    /// A leader sent other entries for these places.
    Replaced,
    /// A snapshot that ends at or behind them holds another history.
    Snapshot,
    /// They found no space on the disk (R45). Others may hold and commit them all the same.
    NoSpace,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The role or term changed.
    Role {
        /// Role now.
        role: RoleKind,
        /// Term now.
        term: Term,
    },
    /// A leader became known (or unknown).
    Leader {
        /// The leader.
        leader: Option<MemberId>,
        /// Its term.
        term: Term,
    },
    /// A vote was granted, durably before it is sent.
    VoteGranted {
        /// To whom.
        to: MemberId,
        /// For which term.
        term: Term,
    },
    /// Leadership was given up.
    SteppedDown {
        /// The term that was led.
        term: Term,
        /// Why.
        why: StepDown,
    },
    /// An election (or pre-vote) cannot be won yet: these voters have not answered.
    WaitingForQuorum {
        /// Voters that did not answer.
        missing: Vec<MemberId>,
        /// How long there has been no leader, in microseconds.
        since: Micros,
    },
    /// The commit index rose.
    Committed {
        /// The last committed entry.
        through: LogId,
    },
    /// The durable watermark moved, up or (at a truncation) down.
    Durable {
        /// The watermark.
        through: LogId,
    },
    /// A suffix was cut.
    Truncated {
        /// First index that was cut.
        from: Index,
        /// Last index that was cut.
        last: Index,
        /// Why.
        why: Cut,
    },
    /// A configuration came into force.
    Membership {
        /// Index of its entry.
        at: Index,
    },
    /// The state machine has applied up to here.
    Applied {
        /// Last applied entry.
        through: LogId,
        /// State digest there.
        digest: u128,
        /// Entries of this job that the store already held.
        skipped: u64,
    },
    /// The store's checkpoint is durable.
    Checkpointed {
        /// Durable applied index.
        through: Index,
    },
    /// A snapshot was built, verified and published.
    SnapshotTaken {
        /// Its last entry.
        last: LogId,
        /// Length of its content in bytes.
        bytes: u64,
    },
    /// A snapshot could not be taken; tried again at the next interval.
    SnapshotFailed {
        /// The fault.
        why: String,
    },
    /// A snapshot transfer began, at its sender or receiver.
    TransferBegan {
        /// Its name.
        transfer: TransferId,
        /// The other end.
        peer: MemberId,
        /// True at the sender.
        sending: bool,
    },
    /// A snapshot transfer ended.
    TransferEnded {
        /// Its name.
        transfer: TransferId,
        /// The other end.
        peer: MemberId,
        /// True if the snapshot arrived.
        ok: bool,
    },
    /// A snapshot from the leader was installed.
    Installed {
        /// Its last entry.
        last: LogId,
    },
    /// The log gave up entries.
    Compacted {
        /// First index still held.
        first: Index,
    },
    /// Durable entries do not verify (R15), found at the start or while running.
    Damaged {
        /// The lowest of them.
        first: Index,
        /// The highest of them.
        last: Index,
        /// How many there are now.
        count: usize,
    },
    /// Damaged entries were given back by another member, durably.
    Repaired {
        /// How many.
        count: usize,
        /// How many are left.
        left: usize,
    },
    /// The log was reopened after a fault.
    LogReopened {
        /// The fault.
        fault: String,
    },
    /// The store was reopened after a fault.
    StoreReopened {
        /// The fault.
        fault: String,
        /// The index it came back with.
        applied: Index,
    },
    /// The log cannot get another spare segment (or can again).
    Headroom {
        /// True while it cannot.
        low: bool,
    },
    /// A message or call was refused or dropped for a reason worth counting.
    Dropped {
        /// The reason, a stable lower-case word.
        reason: &'static str,
    },
    /// An odd branch was taken; campaigns count how many seeds hit each.
    Mark(&'static str),
}

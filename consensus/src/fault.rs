//! What can go wrong, as values: refusals, log faults, store faults, reasons to stop.

use crate::types::{Index, MemberId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a call was not carried out, or why its outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// This replica is not the leader.
    #[error("not the leader")]
    NotLeader {
        /// The leader, where one is known.
        hint: Option<MemberId>,
    },
    /// A byte budget is used up; try again later.
    #[error("too much work in flight")]
    Busy,
    /// No spare segment can be had: the log would run full.
    #[error("the disk is full")]
    DiskFull,
    /// The deadline passed first.
    #[error("the deadline passed")]
    Deadline,
    /// The replica is shutting down or has stopped.
    #[error("the replica is stopping")]
    Stopping,
    /// Leadership or log position was lost while the call was under way.
    #[error("leadership was lost while the call was under way")]
    LostLeadership,
    /// The command exceeds the largest entry, or the question the largest question.
    #[error("the command is larger than an entry may be")]
    TooLarge,
    /// The leader proved itself, but its state does not answer the question.
    #[error("the leader cannot answer the question from its state now")]
    NoAnswer,
    /// Leadership can only be handed to a voter.
    #[error("the member that was to take over is not a voter")]
    NotVoter,
}

/// What can be done about a member whose files cannot be used and are not to be had any more:
/// membership is fixed when a cluster is formed, so an operator must not be sent to a remedy that is
/// not there. A sentence of its own, behind the one that says what to put back.
pub const NO_REPLACEMENT: &str = "If that is not possible, leave this node stopped, keep its directory, and run on \
     with the others as long as they are a majority; this version cannot replace a member";

/// What must not be put back in the place of a log or a whole directory (R3, R4).
pub const NEVER_OLDER: &str =
    "never an older copy, which would have forgotten votes and acknowledgements";

/// A fault of the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogFault {
    /// No space was left; nothing of the batch counts.
    #[error("no space left for the log: {detail}")]
    Full {
        /// The operation and file.
        detail: String,
    },
    /// A write or sync failed: nothing more is accepted until reopen (R12).
    #[error("the log is poisoned until it is reopened: {detail}")]
    Poisoned {
        /// The operation, file and error.
        detail: String,
    },
    /// The log could not be opened, or could not be read without being opened; the text names the file,
    /// the error and the remedy.
    #[error("the log cannot be opened: {detail}")]
    Unopened {
        /// The operation, file and error, and what to do.
        detail: String,
    },
    /// Entries exist but do not verify.
    #[error("log entries {first}..={last} are damaged: {detail}")]
    Damaged {
        /// First damaged index.
        first: Index,
        /// Last damaged index.
        last: Index,
        /// File, offset and what was found.
        detail: String,
    },
    /// The log is held (R5): it takes no write, and not a byte of it changes.
    #[error("the log is held and takes no write: {why}")]
    Held {
        /// What cannot be proved, and who must help.
        why: String,
    },
    /// The entries were compacted away.
    #[error("entries before {first} were compacted")]
    Compacted {
        /// First index still held.
        first: Index,
    },
    /// The directory or a file cannot be used; the message names the thing and the remedy.
    #[error("{0}")]
    Refused(String),
}

/// A fault of the state machine's store or of a snapshot file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreFault {
    /// No space left.
    #[error("no space left for the store: {detail}")]
    Full {
        /// The operation and file.
        detail: String,
    },
    /// A write, sync or read failed: only reopening helps (R21).
    #[error("the store must be reopened: {detail}")]
    Poisoned {
        /// The operation, file and error.
        detail: String,
    },
    /// The store cannot be trusted and must be rebuilt from snapshot and log.
    #[error("the store is not trusted: {0}")]
    Untrusted(String),
    /// An entry of a type that this build does not know: stop, never skip.
    #[error("entry {at} has type {kind}, which this build does not know")]
    UnknownType {
        /// Index of the entry.
        at: Index,
        /// Its type.
        kind: u16,
    },
    /// A snapshot file or stream does not verify or cannot be used.
    #[error("snapshot: {0}")]
    Snapshot(String),
    /// The log reader failed under the apply job.
    #[error("log: {0}")]
    Log(#[from] LogFault),
}

impl StoreFault {
    /// What an operator does about a store that this fault keeps closed.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Full { .. } => "free disk space, then restart",
            Self::Poisoned { .. } => "look after the disk, then restart",
            Self::Untrusted(_) => {
                "restart: the store is set aside then, and rebuilt from snapshot and log"
            }
            Self::UnknownType { .. } => "install a newer build",
            Self::Snapshot(_) | Self::Log(_) => "restart, and look after the disk if it repeats",
        }
    }
}

/// Why a replica stopped. A stopped replica neither votes, leads nor acknowledges.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StopReason {
    /// Committed entry of an unknown type.
    #[error("entry {at} has type {kind}, which this build does not know; install a newer build")]
    UnknownEntryType {
        /// Index of the entry.
        at: Index,
        /// Its type.
        kind: u16,
    },
    /// The store refused writes for 30 s.
    #[error(
        "the store still refused entry {at} after 30 s: {fault}; {}",
        fault.remedy()
    )]
    StoreRefused {
        /// First entry that could not be applied.
        at: Index,
        /// The last fault.
        fault: StoreFault,
    },
    /// Evidence that committed history differs (R18): nothing was changed.
    #[error(
        "this replica's history contradicts the cluster at {at}: {detail}; nothing was changed. Stop the node and keep \
         its directory, compare it with another member's (`holdfast log diff`), and report it. {NO_REPLACEMENT}"
    )]
    Diverged {
        /// Where.
        at: Index,
        /// What was found.
        detail: String,
    },
    /// The log failed and could not be reopened.
    #[error("the log failed and could not be reopened: {0}")]
    Log(LogFault),
    /// Something only a person can decide; the text names the thing and the remedy.
    #[error("{0}")]
    NeedsOperator(String),
}

//! What a command is answered with: the result that every replica computes alike.

use crate::rules::Rule;
use bytes::Bytes;
use holdfast_consensus::codec::{self, CodecError};
use serde::{Deserialize, Serialize};

/// Largest value that [`Current::Value`] repeats, in bytes. Results are kept with sessions, and
/// this bounds them.
pub const CURRENT_VALUE_MAX: usize = 4 << 10;

/// What a key held when a compare-and-set missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Current {
    /// Nothing.
    Absent,
    /// This value.
    Value(Bytes),
    /// A value too large to repeat here; read it.
    Large {
        /// Its length.
        bytes: u64,
    },
}

/// The result of an applied command. Encoded in replies and kept with sessions: the order of the
/// variants is frozen, new ones come last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The topic was created.
    TopicCreated {
        /// Index of the creating entry.
        incarnation: u64,
    },
    /// A topic of that name lives already; nothing changed.
    TopicExists {
        /// Its incarnation.
        incarnation: u64,
    },
    /// The topic was deleted.
    TopicDeleted {
        /// The incarnation that was deleted.
        incarnation: u64,
    },
    /// There is no such thing; nothing changed.
    NotFound,
    /// Another incarnation lives under the name; nothing changed.
    WrongIncarnation {
        /// The one that lives.
        current: u64,
    },
    /// The command broke a limit; nothing changed.
    Invalid(Rule),
    /// The command's payload could not be decoded; nothing changed.
    Undecodable,
    /// The member's record was stored.
    MemberStored,
    /// A session was registered.
    SessionRegistered {
        /// Its number, to be sent with its commands.
        client: u64,
    },
    /// The session was closed.
    SessionClosed,
    /// The session is unknown, expired or closed. The command was NOT executed.
    SessionExpired,
    /// The session has already answered a later command. The command was NOT executed.
    StaleSequence {
        /// The last sequence number that was answered.
        last: u64,
    },
    /// The value was stored.
    KvStored,
    /// The key was deleted.
    KvDeleted,
    /// The key did not hold the expected value; nothing changed.
    CasMissed {
        /// What it holds.
        current: Current,
    },
    /// The partition has an owner now.
    PartitionAssigned {
        /// Its placement.
        placed: u64,
    },
    /// The partition has an owner already; nothing changed.
    AlreadyAssigned {
        /// The placement in force.
        placed: u64,
    },
    /// The topic has fewer partitions; nothing changed.
    NoSuchPartition {
        /// Its partitions.
        partitions: u32,
    },
    /// Another placement is in force; nothing changed.
    WrongPlacement {
        /// The one in force.
        current: u64,
    },
    /// The target owns the partition already; nothing changed.
    AlreadyOwner,
    /// The move began.
    MoveStarted {
        /// The move.
        incarnation: u64,
    },
    /// Another move is under way; nothing changed.
    MoveUnderWay {
        /// That move.
        incarnation: u64,
    },
    /// No move is under way; nothing changed.
    NoMove {
        /// The placement in force.
        placed: u64,
    },
    /// The target owns the partition now.
    MoveCompleted {
        /// The move, which is now the placement.
        incarnation: u64,
    },
    /// The move was given up; the owner is as before.
    MoveAborted {
        /// The move.
        incarnation: u64,
    },
    /// The child is attached.
    Attached {
        /// The attachment: the epoch of its cursors.
        incarnation: u64,
    },
    /// The child is attached already; nothing changed.
    AlreadyAttached {
        /// The attachment in force.
        incarnation: u64,
    },
    /// The attachment needs one tail for each partition of the parent; nothing changed.
    WrongTails {
        /// Partitions of the parent.
        partitions: u32,
    },
    /// The parent is the child, or is fed from it; nothing changed.
    WouldFeedItself,
    /// The child is detached.
    Detached {
        /// The attachment that ended.
        incarnation: u64,
    },
}

impl Answer {
    /// The bytes of a reply.
    ///
    /// # Panics
    /// Never: an answer is far smaller than the codec's limit.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        codec::encode("answer", self)
            .expect("an answer is bounded by CURRENT_VALUE_MAX, far below the codec's limit")
            .into()
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode("answer", bytes)
    }
}

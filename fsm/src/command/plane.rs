//! Payloads of the commands about placements and links. Frozen.

use crate::records::Owner;
use crate::rules::{self, Rule};
use serde::{Deserialize, Serialize};

/// Names a partition of one incarnation of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRef {
    /// Name of the topic.
    pub topic: String,
    /// Its incarnation.
    pub incarnation: u64,
    /// The partition.
    pub partition: u32,
}

/// Payload of [`Command::AssignPartition`](super::Command::AssignPartition).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignPartition {
    /// What is assigned; refused if it has an owner already (N30).
    pub to: PartitionRef,
    /// The owner.
    pub owner: Owner,
}

/// Payload of [`Command::SetTarget`](super::Command::SetTarget).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTarget {
    /// What is moved.
    pub of: PartitionRef,
    /// The placement that the proposer saw; refused if another is in force.
    pub placed: u64,
    /// Who it moves to.
    pub target: Owner,
}

/// Payload of [`Command::CompleteMove`](super::Command::CompleteMove).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteMove {
    /// What is moved.
    pub of: PartitionRef,
    /// The move.
    pub incarnation: u64,
    /// Length of the new owner's durable copy, in records.
    pub length: u64,
    /// True if the old owner's copy could not be covered: it is lost or cut off.
    pub forced: bool,
}

/// Payload of [`Command::AbortMove`](super::Command::AbortMove).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortMove {
    /// What is moved.
    pub of: PartitionRef,
    /// The move.
    pub incarnation: u64,
}

/// Payload of [`Command::AttachChild`](super::Command::AttachChild).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachChild {
    /// Name of the child.
    pub child: String,
    /// Its incarnation.
    pub child_incarnation: u64,
    /// Name of the parent.
    pub parent: String,
    /// Its incarnation.
    pub parent_incarnation: u64,
    /// How long a record waits before it is handed on, in milliseconds.
    pub delay_ms: u64,
    /// One tail for each partition of the parent, as their owners reported them (R36).
    pub tails: Vec<u64>,
}

/// Payload of [`Command::DetachChild`](super::Command::DetachChild).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachChild {
    /// Name of the child.
    pub child: String,
    /// Detach only this attachment; `None` detaches whichever is in force.
    pub incarnation: Option<u64>,
}

impl PartitionRef {
    pub(crate) fn validate(&self) -> Result<(), Rule> {
        rules::topic_name(&self.topic)
    }
}

impl AssignPartition {
    pub(crate) fn validate(&self) -> Result<(), Rule> {
        self.to.validate()?;
        rules::owner(&self.owner)
    }
}

impl SetTarget {
    pub(crate) fn validate(&self) -> Result<(), Rule> {
        self.of.validate()?;
        rules::owner(&self.target)
    }
}

impl AttachChild {
    pub(crate) fn validate(&self) -> Result<(), Rule> {
        rules::topic_name(&self.child)?;
        rules::topic_name(&self.parent)?;
        rules::tails(&self.tails)
    }
}

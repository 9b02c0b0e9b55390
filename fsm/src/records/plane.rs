//! The records of the data plane: who owns the copy of a partition, and which topic is fed from
//! which.
//!
//! A placement is named by its *move*: the index of the entry that put the owner there (an
//! assignment, or the begin of the move that was completed). Moves of one partition rise, so that
//! the copies of several owners, and several copies of one owner, are told apart (N23, R33).

use super::{ResourceKind, Stamp, TableId, key};
use holdfast_consensus::ClusterId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names the disk of a data plane. Random, never zero, made with the data plane's directory; it
/// survives a change of the member's id (R5).
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct VolumeId(pub u128);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Who holds a copy: a node by name, and the disk that it is on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Configured node name.
    pub node: String,
    /// The disk.
    pub volume: VolumeId,
}

/// A move that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The move: kind [`ResourceKind::Move`]. Its incarnation is the index of the entry that began
    /// it, and becomes the placement's when the move is completed.
    pub stamp: Stamp,
    /// Who the copy moves to.
    pub owner: Owner,
}

/// Who owns one partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The placement in force: kind [`ResourceKind::Move`], name [`move_name`]. Rises with every
    /// change of the owner.
    pub stamp: Stamp,
    /// The topic.
    pub topic: Stamp,
    /// The partition.
    pub partition: u32,
    /// The owner.
    pub owner: Owner,
    /// The move that is under way, if there is one.
    pub target: Option<Target>,
    /// Length of the owner's durable copy, in records, as it reported when it took over; zero for
    /// a first assignment (R33).
    pub length: u64,
    /// The last move that was forced, without the old owner's copy being covered: no copy from
    /// before it is ever destroyed for ownership (R33, N22).
    pub forced_at: Option<u64>,
}

/// A child topic's link to the parent that feeds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The attachment: kind [`ResourceKind::Attachment`], the child's name. Its incarnation is
    /// the epoch that cursors carry.
    pub stamp: Stamp,
    /// The child.
    pub child: Stamp,
    /// The parent.
    pub parent: Stamp,
    /// How long a record waits before it is handed to the child, in milliseconds.
    pub delay_ms: u64,
    /// Per partition of the parent, the tail that its owner reported before the attachment was
    /// proposed: where a cursor anchors, however late (R36).
    pub tails: Vec<u64>,
}

/// The name under which the moves of a partition are stamped. No topic has a `/` in its name.
#[must_use]
pub fn move_name(topic: &str, partition: u32) -> String {
    format!("{topic}/{partition}")
}

/// The topic and partition that a stamp of a move names.
#[must_use]
pub fn moved_partition(name: &str) -> Option<(&str, u32)> {
    let (topic, partition) = name.rsplit_once('/')?;
    Some((topic, partition.parse().ok()?))
}

/// Key of an assignment: topic and partition. Names hold no zero byte.
#[must_use]
pub fn assignment_key(topic: &str, partition: u32) -> Vec<u8> {
    let mut key = assignments_of(topic);
    key.extend_from_slice(&partition.to_be_bytes());
    key
}

/// The part of its key that all assignments of one topic share.
#[must_use]
pub fn assignments_of(topic: &str) -> Vec<u8> {
    let mut key = key(TableId::Assignments, topic.as_bytes());
    key.push(0);
    key
}

/// Key of a link: the child's name.
#[must_use]
pub fn link_key(child: &str) -> Vec<u8> {
    key(TableId::Links, child.as_bytes())
}

/// The identity of a copy of a partition on a disk: what the stamp file of its directory holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CopyStamp {
    /// The disk that it was made on.
    pub volume: VolumeId,
    /// The topic.
    pub topic: Stamp,
    /// The partition.
    pub partition: u32,
    /// The move that it was made for.
    pub placed: Stamp,
}

impl CopyStamp {
    /// The cluster that made it.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.topic.cluster
    }

    /// True if topic, partition and move are of one kind and belong together.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.topic.kind == ResourceKind::Topic
            && self.placed.kind == ResourceKind::Move
            && self.placed.name == move_name(&self.topic.name, self.partition)
            && self.placed.cluster == self.topic.cluster
            && self.placed.group == self.topic.group
    }
}

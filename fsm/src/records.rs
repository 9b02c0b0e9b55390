//! The stored records and their keys. Encodings are frozen (golden bytes in the tests).
//!
//! All records live in one ordered map. A key is the table's number (one byte) and then the key
//! within the table; numbers inside keys are big-endian, so that byte order is number order. One
//! map keeps a small transaction small: one tree to copy pages of, whatever tables it touches.

mod plane;

use bytes::Bytes;
use holdfast_consensus::codec::{self, CodecError};
use holdfast_consensus::{ClusterId, MemberId, Micros};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use plane::{
    Assignment, CopyStamp, Link, Owner, Target, VolumeId, assignment_key, assignments_of, link_key,
    move_name, moved_partition,
};

/// A table of the state.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TableId {
    /// Live topics, by name.
    Topics = 1,
    /// Proofs of deletion, by kind, name, incarnation and group.
    Tombstones = 2,
    /// Members, by id.
    Members = 3,
    /// Client sessions, by number.
    Sessions = 4,
    /// The `kv` table, by key.
    Kv = 5,
    /// Owners of partitions, by topic and partition.
    Assignments = 6,
    /// Attachments, by child.
    Links = 7,
}

impl TableId {
    /// Every table, in key order.
    pub const ALL: [Self; 7] = [
        Self::Topics,
        Self::Tombstones,
        Self::Members,
        Self::Sessions,
        Self::Kv,
        Self::Assignments,
        Self::Links,
    ];

    /// The table with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| *table as u8 == number)
    }

    /// Its place in [`Counts`].
    #[must_use]
    pub const fn position(self) -> usize {
        self as usize - 1
    }
}

/// Rows per table, in the order of [`TableId::ALL`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(pub [u64; 7]);

impl Counts {
    /// Rows of a table.
    #[must_use]
    pub const fn of(&self, table: TableId) -> u64 {
        self.0[table.position()]
    }

    /// Rows of all tables.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What a stamp is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceKind {
    /// A topic.
    Topic,
    /// A child topic's attachment to its parent.
    Attachment,
    /// The placement of a partition, or the move that may become it.
    Move,
}

impl ResourceKind {
    /// A stable lower-case word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Attachment => "attachment",
            Self::Move => "move",
        }
    }

    /// Its number in keys.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Topic => 1,
            Self::Attachment => 2,
            Self::Move => 3,
        }
    }
}

/// The full identity of a resource. Equality of full stamps means the same thing, across recovery
/// and import; an incarnation alone is unique only within one kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The cluster that created it.
    pub cluster: ClusterId,
    /// The state epoch in which it was created.
    pub epoch: u64,
    /// The Raft group.
    pub group: u64,
    /// What it is.
    pub kind: ResourceKind,
    /// Its name.
    pub name: String,
    /// Index of the entry that created it.
    pub incarnation: u64,
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} `{}` incarnation {}", self.kind.word(), self.name, self.incarnation)
    }
}

/// A live topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// The stamp of its creation.
    pub stamp: Stamp,
    /// Number of partitions.
    pub partitions: u32,
    /// How long records are kept, in milliseconds; `None` keeps them for ever.
    pub retention_ms: Option<u64>,
    /// Wall time at the proposer, in milliseconds since 1970.
    pub created_at_ms: u64,
}

/// Proof that an incarnation was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The stamp of what was deleted.
    pub stamp: Stamp,
    /// The state epoch in which it was deleted.
    pub epoch: u64,
    /// Index of the deleting entry.
    pub deleted_at: u64,
    /// Log time of the deleting entry.
    pub time: Micros,
}

/// A member's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The member.
    pub member: MemberId,
    /// Its node name.
    pub name: String,
    /// Base address of its HTTP API.
    pub http: String,
    /// Its build.
    pub build: String,
    /// The newest entry type that it applies.
    pub newest_type: u16,
    /// Index of the entry that stored this record.
    pub updated: u64,
}

/// A client session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Sequence number of the last executed command; zero before the first.
    pub sequence: u64,
    /// Index of the entry that executed it, or registered the session.
    pub index: u64,
    /// Log time of the last entry that used the session.
    pub used: Micros,
    /// The encoded answer of that command.
    pub answer: Bytes,
}

/// A value of the `kv` table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvValue {
    /// Index of the entry that wrote it.
    pub modified: u64,
    /// The value.
    pub value: Bytes,
}

/// A record with a fixed table.
pub trait Record: Serialize + DeserializeOwned {
    /// Where it lives.
    const TABLE: TableId;
    /// Its name in errors.
    const WHAT: &'static str;

    /// Encodes it.
    ///
    /// # Panics
    /// Never for a record that was made from a valid command.
    fn encode(&self) -> Vec<u8> {
        codec::encode(Self::WHAT, self)
            .expect("records are made from validated commands, far below the codec's limit")
    }

    /// Decodes it.
    ///
    /// # Errors
    /// [`CodecError`].
    fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode(Self::WHAT, bytes)
    }
}

macro_rules! record {
    ($($type:ident in $table:ident as $what:literal;)*) => { $(
        impl Record for $type {
            const TABLE: TableId = TableId::$table;
            const WHAT: &'static str = $what;
        }
    )* };
}

record! {
    Topic in Topics as "topic record";
    Tombstone in Tombstones as "tombstone record";
    Member in Members as "member record";
    Session in Sessions as "session record";
    KvValue in Kv as "kv record";
    Assignment in Assignments as "assignment record";
    Link in Links as "link record";
}

/// The full key of a record: table, then key within the table.
#[must_use]
pub fn key(table: TableId, within: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + within.len());
    key.push(table as u8);
    key.extend_from_slice(within);
    key
}

/// Key of a record that is named by a number.
#[must_use]
pub fn number_key(table: TableId, number: u64) -> Vec<u8> {
    key(table, &number.to_be_bytes())
}

/// Key of a tombstone: kind, name, incarnation, group (R31). Names hold no zero byte, so the key
/// is unambiguous and ordered by name.
#[must_use]
pub fn tombstone_key(stamp: &Stamp) -> Vec<u8> {
    let mut key = Vec::with_capacity(stamp.name.len() + 19);
    key.push(TableId::Tombstones as u8);
    key.push(stamp.kind.number());
    key.extend_from_slice(stamp.name.as_bytes());
    key.push(0);
    key.extend_from_slice(&stamp.incarnation.to_be_bytes());
    key.extend_from_slice(&stamp.group.to_be_bytes());
    key
}

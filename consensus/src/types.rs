//! The plain values of consensus: terms, indexes, identities, entries, configurations.

use crate::damage::Hole;
use bytes::Bytes;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A point or span on the one clock that the core knows: microseconds that never go back and that
/// count suspend (`CLOCK_BOOTTIME` in the real node, virtual time in the simulator).
pub type Micros = u64;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident($prefix:literal);)*) => { $(
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl $name {
            /// The value after this one.
            ///
            /// # Panics
            /// On overflow of 64 bits, which no cluster reaches.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )* };
}

id! {
    /// An election term (Raft section 5.1). Zero is "before the first election".
    Term("t");
    /// A position in the log. The first entry has index 1; zero is "nothing".
    Index("i");
    /// Names one persist batch for the life of the process; never reused, never goes back.
    Seq("s");
    /// Names one client call inside one replica.
    Ticket("c");
    /// Names one read of older entries from the log.
    FetchId("f");
    /// Names one snapshot transfer.
    TransferId("x");
}

impl Index {
    /// The index before this one; zero stays zero.
    #[must_use]
    pub const fn prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A member of the cluster: random 64 bits, created with the log, never reused (never zero).
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A cluster: random 128 bits, minted by the founder. Zero is "none yet".
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The identity of a log entry. Ordered lexicographically, which is the freshness order of
/// Raft section 5.4.1.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LogId {
    /// Term of the leader that created the entry.
    pub term: Term,
    /// Position of the entry.
    pub index: Index,
}

impl LogId {
    /// A log id from bare numbers.
    #[must_use]
    pub const fn new(term: u64, index: u64) -> Self {
        Self { term: Term(term), index: Index(index) }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.index)
    }
}

/// What an entry carries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Nothing: the first entry of a leader's term (Raft section 8).
    Blank,
    /// A command for the state machine: entry type (u16) and payload, opaque to consensus.
    Command(Bytes),
    /// A configuration; in force from the moment it is in the log (dissertation 4.1).
    /// Boxed, so that an entry stays small: nearly all of them are commands.
    Membership(Box<Membership>),
}

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Identity.
    pub id: LogId,
    /// Log time in microseconds. Never decreases along the log, and grows from one entry to the
    /// next by no more than the leader's own monotonic time between them, so that no wall clock
    /// can expire a session (it starts at zero with the log).
    pub time: Micros,
    /// Content.
    pub body: Body,
}

impl Entry {
    /// Bytes that this entry is charged with in every budget: its payload and a fixed overhead.
    /// The same measure is used when bytes are added and when they are released.
    #[must_use]
    pub fn weight(&self) -> usize {
        match &self.body {
            Body::Blank => Self::OVERHEAD,
            Body::Command(bytes) => Self::command_weight(bytes.len()),
            Body::Membership(m) => {
                Self::OVERHEAD
                    + (m.voters.len() + m.outgoing.len() + m.learners.len()) * 8
                    + m.names.values().map(|n| n.len() + 8).sum::<usize>()
            }
        }
    }

    const OVERHEAD: usize = 64;

    /// As [`Entry::weight`], of an entry with a command of so many bytes.
    #[must_use]
    pub const fn command_weight(bytes: usize) -> usize {
        Self::OVERHEAD + bytes
    }
}

/// A configuration. `outgoing` is empty except in the joint phase, where a majority of `voters`
/// and a majority of `outgoing` are both needed (dissertation 4.3).
///
/// Invariant: the three lists are sorted and free of duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Membership {
    /// Voters of the configuration (C_new in the joint phase).
    pub voters: Vec<MemberId>,
    /// Voters of C_old in the joint phase; else empty.
    pub outgoing: Vec<MemberId>,
    /// Members that receive the log but do not vote.
    pub learners: Vec<MemberId>,
    /// The configured node name of every member.
    #[serde(deserialize_with = "ascending_names")]
    pub names: BTreeMap<MemberId, String>,
}

/// Reads a map whose keys must ascend, so that one configuration has one encoding.
fn ascending_names<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<MemberId, String>, D::Error> {
    struct Ascending;

    impl<'de> Visitor<'de> for Ascending {
        type Value = BTreeMap<MemberId, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("names in ascending order of member ids")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut names = BTreeMap::new();
            while let Some((id, name)) = map.next_entry()? {
                if names.last_key_value().is_some_and(|(last, _)| *last >= id) {
                    return Err(A::Error::custom("names out of order"));
                }
                names.insert(id, name);
            }
            Ok(names)
        }
    }

    from.deserialize_map(Ascending)
}

impl Membership {
    /// A configuration of voters only.
    #[must_use]
    pub fn of_voters(members: impl IntoIterator<Item = (MemberId, String)>) -> Self {
        let names: BTreeMap<_, _> = members.into_iter().collect();
        Self { voters: names.keys().copied().collect(), names, ..Self::default() }
    }

    /// True if the member votes in this configuration, in either half.
    #[must_use]
    pub fn is_voter(&self, member: MemberId) -> bool {
        self.voters.contains(&member) || self.outgoing.contains(&member)
    }

    /// Every member, sorted, each once.
    #[must_use]
    pub fn members(&self) -> Vec<MemberId> {
        let mut all: Vec<_> =
            self.voters.iter().chain(&self.outgoing).chain(&self.learners).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// True if the lists are sorted and free of duplicates.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        [&self.voters, &self.outgoing, &self.learners]
            .iter()
            .all(|list| list.is_sorted_by(|a, b| a < b))
    }

    /// The name of a member, or its id where no name is known.
    #[must_use]
    pub fn name_of(&self, member: MemberId) -> String {
        self.names.get(&member).cloned().unwrap_or_else(|| member.to_string())
    }
}

/// What must be durable before any promise about it leaves (Raft figure 2, persistent state).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HardState {
    /// Latest term seen. Never decreases.
    pub term: Term,
    /// Candidate voted for in `term`. Changes only when the term rises, or once from `None`.
    pub voted_for: Option<MemberId>,
}

/// The label of a snapshot: everything that is needed to continue the log behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SnapshotMeta {
    /// Last entry that the snapshot contains.
    pub last: LogId,
    /// Log time of that entry.
    pub time: Micros,
    /// Configuration in force at `last`, and the index of the entry that carries it.
    pub membership: Membership,
    /// Index of the entry that created `membership`.
    pub membership_index: Index,
    /// Raft group (0 until there are several).
    pub group: u64,
    /// Cluster id.
    pub cluster: ClusterId,
    /// Recovery epoch (R8).
    pub epoch: u64,
    /// State digest at `last`.
    pub digest: u128,
    /// Length of the content in bytes; zero until the snapshot is published.
    pub bytes: u64,
    /// Newest entry type that the state has applied.
    pub newest_type: u16,
}

/// What recovery proved about a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Proved hard state.
    pub hard: HardState,
    /// First index that the log still holds (`base.index + 1`); `last.index + 1` if it holds none.
    pub first: Index,
    /// The entry before `first`: zero, or the base that a snapshot put there.
    pub base: LogId,
    /// Last entry; equals `base` if the log holds none.
    pub last: LogId,
    /// Log time of `last`.
    pub time: Micros,
    /// First [`LogId`] of every run of equal terms in `first..=last`, in order: the core answers
    /// "what term has index i" from it and never reads the log. A hole of unknown identity opens
    /// no run; [`Recovered::term_at`] knows that it has no term.
    pub terms: Vec<LogId>,
    /// Every configuration still in the log or in the base, oldest first, each with the index of
    /// its entry. The last one is in force.
    pub memberships: Vec<(Index, Membership)>,
    /// Newest published and verified snapshot.
    pub snapshot: Option<SnapshotMeta>,
    /// Commit index that was stored with the last watermark; a floor, zero if none (R10, R23).
    pub commit: Index,
    /// Number of this start (R3): raised durably at each open.
    pub boot: u64,
    /// Entries of `first..=last` that are durable and do not verify (R15), ascending. The identity
    /// of `last` is always known: what cannot prove it is held.
    pub holes: Vec<Hole>,
    /// Why the member is held, if it is (R5, R14): hard state or last entry cannot be proved. It
    /// neither votes nor acknowledges; the log takes no write and serves what it can read.
    pub held: Option<String>,
}

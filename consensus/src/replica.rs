//! The replica driver: core, log and state machine together, sans-IO.

use crate::event::RoleKind;
use crate::fault::StopReason;
use crate::io::CoreConfig;
use crate::job::{ReplicaEffect, ReplicaInput};
use crate::traits::{Applied, Contact, LogStore, StateMachine};
use crate::types::{HardState, Index, LogId, MemberId, Membership, Micros};

/// Settings of a replica. Times in microseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// Settings of the core.
    pub core: CoreConfig,
    /// Take a snapshot after this many entries since the last one.
    pub snapshot_entries: u64,
    /// Keep this many entries behind a snapshot for slow followers.
    pub kept_entries: u64,
    /// Checkpoint the store after this weight of applied entries.
    pub checkpoint_bytes: u64,
    /// Checkpoint the store at the latest this long after an apply.
    pub checkpoint_after: Micros,
    /// How long a forwarded write waits for the local replica before it is answered all the same.
    pub read_your_writes: Micros,
    /// How long a failing store is reopened and fed again before the replica stops.
    pub store_retry: Micros,
    /// Most bytes of calls waiting for an outcome; beyond it `Busy`.
    pub waiting_bytes: usize,
}

impl ReplicaConfig {
    /// The defaults for a member.
    #[must_use]
    pub const fn new(member: MemberId) -> Self {
        Self {
            core: CoreConfig::new(member),
            snapshot_entries: 8192,
            kept_entries: 8192,
            checkpoint_bytes: 8 << 20,
            checkpoint_after: 5_000_000,
            read_your_writes: 3_000_000,
            store_retry: 30_000_000,
            waiting_bytes: 64 << 20,
        }
    }
}

/// A peer as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer.
    pub member: MemberId,
    /// Highest index known durable there.
    pub match_index: Index,
    /// Time since its last answer, in microseconds; `None` if it never answered this leader.
    pub silent: Option<Micros>,
    /// `probe`, `replicate` or `snapshot`.
    pub state: &'static str,
}

/// A replica as seen from inside, for status, metrics and checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// This member.
    pub member: MemberId,
    /// Role.
    pub role: RoleKind,
    /// Hard state in memory (may be newer than what is durable).
    pub hard: HardState,
    /// The leader of the term, where known.
    pub leader: Option<MemberId>,
    /// Commit index.
    pub commit: Index,
    /// Last entry of the log.
    pub last: LogId,
    /// Durable watermark.
    pub durable: LogId,
    /// First index that the log holds.
    pub first: Index,
    /// What the state machine holds.
    pub applied: Applied,
    /// Index of the newest snapshot, zero if none.
    pub snapshot: Index,
    /// Configuration in force.
    pub membership: Membership,
    /// Peers, if this replica leads.
    pub peers: Vec<PeerStatus>,
    /// Last contact with the current leader.
    pub contact: Option<Contact>,
    /// `None` if local reads may be served and calls are likely to succeed; else why not (R23).
    pub not_ready: Option<String>,
    /// True while the log cannot get another segment.
    pub low: bool,
}

/// The driver. Owns core, lanes and waiters; owns no thread, file or clock.
pub struct Replica<L: LogStore, M: StateMachine> {
    _todo: std::marker::PhantomData<(L, M)>,
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// Starts a replica on an open log and state machine. Effects of the start are returned by
    /// the first [`Replica::step`].
    ///
    /// # Errors
    /// [`StopReason`] if log and machine contradict each other.
    pub fn open(
        _config: ReplicaConfig,
        _seed: u64,
        _log: &mut L,
        _machine: &mut M,
        _now: Micros,
    ) -> Result<Self, StopReason> {
        Ok(Self { _todo: std::marker::PhantomData })
    }

    /// Takes one input and appends what follows to `out`.
    pub fn step(
        &mut self,
        _now: Micros,
        _input: ReplicaInput<L, M>,
        _out: &mut Vec<ReplicaEffect<L, M>>,
    ) {
    }

    /// When the replica wants [`ReplicaInput::Wake`] next.
    pub fn next_deadline(&self) -> Option<Micros> {
        None
    }
}

//! The pure Raft core.

use crate::entries::Entries;
use crate::event::RoleKind;
use crate::io::{CoreConfig, Effect, Input};
use crate::replica::PeerStatus;
use crate::traits::Contact;
use crate::types::{HardState, Index, LogId, MemberId, Membership, Micros, Recovered, Term};

/// The pure Raft core: time and input in, effects out.
#[derive(Clone, Debug)]
pub struct Core {
    config: CoreConfig,
    recovered: Recovered,
}

impl Core {
    /// A core on what recovery proved. It starts as a follower.
    #[must_use]
    pub fn new(config: CoreConfig, _seed: u64, recovered: Recovered, _now: Micros) -> Self {
        Self { config, recovered }
    }

    /// Takes one input at time `now` (never less than before) and appends effects to `out`.
    pub fn step(&mut self, _now: Micros, _input: Input, _out: &mut Vec<Effect>) {}

    /// When the core wants [`Input::Wake`] next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Micros> {
        None
    }

    /// This member.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.config.member
    }

    /// Role now.
    #[must_use]
    pub fn role(&self) -> RoleKind {
        RoleKind::Follower
    }

    /// Hard state in memory.
    #[must_use]
    pub fn hard(&self) -> HardState {
        self.recovered.hard
    }

    /// The leader of the current term, where known.
    #[must_use]
    pub fn leader(&self) -> Option<MemberId> {
        None
    }

    /// The one durable watermark: what an acknowledgement may report. Truncation lowers it.
    #[must_use]
    pub fn durable(&self) -> LogId {
        self.recovered.last
    }

    /// Last entry of the log in memory.
    #[must_use]
    pub fn last(&self) -> LogId {
        self.recovered.last
    }

    /// First index of the log.
    #[must_use]
    pub fn first(&self) -> Index {
        self.recovered.first
    }

    /// Commit index.
    #[must_use]
    pub fn commit(&self) -> Index {
        Index(0)
    }

    /// Term of the entry at `index`: `None` if unknown (compacted or beyond the end), never zero
    /// for unknown.
    #[must_use]
    pub fn term_at(&self, _index: Index) -> Option<Term> {
        None
    }

    /// Entries from memory, a suffix of `from..=to`: everything of that range that is cached.
    /// Entries above [`Core::durable`] are never evicted, so they are always in it.
    #[must_use]
    pub fn cached(&self, _from: Index, _to: Index) -> Entries {
        Entries::empty()
    }

    /// Configuration in force (the last in the log, committed or not) and its index.
    #[must_use]
    pub fn membership(&self) -> (Index, &Membership) {
        static NONE: Membership = Membership {
            voters: Vec::new(),
            outgoing: Vec::new(),
            learners: Vec::new(),
            names: std::collections::BTreeMap::new(),
        };
        self.recovered.memberships.last().map_or((Index(0), &NONE), |(i, m)| (*i, m))
    }

    /// True if this replica leads and has committed an entry of its own term.
    #[must_use]
    pub fn committed_own_term(&self) -> bool {
        false
    }

    /// What the current leader itself said, since boot and since the last install (R35).
    #[must_use]
    pub fn contact(&self) -> Option<Contact> {
        None
    }

    /// Peers as the leader sees them; empty unless this replica leads.
    #[must_use]
    pub fn peers(&self, _now: Micros) -> Vec<PeerStatus> {
        Vec::new()
    }

    /// A canonical hash of the state without absolute time and generator, for exhaustive search.
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        0
    }
}

//! How much a replica holds in memory for others, in its own measure: what checkers and metrics
//! hold against its settings (everything in flight is bounded in bytes).

use super::Core;
use super::role::Role;

/// What a replica holds. Bytes are weights ([`Entry::weight`](crate::Entry::weight)).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Bytes of cached entries.
    pub cached: usize,
    /// Bytes of those among them that are not durable or not committed, and must be kept.
    pub unsettled: usize,
    /// Bytes of uncommitted entries that a leader is charged with.
    pub uncommitted: usize,
    /// Most bytes of entries in flight to one peer.
    pub flight_bytes: usize,
    /// Most appends with entries in flight to one peer.
    pub flight_messages: usize,
    /// Reads that wait for a round of the leader.
    pub reads: usize,
    /// Bytes of calls that wait for an outcome.
    pub waiting: usize,
}

impl Core {
    /// What the core holds; `waiting` is the driver's.
    #[must_use]
    pub fn weights(&self) -> Weights {
        let tail = self.shared.log.tail();
        let settled = self.shared.disk.durable().index.min(self.commit());
        let mut weights = Weights {
            cached: tail.weight(),
            unsettled: tail.weight_of(settled.next(), self.last().index),
            ..Weights::default()
        };
        if let Role::Leader(leader) = &self.role {
            weights.uncommitted = leader.uncommitted();
            weights.reads = leader.reads.len();
            for peer in leader.peers.values() {
                let (messages, bytes) = peer.flight();
                weights.flight_messages = weights.flight_messages.max(messages);
                weights.flight_bytes = weights.flight_bytes.max(bytes);
            }
        }
        weights
    }
}

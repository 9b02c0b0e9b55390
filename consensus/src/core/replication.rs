//! The leader's side of answers: appends, fetched entries, snapshot transfers.

use super::Core;
use super::leader::Leader;
use super::progress::{Feed, Progress, Sending};
use super::role::Role;
use super::shared::Shared;
use crate::entries::Entries;
use crate::fault::LogFault;
use crate::io::Effect;
use crate::message::Conflict;
use crate::types::{FetchId, LogId, MemberId, TransferId};

impl Core {
    /// An answer to an append of this term.
    pub(crate) fn on_append_answer(
        &mut self,
        from: MemberId,
        round: u64,
        result: Result<LogId, Conflict>,
        low: bool,
    ) {
        let shared = &mut self.shared;
        let Role::Leader(leader) = &mut self.role else { return };
        let asked_by_us = round <= leader.round;
        let Some(peer) = leader.peers.get_mut(&from).filter(|_| asked_by_us) else {
            return shared.drop_with("answer-from-nobody");
        };
        peer.on_answer(round, low, shared.now);
        match result {
            Err(conflict) => peer.on_conflict(&conflict, round, leader.round, shared),
            Ok(id) => {
                let last = shared.log.last();
                let other = shared.log.term_at(id.index).is_some_and(|term| term != id.term);
                if id.index > last.index || other {
                    return shared.drop_with("answer-about-another-log");
                }
                if let Some(transfer) = peer.on_match(id, round, shared) {
                    shared.fx.push(Effect::StopShip { transfer });
                }
            }
        }
    }

    /// Older entries were read from the log, or could not be.
    pub(crate) fn on_fetched(&mut self, fetch: FetchId, result: Result<Entries, LogFault>) {
        let Role::Leader(leader) = &mut self.role else { return };
        let shared = &mut self.shared;
        let own_term = leader.committed_own_term(shared);
        if let Err(fault) = &result
            && !matches!(fault, LogFault::Compacted { .. })
        {
            shared.drop_with("fetch-failed");
        }
        let entries = result.as_ref().ok();
        for (to, peer) in &mut leader.peers {
            let mut cx = Sending { shared, round: &mut leader.round, own_term };
            if peer.on_fetched(*to, fetch, entries, &mut cx) {
                return;
            }
        }
    }

    /// A snapshot transfer to a peer ended.
    pub(crate) fn on_transfer_ended(&mut self, transfer: TransferId, ok: bool) {
        let Role::Leader(leader) = &mut self.role else { return };
        let round = leader.round;
        for peer in leader.peers.values_mut() {
            if peer.on_transfer_ended(transfer, ok, round, &self.shared) {
                return;
            }
        }
    }
}

impl Core {
    /// What contradicts the invariants of the leader's peers.
    pub(crate) fn peer_violations(&self) -> Vec<String> {
        let Role::Leader(leader) = &self.role else { return Vec::new() };
        let last = self.shared.log.last();
        let broken = |(member, peer): (&MemberId, &Progress)| {
            peer.violation(last).map(|found| format!("{member}: {found}"))
        };
        leader.peers.iter().filter_map(broken).collect()
    }
}

impl Leader {
    /// Leadership ends: nobody is shipped anything on its behalf.
    pub(crate) fn stop_transfers(&mut self, shared: &mut Shared) {
        for peer in self.peers.values() {
            if let Feed::Snapshot { transfer, .. } = peer.feed {
                shared.fx.push(Effect::StopShip { transfer });
            }
        }
    }
}

//! Handing leadership over (dissertation 3.10, R38): the target is asked to stand once it holds the
//! whole log. Proposals are refused meanwhile, and after one election timeout the leader goes on.

use super::Core;
use super::leader::Leader;
use super::progress::Progress;
use super::role::Role;
use super::shared::Shared;
use crate::message::Message;
use crate::types::{MemberId, Micros};

/// A transfer under way.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) to: MemberId,
    /// When the leader goes on as if nothing had been asked.
    pub(crate) deadline: Micros,
    /// When the target was last asked to stand.
    asked_at: Option<Micros>,
}

impl Leader {
    /// Asks the target to stand once it holds everything; again each heartbeat, as messages get
    /// lost.
    pub(crate) fn press_transfer(&mut self, shared: &mut Shared) {
        let Some(transfer) = &mut self.transfer else { return };
        let last = shared.log.last();
        let ready = self.peers.get(&transfer.to).is_some_and(|p| p.matched == last);
        let again = shared.config.heartbeat;
        let due = transfer.asked_at.is_none_or(|at| shared.now.saturating_sub(at) >= again);
        if !ready || !due {
            return;
        }
        transfer.asked_at = Some(shared.now);
        let (to, within) = (transfer.to, transfer.deadline.saturating_sub(shared.now));
        shared.urgent(to, Message::TimeoutNow { term: shared.term(), last, within });
    }

    /// A leader without headroom hands over to a voter that has some, while it still can (R45): the
    /// one that is furthest, by what it said last. If nobody is known to have any it stays, and
    /// refuses what would take space. Tried again once an election timeout after each failure.
    pub(crate) fn make_room(&mut self, shared: &mut Shared) {
        if !shared.low || self.transfer.is_some() || shared.now < self.room_again {
            return;
        }
        let (_, membership) = shared.log.membership();
        let since = shared.now.saturating_sub(shared.config.election_max);
        let fit = |(member, p): &(&MemberId, &Progress)| {
            membership.is_voter(**member) && !p.low && p.answered_at.is_some_and(|at| at >= since)
        };
        let fittest = self.peers.iter().filter(fit).max_by_key(|(_, p)| p.matched);
        let Some(to) = fittest.map(|(member, _)| *member) else { return };
        let deadline = shared.now + shared.config.election_max;
        self.room_again = deadline + shared.config.election_max;
        self.transfer = Some(Transfer { to, deadline, asked_at: None });
        shared.mark("handing-over-for-want-of-space");
    }

    /// Asks the fittest voter to stand at once, if one holds the whole log: this leader is about to
    /// give up its role, and may not lead until somebody else is ready.
    pub(crate) fn call_successor(&self, shared: &mut Shared) {
        let (_, membership) = shared.log.membership();
        let last = shared.log.last();
        let fit = |(member, p): &(&MemberId, &Progress)| {
            membership.is_voter(**member) && p.matched == last
        };
        let Some((to, _)) = self.peers.iter().find(fit) else { return };
        let (to, within) = (*to, shared.config.election_max);
        shared.urgent(to, Message::TimeoutNow { term: shared.term(), last, within });
    }

    /// The target did not take over in time.
    pub(crate) fn expire_transfer(&mut self, shared: &mut Shared) {
        if self.transfer.as_ref().is_some_and(|t| shared.now >= t.deadline) {
            self.transfer = None;
            shared.mark("transfer-expired");
        }
    }
}

impl Core {
    /// Leadership is to go to `to`.
    pub(crate) fn on_transfer(&mut self, to: MemberId) {
        let shared = &mut self.shared;
        let Role::Leader(leader) = &mut self.role else {
            return shared.drop_with("transfer-by-follower");
        };
        let (_, membership) = shared.log.membership();
        if to == shared.config.member || !membership.is_voter(to) || leader.transfer.is_some() {
            return shared.drop_with("transfer-target");
        }
        let deadline = shared.now + shared.config.election_max;
        leader.transfer = Some(Transfer { to, deadline, asked_at: None });
    }
}

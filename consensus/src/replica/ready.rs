//! Whether this replica may serve local reads and calls (R23), and if not, why not.

use super::{Replica, repair};
use crate::event::RoleKind;
use crate::traits::{LogStore, StateMachine};
use crate::types::{Index, MemberId};

/// What a start still has to wait for.
#[derive(Debug)]
pub(super) struct Ready {
    /// Applied must reach the commit index that recovery found.
    floor: Index,
    /// A current leader's commit must cover the own durable end at boot; entries that it replaced
    /// do not count any more.
    boot_end: Index,
    /// Both have happened since boot.
    caught_up: bool,
    /// Voters that did not answer the last election.
    missing: Vec<MemberId>,
}

impl Ready {
    pub(super) fn new(floor: Index, boot_end: Index) -> Self {
        Self { floor, boot_end, caught_up: false, missing: Vec::new() }
    }

    /// Entries from here on were cut: a leader replaces them.
    pub(super) fn truncated(&mut self, from: Index) {
        self.boot_end = self.boot_end.min(from.prev());
    }

    pub(super) fn waiting_for(&mut self, missing: Vec<MemberId>) {
        self.missing = missing;
    }
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// Notes whether the start has caught up by now.
    pub(super) fn check_ready(&mut self) {
        if self.ready.caught_up {
            return;
        }
        let heard = self.core.contact().is_some_and(|contact| {
            contact.term == self.core.hard().term
                && contact.own_term
                && contact.commit >= self.ready.boot_end
        });
        let floor = self.ready.floor.max(self.ready.boot_end);
        self.ready.caught_up = heard && self.apply.covers(floor);
    }

    /// `None` if local reads may be served and calls are likely to succeed; else why not.
    pub(super) fn not_ready(&self) -> Option<String> {
        if self.stopped {
            return Some("the replica has stopped".into());
        }
        if let Some(why) = &self.held {
            return Some(format!("this member is held: {why}"));
        }
        if let Some(damage) = self.damage_status() {
            return Some(match damage {
                repair::DamageStatus { first, count: 1, .. } => {
                    format!("the damaged entry {first} of the log is fetched from other members")
                }
                repair::DamageStatus { first, last, count } => format!(
                    "{count} damaged entries of the log, {first} to {last}, are fetched from other members"
                ),
            });
        }
        if let Some(fault) = self.apply.troubled() {
            return Some(match self.apply.waits_for_space() {
                true => format!(
                    "the store waits for space: {fault}; free some space, this member goes on by itself"
                ),
                false => format!("the store failed and is being reopened: {fault}"),
            });
        }
        if let Some(why) = self.no_leader() {
            return Some(why);
        }
        let applied = self.apply.applied.last.index;
        if !self.apply.covers(Index(0)) {
            let floor = self.apply.floor;
            return Some(format!("entries are applied again: {applied} of {floor}"));
        }
        if applied.next() < self.core.first() {
            return Some(format!("a snapshot is being installed; applied is {applied}"));
        }
        if !self.ready.caught_up {
            let leader = self.core.leader().map_or_else(String::new, |l| self.name(l));
            let (floor, end) = (self.ready.floor, self.ready.boot_end);
            return Some(format!(
                "waiting for leader {leader} to confirm entries up to {end}, and for applied \
                 ({applied}) to reach {}",
                floor.max(end)
            ));
        }
        None
    }

    fn no_leader(&self) -> Option<String> {
        let (_, membership) = self.core.membership();
        if membership.members().is_empty() {
            return Some("this member belongs to no cluster yet".into());
        }
        if self.core.role() == RoleKind::Leader {
            // An own-term entry is committed only with a quorum; check-quorum ends the role of a
            // leader that has lost it.
            let fresh = self
                .core
                .contact()
                .is_some_and(|contact| contact.at + self.config.core.election_max >= self.now);
            if self.core.committed_own_term() && fresh {
                return None;
            }
            return Some("this leader waits for a quorum to answer it".into());
        }
        if self.core.leader().is_some() {
            return None;
        }
        let missing: Vec<String> = self.ready.missing.iter().map(|m| self.name(*m)).collect();
        Some(if missing.is_empty() {
            "no leader is known".into()
        } else {
            format!("no leader is known; waiting for {}", missing.join(", "))
        })
    }

    fn name(&self, member: MemberId) -> String {
        self.core.membership().1.name_of(member)
    }
}

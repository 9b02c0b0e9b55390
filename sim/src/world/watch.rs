//! What the checkers look at that need more than one step of one replica: the ground truth of all
//! members, and the disks themselves.

use super::World;
use crate::check::commit_rule::{self, Claim};
use crate::check::disk_images::{self, Image};
use crate::check::{Verdict, memory};
use crate::node::{TheLog, TheMachine};
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::job::ReplicaInput;
use holdfast_consensus::message::Message;
use holdfast_consensus::{LogId, MemberId};

/// Weights are taken at every so many events.
const WEIGH_EVERY: u64 = 16;
/// The disks of all members are read at every so many starts of one of them.
const READ_ALL_EVERY: u64 = 4;

impl World {
    /// A member says that everything up to an entry is committed.
    pub(super) fn claims(&self, node: usize, through: LogId) -> Verdict {
        let n = &self.nodes[node];
        let Some(process) = n.process() else { return Ok(()) };
        let claim = Claim {
            who: &n.name,
            through,
            leads: n.ground.leads,
            membership: process.replica.core().membership().1,
            known: self.suite.committed.last(),
        };
        commit_rule::check(&claim, |member| {
            let holder = self.members.get(&member);
            holder.is_some_and(|holder| self.nodes[*holder].ground.counts(through))
        })
    }

    /// Who answered an append, if the input is such an answer.
    pub(super) const fn answers(input: &ReplicaInput<TheLog, TheMachine>) -> Option<MemberId> {
        match input {
            ReplicaInput::Message { from, message: Message::AppendReply { .. } } => Some(*from),
            _ => None,
        }
    }

    /// A replica has made a step.
    pub(super) fn stepped(&self, node: usize, answered: Option<MemberId>) -> Verdict {
        let n = &self.nodes[node];
        let Some(process) = n.process() else { return Ok(()) };
        if self.summary.events.is_multiple_of(WEIGH_EVERY) {
            memory::check(&n.name, &process.replica.weights(), process.replica.config())?;
        }
        let core = process.replica.core();
        let Some(peer) = answered.filter(|_| core.role() == RoleKind::Leader) else {
            return Ok(());
        };
        let (Some(at), Some(status)) = (
            self.members.get(&peer),
            core.peers(0).into_iter().find(|status| status.member == peer),
        ) else {
            return Ok(());
        };
        let term = core.hard().term;
        let acknowledged = self.nodes[*at].ground.acknowledged(term);
        commit_rule::check_match(
            &n.name,
            term,
            &self.nodes[*at].name,
            status.match_index,
            acknowledged,
        )
    }

    /// A process has ended: its disk holds what it must, and now and then all disks do.
    pub(super) fn look_at_disks(&mut self, node: usize) {
        let all = self.setup.clients > 0 && self.nodes[node].life.is_multiple_of(READ_ALL_EVERY);
        let verdict = match all {
            true => self.read_disks(),
            false => self.read_disk(node).map(drop),
        };
        if let Err(violation) = verdict {
            self.failed.get_or_insert(violation);
        }
    }

    fn read_disk(&self, node: usize) -> Result<Image, crate::check::Violation> {
        let n = &self.nodes[node];
        if n.damaged {
            let image = Image::of_damaged(&n.name, &n.disk)?;
            disk_images::check_damaged(&n.name, &image, &n.ground, &self.suite.committed)?;
            return Ok(image);
        }
        let image = Image::of(&n.name, &n.disk)?;
        disk_images::check_member(&n.name, &image, &n.ground, &self.suite.committed)?;
        Ok(image)
    }

    /// Reads every disk as a power loss of all would leave it at worst.
    pub(super) fn read_disks(&self) -> Verdict {
        let mut images = Vec::with_capacity(self.nodes.len());
        for node in 0..self.nodes.len() {
            images.push((self.nodes[node].member, self.read_disk(node)?));
        }
        if self.nodes.iter().any(|node| node.damaged) {
            // Of what was damaged on purpose fewer than a majority may hold a copy. A script may
            // damage them all.
            let campaign = self.setup.clients > 0;
            let check = || disk_images::check_anybody(&images, &self.suite.committed);
            return if campaign { check() } else { Ok(()) };
        }
        let membership = self.suite.membership();
        disk_images::check_quorum(membership, &images, &self.suite.committed)
    }
}

//! Fetching damaged entries from other members, one request at a time (R15; FAST 2018, section 4).
//!
//! An entry whose identity is known may come from any member: what it is was settled when it was
//! written here, so neither a leader nor a commit index is needed, and members whose damage lies
//! at different places repair one another. An entry of unknown identity comes from the leader
//! alone, at or below its commit index; what members have compacted, by a snapshot of the leader.

use super::Core;
use super::progress::Sending;
use super::role::Role;
use super::shared::Shared;
use crate::damage::Hole;
use crate::event::{Event, StepDown};
use crate::fault::StopReason;
use crate::io::Effect;
use crate::message::{Message, REPAIR_WANTS_MAX};
use crate::types::{Entry, Index, MemberId, Micros};
use std::hash::{Hash, Hasher};

/// Longest pause between two rounds of requests that brought nothing, in microseconds.
const PAUSE_MAX: Micros = 5_000_000;

/// A request that is out.
#[derive(Clone, Debug)]
struct Asked {
    to: MemberId,
    wants: Vec<Hole>,
    /// When another member is asked instead.
    deadline: Micros,
}

/// How the repair goes on. Everything in it is bounded by one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repair {
    /// Number of the last request.
    ask: u64,
    asked: Option<Asked>,
    /// Entries on their way to the log.
    writing: Vec<Entry>,
    /// Whose turn it is, among those who may be asked.
    turn: usize,
    /// Requests since the last one that brought anything.
    vain: usize,
    /// Nobody is asked before this.
    again: Micros,
}

impl Repair {
    /// What decides what happens next, for the fingerprint.
    pub(crate) fn hash_shape<H: Hasher>(&self, h: &mut H) {
        let asked = self.asked.as_ref().map(|asked| (asked.to, &asked.wants));
        (self.ask, asked, &self.writing, self.turn).hash(h);
    }

    /// The write that was under way will not be confirmed.
    pub(crate) fn forget_write(&mut self) {
        self.writing.clear();
    }
}

impl Shared {
    /// When the repair must be looked at next.
    pub(crate) fn repair_deadline(&self) -> Option<Micros> {
        let idle = !self.damaged() || self.disk.poisoned() || !self.repair.writing.is_empty();
        match &self.repair.asked {
            Some(asked) if self.damaged() => Some(asked.deadline),
            _ if idle => None,
            _ => Some(self.repair.again),
        }
    }

    /// Asks the next member for what it may give back.
    fn ask_for_repair(&mut self) {
        let others = self.repair_peers();
        // Round and round, so that one dead member holds up nothing for longer than its turn.
        let next = (0..others.len()).find_map(|n| {
            let to = *others.get((self.repair.turn + n) % others.len())?;
            let wants = self.repair_wants(to);
            (!wants.is_empty()).then_some((n, to, wants))
        });
        let pause = (self.config.heartbeat << (self.repair.vain / others.len().max(1)).min(16))
            .min(PAUSE_MAX);
        let Some((skipped, to, wants)) = next else {
            self.repair.vain += 1;
            self.repair.again = self.now + pause;
            return;
        };
        let repair = &mut self.repair;
        repair.turn = (repair.turn + skipped + 1) % others.len();
        repair.ask += 1;
        let ask = repair.ask;
        let deadline = self.now + self.config.election_max;
        repair.asked = Some(Asked { to, wants: wants.clone(), deadline });
        self.urgent(to, Message::Repair { ask, wants });
    }

    /// Who may hold what is damaged here: every other member of the configuration, and the leader.
    fn repair_peers(&self) -> Vec<MemberId> {
        let (_, membership) = self.log.membership();
        let mut all = membership.members();
        all.extend(self.leader);
        all.sort_unstable();
        all.dedup();
        all.retain(|member| *member != self.config.member);
        all
    }

    /// What may be asked of a member: of unknown identity only the leader (R15).
    fn repair_wants(&self, of: MemberId) -> Vec<Hole> {
        let leads = self.leader == Some(of);
        let may = |hole: &&Hole| hole.known.is_some() || leads;
        self.log.holes().iter().filter(may).take(REPAIR_WANTS_MAX).copied().collect()
    }

    /// The last request brought nothing: another member next, after a pause that grows with every
    /// full round in vain.
    fn repair_in_vain(&mut self) {
        let round = self.repair_peers().len().max(1);
        let repair = &mut self.repair;
        repair.asked = None;
        repair.vain += 1;
        if repair.vain.is_multiple_of(round) {
            let rounds = (repair.vain / round).min(16);
            let pause = (self.config.heartbeat << rounds).min(PAUSE_MAX);
            self.repair.again = self.now + pause;
        }
    }

    /// Announces what is damaged.
    pub(crate) fn observe_damage(&mut self) {
        let holes = self.log.holes();
        let (Some(first), Some(last)) = (holes.first(), holes.last()) else { return };
        let (first, last, count) = (first.index, last.index, holes.len());
        self.observe(Event::Damaged { first, last, count });
    }
}

impl Core {
    /// Asks for damaged entries, and gives up on who does not answer.
    pub(crate) fn on_repair_clock(&mut self) {
        let shared = &mut self.shared;
        if !shared.damaged() {
            shared.repair.asked = None;
            return;
        }
        if shared.repair.asked.as_ref().is_some_and(|asked| shared.now >= asked.deadline) {
            shared.repair_in_vain();
        }
        let busy = shared.repair.asked.is_some() || !shared.repair.writing.is_empty();
        if !busy && !shared.disk.poisoned() && shared.now >= shared.repair.again {
            shared.ask_for_repair();
        }
    }

    /// A member gave entries back. Each is taken only for the hole that was asked about, and only
    /// if it is the entry that was damaged: by its identity; where that is unknown, on the word of
    /// the leader that this member follows.
    pub(crate) fn on_repair_reply(&mut self, from: MemberId, ask: u64, entries: Vec<Entry>) {
        let shared = &mut self.shared;
        let current = ask == shared.repair.ask
            && shared.repair.asked.as_ref().is_some_and(|asked| asked.to == from);
        let Some(asked) = shared.repair.asked.take_if(|_| current) else {
            return shared.drop_with("repair-not-asked-for");
        };
        let mut taken: Vec<Entry> = Vec::new();
        for entry in entries {
            let wanted = asked.wants.iter().find(|hole| hole.index == entry.id.index);
            let Some(wanted) = wanted.filter(|w| shared.log.hole_at(w.index) == Some(w)) else {
                continue;
            };
            let told = wanted.known.is_some() || shared.leader == Some(from);
            let follows = taken.last().is_none_or(|before| before.id < entry.id);
            if shared.log.fits(&entry) && told && follows {
                taken.push(entry);
            } else {
                // Where the leader's entry cannot stand here, this log departs from the leader's
                // before it, and the leader's appends will replace what follows.
                shared.mark("repair-does-not-fit");
            }
        }
        let busy = shared.disk.poisoned() || !shared.repair.writing.is_empty();
        if taken.is_empty() || busy {
            return shared.repair_in_vain();
        }
        shared.repair.vain = 0;
        shared.repair.writing.clone_from(&taken);
        shared.fx.push(Effect::Repair { entries: taken });
    }

    /// The write is over.
    pub(crate) fn on_repaired(&mut self, filled: &[Index]) {
        let shared = &mut self.shared;
        let before = shared.log.holes().len();
        let writing = std::mem::take(&mut shared.repair.writing);
        let (old, _) = shared.log.membership();
        for entry in writing.iter().filter(|e| filled.contains(&e.id.index)) {
            shared.log.fill(entry);
        }
        let (at, _) = shared.log.membership();
        let left = shared.log.holes().len();
        if left < before {
            shared.observe(Event::Repaired { count: before - left, left });
        } else {
            shared.repair_in_vain();
        }
        if at != old {
            shared.observe(Event::Membership { at });
        }
    }

    /// Reads found durable entries damaged while running. What is still cached is written again
    /// from memory; a leader hands over, for it may neither skip its own entry nor take it for the
    /// end of its log, and a candidate stands no more.
    pub(crate) fn on_damaged(&mut self, holes: &[Hole]) {
        let shared = &mut self.shared;
        let (mut known, mut cached) = (Vec::with_capacity(holes.len()), Vec::new());
        for hole in holes {
            let entry = shared.log.cached(hole.index, hole.index, usize::MAX);
            let entry = entry.as_slice().first().filter(|e| e.id.index == hole.index).cloned();
            let identity = entry.as_ref().and_then(|e| e.identity().ok());
            known.push(Hole { known: hole.known.or(identity), ..*hole });
            cached.extend(entry);
        }
        let end = shared.log.last().index;
        if known.iter().any(|hole| hole.index == end && hole.known.is_none()) {
            return shared.stop(StopReason::NeedsOperator(format!(
                "the last entry {} of the log does not verify, and its checksum is lost: restart \
                 this member, which is then held until it is replaced",
                shared.log.last(),
            )));
        }
        if !shared.log.damage(&known) {
            return;
        }
        shared.observe_damage();
        cached.truncate(REPAIR_WANTS_MAX);
        cached.retain(|entry| shared.log.fits(entry));
        let idle = shared.repair.writing.is_empty() && !shared.disk.poisoned();
        if idle && !cached.is_empty() {
            shared.repair.writing.clone_from(&cached);
            shared.fx.push(Effect::Repair { entries: cached });
        }
        let hopeless = shared.sole_voter() && shared.repair.writing.is_empty();
        if hopeless {
            return shared.stop(StopReason::NeedsOperator(
                "the log of this cluster's only voter is damaged: restart it to see what can be done"
                    .into(),
            ));
        }
        self.give_up_for_damage();
    }

    /// A member with a damaged entry neither leads nor stands (R15). A leader asks the voter that
    /// holds everything to stand at once, so that nobody waits for an election timeout.
    fn give_up_for_damage(&mut self) {
        let shared = &mut self.shared;
        match &self.role {
            Role::Leader(leader) => {
                leader.call_successor(shared);
                self.step_down(StepDown::Damaged);
            }
            Role::Candidate(_) | Role::PreCandidate(_) => self.become_follower(),
            Role::Follower(_) => {}
        }
    }

    /// A member asks for entries. What this log has compacted comes to it by a snapshot, if this
    /// member leads; reading the rest is the driver's.
    pub(crate) fn on_repair_asked(&mut self, from: MemberId, wants: &[Hole]) {
        let Role::Leader(leader) = &mut self.role else { return };
        let shared = &mut self.shared;
        let base = shared.log.base().index;
        if wants.iter().all(|hole| hole.index > base) {
            return;
        }
        let own_term = leader.committed_own_term(shared);
        if let Some(peer) = leader.peers.get_mut(&from) {
            let mut cx = Sending { shared, round: &mut leader.round, own_term };
            peer.offer_below(from, &mut cx);
        }
    }
}

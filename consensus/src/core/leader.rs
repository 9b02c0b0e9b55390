//! The leader: its first entry, proposals, heartbeats, and when it must give up.

use super::Core;
use super::progress::{Progress, Sending};
use super::read::Reads;
use super::role::{Follower, Role, Transition};
use super::shared::Shared;
use super::transfer::Transfer;
use crate::entries::Entries;
use crate::event::{Event, StepDown};
use crate::fault::Refusal;
use crate::io::Effect;
use crate::quorum;
use crate::types::{Body, Entry, Index, LogId, MemberId, Micros, Ticket};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What only a leader has.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    /// Index of the entry that opens the term. Once it is committed, everything before it is.
    pub(crate) term_start: Index,
    pub(crate) peers: BTreeMap<MemberId, Progress>,
    /// Rounds of this term so far; every append takes the next one.
    pub(crate) round: u64,
    /// When the next heartbeat is due.
    heartbeat_at: Micros,
    elected_at: Micros,
    /// Weight of the uncommitted entries that were appended or found cached here.
    uncommitted: usize,
    /// First index that is charged: entries before it were uncommitted but not cached when this
    /// leader was elected, and are released as they were charged, with nothing (B32).
    charged_from: Index,
    /// Log time and clock at the election: log time grows from here by our own clock alone.
    epoch: (Micros, Micros),
    pub(crate) reads: Reads,
    pub(crate) transfer: Option<Transfer>,
    /// A hand-over for want of space is not tried before this.
    pub(crate) room_again: Micros,
}

impl Leader {
    fn new(shared: &Shared) -> Self {
        let (_, membership) = shared.log.membership();
        let last = shared.log.last().index;
        let me = shared.config.member;
        let peers = membership.members().into_iter().filter(|m| *m != me);
        let charged_from = shared.log.cached_from().max(shared.commit().next());
        Self {
            term_start: last.next(),
            peers: peers.map(|m| (m, Progress::new(last.next()))).collect(),
            round: 0,
            heartbeat_at: shared.now + shared.config.heartbeat,
            elected_at: shared.now,
            uncommitted: shared.log.tail().weight_of(charged_from, last),
            charged_from,
            epoch: (shared.log.last_time(), shared.now),
            reads: Reads::default(),
            transfer: None,
            room_again: 0,
        }
    }

    pub(crate) const fn uncommitted(&self) -> usize {
        self.uncommitted
    }

    /// Log time of an entry appended now: never before the last entry, and grown from the
    /// election on by our monotonic clock only, so that no wall clock can jump it ahead.
    fn log_time(&self, shared: &Shared) -> Micros {
        let (base, since) = self.epoch;
        shared.log.last_time().max(base + shared.now.saturating_sub(since))
    }

    /// Appends bodies as entries of this term.
    fn extend(&mut self, bodies: Vec<Body>, shared: &mut Shared) {
        let time = self.log_time(shared);
        let term = shared.term();
        let mut index = shared.log.last().index;
        let entry = |body| {
            index = index.next();
            Entry { id: LogId { term, index }, time, body }
        };
        let entries: Vec<_> = bodies.into_iter().map(entry).collect();
        let entries = Entries::new(entries).expect("a leader's entries are consecutive");
        self.uncommitted += entries.weight();
        shared.append(&entries);
    }

    /// Appends proposals, all of them as one write, and tells each its place.
    fn propose(&mut self, batch: Vec<(Ticket, Bytes)>, frees: bool, shared: &mut Shared) {
        let mut bodies = Vec::with_capacity(batch.len());
        let mut added = 0usize;
        let mut index = shared.log.last().index;
        for (ticket, command) in batch {
            if let Some(why) = self.refusal(command.len(), added, frees, shared) {
                shared.refuse(ticket, why);
                continue;
            }
            let body = Body::Command(command);
            index = index.next();
            let id = LogId { term: shared.term(), index };
            added += weight_of(&body);
            bodies.push(body);
            shared.fx.push(Effect::Accepted { ticket, at: id });
        }
        if !bodies.is_empty() {
            self.extend(bodies, shared);
        }
    }

    /// Why a command may not enter the log now.
    fn refusal(&self, len: usize, added: usize, frees: bool, shared: &Shared) -> Option<Refusal> {
        let held = self.uncommitted.saturating_add(added);
        if len > shared.config.command_bytes {
            Some(Refusal::TooLarge)
        } else if let (true, Some(transfer)) = (shared.low, &self.transfer) {
            // Somebody with space is about to lead: the caller goes there.
            Some(Refusal::NotLeader { hint: Some(transfer.to) })
        } else if shared.starved || !frees && (shared.low || !self.quorum_has_room(shared)) {
            Some(Refusal::DiskFull)
        } else if self.transfer.is_some()
            || held.saturating_add(len) > shared.config.uncommitted_bytes
        {
            Some(Refusal::Busy)
        } else {
            None
        }
    }

    /// R45: false if some voter has said that it has no space, and without those, and those that
    /// say nothing, there is no quorum left that could take what is appended now.
    fn quorum_has_room(&self, shared: &Shared) -> bool {
        if !self.peers.values().any(|p| p.low) {
            return true;
        }
        let since = shared.now.saturating_sub(shared.config.election_max);
        let (_, membership) = shared.log.membership();
        let room = |m| match self.peers.get(&m) {
            Some(p) => !p.low && p.answered_at.unwrap_or(self.elected_at) >= since,
            None => m == shared.config.member && !shared.low,
        };
        quorum::reached(membership, |m| u64::from(room(m))) > 0
    }

    /// Commits what a quorum holds durably, but only by counting entries of this term (Raft
    /// 5.4.2, B12). The leader counts itself by its own durable watermark (B24), and only if it
    /// votes.
    fn advance_commit(&mut self, shared: &mut Shared) {
        let (_, membership) = shared.log.membership();
        let me = shared.config.member;
        let own = shared.durable().index;
        let index = quorum::committed(membership, |m| self.matched(m, me, own));
        let old = shared.commit();
        if index <= old || shared.log.term_at(index) != Some(shared.term()) {
            return;
        }
        let first = old.next().max(self.charged_from);
        if first <= index {
            let freed = shared.log.tail().weight_of(first, index);
            self.uncommitted = self
                .uncommitted
                .checked_sub(freed)
                .expect("what is released was charged: uncommitted entries are never evicted");
        }
        shared.commit_through(index);
        if old < self.term_start {
            self.reads.own_term_committed(index);
        }
    }

    fn matched(&self, member: MemberId, me: MemberId, own: Index) -> Index {
        if member == me {
            return own;
        }
        self.peers.get(&member).map_or(Index(0), |p| p.matched.index)
    }

    /// When a quorum of voters had last answered (this member answers itself at once). Learners
    /// are not looked at (B10).
    pub(crate) fn quorum_contact(&self, shared: &Shared) -> Micros {
        let (_, membership) = shared.log.membership();
        quorum::reached(membership, |m| {
            if m == shared.config.member {
                return shared.now;
            }
            self.peers.get(&m).and_then(|p| p.answered_at).unwrap_or(self.elected_at)
        })
    }

    /// The highest round that a quorum of voters has answered.
    fn confirmed_round(&self, shared: &Shared) -> u64 {
        let (_, membership) = shared.log.membership();
        quorum::reached(membership, |m| {
            if m == shared.config.member {
                return u64::MAX;
            }
            self.peers.get(&m).map_or(0, |p| p.answered_round)
        })
    }

    /// True if an entry of this term is committed.
    pub(crate) fn committed_own_term(&self, shared: &Shared) -> bool {
        shared.commit() >= self.term_start
    }

    /// After every input: commit, serve, send. Level-triggered, so that no event can be missed.
    pub(crate) fn settle(&mut self, shared: &mut Shared) {
        self.advance_commit(shared);
        let confirmed = self.confirmed_round(shared);
        self.reads.serve(confirmed, shared);
        if self.reads.wants_round(confirmed) {
            self.heartbeats(shared);
        }
        let own_term = self.committed_own_term(shared);
        for (to, peer) in &mut self.peers {
            let mut cx = Sending { shared, round: &mut self.round, own_term };
            peer.pump(*to, &mut cx);
        }
        self.make_room(shared);
        self.press_transfer(shared);
    }

    fn heartbeats(&mut self, shared: &mut Shared) {
        let own_term = self.committed_own_term(shared);
        self.reads.broadcasting(self.round);
        for (to, peer) in &mut self.peers {
            let mut cx = Sending { shared, round: &mut self.round, own_term };
            peer.heartbeat(*to, &mut cx);
        }
    }

    /// The leader's clock.
    fn on_clock(&mut self, shared: &mut Shared) -> Transition {
        if shared.write_stalled() {
            return Transition::StepDown(StepDown::WriteStalled);
        }
        if shared.now >= self.quorum_deadline(shared) {
            return Transition::StepDown(StepDown::LostQuorum);
        }
        self.reads.expire(shared);
        self.expire_transfer(shared);
        if shared.now >= self.heartbeat_at {
            self.heartbeat_at = shared.now + shared.config.heartbeat;
            self.heartbeats(shared);
        }
        Transition::Stay
    }

    fn quorum_deadline(&self, shared: &Shared) -> Micros {
        self.quorum_contact(shared).saturating_add(shared.config.election_max)
    }

    /// When the leader's clock must be looked at next.
    pub(crate) fn deadline(&self, shared: &Shared) -> Option<Micros> {
        let stall = shared.disk.oldest().map(|at| at.saturating_add(shared.stall_after()));
        let beat = (!self.peers.is_empty()).then_some(self.heartbeat_at);
        let quorum = (!shared.sole_voter()).then(|| self.quorum_deadline(shared));
        let transfer = self.transfer.as_ref().map(|t| t.deadline);
        [stall, beat, quorum, transfer, self.reads.deadline()].into_iter().flatten().min()
    }
}

fn weight_of(body: &Body) -> usize {
    Entry { id: LogId::default(), time: 0, body: body.clone() }.weight()
}

impl Core {
    /// The election was won. The first entry of the term carries nothing: only once it is
    /// committed is the commit index known to cover all that was ever committed (Raft section 8).
    pub(crate) fn begin_leading(&mut self) {
        let me = self.shared.config.member;
        let mut leader = Leader::new(&self.shared);
        self.shared.set_leader(Some(me));
        self.shared.expecting = None;
        leader.extend(vec![Body::Blank], &mut self.shared);
        self.become_role(Role::Leader(Box::new(leader)));
    }

    /// Ends leadership, if this member leads: everything that only a leader could answer is
    /// refused, and transfers stop.
    pub(crate) fn leave_leadership(&mut self, why: StepDown, hint: Option<MemberId>) {
        let Role::Leader(leader) = &mut self.role else { return };
        let shared = &mut self.shared;
        leader.reads.refuse_all(hint, shared);
        leader.stop_transfers(shared);
        shared.observe(Event::SteppedDown { term: shared.term(), why });
        let deadline = shared.election_deadline();
        self.role = Role::Follower(Follower { deadline });
    }

    /// Gives up leadership within the term.
    pub(crate) fn step_down(&mut self, why: StepDown) {
        self.leave_leadership(why, None);
        self.shared.set_leader(None);
        self.become_follower();
    }

    /// Commands to append; `frees` if applying them gives space back.
    pub(crate) fn on_propose(&mut self, batch: Vec<(Ticket, Bytes)>, frees: bool) {
        if let Role::Leader(leader) = &mut self.role {
            return leader.propose(batch, frees, &mut self.shared);
        }
        let hint = self.shared.leader;
        for (ticket, _) in batch {
            self.shared.refuse(ticket, Refusal::NotLeader { hint });
        }
    }

    /// A read index is wanted.
    pub(crate) fn on_read(&mut self, ticket: Ticket, deadline: Micros) {
        let Role::Leader(leader) = &mut self.role else {
            let hint = self.shared.leader;
            return self.shared.refuse(ticket, Refusal::NotLeader { hint });
        };
        let own_term = leader.committed_own_term(&self.shared);
        leader.reads.push(ticket, deadline, own_term, leader.round, &mut self.shared);
    }

    /// The leader's clock.
    pub(crate) fn on_leader_clock(&mut self) {
        if let Role::Leader(leader) = &mut self.role {
            let transition = leader.on_clock(&mut self.shared);
            self.shift(transition);
        }
    }
}

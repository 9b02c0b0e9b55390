//! Elections: pre-vote, votes, stickiness (Raft 5.2 and 5.4.1, dissertation 4.2.3 and 9.6).

use super::Core;
use super::outbox::Promise;
use super::role::{Candidate, Follower, PreCandidate, Role, Transition};
use super::shared::Shared;
use crate::event::Event;
use crate::message::Message;
use crate::quorum::{self, Verdict};
use crate::types::{HardState, LogId, MemberId, Micros, Term};
use std::collections::BTreeMap;

/// How often a missing quorum is reported at most, in microseconds.
const REPORT_EVERY: Micros = 1_000_000;

/// A vote request.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) term: Term,
    pub(crate) pre: bool,
    pub(crate) last: LogId,
    pub(crate) transfer: bool,
}

/// An answer to a vote request.
#[derive(Copy, Clone, Debug)]
pub(crate) struct VoteAnswer {
    pub(crate) pre: bool,
    pub(crate) asked: Term,
    pub(crate) granted: bool,
}

impl Core {
    /// A vote request. Keeps: at most one vote a term, only for a log at least as fresh as ours,
    /// and none while a leader is in contact, so that a removed or cut-off member disrupts nobody
    /// (B11).
    pub(crate) fn on_vote(&mut self, from: MemberId, ask: Ask) {
        let sticky = !ask.transfer && self.hears_leader();
        if ask.pre {
            // A pre-vote changes nothing here, and granting one is no contact with a leader (B08).
            let shared = &mut self.shared;
            let granted = !sticky && ask.term > shared.term() && ask.last >= shared.log.last();
            // A rejection teaches our term, or two cohorts could starve each other (B07).
            let term = if granted { ask.term } else { shared.term() };
            let reply = Message::VoteReply { term, pre: true, asked: ask.term, granted };
            shared.urgent(from, reply);
            return;
        }
        if !sticky && ask.term > self.shared.term() {
            self.adopt_term(ask.term, None);
        }
        let shared = &mut self.shared;
        let free = shared.hard().voted_for.is_none_or(|voted| voted == from);
        let no_leader = shared.leader.is_none_or(|leader| leader == from);
        let fresh = ask.last >= shared.log.last();
        if sticky || ask.term != shared.term() || !free || !no_leader || !fresh {
            let term = shared.term();
            let reply = Message::VoteReply { term, pre: false, asked: ask.term, granted: false };
            shared.urgent(from, reply);
            return;
        }
        shared.set_hard(HardState { term: ask.term, voted_for: Some(from) });
        let seq = shared.hard_seq();
        shared.promise(seq, Promise::Vote { to: from, term: ask.term });
        if let Role::Follower(follower) = &mut self.role {
            follower.deadline = self.shared.election_deadline();
        }
    }

    /// True if a leader is in contact: this member leads (and check-quorum says it still does), or
    /// it heard its leader within the shortest election timeout.
    fn hears_leader(&self) -> bool {
        let shared = &self.shared;
        let recent = |at: Micros| shared.now.saturating_sub(at) < shared.config.election_min;
        matches!(self.role, Role::Leader(_)) || shared.heard.is_some_and(recent)
    }

    /// An answer to a (pre-)vote of ours, in the term it belongs to.
    pub(crate) fn on_vote_answer(&mut self, from: MemberId, answer: VoteAnswer) {
        let transition = match &mut self.role {
            Role::PreCandidate(role) if answer.pre => role.on_answer(&self.shared, from, answer),
            Role::Candidate(role) if !answer.pre => role.on_answer(&self.shared, from, answer),
            _ => Transition::Stay,
        };
        self.shift(transition);
    }

    /// Asks everybody whether an election could be won; terms stay as they are.
    pub(crate) fn begin_pre_vote(&mut self) {
        let shared = &mut self.shared;
        shared.set_leader(None);
        let me = shared.config.member;
        let ask =
            Ask { term: shared.term().next(), pre: true, last: shared.log.last(), transfer: false };
        shared.ask_voters(ask);
        let deadline = shared.election_deadline();
        let answers = BTreeMap::from([(me, true)]);
        let role = PreCandidate { deadline, answers };
        let transition = role.judge(&self.shared);
        self.become_role(Role::PreCandidate(role));
        self.shift(transition);
    }

    /// Stands: raises the term and votes for itself. Nobody is asked, and the own vote does not
    /// count, before that is durable (B03).
    pub(crate) fn begin_election(&mut self, transfer: bool) {
        let shared = &mut self.shared;
        shared.set_leader(None);
        let term = shared.term().next();
        shared.set_hard(HardState { term, voted_for: Some(shared.config.member) });
        let role = Candidate { deadline: None, answers: BTreeMap::new(), transfer };
        self.become_role(Role::Candidate(role));
    }

    /// A higher term was seen: follow in it. The vote is free again, as only a new term makes it.
    pub(crate) fn adopt_term(&mut self, term: Term, leader: Option<MemberId>) {
        self.leave_leadership(crate::event::StepDown::HigherTerm, leader);
        let shared = &mut self.shared;
        shared.set_leader(None);
        shared.set_hard(HardState { term, voted_for: None });
        shared.contact = None;
        self.become_follower();
    }

    /// Follows within the current term. The vote stays (B02).
    pub(crate) fn become_follower(&mut self) {
        let deadline = match &self.role {
            // Learning a term is no contact with a leader: the clock runs on.
            Role::Follower(follower) => follower.deadline,
            _ => self.shared.election_deadline(),
        };
        self.become_role(Role::Follower(Follower { deadline }));
    }

    /// A follower's, pre-candidate's or candidate's clock.
    pub(crate) fn on_election_clock(&mut self) {
        let now = self.shared.now;
        let transition = match &mut self.role {
            Role::Follower(role) if now >= role.deadline => {
                if self.shared.may_stand() {
                    Transition::PreVote
                } else {
                    role.deadline = self.shared.election_deadline();
                    self.shared.set_leader(None);
                    Transition::Stay
                }
            }
            Role::PreCandidate(role) if now >= role.deadline => {
                self.shared.report_missing(&role.answers);
                self.shared.retry_or_wait()
            }
            Role::Candidate(role) if role.deadline.is_some_and(|at| now >= at) => {
                self.shared.report_missing(&role.answers);
                self.shared.retry_or_wait()
            }
            _ => Transition::Stay,
        };
        if transition == Transition::Stay && self.gave_up_standing() {
            self.become_follower();
        }
        self.shift(transition);
    }

    /// True if this member stands although it may not any more and its time is over.
    fn gave_up_standing(&self) -> bool {
        let now = self.shared.now;
        match &self.role {
            Role::PreCandidate(role) => now >= role.deadline && !self.shared.may_stand(),
            Role::Candidate(role) => {
                role.deadline.is_some_and(|at| now >= at) && !self.shared.may_stand()
            }
            Role::Follower(_) | Role::Leader(_) => false,
        }
    }

    /// Something became durable: a candidate whose own vote now is asks the others.
    pub(crate) fn on_vote_durable(&mut self) {
        let Role::Candidate(role) = &mut self.role else { return };
        if role.deadline.is_some() || !self.shared.hard_durable() {
            return;
        }
        let shared = &mut self.shared;
        role.answers.insert(shared.config.member, true);
        role.deadline = Some(shared.election_deadline());
        let transfer = role.transfer;
        let ask = Ask { term: shared.term(), pre: false, last: shared.log.last(), transfer };
        shared.ask_voters(ask);
        let transition = role.judge(shared);
        self.shift(transition);
    }

    /// A leader asks this member to stand (dissertation 3.10): only a follower that is a voter and
    /// holds all that the leader holds, and only within the leader's own term (R38).
    pub(crate) fn on_timeout_now(&mut self, from: MemberId, last: LogId, within: Micros) {
        let shared = &mut self.shared;
        let covers = shared.log.last() >= last;
        let follows = matches!(self.role, Role::Follower(_)) && shared.leader == Some(from);
        if !follows || !covers || within == 0 || !shared.may_stand() {
            shared.drop_with("timeout-now");
            return;
        }
        self.shift(Transition::Stand { transfer: true });
    }

    /// The known leader's host refused a reconnect: evidence that lets a pre-vote start early (and
    /// lifts our own stickiness), at most once per election timeout. It proves nothing, and safety
    /// never rests on it; acknowledgements promise nothing, so no lease can be hurt (R37).
    pub(crate) fn on_peer_reset(&mut self, peer: MemberId) {
        let shared = &mut self.shared;
        let Role::Follower(follower) = &mut self.role else { return };
        let recently = shared
            .evidence_at
            .is_some_and(|at| shared.now.saturating_sub(at) < shared.config.election_max);
        if shared.leader != Some(peer) || recently {
            return;
        }
        shared.evidence_at = Some(shared.now);
        shared.heard = None;
        shared.mark("peer-reset-of-leader");
        // Every survivor sees the reset at the same moment: a little chance keeps them from
        // splitting the vote each time.
        let spread = shared.rng.between(0, shared.config.heartbeat / 2);
        follower.deadline = follower.deadline.min(shared.now + spread);
        self.on_election_clock();
    }
}

impl Shared {
    /// Sends a vote request to every other voter.
    fn ask_voters(&mut self, ask: Ask) {
        let (_, membership) = self.log.membership();
        let me = self.config.member;
        let others: Vec<_> = quorum::missing(membership, |m| m == me);
        let Ask { term, pre, last, transfer } = ask;
        for to in others {
            self.urgent(to, Message::Vote { term, pre, last, transfer });
        }
    }

    /// After a failed (pre-)election: ask again, always beginning with a pre-vote.
    fn retry_or_wait(&self) -> Transition {
        if self.may_stand() { Transition::PreVote } else { Transition::Stay }
    }

    /// Names the voters without which no leader can be elected.
    fn report_missing(&mut self, answers: &BTreeMap<MemberId, bool>) {
        let due = self.reported_at.is_none_or(|at| self.now.saturating_sub(at) >= REPORT_EVERY);
        let (_, membership) = self.log.membership();
        let missing = quorum::missing(membership, |m| answers.contains_key(&m));
        if !due || missing.is_empty() {
            return;
        }
        self.reported_at = Some(self.now);
        let since = self.now.saturating_sub(self.leaderless_since);
        self.observe(Event::WaitingForQuorum { missing, since });
    }

    fn verdict(&self, answers: &BTreeMap<MemberId, bool>) -> Verdict {
        let (_, membership) = self.log.membership();
        quorum::verdict(membership, |m| answers.get(&m).copied())
    }
}

impl PreCandidate {
    fn judge(&self, shared: &Shared) -> Transition {
        match shared.verdict(&self.answers) {
            Verdict::Won => Transition::Stand { transfer: false },
            Verdict::Lost | Verdict::Pending => Transition::Stay,
        }
    }

    fn on_answer(&mut self, shared: &Shared, from: MemberId, answer: VoteAnswer) -> Transition {
        if answer.asked != shared.term().next() {
            return Transition::Stay;
        }
        self.answers.insert(from, answer.granted);
        self.judge(shared)
    }
}

impl Candidate {
    fn judge(&self, shared: &Shared) -> Transition {
        match shared.verdict(&self.answers) {
            Verdict::Won => Transition::Lead,
            Verdict::Lost | Verdict::Pending => Transition::Stay,
        }
    }

    /// Only answers to this very term's request count (B04).
    fn on_answer(&mut self, shared: &Shared, from: MemberId, answer: VoteAnswer) -> Transition {
        if answer.asked != shared.term() || self.deadline.is_none() {
            return Transition::Stay;
        }
        self.answers.insert(from, answer.granted);
        self.judge(shared)
    }
}

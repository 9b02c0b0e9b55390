//! The pure Raft core.
//!
//! Time and input go in, effects come out. The core keeps what all roles share apart from the
//! role, whose data live and end with it; handlers say what the role should become, and only this
//! module replaces it. Everything that another member may rely on waits inside, keyed by the
//! write it depends on, until that write is durable.

mod disk;
mod election;
mod fingerprint;
mod follower;
mod holes;
mod leader;
mod log_view;
mod membership;
mod outbox;
mod progress;
mod read;
mod recovery;
mod repair;
mod replication;
mod role;
mod shared;
mod snapshot;
mod stall;
mod tail;
mod transfer;
mod weights;

use crate::damage::Hole;
use crate::entries::Entries;
use crate::event::{Event, RoleKind};
use crate::fault::{Refusal, StopReason};
use crate::io::{CoreConfig, Effect, Input};
use crate::message::Message;
use crate::replica::PeerStatus;
use crate::traits::Contact;
use crate::types::{HardState, Index, LogId, MemberId, Membership, Micros, Recovered, Term};
use election::{Ask, VoteAnswer};
use follower::Append;
use log_view::LogView;
use progress::Feed;
use role::{Follower, Role, Transition};
use shared::Shared;
pub use weights::Weights;

/// The pure Raft core: time and input in, effects out.
#[derive(Clone, Debug)]
pub struct Core {
    pub(crate) shared: Shared,
    pub(crate) role: Role,
}

impl Core {
    /// A core on what recovery proved. It starts as a follower; alone in its configuration it
    /// stands at its first wake.
    #[must_use]
    pub fn new(config: CoreConfig, seed: u64, recovered: Recovered, now: Micros) -> Self {
        let (hard, floor) = (recovered.hard, recovered.commit);
        let held = recovered.held.is_some();
        let log = LogView::new(recovered);
        let mut shared = Shared::new(config, seed, hard, log, floor, now);
        shared.held = held;
        // A held member asks nobody for entries: it changes nothing of its log (R5).
        if !held {
            shared.observe_damage();
        }
        // A snapshot of a newer term can be durable before the term itself was: no member is ever in
        // an older term than its log. Written with the first step, promised upon only then.
        let newest = shared.log.last().term;
        if newest > shared.term() && !held {
            shared.set_hard(HardState { term: newest, voted_for: None });
        }
        let alone = shared.sole_voter() && shared.may_stand();
        let deadline = if alone { now } else { shared.election_deadline() };
        Self { shared, role: Role::Follower(Follower { deadline }) }
    }

    /// Takes one input at time `now` (never less than before) and appends effects to `out`.
    ///
    /// The commit index that recovery proved is announced by the first step. After
    /// [`Effect::Stop`] nothing is accepted any more; calls are refused.
    pub fn step(&mut self, now: Micros, input: Input, out: &mut Vec<Effect>) {
        self.shared.now = self.shared.now.max(now);
        if self.shared.stopped {
            self.refuse_stopped(input);
            out.append(&mut self.shared.fx);
            return;
        }
        if std::mem::take(&mut self.shared.announce) {
            let through = self.shared.commit_id();
            self.shared.fx.push(Effect::Commit { through });
        }
        self.dispatch(input);
        if !self.shared.stopped {
            self.settle();
        }
        out.append(&mut self.shared.fx);
    }

    fn dispatch(&mut self, input: Input) {
        match input {
            input if self.shared.held => self.refuse_held(input),
            Input::Wake => {}
            Input::Message { from, message } => self.on_message(from, message),
            Input::PeerReset { peer } => self.on_peer_reset(peer),
            Input::Propose { batch } => self.on_propose(batch, false),
            Input::Free { batch } => self.on_propose(batch, true),
            Input::ReadIndex { ticket, deadline } => self.on_read(ticket, deadline),
            Input::Persisted { through } => self.on_persisted(through),
            Input::PersistFailed { at, .. } => self.on_persist_failed(at),
            Input::Reopened { last, hard, holes } => self.on_reopened(last, hard, holes),
            Input::NoSpace { log } => self.on_no_space(&log),
            Input::Room { has } => self.shared.starved = !has,
            Input::Damaged { holes } => self.on_damaged(&holes),
            Input::Repaired { filled } => self.on_repaired(&filled),
            Input::Fetched { fetch, entries } => self.on_fetched(fetch, entries),
            // The applier reads what is not cached from the log, so nothing waits for it here.
            Input::Applied { .. } => {}
            Input::Snapshotted { meta } => self.shared.log.offer(meta),
            Input::Compacted { first } => self.on_compacted(first),
            Input::TransferEnded { transfer, ok } => self.on_transfer_ended(transfer, ok),
            Input::SnapshotReceived { meta } => self.on_snapshot_received(meta),
            Input::SnapshotAborted { transfer } => self.on_snapshot_aborted(transfer),
            Input::Headroom { low } => self.on_headroom(low),
            Input::Transfer { to } => self.on_transfer(to),
        }
    }

    /// After every input: clocks, what follows from the new state, and the one write of the step.
    fn settle(&mut self) {
        if self.shared.held {
            return;
        }
        self.on_repair_clock();
        self.on_election_clock();
        self.on_leader_clock();
        if let Role::Leader(leader) = &mut self.role {
            leader.settle(&mut self.shared);
        }
        let shared = &mut self.shared;
        shared.flush();
        let settled = shared.disk.durable().index.min(shared.commit());
        shared.log.evict(shared.config.cache_bytes, settled);
    }

    fn refuse_stopped(&mut self, input: Input) {
        match input {
            Input::Propose { batch } | Input::Free { batch } => {
                for (ticket, _) in batch {
                    self.shared.refuse(ticket, Refusal::Stopping);
                }
            }
            Input::ReadIndex { ticket, .. } => self.shared.refuse(ticket, Refusal::Stopping),
            _ => {}
        }
    }

    /// A held member proves nothing, so it promises nothing (R5): it neither votes nor follows.
    fn refuse_held(&mut self, input: Input) {
        let why = || Refusal::NotLeader { hint: None };
        match input {
            Input::Propose { batch } | Input::Free { batch } => {
                for (ticket, _) in batch {
                    self.shared.refuse(ticket, why());
                }
            }
            Input::ReadIndex { ticket, .. } => self.shared.refuse(ticket, why()),
            Input::Message { .. } => self.shared.drop_with("message-while-held"),
            _ => {}
        }
    }

    fn on_headroom(&mut self, low: bool) {
        if self.shared.low != low {
            self.shared.low = low;
            self.shared.observe(Event::Headroom { low });
        }
    }

    fn on_compacted(&mut self, first: Index) {
        let shared = &mut self.shared;
        if first.prev() > shared.commit() {
            return shared.drop_with("compacted-above-commit");
        }
        shared.log.compact(first);
    }

    fn on_message(&mut self, from: MemberId, message: Message) {
        match message {
            Message::Vote { term, pre, last, transfer } => {
                self.on_vote(from, Ask { term, pre, last, transfer });
            }
            Message::VoteReply { term, pre, asked, granted } => {
                // A granted answer repeats the term that was asked for, which in a pre-vote
                // nobody has yet; a rejection carries the voter's own, and teaches it (B07).
                if !granted && term > self.shared.term() {
                    return self.adopt_term(term, None);
                }
                self.on_vote_answer(from, VoteAnswer { pre, asked, granted });
            }
            Message::TimeoutNow { term, last, within } => {
                if self.enter(term, from) {
                    self.on_timeout_now(from, last, within);
                }
            }
            Message::Append { term, round, prev, commit, commit_own_term, entries } => {
                if !self.enter(term, from) {
                    return self.reject_append(from, round, prev);
                }
                let own_term = commit_own_term;
                self.on_append(from, Append { round, prev, commit, own_term, entries });
            }
            Message::SnapshotOffer { term, transfer, meta } => {
                if !self.enter(term, from) {
                    return self.reject_offer(from, transfer);
                }
                self.on_offer(from, transfer, meta);
            }
            Message::AppendReply { term, round, result, low, .. } => {
                if term > self.shared.term() {
                    self.adopt_term(term, None);
                } else if term == self.shared.term() {
                    self.on_append_answer(from, round, result, low);
                }
            }
            Message::Repair { wants, .. } => self.on_repair_asked(from, &wants),
            Message::RepairReply { ask, entries } => self.on_repair_reply(from, ask, entries),
            Message::SnapshotChunk { .. }
            | Message::SnapshotAck { .. }
            | Message::Forward { .. }
            | Message::ForwardReply { .. }
            | Message::ReadIndex { .. }
            | Message::ReadIndexReply { .. }
            | Message::Confirm { .. }
            | Message::ConfirmReply { .. } => self.shared.drop_with("not-for-the-core"),
        }
    }

    /// Enters the term of a leader's message; false if the message is stale or may not count.
    fn enter(&mut self, term: Term, from: MemberId) -> bool {
        let shared = &self.shared;
        if term < shared.term() {
            return false;
        }
        if term > shared.term() {
            self.adopt_term(term, Some(from));
            return true;
        }
        if let Some(leader) = shared.leader
            && leader != from
        {
            // Election safety says that this cannot be. Believing either side could lose data.
            let detail = format!("{leader} and {from} both lead {term}");
            let at = shared.commit();
            self.shared.stop(StopReason::Diverged { at, detail });
            return false;
        }
        true
    }

    /// Carries a transition out.
    pub(crate) fn shift(&mut self, transition: Transition) {
        match transition {
            Transition::Stay => {}
            Transition::PreVote => self.begin_pre_vote(),
            Transition::Stand { transfer } => self.begin_election(transfer),
            Transition::Lead => self.begin_leading(),
            Transition::StepDown(why) => self.step_down(why),
        }
    }

    /// Replaces the role.
    pub(crate) fn become_role(&mut self, role: Role) {
        self.role = role;
        let (role, term) = (self.role.kind(), self.shared.term());
        self.shared.observe(Event::Role { role, term });
    }

    /// When the core wants [`Input::Wake`] next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Micros> {
        if self.shared.stopped || self.shared.held {
            return None;
        }
        let repair = self.shared.repair_deadline();
        let role = match &self.role {
            Role::Follower(role) => {
                let waits = self.shared.leader.is_some() || self.shared.may_stand();
                waits.then_some(role.deadline)
            }
            Role::PreCandidate(role) => Some(role.deadline),
            Role::Candidate(role) => role.deadline,
            Role::Leader(leader) => leader.deadline(&self.shared),
        };
        [repair, role].into_iter().flatten().min()
    }

    /// This member.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.shared.config.member
    }

    /// Role now.
    #[must_use]
    pub fn role(&self) -> RoleKind {
        self.role.kind()
    }

    /// Hard state in memory.
    #[must_use]
    pub fn hard(&self) -> HardState {
        self.shared.hard()
    }

    /// The leader of the current term, where known.
    #[must_use]
    pub fn leader(&self) -> Option<MemberId> {
        self.shared.leader
    }

    /// True from a write that found no space, or would find none, until there is some (R45).
    pub(crate) const fn starved(&self) -> bool {
        self.shared.starved
    }

    /// The one durable watermark: what an acknowledgement may report. Truncation lowers it, and so
    /// does damage (R15).
    #[must_use]
    pub fn durable(&self) -> LogId {
        self.shared.durable()
    }

    /// The durable end of the log, damaged entries included: what votes are given by.
    #[must_use]
    pub fn proved(&self) -> LogId {
        self.shared.disk.durable()
    }

    /// Damaged entries of the log, ascending (R15).
    #[must_use]
    pub fn holes(&self) -> &[Hole] {
        self.shared.log.holes()
    }

    /// True if a snapshot that ends at this entry would be installed.
    #[must_use]
    pub fn wants_snapshot(&self, last: LogId) -> bool {
        self.shared.wants_snapshot(last)
    }

    /// Last entry of the log in memory.
    #[must_use]
    pub fn last(&self) -> LogId {
        self.shared.log.last()
    }

    /// First index of the log.
    #[must_use]
    pub fn first(&self) -> Index {
        self.shared.log.base().index.next()
    }

    /// Commit index.
    #[must_use]
    pub fn commit(&self) -> Index {
        self.shared.commit()
    }

    /// Term of the entry at `index`: `None` if unknown (compacted or beyond the end), never zero
    /// for unknown.
    #[must_use]
    pub fn term_at(&self, index: Index) -> Option<Term> {
        self.shared.log.term_at(index)
    }

    /// Entries from memory, a suffix of `from..=to`: everything of that range that is cached.
    /// Entries above [`Core::proved`] are never evicted, so they are always in it.
    #[must_use]
    pub fn cached(&self, from: Index, to: Index) -> Entries {
        self.shared.log.cached(from, to, usize::MAX)
    }

    /// Configuration in force (the last in the log, committed or not) and its index.
    #[must_use]
    pub fn membership(&self) -> (Index, &Membership) {
        self.shared.log.membership()
    }

    /// True if this replica leads and has committed an entry of its own term.
    #[must_use]
    pub fn committed_own_term(&self) -> bool {
        match &self.role {
            Role::Leader(leader) => leader.committed_own_term(&self.shared),
            _ => false,
        }
    }

    /// What the current leader itself said, since boot and since the last install (R35). A leader
    /// speaks for itself, as of the last time a quorum had answered it.
    #[must_use]
    pub fn contact(&self) -> Option<Contact> {
        let Role::Leader(leader) = &self.role else { return self.shared.contact };
        Some(Contact {
            leader: self.member(),
            term: self.shared.term(),
            commit: self.commit(),
            own_term: leader.committed_own_term(&self.shared),
            at: leader.quorum_contact(&self.shared),
        })
    }

    /// Peers as the leader sees them; empty unless this replica leads.
    #[must_use]
    pub fn peers(&self, now: Micros) -> Vec<PeerStatus> {
        let Role::Leader(leader) = &self.role else { return Vec::new() };
        let status = |(member, p): (&MemberId, &progress::Progress)| PeerStatus {
            member: *member,
            match_index: p.matched.index,
            silent: p.answered_at.map(|at| now.saturating_sub(at)),
            state: match p.feed {
                Feed::Probe { .. } => "probe",
                Feed::Replicate => "replicate",
                Feed::Snapshot { .. } => "snapshot",
            },
        };
        leader.peers.iter().map(status).collect()
    }
}

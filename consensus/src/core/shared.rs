//! What every role shares: hard state, log, disk, commit, and the effects of the current step.

use super::disk::Disk;
use super::log_view::LogView;
use super::outbox::{Outbox, Promise, granted};
use super::repair::Repair;
use crate::event::Event;
use crate::fault::{Refusal, StopReason};
use crate::io::{CoreConfig, Effect};
use crate::message::{Message, SendLane};
use crate::rng::SplitMix64;
use crate::traits::Contact;
use crate::types::{
    FetchId, HardState, Index, LogId, MemberId, Micros, Seq, Term, Ticket, TransferId,
};

/// The offer that a snapshot is being received for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expecting {
    pub(crate) from: MemberId,
    pub(crate) term: Term,
    pub(crate) transfer: TransferId,
}

/// State that outlives roles.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) config: CoreConfig,
    pub(crate) rng: SplitMix64,
    /// Time of the current step.
    pub(crate) now: Micros,
    /// Hard state in memory. Invariant: the term never falls, and the vote changes only when the
    /// term rises or once from `None` (B02).
    hard: HardState,
    /// The write that makes `hard` durable.
    hard_seq: Seq,
    pub(crate) log: LogView,
    pub(crate) disk: Disk,
    /// Invariant: never falls; `log.base().index <= commit <= log.last().index`.
    commit: Index,
    /// Leader of the current term, where known. Invariant: set at most once a term to a member.
    pub(crate) leader: Option<MemberId>,
    /// When that leader was last heard: what leader stickiness is judged by.
    pub(crate) heard: Option<Micros>,
    pub(crate) contact: Option<Contact>,
    /// The log cannot get another segment.
    pub(crate) low: bool,
    /// A write found no space: commands are not taken before there is some (R45).
    pub(crate) starved: bool,
    pub(crate) outbox: Outbox,
    pub(crate) expecting: Option<Expecting>,
    /// How damaged entries are fetched from other members.
    pub(crate) repair: Repair,
    /// Neither votes, stands, acknowledges nor follows (R5).
    pub(crate) held: bool,
    pub(crate) fetches: FetchId,
    pub(crate) transfers: TransferId,
    /// Since when no leader is known.
    pub(crate) leaderless_since: Micros,
    /// When a missing quorum was last reported.
    pub(crate) reported_at: Option<Micros>,
    /// When evidence of the leader's death last started a pre-vote.
    pub(crate) evidence_at: Option<Micros>,
    /// Nothing is accepted any more.
    pub(crate) stopped: bool,
    /// The commit index of recovery has not been announced yet.
    pub(crate) announce: bool,
    /// Effects of the current step.
    pub(crate) fx: Vec<Effect>,
}

impl Shared {
    pub(crate) fn new(
        config: CoreConfig,
        seed: u64,
        hard: HardState,
        log: LogView,
        floor: Index,
        now: Micros,
    ) -> Self {
        // Snapshots hold applied entries, and the stored watermark committed ones: both are
        // floors of the commit index.
        let snapshot =
            log.snapshot().map(|s| s.last).filter(|id| log.term_at(id.index) == Some(id.term));
        let floor = floor.max(snapshot.map_or(Index(0), |id| id.index));
        // Where the term is unknown, the commit index stays at an entry whose term is not.
        let commit = log.known_at_or_below(floor).index;
        Self {
            config,
            rng: SplitMix64::new(seed),
            now,
            hard,
            hard_seq: Seq(0),
            disk: Disk::new(log.last(), hard),
            log,
            commit,
            leader: None,
            heard: None,
            contact: None,
            low: false,
            starved: false,
            outbox: Outbox::default(),
            expecting: None,
            repair: Repair::default(),
            held: false,
            fetches: FetchId(0),
            transfers: TransferId(0),
            leaderless_since: now,
            reported_at: None,
            evidence_at: None,
            stopped: false,
            announce: commit > Index(0),
            fx: Vec::new(),
        }
    }

    pub(crate) const fn hard(&self) -> HardState {
        self.hard
    }

    pub(crate) const fn term(&self) -> Term {
        self.hard.term
    }

    pub(crate) const fn hard_seq(&self) -> Seq {
        self.hard_seq
    }

    pub(crate) const fn commit(&self) -> Index {
        self.commit
    }

    /// Changes the hard state. Everything that depends on it waits for `hard_seq`.
    pub(crate) fn set_hard(&mut self, hard: HardState) {
        let old = self.hard;
        let lawful = hard.term > old.term
            || (hard.term == old.term
                && (old.voted_for.is_none() || old.voted_for == hard.voted_for));
        assert!(lawful, "a vote is cast once a term: {old:?} may not become {hard:?}");
        if hard == old {
            return;
        }
        self.hard = hard;
        self.hard_seq = self.disk.stage_hard(hard);
        if hard.term > old.term {
            self.outbox.retain_current(&hard);
        }
    }

    /// Writes are made again: the hard state is written with `seq`.
    pub(crate) fn rebind(&mut self, seq: Seq) {
        self.hard_seq = seq;
        self.outbox.rebind(self.disk.done(), seq);
    }

    /// True if the hard state in memory is on stable storage.
    pub(crate) fn hard_durable(&self) -> bool {
        self.hard_seq <= self.disk.done()
    }

    /// Raises the commit index, as far as terms are known: it stops short of a hole of unknown
    /// identity until that is filled, or until it can pass it.
    pub(crate) fn commit_through(&mut self, index: Index) {
        assert!(index <= self.log.last().index, "commit {index} is behind the end of the log");
        let through = self.log.known_at_or_below(index);
        if through.index <= self.commit {
            return;
        }
        self.commit = through.index;
        self.fx.push(Effect::Commit { through });
        self.observe(Event::Committed { through });
    }

    /// Hands out what the step wants written, as one batch.
    pub(crate) fn flush(&mut self) {
        if let Some(persist) = self.disk.flush(self.now) {
            self.fx.push(Effect::Persist(persist));
        }
    }

    /// Identity of the commit index.
    pub(crate) fn commit_id(&self) -> LogId {
        self.log.id_at(self.commit).expect("the commit index lies between base and end")
    }

    pub(crate) fn observe(&mut self, event: Event) {
        self.fx.push(Effect::Observe(event));
    }

    pub(crate) fn mark(&mut self, mark: &'static str) {
        self.observe(Event::Mark(mark));
    }

    pub(crate) fn drop_with(&mut self, reason: &'static str) {
        self.observe(Event::Dropped { reason });
    }

    pub(crate) fn urgent(&mut self, to: MemberId, message: Message) {
        self.fx.push(Effect::Send { to, message, lane: SendLane::Urgent });
    }

    pub(crate) fn refuse(&mut self, ticket: Ticket, why: Refusal) {
        self.fx.push(Effect::Refused { ticket, why });
    }

    pub(crate) fn stop(&mut self, reason: StopReason) {
        self.stopped = true;
        self.fx.push(Effect::Stop(reason));
    }

    /// A random election timeout from now.
    pub(crate) fn election_deadline(&mut self) -> Micros {
        self.now + self.rng.between(self.config.election_min, self.config.election_max)
    }

    /// Sets (or forgets) the leader of the current term.
    pub(crate) fn set_leader(&mut self, leader: Option<MemberId>) {
        if leader.is_none() {
            self.heard = None;
        }
        if self.leader == leader {
            return;
        }
        if self.leader.is_some() && leader.is_none() {
            self.leaderless_since = self.now;
        }
        self.leader = leader;
        self.observe(Event::Leader { leader, term: self.hard.term });
    }

    /// Holds a promise, or lets it go at once if what it depends on is durable already.
    pub(crate) fn promise(&mut self, seq: Seq, promise: Promise) {
        if seq <= self.disk.done() {
            self.keep(promise);
        } else {
            self.outbox.hold(seq, promise);
        }
    }

    /// Releases every promise whose write is durable.
    pub(crate) fn release(&mut self) {
        for promise in self.outbox.release(self.disk.done()) {
            self.keep(promise);
        }
    }

    /// Sends a promise whose write is durable. An acknowledgement reports the watermark of this
    /// very moment, capped at what its request matched (B14, B15, B25).
    fn keep(&mut self, promise: Promise) {
        let low = self.low;
        match promise {
            Promise::Vote { to, term } => {
                self.observe(Event::VoteGranted { to, term });
                self.urgent(to, granted(term));
            }
            Promise::Ack { to, term, round, matched } => {
                let durable = self.durable();
                let held = if durable.index < matched.index { durable } else { matched };
                let result = Ok(held);
                self.urgent(to, Message::AppendReply { term, round, result, promise: 0, low });
            }
            Promise::Conflict { to, term, round, conflict } => {
                let result = Err(conflict);
                self.urgent(to, Message::AppendReply { term, round, result, promise: 0, low });
            }
        }
    }
}

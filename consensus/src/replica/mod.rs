//! The replica driver: core, log and state machine together, sans-IO.
//!
//! It takes one input at a time and returns what the world must do. Work goes out lane by lane, at
//! most one job each; whatever decides anything about safety (the order of writes, what may be
//! answered, when a store may be made durable, what may be given up) is decided here or in the
//! core, so that both worlds run the same decisions.

mod apply_lane;
mod calls;
mod confirm;
mod forward;
mod log_lane;
mod ready;
mod receive;
mod repair;
mod ship;
mod snapshot;
mod start;

use crate::core::Core;
pub use crate::core::Weights;
use crate::event::{Event, RoleKind};
use crate::fault::StopReason;
use crate::io::{CoreConfig, Effect, Input};
use crate::job::{Done, Job, Lane, ReplicaEffect, ReplicaInput, SideDone, SideJob};
use crate::message::{Message, Outcome, SendLane};
use crate::traits::{Applied, Contact, LogStore, StateMachine};
use crate::types::{
    FetchId, HardState, Index, LogId, MemberId, Membership, Micros, SnapshotMeta, Term, TransferId,
};
use apply_lane::ApplyLane;
use calls::Calls;
use confirm::Answering;
use forward::Seen;
use log_lane::LogLane;
use ready::Ready;
use receive::{Install, Receiving};
use repair::Serving;
pub use repair::{DamageStatus, refuse_alone};
use ship::Shipping;
use snapshot::Build;
use std::collections::{BTreeMap, VecDeque};

/// Settings of a replica. Times in microseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// Settings of the core.
    pub core: CoreConfig,
    /// Take a snapshot after this many entries since the last one.
    pub snapshot_entries: u64,
    /// Keep this many entries behind a snapshot for slow followers.
    pub kept_entries: u64,
    /// Checkpoint the store after this weight of applied entries.
    pub checkpoint_bytes: u64,
    /// Checkpoint the store at the latest this long after an apply.
    pub checkpoint_after: Micros,
    /// How long a forwarded write waits for the local replica before it is answered all the same.
    pub read_your_writes: Micros,
    /// How long a failing store is reopened and fed again before the replica stops.
    pub store_retry: Micros,
    /// Most bytes of calls waiting for an outcome; beyond it `Busy`.
    pub waiting_bytes: usize,
}

impl ReplicaConfig {
    /// The defaults for a member.
    #[must_use]
    pub const fn new(member: MemberId) -> Self {
        Self {
            core: CoreConfig::new(member),
            snapshot_entries: 8192,
            kept_entries: 8192,
            checkpoint_bytes: 8 << 20,
            checkpoint_after: 5_000_000,
            read_your_writes: 3_000_000,
            store_retry: 30_000_000,
            waiting_bytes: 64 << 20,
        }
    }
}

/// A peer as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer.
    pub member: MemberId,
    /// Highest index known durable there.
    pub match_index: Index,
    /// Time since its last answer, in microseconds; `None` if it never answered this leader.
    pub silent: Option<Micros>,
    /// `probe`, `replicate` or `snapshot`.
    pub state: &'static str,
}

/// A replica as seen from inside, for status, metrics and checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// This member.
    pub member: MemberId,
    /// Role.
    pub role: RoleKind,
    /// Hard state in memory (may be newer than what is durable).
    pub hard: HardState,
    /// The leader of the term, where known.
    pub leader: Option<MemberId>,
    /// Commit index.
    pub commit: Index,
    /// Last entry of the log.
    pub last: LogId,
    /// Durable watermark: ends before the first damaged entry.
    pub durable: LogId,
    /// Durable end of the log, damaged entries included.
    pub proved: LogId,
    /// First index that the log holds.
    pub first: Index,
    /// What the state machine holds.
    pub applied: Applied,
    /// Index of the newest snapshot, zero if none.
    pub snapshot: Index,
    /// Configuration in force.
    pub membership: Membership,
    /// Peers, if this replica leads.
    pub peers: Vec<PeerStatus>,
    /// Last contact with the current leader.
    pub contact: Option<Contact>,
    /// `None` if local reads may be served and calls are likely to succeed; else why not (R23).
    pub not_ready: Option<String>,
    /// Why this member has no space to go on with, if it has none (R45); it ends by itself.
    pub no_space: Option<String>,
    /// Damaged entries of the log that are being fetched from other members (R15).
    pub damaged: Option<DamageStatus>,
    /// Why this member is held, if it is (R5).
    pub held: Option<String>,
}

/// A read of older entries that waits for its lane.
struct Fetch {
    fetch: FetchId,
    from: Index,
    to: Index,
    max_bytes: usize,
}

/// The driver. Owns core, lanes and waiters; owns no thread, file or clock.
pub struct Replica<L: LogStore, M: StateMachine> {
    config: ReplicaConfig,
    core: Core,
    reader: L::Reader,
    snapshots: L::Snapshots,
    /// What questions are answered from.
    view: M::View,
    log: LogLane<L>,
    apply: ApplyLane,
    build: Build,
    /// Newest published snapshot.
    newest: Option<SnapshotMeta>,
    /// Snapshots on their way to followers, and the lanes that are reading for one.
    shipping: BTreeMap<MemberId, Shipping<L>>,
    ship_out: BTreeMap<MemberId, TransferId>,
    receiving: Option<Receiving<L>>,
    /// The receiving lane is out, for this transfer or (`Some(None)`) for a restore.
    receive_out: Option<Option<(Term, TransferId)>>,
    install: Install<M>,
    /// Reads of older entries, by peer; the first of each is out.
    fetches: BTreeMap<MemberId, VecDeque<Fetch>>,
    calls: Calls,
    answering: Answering,
    seen: Seen,
    ready: Ready,
    /// Requests for entries that other members have lost.
    serving: Serving,
    /// Why this member is held: it answers those requests and does nothing else (R5).
    held: Option<String>,
    stopped: bool,
    /// What the core was told of the space that log and store have.
    low: bool,
    now: Micros,
    /// Inputs that the core is still to be given in this step.
    inputs: VecDeque<Input>,
    /// Effects of this step.
    out: Vec<ReplicaEffect<L, M>>,
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// Starts a replica on an open log and state machine. Effects of the start are returned by
    /// the first [`Replica::step`].
    ///
    /// # Errors
    /// [`StopReason`] if log and machine contradict each other: nothing was changed then, but for
    /// a base that a published snapshot already called for (R25).
    pub fn open(
        config: ReplicaConfig,
        seed: u64,
        log: &mut L,
        machine: &mut M,
        now: Micros,
    ) -> Result<Self, StopReason> {
        let applied = machine.applied();
        repair::refuse_alone(&log.recovered(), config.core.member)?;
        let mut recovered = start::reconcile(log, applied)?;
        // What the store has applied was committed.
        recovered.commit = recovered.commit.max(applied.last.index.min(recovered.last.index));
        let ready = Ready::new(recovered.commit, recovered.last.index);
        let newest = recovered.snapshot.clone();
        let held = recovered.held.clone();
        let calls = Calls::new(recovered.boot);
        let mut replica = Self {
            core: Core::new(config.core.clone(), seed, recovered, now),
            config,
            reader: log.reader(),
            snapshots: log.snapshots(),
            view: machine.view(),
            log: LogLane::new(log),
            apply: ApplyLane::new(applied),
            build: Build::default(),
            newest,
            shipping: BTreeMap::new(),
            ship_out: BTreeMap::new(),
            receiving: None,
            receive_out: None,
            install: Install::Idle,
            fetches: BTreeMap::new(),
            calls,
            answering: Answering::default(),
            seen: Seen::default(),
            ready,
            serving: Serving::default(),
            held,
            stopped: false,
            low: false,
            now,
            inputs: VecDeque::new(),
            out: Vec::new(),
        };
        replica.tell_headroom();
        Ok(replica)
    }

    /// Takes one input at time `now` (never less than before) and appends what follows to `out`.
    pub fn step(
        &mut self,
        now: Micros,
        input: ReplicaInput<L, M>,
        out: &mut Vec<ReplicaEffect<L, M>>,
    ) {
        self.now = self.now.max(now);
        if self.stopped {
            if let ReplicaInput::Call { ticket, .. } = input {
                let outcome = Outcome::NotCommitted(crate::fault::Refusal::Stopping);
                out.push(ReplicaEffect::Answer { ticket, outcome });
            }
            return;
        }
        match input {
            ReplicaInput::Wake => self.feed(Input::Wake),
            ReplicaInput::Message { from, message } => self.on_message(from, message),
            ReplicaInput::PeerReset(peer) => self.feed(Input::PeerReset { peer }),
            ReplicaInput::Damaged(fault) => {
                self.report_damage(&fault);
            }
            ReplicaInput::Call { ticket, call, deadline } => self.on_call(ticket, call, deadline),
            ReplicaInput::Done(done) => self.on_done(done),
        }
        self.settle();
        out.append(&mut self.out);
    }

    /// When the replica wants [`ReplicaInput::Wake`] next.
    pub fn next_deadline(&self) -> Option<Micros> {
        if self.stopped {
            return None;
        }
        if self.held.is_some() {
            return self.calls.deadline();
        }
        [
            self.core.next_deadline(),
            self.log.deadline(),
            self.apply_deadline(),
            self.snapshot_deadline(),
            self.ship_deadline(),
            self.receive_deadline(),
            self.calls.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The replica as seen from inside.
    pub fn status(&self, now: Micros) -> ReplicaStatus {
        ReplicaStatus {
            member: self.core.member(),
            role: self.core.role(),
            hard: self.core.hard(),
            leader: self.core.leader(),
            commit: self.core.commit(),
            last: self.core.last(),
            durable: self.core.durable(),
            first: self.core.first(),
            applied: self.apply.applied,
            snapshot: self.newest.as_ref().map_or(Index(0), |meta| meta.last.index),
            membership: self.core.membership().1.clone(),
            peers: self.core.peers(now),
            contact: self.core.contact(),
            not_ready: self.not_ready(),
            no_space: self.no_space(),
            proved: self.core.proved(),
            damaged: self.damage_status(),
            held: self.held.clone(),
        }
    }

    /// What the current leader itself said, since boot and since the last install (R35).
    pub fn contact(&self) -> Option<Contact> {
        self.core.contact()
    }

    /// True once the replica has stopped by itself.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// What the replica holds in memory for others.
    pub fn weights(&self) -> Weights {
        Weights { waiting: self.calls.bytes(), ..self.core.weights() }
    }

    /// Its settings.
    pub const fn config(&self) -> &ReplicaConfig {
        &self.config
    }

    /// The core, for checkers.
    pub fn core(&self) -> &Core {
        &self.core
    }

    fn feed(&mut self, input: Input) {
        self.inputs.push_back(input);
    }

    fn run(&mut self, job: Job<L, M>) {
        self.out.push(ReplicaEffect::Run(job));
    }

    fn send(&mut self, to: MemberId, message: Message, lane: SendLane) {
        self.out.push(ReplicaEffect::Send { to, message, lane });
    }

    fn observe(&mut self, event: Event) {
        self.out.push(ReplicaEffect::Observe(event));
    }

    fn mark(&mut self, mark: &'static str) {
        self.observe(Event::Mark(mark));
    }

    fn dropped(&mut self, reason: &'static str) {
        self.observe(Event::Dropped { reason });
    }

    /// Stops: nobody is left waiting, and nothing follows.
    fn stop(&mut self, reason: StopReason) {
        if self.stopped {
            return;
        }
        self.answer_stopping();
        self.stopped = true;
        self.out.push(ReplicaEffect::Stop(reason));
    }

    /// Gives the core what it has to learn, and hands out what can be done now, until nothing
    /// more follows.
    fn settle(&mut self) {
        loop {
            self.drive_core();
            if self.stopped {
                break;
            }
            self.expire_calls();
            self.pump_serving();
            if self.held.is_some() {
                // Not a byte of a held member changes.
                break;
            }
            self.pump_log();
            self.pump_apply();
            self.pump_receiving();
            self.pump_shipping();
            self.pump_compaction();
            self.pump_answers();
            self.check_ready();
            self.tell_headroom();
            if self.stopped || self.inputs.is_empty() {
                break;
            }
        }
        if self.stopped {
            // Nothing leaves behind the reason: no job, no message.
            let stop = self.out.iter().position(|e| matches!(e, ReplicaEffect::Stop(_)));
            self.out.truncate(stop.map_or(self.out.len(), |at| at + 1));
            self.inputs.clear();
        }
    }

    fn drive_core(&mut self) {
        let mut effects = Vec::new();
        while let Some(input) = self.inputs.pop_front() {
            self.core.step(self.now, input, &mut effects);
            for effect in effects.drain(..) {
                if self.stopped {
                    return;
                }
                self.on_effect(effect);
            }
        }
    }

    fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Persist(persist) => self.log.persist(persist),
            Effect::Reset { seq, meta, last } => self.log.reset(seq, meta, last),
            Effect::Repair { entries } => self.log.repair(entries),
            Effect::Send { to, message, lane } => self.send(to, message, lane),
            Effect::Fetch { fetch, peer, from, to, max_bytes } => {
                self.queue_fetch(peer, Fetch { fetch, from, to, max_bytes });
            }
            Effect::Commit { through } => self.compare_places(through.index),
            Effect::Accepted { ticket, at } => self.on_accepted(ticket, at),
            Effect::Refused { ticket, why } => self.on_refused(ticket, why),
            Effect::Lost { from } => self.on_lost(from),
            Effect::ReadAt { ticket, index } => self.on_read_at(ticket, index),
            Effect::Ship { transfer, to, term, meta } => {
                self.begin_shipping(to, transfer, term, meta);
            }
            Effect::StopShip { transfer } => self.stop_shipping(transfer),
            Effect::Expect { transfer, from, term, meta } => {
                self.expect_snapshot(from, transfer, term, meta);
            }
            Effect::Observe(event) => self.on_event(event),
            Effect::Stop(reason) => self.stop(reason),
        }
    }

    /// Events of the core decide nothing about safety; the driver only hears of leaders in them.
    fn on_event(&mut self, event: Event) {
        match &event {
            Event::Truncated { from, .. } => self.ready.truncated(*from),
            Event::WaitingForQuorum { missing, .. } => self.ready.waiting_for(missing.clone()),
            _ => {}
        }
        let leader = matches!(event, Event::Leader { .. } | Event::Role { .. });
        self.observe(event);
        if leader {
            self.on_leader_change();
        }
    }

    fn on_message(&mut self, from: MemberId, message: Message) {
        match message {
            Message::Forward { ticket, term, command, within } => {
                self.on_forward(from, ticket, term, command, within);
            }
            Message::ForwardReply { ticket, outcome } => {
                self.on_forward_reply(from, ticket, outcome);
            }
            Message::ReadIndex { ticket, within } => self.on_read_index(from, ticket, within),
            Message::ReadIndexReply { ticket, result } => {
                self.on_read_index_reply(from, ticket, result);
            }
            Message::Confirm { ticket, within, question } => {
                self.on_confirm(from, ticket, within, question);
            }
            Message::ConfirmReply { ticket, result } => {
                self.on_confirm_reply(from, ticket, result);
            }
            Message::Repair { ask, wants } => self.on_repair(from, ask, wants),
            Message::SnapshotChunk { term, transfer, offset, bytes } => {
                self.on_chunk(from, term, transfer, offset, bytes);
            }
            Message::SnapshotAck { transfer, next, state, .. } => {
                self.on_snapshot_ack(from, transfer, next, state);
            }
            message => self.feed(Input::Message { from, message }),
        }
    }

    fn on_done(&mut self, done: Done<L, M>) {
        match done {
            Done::Log(result) => self.on_log_done(result),
            Done::Apply(result) => self.on_apply_done(result),
            Done::Side(Lane::Spare, done) => self.on_spare_done(done),
            Done::Side(Lane::Build, done) => self.on_build_done(done),
            Done::Side(Lane::Receive, done) => self.on_receive_done(done),
            Done::Side(Lane::Ship(to), done) => self.on_ship_done(to, done),
            Done::Side(Lane::Fetch(peer), done) => self.on_fetch_done(peer, done),
            Done::Side(Lane::Answer, done) => self.on_answers(done),
            Done::Side(Lane::Repair, done) => self.on_serving_done(done),
            Done::Side(Lane::Log | Lane::Apply, _) => self.mark("unexpected-side-job"),
        }
    }

    fn queue_fetch(&mut self, peer: MemberId, fetch: Fetch) {
        let queue = self.fetches.entry(peer).or_default();
        queue.push_back(fetch);
        if queue.len() == 1 {
            self.run_fetch(peer);
        }
    }

    fn run_fetch(&mut self, peer: MemberId) {
        let Some(next) = self.fetches.get(&peer).and_then(VecDeque::front) else { return };
        let job = SideJob::Fetch {
            fetch: next.fetch,
            reader: self.reader.clone(),
            from: next.from,
            to: next.to,
            max_bytes: next.max_bytes,
        };
        self.run(Job::Side(Lane::Fetch(peer), job));
    }

    fn on_fetch_done(&mut self, peer: MemberId, done: SideDone<L, M>) {
        if let Some(queue) = self.fetches.get_mut(&peer) {
            queue.pop_front();
            if queue.is_empty() {
                self.fetches.remove(&peer);
            }
        }
        match done {
            SideDone::Fetched { fetch, entries } => {
                if let Err(fault) = &entries {
                    self.report_damage(fault);
                }
                self.feed(Input::Fetched { fetch, entries });
            }
            _ => self.mark("unexpected-fetch"),
        }
        self.run_fetch(peer);
    }
}

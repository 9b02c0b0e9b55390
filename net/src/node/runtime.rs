//! The core loop: one thread that owns the replica, gives it inputs and carries out its effects.

use super::lanes::Lanes;
use super::state::{Phase, State};
use super::{Input, Node, RealLog, RealStore, observe};
use crate::clock;
use crate::metrics::Metrics;
use crate::peer::{PeerEvent, Peers};
use holdfast_consensus::event::{Event, RoleKind};
use holdfast_consensus::fault::{Refusal, StopReason};
use holdfast_consensus::job::{Call, ReplicaEffect, ReplicaInput};
use holdfast_consensus::message::{Message, Outcome};
use holdfast_consensus::replica::{Replica, ReplicaStatus};
use holdfast_consensus::{MemberId, Membership, Micros, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Inputs taken between two looks at the clock and the deadline.
const BURST: usize = 128;
/// Longest time that a changed status stays unpublished, in microseconds.
const PUBLISH_WITHIN: Micros = 5_000;
/// A voter that has not answered for longer is not handed leadership, in microseconds.
const SUCCESSOR_SILENT: Micros = 1_000_000;
/// The status of an idle node is published again after this long, in microseconds.
const REFRESH: Micros = 1_000_000;
/// Longest sleep, so that a clock that jumped over a suspend is noticed.
const NAP: Duration = Duration::from_secs(1);

/// A node that was asked to stop and first gives up what others wait for.
struct Leaving {
    /// Names the handover of leadership, while it is under way.
    transfer: Option<Ticket>,
    /// It stops at this time whatever is still open.
    until: Micros,
}

/// A call that waits for its outcome.
struct Waiting {
    reply: oneshot::Sender<Outcome>,
    _permit: OwnedSemaphorePermit,
}

/// Why the loop ended.
pub(super) enum End {
    /// The node was asked to stop.
    Asked,
    /// The replica stopped.
    Stopped(StopReason),
}

/// The answer that a call gets whose message was certainly never sent: the member that was to
/// lead did not take it, so another may. Other messages are sent again by Raft itself.
fn bounce(to: MemberId, unsent: Message) -> Option<ReplicaInput<RealLog, RealStore>> {
    let refusal = Refusal::NotLeader { hint: None };
    let message = match unsent {
        Message::Forward { ticket, .. } => {
            Message::ForwardReply { ticket, outcome: Outcome::NotCommitted(refusal) }
        }
        Message::ReadIndex { ticket, .. } => {
            Message::ReadIndexReply { ticket, result: Err(refusal) }
        }
        Message::Confirm { ticket, .. } => Message::ConfirmReply { ticket, result: Err(refusal) },
        _ => return None,
    };
    Some(ReplicaInput::Message { from: to, message })
}

/// The loop's state.
pub(super) struct Runtime {
    pub(super) replica: Replica<RealLog, RealStore>,
    pub(super) inbox: Receiver<Input>,
    pub(super) lanes: Lanes,
    pub(super) peers: Peers,
    pub(super) metrics: Arc<Metrics>,
    pub(super) state: Arc<State>,
    waiting: BTreeMap<Ticket, Waiting>,
    next_ticket: Ticket,
    out: Vec<ReplicaEffect<RealLog, RealStore>>,
    /// Answers to calls whose message could not be sent.
    bounced: Vec<ReplicaInput<RealLog, RealStore>>,
    names: Membership,
    stopped: Option<StopReason>,
    leaving: Option<Leaving>,
    /// When the status changed first since it was published.
    dirty: Option<Micros>,
    published_at: Micros,
    /// A change that nobody should wait for, such as a new role.
    urgent: bool,
    /// The longest time that a stop may take to hand leadership over and to let callers have
    /// their answers: two election timeouts.
    handover: Micros,
}

/// Whom to hand leadership to: of the voters that answered lately the one that holds most.
fn successor(status: &ReplicaStatus) -> Option<MemberId> {
    if status.role != RoleKind::Leader {
        return None;
    }
    let voters = status.peers.iter().filter(|p| status.membership.is_voter(p.member));
    let fresh = voters.filter(|p| p.silent.is_some_and(|silent| silent < SUCCESSOR_SILENT));
    fresh.max_by_key(|p| p.match_index).map(|p| p.member)
}

impl Runtime {
    /// `boot` makes tickets unique across restarts: a late answer to a call of the process before
    /// must not be taken for one of this process.
    pub(super) fn new(
        replica: Replica<RealLog, RealStore>,
        inbox: Receiver<Input>,
        lanes: Lanes,
        node: &Node,
        boot: u64,
    ) -> Self {
        Self {
            replica,
            inbox,
            lanes,
            peers: node.peers.clone(),
            metrics: Arc::clone(&node.metrics),
            state: Arc::clone(&node.state),
            waiting: BTreeMap::new(),
            next_ticket: Ticket((boot << 40) + 1),
            out: Vec::new(),
            bounced: Vec::new(),
            names: Membership::default(),
            stopped: None,
            leaving: None,
            dirty: None,
            published_at: 0,
            urgent: true,
            handover: 2 * 1000 * node.config.timing.election_max_ms,
        }
    }

    /// Runs until the replica stops or somebody asks to.
    pub(super) fn run(&mut self) -> End {
        let mut now = clock::now();
        self.step(now, ReplicaInput::Wake);
        self.state.update(|p| p.phase = Phase::Running);
        loop {
            self.publish_if_due(now);
            let Some(first) = self.next_input(now) else {
                now = clock::now();
                self.wake_if_due(now);
                self.refresh_if_idle(now);
                if let Some(end) = self.end(now) {
                    return end;
                }
                continue;
            };
            now = clock::now();
            let mut next = Some(first);
            let mut taken = 0;
            while let Some(input) = next {
                if !self.take(now, input) {
                    return End::Asked;
                }
                taken += 1;
                next = if taken < BURST { self.inbox.try_recv().ok() } else { None };
            }
            now = clock::now();
            self.wake_if_due(now);
            if let Some(end) = self.end(now) {
                return end;
            }
        }
    }

    /// Why the loop ends now, if it does.
    fn end(&mut self, now: Micros) -> Option<End> {
        if let Some(reason) = self.stopped.take() {
            return Some(End::Stopped(reason));
        }
        let leaving = self.leaving.as_ref()?;
        let done = leaving.transfer.is_none() && self.waiting.is_empty();
        (done || now >= leaving.until).then_some(End::Asked)
    }

    /// Somebody asked to stop: a leader first hands leadership to a voter that holds as much as it
    /// does, so that the cluster is not without one for an election timeout, and callers get
    /// their answers. False if asked a second time: then it ends at once.
    fn leave(&mut self, now: Micros) -> bool {
        if self.leaving.is_some() {
            return false;
        }
        let until = now + self.handover;
        self.leaving = Some(Leaving { transfer: None, until });
        self.state.update(|p| p.phase = Phase::Stopping);
        let status = self.replica.status(now);
        let Some(to) = successor(&status) else { return true };
        tracing::info!("hands leadership to {}", status.membership.name_of(to));
        let ticket = self.next_ticket;
        self.next_ticket = ticket.next();
        if let Some(leaving) = &mut self.leaving {
            leaving.transfer = Some(ticket);
        }
        let call = Call::Transfer { to };
        self.step(now, ReplicaInput::Call { ticket, call, deadline: until });
        true
    }

    fn next_input(&self, now: Micros) -> Option<Input> {
        if let Ok(input) = self.inbox.try_recv() {
            return Some(input);
        }
        let publish_at = self.dirty.map(|since| since + PUBLISH_WITHIN);
        let leave_at = self.leaving.as_ref().map(|leaving| leaving.until);
        let wakes = [self.replica.next_deadline(), publish_at, leave_at];
        let until = wakes.into_iter().flatten().min();
        let nap = until.map_or(NAP, |t| Duration::from_micros(t.saturating_sub(now)).min(NAP));
        // The time is up; no sender can be gone, as one lives in `Node`, which outlives this loop.
        self.inbox.recv_timeout(nap).ok()
    }

    fn wake_if_due(&mut self, now: Micros) {
        if self.replica.next_deadline().is_some_and(|at| at <= now) {
            self.step(now, ReplicaInput::Wake);
        }
    }

    /// What is published must not grow old where nothing happens, in an idle cluster of one: the
    /// guard asks when the leader was last heard (R35).
    fn refresh_if_idle(&mut self, now: Micros) {
        if now >= self.published_at + REFRESH {
            self.step(now, ReplicaInput::Wake);
            self.publish(now);
        }
    }

    /// Feeds one input; false if it asks to stop.
    fn take(&mut self, now: Micros, input: Input) -> bool {
        let input = match input {
            Input::Peer(PeerEvent::Message { from, message, permit }) => {
                drop(permit);
                ReplicaInput::Message { from, message: *message }
            }
            Input::Peer(PeerEvent::Undelivered(to, message)) => match bounce(to, *message) {
                Some(input) => input,
                None => return true,
            },
            Input::Peer(PeerEvent::Reset(peer)) => ReplicaInput::PeerReset(peer),
            Input::Peer(PeerEvent::Hello(_) | PeerEvent::Gone(_)) => return true,
            Input::Done(done) => ReplicaInput::Done(*done),
            Input::Damaged(fault) => ReplicaInput::Damaged(fault),
            Input::Call(call) if self.leaving.is_some() => {
                let refused = Outcome::NotCommitted(Refusal::Stopping);
                if call.reply.send(refused).is_err() {
                    self.metrics.event("caller_left");
                }
                return true;
            }
            Input::Call(call) => {
                self.metrics.inbox_depth.fetch_sub(1, Ordering::Relaxed);
                let ticket = self.next_ticket;
                self.next_ticket = ticket.next();
                let waiting = Waiting { reply: call.reply, _permit: call.permit };
                self.waiting.insert(ticket, waiting);
                ReplicaInput::Call { ticket, call: call.call, deadline: call.deadline }
            }
            Input::Stop => return self.leave(now),
        };
        self.step(now, input);
        true
    }

    fn step(&mut self, now: Micros, input: ReplicaInput<RealLog, RealStore>) {
        if self.stopped.is_some() {
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        self.replica.step(now, input, &mut out);
        if !out.is_empty() {
            self.dirty.get_or_insert(now);
        }
        for effect in out.drain(..) {
            self.carry_out(effect);
        }
        self.out = out;
        // Each bounced call waits in the replica before it is sent again, so this ends.
        while let Some(input) = self.bounced.pop() {
            self.step(now, input);
        }
    }

    fn carry_out(&mut self, effect: ReplicaEffect<RealLog, RealStore>) {
        match effect {
            ReplicaEffect::Send { to, message, lane } => {
                if matches!(message, Message::Forward { .. }) {
                    self.metrics.forwarded.fetch_add(1, Ordering::Relaxed);
                }
                if let Err(unsent) = self.peers.send(to, message, lane) {
                    self.bounced.extend(bounce(to, *unsent));
                }
            }
            ReplicaEffect::Run(job) => self.lanes.run(job),
            ReplicaEffect::Answer { ticket, outcome } => self.answer(ticket, outcome),
            ReplicaEffect::Observe(event) => self.observe(&event),
            ReplicaEffect::Stop(reason) => self.stopped = Some(reason),
        }
    }

    fn answer(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some(leaving) = &mut self.leaving
            && leaving.transfer == Some(ticket)
        {
            leaving.transfer = None;
            return match outcome {
                Outcome::NotCommitted(why) | Outcome::Unknown(why) => {
                    tracing::info!("leadership was not handed over: {why}");
                }
                _ => tracing::info!("leadership was handed over"),
            };
        }
        let Some(waiting) = self.waiting.remove(&ticket) else { return };
        if waiting.reply.send(outcome).is_err() {
            // The client hung up: the outcome stands all the same.
            self.metrics.event("caller_left");
        }
    }

    fn observe(&mut self, event: &Event) {
        match event {
            Event::Membership { .. } => {
                self.names = self.replica.status(clock::now()).membership;
                self.urgent = true;
            }
            Event::Leader { leader: Some(leader), .. }
                if !self.names.names.contains_key(leader) =>
            {
                // Adopted, and the first configuration is still on its way: the handshakes know.
                for (name, seen) in self.peers.seen() {
                    self.names.names.insert(seen.hello.member, name);
                }
                self.urgent = true;
            }
            Event::Role { .. } | Event::Leader { .. } => self.urgent = true,
            _ => {}
        }
        observe::report(event, &self.names, &self.metrics);
    }

    fn publish_if_due(&mut self, now: Micros) {
        let due = self.dirty.is_some_and(|since| now >= since + PUBLISH_WITHIN);
        if due || self.urgent {
            self.publish(now);
        }
    }

    /// Publishes the status, and what new connections tell the peers.
    pub(super) fn publish(&mut self, now: Micros) {
        (self.dirty, self.urgent) = (None, false);
        self.published_at = now;
        let status = self.replica.status(now);
        if self.names != status.membership && !status.membership.names.is_empty() {
            self.names = status.membership.clone();
        }
        self.peers.present(false, |me| {
            me.term = status.hard.term;
            me.durable = status.proved;
            me.commit = status.commit;
            if me.membership != status.membership {
                me.membership = status.membership.clone();
            }
        });
        self.state.update(|p| {
            p.caught_up |= status.not_ready.is_none();
            p.replica = Some(status);
        });
    }

    /// Answers everybody who still waits.
    pub(super) fn dismiss(&mut self) {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            if waiting.reply.send(Outcome::Unknown(Refusal::Stopping)).is_err() {
                self.metrics.event("caller_left");
            }
        }
    }
}

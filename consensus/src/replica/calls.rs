//! Calls that wait for an outcome: clients of this replica, and peers that passed a call on.
//!
//! What is answered: *committed* with the state machine's reply; *not committed* only for what
//! never entered a log, or once the commit index covers its place with another term; *unknown*
//! for everything else.

use super::Replica;
use super::confirm::{Inquiry, Step, confirm_result};
use crate::event::RoleKind;
use crate::fault::Refusal;
use crate::io::Input;
use crate::job::{Call, ReplicaEffect};
use crate::message::{Message, Outcome, SendLane};
use crate::traits::{LogStore, StateMachine};
use crate::types::{Index, LogId, MemberId, Micros, Term, Ticket};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Charged for every waiting call beside its command, in bytes.
const WAITER_BYTES: usize = 256;
/// How long a call whose entry was cut here still waits to learn what became of it.
const CUT_GRACE: Micros = 1_000_000;
/// Pause before calls that found no leader, or not the one they hoped for, try again.
pub(super) const HELD_AGAIN: Micros = 50_000;

/// Who waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Local(Ticket),
    Peer(MemberId, Ticket),
}

/// What a call waits for.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// A leader to take the command.
    Held(Bytes),
    /// The own core was given the command and answers within the step.
    Proposed(Bytes),
    /// The entry at this place.
    Placed(LogId),
    /// The answer of the leader of this term.
    Forwarded { to: MemberId, term: Term, command: Bytes },
    /// It is committed: the local replica is to apply it first.
    Local { at: LogId, result: Bytes },
    /// A leader to confirm a read.
    ReadHeld,
    /// The own core confirms leadership.
    Reading,
    /// The leader confirms leadership.
    ReadForwarded { to: MemberId, sent: Micros },
    /// The local replica is to apply this.
    ReadAt(Index),
    /// Leadership moves.
    Transfer(MemberId),
    /// A proven leader's answer to a question.
    Confirm(Inquiry),
}

/// The sets of [`Calls`] that name a waiter because of its state.
enum Listed {
    Placed(LogId),
    Local(Index),
    Held,
    Forwarded(Bytes),
    Answerable,
    Nowhere,
}

impl Waiter {
    fn listed(&self) -> Listed {
        match &self.state {
            State::Placed(at) => Listed::Placed(*at),
            State::Local { at, .. } => Listed::Local(at.index),
            State::ReadAt(index) => Listed::Local(*index),
            State::Held(_) | State::ReadHeld | State::ReadForwarded { .. } => Listed::Held,
            State::Forwarded { command, .. } if self.unique => Listed::Forwarded(command.clone()),
            State::Confirm(inquiry) => match &inquiry.step {
                Step::Held | Step::Asked { .. } => Listed::Held,
                Step::Applying { index, .. } => Listed::Local(*index),
                Step::Told(confirmation) => Listed::Local(confirmation.index),
                Step::Answerable { .. } => Listed::Answerable,
                Step::Proving { .. } | Step::Reading { .. } => Listed::Nowhere,
            },
            State::Proposed(_) | State::Forwarded { .. } | State::Reading | State::Transfer(_) => {
                Listed::Nowhere
            }
        }
    }
}

pub(super) struct Waiter {
    pub(super) origin: Origin,
    pub(super) deadline: Micros,
    /// When the wait in this very state ends: the deadline, or earlier.
    due: Micros,
    weight: usize,
    /// True while the replica may tell the command's fate from the entries it applies: its bytes
    /// are unique, and no snapshot has hidden entries since it was passed on.
    unique: bool,
    pub(super) state: State,
}

/// All waiting calls. Invariant: `due`, `placed`, `local`, `forwarded` and `answerable` name exactly
/// the waiters that are in such a state (`forwarded` only the unique ones), and `bytes` is the sum of
/// their weights.
pub(super) struct Calls {
    /// The next name of a waiter. Begins with the boot number, so that no answer to a call of an
    /// earlier start of this member can be taken for one of this start.
    next: u64,
    waiters: BTreeMap<u64, Waiter>,
    due: BTreeSet<(Micros, u64)>,
    placed: BTreeMap<(Index, Term), u64>,
    local: BTreeSet<(Index, u64)>,
    forwarded: BTreeMap<Bytes, u64>,
    /// Calls that try again when a leader appears, or at `held_again`.
    held: BTreeSet<u64>,
    held_again: Option<Micros>,
    /// Questions for which this leader has proved itself and applied what it must.
    answerable: BTreeSet<u64>,
    bytes: usize,
    /// Commit index up to which places were compared with what was committed.
    compared: Index,
}

impl Calls {
    pub(super) fn new(boot: u64) -> Self {
        Self {
            next: (boot & 0x00ff_ffff) << 40 | 1,
            waiters: BTreeMap::new(),
            due: BTreeSet::new(),
            placed: BTreeMap::new(),
            local: BTreeSet::new(),
            forwarded: BTreeMap::new(),
            held: BTreeSet::new(),
            held_again: None,
            answerable: BTreeSet::new(),
            bytes: 0,
            compared: Index(0),
        }
    }

    pub(super) fn deadline(&self) -> Option<Micros> {
        let due = self.due.first().map(|(at, _)| *at);
        [due, self.held_again].into_iter().flatten().min()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    /// Bytes charged for the waiting calls.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn admit(&mut self, origin: Origin, deadline: Micros, len: usize, state: State) -> u64 {
        let weight = WAITER_BYTES + len;
        let waiter = Waiter { origin, deadline, due: deadline, weight, unique: false, state };
        self.bytes += waiter.weight;
        self.insert(waiter)
    }

    fn insert(&mut self, waiter: Waiter) -> u64 {
        let id = self.next;
        self.next += 1;
        self.due.insert((waiter.due, id));
        match waiter.listed() {
            Listed::Placed(at) => drop(self.placed.insert((at.index, at.term), id)),
            Listed::Local(index) => drop(self.local.insert((index, id))),
            Listed::Held => drop(self.held.insert(id)),
            Listed::Forwarded(command) => drop(self.forwarded.insert(command, id)),
            Listed::Answerable => drop(self.answerable.insert(id)),
            Listed::Nowhere => {}
        }
        self.waiters.insert(id, waiter);
        id
    }

    fn take(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.due.remove(&(waiter.due, id));
        match waiter.listed() {
            Listed::Placed(at) => drop(self.placed.remove(&(at.index, at.term))),
            Listed::Local(index) => drop(self.local.remove(&(index, id))),
            Listed::Held => drop(self.held.remove(&id)),
            Listed::Forwarded(command) => drop(self.forwarded.remove(&command)),
            Listed::Answerable => drop(self.answerable.remove(&id)),
            Listed::Nowhere => {}
        }
        Some(waiter)
    }

    /// Gives a waiter another state and, with it, another name: an answer to the old name finds
    /// nobody, so no late or repeated answer can decide about a newer attempt.
    pub(super) fn turn(&mut self, id: u64, state: State) -> Option<u64> {
        let waiter = self.take(id)?;
        // A wait that was cut short ends with its state: the next one has the whole time again.
        Some(self.insert(Waiter { state, due: waiter.deadline, ..waiter }))
    }

    /// Marks a waiter's command as unique, before it is passed on.
    fn set_unique(&mut self, id: u64) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.unique = true;
        }
    }

    /// The first `most` questions that may be answered from the state now.
    pub(super) fn answerable(&self, most: usize) -> Vec<u64> {
        self.answerable.iter().copied().take(most).collect()
    }

    /// True if entries must be reported as they are applied.
    pub(super) fn any_forwarded(&self) -> bool {
        !self.forwarded.is_empty()
    }

    /// The unique waiter whose command was passed on with these bytes.
    pub(super) fn forwarded_as(&self, command: &Bytes) -> Option<u64> {
        self.forwarded.get(command).copied()
    }

    /// Unique waiters whose command was passed on to the leader of a term before `term`.
    pub(super) fn forwarded_before(&self, before: Term) -> Vec<(u64, Bytes)> {
        let waiting = self.forwarded.values().filter_map(|id| Some((*id, self.waiters.get(id)?)));
        let early = |(id, waiter): (u64, &Waiter)| match &waiter.state {
            State::Forwarded { term, command, .. } if *term < before => Some((id, command.clone())),
            _ => None,
        };
        waiting.filter_map(early).collect()
    }

    /// A snapshot has hidden entries: what is passed on now can only be learned from the leader.
    pub(super) fn blind_forwarded(&mut self) {
        for id in std::mem::take(&mut self.forwarded).into_values() {
            if let Some(waiter) = self.waiters.get_mut(&id) {
                waiter.unique = false;
            }
        }
    }

    fn shorten(&mut self, id: u64, latest: Micros) {
        if let Some(waiter) = self.waiters.get_mut(&id)
            && waiter.due > latest
        {
            self.due.remove(&(waiter.due, id));
            waiter.due = latest;
            self.due.insert((latest, id));
        }
    }
}

/// The first eight bytes of a waiter's name are its ticket at core and peers.
pub(super) const fn ticket(id: u64) -> Ticket {
    Ticket(id)
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// Ends a wait.
    pub(super) fn conclude(&mut self, id: u64, outcome: Outcome) {
        let Some(waiter) = self.calls.take(id) else { return };
        self.calls.bytes -= waiter.weight;
        match (waiter.origin, waiter.state) {
            (Origin::Local(ticket), _) => self.out.push(ReplicaEffect::Answer { ticket, outcome }),
            (Origin::Peer(to, ticket), State::Confirm(_)) => {
                let result = confirm_result(outcome);
                self.send(to, Message::ConfirmReply { ticket, result }, SendLane::Urgent);
            }
            (Origin::Peer(to, ticket), State::Reading | State::ReadHeld) => {
                let result = match outcome {
                    Outcome::Ready { applied, .. } => Ok(applied),
                    Outcome::NotCommitted(why) | Outcome::Unknown(why) => Err(why),
                    Outcome::Committed { at, .. } => Ok(at.index),
                    Outcome::Confirmed(confirmation) => Ok(confirmation.index),
                };
                self.send(to, Message::ReadIndexReply { ticket, result }, SendLane::Urgent);
            }
            (Origin::Peer(to, ticket), _) => {
                self.send(to, Message::ForwardReply { ticket, outcome }, SendLane::Urgent);
            }
        }
    }

    /// Admits a call if the budget allows it.
    pub(super) fn admit(
        &mut self,
        origin: Origin,
        deadline: Micros,
        len: usize,
        state: State,
    ) -> Result<u64, Refusal> {
        if len > self.config.core.command_bytes {
            return Err(Refusal::TooLarge);
        }
        if deadline <= self.now {
            return Err(Refusal::Deadline);
        }
        if self.calls.bytes + len + WAITER_BYTES > self.config.waiting_bytes {
            return Err(Refusal::Busy);
        }
        Ok(self.calls.admit(origin, deadline, len, state))
    }

    pub(super) fn on_call(&mut self, ticket: Ticket, call: Call, deadline: Micros) {
        let unique = matches!(call, Call::ProposeUnique { .. });
        let (len, state) = match call {
            Call::Confirm { question } => return self.on_confirm_call(ticket, question, deadline),
            Call::Propose { command } | Call::ProposeUnique { command } => {
                (command.len(), State::Held(command))
            }
            Call::Barrier => (0, State::ReadHeld),
            Call::Transfer { to } => (0, State::Transfer(to)),
        };
        match self.admit(Origin::Local(ticket), deadline, len, state) {
            Ok(id) => {
                if unique {
                    self.calls.set_unique(id);
                }
                self.route(id);
            }
            Err(why) => {
                let outcome = Outcome::NotCommitted(why);
                self.out.push(ReplicaEffect::Answer { ticket, outcome });
            }
        }
    }

    /// Sends a call where it has to go now: the own core, the leader, or nowhere yet.
    pub(super) fn route(&mut self, id: u64) {
        let leads = self.core.role() == RoleKind::Leader;
        let leader = self.core.leader().filter(|leader| *leader != self.core.member());
        let Some(waiter) = self.calls.get(id) else { return };
        match waiter.state.clone() {
            State::Held(command) if leads => {
                let proposed = State::Proposed(command.clone());
                let Some(id) = self.calls.turn(id, proposed) else { return };
                let (frees, batch) = (M::frees(&command), vec![(ticket(id), command)]);
                self.feed(if frees { Input::Free { batch } } else { Input::Propose { batch } });
            }
            State::Held(command) => {
                if let Some(to) = leader {
                    self.forward(id, to, command);
                }
            }
            State::ReadHeld | State::ReadForwarded { .. } if leads => {
                let deadline = waiter.deadline;
                let Some(id) = self.calls.turn(id, State::Reading) else { return };
                self.feed(Input::ReadIndex { ticket: ticket(id), deadline });
            }
            State::ReadHeld | State::ReadForwarded { .. } => match leader {
                Some(to) => self.forward_read(id, to),
                None => {
                    self.calls.turn(id, State::ReadHeld);
                }
            },
            State::Transfer(to) => self.begin_transfer(id, to, leads),
            State::Confirm(_) => self.route_inquiry(id, leader),
            _ => {}
        }
    }

    fn begin_transfer(&mut self, id: u64, to: MemberId, leads: bool) {
        if self.core.leader() == Some(to) {
            let applied = self.apply.applied.last.index;
            return self.conclude(id, Outcome::Ready { applied, age: 0 });
        }
        if !leads {
            let hint = self.core.leader();
            return self.conclude(id, Outcome::NotCommitted(Refusal::NotLeader { hint }));
        }
        if !self.core.membership().1.is_voter(to) {
            return self.conclude(id, Outcome::NotCommitted(Refusal::NotVoter));
        }
        self.feed(Input::Transfer { to });
    }

    /// A leader appeared, vanished, or became another: calls without a place look again. A read
    /// takes no effect, so one under way may simply be asked again; a forwarded write may not.
    pub(super) fn on_leader_change(&mut self) {
        self.retry_held(true);
        let leader = self.core.leader();
        if let Some(leader) = leader {
            self.hurry_forwarded(leader);
        }
        let moved: Vec<(u64, MemberId)> = self
            .calls
            .waiters
            .iter()
            .filter_map(|(id, w)| match w.state {
                State::Transfer(to) => Some((*id, to)),
                _ => None,
            })
            .collect();
        for (id, to) in moved {
            if leader == Some(to) {
                let applied = self.apply.applied.last.index;
                self.conclude(id, Outcome::Ready { applied, age: 0 });
            } else if leader.is_some_and(|leader| leader != self.core.member()) {
                self.conclude(id, Outcome::NotCommitted(Refusal::LostLeadership));
            }
        }
    }

    /// Writes that were passed on to a member that no longer leads: it answers soon or never, and
    /// a caller that learns early that the outcome is unknown can look and decide.
    fn hurry_forwarded(&mut self, leader: MemberId) {
        let stale: Vec<u64> = self
            .calls
            .waiters
            .iter()
            .filter(|(_, w)| {
                // A unique one is settled by what is applied, and then passed on again.
                !w.unique && matches!(w.state, State::Forwarded { to, .. } if to != leader)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            self.calls.shorten(id, self.now + CUT_GRACE);
        }
    }

    fn retry_held(&mut self, at_once: bool) {
        self.calls.held_again = None;
        let held: Vec<u64> = self.calls.held.iter().copied().collect();
        for id in held {
            let fresh = match self.calls.get(id).map(|w| &w.state) {
                Some(State::ReadForwarded { sent, .. }) => {
                    !at_once && *sent + 4 * HELD_AGAIN > self.now
                }
                Some(State::Confirm(inquiry)) => !at_once && inquiry.asked_lately(self.now),
                _ => false,
            };
            if !fresh {
                self.route(id);
            }
        }
        self.hold_again();
    }

    /// Looks again soon if something is held although a leader is known.
    pub(super) fn hold_again(&mut self) {
        let known = self.core.leader().is_some();
        if known && !self.calls.held.is_empty() && self.calls.held_again.is_none() {
            self.calls.held_again = Some(self.now + HELD_AGAIN);
        }
    }

    /// The core gave a command its place.
    pub(super) fn on_accepted(&mut self, ticket: Ticket, at: LogId) {
        self.calls.turn(ticket.0, State::Placed(at));
    }

    /// The core refused a command or read: it never entered the log.
    pub(super) fn on_refused(&mut self, ticket: Ticket, why: Refusal) {
        let id = ticket.0;
        let Some(waiter) = self.calls.get(id) else { return };
        let elsewhere = matches!(why, Refusal::NotLeader { .. });
        let again = match (&waiter.origin, &waiter.state) {
            (Origin::Local(_), State::Proposed(command)) => Some(State::Held(command.clone())),
            (Origin::Local(_), State::Reading) => Some(State::ReadHeld),
            (Origin::Local(_), State::Confirm(inquiry)) => Some(State::Confirm(inquiry.held())),
            _ => None,
        };
        match again.filter(|_| elsewhere) {
            Some(state) => {
                // Not routed at once: a leader that is handing over refuses as well.
                self.calls.turn(id, state);
                self.hold_again();
            }
            None => self.conclude(id, Outcome::NotCommitted(why)),
        }
    }

    /// Entries were cut: what became of the calls behind them shows when the commit index covers
    /// their places. They do not wait for that much longer.
    pub(super) fn on_lost(&mut self, from: Index) {
        let lost: Vec<u64> =
            self.calls.placed.range((from, Term(0))..).map(|(_, id)| *id).collect();
        for id in lost {
            self.calls.shorten(id, self.now + CUT_GRACE);
        }
    }

    /// The commit index rose: a place that another entry took is not committed for sure.
    pub(super) fn compare_places(&mut self, through: Index) {
        let from = self.calls.compared.next();
        if through < from {
            return;
        }
        self.calls.compared = through;
        let range = (from, Term(0))..=(through, Term(u64::MAX));
        let places: Vec<_> = self.calls.placed.range(range).map(|(at, id)| (*at, *id)).collect();
        for ((index, term), id) in places {
            match self.core.term_at(index) {
                Some(committed) if committed == term => {}
                Some(_) => self.conclude(id, Outcome::NotCommitted(Refusal::LostLeadership)),
                // A snapshot covers the place and does not say what was there.
                None => self.conclude(id, Outcome::Unknown(Refusal::LostLeadership)),
            }
        }
    }

    /// Entries were applied: answers who waited for them.
    pub(super) fn answer_applied(&mut self, replies: Vec<(Index, Bytes)>) {
        let through = self.apply.applied.last.index;
        self.apply.floor = self.apply.floor.max(through);
        for (index, result) in replies {
            let place = self.calls.placed.range((index, Term(0))..=(index, Term(u64::MAX))).next();
            let Some(((index, term), id)) = place.map(|(at, id)| (*at, *id)) else { continue };
            let at = LogId { term, index };
            self.conclude(id, Outcome::Committed { at, result });
        }
        // What is applied without a reply came with a snapshot, or the store had it already.
        let silent = (Index(0), Term(0))..=(through, Term(u64::MAX));
        let silent: Vec<u64> = self.calls.placed.range(silent).map(|(_, id)| *id).collect();
        for id in silent {
            self.conclude(id, Outcome::Unknown(Refusal::LostLeadership));
        }
        self.answer_local();
    }

    /// Answers calls that wait for the local replica.
    pub(super) fn answer_local(&mut self) {
        while let Some((index, id)) = self.calls.local.first().copied() {
            if !self.apply.covers(index) {
                return;
            }
            let applied = self.apply.applied.last.index;
            let outcome = match self.calls.get(id).map(|w| w.state.clone()) {
                Some(State::Local { at, result }) => Outcome::Committed { at, result },
                Some(State::Confirm(inquiry)) => {
                    self.on_inquiry_applied(id, inquiry);
                    continue;
                }
                _ => Outcome::Ready { applied, age: 0 },
            };
            self.conclude(id, outcome);
        }
    }

    /// A forwarded write is committed: it is answered once the local replica has applied it, or
    /// has taken too long over it.
    pub(super) fn await_local(&mut self, id: u64, at: LogId, result: Bytes) {
        if self.apply.covers(at.index) {
            return self.conclude(id, Outcome::Committed { at, result });
        }
        if let Some(id) = self.calls.turn(id, State::Local { at, result }) {
            self.calls.shorten(id, self.now + self.config.read_your_writes);
        }
    }

    /// A read may be served at this index.
    pub(super) fn on_read_at(&mut self, ticket: Ticket, index: Index) {
        let id = ticket.0;
        if let Some(State::Confirm(inquiry)) = self.calls.get(id).map(|w| w.state.clone()) {
            return self.on_proved(id, inquiry, index);
        }
        match self.calls.get(id).map(|w| w.origin) {
            // A peer waits for its own replica, not for this one.
            Some(Origin::Peer(..)) => {
                self.conclude(id, Outcome::Ready { applied: index, age: 0 });
            }
            Some(Origin::Local(_)) => {
                self.calls.turn(id, State::ReadAt(index));
                self.answer_local();
            }
            None => {}
        }
    }

    /// Ends what has waited long enough, and tries held calls again.
    pub(super) fn expire_calls(&mut self) {
        let now = self.now;
        while let Some((at, id)) = self.calls.due.first().copied()
            && at <= now
        {
            let Some(waiter) = self.calls.get(id) else { break };
            let outcome = match &waiter.state {
                State::Placed(_) | State::Forwarded { .. } | State::Proposed(_)
                    if waiter.due < waiter.deadline =>
                {
                    Outcome::Unknown(Refusal::LostLeadership)
                }
                State::Placed(_) | State::Forwarded { .. } | State::Proposed(_) => {
                    Outcome::Unknown(Refusal::Deadline)
                }
                State::Local { at, result } => {
                    Outcome::Committed { at: *at, result: result.clone() }
                }
                _ => Outcome::NotCommitted(Refusal::Deadline),
            };
            self.conclude(id, outcome);
        }
        if self.calls.held_again.is_some_and(|at| at <= now) {
            self.retry_held(false);
        }
    }

    /// The replica stops: nobody is left waiting.
    pub(super) fn answer_stopping(&mut self) {
        while let Some((_, id)) = self.calls.due.first().copied() {
            let Some(waiter) = self.calls.get(id) else { break };
            let outcome = match &waiter.state {
                State::Local { at, result } => {
                    Outcome::Committed { at: *at, result: result.clone() }
                }
                State::Placed(_) | State::Forwarded { .. } | State::Proposed(_) => {
                    Outcome::Unknown(Refusal::Stopping)
                }
                _ => Outcome::NotCommitted(Refusal::Stopping),
            };
            self.conclude(id, outcome);
        }
    }
}

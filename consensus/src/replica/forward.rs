//! Calls between replicas: passed on to the leader, and served for a peer.

use super::Replica;
use super::calls::{Origin, State, ticket};
use crate::event::RoleKind;
use crate::fault::Refusal;
use crate::message::{Message, Outcome, SendLane};
use crate::traits::{LogStore, StateMachine};
use crate::types::{Index, LogId, MemberId, Term, Ticket};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Tickets remembered for each peer.
const REMEMBERED: usize = 4096;

/// Tickets of forwarded calls that were seen, so that a message that the network repeats is not
/// proposed twice. A peer's tickets rise, through its restarts too, so the lowest can be forgotten:
/// whatever is below them counts as seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    peers: BTreeMap<MemberId, (Ticket, BTreeSet<Ticket>)>,
}

impl Seen {
    /// True if this is the first time.
    fn first_time(&mut self, peer: MemberId, ticket: Ticket) -> bool {
        let (floor, seen) = self.peers.entry(peer).or_default();
        if ticket <= *floor || !seen.insert(ticket) {
            return false;
        }
        if seen.len() > REMEMBERED
            && let Some(lowest) = seen.pop_first()
        {
            *floor = lowest;
        }
        true
    }
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// Passes a command on to the leader.
    pub(super) fn forward(&mut self, id: u64, to: MemberId, command: Bytes) {
        let term = self.core.hard().term;
        let state = State::Forwarded { to, term, command: command.clone() };
        let Some(id) = self.calls.turn(id, state) else { return };
        let Some(waiter) = self.calls.get(id) else { return };
        let within = waiter.deadline.saturating_sub(self.now);
        let message = Message::Forward { ticket: ticket(id), term, command, within };
        self.send(to, message, SendLane::Bulk);
    }

    /// Asks the leader for a read index.
    pub(super) fn forward_read(&mut self, id: u64, to: MemberId) {
        let state = State::ReadForwarded { to, sent: self.now };
        let Some(id) = self.calls.turn(id, state) else { return };
        let Some(waiter) = self.calls.get(id) else { return };
        let within = waiter.deadline.saturating_sub(self.now);
        self.send(to, Message::ReadIndex { ticket: ticket(id), within }, SendLane::Urgent);
        self.hold_again();
    }

    /// A peer passes a command on.
    pub(super) fn on_forward(
        &mut self,
        from: MemberId,
        ticket: Ticket,
        term: Term,
        command: Bytes,
        within: u64,
    ) {
        if !self.seen.first_time(from, ticket) {
            return self.dropped("repeated-forward");
        }
        // Keeps: what was passed on to the leader of a term enters the log in that term or never,
        // which is what `settle_forwarded` concludes from.
        let meant = self.core.role() == RoleKind::Leader && self.core.hard().term == term;
        let refusal = if meant {
            let deadline = self.now.saturating_add(within);
            let (origin, len) = (Origin::Peer(from, ticket), command.len());
            match self.admit(origin, deadline, len, State::Held(command)) {
                Ok(id) => return self.route(id),
                Err(why) => why,
            }
        } else {
            Refusal::NotLeader { hint: self.core.leader() }
        };
        let outcome = Outcome::NotCommitted(refusal);
        self.send(from, Message::ForwardReply { ticket, outcome }, SendLane::Urgent);
    }

    /// A peer asks for a read index.
    pub(super) fn on_read_index(&mut self, from: MemberId, ticket: Ticket, within: u64) {
        let refusal = if self.core.role() == RoleKind::Leader {
            let deadline = self.now.saturating_add(within);
            match self.admit(Origin::Peer(from, ticket), deadline, 0, State::ReadHeld) {
                Ok(id) => return self.route(id),
                Err(why) => why,
            }
        } else {
            Refusal::NotLeader { hint: self.core.leader() }
        };
        let message = Message::ReadIndexReply { ticket, result: Err(refusal) };
        self.send(from, message, SendLane::Urgent);
    }

    /// The leader's answer to a command. A ticket names one attempt at one leader, so an answer
    /// can decide about nothing else.
    pub(super) fn on_forward_reply(&mut self, from: MemberId, ticket: Ticket, outcome: Outcome) {
        let id = ticket.0;
        let command = match self.calls.get(id).map(|w| &w.state) {
            Some(State::Forwarded { to, command, .. }) if *to == from => command.clone(),
            _ => return self.dropped("forward-reply"),
        };
        match outcome {
            Outcome::Committed { at, result } => self.await_local(id, at, result),
            Outcome::NotCommitted(Refusal::NotLeader { .. }) => {
                // It never entered that member's log, so another attempt is safe. At once only
                // if another leader is known by now.
                let other = self.core.leader().is_some_and(|leader| leader != from);
                let id = self.calls.turn(id, State::Held(command));
                match id.filter(|_| other) {
                    Some(id) => self.route(id),
                    None => self.hold_again(),
                }
            }
            Outcome::NotCommitted(why) => self.conclude(id, Outcome::NotCommitted(why)),
            Outcome::Unknown(why) => self.conclude(id, Outcome::Unknown(why)),
            Outcome::Ready { .. } | Outcome::Confirmed(_) => self.dropped("forward-reply"),
        }
    }

    /// Entries were applied here: settles unique commands whose leader has not answered.
    ///
    /// A command that was passed on to the leader of term T enters the log in T or never. Once an
    /// entry of a later term is applied, every entry of T that will ever commit lies before it and
    /// has been seen here; a command that was not among them can safely be passed on again.
    pub(super) fn settle_forwarded(
        &mut self,
        commands: &[(LogId, Bytes)],
        replies: &[(Index, Bytes)],
    ) {
        for (at, command) in commands {
            let Some(id) = self.calls.forwarded_as(command) else { continue };
            match replies.binary_search_by_key(&at.index, |(index, _)| *index) {
                Ok(found) => {
                    let result = replies[found].1.clone();
                    self.conclude(id, Outcome::Committed { at: *at, result });
                }
                // The store held it already and does not say what it answered.
                Err(_) => self.conclude(id, Outcome::Unknown(Refusal::LostLeadership)),
            }
        }
        let term = self.apply.applied.last.term;
        for (id, command) in self.calls.forwarded_before(term) {
            if let Some(id) = self.calls.turn(id, State::Held(command)) {
                self.mark("forwarded-again");
                self.route(id);
            }
        }
        self.hold_again();
    }

    /// The leader's answer to a read.
    pub(super) fn on_read_index_reply(
        &mut self,
        from: MemberId,
        ticket: Ticket,
        result: Result<Index, Refusal>,
    ) {
        let id = ticket.0;
        match self.calls.get(id).map(|w| &w.state) {
            Some(State::ReadForwarded { to, .. }) if *to == from => {}
            _ => return self.dropped("read-index-reply"),
        }
        match result {
            Ok(index) => {
                self.calls.turn(id, State::ReadAt(index));
                self.answer_local();
            }
            Err(Refusal::NotLeader { .. }) => {
                self.calls.turn(id, State::ReadHeld);
                self.hold_again();
            }
            Err(why) => self.conclude(id, Outcome::NotCommitted(why)),
        }
    }
}

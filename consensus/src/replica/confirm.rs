//! Questions about the replicated state that only a proven leader may answer: the second line of
//! the guard (SCENARIOS sections 4 and 5, DESIGN section 4 rule 8).
//!
//! A replica that was restored from a snapshot does not know what it missed, and a leader that was
//! just elected may still be replaying: "I am the leader" proves nothing about the state. So the
//! responder proves itself, also when it asks itself:
//!
//! 1. it leads ([`Replica::on_confirm`]);
//! 2. its core confirms leadership in this term by a quorum round sent after the question arrived,
//!    behind a committed entry of its own term ([`Replica::prove`], R40);
//! 3. its own state machine has applied everything committed before that ([`Replica::on_proved`]);
//! 4. it still leads the same term ([`Replica::still_leads`]): asked before and after the read;
//! 5. only then the state is read, away from the driver, and the answer names term and index.
//!
//! The asker takes an answer only to its newest attempt ([`Replica::asked_of`], N27), not from a
//! term that it knows to be over ([`Replica::is_outdated`], N2), and tells its caller only once its
//! own replica has applied at least the index of the answer ([`Replica::on_told`]). Everything
//! else is a refusal, which says "unknown". One deadline spans the whole wait (N7).
//!
//! Nothing here writes to the log. Questions that arrive while a round is under way share the next
//! one, and one job answers many.

use super::Replica;
use super::calls::{HELD_AGAIN, Origin, State, ticket};
use crate::event::RoleKind;
use crate::fault::Refusal;
use crate::io::Input;
use crate::job::{Job, Lane, ReplicaEffect, SideDone, SideJob};
use crate::message::{
    CONFIRM_ANSWER_MAX, CONFIRM_QUESTION_MAX, Confirmation, Message, Outcome, SendLane,
};
use crate::traits::{LogStore, StateMachine};
use crate::types::{Index, MemberId, Micros, Term, Ticket};
use bytes::Bytes;

/// Most questions that one job answers: a job is a bounded step.
const ANSWERS_PER_JOB: usize = 64;

/// The lane that answers questions: true while its job is out.
#[derive(Debug, Default)]
pub(super) struct Answering(bool);

/// A question and how far it has come.
#[derive(Clone, Debug)]
pub(super) struct Inquiry {
    question: Bytes,
    pub(super) step: Step,
}

/// What a question waits for.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A leader to take it.
    Held,
    /// The leader's answer.
    Asked { to: MemberId, sent: Micros },
    /// This leader proves itself in this term.
    Proving { term: Term },
    /// This leader's own machine is to apply what its proof covers.
    Applying { term: Term, index: Index },
    /// The lane that answers.
    Answerable { term: Term, index: Index },
    /// The state is being read.
    Reading { term: Term, index: Index },
    /// It is answered: the asker's own replica is to apply that much.
    Told(Confirmation),
}

impl Inquiry {
    fn at(self, step: Step) -> State {
        State::Confirm(Self { step, ..self })
    }

    /// The same question, not asked anywhere.
    pub(super) fn held(&self) -> Self {
        Self { question: self.question.clone(), step: Step::Held }
    }

    /// True while the leader still has time to answer before it is asked again.
    pub(super) fn asked_lately(&self, now: Micros) -> bool {
        matches!(self.step, Step::Asked { sent, .. } if sent + 4 * HELD_AGAIN > now)
    }
}

/// What a peer is told: anything but an answer is a refusal.
pub(super) fn confirm_result(outcome: Outcome) -> Result<Confirmation, Refusal> {
    match outcome {
        Outcome::Confirmed(confirmation) => Ok(confirmation),
        Outcome::NotCommitted(why) | Outcome::Unknown(why) => Err(why),
        Outcome::Committed { .. } | Outcome::Ready { .. } => Err(Refusal::NoAnswer),
    }
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// A client of this replica asks.
    pub(super) fn on_confirm_call(&mut self, ticket: Ticket, question: Bytes, deadline: Micros) {
        match self.admit_question(Origin::Local(ticket), question, deadline) {
            Ok(id) => self.route(id),
            Err(why) => {
                let outcome = Outcome::NotCommitted(why);
                self.out.push(ReplicaEffect::Answer { ticket, outcome });
            }
        }
    }

    /// A peer asks: only a leader goes on.
    pub(super) fn on_confirm(
        &mut self,
        from: MemberId,
        ticket: Ticket,
        within: Micros,
        question: Bytes,
    ) {
        let deadline = self.now.saturating_add(within);
        let admitted = if self.leads() {
            self.admit_question(Origin::Peer(from, ticket), question, deadline)
        } else {
            Err(Refusal::NotLeader { hint: self.core.leader() })
        };
        match admitted {
            Ok(id) => self.prove(id),
            Err(why) => {
                let message = Message::ConfirmReply { ticket, result: Err(why) };
                self.send(from, message, SendLane::Urgent);
            }
        }
    }

    /// Admits a question; the budget is charged with its longest answer too.
    fn admit_question(
        &mut self,
        origin: Origin,
        question: Bytes,
        deadline: Micros,
    ) -> Result<u64, Refusal> {
        if question.len() > CONFIRM_QUESTION_MAX {
            return Err(Refusal::TooLarge);
        }
        let weight = question.len() + CONFIRM_ANSWER_MAX;
        let state = State::Confirm(Inquiry { question, step: Step::Held });
        self.admit(origin, deadline, weight, state)
    }

    /// Sends a question where it has to go now: this leader's own proof, the leader, or nowhere
    /// yet.
    pub(super) fn route_inquiry(&mut self, id: u64, leader: Option<MemberId>) {
        let Some(inquiry) = self.inquiry(id) else { return };
        if !matches!(inquiry.step, Step::Held | Step::Asked { .. }) {
            return;
        }
        match leader {
            _ if self.leads() => self.prove(id),
            Some(to) => self.ask_leader(id, to),
            None => drop(self.calls.turn(id, State::Confirm(inquiry.held()))),
        }
    }

    fn ask_leader(&mut self, id: u64, to: MemberId) {
        let Some(inquiry) = self.inquiry(id) else { return };
        let question = inquiry.question.clone();
        let asked = inquiry.at(Step::Asked { to, sent: self.now });
        let Some(id) = self.calls.turn(id, asked) else { return };
        let Some(waiter) = self.calls.get(id) else { return };
        let within = waiter.deadline.saturating_sub(self.now);
        let message = Message::Confirm { ticket: ticket(id), within, question };
        self.send(to, message, SendLane::Urgent);
        self.hold_again();
    }

    fn inquiry(&self, id: u64) -> Option<Inquiry> {
        match self.calls.get(id).map(|waiter| &waiter.state) {
            Some(State::Confirm(inquiry)) => Some(inquiry.clone()),
            _ => None,
        }
    }

    fn leads(&self) -> bool {
        self.core.role() == RoleKind::Leader
    }

    /// True if this replica leads that very term: a proof of an earlier one says nothing.
    fn still_leads(&self, term: Term) -> bool {
        self.leads() && self.core.hard().term == term
    }

    /// The core confirms leadership by a quorum round, behind a committed entry of its own term.
    fn prove(&mut self, id: u64) {
        let Some(inquiry) = self.inquiry(id) else { return };
        let term = self.core.hard().term;
        let Some(id) = self.calls.turn(id, inquiry.at(Step::Proving { term })) else { return };
        let Some(deadline) = self.calls.get(id).map(|waiter| waiter.deadline) else { return };
        self.feed(Input::ReadIndex { ticket: ticket(id), deadline });
    }

    /// Leadership is confirmed: the own machine has to apply everything committed before that.
    pub(super) fn on_proved(&mut self, id: u64, inquiry: Inquiry, index: Index) {
        let Step::Proving { term } = inquiry.step else { return self.mark("unexpected-proof") };
        self.calls.turn(id, inquiry.at(Step::Applying { term, index }));
        self.answer_local();
    }

    /// The own machine has applied what this question waited for.
    pub(super) fn on_inquiry_applied(&mut self, id: u64, inquiry: Inquiry) {
        match inquiry.step.clone() {
            Step::Applying { term, index } => {
                self.calls.turn(id, inquiry.at(Step::Answerable { term, index }));
            }
            Step::Told(confirmation) => self.conclude(id, Outcome::Confirmed(confirmation)),
            // No other step is listed as waiting for the machine.
            _ => self.conclude(id, Outcome::NotCommitted(Refusal::NoAnswer)),
        }
    }

    /// Hands out what can be answered, once the lane is free.
    pub(super) fn pump_answers(&mut self) {
        if self.answering.0 {
            return;
        }
        let mut questions = Vec::new();
        for id in self.calls.answerable(ANSWERS_PER_JOB) {
            let Some(inquiry) = self.inquiry(id) else { continue };
            let Step::Answerable { term, index } = inquiry.step else { continue };
            if !self.still_leads(term) {
                self.on_unproved(id, &inquiry);
                continue;
            }
            let question = inquiry.question.clone();
            let reading = inquiry.at(Step::Reading { term, index });
            questions.extend(self.calls.turn(id, reading).map(|id| (id, question)));
        }
        if !questions.is_empty() {
            self.answering = Answering(true);
            let view = self.view.clone();
            self.run(Job::Side(Lane::Answer, SideJob::Answer { view, questions }));
        }
    }

    /// The state was read.
    pub(super) fn on_answers(&mut self, done: SideDone<L, M>) {
        self.answering = Answering(false);
        let SideDone::Answered(answers) = done else { return self.mark("unexpected-answers") };
        for (id, answer) in answers {
            // A caller whose time was up is gone.
            let Some(inquiry) = self.inquiry(id) else { continue };
            let Step::Reading { term, index } = inquiry.step else { continue };
            if !self.still_leads(term) {
                self.on_unproved(id, &inquiry);
                continue;
            }
            match answer.filter(|(at, answer)| is_answer(*at, index, answer)) {
                Some((index, answer)) => {
                    let leader = self.core.member();
                    self.on_told(id, inquiry, Confirmation { leader, term, index, answer });
                }
                None => self.conclude(id, Outcome::NotCommitted(Refusal::NoAnswer)),
            }
        }
    }

    /// Leadership ended before the answer: a peer asks again elsewhere, and so does this replica
    /// for its own clients.
    fn on_unproved(&mut self, id: u64, inquiry: &Inquiry) {
        self.mark("confirm-lost-leadership");
        match self.calls.get(id).map(|waiter| waiter.origin) {
            Some(Origin::Local(_)) => {
                self.calls.turn(id, State::Confirm(inquiry.held()));
                self.hold_again();
            }
            _ => {
                let hint = self.core.leader();
                self.conclude(id, Outcome::NotCommitted(Refusal::NotLeader { hint }));
            }
        }
    }

    /// An answer is there. A peer waits for its own replica, a client of this one for this.
    fn on_told(&mut self, id: u64, inquiry: Inquiry, confirmation: Confirmation) {
        match self.calls.get(id).map(|waiter| waiter.origin) {
            Some(Origin::Peer(..)) => self.conclude(id, Outcome::Confirmed(confirmation)),
            Some(Origin::Local(_)) => {
                self.calls.turn(id, inquiry.at(Step::Told(confirmation)));
                self.answer_local();
            }
            None => {}
        }
    }

    /// A member answers a question of this replica.
    pub(super) fn on_confirm_reply(
        &mut self,
        from: MemberId,
        ticket: Ticket,
        result: Result<Confirmation, Refusal>,
    ) {
        let id = ticket.0;
        let Some(inquiry) = self.asked_of(id, from) else {
            return self.dropped("confirm-reply");
        };
        match result {
            Ok(confirmation) if confirmation.leader != from => self.dropped("confirm-reply"),
            Ok(confirmation) if self.is_outdated(confirmation.term) => {
                self.dropped("confirm-reply-of-an-older-term");
                self.calls.turn(id, State::Confirm(inquiry.held()));
                self.hold_again();
            }
            Ok(confirmation) => self.on_told(id, inquiry, confirmation),
            Err(Refusal::NotLeader { .. }) => {
                self.calls.turn(id, State::Confirm(inquiry.held()));
                self.hold_again();
            }
            Err(why) => self.conclude(id, Outcome::NotCommitted(why)),
        }
    }

    /// The question whose newest attempt went to that member under this name.
    fn asked_of(&self, id: u64, from: MemberId) -> Option<Inquiry> {
        self.inquiry(id)
            .filter(|inquiry| matches!(inquiry.step, Step::Asked { to, .. } if to == from))
    }

    /// True if another term has begun since: whoever led this one may have been deposed.
    fn is_outdated(&self, term: Term) -> bool {
        term < self.core.hard().term
    }
}

/// True if this may be handed out: read at no less than the proof covers (a store that was
/// reopened meanwhile holds less, R21), and not longer than it may be.
fn is_answer(read_at: Index, proved: Index, answer: &Bytes) -> bool {
    read_at >= proved && answer.len() <= CONFIRM_ANSWER_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_older_than_its_proof_or_too_long_is_none() {
        let short = Bytes::from_static(b"gone");
        assert!(is_answer(Index(9), Index(9), &short), "read at the very index");
        assert!(!is_answer(Index(8), Index(9), &short), "the store was reopened meanwhile");
        let long = Bytes::from(vec![0; CONFIRM_ANSWER_MAX + 1]);
        assert!(!is_answer(Index(9), Index(9), &long), "no peer would decode it");
    }

    #[test]
    fn an_outcome_that_answers_no_question_is_told_as_unknown() {
        let ready = Outcome::Ready { applied: Index(3), age: 0 };
        assert_eq!(confirm_result(ready), Err(Refusal::NoAnswer));
        let late = Outcome::Unknown(Refusal::Deadline);
        assert_eq!(confirm_result(late), Err(Refusal::Deadline));
    }
}

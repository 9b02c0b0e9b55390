//! The outgoing queue of one peer and lane: bounded in bytes, filled by the core loop, emptied by
//! the connection's task.

use holdfast_consensus::Entry;
use holdfast_consensus::message::{Message, Outcome};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What a message is charged with, in bytes: about its size on the wire.
#[must_use]
pub fn weight(message: &Message) -> usize {
    const FIXED: usize = 128;
    FIXED
        + match message {
            Message::Append { entries, .. } => entries.weight(),
            Message::SnapshotChunk { bytes, .. } => bytes.len(),
            Message::Forward { command, .. } => command.len(),
            Message::ForwardReply { outcome: Outcome::Committed { result, .. }, .. } => {
                result.len()
            }
            Message::Confirm { question, .. } => question.len(),
            Message::Repair { wants, .. } => wants.len() * 24,
            Message::RepairReply { entries, .. } => entries.iter().map(Entry::weight).sum(),
            Message::ConfirmReply { result: Ok(confirmation), .. } => confirmation.answer.len(),
            _ => 0,
        }
}

/// What became of a message that was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits to be sent.
    Queued,
    /// The queue is full; Raft sends again what matters.
    Full(Message),
    /// Nobody is connected: what would be sent later is stale by then.
    Down(Message),
}

#[derive(Debug, Default)]
struct State {
    up: bool,
    bytes: usize,
    messages: VecDeque<Message>,
}

/// A queue.
#[derive(Debug)]
pub struct Outbox {
    limit: usize,
    state: Mutex<State>,
    filled: Notify,
}

impl Outbox {
    /// A queue of at most `limit` bytes, down until [`Outbox::set_up`].
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), filled: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock means a panic between two plain assignments; the state is still sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, or says why not.
    pub fn push(&self, message: Message) -> Pushed {
        let mut state = self.lock();
        if !state.up {
            return Pushed::Down(message);
        }
        let weight = weight(&message);
        if state.bytes + weight > self.limit && !state.messages.is_empty() {
            return Pushed::Full(message);
        }
        state.bytes += weight;
        state.messages.push_back(message);
        drop(state);
        self.filled.notify_one();
        Pushed::Queued
    }

    /// Waits until there is something, then takes messages of about `max_bytes`.
    pub async fn take(&self, max_bytes: usize) -> Vec<Message> {
        loop {
            let taken = self.try_take(max_bytes);
            if !taken.is_empty() {
                return taken;
            }
            self.filled.notified().await;
        }
    }

    fn try_take(&self, max_bytes: usize) -> Vec<Message> {
        let mut state = self.lock();
        let mut taken = Vec::new();
        let mut sum = 0;
        while sum < max_bytes
            && let Some(message) = state.messages.pop_front()
        {
            let weight = weight(&message);
            sum += weight;
            state.bytes -= weight;
            taken.push(message);
        }
        taken
    }

    /// Opens or closes the queue; either way it starts empty. Returns what was never sent.
    pub fn set_up(&self, up: bool) -> VecDeque<Message> {
        let mut state = self.lock();
        std::mem::replace(&mut *state, State { up, ..State::default() }).messages
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use holdfast_consensus::Term;
    use holdfast_consensus::Ticket;

    fn forward(len: usize) -> Message {
        Message::Forward {
            ticket: Ticket(1),
            term: Term(1),
            command: Bytes::from(vec![0; len]),
            within: 1,
        }
    }

    #[test]
    fn a_full_queue_drops_and_a_closed_one_takes_nothing() {
        let outbox = Outbox::new(1000);
        assert_eq!(outbox.push(forward(1)), Pushed::Down(forward(1)));
        outbox.set_up(true);
        assert_eq!(outbox.push(forward(500)), Pushed::Queued);
        assert_eq!(outbox.push(forward(500)), Pushed::Full(forward(500)));
        assert_eq!(outbox.bytes(), 628);
        assert_eq!(outbox.set_up(false), [forward(500)]);
        assert_eq!(outbox.bytes(), 0);
    }

    #[test]
    fn a_message_larger_than_the_queue_still_gets_through_alone() {
        let outbox = Outbox::new(100);
        outbox.set_up(true);
        assert_eq!(outbox.push(forward(500)), Pushed::Queued);
    }

    #[tokio::test]
    async fn take_returns_what_was_pushed_in_order_and_frees_its_bytes() {
        let outbox = Outbox::new(10_000);
        outbox.set_up(true);
        for len in [1, 2, 3] {
            assert_eq!(outbox.push(forward(len)), Pushed::Queued);
        }
        assert_eq!(outbox.take(200).await, [forward(1), forward(2)]);
        assert_eq!(outbox.take(200).await, [forward(3)]);
        assert_eq!(outbox.bytes(), 0);
    }
}

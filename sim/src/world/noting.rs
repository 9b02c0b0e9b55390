//! What the world tells its trace. Nothing in here draws, folds into the hash or changes the run,
//! and nothing is built while the trace is off.

use super::World;
use crate::faults::Fault;
use crate::trace::{self, Fate, What};
use holdfast_consensus::event::Event as Seen;
use holdfast_consensus::job::{Call, Lane};
use holdfast_consensus::message::Message;
use holdfast_consensus::{MemberId, Micros, Ticket};

impl World {
    /// Adds a transition of a node, or of the world. A string is a sentence of the story.
    pub(super) fn note<W: Into<What>>(&mut self, node: Option<usize>, what: impl FnOnce() -> W) {
        if self.trace.is_on() {
            let node = node.map(|n| (n, &self.nodes[n]));
            self.trace.add(self.now, node, what);
        }
    }

    /// Adds an event of a replica.
    pub(super) fn note_inside(&mut self, node: usize, event: &Seen) {
        if self.trace.is_on() {
            self.trace.inside(self.now, (node, &self.nodes[node]), event);
        }
    }

    /// Adds a message that is sent; names the copy for its arrival.
    pub(super) fn note_sent(
        &mut self,
        from: usize,
        to: usize,
        message: &Message,
        fate: Fate,
    ) -> trace::Copy {
        if self.trace.is_on() {
            self.trace.sent(self.now, (from, &self.nodes[from]), to, message, fate)
        } else {
            0
        }
    }

    /// Adds a message that arrives.
    pub(super) fn note_arrived(
        &mut self,
        to: usize,
        from: MemberId,
        copy: trace::Copy,
        message: &Message,
    ) {
        if self.trace.is_on() {
            self.trace.arrived(self.now, (to, &self.nodes[to]), from, copy, message);
        }
    }

    /// Adds a message whose receiver is gone.
    pub(super) fn note_missed(
        &mut self,
        to: usize,
        from: MemberId,
        copy: trace::Copy,
        message: &Message,
    ) {
        if self.trace.is_on() {
            self.trace.missed(self.now, (to, &self.nodes[to]), from, copy, message);
        }
    }

    /// Adds a job that goes out or comes back.
    pub(super) fn note_job(&mut self, node: usize, lane: Lane, kind: &'static str, begins: bool) {
        if self.trace.is_on() {
            self.trace.job(self.now, (node, &self.nodes[node]), lane, kind, begins);
        }
    }

    /// Adds a call, of a client by its number or of whoever directs the run.
    pub(super) fn note_call(
        &mut self,
        node: usize,
        client: Option<usize>,
        ticket: Ticket,
        call: &Call,
    ) {
        self.note(Some(node), || {
            let (kind, text) = trace::call(call);
            What::Called { client, ticket: ticket.0, kind, text }
        });
    }

    /// What disks have lost in crashes so far.
    pub(super) fn damage(&self) -> [u64; 3] {
        [Fault::Lost, Fault::Torn, Fault::DirUndone].map(|fault| self.faults.of(fault))
    }

    /// Adds a crash, with what the disk of the node lost in it.
    pub(super) fn note_crash(&mut self, node: usize, power: bool, before: &[u64; 3]) {
        if !self.trace.is_on() {
            return;
        }
        let after = self.damage();
        let [old, torn, names] = [0, 1, 2].map(|n: usize| after[n].saturating_sub(before[n]));
        let what = match (power, old + torn + names) {
            (false, _) => What::fault("kill", "the process is killed"),
            (true, 0) => What::fault("power-loss", "loses power; the disk keeps everything"),
            (true, _) => {
                let lost =
                    format!("{old} unsynced sectors lost, {torn} torn, {names} names undone");
                What::fault("power-loss", format!("loses power: {lost}"))
            }
        };
        self.note(Some(node), || what);
    }

    /// The core of a node has taken its input: the transition that brought it shows how it stands.
    pub(super) fn note_settled(&mut self, node: usize) {
        if self.trace.is_on() {
            self.trace.settle((node, &self.nodes[node]));
        }
    }
}

/// A fault that lasts until a known time.
pub(super) fn lasting(kind: &'static str, text: &str, until: Micros) -> What {
    What::Fault { kind, text: text.to_owned(), until: Some(until) }
}

/// The end of a fault.
pub(super) fn relief(kind: &'static str, text: &str) -> What {
    What::Relief { kind, text: text.to_owned() }
}

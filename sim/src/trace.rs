//! The trace: one aligned line for each transition, if somebody wants to read it.

use crate::node::Node;
use holdfast_consensus::Micros;
use holdfast_consensus::message::{Message, Outcome};

/// Lines, or nothing.
#[derive(Debug, Default)]
pub struct Trace(Option<Vec<String>>);

impl Trace {
    /// A trace that keeps its lines.
    #[must_use]
    pub const fn on() -> Self {
        Self(Some(Vec::new()))
    }

    /// True if lines are kept.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The lines so far.
    pub fn take(&mut self) -> Vec<String> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a line: time, node, role, term, commit, applied, durable, last, what happened.
    pub fn line(&mut self, now: Micros, node: Option<&Node>, what: &str) {
        let Some(lines) = &mut self.0 else { return };
        let time = format!("{:>4}.{:06}", now / 1_000_000, now % 1_000_000);
        let state = node.and_then(Node::process).map(|process| {
            let core = process.replica.core();
            format!(
                "{:<13} {:>4} c{:<5} d{:<9} l{:<9}",
                core.role().as_str(),
                core.hard().term.to_string(),
                core.commit().0,
                core.durable().to_string(),
                core.last().to_string()
            )
        });
        let name = node.map_or("--", |n| n.name.as_str());
        lines.push(format!("{time} {name:<3} {:<50} {what}", state.unwrap_or_default()));
    }
}

/// A message in one line.
#[must_use]
pub fn message(message: &Message) -> String {
    match message {
        Message::Append { term, round, prev, commit, entries, .. } => format!(
            "Append {term} round {round} prev {prev} commit {commit} +{} to {:?}",
            entries.len(),
            entries.last()
        ),
        Message::SnapshotChunk { transfer, offset, bytes, .. } => {
            format!("SnapshotChunk {transfer} at {offset} +{}", bytes.len())
        }
        Message::SnapshotOffer { term, transfer, meta } => {
            format!("SnapshotOffer {term} {transfer} {}", meta.last)
        }
        Message::Forward { ticket, .. } => format!("Forward {ticket}"),
        Message::ForwardReply { ticket, outcome: o } => {
            format!("ForwardReply {ticket} {}", outcome(o))
        }
        Message::Confirm { ticket, question, .. } => {
            format!("Confirm {ticket} +{}", question.len())
        }
        Message::ConfirmReply { ticket, result } => match result {
            Ok(said) => format!("ConfirmReply {ticket} {} at {}", said.term, said.index),
            Err(why) => format!("ConfirmReply {ticket} {why:?}"),
        },
        other => format!("{other:?}"),
    }
}

/// An outcome in one line.
#[must_use]
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Committed { at, .. } => format!("committed at {at}"),
        Outcome::Confirmed(said) => {
            format!("confirmed by {} of {} at {}", said.leader, said.term, said.index)
        }
        other => format!("{other:?}"),
    }
}

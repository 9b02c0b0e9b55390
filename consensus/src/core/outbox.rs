//! Promises that wait for the write they depend on. The only way from the core to the network for
//! anything that another member may rely on, so no world can acknowledge before durability.

use crate::message::{Conflict, Message};
use crate::types::{HardState, LogId, MemberId, Seq, Term};

/// A promise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Promise {
    /// A granted vote in `term`.
    Vote { to: MemberId, term: Term },
    /// "I hold durably what I may report of this": `matched` is what the request matched.
    Ack { to: MemberId, term: Term, round: u64, matched: LogId },
    /// The request of this round did not match. Waits because it also says "I am in `term`".
    Conflict { to: MemberId, term: Term, round: u64, conflict: Conflict },
}

/// Promises by the write they wait for.
///
/// Invariant: bounded, because acknowledgements that wait for one write merge into one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    held: Vec<(Seq, Promise)>,
}

impl Outbox {
    pub(crate) fn held(&self) -> &[(Seq, Promise)] {
        &self.held
    }

    /// Holds a promise until `seq` is durable.
    pub(crate) fn hold(&mut self, seq: Seq, promise: Promise) {
        for (other, held) in &mut self.held {
            if *other == seq && held.merge(&promise) {
                return;
            }
        }
        self.held.push((seq, promise));
    }

    /// The log was reopened: what waited for a lost write waits for `seq` instead.
    pub(crate) fn rebind(&mut self, done: Seq, seq: Seq) {
        for (waiting, _) in &mut self.held {
            if *waiting > done {
                *waiting = seq;
            }
        }
    }

    /// What was matched beyond this entry is gone from memory: nothing above it is acknowledged.
    pub(crate) fn cap(&mut self, kept: LogId) {
        for (_, held) in &mut self.held {
            if let Promise::Ack { matched, .. } = held
                && matched.index > kept.index
            {
                *matched = kept;
            }
        }
    }

    /// Drops promises that no longer hold: a raised term or another role voids them.
    pub(crate) fn retain_current(&mut self, hard: &HardState) {
        self.held.retain(|(_, promise)| promise.term() == hard.term);
    }

    /// Takes every promise whose write is durable; acknowledgements to one receiver merge.
    pub(crate) fn release(&mut self, done: Seq) -> Vec<Promise> {
        let mut released: Vec<Promise> = Vec::new();
        self.held.retain(|(seq, promise)| {
            if *seq > done {
                return true;
            }
            if !released.iter_mut().any(|r| r.merge(promise)) {
                released.push(promise.clone());
            }
            false
        });
        released
    }
}

impl Promise {
    const fn term(&self) -> Term {
        match self {
            Self::Vote { term, .. } | Self::Ack { term, .. } | Self::Conflict { term, .. } => *term,
        }
    }

    /// Takes over what an acknowledgement to the same leader says beyond this one.
    fn merge(&mut self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Ack { to, term, round, matched },
                Self::Ack { to: to2, term: term2, round: round2, matched: matched2 },
            ) if to == to2 && term == term2 => {
                // Both were matched by the same leader, so the longer one covers the shorter.
                *round = (*round).max(*round2);
                *matched = (*matched).max(*matched2);
                true
            }
            (mine @ Self::Vote { .. }, other @ Self::Vote { .. }) => mine == other,
            _ => false,
        }
    }
}

/// The reply to a vote request that was granted.
pub(crate) const fn granted(term: Term) -> Message {
    Message::VoteReply { term, pre: false, asked: term, granted: true }
}

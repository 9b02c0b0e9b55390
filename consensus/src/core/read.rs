//! Read indexes (dissertation 6.4): a read is served at the commit index of its arrival, once a
//! quorum has answered a round that was sent after it (R40).

use super::shared::Shared;
use crate::fault::Refusal;
use crate::io::Effect;
use crate::types::{Index, MemberId, Micros, Ticket};
use std::collections::VecDeque;

/// A read that waits.
#[derive(Clone, Debug, Hash)]
struct Read {
    ticket: Ticket,
    deadline: Micros,
    /// The commit index at arrival; `None` until the leader has committed an entry of its own
    /// term, because before that its commit index may lag what an old leader answered (B64).
    index: Option<Index>,
    /// The last round sent before it arrived: only later ones count (B65).
    after: u64,
}

/// Reads of one leader in one term. They are keyed by the leader's own rounds, never by anything
/// that a caller chose (B66).
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    /// Invariant: `after` never decreases from front to back.
    waiting: VecDeque<Read>,
    /// The last round before the newest broadcast.
    broadcast: Option<u64>,
    /// No read expires before this.
    soonest: Option<Micros>,
}

impl Reads {
    /// When the first read may expire.
    pub(crate) const fn deadline(&self) -> Option<Micros> {
        self.soonest
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A read arrives.
    pub(crate) fn push(
        &mut self,
        ticket: Ticket,
        deadline: Micros,
        own_term: bool,
        round: u64,
        shared: &mut Shared,
    ) {
        if deadline <= shared.now {
            return shared.refuse(ticket, Refusal::Deadline);
        }
        if self.waiting.len() >= shared.config.reads {
            return shared.refuse(ticket, Refusal::Busy);
        }
        let index = own_term.then(|| shared.commit());
        self.waiting.push_back(Read { ticket, deadline, index, after: round });
        self.soonest = Some(self.soonest.map_or(deadline, |s| s.min(deadline)));
    }

    /// The leader committed its first entry of its own term: every read that waited for that
    /// takes the commit index of now, which covers all that was answered before it arrived.
    pub(crate) fn own_term_committed(&mut self, commit: Index) {
        for read in &mut self.waiting {
            read.index.get_or_insert(commit);
        }
    }

    /// Serves what rounds up to `confirmed` confirm: a quorum answered each of them.
    pub(crate) fn serve(&mut self, confirmed: u64, shared: &mut Shared) {
        while let Some(read) = self.waiting.front()
            && read.after < confirmed
            && let Some(index) = read.index
        {
            shared.fx.push(Effect::ReadAt { ticket: read.ticket, index });
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            self.soonest = None;
        }
    }

    /// True if a new round should be sent now: some read is not covered by the newest broadcast,
    /// and that one was answered (else reads that come meanwhile share the next one).
    pub(crate) fn wants_round(&self, confirmed: u64) -> bool {
        let Some(newest) = self.waiting.back() else { return false };
        self.broadcast.is_none_or(|before| before < newest.after && before < confirmed)
    }

    /// A round to every peer leaves behind round `before`.
    pub(crate) const fn broadcasting(&mut self, before: u64) {
        self.broadcast = Some(before);
    }

    /// Refuses reads whose deadline has passed.
    pub(crate) fn expire(&mut self, shared: &mut Shared) {
        if self.soonest.is_none_or(|at| at > shared.now) {
            return;
        }
        self.waiting.retain(|read| {
            let alive = read.deadline > shared.now;
            if !alive {
                shared.refuse(read.ticket, Refusal::Deadline);
            }
            alive
        });
        self.soonest = self.waiting.iter().map(|read| read.deadline).min();
    }

    /// Leadership ended: nothing here can be confirmed any more.
    pub(crate) fn refuse_all(&mut self, hint: Option<MemberId>, shared: &mut Shared) {
        for read in self.waiting.drain(..) {
            shared.refuse(read.ticket, Refusal::NotLeader { hint });
        }
        self.soonest = None;
    }

    /// Waiting reads, for the fingerprint.
    pub(crate) fn shape(&self) -> impl Iterator<Item = (Ticket, Option<Index>, u64)> {
        self.waiting.iter().map(|read| (read.ticket, read.index, read.after))
    }

    /// The last round before the newest broadcast, for the fingerprint.
    pub(crate) const fn newest_broadcast(&self) -> Option<u64> {
        self.broadcast
    }
}

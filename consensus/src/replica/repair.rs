//! Damaged entries in the driver (R15): other members' requests are answered from the own log,
//! damage that a read meets is reported to the core, and what others give back is written by the
//! log lane. A held member still answers (R5).

use super::Replica;
use crate::damage::Hole;
use crate::event::RoleKind;
use crate::fault::{LogFault, StopReason};
use crate::io::Input;
use crate::job::{Job, Lane, SideDone, SideJob};
use crate::message::{Message, SendLane};
use crate::traits::{LogReader, LogStore, StateMachine};
use crate::types::{Index, MemberId, Recovered};
use std::collections::VecDeque;

/// A request for entries.
#[derive(Clone, Debug)]
struct Asked {
    from: MemberId,
    ask: u64,
    wants: Vec<Hole>,
}

/// Requests of other members: one of each at most, so their number is bounded.
#[derive(Clone, Debug, Default)]
pub(super) struct Serving {
    queue: VecDeque<Asked>,
    /// Whom the job that is out reads for.
    out: Option<(MemberId, u64)>,
}

/// Damage of this log, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageStatus {
    /// The lowest damaged entry.
    pub first: Index,
    /// The highest damaged entry.
    pub last: Index,
    /// How many there are.
    pub count: usize,
}

/// Refuses a start that nobody could help: damaged entries, or a held log, of a member that is the
/// only voter of its configuration (R5). Asked at [`Replica::open`]; who opens the log may ask it before.
///
/// # Errors
/// Why it does not start, with the remedy. Nothing was changed.
pub fn refuse_alone(recovered: &Recovered, member: MemberId) -> Result<(), StopReason> {
    let alone = recovered.memberships.last().is_some_and(|(_, membership)| {
        let mut voters = membership.voters.iter().chain(&membership.outgoing);
        membership.is_voter(member) && voters.all(|voter| *voter == member)
    });
    let why = match (&recovered.held, recovered.holes.as_slice()) {
        _ if !alone => return Ok(()),
        (Some(why), _) => why.clone(),
        (None, []) => return Ok(()),
        (None, [first, .., last]) => {
            format!("entries {} to {} of the log do not verify", first.index, last.index)
        }
        (None, [one]) => format!("entry {} of the log does not verify", one.index),
    };
    Err(StopReason::NeedsOperator(format!(
        "{why}, and no other member of this cluster could give back what is damaged. The log was \
         not repaired and nothing was cut. Put the data directory back from a copy that was made \
         before the damage; entries behind that copy are lost",
    )))
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// Damage of this log, if there is any.
    pub(super) fn damage_status(&self) -> Option<DamageStatus> {
        let holes = self.core.holes();
        let (first, last) = (holes.first()?.index, holes.last()?.index);
        Some(DamageStatus { first, last, count: holes.len() })
    }

    /// A member asks for entries. A repeated request takes the place of the one before.
    pub(super) fn on_repair(&mut self, from: MemberId, ask: u64, wants: Vec<Hole>) {
        let asked = Asked { from, ask, wants: wants.clone() };
        match self.serving.queue.iter_mut().find(|other| other.from == from) {
            Some(other) => *other = asked,
            None => self.serving.queue.push_back(asked),
        }
        // What this log has compacted only the core can help with.
        self.feed(Input::Message { from, message: Message::Repair { ask, wants } });
    }

    /// Reads for the next request. About entries of unknown identity only a leader says anything,
    /// and only of what is committed.
    pub(super) fn pump_serving(&mut self) {
        if self.serving.out.is_some() {
            return;
        }
        let Some(Asked { from, ask, mut wants }) = self.serving.queue.pop_front() else { return };
        let leads = self.core.role() == RoleKind::Leader && self.held.is_none();
        let commit = self.core.commit();
        wants.retain(|want| want.known.is_some() || (leads && want.index <= commit));
        self.serving.out = Some((from, ask));
        let reader = self.reader.clone();
        let max_bytes = self.config.core.append_bytes;
        self.run(Job::Side(Lane::Repair, SideJob::Repair { reader, wants, max_bytes }));
    }

    /// Entries were read for a member. An answer without any tells it to ask somebody else.
    pub(super) fn on_serving_done(&mut self, done: SideDone<L, M>) {
        let Some((to, ask)) = self.serving.out.take() else { return self.mark("unexpected-read") };
        let SideDone::Repair { entries, damaged } = done else {
            return self.mark("unexpected-read");
        };
        if !damaged.is_empty() {
            self.feed(Input::Damaged { holes: damaged });
        }
        self.send(to, Message::RepairReply { ask, entries }, SendLane::Bulk);
    }

    /// A read, of the replica or beside it, met damage: true if any of it was not known yet.
    pub(super) fn report_damage(&mut self, fault: &LogFault) -> bool {
        let LogFault::Damaged { first, last, .. } = fault else { return false };
        let mut holes = self.reader.holes(*first, *last);
        let known = self.core.holes();
        holes.retain(|hole| known.binary_search_by_key(&hole.index, |known| known.index).is_err());
        if holes.is_empty() {
            return false;
        }
        self.mark("damage-met-by-a-read");
        self.feed(Input::Damaged { holes });
        true
    }

    /// The last index that may be applied next: nothing at or behind a damaged entry is (R15).
    pub(super) fn readable_through(&self, from: Index, commit: Index) -> Index {
        let holes = self.core.holes();
        let next = holes.partition_point(|hole| hole.index < from);
        holes.get(next).map_or(commit, |hole| commit.min(hole.index.prev()))
    }

    /// The first index, not below `low`, from which everything up to `from` is readable.
    pub(super) fn readable_since(&self, low: Index, from: Index) -> Index {
        let holes = self.core.holes();
        let below = holes.partition_point(|hole| hole.index < from);
        let last = below.checked_sub(1).and_then(|at| holes.get(at));
        last.map_or(low, |hole| low.max(hole.index.next()))
    }
}

//! Damaged entries in the core's view of its log (R15).
//!
//! A hole keeps its place: it counts for the end of the log, which votes are given by, and for
//! nothing else. Everything that a hole forbids is asked of [`LogView::first_hole`].

use super::log_view::LogView;
use super::shared::Shared;
use crate::damage::{self, Hole, Identity};
use crate::types::{Body, Entry, Index, LogId};

impl LogView {
    /// The damaged entries, ascending.
    pub(crate) fn holes(&self) -> &[Hole] {
        &self.holes
    }

    /// The lowest damaged entry.
    pub(crate) fn first_hole(&self) -> Option<Index> {
        self.holes.first().map(|hole| hole.index)
    }

    /// The hole at an index.
    pub(crate) fn hole_at(&self, index: Index) -> Option<&Hole> {
        damage::hole_at(&self.holes, index)
    }

    /// True for a hole of unknown identity: its term is unknown.
    pub(crate) fn is_unknown(&self, index: Index) -> bool {
        self.hole_at(index).is_some_and(|hole| hole.known.is_none())
    }

    /// The nearest entry at or below an index of the log whose term is known.
    pub(crate) fn known_at_or_below(&self, index: Index) -> LogId {
        let mut index = index.min(self.last().index);
        loop {
            if index <= self.base().index {
                return self.base();
            }
            if let Some(id) = self.id_at(index) {
                return id;
            }
            index = index.prev();
        }
    }

    /// True if the entry is the log's, or a hole that may be it: its neighbours allow the term.
    pub(crate) fn may_hold(&self, id: LogId) -> bool {
        match self.term_at(id.index) {
            Some(term) => term == id.term,
            None => {
                let term_at = |index: Index| self.term_at(index);
                self.is_unknown(id.index)
                    && damage::allows(id, self.base().index, self.last(), term_at)
            }
        }
    }

    /// Damage was found while running. True if there was any news. The end of the log is never
    /// marked with an unknown identity: who cannot prove its end must be held.
    pub(crate) fn damage(&mut self, found: &[Hole]) -> bool {
        let mut news = false;
        for hole in found {
            let within = hole.index > self.base().index && hole.index <= self.last().index;
            let Err(at) = self.holes.binary_search_by_key(&hole.index, |h| h.index) else {
                continue;
            };
            // An identity of another term is not the entry that this log was told to hold.
            let term = self.term_at(hole.index);
            let known = hole.known.filter(|known| Some(known.term) == term);
            let last = hole.index == self.last().index;
            if within && (known.is_some() || !last) {
                self.holes.insert(at, Hole { index: hole.index, known });
                news = true;
            }
        }
        news
    }

    /// The reopened log names its holes anew; those above `through` are written again anyway.
    pub(crate) fn set_holes(&mut self, mut holes: Vec<Hole>, through: Index) {
        let base = self.base().index;
        holes.retain(|hole| hole.index > base && hole.index <= through);
        self.holes = holes;
    }

    /// True if an entry may fill the hole at its index: of that very identity, or, where that is
    /// unknown, of a term that can stand there.
    pub(crate) fn fits(&self, entry: &Entry) -> bool {
        let Some(hole) = self.hole_at(entry.id.index) else { return false };
        match hole.known {
            Some(known) => entry.identity() == Ok::<Identity, _>(known),
            None => self.may_hold(entry.id),
        }
    }

    /// A hole is filled durably. A configuration comes back with its entry.
    pub(crate) fn fill(&mut self, entry: &Entry) {
        if !self.fits(entry) {
            return;
        }
        let id = entry.id;
        // What this member proposes one day is no earlier than what came back.
        self.not_before(entry.time);
        self.holes.retain(|hole| hole.index != id.index);
        self.settle_run(id);
        if let Body::Membership(membership) = &entry.body {
            let memberships = self.memberships_mut();
            let at = memberships.partition_point(|(index, _)| *index < id.index);
            if memberships.get(at).is_none_or(|(index, _)| *index != id.index) {
                memberships.insert(at, (id.index, membership.as_ref().clone()));
            }
        }
    }

    /// The runs of terms, with one more entry whose term is known.
    fn settle_run(&mut self, id: LogId) {
        let terms = self.terms_mut();
        let next = terms.partition_point(|run| run.index <= id.index);
        let within = next.checked_sub(1).is_some_and(|at| terms[at].term == id.term);
        if within {
            return;
        }
        match terms.get_mut(next) {
            // All between it and the run are unknown, and can only be of this term too.
            Some(run) if run.term == id.term => run.index = id.index,
            _ => terms.insert(next, id),
        }
    }
}

impl Shared {
    /// The durable watermark that others are told of: it ends before the first damaged entry, on
    /// every path (R15).
    pub(crate) fn durable(&self) -> LogId {
        let durable = match self.disk.capped() {
            Some(before) if before.index < self.disk.durable().index => before,
            _ => self.disk.durable(),
        };
        match self.log.first_hole() {
            Some(hole) if hole <= durable.index => self.log.known_at_or_below(hole.prev()),
            _ => durable,
        }
    }

    /// True while a damaged entry lies at or below the end of the log: then this member never
    /// stands and never leads (R15).
    pub(crate) fn damaged(&self) -> bool {
        !self.log.holes().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::Entries;
    use crate::types::{MemberId, Membership, Recovered, Term};

    fn hole(index: u64, known: Option<(u64, u32)>) -> Hole {
        let known = known.map(|(term, crc)| Identity { term: Term(term), crc });
        Hole { index: Index(index), known }
    }

    fn blank(term: u64, index: u64) -> Entry {
        Entry { id: LogId::new(term, index), time: index, body: Body::Blank }
    }

    /// Terms 1 1 1 3 3 3 5, with holes of unknown identity at 3 and 4.
    fn view() -> LogView {
        LogView::new(Recovered {
            first: Index(1),
            last: LogId::new(5, 7),
            terms: vec![LogId::new(1, 1), LogId::new(3, 5), LogId::new(5, 7)],
            holes: vec![hole(3, None), hole(4, None)],
            ..Recovered::default()
        })
    }

    #[test]
    fn what_fills_an_unknown_hole_must_fit_its_neighbours() {
        let log = view();
        for (term, fits) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            assert_eq!(log.fits(&blank(term, 3)), fits, "{term}");
        }
        assert!(!log.fits(&blank(1, 2)), "no hole");
        assert_eq!(log.known_at_or_below(Index(4)), LogId::new(1, 2));
        assert_eq!(log.term_at(Index(4)), None);
    }

    #[test]
    fn every_order_of_filling_gives_the_same_runs() {
        for (three, four) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)] {
            let mut want: Vec<LogId> = Vec::new();
            let all = [1, 1, three, four, 3, 3, 5];
            for (index, term) in (1..).zip(all) {
                if want.last().is_none_or(|run| run.term.0 != term) {
                    want.push(LogId::new(term, index));
                }
            }
            for order in [[3, 4], [4, 3]] {
                let mut log = view();
                for index in order {
                    log.fill(&blank(if index == 3 { three } else { four }, index));
                }
                assert_eq!(log.terms(), want, "{three} {four} {order:?}");
                assert!(log.holes().is_empty());
            }
        }
    }

    #[test]
    fn a_known_hole_takes_its_own_entry_alone_and_a_configuration_comes_back() {
        let voters = Membership::of_voters([(MemberId(4), "n4".into())]);
        let body = Body::Membership(voters.clone().into());
        let entry = Entry { id: LogId::new(3, 5), time: 5, body };
        let known = entry.identity().expect("small");
        let mut log = view();
        assert!(log.damage(&[Hole { index: Index(5), known: Some(known) }]));
        assert!(!log.damage(&[Hole { index: Index(5), known: None }]), "known already");
        log.fill(&blank(3, 5));
        assert_eq!(log.holes().len(), 3);
        log.fill(&entry);
        assert_eq!(log.holes().len(), 2);
        assert_eq!(log.memberships(), [(Index(5), voters)]);
    }

    #[test]
    fn the_end_of_a_log_never_loses_its_term() {
        let mut log = view();
        assert!(!log.damage(&[hole(7, None)]), "an end of unknown identity proves nothing");
        assert!(log.damage(&[hole(7, Some((5, 1)))]));
        assert!(log.damage(&[hole(6, Some((4, 1))), hole(9, None)]));
        assert!(log.is_unknown(Index(6)), "the identity of another entry is none");
        assert_eq!(log.last(), LogId::new(5, 7));
        let run = Entries::new(vec![blank(5, 8)]).expect("one");
        log.append(&run);
        assert_eq!(log.first_hole(), Some(Index(3)));
    }
}

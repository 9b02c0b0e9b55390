//! Ground truth about one member: what its log has confirmed as durable, batch by batch, and what
//! the member said of it. Built from what goes to the log and comes back from it, never from what
//! the core believes.

use crate::shadow::Shadow;
use holdfast_consensus::io::Persist;
use holdfast_consensus::{HardState, Index, LogId, Recovered, Term};
use std::collections::{BTreeMap, BTreeSet};

/// What one member durably holds.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    log: Shadow,
    hard: HardState,
    /// Entries that recovery found damaged and nobody has given back yet (R15).
    holes: BTreeSet<Index>,
    /// It is held: whatever it holds, it promises nothing (R5).
    held: bool,
    /// The batches of the job that is out.
    writing: Vec<Persist>,
    /// Highest entry acknowledged to the leader of a term, in any life.
    acknowledged: BTreeMap<Term, LogId>,
    /// The term that it leads, as its last change of role said.
    pub leads: Option<Term>,
}

impl Ground {
    /// A process begins with what recovery proved (R12: all of it is durable then), or the log was
    /// opened again or put behind a snapshot.
    pub fn proved(&mut self, recovered: &Recovered) {
        self.log = Shadow::of(recovered);
        self.hard = recovered.hard;
        self.holes = recovered.holes.iter().map(|hole| hole.index).collect();
        self.held = recovered.held.is_some();
        self.writing.clear();
    }

    /// Batches go to the log.
    pub fn writes(&mut self, batches: &[Persist]) {
        self.writing = batches.to_vec();
    }

    /// The log has made them durable.
    pub fn written(&mut self) {
        for batch in std::mem::take(&mut self.writing) {
            if let Some(from) = batch.truncate_from {
                self.log.truncate(from);
                self.holes.split_off(&from);
            }
            for entry in &batch.append {
                self.log.push(entry.id);
            }
            self.hard = batch.hard.unwrap_or(self.hard);
        }
    }

    /// The log could not: nothing of it counts.
    pub fn not_written(&mut self) {
        self.writing.clear();
    }

    /// The log as far as it is durable.
    #[must_use]
    pub const fn log(&self) -> &Shadow {
        &self.log
    }

    /// An acknowledgement to the leader of a term leaves.
    pub fn acknowledges(&mut self, term: Term, durable: LogId) {
        let highest = self.acknowledged.entry(term).or_default();
        *highest = (*highest).max(durable);
    }

    /// The highest entry that it ever acknowledged to the leader of a term.
    #[must_use]
    pub fn acknowledged(&self, term: Term) -> LogId {
        self.acknowledged.get(&term).copied().unwrap_or_default()
    }

    /// True if it durably holds this entry, or a snapshot of what was committed beyond it.
    #[must_use]
    pub fn holds(&self, id: LogId) -> bool {
        id.index < self.log.base().index || self.log.at(id.index) == Some(id)
    }

    /// True if it may be counted for this entry: it durably holds it, or it acknowledged it in the
    /// entry's own term and rot has taken it since, with its word: a held member never votes again,
    /// so that every quorum meets those that still hold the entry (R5, R14).
    #[must_use]
    pub fn counts(&self, id: LogId) -> bool {
        self.holds(id) || (self.held && self.acknowledged(id.term).index >= id.index)
    }

    /// True if it is held: it promises nothing (R5).
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.held
    }

    /// Entries that are damaged.
    #[must_use]
    pub const fn holes(&self) -> &BTreeSet<Index> {
        &self.holes
    }

    /// True if it may acknowledge this entry: it durably holds it, and no entry up to it is damaged
    /// (R15).
    #[must_use]
    pub fn may_acknowledge(&self, id: LogId) -> bool {
        !self.held && self.holds(id) && self.holes.first().is_none_or(|hole| *hole > id.index)
    }

    /// Its durable hard state.
    #[must_use]
    pub const fn hard(&self) -> HardState {
        self.hard
    }

    /// Its last durable entry.
    #[must_use]
    pub fn last(&self) -> LogId {
        self.log.last()
    }

    /// Last index that a snapshot stands for.
    #[must_use]
    pub const fn base(&self) -> Index {
        self.log.base().index
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use holdfast_consensus::{Body, Entries, Entry, MemberId, Seq};

    /// A batch of blank entries and a hard state.
    pub(in crate::check) fn batch(cut: Option<u64>, ids: &[(u64, u64)], term: u64) -> Persist {
        let entry = |(term, index): &(u64, u64)| Entry {
            id: LogId::new(*term, *index),
            time: 0,
            body: Body::Blank,
        };
        Persist {
            seq: Seq(1),
            truncate_from: cut.map(Index),
            append: Entries::new(ids.iter().map(entry).collect()).expect("ordered"),
            hard: Some(HardState { term: Term(term), voted_for: Some(MemberId(term)) }),
        }
    }

    #[test]
    fn nothing_from_the_first_damaged_entry_on_may_be_acknowledged() {
        use holdfast_consensus::Hole;
        let mut ground = Ground::default();
        let hole = |index| Hole { index: Index(index), known: None };
        let mut found = Recovered {
            first: Index(1),
            last: LogId::new(1, 5),
            terms: vec![LogId::new(1, 1)],
            holes: vec![hole(2), hole(4)],
            ..Recovered::default()
        };
        ground.proved(&found);
        assert!(ground.may_acknowledge(LogId::new(1, 1)));
        assert!(ground.holds(LogId::new(1, 3)) && !ground.may_acknowledge(LogId::new(1, 3)));
        found.holes.remove(0);
        ground.proved(&found);
        assert!(ground.may_acknowledge(LogId::new(1, 3)));
        assert!(!ground.may_acknowledge(LogId::new(1, 5)));
        ground.writes(&[batch(Some(4), &[(2, 4)], 2)]);
        ground.written();
        assert!(ground.may_acknowledge(LogId::new(2, 4)), "what was cut is damaged no more");
    }

    #[test]
    fn a_held_member_may_acknowledge_nothing() {
        let found = Recovered {
            first: Index(1),
            last: LogId::new(1, 5),
            terms: vec![LogId::new(1, 1)],
            ..Recovered::default()
        };
        let mut ground = Ground::default();
        ground.proved(&found);
        assert!(ground.may_acknowledge(LogId::new(1, 5)));
        ground.proved(&Recovered { held: Some("row P8".to_owned()), ..found });
        assert!(ground.is_held() && ground.holds(LogId::new(1, 5)));
        assert!(!ground.may_acknowledge(LogId::new(1, 5)));
    }

    #[test]
    fn of_a_held_member_counts_what_it_acknowledged_in_that_term() {
        let found = Recovered {
            first: Index(1),
            last: LogId::new(2, 5),
            terms: vec![LogId::new(2, 1)],
            ..Recovered::default()
        };
        let mut ground = Ground::default();
        ground.acknowledges(Term(2), LogId::new(2, 7));
        ground.proved(&found);
        assert!(!ground.counts(LogId::new(2, 7)), "it votes, and has lost it");
        ground.proved(&Recovered { held: Some("row P8".to_owned()), ..found });
        assert!(ground.counts(LogId::new(2, 7)) && !ground.counts(LogId::new(2, 8)));
        assert!(!ground.counts(LogId::new(3, 7)), "of another term");
    }

    #[test]
    fn only_what_the_log_confirmed_counts() {
        let mut ground = Ground::default();
        ground.writes(&[batch(None, &[(1, 1), (1, 2)], 1)]);
        assert!(!ground.holds(LogId::new(1, 1)), "not yet");
        ground.written();
        assert!(ground.holds(LogId::new(1, 2)) && ground.hard().term == Term(1));
        ground.writes(&[batch(Some(2), &[(2, 2)], 2)]);
        ground.not_written();
        ground.written();
        assert!(ground.holds(LogId::new(1, 2)), "a failed write changes nothing");
        ground.writes(&[batch(Some(2), &[(2, 2)], 2)]);
        ground.written();
        assert!(!ground.holds(LogId::new(1, 2)) && ground.holds(LogId::new(2, 2)));
        ground.acknowledges(Term(2), LogId::new(2, 2));
        ground.acknowledges(Term(2), LogId::new(1, 1));
        assert_eq!(ground.acknowledged(Term(2)), LogId::new(2, 2));
        assert_eq!(ground.acknowledged(Term(1)), LogId::default());
    }
}

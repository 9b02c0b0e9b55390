//! A member's log as its effects say it is: which term stands at which index. It gives the entry
//! before a batch, which a persist does not name.

use holdfast_consensus::{Index, LogId, Recovered, Term};

/// Runs of equal terms, behind a base.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    base: LogId,
    /// First entry of each run, ascending.
    runs: Vec<LogId>,
    last: Index,
}

impl Shadow {
    /// The log that recovery proved.
    #[must_use]
    pub fn of(recovered: &Recovered) -> Self {
        Self { base: recovered.base, runs: recovered.terms.clone(), last: recovered.last.index }
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> LogId {
        match self.runs.last() {
            Some(run) => LogId { term: run.term, index: self.last },
            None => self.base,
        }
    }

    /// The entry before the first one.
    #[must_use]
    pub const fn base(&self) -> LogId {
        self.base
    }

    /// The entry at an index.
    #[must_use]
    pub fn at(&self, index: Index) -> Option<LogId> {
        if index == self.base.index {
            return Some(self.base);
        }
        if index > self.last {
            return None;
        }
        let run = self.runs.iter().rev().find(|run| run.index <= index)?;
        Some(LogId { term: run.term, index })
    }

    /// The log is cut from here on.
    pub fn truncate(&mut self, from: Index) {
        self.runs.retain(|run| run.index < from);
        if from <= self.last {
            self.last = from.prev();
        }
        if self.runs.is_empty() {
            self.last = self.base.index;
        }
    }

    /// An entry is written behind the last one.
    pub fn push(&mut self, id: LogId) {
        if self.runs.last().map(|run| run.term) != Some(id.term) {
            self.runs.push(id);
        }
        self.last = id.index;
    }

    /// A snapshot's end becomes the base, and the log ends at `last` afterwards.
    pub fn reset(&mut self, base: LogId, last: LogId) {
        if last == base {
            *self = Self { base, runs: Vec::new(), last: base.index };
            return;
        }
        let term_of = |shadow: &Self, index: Index| shadow.at(index).map(|id| id.term);
        let first: Option<Term> = term_of(self, base.index.next());
        self.runs.retain(|run| run.index > base.index);
        if let Some(term) = first
            && self.runs.first().is_none_or(|run| run.index > base.index.next())
        {
            self.runs.insert(0, LogId { term, index: base.index.next() });
        }
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shadow_follows_pushes_cuts_and_resets() {
        let mut shadow = Shadow::default();
        for (term, index) in [(1, 1), (1, 2), (3, 3), (3, 4)] {
            shadow.push(LogId::new(term, index));
        }
        assert_eq!(shadow.last(), LogId::new(3, 4));
        assert_eq!(shadow.at(Index(2)), Some(LogId::new(1, 2)));
        assert_eq!(shadow.at(Index(5)), None);
        shadow.truncate(Index(4));
        assert_eq!(shadow.last(), LogId::new(3, 3));
        let mut kept = shadow.clone();
        kept.reset(LogId::new(1, 1), LogId::new(3, 3));
        assert_eq!(kept.at(Index(1)), Some(LogId::new(1, 1)));
        assert_eq!(kept.at(Index(2)), Some(LogId::new(1, 2)));
        assert_eq!(kept.last(), LogId::new(3, 3));
        shadow.reset(LogId::new(4, 9), LogId::new(4, 9));
        assert_eq!(shadow.last(), LogId::new(4, 9));
        shadow.push(LogId::new(5, 10));
        shadow.truncate(Index(10));
        assert_eq!(shadow.last(), LogId::new(4, 9));
    }
}

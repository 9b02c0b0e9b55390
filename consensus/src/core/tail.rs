//! The newest entries in memory: what followers, the applier and a reopened log are fed from.

use crate::entries::Entries;
use crate::types::{Entry, Index};
use std::collections::VecDeque;

/// A suffix of the log in memory, kept as the runs it was appended in, so that a whole run is
/// shared with persists and sends without copying, and released as a whole (no small entry keeps
/// a large batch alive once its run is dropped).
///
/// Invariant: runs are not empty, follow one another without a gap, and `weight` is the sum of
/// their weights by [`Entry::weight`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    runs: VecDeque<Entries>,
    weight: usize,
}

impl Tail {
    /// Index of the first entry held.
    pub(crate) fn first(&self) -> Option<Index> {
        self.runs.front().and_then(Entries::first).map(|id| id.index)
    }

    /// Bytes held, by weight.
    pub(crate) const fn weight(&self) -> usize {
        self.weight
    }

    /// The last entry held.
    pub(crate) fn last_entry(&self) -> Option<&Entry> {
        self.runs.back().and_then(|run| run.as_slice().last())
    }

    /// Weight of the entries `from..=to` that are held.
    pub(crate) fn weight_of(&self, from: Index, to: Index) -> usize {
        let at = self.runs.partition_point(|r| r.last().is_some_and(|last| last.index < from));
        let runs = self.runs.iter().skip(at);
        runs.map(|run| until(&run.starting_at(from), to))
            .take_while(|part| !part.is_empty())
            .map(|part| part.weight())
            .sum()
    }

    /// All entries held.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.runs.iter().flat_map(Entries::iter)
    }

    /// Appends a run that follows the last entry.
    pub(crate) fn push(&mut self, run: Entries) {
        let Some(first) = run.first() else { return };
        let follows = self.last_entry().is_none_or(|e| e.id.index.next() == first.index);
        assert!(follows, "the cached tail has no gaps: {first} does not follow");
        self.weight += run.weight();
        self.runs.push_back(run);
    }

    /// Drops every entry from `from` on.
    pub(crate) fn truncate(&mut self, from: Index) {
        while let Some(run) = self.runs.pop_back() {
            let weight = run.weight();
            let first = run.first().map_or(from, |id| id.index);
            if first >= from {
                self.weight -= weight;
                continue;
            }
            let kept = run.take(usize::try_from(from.0 - first.0).unwrap_or(usize::MAX));
            self.weight = self.weight - weight + kept.weight();
            self.runs.push_back(kept);
            return;
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.weight = 0;
    }

    /// Drops the oldest run if all of it is at or below `through`; true if it did.
    pub(crate) fn evict_oldest(&mut self, through: Index) -> bool {
        let evictable =
            self.runs.front().and_then(Entries::last).is_some_and(|last| last.index <= through);
        if evictable && let Some(run) = self.runs.pop_front() {
            self.weight -= run.weight();
            // Give back what a burst made the queue grow to.
            if self.runs.capacity() > 64 && self.runs.len() * 4 < self.runs.capacity() {
                self.runs.shrink_to(self.runs.len() * 2);
            }
        }
        evictable
    }

    /// The entries `from..=to` that are held, stopping after `max_bytes` of weight but returning
    /// at least one if any. They start at `from`, or at the first entry held if that is later.
    pub(crate) fn slice(&self, from: Index, to: Index, max_bytes: usize) -> Entries {
        let at = self.runs.partition_point(|r| r.last().is_some_and(|last| last.index < from));
        let mut picked: Vec<Entry> = Vec::new();
        let mut left = max_bytes;
        for (n, run) in self.runs.iter().enumerate().skip(at) {
            let run = until(&run.starting_at(from), to);
            if run.is_empty() {
                break;
            }
            let more = self.runs.get(n + 1).and_then(Entries::first).is_some_and(|f| f.index <= to);
            let part = run.within(left);
            let complete = part.len() == run.len();
            if picked.is_empty() && (!more || !complete) {
                return part;
            }
            if !picked.is_empty() && part.weight() > left {
                break;
            }
            left = left.saturating_sub(part.weight());
            picked.extend_from_slice(part.as_slice());
            if !complete || left == 0 {
                break;
            }
        }
        Entries::new(picked).expect("the tail is contiguous and ordered")
    }
}

/// The entries of a run whose index is at most `to`.
fn until(run: &Entries, to: Index) -> Entries {
    let count = run.first().map_or(0, |first| (to.0 + 1).saturating_sub(first.index.0));
    run.take(usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Body, LogId};

    fn run(from: u64, to: u64) -> Entries {
        let entry = |i| Entry { id: LogId::new(1, i), time: i, body: Body::Blank };
        Entries::new((from..=to).map(entry).collect()).expect("ordered")
    }

    fn bounds(entries: &Entries) -> Option<(u64, u64)> {
        Some((entries.first()?.index.0, entries.last()?.index.0))
    }

    #[test]
    fn slices_cross_runs_and_respect_the_budget() {
        let mut tail = Tail::default();
        tail.push(run(3, 4));
        tail.push(run(5, 5));
        tail.push(run(6, 9));
        assert_eq!(bounds(&tail.slice(Index(1), Index(20), usize::MAX)), Some((3, 9)));
        assert_eq!(bounds(&tail.slice(Index(4), Index(7), usize::MAX)), Some((4, 7)));
        assert_eq!(bounds(&tail.slice(Index(4), Index(9), 128)), Some((4, 5)));
        assert_eq!(bounds(&tail.slice(Index(7), Index(9), 0)), Some((7, 7)));
        assert_eq!(tail.weight_of(Index(4), Index(7)), run(4, 7).weight());
        assert_eq!(tail.weight_of(Index(1), Index(20)), tail.weight());
        assert_eq!(tail.weight_of(Index(10), Index(12)), 0);
        assert!(tail.slice(Index(10), Index(12), 1000).is_empty());
        assert!(tail.slice(Index(1), Index(2), 1000).is_empty());
    }

    #[test]
    fn bytes_are_charged_and_released_by_one_measure() {
        let mut tail = Tail::default();
        tail.push(run(1, 4));
        tail.push(run(5, 8));
        tail.truncate(Index(3));
        assert_eq!(tail.weight(), run(1, 2).weight());
        tail.push(run(3, 6));
        assert!(!tail.evict_oldest(Index(1)));
        assert!(tail.evict_oldest(Index(2)));
        assert_eq!(tail.weight(), run(3, 6).weight());
        assert_eq!(tail.first(), Some(Index(3)));
        assert!(tail.evict_oldest(Index(6)));
        assert_eq!((tail.weight(), tail.first()), (0, None));
    }
}

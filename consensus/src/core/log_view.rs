//! What the core knows of its log without reading it: ends, terms, configurations, newest entries.

use super::tail::Tail;
use crate::damage::Hole;
use crate::entries::Entries;
use crate::types::{Body, Entry, Index, LogId, Membership, Micros, Recovered, SnapshotMeta, Term};

/// The log as the core sees it.
#[derive(Clone, Debug)]
pub(crate) struct LogView {
    /// The entry before the first one held. Invariant: `base.index <= last.index`.
    base: LogId,
    /// The last entry, in memory at least.
    last: LogId,
    /// Log time of `last` (an upper bound of it after a truncation below the cache).
    last_time: Micros,
    /// First id of every run of equal terms in `base.index + 1..=last.index`.
    /// Invariant: terms and indexes strictly increase.
    terms: Vec<LogId>,
    /// Every configuration at or above the base that matters, oldest first; the last one is in
    /// force, committed or not (dissertation 4.1). Invariant: indexes strictly increase and are at
    /// most `last.index`.
    memberships: Vec<(Index, Membership)>,
    /// The newest entries. Invariant: ends at `last`, or is empty.
    tail: Tail,
    /// Newest published snapshot, for peers that need entries the log no longer holds.
    snapshot: Option<SnapshotMeta>,
    /// Durable entries that do not verify (R15); see [`super::holes`].
    pub(super) holes: Vec<Hole>,
}

impl LogView {
    /// The view of a freshly recovered log: nothing is cached.
    pub(crate) fn new(recovered: Recovered) -> Self {
        Self {
            base: recovered.base,
            last: recovered.last,
            last_time: recovered.time,
            terms: recovered.terms,
            memberships: recovered.memberships,
            tail: Tail::default(),
            snapshot: recovered.snapshot,
            holes: recovered.holes,
        }
    }

    pub(crate) const fn base(&self) -> LogId {
        self.base
    }

    pub(crate) const fn last(&self) -> LogId {
        self.last
    }

    pub(crate) const fn last_time(&self) -> Micros {
        self.last_time
    }

    pub(crate) fn terms(&self) -> &[LogId] {
        &self.terms
    }

    pub(crate) const fn tail(&self) -> &Tail {
        &self.tail
    }

    pub(crate) const fn snapshot(&self) -> Option<&SnapshotMeta> {
        self.snapshot.as_ref()
    }

    pub(crate) fn memberships(&self) -> &[(Index, Membership)] {
        &self.memberships
    }

    /// Term of the entry at `index`; `None` if it was compacted, does not exist, or is a hole of
    /// unknown identity.
    pub(crate) fn term_at(&self, index: Index) -> Option<Term> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        if index < self.base.index || index > self.last.index || self.is_unknown(index) {
            return None;
        }
        let run = self.terms.partition_point(|first| first.index <= index);
        run.checked_sub(1).and_then(|n| self.terms.get(n)).map(|first| first.term)
    }

    /// Identity of the entry at `index`, if its term is known.
    pub(crate) fn id_at(&self, index: Index) -> Option<LogId> {
        self.term_at(index).map(|term| LogId { term, index })
    }

    /// First index held of a term's run that contains `index`.
    pub(crate) fn first_of_term_at(&self, index: Index) -> Index {
        let run = self.terms.partition_point(|first| first.index <= index);
        run.checked_sub(1)
            .and_then(|n| self.terms.get(n))
            .map_or(self.base.index, |first| first.index)
    }

    /// Last index of `term`, if the log (base included) holds an entry of it.
    pub(crate) fn last_of_term(&self, term: Term) -> Option<Index> {
        let next = self.terms.partition_point(|first| first.term <= term);
        let end = self.terms.get(next).map_or(self.last.index, |first| first.index.prev());
        (self.term_at(end) == Some(term)).then_some(end)
    }

    /// First index that is cached; one behind the end if nothing is.
    pub(crate) fn cached_from(&self) -> Index {
        self.tail.first().unwrap_or_else(|| self.last.index.next())
    }

    /// Cached entries of `from..=to` within a byte budget (at least one, if any is cached).
    pub(crate) fn cached(&self, from: Index, to: Index, max_bytes: usize) -> Entries {
        self.tail.slice(from, to, max_bytes)
    }

    /// The last entry is known to be no earlier than this.
    pub(super) fn not_before(&mut self, time: Micros) {
        self.last_time = self.last_time.max(time);
    }

    /// Appends entries that follow the last one.
    pub(crate) fn append(&mut self, entries: &Entries) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        assert!(
            first.index == self.last.index.next() && first.term >= self.last.term,
            "{first} does not follow {}",
            self.last
        );
        for entry in entries {
            self.note(entry);
        }
        self.last = last;
        self.last_time = entries.as_slice().last().map_or(self.last_time, |e| e.time);
        self.tail.push(entries.clone());
    }

    pub(super) fn terms_mut(&mut self) -> &mut Vec<LogId> {
        &mut self.terms
    }

    pub(super) fn memberships_mut(&mut self) -> &mut Vec<(Index, Membership)> {
        &mut self.memberships
    }

    fn note(&mut self, entry: &Entry) {
        if self.terms.last().is_none_or(|run| run.term < entry.id.term) {
            self.terms.push(entry.id);
        }
        if let Body::Membership(membership) = &entry.body {
            self.memberships.push((entry.id.index, membership.as_ref().clone()));
        }
    }

    /// Cuts the log from `from` on; configurations roll back with it.
    pub(crate) fn truncate(&mut self, from: Index) {
        assert!(from > self.base.index, "cannot cut at {from}, below the base {}", self.base);
        let last = self.id_at(from.prev()).expect("an index between base and end has a term");
        self.last = last;
        self.terms.retain(|first| first.index < from);
        self.holes.retain(|hole| hole.index < from);
        self.memberships.retain(|(index, _)| *index < from);
        self.tail.truncate(from);
        self.last_time = self.tail.last_entry().map_or(self.last_time, |e| e.time);
    }

    /// Goes on behind its end as the log on disk does.
    pub(crate) fn take_back(&mut self, disk: &Recovered) {
        let end = self.last.index;
        self.terms.extend(disk.terms.iter().filter(|first| first.index > end));
        self.memberships.extend(disk.memberships.iter().filter(|(at, _)| *at > end).cloned());
        self.holes.extend(disk.holes.iter().filter(|hole| hole.index > end).copied());
        (self.last, self.last_time) = (disk.last, disk.time);
        self.tail.clear();
    }

    /// The log gave up entries before `first`.
    pub(crate) fn compact(&mut self, first: Index) {
        let Some(base) = self.id_at(first.prev()) else { return };
        if base.index <= self.base.index {
            return;
        }
        self.rebase(base);
        // The newest configuration at or below the base stays in force; older ones are settled.
        let settled = self.memberships.partition_point(|(index, _)| *index <= base.index);
        self.memberships.drain(..settled.saturating_sub(1));
    }

    /// Moves the base up to an entry of this log.
    fn rebase(&mut self, base: LogId) {
        self.base = base;
        let runs = self.terms.partition_point(|first| first.index <= base.index);
        let straddling = runs.checked_sub(1).map(|n| self.terms[n].term);
        self.terms.drain(..runs);
        let first = base.index.next();
        self.holes.retain(|hole| hole.index >= first);
        if let Some(term) = straddling
            && base.index < self.last.index
            && self.terms.first().is_none_or(|run| run.index > first)
            && !self.is_unknown(first)
        {
            self.terms.insert(0, LogId { term, index: first });
        }
        while self.tail.evict_oldest(base.index) {}
    }

    /// The log begins behind a snapshot (R25): the suffix is kept only if the entry at its end
    /// matches (or is a hole that may be it: what a snapshot says is committed). The configuration
    /// is taken whole from the snapshot, so that a stale uncommitted
    /// one that it covers is gone (B49). True if the suffix was kept.
    pub(crate) fn reset(&mut self, meta: &SnapshotMeta) -> bool {
        let keep = self.may_hold(meta.last);
        if keep {
            self.rebase(meta.last);
            // The entry at its end may have been a hole, of which no time was known.
            self.not_before(meta.time);
        } else {
            self.base = meta.last;
            self.last = meta.last;
            self.last_time = meta.time;
            self.terms.clear();
            self.holes.clear();
            self.tail.clear();
        }
        let newer = |index: &Index| keep && *index > meta.last.index;
        self.memberships.retain(|(index, _)| newer(index));
        self.memberships.insert(0, (meta.membership_index, meta.membership.clone()));
        self.offer(meta.clone());
        keep
    }

    /// A snapshot was published.
    pub(crate) fn offer(&mut self, meta: SnapshotMeta) {
        if self.snapshot.as_ref().is_none_or(|old| old.last.index <= meta.last.index) {
            self.snapshot = Some(meta);
        }
    }

    /// Drops cached entries beyond `max_bytes`, oldest first, but none above `through`.
    pub(crate) fn evict(&mut self, max_bytes: usize, through: Index) {
        while self.tail.weight() > max_bytes && self.tail.evict_oldest(through) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MemberId;

    fn entries(ids: &[(u64, u64)]) -> Entries {
        let entry =
            |(t, i): &(u64, u64)| Entry { id: LogId::new(*t, *i), time: *i, body: Body::Blank };
        Entries::new(ids.iter().map(entry).collect()).expect("ordered")
    }

    fn view() -> LogView {
        let mut log = LogView::new(Recovered { first: Index(1), ..Recovered::default() });
        log.append(&entries(&[(1, 1), (1, 2), (3, 3), (3, 4), (4, 5)]));
        log
    }

    #[test]
    fn an_unknown_term_is_none_and_never_zero() {
        let mut log = view();
        assert_eq!(log.term_at(Index(0)), Some(Term(0)));
        assert_eq!(log.term_at(Index(4)), Some(Term(3)));
        assert_eq!(log.term_at(Index(6)), None);
        log.compact(Index(4));
        assert_eq!(log.base(), LogId::new(3, 3));
        assert_eq!(log.term_at(Index(2)), None);
        assert_eq!(log.term_at(Index(4)), Some(Term(3)));
        assert_eq!(log.terms(), [LogId::new(3, 4), LogId::new(4, 5)]);
        log.compact(Index(6));
        assert_eq!((log.base(), log.last()), (LogId::new(4, 5), LogId::new(4, 5)));
        assert!(log.terms().is_empty());
    }

    #[test]
    fn terms_answer_first_and_last_of_a_run() {
        let log = view();
        assert_eq!(log.first_of_term_at(Index(4)), Index(3));
        assert_eq!(log.last_of_term(Term(3)), Some(Index(4)));
        assert_eq!(log.last_of_term(Term(2)), None);
        assert_eq!(log.last_of_term(Term(4)), Some(Index(5)));
    }

    #[test]
    fn truncation_rolls_terms_back() {
        let mut log = view();
        log.truncate(Index(4));
        assert_eq!(log.last(), LogId::new(3, 3));
        log.append(&entries(&[(5, 4)]));
        assert_eq!(log.terms().last(), Some(&LogId::new(5, 4)));
        assert_eq!(log.cached(Index(1), Index(9), usize::MAX).len(), 4);
    }

    fn meta(term: u64, index: u64) -> SnapshotMeta {
        SnapshotMeta {
            last: LogId::new(term, index),
            time: 77,
            membership: Membership::of_voters([(MemberId(9), "n9".into())]),
            membership_index: Index(1),
            ..SnapshotMeta::default()
        }
    }

    #[test]
    fn a_snapshot_keeps_a_matching_suffix_and_drops_another() {
        let mut log = view();
        assert!(log.reset(&meta(3, 4)));
        assert_eq!((log.base(), log.last()), (LogId::new(3, 4), LogId::new(4, 5)));
        assert_eq!(log.cached(Index(5), Index(5), usize::MAX).len(), 1);

        let mut log = view();
        assert!(!log.reset(&meta(2, 4)));
        assert_eq!((log.base(), log.last()), (LogId::new(2, 4), LogId::new(2, 4)));
        assert_eq!(log.last_time(), 77);
        assert!(log.cached(Index(1), Index(9), usize::MAX).is_empty());
    }

    #[test]
    fn a_covered_configuration_does_not_survive_a_snapshot() {
        let mut log = view();
        let stale = Membership::of_voters([(MemberId(7), "n7".into())]);
        let entry = Entry { id: LogId::new(4, 6), time: 6, body: Body::Membership(stale.into()) };
        log.append(&Entries::new(vec![entry]).expect("one"));
        assert!(!log.reset(&meta(6, 30)));
        assert_eq!(log.memberships().len(), 1);
        assert_eq!(log.memberships()[0].0, Index(1));
    }
}

//! What the log was told to make durable, what it has confirmed, and the one durable watermark.
//!
//! Everything is named by sequence number: the same (term, index) can be written, cut and written
//! again while older writes are still under way (B27).

use super::stall::WriteTimes;
use crate::entries::Entries;
use crate::io::Persist;
use crate::types::{HardState, Index, LogId, Micros, Seq, SnapshotMeta};
use std::collections::VecDeque;

/// A write that was handed out and not yet confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) seq: Seq,
    /// End of the log once this write is durable, as far as it still counts: a later truncation
    /// lowers it.
    pub(crate) end: Option<LogId>,
    /// Hard state that becomes durable with it.
    pub(crate) hard: Option<HardState>,
    /// When it was handed out.
    pub(crate) at: Micros,
}

/// What the current step wants written; handed out as one batch at its end.
#[derive(Clone, Debug, Default)]
struct Staged {
    truncate_from: Option<Index>,
    append: Entries,
    hard: Option<HardState>,
    end: Option<LogId>,
}

/// The core's side of the log's durability.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// The next sequence number. Never goes back.
    next: Seq,
    /// Highest confirmed sequence number.
    done: Seq,
    /// The durable watermark: all an acknowledgement may report.
    durable: LogId,
    /// Hard state known durable.
    hard: HardState,
    /// Invariant: sequence numbers strictly increase and lie in `done + 1..next`.
    pending: VecDeque<Pending>,
    staged: Staged,
    /// True from a failed write until the log was reopened.
    poisoned: bool,
    /// A snapshot's base that is not durable yet, and its write.
    reset: Option<(Seq, SnapshotMeta)>,
    /// What may be reported as durable until that base is: what stood before damage that the
    /// snapshot makes good, while it is still on disk (R15).
    capped: Option<LogId>,
    /// How long writes took.
    times: WriteTimes,
}

impl Disk {
    /// All that recovery proved is durable.
    pub(crate) fn new(durable: LogId, hard: HardState) -> Self {
        Self {
            next: Seq(1),
            done: Seq(0),
            durable,
            hard,
            pending: VecDeque::new(),
            staged: Staged::default(),
            poisoned: false,
            reset: None,
            capped: None,
            times: WriteTimes::default(),
        }
    }

    pub(crate) const fn durable(&self) -> LogId {
        self.durable
    }

    pub(crate) const fn capped(&self) -> Option<LogId> {
        self.capped
    }

    pub(crate) const fn hard(&self) -> HardState {
        self.hard
    }

    pub(crate) const fn done(&self) -> Seq {
        self.done
    }

    pub(crate) const fn next(&self) -> Seq {
        self.next
    }

    pub(crate) const fn poisoned(&self) -> bool {
        self.poisoned
    }

    pub(crate) const fn times(&self) -> &WriteTimes {
        &self.times
    }

    pub(crate) const fn pending(&self) -> &VecDeque<Pending> {
        &self.pending
    }

    pub(crate) const fn reset(&self) -> Option<&(Seq, SnapshotMeta)> {
        self.reset.as_ref()
    }

    /// When the oldest unconfirmed write was handed out.
    pub(crate) fn oldest(&self) -> Option<Micros> {
        self.pending.front().map(|p| p.at)
    }

    /// Wants a new hard state durable. Returns the write that everything depending on it waits for.
    pub(crate) fn stage_hard(&mut self, hard: HardState) -> Seq {
        self.staged.hard = Some(hard);
        self.next
    }

    /// Wants the log cut behind `kept`. The watermark falls at once, and so does what any write
    /// under way may still confirm: its entries beyond `kept` are about to go (B27).
    pub(crate) fn stage_truncate(&mut self, kept: LogId) {
        self.staged.truncate_from = Some(kept.index.next());
        self.staged.end = Some(kept);
        self.lower(kept);
    }

    /// What was to be cut stays on disk, up to here. The inverse of [`Disk::stage_truncate`], for a
    /// truncation that was never carried out.
    pub(crate) fn take_back(&mut self, last: LogId) {
        assert!(self.pending.is_empty() && self.staged.end.is_none(), "nothing is under way");
        self.durable = last;
    }

    /// Wants entries appended.
    pub(crate) fn stage_append(&mut self, entries: &Entries) {
        if self.staged.append.is_empty() {
            self.staged.append = entries.clone();
        } else {
            let mut all = self.staged.append.as_slice().to_vec();
            all.extend_from_slice(entries.as_slice());
            self.staged.append = Entries::new(all).expect("appends of one step are contiguous");
        }
        self.staged.end = entries.last();
    }

    fn lower(&mut self, to: LogId) {
        if self.durable.index > to.index {
            self.durable = to;
        }
        for pending in &mut self.pending {
            if let Some(end) = &mut pending.end
                && end.index > to.index
            {
                *end = to;
            }
        }
    }

    /// The batch of this step, if it wants one written. While the log is poisoned nothing is
    /// handed out: [`Disk::reopened`] writes what memory holds.
    pub(crate) fn flush(&mut self, now: Micros) -> Option<Persist> {
        let staged = std::mem::take(&mut self.staged);
        let nothing =
            staged.truncate_from.is_none() && staged.append.is_empty() && staged.hard.is_none();
        if nothing || self.poisoned {
            return None;
        }
        let seq = self.issue(staged.end, staged.hard, now);
        let Staged { truncate_from, append, hard, .. } = staged;
        Some(Persist { seq, truncate_from, append, hard })
    }

    fn issue(&mut self, end: Option<LogId>, hard: Option<HardState>, now: Micros) -> Seq {
        let seq = self.next;
        self.next = seq.next();
        self.pending.push_back(Pending { seq, end, hard, at: now });
        seq
    }

    /// Wants a snapshot's base durable; `None` while the log is poisoned (then the reopened log
    /// gets it). If the suffix is dropped, only what `certain` covers (committed, so part of the
    /// snapshot's history) stays in the watermark.
    pub(crate) fn reset_to(
        &mut self,
        meta: &SnapshotMeta,
        kept: bool,
        certain: LogId,
        capped: Option<LogId>,
        now: Micros,
    ) -> Option<Seq> {
        // Damage stays on disk until a base is, however many are wanted before that.
        self.capped = self.capped.or(capped);
        let staged = &self.staged;
        assert!(self.poisoned || (staged.hard.is_none() && staged.end.is_none()), "flushed first");
        if !kept {
            self.lower(certain);
        }
        if self.poisoned {
            self.reset = Some((self.next, meta.clone()));
            return None;
        }
        let seq = self.issue(Some(meta.last), None, now);
        self.reset = Some((seq, meta.clone()));
        Some(seq)
    }

    /// The write that makes `index` durable: done already, under way, or (poisoned) the one that
    /// the reopened log will get.
    pub(crate) fn covering(&self, index: Index) -> Seq {
        if self.durable.index >= index {
            return self.done;
        }
        self.pending
            .iter()
            .find(|p| p.end.is_some_and(|end| end.index >= index))
            .map_or(self.next, |p| p.seq)
    }

    /// Every write up to `through` is on stable storage.
    pub(crate) fn completed(&mut self, through: Seq, now: Micros) {
        while let Some(first) = self.pending.front()
            && first.seq <= through
        {
            let Some(pending) = self.pending.pop_front() else { return };
            self.done = pending.seq;
            self.times.note(now.saturating_sub(pending.at));
            self.hard = pending.hard.unwrap_or(self.hard);
            if let Some(end) = pending.end
                && end.index > self.durable.index
            {
                self.durable = end;
            }
            if self.reset.as_ref().is_some_and(|(seq, _)| *seq <= pending.seq) {
                (self.reset, self.capped) = (None, None);
            }
        }
    }

    /// Writes from `at` on failed: none of them can complete under its number.
    pub(crate) fn failed(&mut self, at: Seq) {
        self.pending.retain(|p| p.seq < at);
        self.poisoned = true;
    }

    /// There was no space, and the log ends at `last`. Returns the write that brings the hard state,
    /// or the last one made if it is durable, and all writes: the hard state stands before the
    /// entries that are still wanted, so that it waits for none of them. A truncation stays with
    /// what replaces the entries it cuts: alone it would take back what was acknowledged (R3).
    pub(crate) fn starved(
        &mut self,
        last: LogId,
        end: LogId,
        hard: HardState,
        now: Micros,
        tail: impl Fn(Index) -> Entries,
    ) -> (Seq, Vec<Rewrite>) {
        if self.reset.is_some() {
            let writes = self.reopened(last, end, hard, now, tail);
            return (Seq(self.next.0 - 1), writes);
        }
        self.poisoned = false;
        self.pending.clear();
        let mut writes = Vec::new();
        let truncate_from = beyond(last, self.durable);
        let mut first = self.done;
        if hard != self.hard {
            first = self.issue(None, Some(hard), now);
            let (append, hard) = (Entries::empty(), Some(hard));
            let vote = Persist { seq: first, truncate_from: None, append, hard };
            writes.push(Rewrite::Persist(vote));
        }
        let append = tail(self.durable.index.next());
        if !append.is_empty() || truncate_from.is_some() {
            let seq = self.issue(Some(end), None, now);
            let rest = Persist { seq, truncate_from, append, hard: None };
            writes.push(Rewrite::Persist(rest));
        }
        (first, writes)
    }

    /// The log is open again and durably ends at `last`. Returns the writes that bring it back to
    /// what memory holds: `tail` yields the entries above an index, `end` is the last of them.
    pub(crate) fn reopened(
        &mut self,
        last: LogId,
        end: LogId,
        hard: HardState,
        now: Micros,
        tail: impl Fn(Index) -> Entries,
    ) -> Vec<Rewrite> {
        self.poisoned = false;
        self.pending.clear();
        let mut writes = Vec::new();
        let Some((_, meta)) = self.reset.take() else {
            let truncate_from = beyond(last, self.durable);
            let append = tail(self.durable.index.next());
            let seq = self.issue(Some(end), Some(hard), now);
            writes.push(Rewrite::Persist(Persist { seq, truncate_from, append, hard: Some(hard) }));
            return writes;
        };
        // The base may or may not have reached the disk before the fault, so nothing below it is
        // cut. What lies beyond it and the watermark is, so that log and core agree on what the
        // base keeps; a log that ends before the base keeps nothing anyway.
        let kept = if self.durable.index > meta.last.index { self.durable } else { meta.last };
        let truncate_from = beyond(last, kept);
        if truncate_from.is_some() {
            let seq = self.issue(None, None, now);
            let append = Entries::empty();
            writes.push(Rewrite::Persist(Persist { seq, truncate_from, append, hard: None }));
        }
        let seq = self.issue(Some(kept), None, now);
        self.reset = Some((seq, meta.clone()));
        writes.push(Rewrite::Reset { seq, meta, last: kept });
        let append = tail(kept.index.next());
        let seq = self.issue(Some(end), Some(hard), now);
        let rest = Persist { seq, truncate_from: None, append, hard: Some(hard) };
        writes.push(Rewrite::Persist(rest));
        writes
    }
}

/// Where to cut a log that ends at `last` so that it ends at `kept`.
fn beyond(last: LogId, kept: LogId) -> Option<Index> {
    (last.index > kept.index).then(|| kept.index.next())
}

/// A write for a reopened log.
#[derive(Clone, Debug)]
pub(crate) enum Rewrite {
    Persist(Persist),
    Reset { seq: Seq, meta: SnapshotMeta, last: LogId },
}

//! The log lane: what is written next, and what becomes of a log that failed.
//!
//! Persists and resets leave in the order in which the core issued them. What queues up while a
//! job is out is merged into the next one, with one sync for all of it (group commit).

use super::Replica;
use crate::event::Event;
use crate::fault::{LogFault, StopReason, StoreFault};
use crate::io::{Input, Persist};
use crate::job::{Job, Lane, LogDone, LogJob, LogResult, SideDone, SideJob};
use crate::traits::{LogStore, StateMachine};
use crate::types::{Entry, Index, LogId, Micros, Recovered, Seq, SnapshotMeta};
use std::collections::VecDeque;

/// Most batches that one job merges.
const MERGED_BATCHES: usize = 1024;
/// Most weight that one job merges, in bytes; a single batch may be larger.
const MERGED_BYTES: usize = 8 << 20;
/// Time without a write before the first watermark (R10).
const WATERMARK_AFTER: Micros = 50_000;
/// Further idle time before the second, which makes the first one durable (R10).
const WATERMARK_AGAIN: Micros = 1_000_000;
/// Pause before the first reopening of a failed log; doubles up to [`REOPEN_MAX`].
const REOPEN_AFTER: Micros = 100_000;
const REOPEN_MAX: Micros = 5_000_000;
/// A log that fails more often than this within an hour is given up (R46).
const REOPENS_AN_HOUR: usize = 10;
const HOUR: Micros = 3_600_000_000;
/// Pause before the next attempt at a spare segment while the disk is full.
const SPARE_AGAIN: Micros = 1_000_000;
/// Pause before a write that found no space is tried again.
const STARVED_AGAIN: Micros = 500_000;

/// A write that waits for its turn.
enum Queued {
    Persist(Persist),
    Reset { seq: Seq, meta: SnapshotMeta, last: LogId },
}

/// The job that is out.
enum Out {
    Write,
    Reset { seq: Seq, meta: Box<SnapshotMeta>, last: LogId },
    Compact,
    Watermark,
    Repair,
    Other,
}

/// A log that failed and waits to be reopened.
struct Failed {
    fault: LogFault,
    at: Micros,
}

/// A job for which there was no space, as it was (R45).
struct Starved<L: LogStore> {
    job: LogJob<L>,
    out: Option<Out>,
    /// When it is tried again, if no space turns up before.
    at: Micros,
}

/// How quiet the log has been since the last news.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Quiet {
    /// News at this time: a watermark is due after a while.
    Since(Micros),
    /// The first watermark was written then; the second is due.
    Marked(Micros),
    /// Nothing to do until there is news.
    Done,
}

pub(super) struct LogLane<L: LogStore> {
    out: Option<Out>,
    queue: VecDeque<Queued>,
    /// Highest sequence number that completed.
    done: Seq,
    failed: Option<Failed>,
    starved: Option<Starved<L>>,
    /// What has found no space since the last write that did.
    pub(super) starving: Option<String>,
    /// When the log was reopened or tried to be, within the last hour.
    reopens: VecDeque<Micros>,
    delay: Micros,
    quiet: Quiet,
    marked: Index,
    pub(super) low: bool,
    compact: Option<Index>,
    /// Entries that take the place of damaged ones.
    repair: Option<Vec<Entry>>,
    /// A spare to be prepared, and whether one is out. Spares of an older handle are dropped.
    wanted: Option<L::Spare>,
    spare_out: Option<u64>,
    finished: Option<L::Spare>,
    /// Raised by every reopening.
    generation: u64,
    /// When to ask the log again for a spare that could not be had.
    spare_at: Option<Micros>,
    poll: bool,
}

impl<L: LogStore> LogLane<L> {
    pub(super) fn new(log: &mut L) -> Self {
        Self {
            out: None,
            queue: VecDeque::new(),
            done: Seq(0),
            failed: None,
            starved: None,
            starving: None,
            reopens: VecDeque::new(),
            delay: REOPEN_AFTER,
            quiet: Quiet::Done,
            marked: Index(0),
            low: log.low(),
            compact: None,
            repair: None,
            wanted: log.spare(),
            spare_out: None,
            finished: None,
            generation: 0,
            spare_at: None,
            poll: false,
        }
    }

    pub(super) fn persist(&mut self, persist: Persist) {
        self.queue.push_back(Queued::Persist(persist));
    }

    pub(super) fn reset(&mut self, seq: Seq, meta: SnapshotMeta, last: LogId) {
        self.queue.push_back(Queued::Reset { seq, meta, last });
    }

    /// Wants damaged entries replaced; the core asks for one write at a time.
    pub(super) fn repair(&mut self, entries: Vec<Entry>) {
        self.repair = Some(entries);
    }

    /// Wants everything up to an index given up.
    pub(super) fn compact(&mut self, through: Index) {
        self.compact = Some(through);
    }

    /// True while a reset waits or is out, or cannot be issued because the log failed.
    pub(super) fn resetting(&self) -> bool {
        let starved = self.starved.as_ref().and_then(|s| s.out.as_ref());
        [self.out.as_ref(), starved].iter().any(|out| matches!(out, Some(Out::Reset { .. })))
            || self.failed.is_some()
            || self.queue.iter().any(|q| matches!(q, Queued::Reset { .. }))
    }

    /// Something is worth a watermark.
    fn news(&mut self, now: Micros) {
        self.quiet = Quiet::Since(now);
    }

    /// Something was written.
    fn wrote(&mut self, now: Micros) {
        self.starving = None;
        self.news(now);
    }

    fn watermark_at(&self) -> Option<Micros> {
        match self.quiet {
            Quiet::Since(at) => Some(at + WATERMARK_AFTER),
            Quiet::Marked(at) => Some(at + WATERMARK_AGAIN),
            Quiet::Done => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Micros> {
        if self.out.is_some() {
            return None;
        }
        if let Some(failed) = &self.failed {
            return Some(failed.at);
        }
        let starved = self.starved.as_ref().map(|s| s.at);
        let watermark = self.watermark_at().filter(|_| starved.is_none());
        [watermark, self.spare_at, starved].into_iter().flatten().min()
    }

    /// True if a vote stands behind entries that find no space, or with them, or a further
    /// truncation behind them: that of their own place stays with them (R3).
    fn overtakes(&self, starved: &[Persist]) -> bool {
        let queued = self.queue.iter().filter_map(|queued| match queued {
            Queued::Persist(persist) => Some(persist),
            Queued::Reset { .. } => None,
        });
        let mut behind =
            starved.iter().chain(queued).skip_while(|persist| persist.append.is_empty());
        behind.next().is_some_and(|first| first.hard.is_some())
            || behind.any(|persist| persist.hard.is_some() || persist.truncate_from.is_some())
    }

    /// The next write: as many persists as one sync may carry, or one reset.
    fn merged(&mut self) -> Option<LogJob<L>> {
        let mut batches = Vec::new();
        let mut weight = 0usize;
        while let Some(Queued::Persist(next)) = self.queue.front() {
            let more = next.append.weight();
            // While there is no space, entries and what stands before them are no one write.
            let full = batches.len() >= MERGED_BATCHES
                || weight + more > MERGED_BYTES
                || (self.starving.is_some() && more > 0);
            if full && !batches.is_empty() {
                break;
            }
            weight += more;
            if let Some(Queued::Persist(batch)) = self.queue.pop_front() {
                batches.push(batch);
            }
        }
        if !batches.is_empty() {
            self.out = Some(Out::Write);
            return Some(LogJob::Persist(batches));
        }
        let Some(Queued::Reset { seq, meta, last }) = self.queue.pop_front() else { return None };
        self.out = Some(Out::Reset { seq, meta: Box::new(meta.clone()), last });
        Some(LogJob::Reset { to: meta })
    }

    fn next_job(&mut self, now: Micros, commit: Index) -> Option<LogJob<L>> {
        if let Some(failed) = &self.failed {
            if now < failed.at {
                return None;
            }
            self.reopens.push_back(now);
            self.out = Some(Out::Other);
            return Some(LogJob::Reopen);
        }
        if let Some(spare) = self.finished.take() {
            self.out = Some(Out::Other);
            return Some(LogJob::AddSpare(spare));
        }
        let compact = self.compact.take();
        if let Some(through) = compact.or(self.poll.then_some(Index(0))) {
            self.poll = false;
            self.out = Some(Out::Compact);
            return Some(LogJob::Compact { through });
        }
        // Whatever is queued behind a write that waits for space waits as well: writes keep their
        // order.
        if let Some(starved) = self.starved.take_if(|s| s.at <= now) {
            self.out = starved.out;
            return Some(starved.job);
        }
        if self.starved.is_some() {
            return None;
        }
        if let Some(entries) = self.repair.take() {
            self.out = Some(Out::Repair);
            return Some(LogJob::Repair(entries));
        }
        if let Some(write) = self.merged() {
            return Some(write);
        }
        if self.watermark_at().is_some_and(|at| at <= now) {
            self.out = Some(Out::Watermark);
            self.marked = commit;
            return Some(LogJob::Watermark { commit });
        }
        None
    }
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// Hands out the next log job and the next piece of a spare.
    pub(super) fn pump_log(&mut self) {
        let now = self.now;
        if self.log.spare_at.is_some_and(|at| at <= now) {
            self.log.spare_at = None;
            self.log.poll = true;
        }
        let commit = self.core.commit().min(self.core.proved().index);
        if commit > self.log.marked && self.log.quiet == Quiet::Done {
            self.log.news(now);
        }
        if self.log.out.is_none()
            && let Some(job) = self.log.next_job(now, commit)
        {
            self.run(Job::Log(job));
        }
        if self.log.spare_out.is_none()
            && let Some(spare) = self.log.wanted.take()
        {
            self.log.spare_out = Some(self.log.generation);
            self.run(Job::Side(Lane::Spare, SideJob::Spare(spare)));
        }
    }

    pub(super) fn on_log_done(&mut self, result: Result<LogDone<L>, LogFault>) {
        let out = self.log.out.take();
        match result {
            Ok(done) => {
                if done.spare.is_some() && self.log.spare_at.is_none() {
                    self.log.wanted = done.spare;
                }
                let starves = done.again.is_some() || self.log.starved.is_some();
                self.set_low(done.low || starves);
                let has = done.room && !(starves || self.core.starved() && done.low);
                if has == self.core.starved() {
                    self.feed(Input::Room { has });
                }
                match (done.result, done.again) {
                    (LogResult::NoSpace { detail, log }, Some(job)) => {
                        self.on_starved(
                            Starved { job, out, at: self.now + STARVED_AGAIN },
                            detail,
                            log,
                        );
                    }
                    (result, _) => self.on_log_result(result, out),
                }
            }
            Err(LogFault::Refused(_)) if matches!(out, Some(Out::Repair)) => {
                // The log knows better what was there; nothing was written, nothing is poisoned.
                self.mark("repair-refused-by-the-log");
                self.feed(Input::Repaired { filled: Vec::new() });
            }
            Err(fault) => self.on_log_fault(fault),
        }
    }

    fn on_log_result(&mut self, result: LogResult, out: Option<Out>) {
        match result {
            LogResult::Persisted { through } => {
                self.log.done = through;
                self.log.wrote(self.now);
                self.feed(Input::Persisted { through });
            }
            LogResult::Reset { last } => {
                let Some(Out::Reset { seq, meta, last: expected }) = out else { return };
                if last != expected {
                    // The log and the core would from here on disagree on what is acknowledged.
                    return self.stop(StopReason::Diverged {
                        at: last.index,
                        detail: format!(
                            "behind the snapshot at {} the log ends at {last}, the core at {expected}",
                            meta.last
                        ),
                    });
                }
                self.log.done = seq;
                self.log.wrote(self.now);
                self.feed(Input::Persisted { through: seq });
                self.on_reset_durable(&meta);
            }
            LogResult::Repaired { filled } => {
                self.log.wrote(self.now);
                self.feed(Input::Repaired { filled });
            }
            LogResult::Reopened(recovered) if recovered.held.is_some() => {
                // Promises were given that this log cannot prove any more (R5).
                let why = recovered.held.unwrap_or_default();
                self.stop(StopReason::NeedsOperator(why));
            }
            LogResult::Reopened(recovered) => {
                let fault = self.log.failed.take().map(|f| f.fault.to_string());
                self.log.generation += 1;
                self.log.finished = None;
                self.observe(Event::LogReopened { fault: fault.unwrap_or_default() });
                let Recovered { last, hard, holes, .. } = *recovered;
                self.feed(Input::Reopened { last, hard, holes });
            }
            LogResult::Compacted { first } => {
                if first > self.core.first() {
                    self.feed(Input::Compacted { first });
                    self.observe(Event::Compacted { first });
                    self.feed_starved();
                }
            }
            LogResult::Watermarked => {
                self.log.quiet = match self.log.quiet {
                    Quiet::Since(_) => Quiet::Marked(self.now),
                    Quiet::Marked(_) | Quiet::Done => Quiet::Done,
                };
            }
            LogResult::SpareAdded => self.feed_starved(),
            LogResult::NoSpace { .. } => {}
        }
    }

    /// There was no space, and the log is as it was: it is no fault of the log, and nothing that
    /// was promised is in question. What can be given up is, so that no vote stands behind it; the
    /// rest waits, and whatever gives space back goes on (R45).
    fn on_starved(&mut self, starved: Starved<L>, detail: String, log: Box<Recovered>) {
        if self.log.starving.is_none() {
            self.log.starving = Some(detail);
            self.mark("write-waits-for-space");
        }
        let LogJob::Persist(batches) = &starved.job else {
            self.log.starved = Some(starved);
            return;
        };
        if !self.core.starved() || self.log.overtakes(batches) {
            self.log.queue.clear();
            self.log.repair = None;
            return self.feed(Input::NoSpace { log });
        }
        self.log.starved = Some(starved);
    }

    /// There may be space now.
    fn feed_starved(&mut self) {
        if let Some(starved) = &mut self.log.starved {
            starved.at = self.now;
        }
    }

    /// The log is poisoned: whatever was queued will be issued anew by the core once the log is
    /// open again (R12, R46).
    fn on_log_fault(&mut self, fault: LogFault) {
        let now = self.now;
        let lane = &mut self.log;
        let first = lane.failed.is_none();
        let full = matches!(fault, LogFault::Full { .. });
        if full {
            // It could not be reopened for want of space: that is no attempt that failed, and it
            // ends by itself (R45).
            lane.reopens.pop_back();
            lane.starving = Some(fault.to_string());
            lane.low = true;
        }
        (lane.starved, lane.delay) = (None, if full { STARVED_AGAIN } else { lane.delay });
        lane.queue.clear();
        lane.compact = None;
        lane.repair = None;
        while lane.reopens.front().is_some_and(|at| at + HOUR <= now) {
            lane.reopens.pop_front();
        }
        if lane.reopens.len() >= REOPENS_AN_HOUR {
            return self.stop(StopReason::Log(fault));
        }
        if lane.reopens.is_empty() {
            lane.delay = REOPEN_AFTER;
        }
        lane.failed = Some(Failed { fault: fault.clone(), at: now + lane.delay });
        if !full {
            lane.delay = (lane.delay * 2).min(REOPEN_MAX);
        }
        if first {
            let at = lane.done.next();
            self.feed(Input::PersistFailed { at, fault });
        }
    }

    /// A piece of a spare is done.
    pub(super) fn on_spare_done(&mut self, done: SideDone<L, M>) {
        let generation = self.log.spare_out.take();
        if generation != Some(self.log.generation) {
            return self.mark("spare-of-an-older-log");
        }
        match done {
            SideDone::Spare(spare, true) => self.log.finished = Some(spare),
            SideDone::Spare(spare, false) => self.log.wanted = Some(spare),
            SideDone::Failed(fault) => {
                // The log says whether it is low now, and asks for another spare in due time.
                self.log.spare_at = Some(self.now + SPARE_AGAIN);
                if matches!(fault, StoreFault::Log(LogFault::Full { .. })) {
                    self.mark("spare-without-space");
                } else {
                    self.mark("spare-failed");
                }
            }
            _ => self.mark("unexpected-spare"),
        }
    }

    /// Tells the core whether log and store have space to go on with (R45).
    pub(super) fn tell_headroom(&mut self) {
        let low = self.log.low || self.apply.is_full();
        if self.low != low {
            self.low = low;
            self.feed(Input::Headroom { low });
        }
    }

    /// Why this member has no space, if it has none; it ends by itself once there is space again.
    pub(super) fn no_space(&self) -> Option<String> {
        if let Some(fault) = self.apply.troubled().filter(|_| self.apply.waits_for_space()) {
            return Some(fault.to_string());
        }
        if let Some(detail) = &self.log.starving {
            return Some(format!("the log waits for space: {detail}"));
        }
        if self.log.low {
            return Some("there is no space for another segment of the log".to_owned());
        }
        self.low.then(|| "there is no space in reserve for the store".to_owned())
    }

    fn set_low(&mut self, low: bool) {
        self.log.low = low;
        if low && self.log.wanted.is_none() && self.log.spare_at.is_none() {
            self.log.spare_at = Some(self.now + SPARE_AGAIN);
        }
    }
}

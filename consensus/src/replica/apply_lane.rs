//! The apply lane: committed entries into the state machine, checkpoints, and a store that fails.

use super::Replica;
use super::receive::Install;
use crate::event::Event;
use crate::fault::{StopReason, StoreFault};
use crate::io::Input;
use crate::job::{ApplyDone, ApplyJob, Job};
use crate::traits::{Applied, LogStore, StateMachine};
use crate::types::{Index, Micros};

/// Most entries and weight of one apply transaction.
const APPLY_ENTRIES: u64 = 4096;
const APPLY_BYTES: usize = 4 << 20;
/// Entries that are handed again at every opening of the store although it says that it holds
/// them: replay is keyed on the applied index, and this keeps that path in use.
const HANDED_AGAIN: u64 = 16;
/// Pause before a failed store is reopened; doubles up to [`RETRY_MAX`] (R21).
const RETRY_AFTER: Micros = 100_000;
const RETRY_MAX: Micros = 5_000_000;
/// Longest pause while it is space that is wanted.
const RETRY_FULL: Micros = 1_000_000;

/// The job that is out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Out {
    Entries { weight: u64 },
    Checkpoint,
    Pin,
    Restore,
    Adopt,
    Reopen,
    MakeRoom,
}

/// A store that failed, from the first fault until it has got past it.
struct Trouble {
    fault: StoreFault,
    /// When it began.
    since: Micros,
    /// When the next attempt is due; `None` while one is under way.
    at: Option<Micros>,
    delay: Micros,
    /// True if the store must be reopened first.
    reopen: bool,
    /// It ends when this has been applied ...
    goal: Index,
    /// ... and, if the fault came from another kind of work, when that has succeeded.
    work: Out,
}

pub(super) struct ApplyLane {
    out: Option<Out>,
    pub(super) applied: Applied,
    /// True until entries were handed to the store since it was opened.
    opened: bool,
    /// Highest index that anything was ever answered from: a store that came back with less
    /// serves nothing until it is there again (R21).
    pub(super) floor: Index,
    trouble: Option<Trouble>,
    /// When a machine that is low is to look for space; `None` if it is not low.
    low: Option<Micros>,
    /// Weight applied since the last checkpoint.
    unsaved: u64,
    /// When the first entry behind the last checkpoint was applied.
    unsaved_since: Option<Micros>,
    /// A checkpoint is wanted whatever the budget says.
    pub(super) checkpoint_wanted: bool,
}

impl ApplyLane {
    pub(super) fn new(applied: Applied) -> Self {
        Self {
            out: None,
            applied,
            opened: true,
            floor: applied.last.index,
            trouble: None,
            low: None,
            unsaved: 0,
            unsaved_since: None,
            checkpoint_wanted: false,
        }
    }

    /// True if reads at this index may be served.
    pub(super) fn covers(&self, index: Index) -> bool {
        self.applied.last.index >= index.max(self.floor)
    }

    pub(super) fn idle(&self) -> bool {
        self.out.is_none()
    }

    /// True if the store finds no space, or may soon find none.
    pub(super) fn is_full(&self) -> bool {
        self.low.is_some() || self.waits_for_space()
    }

    /// True if it is space that the store lacks.
    pub(super) fn waits_for_space(&self) -> bool {
        matches!(self.troubled(), Some(StoreFault::Full { .. }))
    }

    pub(super) fn troubled(&self) -> Option<&StoreFault> {
        self.trouble.as_ref().map(|t| &t.fault)
    }
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    /// When the apply lane wants to be looked at again.
    pub(super) fn apply_deadline(&self) -> Option<Micros> {
        if !self.apply.idle() {
            return None;
        }
        if let Some(trouble) = &self.apply.trouble {
            return trouble.at;
        }
        let saved = self.core.proved().index >= self.apply.applied.last.index;
        let due = self.apply.unsaved_since.map(|at| at + self.config.checkpoint_after);
        let due = due.filter(|_| saved && self.apply.applied.durable < self.apply.applied.last);
        [due, self.apply.low].into_iter().flatten().min()
    }

    /// Hands out the next apply job.
    pub(super) fn pump_apply(&mut self) {
        if !self.apply.idle() {
            return;
        }
        if let Some(trouble) = &mut self.apply.trouble {
            match trouble.at {
                Some(at) if at > self.now => return,
                Some(_) => trouble.at = None,
                None => {}
            }
            if std::mem::take(&mut trouble.reopen) {
                return self.apply_job(Out::Reopen, ApplyJob::Reopen);
            }
        }
        if self.apply.low.is_some_and(|at| at <= self.now) {
            self.apply.low = Some(self.now + RETRY_FULL);
            return self.apply_job(Out::MakeRoom, ApplyJob::MakeRoom);
        }
        if self.pump_install() {
            return;
        }
        if self.checkpoint_due() {
            self.apply.checkpoint_wanted = false;
            return self.apply_job(Out::Checkpoint, ApplyJob::Checkpoint);
        }
        if self.snapshot_due() {
            self.build.pinning();
            return self.apply_job(Out::Pin, ApplyJob::Pin);
        }
        self.pump_entries();
    }

    fn apply_job(&mut self, out: Out, job: ApplyJob<L, M>) {
        self.apply.out = Some(out);
        self.run(Job::Apply(job));
    }

    /// Begins a second store for a snapshot.
    pub(super) fn run_restore(&mut self, meta: crate::types::SnapshotMeta) {
        self.apply_job(Out::Restore, ApplyJob::Restore { meta });
    }

    /// Swaps a restored store in.
    pub(super) fn run_adopt(&mut self, restored: M::Restore) {
        self.apply_job(Out::Adopt, ApplyJob::Adopt(restored));
    }

    /// R22: only what the log holds durably may become durable in the store.
    fn checkpoint_due(&self) -> bool {
        let lane = &self.apply;
        let behind = lane.applied.durable < lane.applied.last;
        let retried = lane
            .trouble
            .as_ref()
            .is_some_and(|t| t.work == Out::Checkpoint && lane.applied.last.index >= t.goal);
        let budget = lane.unsaved >= self.config.checkpoint_bytes
            || lane.unsaved_since.is_some_and(|at| at + self.config.checkpoint_after <= self.now);
        behind
            && (budget || lane.checkpoint_wanted || retried)
            && self.core.proved().index >= lane.applied.last.index
    }

    fn pump_entries(&mut self) {
        let mut from = self.apply.applied.last.index.next();
        let (first, commit) = (self.core.first(), self.core.commit());
        // Entries below the log's first were compacted or lie in a snapshot: an install brings
        // them, and nothing behind it is applied before.
        if from < first {
            return;
        }
        if std::mem::take(&mut self.apply.opened) {
            let low = Index(from.0.saturating_sub(HANDED_AGAIN)).max(first);
            from = self.readable_since(low, from);
        }
        let commit = self.readable_through(from, commit);
        if from > commit {
            // Nothing is left to be tried: a store that is open again is well.
            let well = |t: &Trouble| matches!(t.work, Out::Entries { .. }) && t.goal < from;
            if self.apply.trouble.as_ref().is_some_and(well) {
                self.apply.trouble = None;
            }
            return;
        }
        let to = commit.min(Index(from.0 + APPLY_ENTRIES - 1));
        let mut cached = self.core.cached(from, to);
        if cached.first().is_some_and(|first| first.index == from) {
            cached = cached.within(APPLY_BYTES);
        }
        let weight = cached.weight() as u64;
        let reader = self.reader.clone();
        let report = self.calls.any_forwarded();
        let job = ApplyJob::Entries { from, to, cached, reader, report };
        self.apply_job(Out::Entries { weight }, job);
    }

    pub(super) fn on_apply_done(&mut self, result: Result<ApplyDone<M>, StoreFault>) {
        let Some(out) = self.apply.out.take() else { return self.mark("unexpected-apply") };
        match result {
            Ok(done) => self.on_applied(out, done),
            Err(fault) => self.on_store_fault(out, fault),
        }
    }

    fn on_applied(&mut self, out: Out, done: ApplyDone<M>) {
        let before = self.apply.applied;
        self.apply.applied = done.applied;
        let through = done.applied.last;
        self.apply.low = match (done.low, self.apply.low) {
            (true, None) => Some(self.now + RETRY_FULL),
            (true, at) => at,
            (false, _) => None,
        };
        match out {
            Out::Entries { weight } => {
                self.apply.unsaved += weight;
                // A store gives up no page before it is durable again.
                self.apply.checkpoint_wanted |= done.low;
                self.apply.unsaved_since.get_or_insert(self.now);
            }
            Out::Checkpoint => {
                self.apply.unsaved = 0;
                self.apply.unsaved_since = None;
                self.observe(Event::Checkpointed { through: done.applied.durable.index });
            }
            Out::Pin => self.on_pinned(done.pinned),
            Out::Restore => self.on_restore_begun(done.restore),
            Out::Adopt => self.on_adopted(through),
            Out::Reopen => self.on_reopened(before, done.applied),
            Out::MakeRoom => {}
        }
        self.note_progress(out);
        let skipped = done.applied.skipped.saturating_sub(before.skipped);
        if through > before.last || skipped > 0 {
            self.observe(Event::Applied { through, digest: done.applied.digest, skipped });
            self.feed(Input::Applied { through: through.index });
        }
        if matches!(out, Out::Entries { .. }) {
            self.settle_forwarded(&done.commands, &done.replies);
        }
        if !matches!(out, Out::Reopen | Out::MakeRoom) {
            self.answer_applied(done.replies);
        }
    }

    /// The store is open again, or (one that waits for space) still is.
    fn on_reopened(&mut self, before: Applied, applied: Applied) {
        let fault = self.apply.troubled().map(ToString::to_string).unwrap_or_default();
        self.apply.opened = true;
        self.abandon_restore();
        if applied.durable == applied.last {
            self.apply.unsaved = 0;
            self.apply.unsaved_since = None;
        }
        // One that waits for space is tried again and again, and nobody has to hear of it.
        if !self.apply.waits_for_space() || applied.last != before.last {
            self.observe(Event::StoreReopened { fault, applied: applied.last.index });
        }
    }

    /// Ends the trouble once the store has got past what it failed at.
    fn note_progress(&mut self, out: Out) {
        let applied = self.apply.applied.last.index;
        let installed = applied.next() >= self.core.first();
        let past = |t: &Trouble| {
            let done = match t.work {
                Out::Restore | Out::Adopt => installed,
                Out::Checkpoint => out == Out::Checkpoint,
                _ => true,
            };
            !matches!(out, Out::Reopen | Out::MakeRoom) && applied >= t.goal && done
        };
        if self.apply.trouble.as_ref().is_some_and(past) {
            self.apply.trouble = None;
        }
    }

    fn on_store_fault(&mut self, out: Out, fault: StoreFault) {
        if let StoreFault::UnknownType { at, kind } = fault {
            return self.stop(StopReason::UnknownEntryType { at, kind });
        }
        let next = self.apply.applied.last.index.next();
        let compacted = matches!(fault, StoreFault::Log(_)) && next < self.core.first();
        if compacted {
            // A reset overtook the read: the install that follows brings what was to be applied.
            return self.mark("apply-overtaken-by-reset");
        }
        if let StoreFault::Log(fault) = &fault
            && self.report_damage(fault)
        {
            // Applied again once the entry is repaired; the store is well.
            return;
        }
        match out {
            Out::Pin => self.on_snapshot_failed(&fault),
            Out::Restore | Out::Adopt => self.abandon_restore(),
            _ => {}
        }
        let reopen = !matches!(fault, StoreFault::Log(_) | StoreFault::Snapshot(_));
        let now = self.now;
        // An entry behind the applied ones, if there is one to apply, is what has to succeed.
        let entries = matches!(out, Out::Entries { .. }) && next <= self.core.commit();
        let goal = if entries { next } else { next.prev() };
        let work = match out {
            // A snapshot has its own retries: the store alone has to come back.
            Out::Pin => Out::Entries { weight: 0 },
            other => other,
        };
        let trouble = self.apply.trouble.get_or_insert(Trouble {
            fault: fault.clone(),
            since: now,
            at: None,
            delay: RETRY_AFTER,
            reopen,
            goal,
            work,
        });
        trouble.goal = trouble.goal.max(goal);
        let full = matches!(fault, StoreFault::Full { .. });
        if full {
            // Nobody is helped by a replica that stops: this ends once there is space (R45).
            trouble.since = now;
        }
        if now.saturating_sub(trouble.since) >= self.config.store_retry {
            let at = next;
            return self.stop(match fault {
                StoreFault::Log(fault) => StopReason::Log(fault),
                fault => StopReason::StoreRefused { at, fault },
            });
        }
        trouble.reopen = reopen || out == Out::Reopen;
        trouble.fault = fault;
        trouble.at = Some(now + trouble.delay);
        trouble.delay = (trouble.delay * 2).min(if full { RETRY_FULL } else { RETRY_MAX });
    }

    /// Filling the second store failed outside the apply lane.
    pub(super) fn on_copy_failed(&mut self, fault: StoreFault) {
        self.on_store_fault(Out::Restore, fault);
    }

    /// Drops a half restored store; the install begins again.
    fn abandon_restore(&mut self) {
        if !matches!(self.install, Install::Idle) {
            self.install = Install::Idle;
        }
    }
}

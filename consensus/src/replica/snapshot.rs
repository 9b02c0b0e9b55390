//! Snapshots of the own state machine, and what may be given up behind them.

use super::Replica;
use super::receive::Install;
use crate::event::Event;
use crate::fault::StoreFault;
use crate::io::Input;
use crate::job::{Job, Lane, SideDone, SideJob};
use crate::traits::{LogStore, StateMachine};
use crate::types::{Index, Micros, SnapshotMeta};

/// Pause before a snapshot that failed is tried again.
const AGAIN: Micros = 5_000_000;

/// Where the own snapshot stands.
#[derive(Debug, Default)]
pub(super) struct Build {
    /// From the pin to the publication.
    busy: bool,
    /// Not before this, after a failure.
    not_before: Micros,
    /// Last bound that a compaction was asked for.
    compacted: Index,
}

impl Build {
    pub(super) fn pinning(&mut self) {
        self.busy = true;
    }
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    fn snapshot_index(&self) -> Index {
        self.newest.as_ref().map_or(Index(0), |meta| meta.last.index)
    }

    fn entries_since_snapshot(&self) -> u64 {
        self.apply.applied.last.index.0.saturating_sub(self.snapshot_index().0)
    }

    /// True if the state should be pinned for a snapshot now. Like a checkpoint, it holds only
    /// what the log holds durably.
    pub(super) fn snapshot_due(&self) -> bool {
        !self.build.busy
            && self.now >= self.build.not_before
            && matches!(self.install, Install::Idle)
            && !self.receiving()
            && self.entries_since_snapshot() >= self.config.snapshot_entries.max(1)
            && self.core.durable().index >= self.apply.applied.last.index
    }

    pub(super) fn snapshot_deadline(&self) -> Option<Micros> {
        let waits = !self.build.busy
            && self.build.not_before > self.now
            && self.entries_since_snapshot() >= self.config.snapshot_entries.max(1);
        waits.then_some(self.build.not_before)
    }

    pub(super) fn on_pinned(&mut self, pinned: Option<(SnapshotMeta, M::Image)>) {
        let Some((meta, image)) = pinned else {
            self.build.busy = false;
            return self.mark("pin-without-image");
        };
        // Compaction waits for a durable store as well: let it not lag behind the snapshot.
        self.apply.checkpoint_wanted = true;
        let snapshots = self.snapshots.clone();
        self.run(Job::Side(Lane::Build, SideJob::BuildBegin { meta, image, snapshots }));
    }

    pub(super) fn on_build_done(&mut self, done: SideDone<L, M>) {
        match done {
            SideDone::More(job) => self.run(Job::Side(Lane::Build, job)),
            SideDone::Published(meta) => {
                self.build.busy = false;
                self.observe(Event::SnapshotTaken { last: meta.last, bytes: meta.bytes });
                self.note_snapshot(&meta);
                self.feed(Input::Snapshotted { meta });
            }
            SideDone::Failed(fault) => self.on_snapshot_failed(&fault),
            _ => {
                self.build.busy = false;
                self.mark("unexpected-build");
            }
        }
    }

    pub(super) fn on_snapshot_failed(&mut self, fault: &StoreFault) {
        self.build.busy = false;
        self.build.not_before = self.now + AGAIN;
        self.observe(Event::SnapshotFailed { why: fault.to_string() });
    }

    /// A snapshot was published, built here or received.
    pub(super) fn note_snapshot(&mut self, meta: &SnapshotMeta) {
        if meta.last.index > self.snapshot_index() {
            self.newest = Some(meta.clone());
        }
    }

    /// Asks for a compaction if it would give up more than the last one. Never beyond what the
    /// store holds durably, what a verified snapshot covers less the kept tail, or a snapshot that
    /// is on its way to a follower, who will need what comes behind it.
    pub(super) fn pump_compaction(&mut self) {
        let Some(newest) = &self.newest else { return };
        let tail = Index(newest.last.index.0.saturating_sub(self.config.kept_entries));
        let shipping = self.shipping.values().map(|s| s.meta.last.index).min();
        let bound = [Some(tail), Some(self.apply.applied.durable.index), shipping];
        let Some(through) = bound.into_iter().flatten().min() else { return };
        if through >= self.core.first() && through > self.build.compacted {
            self.build.compacted = through;
            self.log.compact(through);
        }
    }
}

//! Receiving a snapshot and installing it, in the order of R25: file published, base durable in
//! the log, store rebuilt beside the live one and swapped in.

use super::Replica;
use crate::event::{Event, RoleKind};
use crate::fault::{NO_REPLACEMENT, StopReason};
use crate::io::Input;
use crate::job::{Job, Lane, SideDone, SideJob, SnapWriter};
use crate::message::{Message, SendLane, TransferState};
use crate::traits::{LogStore, SNAPSHOT_CHUNK_MAX, SnapshotSink, StateMachine};
use crate::types::{Index, LogId, MemberId, Micros, SnapshotMeta, Term, TransferId};
use bytes::Bytes;

/// Give up on a sender after this long without a chunk or an offer.
const SILENT: Micros = 10_000_000;

/// Where a transfer stands at its receiver.
enum Stage<L: LogStore> {
    /// The file is to be opened once the lane is free.
    Opening,
    /// The lane is at it.
    Out,
    /// The next chunk is awaited.
    Waiting(SnapWriter<L>),
    /// It is here and waits for the lane, which may be filling a second store.
    Chunk { writer: SnapWriter<L>, offset: u64, chunk: Bytes },
    /// Published: the log's base is to become durable.
    Published,
}

/// A snapshot on its way here.
pub(super) struct Receiving<L: LogStore> {
    from: MemberId,
    term: Term,
    transfer: TransferId,
    meta: SnapshotMeta,
    stage: Stage<L>,
    heard: Micros,
}

/// How far the store's part of an install has come. What is installed is always the newest
/// snapshot; it is needed while the log begins behind what the store has applied.
pub(super) enum Install<M: StateMachine> {
    Idle,
    /// The apply lane begins a second store for this snapshot.
    Beginning(SnapshotMeta),
    /// It is there and waits for its lane.
    Begun(SnapshotMeta, M::Restore),
    /// The second store is being filled.
    Copying,
    /// It is full, and waits for the apply lane.
    Filled(M::Restore),
    /// The apply lane swaps it in.
    Adopting,
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    pub(super) fn receiving(&self) -> bool {
        self.receiving.is_some()
    }

    pub(super) fn receive_deadline(&self) -> Option<Micros> {
        self.receiving.as_ref().map(|r| r.heard + SILENT)
    }

    /// The core wants a snapshot that its leader offers, or the offer was repeated.
    pub(super) fn expect_snapshot(
        &mut self,
        from: MemberId,
        transfer: TransferId,
        term: Term,
        meta: SnapshotMeta,
    ) {
        let now = self.now;
        if let Some(receiving) = &mut self.receiving
            && (receiving.from, receiving.term, receiving.transfer) == (from, term, transfer)
        {
            receiving.heard = now;
            return self.acknowledge_standing();
        }
        self.observe(Event::TransferBegan { transfer, peer: from, sending: false });
        let stage = Stage::Opening;
        self.receiving = Some(Receiving { from, term, transfer, meta, stage, heard: now });
    }

    /// Tells the sender what is wanted next, unless a chunk is just being written.
    fn acknowledge_standing(&mut self) {
        let Some(receiving) = &self.receiving else { return };
        let next = match &receiving.stage {
            Stage::Opening | Stage::Out | Stage::Chunk { .. } => return,
            Stage::Waiting(writer) => writer.offset(),
            Stage::Published => receiving.meta.bytes,
        };
        self.acknowledge(next, TransferState::Wanted);
    }

    fn acknowledge(&mut self, next: u64, state: TransferState) {
        let Some(receiving) = &self.receiving else { return };
        let (to, transfer) = (receiving.from, receiving.transfer);
        let term = self.core.hard().term;
        let message = Message::SnapshotAck { term, transfer, next, state };
        self.send(to, message, SendLane::Urgent);
    }

    /// The transfer is over, one way or the other.
    fn end_receiving(&mut self, ok: bool) {
        let Some(receiving) = &self.receiving else { return };
        let (transfer, peer, bytes) = (receiving.transfer, receiving.from, receiving.meta.bytes);
        let state = if ok { TransferState::Done } else { TransferState::Failed };
        self.acknowledge(bytes, state);
        self.receiving = None;
        self.observe(Event::TransferEnded { transfer, peer, ok });
        if !ok {
            self.feed(Input::SnapshotAborted { transfer });
        }
    }

    pub(super) fn on_chunk(
        &mut self,
        from: MemberId,
        term: Term,
        transfer: TransferId,
        offset: u64,
        chunk: Bytes,
    ) {
        let now = self.now;
        let Some(receiving) = &mut self.receiving else { return self.dropped("snapshot-chunk") };
        let mine = (receiving.from, receiving.term, receiving.transfer) == (from, term, transfer);
        let Stage::Waiting(writer) = &receiving.stage else {
            return self.dropped("snapshot-chunk");
        };
        let end = offset.checked_add(chunk.len() as u64);
        let fits = !chunk.is_empty()
            && chunk.len() <= SNAPSHOT_CHUNK_MAX
            && end.is_some_and(|end| end <= receiving.meta.bytes);
        if !mine || !fits {
            return self.dropped("snapshot-chunk");
        }
        receiving.heard = now;
        if writer.offset() != offset {
            self.dropped("snapshot-chunk");
            return self.acknowledge_standing();
        }
        let Stage::Waiting(writer) = std::mem::replace(&mut receiving.stage, Stage::Out) else {
            return;
        };
        receiving.stage = Stage::Chunk { writer, offset, chunk };
    }

    fn run_receive(&mut self, job: SideJob<L, M>) {
        assert!(self.receive_out.is_none(), "one job is out on a lane");
        let mine = self.receiving.as_ref().map(|r| (r.term, r.transfer));
        self.receive_out = Some(mine);
        self.run(Job::Side(Lane::Receive, job));
    }

    /// Opens the file of a transfer, begins to fill a second store, gives up on a silent sender.
    pub(super) fn pump_receiving(&mut self) {
        if self.receiving.as_ref().is_some_and(|r| r.heard + SILENT <= self.now) {
            self.mark("snapshot-sender-silent");
            self.end_receiving(false);
        }
        if self.receive_out.is_some() {
            return;
        }
        if matches!(self.install, Install::Begun(..)) {
            let begun = std::mem::replace(&mut self.install, Install::Copying);
            let Install::Begun(meta, sink) = begun else { return };
            let snapshots = self.snapshots.clone();
            self.receive_out = Some(None);
            let job = SideJob::RestoreBegin { meta, snapshots, sink };
            return self.run(Job::Side(Lane::Receive, job));
        }
        let Some(receiving) = &mut self.receiving else { return };
        match std::mem::replace(&mut receiving.stage, Stage::Out) {
            Stage::Opening => {
                let meta = receiving.meta.clone();
                let snapshots = self.snapshots.clone();
                self.run_receive(SideJob::ReceiveBegin { meta, snapshots });
            }
            Stage::Chunk { writer, offset, chunk } => {
                self.run_receive(SideJob::Receive { writer, offset, chunk });
            }
            other => receiving.stage = other,
        }
    }

    pub(super) fn on_receive_done(&mut self, done: SideDone<L, M>) {
        let out = self.receive_out.take();
        match done {
            SideDone::More(job @ SideJob::Restore { .. }) => {
                if matches!(self.install, Install::Copying) {
                    self.receive_out = Some(None);
                    self.run(Job::Side(Lane::Receive, job));
                }
            }
            SideDone::Restored(sink) => {
                if matches!(self.install, Install::Copying) {
                    self.install = Install::Filled(sink);
                }
            }
            SideDone::Receiving(writer) => self.on_chunk_written(writer, out.flatten()),
            SideDone::Published(meta) => self.on_received(meta, out.flatten()),
            SideDone::Failed(fault) => {
                if out == Some(None) {
                    self.on_restore_failed(fault);
                } else if self.is_current(out.flatten()) {
                    self.mark("snapshot-not-received");
                    self.end_receiving(false);
                }
            }
            _ => self.mark("unexpected-receive"),
        }
    }

    fn is_current(&self, out: Option<(Term, TransferId)>) -> bool {
        self.receiving.as_ref().map(|r| (r.term, r.transfer)) == out
    }

    fn on_chunk_written(&mut self, writer: SnapWriter<L>, out: Option<(Term, TransferId)>) {
        if !self.is_current(out) {
            return self.mark("chunk-of-an-older-transfer");
        }
        let Some(receiving) = &mut self.receiving else { return };
        if writer.offset() >= receiving.meta.bytes {
            receiving.stage = Stage::Out;
            let snapshots = self.snapshots.clone();
            return self.run_receive(SideJob::Publish { writer, snapshots });
        }
        receiving.stage = Stage::Waiting(writer);
        self.acknowledge_standing();
    }

    /// The file is verified, published and durable: step (1) of R25 is done.
    fn on_received(&mut self, meta: SnapshotMeta, out: Option<(Term, TransferId)>) {
        self.note_snapshot(&meta);
        if self.is_current(out)
            && let Some(receiving) = &mut self.receiving
        {
            receiving.stage = Stage::Published;
            receiving.heard = self.now;
            self.acknowledge_standing();
        }
        let last = meta.last;
        self.feed(Input::SnapshotReceived { meta });
        if self.core.role() == RoleKind::Leader || !self.core.wants_snapshot(last) {
            // Entries overtook it, and the core will say so: there is nothing to install.
            self.end_receiving(true);
        }
    }

    /// The base is durable: step (2) of R25 is done, and entries behind it can be acknowledged.
    /// A crash from here on finds the store behind the log and restores it from the snapshot.
    pub(super) fn on_reset_durable(&mut self, meta: &SnapshotMeta) {
        if self.receiving.as_ref().is_some_and(|r| r.meta.last == meta.last) {
            self.end_receiving(true);
        }
        // A second store for an older snapshot would be of no use.
        if matches!(self.install, Install::Begun(..) | Install::Filled(_)) {
            self.install = Install::Idle;
        }
    }

    /// The next step of an install that the apply lane has to do; true if there was one.
    pub(super) fn pump_install(&mut self) -> bool {
        match std::mem::replace(&mut self.install, Install::Idle) {
            Install::Filled(restored) => {
                self.install = Install::Adopting;
                self.run_adopt(restored);
                return true;
            }
            Install::Idle => {}
            other => {
                self.install = other;
                return false;
            }
        }
        let needed = self.apply.applied.last.index.next() < self.core.first();
        if !needed || self.log.resetting() || self.receive_out.is_some() {
            return false;
        }
        let base = self.core.first().prev();
        match self.newest.clone().filter(|meta| meta.last.index >= base) {
            Some(meta) => {
                self.install = Install::Beginning(meta.clone());
                self.run_restore(meta);
            }
            None => self.stop(missing_snapshot(self.apply.applied.last, base)),
        }
        true
    }

    pub(super) fn on_restore_begun(&mut self, restore: Option<M::Restore>) {
        if let (Install::Beginning(meta), Some(sink)) = (&self.install, restore) {
            self.install = Install::Begun(meta.clone(), sink);
        }
    }

    fn on_restore_failed(&mut self, fault: crate::fault::StoreFault) {
        if !matches!(self.install, Install::Copying) {
            return;
        }
        self.install = Install::Idle;
        self.on_copy_failed(fault);
    }

    /// The store is swapped in: step (3) of R25 is done.
    pub(super) fn on_adopted(&mut self, through: LogId) {
        self.install = Install::Idle;
        self.calls.blind_forwarded();
        self.observe(Event::Installed { last: through });
    }
}

/// The log begins behind the store, and no snapshot closes the gap.
pub(super) fn missing_snapshot(applied: LogId, base: Index) -> StopReason {
    StopReason::NeedsOperator(format!(
        "the store has applied {applied}, the log begins behind {base}, and no verified snapshot \
         reaches that far; put its newest snapshot files back. {NO_REPLACEMENT}",
    ))
}

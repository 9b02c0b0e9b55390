//! Sending snapshots to followers: one chunk at a time, each asked for by its receiver.
//!
//! The receiver leads: every acknowledgement names the offset it wants, and the sender reads from
//! there. A message that got lost is made good by offering again, which the receiver answers with
//! where it stands; so does a receiver that was restarted meanwhile.

use super::Replica;
use crate::event::Event;
use crate::io::Input;
use crate::job::{Job, Lane, SideDone, SideJob, SnapReader};
use crate::message::{Message, SendLane, TransferState};
use crate::traits::{LogStore, StateMachine};
use crate::types::{MemberId, Micros, SnapshotMeta, Term, TransferId};
use bytes::Bytes;

/// Offer again after this long without an answer.
const RESEND: Micros = 500_000;
/// Give up after this long without any answer ...
const SILENT: Micros = 5_000_000;
/// ... or without an offset that advances (the receiver verifies and syncs at the end).
const STALLED: Micros = 60_000_000;

/// Where a transfer stands at its sender.
enum Stage<L: LogStore> {
    /// The receiver is to say what it wants.
    Offered,
    /// A chunk is being read, or will be once the lane is free.
    Reading { offset: u64, reader: Option<SnapReader<L>> },
    /// The lane is at it.
    Out,
    /// A chunk was sent; `reader` stands behind it.
    Sent { offset: u64, chunk: Bytes, reader: SnapReader<L> },
}

/// A transfer to one follower.
pub(super) struct Shipping<L: LogStore> {
    transfer: TransferId,
    term: Term,
    pub(super) meta: SnapshotMeta,
    stage: Stage<L>,
    /// Highest offset that the receiver asked for.
    wanted: u64,
    heard: Micros,
    advanced: Micros,
    resend: Micros,
}

impl<L: LogStore, M: StateMachine> Replica<L, M> {
    pub(super) fn ship_deadline(&self) -> Option<Micros> {
        self.shipping.values().map(|s| s.resend).min()
    }

    pub(super) fn begin_shipping(
        &mut self,
        to: MemberId,
        transfer: TransferId,
        term: Term,
        meta: SnapshotMeta,
    ) {
        if let Some(old) = self.shipping.remove(&to) {
            self.observe(Event::TransferEnded { transfer: old.transfer, peer: to, ok: false });
        }
        self.observe(Event::TransferBegan { transfer, peer: to, sending: true });
        let now = self.now;
        let shipping = Shipping {
            transfer,
            term,
            meta,
            stage: Stage::Offered,
            wanted: 0,
            heard: now,
            advanced: now,
            resend: now,
        };
        self.shipping.insert(to, shipping);
    }

    pub(super) fn stop_shipping(&mut self, transfer: TransferId) {
        let peer = self.shipping.iter().find(|(_, s)| s.transfer == transfer).map(|(to, _)| *to);
        if let Some(peer) = peer {
            self.shipping.remove(&peer);
            self.observe(Event::TransferEnded { transfer, peer, ok: false });
        }
    }

    fn end_shipping(&mut self, to: MemberId, ok: bool) {
        if let Some(shipping) = self.shipping.remove(&to) {
            let transfer = shipping.transfer;
            self.observe(Event::TransferEnded { transfer, peer: to, ok });
            self.feed(Input::TransferEnded { transfer, ok });
        }
    }

    /// Offers, offers again, gives up, and hands out reads.
    pub(super) fn pump_shipping(&mut self) {
        let now = self.now;
        let peers: Vec<MemberId> = self.shipping.keys().copied().collect();
        for to in peers {
            let Some(shipping) = self.shipping.get_mut(&to) else { continue };
            if now >= shipping.heard + SILENT || now >= shipping.advanced + STALLED {
                self.end_shipping(to, false);
                continue;
            }
            if now >= shipping.resend {
                shipping.resend = now + RESEND;
                let (term, transfer) = (shipping.term, shipping.transfer);
                let message =
                    Message::SnapshotOffer { term, transfer, meta: shipping.meta.clone() };
                self.send(to, message, SendLane::Bulk);
            }
            self.pump_ship_lane(to);
        }
    }

    fn pump_ship_lane(&mut self, to: MemberId) {
        if self.ship_out.contains_key(&to) {
            return;
        }
        let Some(shipping) = self.shipping.get_mut(&to) else { return };
        if !matches!(shipping.stage, Stage::Reading { .. }) {
            return;
        }
        let Stage::Reading { offset, reader } = std::mem::replace(&mut shipping.stage, Stage::Out)
        else {
            return;
        };
        let job = match reader {
            Some(reader) => SideJob::Ship { reader, offset },
            None => SideJob::ShipBegin {
                meta: shipping.meta.clone(),
                offset,
                snapshots: self.snapshots.clone(),
            },
        };
        let transfer = shipping.transfer;
        self.ship_out.insert(to, transfer);
        self.run(Job::Side(Lane::Ship(to), job));
    }

    pub(super) fn on_ship_done(&mut self, to: MemberId, done: SideDone<L, M>) {
        let transfer = self.ship_out.remove(&to);
        let Some(shipping) = self.shipping.get_mut(&to) else { return };
        if Some(shipping.transfer) != transfer {
            return self.mark("read-of-an-older-transfer");
        }
        match done {
            SideDone::More(SideJob::Ship { reader, offset }) => {
                shipping.stage = Stage::Reading { offset, reader: Some(reader) };
            }
            SideDone::Chunk(reader, next, Some(chunk)) => {
                let offset = next - chunk.len() as u64;
                shipping.resend = self.now + RESEND;
                let (term, transfer) = (shipping.term, shipping.transfer);
                shipping.stage = Stage::Sent { offset, chunk: chunk.clone(), reader };
                let message = Message::SnapshotChunk { term, transfer, offset, bytes: chunk };
                self.send(to, message, SendLane::Bulk);
            }
            // All was read: the receiver verifies, and is offered again until it says more.
            SideDone::Chunk(_, _, None) => shipping.stage = Stage::Offered,
            SideDone::Failed(_) => {
                self.mark("snapshot-unreadable");
                self.end_shipping(to, false);
            }
            _ => {
                self.mark("unexpected-ship");
                self.end_shipping(to, false);
            }
        }
    }

    pub(super) fn on_snapshot_ack(
        &mut self,
        from: MemberId,
        transfer: TransferId,
        next: u64,
        state: TransferState,
    ) {
        let now = self.now;
        let Some(shipping) = self.shipping.get_mut(&from).filter(|s| s.transfer == transfer) else {
            return self.dropped("snapshot-ack");
        };
        match state {
            TransferState::Done => return self.end_shipping(from, true),
            TransferState::Failed => return self.end_shipping(from, false),
            TransferState::Wanted => {}
        }
        shipping.heard = now;
        if next > shipping.wanted {
            shipping.wanted = next;
            shipping.advanced = now;
        }
        if next >= shipping.meta.bytes {
            // It has everything and verifies: ask for its progress now and then.
            return;
        }
        match std::mem::replace(&mut shipping.stage, Stage::Offered) {
            // A read is under way: this acknowledgement is a duplicate, or will be repeated.
            stage @ (Stage::Reading { .. } | Stage::Out) => shipping.stage = stage,
            Stage::Sent { offset, chunk, reader } if next == offset => {
                // The chunk got lost.
                let term = shipping.term;
                shipping.stage = Stage::Sent { offset, chunk: chunk.clone(), reader };
                let message = Message::SnapshotChunk { term, transfer, offset, bytes: chunk };
                self.send(from, message, SendLane::Bulk);
            }
            Stage::Sent { offset, chunk, reader } => {
                let behind = offset + chunk.len() as u64 == next;
                let reader = behind.then_some(reader);
                shipping.stage = Stage::Reading { offset: next, reader };
            }
            Stage::Offered => shipping.stage = Stage::Reading { offset: next, reader: None },
        }
    }
}

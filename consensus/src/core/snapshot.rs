//! Snapshots at the receiving side: offers, and the base that a received one puts into the log
//! (Raft section 7, R25).

use super::Core;
use super::role::Role;
use super::shared::{Expecting, Shared};
use crate::event::{Cut, Event};
use crate::fault::StopReason;
use crate::io::Effect;
use crate::message::{Message, TransferState};
use crate::types::{LogId, MemberId, SnapshotMeta, TransferId};

impl Core {
    /// The leader of the current term offers a snapshot.
    pub(crate) fn on_offer(&mut self, from: MemberId, transfer: TransferId, meta: SnapshotMeta) {
        self.hear_leader(from);
        let shared = &mut self.shared;
        let term = shared.term();
        if !shared.wants_snapshot(meta.last) {
            let state = TransferState::Done;
            let ack = Message::SnapshotAck { term, transfer, next: meta.bytes, state };
            return shared.urgent(from, ack);
        }
        let late = shared
            .expecting
            .as_ref()
            .is_some_and(|e| e.from == from && e.term == term && e.transfer > transfer);
        if late {
            return shared.drop_with("old-snapshot-offer");
        }
        // A repeated offer is passed on again: its receiver answers with where it stands.
        shared.expecting = Some(Expecting { from, term, transfer });
        shared.fx.push(Effect::Expect { transfer, from, term, meta });
    }

    /// An offer of an older term: tell its sender that the transfer is in vain.
    pub(crate) fn reject_offer(&mut self, from: MemberId, transfer: TransferId) {
        let term = self.shared.term();
        let state = TransferState::Failed;
        self.shared.urgent(from, Message::SnapshotAck { term, transfer, next: 0, state });
    }

    /// A received snapshot is complete, verified and published. Checked again: it may have been
    /// overtaken by entries meanwhile (R25).
    pub(crate) fn on_snapshot_received(&mut self, meta: SnapshotMeta) {
        self.shared.expecting = None;
        let leads = matches!(self.role, Role::Leader(_));
        if leads || !self.shared.wants_snapshot(meta.last) {
            self.shared.mark("snapshot-overtaken");
            self.shared.log.offer(meta);
            return;
        }
        if meta.last.index <= self.shared.commit() && !self.shared.log.may_hold(meta.last) {
            let detail = format!("the leader's snapshot ends at {}, not held here", meta.last);
            let at = meta.last.index;
            return self.shared.stop(StopReason::Diverged { at, detail });
        }
        if meta.last.term > self.shared.term() {
            self.adopt_term(meta.last.term, None);
        }
        if !matches!(self.role, Role::Follower(_)) {
            // The log under a candidacy changes: stand later, on the new one.
            self.become_follower();
        }
        self.shared.install(meta);
    }

    /// The snapshot will not come.
    pub(crate) fn on_snapshot_aborted(&mut self, transfer: TransferId) {
        if self.shared.expecting.as_ref().is_some_and(|e| e.transfer == transfer) {
            self.shared.expecting = None;
        }
    }
}

impl Shared {
    /// True if a snapshot that ends at this entry brings anything: entries that are not committed
    /// here, or the only cure for damaged ones that others have compacted (R15).
    pub(crate) fn wants_snapshot(&self, last: LogId) -> bool {
        let damaged = self.log.first_hole().is_some_and(|hole| hole <= last.index);
        last.index > self.commit() || damaged
    }

    /// Puts the base at the end of the snapshot. The suffix is kept only if the entry there is the
    /// snapshot's (B46); acknowledgements wait for the write like for any other.
    fn install(&mut self, meta: SnapshotMeta) {
        let certain = self.commit_id();
        let capped = self.damaged().then(|| self.durable());
        let last = self.log.last();
        let kept = self.log.reset(&meta);
        if !kept && last.index > certain.index {
            let from = certain.index.next();
            self.fx.push(Effect::Lost { from });
            self.observe(Event::Truncated { from, last: last.index, why: Cut::Snapshot });
        }
        // What this step staged was promised the next number, so it goes out first.
        self.flush();
        if let Some(seq) = self.disk.reset_to(&meta, kept, certain, capped, self.now) {
            let last = self.log.last();
            self.fx.push(Effect::Reset { seq, meta: meta.clone(), last });
        }
        self.contact = None;
        self.commit_through(meta.last.index);
        self.observe(Event::Membership { at: meta.membership_index });
    }
}

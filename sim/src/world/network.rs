//! The network.
//!
//! Injected: delay, loss, duplication, overtaking (now and then by seconds), cuts in one or both
//! directions, groups that cannot reach each other, and what `links` says. Never injected: a changed message (the frame's checksum is below this
//! model), a message from an earlier connection to another process of the receiver, and a second
//! copy of a forwarded call (a connection delivers a call once; retries are the client's, under
//! its session). A cluster must survive it because Raft assumes no more of a network than that
//! messages arrive sometimes.

use super::links::Way;
use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Stream};
use crate::faults::Fault;
use crate::hash::of_bytes;
use crate::trace::{self, Fate};
use bytes::Bytes;
use holdfast_consensus::job::ReplicaInput;
use holdfast_consensus::message::{Message, SendLane};
use holdfast_consensus::{MemberId, Micros, wire};
use std::collections::BTreeMap;

/// Links between nodes.
pub(super) struct Network {
    /// How many cuts lie on the way from one node to another.
    cuts: Vec<Vec<u32>>,
    /// Pairs (lower first) that are connected.
    connected: Vec<Vec<bool>>,
    /// When the last message of a lane arrives, so that none is overtaken without a fault.
    last: BTreeMap<(usize, usize, SendLane), Micros>,
    /// What each direction suffers.
    ways: Vec<Vec<Way>>,
    /// True in runs that replay old messages.
    pub(super) remembers: bool,
}

impl Network {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            cuts: vec![vec![0; nodes]; nodes],
            connected: vec![vec![false; nodes]; nodes],
            last: BTreeMap::new(),
            ways: vec![vec![Way::default(); nodes]; nodes],
            remembers: false,
        }
    }

    pub(super) fn way(&mut self, from: usize, to: usize) -> &mut Way {
        &mut self.ways[from][to]
    }

    /// What the links suffer is over.
    pub(super) fn free_all(&mut self) {
        self.ways.iter_mut().flatten().for_each(Way::free);
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts[from][to] > 0
    }

    pub(super) fn cut(&mut self, from: usize, to: usize) {
        self.cuts[from][to] += 1;
    }

    pub(super) fn uncut(&mut self, from: usize, to: usize) {
        self.cuts[from][to] = self.cuts[from][to].saturating_sub(1);
    }

    pub(super) fn mend_all(&mut self) {
        self.cuts.iter_mut().for_each(|row| row.fill(0));
    }

    pub(super) fn is_connected(&self, a: usize, b: usize) -> bool {
        self.connected[a][b]
    }

    pub(super) fn set_connected(&mut self, a: usize, b: usize, to: bool) {
        self.connected[a][b] = to;
        self.connected[b][a] = to;
    }
}

impl World {
    /// A replica sends a message.
    pub(super) fn send(
        &mut self,
        from: usize,
        to: MemberId,
        message: Message,
        lane: SendLane,
    ) -> Verdict {
        let bytes = wire::encode_message(&message)
            .map_err(|e| Violation::new("codec", format!("{message:?} does not encode: {e}")))?;
        self.hash.fold(of_bytes(&bytes));
        let Some(&target) = self.members.get(&to) else {
            return Err(Violation::new("membership", format!("a message goes to unknown {to}")));
        };
        if !self.network.is_connected(from, target) {
            self.note_sent(from, target, &message, Fate::Unconnected);
            return Ok(());
        }
        if self.network.is_cut(from, target) {
            self.faults.count(Fault::Cut);
            self.note_sent(from, target, &message, Fate::Cut);
            return Ok(());
        }
        self.choices.enter(Stream::Message, Actor::Link(from, target), kind(&message));
        let verdict = self.travel(from, target, message, &bytes, lane);
        self.choices.leave();
        verdict
    }

    /// The fate of a message that was sent on a link.
    fn travel(
        &mut self,
        from: usize,
        target: usize,
        message: Message,
        bytes: &Bytes,
        lane: SendLane,
    ) -> Verdict {
        let faulty = self.phase == super::Phase::Active;
        let loss = self.network.way(from, target).loss(self.now, self.setup.loss);
        if faulty && self.choices.chance("lost", loss) {
            self.faults.count(Fault::Dropped);
            self.note_sent(from, target, &message, Fate::Dropped);
            return Ok(());
        }
        let message = if self.setup.codec {
            let back = wire::decode_message(bytes).map_err(|e| {
                Violation::new("codec", format!("{message:?} does not decode: {e}"))
            })?;
            if back != message {
                let what = format!("{message:?} decodes as {back:?}");
                return Err(Violation::new("codec", what));
            }
            back
        } else {
            message
        };
        self.remember(from, target, &message);
        let once = matches!(message, Message::Forward { .. });
        if faulty && !once && self.choices.chance("twice", self.setup.duplicate) {
            self.faults.count(Fault::Duplicated);
            let held = self.choices.between("second-after", 0, self.setup.held);
            let at = self.now + self.setup.delay + held;
            self.arrive(at, from, target, Fate::Again, message.clone());
        }
        let jitter = self.choices.between("delay", 0, self.setup.jitter);
        let mut at = self.now + self.setup.delay + jitter;
        let mut fate = Fate::Underway;
        if faulty && self.choices.chance("held", self.setup.reorder) {
            self.faults.count(Fault::Reordered);
            at += self.choices.between("held-for", 1, self.setup.held);
            at += self.far_behind();
            fate = Fate::Held;
        } else {
            at = self.network.way(from, target).carries(self.now, at, bytes.len());
            let last = self.network.last.entry((from, target, lane)).or_default();
            at = at.max(*last);
            *last = at;
        }
        self.arrive(at, from, target, fate, message);
        Ok(())
    }

    /// One in thirty of those that are overtaken is so for seconds: there is no bound.
    fn far_behind(&mut self) -> Micros {
        let far = self.choices.chance("far-behind", 33);
        if far { self.choices.wait("far-behind-for", 3_000_000) } else { 0 }
    }

    pub(super) fn arrive(
        &mut self,
        at: Micros,
        from: usize,
        to: usize,
        fate: Fate,
        message: Message,
    ) {
        let copy = self.note_sent(from, to, &message, fate);
        let (life, from) = (self.nodes[to].life, self.nodes[from].member);
        self.queue.push(at, Event::Deliver { to, life, from, copy, message: Box::new(message) });
    }

    pub(super) fn deliver(
        &mut self,
        to: usize,
        life: u64,
        from: MemberId,
        copy: trace::Copy,
        message: Box<Message>,
    ) -> Verdict {
        if !self.lives(to, life) {
            self.note_missed(to, from, copy, &message);
            return Ok(());
        }
        if self.nodes[to].paused {
            self.held[to].push(Event::Deliver { to, life, from, copy, message });
            return Ok(());
        }
        self.hash.fold(from.0);
        self.note_arrived(to, from, copy, &message);
        self.step(to, ReplicaInput::Message { from, message: *message })
    }

    pub(super) fn peer_reset(&mut self, node: usize, life: u64, peer: MemberId) -> Verdict {
        if !self.lives(node, life) || self.nodes[node].paused {
            return Ok(());
        }
        self.step(node, ReplicaInput::PeerReset(peer))
    }
}

/// The kind of a message, by which its place among the choices is counted: a message more of one
/// kind moves no other.
fn kind(message: &Message) -> &'static str {
    match message {
        Message::Vote { pre: true, .. } => "pre-vote",
        Message::Vote { .. } => "vote",
        Message::VoteReply { .. } => "vote-reply",
        Message::TimeoutNow { .. } => "timeout-now",
        Message::Append { entries, .. } if entries.is_empty() => "heartbeat",
        Message::Append { .. } => "append",
        Message::AppendReply { .. } => "append-reply",
        Message::SnapshotOffer { .. } => "snapshot-offer",
        Message::SnapshotChunk { .. } => "snapshot-chunk",
        Message::SnapshotAck { .. } => "snapshot-ack",
        Message::Forward { .. } => "forward",
        Message::ForwardReply { .. } => "forward-reply",
        _ => "read-index",
    }
}

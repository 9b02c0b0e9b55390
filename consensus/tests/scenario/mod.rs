//! A small in-memory world for cores alone: virtual time, a network that loses, repeats and
//! reorders, disks that confirm late, fail, and forget what they did not confirm.
//!
//! Checked after every step: the core's own invariants, election safety, log matching, state
//! machine safety, leader completeness, durability of what a leader commits, and reads.

mod check;
mod disk;

use check::Ghost;
use disk::{Stable, Write};
use holdfast_consensus::core::Core;
use holdfast_consensus::event::{Event, RoleKind};
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::invariant::{self, Before};
use holdfast_consensus::io::{CoreConfig, Effect, Input};
use holdfast_consensus::message::{Message, TransferState};
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::types::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What may go wrong, in per mille, and how long things take, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) repeat: u64,
    pub(crate) delay: (u64, u64),
    pub(crate) late: u64,
    pub(crate) disk: (u64, u64),
    pub(crate) disk_fault: u64,
    /// Mean time between disturbances (crash, cut, compaction, transfer, ...).
    pub(crate) disturb_every: u64,
}

impl Faults {
    /// A network and disks that only take time.
    pub(crate) fn none() -> Self {
        Self {
            loss: 0,
            repeat: 0,
            delay: (200, 800),
            late: 0,
            disk: (100, 2_000),
            disk_fault: 0,
            disturb_every: 0,
        }
    }

    /// A random mixture.
    pub(crate) fn random(rng: &mut SplitMix64) -> Self {
        let often =
            |rng: &mut SplitMix64, max| if rng.chance(500) { rng.between(0, max) } else { 0 };
        Self {
            loss: often(rng, 200),
            repeat: often(rng, 200),
            delay: (100, rng.between(500, 30_000)),
            late: often(rng, 50),
            disk: (50, rng.between(500, 40_000)),
            disk_fault: often(rng, 20),
            disturb_every: rng.between(50_000, 800_000),
        }
    }
}

pub(crate) enum Happening {
    Deliver { from: MemberId, to: MemberId, message: Message },
    DiskDone { node: MemberId, life: u64 },
    DiskReopened { node: MemberId, life: u64 },
    Hand { node: MemberId, life: u64, input: Input },
    Received { node: MemberId, life: u64, meta: SnapshotMeta, from: MemberId, transfer: TransferId },
    Restart { node: MemberId },
    Disturb,
    Work,
}

pub(crate) struct Node {
    pub(crate) core: Option<Core>,
    pub(crate) stable: Stable,
    queue: VecDeque<Write>,
    /// True while a disk job is out, or the log waits to be reopened.
    busy: bool,
    life: u64,
    last_seq: Seq,
    /// Commit index announced in this life.
    committed: Index,
    wakes: (Micros, u32),
}

pub(crate) struct World {
    pub(crate) now: Micros,
    pub(crate) nodes: BTreeMap<MemberId, Node>,
    pub(crate) faults: Faults,
    pub(crate) rng: SplitMix64,
    pub(crate) ghost: Ghost,
    pub(crate) config: fn(MemberId) -> CoreConfig,
    queue: BTreeMap<(Micros, u64), Happening>,
    order: u64,
    cut: BTreeSet<(MemberId, MemberId)>,
    tickets: u64,
    pub(crate) marks: BTreeMap<&'static str, u64>,
    pub(crate) trace: VecDeque<String>,
}

impl World {
    /// A cluster of `voters` whose first entry is its configuration.
    pub(crate) fn new(
        voters: u64,
        learners: u64,
        seed: u64,
        config: fn(MemberId) -> CoreConfig,
    ) -> Self {
        let mut membership =
            Membership::of_voters((1..=voters).map(|n| (MemberId(n), format!("n{n}"))));
        membership.learners = (voters + 1..=voters + learners).map(MemberId).collect();
        let mut world = Self {
            now: 1_000_000,
            nodes: BTreeMap::new(),
            faults: Faults::none(),
            rng: SplitMix64::new(seed),
            ghost: Ghost::default(),
            config,
            queue: BTreeMap::new(),
            order: 0,
            cut: BTreeSet::new(),
            tickets: 0,
            marks: BTreeMap::new(),
            trace: VecDeque::new(),
        };
        for id in membership.members() {
            let stable = Stable::founded(&membership);
            let node = Node {
                core: None,
                stable,
                queue: VecDeque::new(),
                busy: false,
                life: 0,
                last_seq: Seq(0),
                committed: Index(0),
                wakes: (0, 0),
            };
            world.nodes.insert(id, node);
            world.start(id);
        }
        world
    }

    pub(crate) fn members(&self) -> Vec<MemberId> {
        self.nodes.keys().copied().collect()
    }

    fn note(&mut self, line: String) {
        if self.trace.len() > 400 {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>9} {line}", self.now));
    }

    fn schedule(&mut self, after: Micros, what: Happening) {
        self.order += 1;
        self.queue.insert((self.now + after, self.order), what);
    }

    fn start(&mut self, id: MemberId) {
        let seed = self.rng.next_u64();
        let config = (self.config)(id);
        let node = self.nodes.get_mut(&id).expect("known");
        node.life += 1;
        let recovered = node.stable.recover();
        let core = Core::new(config, seed, recovered, self.now);
        node.committed = Index(0);
        node.last_seq = Seq(0);
        node.busy = false;
        node.queue.clear();
        node.core = Some(core);
        self.note(format!("{id} starts"));
    }

    /// Power loss: what the disk did not confirm may or may not be there, in order.
    pub(crate) fn crash(&mut self, id: MemberId) {
        let node = self.nodes.get_mut(&id).expect("known");
        if node.core.take().is_none() {
            return;
        }
        node.life += 1;
        let survive = self.rng.between(0, node.queue.len() as u64 + 1);
        for _ in 0..survive {
            let write = node.queue.pop_front().expect("counted");
            node.stable.carry_out(&write);
        }
        node.queue.clear();
        self.note(format!("{id} crashes"));
        let after = self.rng.between(1_000, 1_500_000);
        self.schedule(after, Happening::Restart { node: id });
    }

    /// Runs for a span of virtual time.
    pub(crate) fn run(&mut self, span: Micros) {
        let end = self.now + span;
        loop {
            let event = self.queue.keys().next().copied();
            let wake = self
                .nodes
                .iter()
                .filter_map(|(id, n)| Some((n.core.as_ref()?.next_deadline()?, *id)))
                .min();
            let event_at = event.map_or(u64::MAX, |(at, _)| at);
            let wake_at = wake.map_or(u64::MAX, |(at, _)| at.max(self.now));
            if event_at.min(wake_at) >= end {
                self.now = end;
                return;
            }
            if wake_at < event_at {
                self.now = wake_at;
                let (_, id) = wake.expect("found");
                self.wake(id);
            } else {
                let key = event.expect("found");
                self.now = key.0.max(self.now);
                let what = self.queue.remove(&key).expect("present");
                self.happen(what);
            }
        }
    }

    fn wake(&mut self, id: MemberId) {
        let now = self.now;
        let node = self.nodes.get_mut(&id).expect("known");
        node.wakes = if node.wakes.0 == now { (now, node.wakes.1 + 1) } else { (now, 1) };
        assert!(node.wakes.1 < 20, "{id} wants to be woken again and again at {now}");
        self.step(id, Input::Wake);
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Deliver {
                to,
                message: Message::SnapshotAck { transfer, state, .. },
                ..
            } => {
                let ok = state == TransferState::Done;
                self.step(to, Input::TransferEnded { transfer, ok });
            }
            Happening::Deliver { from, to, message } => {
                self.step(to, Input::Message { from, message });
            }
            Happening::DiskDone { node, life } if self.alive(node, life) => self.disk_done(node),
            Happening::DiskReopened { node, life } if self.alive(node, life) => {
                let n = self.nodes.get_mut(&node).expect("known");
                n.busy = false;
                let (last, hard) = (n.stable.last(), n.stable.hard);
                self.step(node, Input::Reopened { last, hard, holes: Vec::new() });
                self.pump_disk(node);
            }
            Happening::Hand { node, life, input } if self.alive(node, life) => {
                self.step(node, input);
            }
            Happening::Received { node, life, meta, from, transfer } if self.alive(node, life) => {
                let n = self.nodes.get_mut(&node).expect("known");
                n.stable.publish(&meta);
                self.step(node, Input::SnapshotReceived { meta });
                let sender = self.nodes.get(&from).map_or(0, |n| n.life);
                let input = Input::TransferEnded { transfer, ok: true };
                self.schedule(500, Happening::Hand { node: from, life: sender, input });
            }
            Happening::Restart { node } if self.nodes[&node].core.is_none() => self.start(node),
            Happening::Disturb => self.disturb(),
            Happening::Work => self.work(),
            _ => {}
        }
    }

    fn alive(&self, node: MemberId, life: u64) -> bool {
        self.nodes[&node].core.is_some() && self.nodes[&node].life == life
    }

    fn disk_done(&mut self, id: MemberId) {
        let fails = self.rng.chance(self.faults.disk_fault);
        let node = self.nodes.get_mut(&id).expect("known");
        node.busy = false;
        let out = node.queue.len();
        if out == 0 {
            return;
        }
        if fails {
            let at = node.queue[0].seq();
            let survive = self.rng.between(0, out as u64 + 1);
            for _ in 0..survive {
                let write = node.queue.pop_front().expect("counted");
                node.stable.carry_out(&write);
            }
            node.queue.clear();
            node.busy = true;
            let life = node.life;
            let fault = LogFault::Poisoned { detail: "injected".into() };
            self.note(format!("{id} disk fails at {at}"));
            let after = self.rng.between(1_000, 300_000);
            self.schedule(after, Happening::DiskReopened { node: id, life });
            self.step(id, Input::PersistFailed { at, fault });
            return;
        }
        let count = self.rng.between(1, out as u64 + 1);
        let mut through = Seq(0);
        for _ in 0..count {
            let write = node.queue.pop_front().expect("counted");
            node.stable.carry_out(&write);
            through = write.seq();
        }
        self.step(id, Input::Persisted { through });
        self.pump_disk(id);
    }

    fn pump_disk(&mut self, id: MemberId) {
        let after = self.rng.between(self.faults.disk.0, self.faults.disk.1);
        let node = self.nodes.get_mut(&id).expect("known");
        if node.busy || node.queue.is_empty() || node.core.is_none() {
            return;
        }
        node.busy = true;
        let life = node.life;
        self.schedule(after, Happening::DiskDone { node: id, life });
    }

    /// One step of one core, its effects, and every check.
    pub(crate) fn step(&mut self, id: MemberId, input: Input) {
        let now = self.now;
        self.note(format!("{id} <- {input:?}"));
        let node = self.nodes.get_mut(&id).expect("known");
        let Some(core) = node.core.as_mut() else { return };
        let before = Before::of(core);
        let was = (core.role(), core.hard().term);
        let mut out = Vec::new();
        core.step(now, input, &mut out);
        let mut broken = invariant::basic(core);
        broken.extend(invariant::delta(&before, core));
        if !broken.is_empty() {
            self.fail(format!("{id}: {broken:?}"));
        }
        for effect in out {
            self.effect(id, effect);
        }
        let Some(core) = self.nodes[&id].core.as_ref() else { return };
        let is = (core.role(), core.hard().term);
        if is.0 == RoleKind::Leader && is != was {
            let result = self.ghost.elected(id, core);
            self.demand(result);
        }
        self.pump_disk(id);
    }

    fn demand(&self, result: Result<(), String>) {
        if let Err(found) = result {
            self.fail(found);
        }
    }

    pub(crate) fn fail(&self, found: String) -> ! {
        for line in &self.trace {
            eprintln!("{line}");
        }
        panic!("{found}");
    }

    fn effect(&mut self, id: MemberId, effect: Effect) {
        self.note(format!("{id} -> {effect:?}"));
        let life = self.nodes[&id].life;
        match effect {
            Effect::Persist(persist) => {
                let result = self.ghost.appended(&persist.append);
                self.demand(result);
                self.write(id, Write::Persist(persist));
            }
            Effect::Reset { seq, meta, last } => self.write(id, Write::Reset { seq, meta, last }),
            Effect::Send { to, message, .. } => self.send(id, to, message),
            Effect::Fetch { fetch, from, to, max_bytes, .. } => {
                let entries = self.nodes[&id].stable.read(from, to, max_bytes);
                let input = Input::Fetched { fetch, entries };
                let after = self.rng.between(100, 5_000);
                self.schedule(after, Happening::Hand { node: id, life, input });
            }
            Effect::Commit { through } => self.commit(id, through),
            Effect::Ship { transfer, to, term, meta } => {
                self.send(id, to, Message::SnapshotOffer { term, transfer, meta });
                let input = Input::TransferEnded { transfer, ok: false };
                self.schedule(400_000, Happening::Hand { node: id, life, input });
            }
            Effect::Expect { transfer, from, meta, .. } => {
                let after = self.rng.between(1_000, 100_000);
                let received = Happening::Received { node: id, life, meta, from, transfer };
                self.schedule(after, received);
            }
            Effect::ReadAt { ticket, index } => {
                let result = self.ghost.read_at(ticket, index);
                self.demand(result);
            }
            Effect::Observe(Event::Mark(mark)) => *self.marks.entry(mark).or_insert(0) += 1,
            Effect::Observe(Event::Dropped { reason }) => {
                *self.marks.entry(reason).or_insert(0) += 1;
            }
            Effect::Stop(reason) => self.fail(format!("{id} stopped: {reason}")),
            _ => {}
        }
    }

    fn write(&mut self, id: MemberId, write: Write) {
        let node = self.nodes.get_mut(&id).expect("known");
        let seq = write.seq();
        assert!(seq > node.last_seq, "{id}: sequence went back to {seq}");
        node.last_seq = seq;
        node.queue.push_back(write);
    }

    fn commit(&mut self, id: MemberId, through: LogId) {
        let node = &self.nodes[&id];
        let core = node.core.as_ref().expect("it just stepped");
        let mut ids = Vec::new();
        for i in node.committed.0 + 1..=through.index.0 {
            if let Some(term) = core.term_at(Index(i)) {
                ids.push((LogId { term, index: Index(i) }, core.cached(Index(i), Index(i))));
            }
        }
        if core.role() == RoleKind::Leader {
            let holds = |n: &&Node| n.stable.holds(through);
            let voters = core.membership().1.voters.clone();
            let copies =
                voters.iter().filter(|v| self.nodes.get(v).as_ref().is_some_and(holds)).count();
            if copies * 2 <= voters.len() {
                self.fail(format!("{id} commits {through} with {copies} durable copies"));
            }
        }
        let term = core.hard().term;
        self.nodes.get_mut(&id).expect("known").committed = through.index;
        let result = self.ghost.committed(id, term, &ids);
        self.demand(result);
    }

    fn send(&mut self, from: MemberId, to: MemberId, message: Message) {
        if self.cut.contains(&(from, to)) || self.rng.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(self.faults.repeat));
        for _ in 0..copies {
            let mut after = self.rng.between(self.faults.delay.0, self.faults.delay.1);
            if self.rng.chance(self.faults.late) {
                after += self.rng.between(0, 2_000_000);
            }
            let message = message.clone();
            self.schedule(after, Happening::Deliver { from, to, message });
        }
    }

    /// Begins load and disturbances.
    pub(crate) fn begin(&mut self) {
        self.schedule(1_000, Happening::Work);
        if self.faults.disturb_every > 0 {
            self.schedule(1_000, Happening::Disturb);
        }
    }

    /// Ends load and disturbances: all connected, all up, nothing lost from here on.
    pub(crate) fn heal(&mut self) {
        self.queue.retain(|_, what| !matches!(what, Happening::Work | Happening::Disturb));
        self.faults = Faults::none();
        self.cut.clear();
        for id in self.members() {
            if self.nodes[&id].core.is_none() {
                self.start(id);
            }
        }
    }

    pub(crate) fn leader(&self) -> Option<MemberId> {
        let leads = |n: &Node| n.core.as_ref().is_some_and(|c| c.role() == RoleKind::Leader);
        self.nodes.iter().find(|(_, n)| leads(n)).map(|(id, _)| *id)
    }

    fn work(&mut self) {
        let id = *self.rng_pick(&self.members());
        self.propose(id, 1 + self.tickets % 3);
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.ghost.read_asked(ticket);
        let deadline = self.now + 500_000;
        self.step(id, Input::ReadIndex { ticket, deadline });
        let after = self.rng.between(500, 40_000);
        self.schedule(after, Happening::Work);
    }

    /// Proposes commands at a node.
    pub(crate) fn propose(&mut self, id: MemberId, count: u64) {
        let batch = (0..count)
            .map(|_| {
                self.tickets += 1;
                let len = usize::try_from(8 + self.rng.between(0, 200)).expect("small");
                let mut bytes = self.tickets.to_le_bytes().to_vec();
                bytes.resize(len, 7);
                (Ticket(self.tickets), bytes.into())
            })
            .collect();
        self.step(id, Input::Propose { batch });
        self.tickets += 1;
    }

    fn rng_pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.rng.between(0, from.len() as u64);
        &from[usize::try_from(at).expect("small")]
    }

    fn disturb(&mut self) {
        let members = self.members();
        let id = *self.rng_pick(&members);
        let other = *self.rng_pick(&members);
        match self.rng.between(0, 13) {
            0 | 1 => self.crash(id),
            2 => {
                self.cut.insert((id, other));
            }
            3 => {
                for m in members.iter().filter(|m| **m != id) {
                    self.cut.insert((id, *m));
                    self.cut.insert((*m, id));
                }
            }
            4 | 5 => self.cut.clear(),
            6 | 7 => self.snapshot(id),
            8 => self.step(id, Input::Transfer { to: other }),
            9 => self.step(id, Input::PeerReset { peer: other }),
            10 => {
                let low = self.rng.chance(300);
                self.step(id, Input::Headroom { low });
            }
            11 => self.late_snapshot(id, other),
            _ => {
                for m in &members {
                    if self.rng.chance(700) {
                        self.crash(*m);
                    }
                }
            }
        }
        let after = self.rng.between(0, 2 * self.faults.disturb_every);
        self.schedule(after, Happening::Disturb);
    }

    /// A snapshot that another member once published arrives late, wherever the log stands now.
    fn late_snapshot(&mut self, id: MemberId, from: MemberId) {
        let Some(meta) = self.nodes[&from].stable.snapshot.clone() else { return };
        let node = self.nodes.get_mut(&id).expect("known");
        if node.core.is_some() {
            node.stable.publish(&meta);
            self.step(id, Input::SnapshotReceived { meta });
        }
    }

    /// Takes a snapshot of what is committed and durable at a node, and compacts up to it.
    pub(crate) fn snapshot(&mut self, id: MemberId) {
        let node = self.nodes.get_mut(&id).expect("known");
        let Some(core) = node.core.as_ref() else { return };
        let at = core.commit().min(core.durable().index);
        let unsettled = node.queue.iter().any(|w| matches!(w, Write::Reset { .. }));
        let held = core.term_at(at).filter(|_| at >= core.first() && !unsettled);
        let Some(term) = held else { return };
        let meta = node.stable.label(LogId { term, index: at });
        node.stable.publish(&meta);
        let keep = self.rng.between(0, 8);
        let first = Index(at.0.saturating_sub(keep).max(1)).next();
        node.stable.floor = node.stable.floor.max(at);
        node.stable.compact(first);
        self.step(id, Input::Snapshotted { meta });
        self.step(id, Input::Compacted { first });
    }
}

//! The nemesis: injects faults of the drawn kinds at drawn times.
//!
//! Virtual time is divided into slots, and in each at most one fault strikes. Its place among the
//! choices is the slot, so that a tape may lose a fault without moving those behind it.

use super::noting::{lasting, relief};
use super::{Event, Phase, World};
use crate::check::Verdict;
use crate::choices::{Actor, Stream};
use crate::faults::Fault;
use crate::profile::{FAULTS, FaultKind};
use crate::trace::What;
use holdfast_consensus::job::{Call, ReplicaInput};
use holdfast_consensus::{Micros, Ticket};
use holdfast_log::mem_disk::Op;

const PROCESS: Stream = Stream::Process;
/// Length of a slot.
const SLOT: Micros = 50_000;

impl World {
    /// True if a tape has something for a later slot.
    pub(super) fn foresees_faults(&self) -> bool {
        self.choices.foresees(Stream::Nemesis, Actor::World, self.now / SLOT)
    }

    /// A slot begins: does anything strike in it?
    pub(super) fn nemesis(&mut self, slot: u64) {
        if self.phase != Phase::Active {
            return;
        }
        self.queue.push((slot + 1) * SLOT, Event::Nemesis { slot: slot + 1 });
        let strength = |kind| self.setup.faults.iter().filter(|f| **f == kind).count() as u64;
        let all = self.setup.faults.len() as u64;
        let mut kinds = vec![("nothing", self.setup.nemesis.saturating_sub(SLOT) * all)];
        kinds.extend(FAULTS.iter().map(|kind| (kind.name(), SLOT * strength(*kind))));
        self.choices.enter_at(Stream::Nemesis, Actor::World, slot);
        let kind = self.choices.among("kind", &kinds);
        if kind > 0 {
            let at = self.now + self.choices.between("after", 0, SLOT);
            self.queue.push(at, Event::Strike { slot, kind: FAULTS[kind - 1] });
        }
        self.choices.leave();
    }

    /// The fault of a slot strikes.
    pub(super) fn strike(&mut self, slot: u64, kind: FaultKind) -> Verdict {
        if self.phase != Phase::Active {
            return Ok(());
        }
        self.choices.enter_at(Stream::Nemesis, Actor::World, slot);
        let verdict = self.inject(kind);
        self.choices.leave();
        verdict
    }

    fn inject(&mut self, kind: FaultKind) -> Verdict {
        let node = self.choices.pick("node", self.nodes.len());
        let power = self.choices.chance("power", 500);
        let running = self.nodes[node].is_running();
        match kind {
            FaultKind::PowerLoss if running => self.crash(node, true),
            FaultKind::Kill if running => self.crash(node, false),
            FaultKind::EffectBoundary if running => {
                let left = self.choices.between(PROCESS, 0, 40);
                self.nodes[node].effect_plan = Some((left, power));
                self.note(Some(node), || plan("effect-boundary", "effects", left));
            }
            FaultKind::Fuse if running => {
                let left = self.choices.between(PROCESS, 1, 80);
                self.nodes[node].disk.set_fuse(Some(left));
                self.nodes[node].fuse_plan = Some(power);
                self.note(Some(node), || plan("fuse", "operations of the disk", left));
            }
            FaultKind::Blackout => {
                self.faults.count(Fault::Blackout);
                self.note(None, || What::fault("blackout", "every node loses power"));
                for node in 0..self.nodes.len() {
                    if self.nodes[node].is_running() {
                        self.crash(node, true);
                    }
                }
            }
            FaultKind::Pause if running => {
                let span = self.choices.wait(PROCESS, 400_000);
                self.pause_for(node, span);
            }
            FaultKind::Transfer => return self.transfer(node),
            FaultKind::Rot => return self.rot(node, power),
            FaultKind::CutOneWay
            | FaultKind::CutLink
            | FaultKind::Isolate
            | FaultKind::Split
            | FaultKind::Bridge => self.cut(kind, node),
            _ if self.aimed(kind, node, power) => {}
            _ => self.disk_fault(kind, node, running),
        }
        Ok(())
    }

    fn disk_fault(&mut self, kind: FaultKind, node: usize, running: bool) {
        match kind {
            FaultKind::Stall => {
                self.faults.count(Fault::Stalled);
                let span = self.choices.wait(Stream::Disk, 800_000);
                let until = self.now + span;
                self.nodes[node].stalled_until = until;
                self.note(Some(node), || lasting("stall", "the disk is slow", until));
            }
            FaultKind::SyncFailure if running => {
                self.faults.count(Fault::SyncFailed);
                self.nodes[node].disk.fail_next(Op::Sync, "log/");
                self.note(Some(node), || {
                    What::fault("sync-failure", "the next sync of log/ fails")
                });
            }
            FaultKind::StoreFailure if running => {
                self.faults.count(Fault::StoreFailed);
                let path = ["store/", "snap/"][self.choices.pick(Stream::Disk, 2)];
                let op = [Op::Sync, Op::Write, Op::SetLen][self.choices.pick(Stream::Disk, 3)];
                self.nodes[node].disk.fail_next(op, path);
                self.note(Some(node), || {
                    What::fault("store-failure", format!("the next {op:?} of {path} fails"))
                });
            }
            FaultKind::ReadFailure if running => {
                self.faults.count(Fault::ReadFailed);
                let path = ["store/", "snap/"][self.choices.pick(Stream::Disk, 2)];
                self.nodes[node].disk.fail_next(Op::Read, path);
                self.note(Some(node), || {
                    What::fault("read-failure", format!("the next read of {path} fails"))
                });
            }
            FaultKind::Full if running => {
                self.faults.count(Fault::DiskFull);
                let disk = &self.nodes[node].disk;
                let left = self.choices.between(Stream::Disk, 0, 200_000);
                disk.set_budget(Some(disk.used() + left));
                let span = self.choices.wait(Stream::Disk, 1_500_000);
                let until = self.now + span;
                self.queue.push(until, Event::Space { node });
                let text = format!("the disk has room for {left} more bytes");
                self.note(Some(node), || lasting("disk-full", &text, until));
            }
            _ => {}
        }
    }

    fn cut(&mut self, kind: FaultKind, node: usize) {
        let all = self.nodes.len();
        if all < 2 {
            return;
        }
        let other = (node + 1 + self.choices.pick(Stream::Network, all - 1)) % all;
        let both = |a: usize, b: usize| [(a, b), (b, a)];
        let links: Vec<(usize, usize)> = match kind {
            FaultKind::CutOneWay => vec![(node, other)],
            FaultKind::CutLink => both(node, other).into(),
            FaultKind::Bridge => self.bridge(node),
            FaultKind::Isolate => {
                (0..all).filter(|n| *n != node).flat_map(|n| both(n, node)).collect()
            }
            _ => {
                let group = self.choices.bits(Stream::Network);
                let side = |n: usize| (group >> n) & 1;
                let pairs = (0..all).flat_map(|a| (0..a).map(move |b| (a, b)));
                pairs.filter(|(a, b)| side(*a) != side(*b)).flat_map(|(a, b)| both(a, b)).collect()
            }
        };
        for (from, to) in &links {
            self.network.cut(*from, *to);
        }
        self.next_cut += 1;
        let cut = self.next_cut;
        self.note(None, || What::Cut { links: links.clone() });
        self.cuts.insert(cut, links);
        let span = self.choices.wait(Stream::Network, 900_000);
        self.queue.push(self.now + span, Event::Uncut { cut });
    }

    pub(super) fn uncut(&mut self, cut: u64) {
        let Some(links) = self.cuts.remove(&cut) else { return };
        for (from, to) in &links {
            self.network.uncut(*from, *to);
        }
        self.note(None, || What::Uncut { links });
    }

    fn transfer(&mut self, node: usize) -> Verdict {
        let to = self.nodes[self.choices.pick(PROCESS, self.nodes.len())].member;
        let Some(_) = self.nodes[node].process() else { return Ok(()) };
        if self.nodes[node].paused || to.0 == 0 {
            return Ok(());
        }
        self.faults.count(Fault::Transfer);
        self.next_ticket += 1;
        let deadline = self.nodes[node].clock.show(self.now) + 500_000;
        let (ticket, call) = (Ticket(self.next_ticket), Call::Transfer { to });
        self.note_call(node, None, ticket, &call);
        self.step(node, ReplicaInput::Call { ticket, call, deadline })
    }

    /// Takes back every cut, whoever made it.
    pub(super) fn heal_links(&mut self) {
        self.cuts.clear();
        self.network.mend_all();
    }

    /// Ends every fault: what is down starts, what is cut or paused goes on.
    pub(super) fn heal(&mut self) {
        self.phase = Phase::Healed;
        self.network.free_all();
        let cuts: Vec<u64> = self.cuts.keys().copied().collect();
        for cut in cuts {
            self.uncut(cut);
        }
        for node in 0..self.nodes.len() {
            let now = self.now;
            self.resume(node);
            self.nodes[node].stuck.clear();
            self.release(node);
            let n = &mut self.nodes[node];
            n.effect_plan = None;
            n.stalled_until = 0;
            n.lane_stalled = None;
            n.hang = None;
            n.loops = 0;
            n.disk.clear_failures();
            n.disk.set_budget(None);
            if n.fuse_plan.take().is_some() {
                n.disk.set_fuse(None);
            }
            if !n.is_running() {
                let life = n.life;
                self.queue.push(now + 1_000, Event::Start { node, life });
            }
        }
        self.note(None, || relief("all", "every fault is over"));
        self.progress.moved(self.now);
    }
}

/// A crash that waits for its moment.
fn plan(kind: &'static str, unit: &str, left: u64) -> What {
    What::fault(kind, format!("planned: a crash after {left} more {unit}"))
}

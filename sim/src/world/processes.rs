//! Starts, crashes, pauses and jobs.
//!
//! Injected: power loss and kill -9 between two events, between two effects of one step, and, with
//! a fuse, after any operation of the disk inside a job or a start; pauses of a whole process or of
//! one lane; what `focus` aims. The fuse is at zero before the replica and its stores are dropped,
//! so that no tidy shutdown hides a crash. Never injected here: a disk that is replaced or
//! rolled back (those members are for later rules), or damaged below its syncs (see `rot`). A
//! cluster must survive it: Raft assumes that what was synced stays and nothing else.

use super::noting::relief;
use super::{Event, Phase, World, draw_clock};
use crate::check::read_your_writes::Answered;
use crate::check::watermarks::Watermarks;
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Choices, Stream};
use crate::faults::{Fault, Faults};
use crate::node::{self, Boot, Process, State};
use crate::shadow::Shadow;
use crate::trace::What;
use holdfast_consensus::damage::hole_at;
use holdfast_consensus::job::{Done, Job, Lane, ReplicaInput};
use holdfast_consensus::traits::{LogReader, LogStore, StateMachine};
use holdfast_consensus::{LogId, MemberId, Recovered};
use holdfast_log::mem_disk::{LoseAll, PowerLoss, SectorFate};

/// Draws what a power loss leaves.
struct Loss<'a> {
    choices: &'a mut Choices,
    faults: &'a mut Faults,
    mode: u64,
    lost: bool,
}

impl PowerLoss for Loss<'_> {
    fn name(&mut self, _what: &str) -> bool {
        let kept = self.choices.chance("kept", 500);
        self.faults.count_if(!kept, Fault::DirUndone);
        kept
    }

    fn file(&mut self, _path: &str, _dirty: usize, _differs: bool) -> bool {
        self.mode = self.choices.between("file", 0, 5);
        self.lost = false;
        self.choices.chance("longer", 500)
    }

    fn sector(&mut self, _sector: usize, blank: bool) -> SectorFate {
        let fate = match self.mode {
            0 => SectorFate::Old,
            1 => SectorFate::New,
            _ => {
                let drawn = self.choices.bits("sector");
                match drawn % 10 {
                    0..=3 => SectorFate::Old,
                    4..=6 => SectorFate::New,
                    7 => SectorFate::Middle,
                    8 => SectorFate::Torn(usize::try_from((drawn >> 32) % 512).unwrap_or(0)),
                    _ if blank => SectorFate::Garbage(drawn),
                    _ => SectorFate::Torn(256),
                }
            }
        };
        match fate {
            SectorFate::Old | SectorFate::Middle => self.faults.count(Fault::Lost),
            SectorFate::Torn(_) | SectorFate::Garbage(_) => self.faults.count(Fault::Torn),
            SectorFate::New => {}
        }
        fate
    }
}

/// How a process ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Kill -9: what was written stays readable.
    Kill,
    /// Power loss: what was unsynced comes back as the seed says.
    Power,
    /// Power loss: nothing unsynced comes back.
    PowerLosingAll,
}

impl World {
    pub(super) fn start(&mut self, node: usize, life: u64) -> Verdict {
        let n = &self.nodes[node];
        if n.life != life || n.is_running() || n.kept_down {
            return Ok(());
        }
        self.choices.enter_at(Stream::Boot, Actor::Node(node), life);
        let verdict = self.boot(node);
        self.choices.leave();
        verdict
    }

    fn boot(&mut self, node: usize) -> Verdict {
        let fused = self.phase == Phase::Active && self.choices.chance("cut", self.setup.boot_fuse);
        if fused {
            let left = self.choices.between("cut-after", 1, 60);
            self.nodes[node].disk.set_fuse(Some(left));
        }
        let counts = self.nodes[node].disk.counts();
        self.nodes[node].failures = (counts.full, counts.failed);
        let fresh = MemberId(self.choices.bits("member") | 1);
        let seed = self.choices.bits("seed");
        let opened = node::open(&self.nodes[node], &self.setup, &self.names, fresh, seed, self.now);
        let (member, boot) = match opened {
            Ok(opened) => opened,
            Err(why) => return self.start_failed(node, &why),
        };
        self.nodes[node].member = member;
        self.members.insert(member, node);
        self.trace.member(member, node);
        self.note(Some(node), || What::life("starts", format!("starts as {member}")));
        match boot {
            Boot::Up(process) => self.up(node, *process),
            Boot::Forming(waiting) => {
                let step = waiting.1.step();
                self.nodes[node].state = State::Forming(waiting);
                self.note(Some(node), || What::life("forming", "waits for a cluster"));
                if self.blown(node)? {
                    return Ok(());
                }
                self.dial_all(node);
                self.form(node, step)
            }
        }
    }

    /// A start that failed: explained by the fuse, or a violation.
    pub(super) fn start_failed(&mut self, node: usize, why: &str) -> Verdict {
        let counts = self.nodes[node].disk.counts();
        let blown = self.nodes[node].disk.is_blown();
        let news = (counts.full, counts.failed) != self.nodes[node].failures;
        self.nodes[node].failures = (counts.full, counts.failed);
        if !blown && news {
            // A full or failing disk explains it: whoever restarts it tries again.
            let why = why.to_owned();
            self.note(Some(node), || What::life("refuses", format!("does not start: {why}")));
            self.crash(node, false);
            return Ok(());
        }
        if !blown && self.nodes[node].damaged {
            let why = why.to_owned();
            self.note(Some(node), || What::life("refuses", format!("does not start: {why}")));
            self.nodes[node].kept_down = true;
            self.nodes[node].refused = Some(why);
            return Ok(());
        }
        if !blown {
            let name = self.nodes[node].name.clone();
            return Err(Violation::new("restart", format!("{name} does not start: {why}")));
        }
        self.faults.count(Fault::BootCrash);
        let power = self.choices.chance("power", 500);
        self.crash(node, power);
        Ok(())
    }

    /// Crashes a node whose fuse has blown; true if so.
    fn blown(&mut self, node: usize) -> Result<bool, Violation> {
        if !self.nodes[node].disk.is_blown() {
            return Ok(false);
        }
        let planned = self.nodes[node].fuse_plan.take();
        self.faults.count(if planned.is_some() { Fault::Fuse } else { Fault::BootCrash });
        let power = match planned {
            Some(power) => power,
            None => self.choices.chance("power", 500),
        };
        self.crash(node, power);
        Ok(true)
    }

    /// A replica runs from now on.
    pub(super) fn up(&mut self, node: usize, process: Process) -> Verdict {
        let recovered = process.log.recovered();
        let applied = process.machine.applied();
        self.expects_damage(node, &recovered)?;
        let n = &mut self.nodes[node];
        n.shadow = Shadow::of(&recovered);
        n.ground.proved(&recovered);
        n.ground.leads = None;
        n.answered = Answered::default();
        n.marks = Watermarks::default();
        n.marks.start(applied.last.index);
        if recovered.held.is_some() {
            self.summary.marks.insert("event-held");
        } else {
            n.promises.on_restart(&n.name, recovered.hard.term, recovered.last)?;
        }
        if let Err(why) = self.compare(node, &process, &recovered)? {
            return match self.blown(node)? {
                true => Ok(()),
                false => {
                    Err(Violation::new("restart", format!("{}: {why}", self.nodes[node].name)))
                }
            };
        }
        let n = &mut self.nodes[node];
        if applied.last.index.0 > 0 {
            self.suite.digests.on_applied(&n.name, applied.last, applied.digest)?;
        }
        n.state = State::Up(Box::new(process));
        if self.blown(node)? {
            return Ok(());
        }
        if self.nodes[node].fuse_plan.is_none() {
            self.nodes[node].disk.set_fuse(None);
        }
        self.note(Some(node), || {
            let (hard, last) = (recovered.hard, recovered.last);
            let what = format!("runs: {}, last {last}, applied {}", hard.term, applied.last);
            let what = match (&recovered.held, recovered.holes.len()) {
                (Some(why), _) => format!("{what}; held: {why}"),
                (None, 0) => what,
                (None, holes) => format!("{what}; {holes} entries are damaged"),
            };
            What::life("runs", what)
        });
        if self.phase == Phase::Active && self.nodes[node].loops > 0 {
            self.nodes[node].loops -= 1;
            let left = self.choices.between("loop-effects", 0, 25);
            let power = self.choices.chance("loop-power", 500);
            self.nodes[node].effect_plan = Some((left, power));
        }
        self.dial_all(node);
        self.plan_scrub(node);
        self.open_broker(node)?;
        self.step(node, ReplicaInput::Wake)
    }

    /// What recovery proved is what was written: every entry of it matches every other log. Of a
    /// damaged one no more than its term can be compared, and of its successor less. What the log
    /// says if it cannot be read, which a start that is cut short right here explains.
    fn compare(
        &mut self,
        node: usize,
        process: &Process,
        recovered: &Recovered,
    ) -> Result<Result<(), String>, Violation> {
        let name = &self.nodes[node].name;
        let mut prev = recovered.base;
        while prev.index < recovered.last.index {
            let next = prev.index.next();
            if hole_at(&recovered.holes, next).is_some() {
                let term = recovered.term_at(next);
                prev = LogId { term: term.unwrap_or(prev.term), index: next };
                continue;
            }
            let entries = process.log.reader().read(next, recovered.last.index, 1 << 20);
            let entries = match entries {
                Ok(entries) => entries,
                Err(why) => return Ok(Err(why.to_string())),
            };
            for entry in &entries {
                let behind_unknown = recovered.term_at(prev.index).is_none();
                if !behind_unknown {
                    self.suite.history.on_entry(name, prev, entry)?;
                }
                prev = entry.id;
            }
        }
        Ok(Ok(()))
    }

    /// Ends the process of a node at this very point: nothing of it does anything any more.
    pub(super) fn crash(&mut self, node: usize, power: bool) {
        self.end_process(node, if power { End::Power } else { End::Kill });
    }

    pub(super) fn end_process(&mut self, node: usize, how: End) {
        let power = how != End::Kill;
        self.faults.count(if power { Fault::Crash } else { Fault::Kill });
        let life = self.nodes[node].life;
        self.choices.enter_at(Stream::Crash, Actor::Node(node), life);
        self.end(node, how);
        self.choices.leave();
    }

    fn end(&mut self, node: usize, how: End) {
        let power = how != End::Kill;
        let before = self.damage();
        let member = self.nodes[node].member;
        self.close_broker(node);
        self.nodes[node].disk.set_fuse(Some(0));
        let state = std::mem::replace(&mut self.nodes[node].state, State::Down);
        drop(state);
        let disk = match how {
            End::Power => {
                let (choices, faults) = (&mut self.choices, &mut self.faults);
                let mut loss = Loss { choices, faults, mode: 0, lost: false };
                self.nodes[node].disk.crash(&mut loss)
            }
            End::PowerLosingAll => self.nodes[node].disk.crash(&mut LoseAll),
            End::Kill => self.nodes[node].disk.kill(),
        };
        if power {
            // The clock that counts suspend starts again with the machine.
            self.nodes[node].clock = draw_clock(&mut self.choices, &self.setup, node);
        }
        let n = &mut self.nodes[node];
        n.disk = disk;
        n.life += 1;
        n.wake_at = None;
        n.wake_queued = None;
        n.effect_plan = None;
        n.fuse_plan = None;
        n.paused = false;
        n.stuck.clear();
        n.hang = None;
        let (life, kept_down) = (n.life, n.kept_down);
        self.held[node].clear();
        self.note_crash(node, power, &before);
        self.look_at_disks(node);
        for peer in 0..self.nodes.len() {
            if peer == node {
                continue;
            }
            let was = self.network.is_connected(node, peer);
            self.network.set_connected(node, peer, false);
            if let State::Forming(waiting) = &mut self.nodes[peer].state {
                waiting.1.gone(&self.names[node]);
            }
            if was && !power && self.choices.chance("reset", 500) {
                let at = self.now + self.setup.delay;
                let life = self.nodes[peer].life;
                self.queue.push(at, Event::Reset { node: peer, life, peer: member });
            }
        }
        if kept_down {
            return;
        }
        let mean = match self.phase {
            Phase::Active if self.nodes[node].loops > 0 => 30_000,
            Phase::Active => 600_000,
            _ => 20_000,
        };
        let down = self.choices.wait("down", mean);
        self.queue.push(self.now + down, Event::Start { node, life });
    }

    /// The process stands still: what happens to it happens when it goes on.
    pub(super) fn pause(&mut self, node: usize) {
        self.nodes[node].paused = true;
        self.nodes[node].pause += 1;
        self.note(Some(node), || What::fault("pause", "the process stands still"));
    }

    /// The process goes on, and everything that waited for it happens, in order.
    pub(super) fn resume(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].paused) {
            return;
        }
        self.note(Some(node), || relief("pause", "the process goes on"));
        self.release(node);
    }

    /// What was held back for a process happens now; what is still stuck is held again.
    pub(super) fn release(&mut self, node: usize) {
        for event in std::mem::take(&mut self.held[node]) {
            self.queue.push(self.now, event);
        }
    }

    pub(super) fn wake(&mut self, node: usize, life: u64, at: u64) -> Verdict {
        if !self.lives(node, life) || self.nodes[node].wake_queued != Some(at) {
            return Ok(());
        }
        if self.nodes[node].paused {
            self.held[node].push(Event::Wake { node, life, at });
            return Ok(());
        }
        self.nodes[node].wake_queued = None;
        match self.nodes[node].wake_at {
            None => Ok(()),
            Some(wanted) if wanted > self.now => {
                self.nodes[node].wake_queued = Some(wanted);
                self.queue.push(wanted, Event::Wake { node, life, at: wanted });
                Ok(())
            }
            Some(_) => {
                self.nodes[node].wake_at = None;
                self.note(Some(node), || What::Timer);
                self.step(node, ReplicaInput::Wake)
            }
        }
    }

    /// The latency of a job: nothing of it is visible before.
    pub(super) fn latency(&mut self, node: usize, lane: Lane, kind: &'static str) -> u64 {
        let (low, high) = match kind {
            "persist" | "watermark" | "reset" => (80, 1_500),
            "checkpoint" | "adopt" | "restore" | "reopen-log" | "reopen-store" => (300, 6_000),
            "apply" | "fetch" => (10, 250),
            _ => (30, 1_200),
        };
        let scale = self.setup.disk_latency;
        self.choices.enter(Stream::Job, Actor::Node(node), kind);
        let mut latency = self.choices.between("takes", low * scale / 100, high * scale / 100);
        let n = &mut self.nodes[node];
        let slow = n.lane_stalled.is_some_and(|(which, until)| which == lane && until > self.now);
        latency += n.hang.take().unwrap_or(0);
        if slow || n.stalled_until > self.now {
            latency += self.choices.wait("stalls", 80_000);
        }
        self.choices.leave();
        latency
    }

    pub(super) fn job_end(&mut self, node: usize, life: u64, lane: Lane) -> Verdict {
        if !self.lives(node, life) {
            return Ok(());
        }
        if self.nodes[node].paused || self.nodes[node].stuck.contains(&lane) {
            self.held[node].push(Event::JobEnd { node, life, lane });
            return Ok(());
        }
        let Some(process) = self.nodes[node].process_mut() else { return Ok(()) };
        let Some(job) = process.lanes.remove(&lane) else { return Ok(()) };
        let kind = job.kind();
        let done = match job {
            Job::Log(job) => Done::Log(job.run(&mut process.log)),
            Job::Apply(job) => Done::Apply(job.run(&mut process.machine)),
            Job::Side(lane, job) => Done::Side(lane, job.run()),
        };
        self.hash.fold(crate::hash::of_bytes(kind.as_bytes()));
        if self.blown(node)? {
            return Ok(());
        }
        self.note_job(node, lane, kind, false);
        self.before_done(node, &done);
        self.step(node, ReplicaInput::Done(done))
    }
}

//! A small deterministic world of replicas on the in-memory implementations: virtual time, jobs
//! that finish later, a network that loses and repeats, processes that die between any two effects.

#![allow(dead_code, reason = "each test uses a part of the world")]

use holdfast_consensus::Entries;
use holdfast_consensus::event::Event;
use holdfast_consensus::fault::StopReason;
use holdfast_consensus::io::Persist;
use holdfast_consensus::job::{Call, Done, Job, Lane, ReplicaEffect, ReplicaInput};
use holdfast_consensus::memory::{
    MemoryCommand, MemoryLog, MemoryLogDisk, MemoryMachine, MemoryMachineDisk, MemoryReply,
    MemoryView,
};
use holdfast_consensus::message::{Message, Outcome};
use holdfast_consensus::replica::{Replica, ReplicaConfig};
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::traits::{LogStore, StateMachine};
use holdfast_consensus::types::*;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Node = Replica<MemoryLog, MemoryMachine>;

pub(crate) const MS: Micros = 1_000;
pub(crate) const SECOND: Micros = 1_000_000;

/// What is wrong with the world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Messages lost and repeated, in thousandths.
    pub(crate) loss: u64,
    pub(crate) repeat: u64,
    /// Longest delay of a message and of a job.
    pub(crate) delay: Micros,
    pub(crate) job: Micros,
}

pub(crate) struct Process {
    pub(crate) replica: Node,
    log: MemoryLog,
    machine: MemoryMachine,
    pub(crate) view: MemoryView,
    jobs: BTreeMap<Lane, Job<MemoryLog, MemoryMachine>>,
}

pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) log: MemoryLogDisk,
    pub(crate) machine: MemoryMachineDisk,
    pub(crate) process: Option<Process>,
    start: u64,
    /// Why it stopped by itself, if it did.
    pub(crate) stopped: Option<StopReason>,
}

enum Due {
    Deliver { from: usize, to: usize, message: Message },
    JobEnd { node: usize, start: u64, lane: Lane },
}

/// What a client asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) node: usize,
    pub(crate) at: Micros,
    pub(crate) deadline: Micros,
    /// The value to push; `None` for a barrier.
    pub(crate) value: Option<u64>,
    /// The value that a question is about.
    pub(crate) about: Option<u64>,
    /// Values acknowledged to anybody before the call.
    acked_before: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) skipped: u64,
    pub(crate) jobs: u64,
    pub(crate) log_jobs: u64,
    pub(crate) messages: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn get(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }
}

pub(crate) struct World {
    pub(crate) now: Micros,
    pub(crate) rng: SplitMix64,
    pub(crate) faults: Faults,
    pub(crate) members: Vec<Member>,
    /// One-way cuts.
    pub(crate) cuts: BTreeSet<(usize, usize)>,
    due: BTreeMap<(Micros, u64), Due>,
    seq: u64,
    config: ReplicaConfig,
    next_ticket: u64,
    pub(crate) asked: BTreeMap<(usize, Ticket), Asked>,
    /// Values by outcome. An acknowledged value is in order of acknowledgement.
    pub(crate) acked: Vec<u64>,
    pub(crate) refused: BTreeSet<u64>,
    pub(crate) unknown: BTreeSet<u64>,
    /// The last answer to anybody, and the answers by ticket.
    pub(crate) answered: Option<Outcome>,
    pub(crate) outcomes: BTreeMap<Ticket, Outcome>,
    /// Messages that are kept back instead of sent, and those that were.
    pub(crate) keeps: Option<fn(&Message) -> bool>,
    pub(crate) kept: Vec<(usize, usize, Message)>,
    digests: BTreeMap<Index, (LogId, u128)>,
    leaders: BTreeMap<Term, MemberId>,
    pub(crate) tally: Tally,
    /// Events worth printing when something fails.
    pub(crate) trace: Vec<String>,
}

pub(crate) fn config(member: MemberId) -> ReplicaConfig {
    ReplicaConfig {
        snapshot_entries: 40,
        kept_entries: 10,
        checkpoint_bytes: 4_000,
        checkpoint_after: 400 * MS,
        ..ReplicaConfig::new(member)
    }
}

impl World {
    pub(crate) fn new(seed: u64, size: u64, config: ReplicaConfig) -> Self {
        let faults = Faults { loss: 0, repeat: 0, delay: 2 * MS, job: 2 * MS };
        let mut world = Self {
            now: 1,
            rng: SplitMix64::new(seed),
            faults,
            members: (1..=size).map(member).collect(),
            cuts: BTreeSet::new(),
            due: BTreeMap::new(),
            seq: 0,
            config,
            next_ticket: 0,
            asked: BTreeMap::new(),
            acked: Vec::new(),
            refused: BTreeSet::new(),
            unknown: BTreeSet::new(),
            answered: None,
            outcomes: BTreeMap::new(),
            keeps: None,
            kept: Vec::new(),
            digests: BTreeMap::new(),
            leaders: BTreeMap::new(),
            tally: Tally::default(),
            trace: Vec::new(),
        };
        world.found();
        for node in 0..world.members.len() {
            world.start(node);
        }
        world
    }

    /// The founder's first entry; the others receive it.
    fn found(&mut self) {
        let voters = self.members.iter().map(|m| (m.id, format!("n{}", m.id.0)));
        let first = Entry {
            id: LogId::new(1, 1),
            time: 0,
            body: Body::Membership(Membership::of_voters(voters).into()),
        };
        let hard = HardState { term: Term(1), voted_for: None };
        let batch = Persist {
            seq: Seq(1),
            truncate_from: None,
            append: Entries::new(vec![first]).expect("one entry is ordered"),
            hard: Some(hard),
        };
        self.members[0].log.open().persist(&[batch]).expect("an empty disk takes an entry");
    }

    pub(crate) fn start(&mut self, node: usize) {
        let seed = self.rng.next_u64();
        let now = self.now;
        let member = &mut self.members[node];
        if member.process.is_some() {
            return;
        }
        let (mut log, mut machine) = (member.log.open(), member.machine.open());
        let config = ReplicaConfig {
            core: holdfast_consensus::io::CoreConfig {
                member: member.id,
                ..self.config.core.clone()
            },
            ..self.config.clone()
        };
        let replica = Replica::open(config, seed, &mut log, &mut machine, now)
            .unwrap_or_else(|reason| panic!("n{} refuses to start: {reason}", node + 1));
        let view = machine.view();
        member.start += 1;
        member.stopped = None;
        member.process = Some(Process { replica, log, machine, view, jobs: BTreeMap::new() });
        self.note(format!("n{} starts", node + 1));
        self.step(node, ReplicaInput::Wake);
    }

    /// The process dies. Jobs that are out are cut off, or their disk work happens and nobody
    /// hears of it.
    pub(crate) fn crash(&mut self, node: usize) {
        let Some(mut process) = self.members[node].process.take() else { return };
        for job in std::mem::take(&mut process.jobs).into_values() {
            if self.rng.chance(500) {
                drop(carry_out(job, &mut process));
            }
        }
        self.members[node].log.crash();
        self.members[node].machine.crash();
        self.tally.count("crash");
        self.note(format!("n{} crashes", node + 1));
        let tickets: Vec<_> = self.asked.keys().filter(|(at, _)| *at == node).copied().collect();
        for key in tickets {
            let asked = self.asked.remove(&key).expect("the key was just listed");
            self.unknown.extend(asked.value);
        }
    }

    pub(crate) fn note(&mut self, line: String) {
        self.trace.push(format!("{:>10} {line}", self.now));
        if self.trace.len() > 4_000 {
            self.trace.drain(..2_000);
        }
    }

    fn schedule(&mut self, after: Micros, due: Due) {
        self.seq += 1;
        self.due.insert((self.now + after, self.seq), due);
    }

    pub(crate) fn step(&mut self, node: usize, input: ReplicaInput<MemoryLog, MemoryMachine>) {
        let mut out = Vec::new();
        let Some(process) = &mut self.members[node].process else { return };
        process.replica.step(self.now, input, &mut out);
        for effect in out {
            self.effect(node, effect);
        }
    }

    fn effect(&mut self, node: usize, effect: ReplicaEffect<MemoryLog, MemoryMachine>) {
        match effect {
            ReplicaEffect::Send { to, message, .. } => self.post(node, to, message),
            ReplicaEffect::Run(job) => {
                let lane = job.lane();
                self.tally.jobs += 1;
                self.tally.log_jobs += u64::from(lane == Lane::Log);
                let start = self.members[node].start;
                let after = self.rng.between(20, self.faults.job.max(21));
                let Some(process) = &mut self.members[node].process else { return };
                let other = process.jobs.insert(lane, job);
                assert!(other.is_none(), "two jobs are out on {lane:?} of n{}", node + 1);
                self.schedule(after, Due::JobEnd { node, start, lane });
            }
            ReplicaEffect::Answer { ticket, outcome } => self.answer(node, ticket, outcome),
            ReplicaEffect::Observe(event) => self.observe(node, &event),
            ReplicaEffect::Stop(reason) => {
                self.note(format!("n{} stops: {reason}", node + 1));
                self.members[node].stopped = Some(reason);
                self.tally.count("stop");
            }
        }
    }

    fn post(&mut self, from: usize, to: MemberId, message: Message) {
        self.tally.messages += 1;
        let to = usize::try_from(to.0 - 1).expect("a small id");
        if self.keeps.is_some_and(|keeps| keeps(&message)) {
            return self.kept.push((from, to, message));
        }
        if self.cuts.contains(&(from, to)) || self.rng.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(self.faults.repeat));
        for _ in 0..copies {
            let after = self.rng.between(100, self.faults.delay.max(101));
            self.schedule(after, Due::Deliver { from, to, message: message.clone() });
        }
    }

    fn answer(&mut self, node: usize, ticket: Ticket, outcome: Outcome) {
        let asked = self.asked.remove(&(node, ticket)).expect("each call is answered once");
        self.answered = Some(outcome.clone());
        self.outcomes.insert(ticket, outcome.clone());
        match (asked.value, outcome) {
            (Some(value), Outcome::Committed { result, .. }) => {
                let reply = MemoryReply::decode(&result).expect("a reply of the machine");
                assert!(matches!(reply, MemoryReply::Now(_)), "a push is not refused");
                // The driver waits for the local replica as long as it may, not longer.
                let bound = asked.deadline.min(asked.at + self.config.read_your_writes);
                let process = self.members[node].process.as_ref().expect("it answers");
                let stops = process.replica.stopped();
                if self.now < bound && !stops {
                    let list = process.view.list();
                    assert!(list.contains(&value), "n{} does not read {value}", node + 1);
                }
                self.acked.push(value);
                self.tally.count("acked");
            }
            (Some(value), Outcome::NotCommitted(_)) => {
                self.refused.insert(value);
                self.tally.count("not-committed");
            }
            (Some(value), _) => {
                self.unknown.insert(value);
                self.tally.count("unknown");
            }
            (None, Outcome::Ready { .. }) => {
                let view = &self.members[node].process.as_ref().expect("it answers").view;
                let list: BTreeSet<u64> = view.list().into_iter().collect();
                let before = usize::try_from(asked.acked_before).expect("a small count");
                for value in &self.acked[..before] {
                    assert!(list.contains(value), "a barrier at n{} misses {value}", node + 1);
                }
                self.tally.count("barrier");
            }
            (None, Outcome::Confirmed(said)) => {
                let before = usize::try_from(asked.acked_before).expect("a small count");
                let value = asked.about.expect("only a question is confirmed");
                if self.acked[..before].contains(&value) {
                    assert_eq!(said.answer.as_ref(), [1], "{value} was acknowledged: {said:?}");
                }
                let view = &self.members[node].process.as_ref().expect("it answers").view;
                assert!(view.applied().0.index >= said.index, "n{} is behind", node + 1);
                self.tally.count("confirmed");
            }
            (None, _) => self.tally.count("no-barrier"),
        }
    }

    fn observe(&mut self, node: usize, event: &Event) {
        match event {
            Event::Applied { through, digest, skipped } => {
                self.tally.skipped += skipped;
                let first = self.digests.entry(through.index).or_insert((*through, *digest));
                assert_eq!(*first, (*through, *digest), "n{} differs at {through}", node + 1);
            }
            Event::Role { role: holdfast_consensus::event::RoleKind::Leader, term } => {
                let id = self.members[node].id;
                let first = *self.leaders.entry(*term).or_insert(id);
                assert_eq!(first, id, "two members lead {term}");
                self.tally.count("elected");
            }
            Event::Installed { .. } => self.tally.count("installed"),
            Event::SnapshotTaken { .. } => self.tally.count("snapshot"),
            Event::SnapshotFailed { .. } => self.tally.count("snapshot-failed"),
            Event::Compacted { .. } => self.tally.count("compacted"),
            Event::Checkpointed { .. } => self.tally.count("checkpoint"),
            Event::LogReopened { .. } => self.tally.count("log-reopened"),
            Event::StoreReopened { .. } => self.tally.count("store-reopened"),
            Event::TransferEnded { ok: true, .. } => self.tally.count("transfer"),
            Event::TransferEnded { ok: false, .. } => self.tally.count("transfer-failed"),
            Event::Mark(mark) => self.tally.count(mark),
            Event::Dropped { reason } => self.tally.count(reason),
            _ => {}
        }
        if !matches!(event, Event::Committed { .. } | Event::Durable { .. } | Event::Applied { .. })
        {
            self.note(format!("n{} {event:?}", node + 1));
        }
    }

    /// A client asks a node.
    pub(crate) fn ask(&mut self, node: usize, value: Option<u64>, patience: Micros) {
        if self.members[node].process.is_none() || self.members[node].stopped.is_some() {
            return;
        }
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let deadline = self.now + patience;
        let acked_before = self.acked.len() as u64;
        let asked = Asked { node, at: self.now, deadline, value, about: None, acked_before };
        self.asked.insert((node, ticket), asked);
        let call = match value {
            Some(value) => {
                let command = MemoryCommand::Push(value).encode();
                // Each value is pushed once, so every command is unique.
                if value % 2 == 0 {
                    Call::Propose { command }
                } else {
                    Call::ProposeUnique { command }
                }
            }
            None => Call::Barrier,
        };
        self.step(node, ReplicaInput::Call { ticket, call, deadline });
    }

    pub(crate) fn call(&mut self, node: usize, call: Call) -> Ticket {
        self.call_within(node, call, SECOND)
    }

    pub(crate) fn call_within(&mut self, node: usize, call: Call, patience: Micros) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let deadline = self.now + patience;
        let acked_before = self.acked.len() as u64;
        let about = match &call {
            Call::Confirm { question } => question.as_ref().try_into().ok().map(u64::from_le_bytes),
            _ => None,
        };
        let asked = Asked { node, at: self.now, deadline, value: None, about, acked_before };
        self.asked.insert((node, ticket), asked);
        self.step(node, ReplicaInput::Call { ticket, call, deadline });
        ticket
    }

    /// A message arrives now, whatever the network would do.
    pub(crate) fn deliver(&mut self, from: usize, to: usize, message: Message) {
        let from = self.members[from].id;
        self.step(to, ReplicaInput::Message { from, message });
    }

    fn next_event(&self) -> Option<Micros> {
        let wakes = self.members.iter().filter_map(|m| m.process.as_ref()?.replica.next_deadline());
        let due = self.due.first_key_value().map(|((at, _), _)| *at);
        wakes.chain(due).min()
    }

    /// Runs until `end`, event by event.
    pub(crate) fn run_until(&mut self, end: Micros) {
        let mut stuck = 0;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            stuck = if at > self.now { 0 } else { stuck + 1 };
            assert!(stuck < 100_000, "time does not advance at {}", self.now);
            self.now = self.now.max(at);
            for node in 0..self.members.len() {
                let wants = |p: &Process| p.replica.next_deadline().is_some_and(|d| d <= self.now);
                if self.members[node].process.as_ref().is_some_and(wants) {
                    self.step(node, ReplicaInput::Wake);
                }
            }
            let ready = self.due.first_key_value().filter(|((at, _), _)| *at <= self.now);
            let Some(key) = ready.map(|(key, _)| *key) else { continue };
            let due = self.due.remove(&key).expect("the key was just seen");
            self.happen(due);
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Deliver { from, to, message } => {
                let from = self.members[from].id;
                self.step(to, ReplicaInput::Message { from, message });
            }
            Due::JobEnd { node, start, lane } => {
                if self.members[node].start != start {
                    return;
                }
                let Some(process) = &mut self.members[node].process else { return };
                let job = process.jobs.remove(&lane).expect("a job ends once");
                let done = carry_out(job, process);
                self.step(node, ReplicaInput::Done(done));
            }
        }
    }

    pub(crate) fn replica(&self, node: usize) -> Option<&Node> {
        self.members[node].process.as_ref().map(|p| &p.replica)
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |p: &Process| {
            p.replica.status(self.now).role == holdfast_consensus::event::RoleKind::Leader
        };
        let leaders = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, m)| m.stopped.is_none() && m.process.as_ref().is_some_and(leads));
        leaders
            .max_by_key(|(_, m)| m.process.as_ref().map(|p| p.replica.status(0).hard.term))
            .map(|(n, _)| n)
    }

    pub(crate) fn status(&self, node: usize) -> holdfast_consensus::replica::ReplicaStatus {
        self.replica(node).expect("the process runs").status(self.now)
    }

    /// Everything works again, and whoever died comes back.
    pub(crate) fn heal(&mut self) {
        self.faults = Faults { loss: 0, repeat: 0, delay: 2 * MS, job: 2 * MS };
        self.cuts.clear();
        for node in 0..self.members.len() {
            self.members[node].log.set_full(false);
            self.members[node].log.fail_persists(0);
            self.members[node].log.snapshots().fail_publish(0);
            self.members[node].machine.fail_writes(0);
            self.members[node].machine.set_full(false);
            if self.members[node].stopped.is_some() {
                self.crash(node);
            }
            self.start(node);
        }
    }

    /// Every acknowledged value stands once on every replica, no refused one anywhere, and all
    /// replicas are equal.
    pub(crate) fn check_converged(&self) {
        let first = self.status(0).applied;
        for node in 0..self.members.len() {
            let status = self.status(node);
            assert_eq!(status.not_ready, None, "n{} is ready", node + 1);
            let (last, digest) = (status.applied.last, status.applied.digest);
            assert_eq!((last, digest), (first.last, first.digest), "n{} is behind", node + 1);
            let list = self.members[node].process.as_ref().expect("it runs").view.list();
            let set: BTreeSet<u64> = list.iter().copied().collect();
            assert_eq!(set.len(), list.len(), "n{} applied a write twice", node + 1);
            for value in &self.acked {
                assert!(set.contains(value), "n{} lost the acknowledged {value}", node + 1);
            }
            for value in &self.refused {
                assert!(!set.contains(value), "n{} holds the refused {value}", node + 1);
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for member in &self.members {
                if let Some(process) = &member.process {
                    eprintln!("{:#?}", process.replica.status(self.now));
                }
            }
            for line in self.trace.iter().rev().take(80).rev() {
                eprintln!("{line}");
            }
        }
    }
}

fn member(id: u64) -> Member {
    Member {
        id: MemberId(id),
        log: MemoryLogDisk::new(),
        machine: MemoryMachineDisk::new(ClusterId(7), 1),
        process: None,
        start: 0,
        stopped: None,
    }
}

fn carry_out(
    job: Job<MemoryLog, MemoryMachine>,
    process: &mut Process,
) -> Done<MemoryLog, MemoryMachine> {
    match job {
        Job::Log(job) => Done::Log(job.run(&mut process.log)),
        Job::Apply(job) => Done::Apply(job.run(&mut process.machine)),
        Job::Side(lane, job) => Done::Side(lane, job.run()),
    }
}

/// Lets time pass.
pub(crate) fn pass(world: &mut World, time: u64) {
    let until = world.now + time;
    world.run_until(until);
}

/// Writes `count` values through a node, one after the other.
pub(crate) fn write(world: &mut World, node: usize, count: u64) {
    let first = 1_000_000 + world.now;
    for value in first..first + count {
        world.ask(node, Some(value), 5 * SECOND);
        pass(world, 5 * MS);
    }
    pass(world, SECOND);
}

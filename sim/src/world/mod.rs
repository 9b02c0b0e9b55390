//! The simulated world: one thread, one event queue, one seed.
//!
//! Real core, driver, log and store; simulated network, disks, clocks, processes and clients.
//! Virtual time jumps from event to event. Nothing in here reads a clock or draws outside
//! [`Choices`], so a seed is a run.

pub mod anew;
mod broker;
mod clients;
pub mod clocks;
mod connect;
mod effects;
mod finish;
mod focus;
mod links;
mod liveness;
mod mounts;
mod nemesis;
mod network;
mod noting;
mod processes;
mod record;
mod rot;
pub mod script;
mod scrub;
mod suite;
mod watch;

use crate::broker::wants::{Note, Task};
use crate::check::progress::Progress;
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Choices, Stream};
use crate::faults::Faults;
use crate::hash::TraceHash;
use crate::node::{Clock, Node};
use crate::profile::{FaultKind, Profile, Setup};
use crate::queue::Queue;
use crate::trace::{self, Recording, Trace};
use clients::Clients;
use holdfast_consensus::job::{Call, Lane};
use holdfast_consensus::message::Message;
use holdfast_consensus::{Index, MemberId, Micros, Ticket};
use holdfast_log::mem_disk::DiskCounts;
use network::Network;
use std::collections::{BTreeMap, BTreeSet};
use suite::Suite;

/// Time between two looks at the progress of a healed cluster.
const LOOK_EVERY: Micros = 50_000;

/// Something that happens at a point in virtual time.
enum Event {
    Start { node: usize, life: u64 },
    Wake { node: usize, life: u64, at: Micros },
    Scrub { node: usize, life: u64 },
    Deliver { to: usize, life: u64, from: MemberId, copy: trace::Copy, message: Box<Message> },
    Reset { node: usize, life: u64, peer: MemberId },
    JobEnd { node: usize, life: u64, lane: Lane },
    Connect { nodes: [usize; 2], lives: [u64; 2] },
    Act { client: usize, turn: u64 },
    GiveUp { client: usize, ticket: Ticket },
    Resume { node: usize, life: u64, pause: u64 },
    Nemesis { slot: u64 },
    Strike { slot: u64, kind: FaultKind },
    Crash { node: usize, life: u64, power: bool },
    Free { node: usize, life: u64, lane: Lane },
    Call { node: usize, life: u64, ticket: Ticket, call: Call, patience: Micros },
    Uncut { cut: u64 },
    Space { node: usize },
    Look,
    Broker { node: usize, life: u64, task: Task },
    BrokerNote { nodes: [usize; 2], life: u64, note: Note },
}

/// What a run is up to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Faults and clients.
    Active,
    /// A majority is healed and must serve; the rest is broken for good.
    Core,
    /// No more faults; the clients finish what they want.
    Healed,
    /// The clients are done; replicas converge.
    Converging,
    /// Every node lost its power once more and starts from its disk alone.
    Restarted,
    /// Over.
    Done,
}

/// What a run amounted to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Acknowledged writes.
    pub acked: u64,
    /// Reads that were checked.
    pub reads: u64,
    /// Operations that clients began.
    pub operations: u64,
    /// Members of the cluster; in a sum over runs, of the largest.
    pub nodes: u64,
    /// Odd branches of the product that were taken, by their marks.
    pub marks: BTreeSet<&'static str>,
    /// True if no client wrote anything.
    pub idle: bool,
    /// Virtual time.
    pub virtual_micros: Micros,
    /// Faults by name.
    pub faults: Faults,
    /// Disk operations of all nodes.
    pub log: Io,
    /// As `log`, of the stores.
    pub store: Io,
    /// Entries that a store was fed again.
    pub replayed: u64,
    /// Snapshots taken and installed, segments given up.
    pub snapshots: [u64; 3],
    /// Longest time without an acknowledgement once faults were over, and longest time that
    /// replicas took to agree once the clients were done, in thousandths of the run's longest
    /// election timeout.
    pub slowest: [u64; 2],
    /// Runs that stood still because faults alone explain it.
    pub excused: u64,
    /// Hash of the run.
    pub hash: u64,
}

/// Writes and syncs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Positioned writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
}

/// The world.
pub struct World {
    now: Micros,
    queue: Queue<Event>,
    choices: Choices,
    setup: Setup,
    names: Vec<String>,
    nodes: Vec<Node>,
    members: BTreeMap<MemberId, usize>,
    network: Network,
    clients: Clients,
    suite: Suite,
    progress: Progress,
    phase: Phase,
    faults: Faults,
    hash: TraceHash,
    trace: Trace,
    summary: Summary,
    next_ticket: u64,
    next_cut: u64,
    cuts: BTreeMap<u64, Vec<(usize, usize)>>,
    /// By node: what happened to a process that stands still, in order.
    held: Vec<Vec<Event>>,
    scripted: script::Calls,
    brokers: Option<broker::Brokers>,
    liveness: liveness::Liveness,
    /// What a checker found at a place that cannot report it.
    failed: Option<Violation>,
}

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64, profile: Profile, trace: Trace) -> Self {
        Self::of(Choices::new(seed), profile, trace)
    }

    /// The world of these choices, where they hold nothing that of a profile.
    #[must_use]
    pub fn of(mut choices: Choices, profile: Profile, trace: Trace) -> Self {
        let setup = Setup::draw(profile, &mut choices);
        let names = (1..=setup.nodes).map(|n| format!("n{n}")).collect();
        Self::build(choices, names, setup, trace)
    }

    fn build(mut choices: Choices, names: Vec<String>, setup: Setup, mut trace: Trace) -> Self {
        trace.begin(&names);
        let nodes = names.iter().enumerate();
        let nodes = nodes
            .map(|(n, name)| Node::new(name.clone(), draw_clock(&mut choices, &setup, n)))
            .collect();
        let clients = Clients::new(&setup);
        let mut network = Network::new(setup.nodes);
        network.remembers = setup.faults.contains(&FaultKind::Replay);
        Self {
            now: 0,
            queue: Queue::default(),
            choices,
            names,
            nodes,
            members: BTreeMap::new(),
            network,
            clients,
            suite: Suite::default(),
            progress: Progress::default(),
            phase: Phase::Active,
            faults: Faults::default(),
            hash: TraceHash::default(),
            trace,
            summary: Summary::default(),
            next_ticket: 0,
            next_cut: 0,
            cuts: BTreeMap::new(),
            held: std::iter::repeat_with(Vec::new).take(setup.nodes).collect(),
            scripted: script::Calls::default(),
            brokers: None,
            liveness: liveness::Liveness::default(),
            failed: None,
            setup,
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn run(&mut self) -> Verdict {
        self.run_within(Micros::MAX, None)
    }

    /// As [`World::run`], but no further than to this virtual time, and under a further property,
    /// looked at after every event.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn run_within(&mut self, limit: Micros, check: Option<fn(&Self) -> Verdict>) -> Verdict {
        self.begin();
        self.run_on(limit, check).map_err(|violation| self.suite.with_history(violation))
    }

    fn run_on(&mut self, limit: Micros, check: Option<fn(&Self) -> Verdict>) -> Verdict {
        let Some(check) = check else { return self.run_to_end(limit) };
        while self.phase != Phase::Done && self.now < limit {
            if !self.advance()? {
                return Err(no_event());
            }
            check(self)?;
        }
        Ok(())
    }

    fn run_to_end(&mut self, limit: Micros) -> Verdict {
        while self.phase != Phase::Done && self.now < limit {
            if !self.advance()? {
                return Err(no_event());
            }
        }
        Ok(())
    }

    /// Handles the next event; `false` if there is none.
    fn advance(&mut self) -> Result<bool, Violation> {
        let Some((at, event)) = self.queue.pop() else { return Ok(false) };
        self.now = self.now.max(at);
        self.summary.events += 1;
        self.hash.fold(self.now);
        self.handle(event)?;
        self.failed.take().map_or(Ok(true), Err)
    }

    /// The choices of the run.
    pub const fn choices(&mut self) -> &mut Choices {
        &mut self.choices
    }

    /// Writes that clients got acknowledged.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.clients.acked()
    }

    /// The settings of the run.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What was recorded of the run, once; empty if its trace is off.
    pub fn take_trace(&mut self) -> Recording {
        self.trace.take()
    }

    /// What the run amounted to so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut hash = self.hash;
        let mut counts = DiskCounts::default();
        for node in &self.nodes {
            let of = node.disk.counts();
            hash.fold(node.disk.trace_hash());
            counts.log.writes += of.log.writes;
            counts.log.syncs += of.log.syncs;
            counts.store.writes += of.store.writes;
            counts.store.syncs += of.store.syncs;
        }
        Summary {
            acked: self.clients.acked(),
            operations: self.clients.begun(),
            nodes: self.nodes.len() as u64,
            idle: self.setup.quota == 0,
            virtual_micros: self.now,
            faults: self.faults.clone(),
            log: Io { writes: counts.log.writes, syncs: counts.log.syncs },
            store: Io { writes: counts.store.writes, syncs: counts.store.syncs },
            hash: hash.value(),
            ..self.summary.clone()
        }
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.choices.enter(Stream::Boot, Actor::Node(node), "first");
            let at = self.choices.between("after", 0, 20_000);
            self.choices.leave();
            self.queue.push(at, Event::Start { node, life: 0 });
        }
        for client in 0..self.setup.clients {
            self.next_operation(client);
        }
        self.queue.push(0, Event::Nemesis { slot: 0 });
        self.queue.push(LOOK_EVERY, Event::Look);
    }

    fn handle(&mut self, event: Event) -> Verdict {
        match event {
            Event::Start { node, life } => self.start(node, life),
            Event::Wake { node, life, at } => self.wake(node, life, at),
            Event::Scrub { node, life } => self.scrub(node, life),
            Event::Deliver { to, life, from, copy, message } => {
                self.deliver(to, life, from, copy, message)
            }
            Event::Reset { node, life, peer } => self.peer_reset(node, life, peer),
            Event::JobEnd { node, life, lane } => self.job_end(node, life, lane),
            Event::Connect { nodes, lives } => self.connect(nodes, lives),
            Event::Act { client, turn } => self.act(client, turn),
            Event::GiveUp { client, ticket } => {
                self.give_up(client, ticket);
                Ok(())
            }
            Event::Resume { node, life, pause } => {
                if self.lives(node, life) && self.nodes[node].pause == pause {
                    self.resume(node);
                }
                Ok(())
            }
            Event::Nemesis { slot } => {
                self.nemesis(slot);
                Ok(())
            }
            Event::Strike { slot, kind } => self.strike(slot, kind),
            Event::Crash { node, life, power } => {
                if self.lives(node, life) {
                    self.crash(node, power);
                }
                Ok(())
            }
            Event::Free { node, life, lane } => {
                if self.nodes[node].life == life && self.nodes[node].stuck.remove(&lane) {
                    self.release(node);
                }
                Ok(())
            }
            Event::Call { node, life, ticket, call, patience } => {
                self.late_call(node, life, ticket, call, patience)
            }
            Event::Uncut { cut } => {
                self.uncut(cut);
                Ok(())
            }
            Event::Space { node } => {
                self.space(node);
                Ok(())
            }
            Event::Look => self.look(),
            Event::Broker { node, life, task } => self.broker_pass(node, life, task),
            Event::BrokerNote { nodes, life, note } => self.broker_told(nodes, life, note),
        }
    }

    /// True if the process of this life still runs.
    fn lives(&self, node: usize, life: u64) -> bool {
        self.nodes[node].life == life && self.nodes[node].is_running()
    }

    fn committed(&self) -> Index {
        self.suite.committed.last().index
    }
}

fn no_event() -> Violation {
    Violation::new("progress", "no event is left and nobody is done")
}

fn draw_clock(choices: &mut Choices, setup: &Setup, node: usize) -> Clock {
    choices.enter(Stream::Clock, Actor::Node(node), "");
    let offset = choices.between("offset", 1, 10_000_000_000);
    let drift = choices.between("drift", 0, setup.drift + 1);
    let drift = i64::try_from(drift).unwrap_or(0);
    let drift = if choices.chance("slow", 500) { -drift } else { drift };
    choices.leave();
    Clock::new(offset, drift)
}

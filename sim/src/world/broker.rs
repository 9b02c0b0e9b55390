//! The brokers of a world: passes, notes between them, calls of their replicas, and the ledger.
//!
//! A broker lives in the process of its node: it is opened when a replica runs, stands still with
//! it, and dies with it at any crash. Injected between brokers: the delays and cuts of the network.
//! Never injected: a note that arrives twice (the transport of a broker's calls delivers a call
//! once; what is retried carries its sequence number).

mod hands;

use super::processes::End;
use super::script::Script;
use super::{Event, World};
use crate::broker::engine::{Broker, Sight};
use crate::broker::ledger::{Committed, Ledger, Lost, PROPERTY, Place};
use crate::broker::records::Record;
use crate::broker::wants::{Note, TASKS, Task, Want};
use crate::broker::{Mode, accepted, layout};
use crate::check::model::Model;
use crate::check::{Verdict, Violation};
use crate::choices::Actor;
use crate::choices::Stream;
use crate::trace::What;
use holdfast_consensus::job::ReplicaInput;
use holdfast_consensus::message::Outcome;
use holdfast_consensus::{Index, Micros, Ticket};
use std::collections::BTreeMap;
use std::io;

/// How long a call of a broker waits, on the clock of its node.
const PATIENCE: Micros = 1_000_000;

/// The brokers of a world.
pub(super) struct Brokers {
    mode: Mode,
    all: Vec<Option<Broker>>,
    ledger: Ledger,
    /// Calls of brokers that wait: node, life, and what the broker calls it.
    calls: BTreeMap<Ticket, (usize, u64, u64)>,
    next_record: u64,
    story: Vec<Line>,
    /// Notes between these nodes take so much longer.
    slow: BTreeMap<(usize, usize), Micros>,
}

/// A line of the story; what is said several times in a row is counted.
struct Line {
    at: Micros,
    text: String,
    times: u64,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>4}.{:03} s  {}", self.at / 1_000_000, self.at / 1_000 % 1_000, self.text)?;
        match self.times {
            1 => Ok(()),
            times => write!(f, " ({times} times)"),
        }
    }
}

/// What the committed log says.
struct Facts<'a>(&'a Model);

impl Committed for Facts<'_> {
    fn deleted(&self, topic: &str, incarnation: u64) -> bool {
        self.0.topics().get(topic) != Some(&incarnation)
    }

    fn detached(&self, attachment: u64) -> bool {
        !self.0.placements().links().values().any(|link| link.incarnation == attachment)
    }
}

impl World {
    /// From now on every process runs a broker.
    pub(super) fn add_brokers(&mut self, mode: Mode) {
        self.brokers = Some(Brokers {
            mode,
            all: self.nodes.iter().map(|_| None).collect(),
            ledger: Ledger::default(),
            calls: BTreeMap::new(),
            next_record: 0,
            story: Vec::new(),
            slow: BTreeMap::new(),
        });
    }

    /// A replica runs: its broker starts with it.
    pub(super) fn open_broker(&mut self, node: usize) -> Verdict {
        let Some(brokers) = &mut self.brokers else { return Ok(()) };
        let n = &self.nodes[node];
        let Some(process) = n.process() else { return Ok(()) };
        let opened = Broker::open(brokers.mode, n.disk.clone(), &n.name, &process.view);
        let life = n.life;
        match opened {
            Ok(broker) => brokers.all[node] = Some(broker),
            Err(e) => return self.broker_failed(node, &e),
        }
        for (task, _) in TASKS {
            let at = self.now + self.choices.between(Stream::Workload, 1_000, 30_000);
            self.queue.push(at, Event::Broker { node, life, task });
        }
        Ok(())
    }

    /// The process of a broker is gone.
    pub(super) fn close_broker(&mut self, node: usize) {
        if let Some(brokers) = &mut self.brokers {
            brokers.all[node] = None;
        }
    }

    /// A broker whose disk fails stops its process, unless the disk explains it.
    fn broker_failed(&mut self, node: usize, e: &io::Error) -> Verdict {
        let disk = &self.nodes[node].disk;
        let counts = disk.counts();
        let news = (counts.full, counts.failed) != self.nodes[node].failures;
        if disk.is_blown() || news {
            self.note(Some(node), || What::fault("broker", format!("the broker stops: {e}")));
            self.crash(node, false);
            return Ok(());
        }
        let name = &self.nodes[node].name;
        Err(Violation::new("broker", format!("{name}: its broker fails without a fault: {e}")))
    }

    pub(super) fn broker_pass(&mut self, node: usize, life: u64, task: Task) -> Verdict {
        if !self.lives(node, life) {
            return Ok(());
        }
        if self.nodes[node].paused {
            self.held[node].push(Event::Broker { node, life, task });
            return Ok(());
        }
        let pause = TASKS.iter().find(|(t, _)| *t == task).map_or(1_000_000, |(_, pause)| *pause);
        self.queue.push(self.now + pause, Event::Broker { node, life, task });
        self.with_broker(node, |broker, sight| broker.pass(task, sight)).map(|_| ())
    }

    pub(super) fn broker_told(
        &mut self,
        [from, node]: [usize; 2],
        life: u64,
        note: Note,
    ) -> Verdict {
        if !self.lives(node, life) {
            return Ok(());
        }
        if self.nodes[node].paused {
            self.held[node].push(Event::BrokerNote { nodes: [from, node], life, note });
            return Ok(());
        }
        let name = self.names[from].clone();
        self.with_broker(node, |broker, sight| broker.told(&name, note, sight)).map(|_| ())
    }

    /// An answer to a broker; `false` if it is somebody else's.
    pub(super) fn broker_answered(
        &mut self,
        ticket: Ticket,
        outcome: &Outcome,
    ) -> Result<bool, Violation> {
        let Some(brokers) = &mut self.brokers else { return Ok(false) };
        let Some((node, life, ask)) = brokers.calls.remove(&ticket) else { return Ok(false) };
        if self.lives(node, life) {
            self.with_broker(node, |broker, sight| broker.outcome(ask, outcome, sight))?;
        }
        Ok(true)
    }

    /// A producer hands a record to the broker of a node; the record's id if it was acknowledged.
    pub(super) fn produce_through(
        &mut self,
        node: usize,
        topic: &str,
        partition: u32,
    ) -> Result<Option<u64>, Violation> {
        let Some(brokers) = &mut self.brokers else { return Ok(None) };
        brokers.next_record += 1;
        let record = Record { id: brokers.next_record, time: self.now };
        let taken = self
            .with_broker(node, |broker, sight| broker.produce(topic, partition, record, sight))?;
        Ok((taken == Some(true)).then_some(record.id))
    }

    /// Runs something on the broker of a node, and carries out what it wants.
    fn with_broker<T>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut Broker, &Sight<'_>) -> io::Result<T>,
    ) -> Result<Option<T>, Violation> {
        let Some(mut broker) = self.brokers.as_mut().and_then(|b| b.all[node].take()) else {
            return Ok(None);
        };
        let n = &self.nodes[node];
        let Some(process) = n.process() else { return Ok(None) };
        let shown = n.clock.show(self.now);
        let status = process.replica.status(shown);
        let leader = status.leader.and_then(|member| self.members.get(&member).copied());
        let sight = Sight {
            now: self.now,
            shown,
            me: &n.name,
            leader: leader.map(|leader| self.names[leader].as_str()),
            view: &process.view,
            status: &status,
            stopped: process.replica.stopped(),
        };
        let done = act(&mut broker, &sight);
        let wants = broker.take();
        let life = n.life;
        if let Some(brokers) = &mut self.brokers {
            brokers.all[node] = Some(broker);
        }
        // What was done before the disk failed was done.
        for want in wants {
            if self.lives(node, life) {
                self.grant(node, want)?;
            }
        }
        match done {
            Ok(value) => Ok(Some(value)),
            Err(e) => self.broker_failed(node, &e).map(|()| None),
        }
    }

    fn grant(&mut self, node: usize, want: Want) -> Verdict {
        let now = self.now;
        match want {
            Want::Say(text) => self.tell(Some(node), text.into()),
            Want::Decided(decision, text) => self.tell(Some(node), What::Guard(decision, text)),
            Want::Acknowledged { place, record, how } => {
                let how = format!("{how} on {}", self.names[node]);
                if let Some(brokers) = &mut self.brokers {
                    brokers.ledger.acknowledged(place, record, &how);
                }
            }
            Want::Appended { place, record } => self.appended(&place, record),
            Want::Tell { to, note } => {
                let Some(target) = self.names.iter().position(|name| *name == to) else {
                    return Ok(());
                };
                let links = &self.network;
                if !links.is_connected(node, target) || links.is_cut(node, target) {
                    return Ok(());
                }
                let jitter = self.choices.between(Stream::Network, 0, self.setup.jitter);
                let slow = self.brokers.as_ref().and_then(|b| b.slow.get(&(node, target)).copied());
                let life = self.nodes[target].life;
                let event = Event::BrokerNote { nodes: [node, target], life, note };
                let delay = self.setup.delay + jitter + slow.unwrap_or(0);
                self.queue.push(now + delay, event);
            }
            Want::Call { ask, call } => {
                self.next_ticket += 1;
                let ticket = Ticket(self.next_ticket);
                let life = self.nodes[node].life;
                if let Some(brokers) = &mut self.brokers {
                    brokers.calls.insert(ticket, (node, life, ask));
                }
                let deadline = self.nodes[node].clock.show(now) + PATIENCE;
                return self.step(node, ReplicaInput::Call { ticket, call, deadline });
            }
        }
        Ok(())
    }

    /// A record was appended to a parent: every child that is attached by a committed entry is
    /// owed it.
    fn appended(&mut self, place: &Place, record: Record) {
        let Some(brokers) = &mut self.brokers else { return };
        let model = &self.suite.model;
        if model.topics().get(&place.topic) != Some(&place.incarnation) {
            return;
        }
        for (child, link) in model.placements().links() {
            let Some(incarnation) = model.topics().get(child) else { continue };
            if link.parent != place.topic {
                continue;
            }
            let (topic, partition) = (child.clone(), place.partition);
            let owed = Place { topic, incarnation: *incarnation, partition };
            let attachment = link.incarnation;
            let how = format!("appended to {} after attachment {attachment}", place.topic);
            brokers.ledger.owed(owed, record, attachment, &how);
        }
    }

    /// A line of the story.
    pub(super) fn tell(&mut self, node: Option<usize>, what: What) {
        let (What::Story(text) | What::Guard(_, text)) = &what else { return };
        let who = node.map_or_else(String::new, |node| format!("{} ", self.names[node]));
        let text = format!("{who}{text}");
        let at = self.now;
        self.note(node, || what);
        let Some(brokers) = &mut self.brokers else { return };
        match brokers.story.last_mut() {
            Some(last) if last.text == text => last.times += 1,
            _ => brokers.story.push(Line { at, text, times: 1 }),
        }
    }

    pub(super) fn take_story(&mut self) -> Vec<String> {
        let lines = self.brokers.as_mut().map(|b| std::mem::take(&mut b.story));
        lines.unwrap_or_default().iter().map(Line::to_string).collect()
    }
}

impl World {
    /// Last index that is committed, by whatever replica.
    #[must_use]
    pub fn committed_index(&self) -> Index {
        self.committed()
    }

    /// True if two nodes are connected.
    #[must_use]
    pub fn is_connected(&self, a: usize, b: usize) -> bool {
        self.network.is_connected(a, b)
    }

    /// True if the broker of a node runs a cursor for a child under this attachment.
    #[must_use]
    pub fn has_cursor(&self, node: usize, child: &str, attachment: u64) -> bool {
        let broker = self.brokers.as_ref().and_then(|brokers| brokers.all[node].as_ref());
        broker.is_some_and(|broker| broker.has_cursor(child, attachment))
    }

    /// Accepted records that wait on a node for their partitions.
    #[must_use]
    pub fn accepted_records(&self, node: usize) -> usize {
        accepted::held(&self.nodes[node].disk).map_or(usize::MAX, |held| held.len())
    }

    /// True if the broker of a node waits for an answer before it destroys.
    #[must_use]
    pub fn asks(&self, node: usize) -> bool {
        let broker = self.brokers.as_ref().and_then(|brokers| brokers.all[node].as_ref());
        broker.is_some_and(Broker::asks)
    }

    /// True if the broker of a node has decided to destroy something, and not done it yet.
    #[must_use]
    pub fn hesitates(&self, node: usize) -> bool {
        let broker = self.brokers.as_ref().and_then(|brokers| brokers.all[node].as_ref());
        broker.is_some_and(Broker::hesitates)
    }

    /// What is due now counts for ever, whatever becomes of the metadata.
    pub(super) fn stand_firm(&mut self) {
        let facts = Facts(&self.suite.model);
        if let Some(brokers) = &mut self.brokers {
            brokers.ledger.stand_firm(&facts);
        }
    }

    /// What the ledger says of the disk images of all nodes.
    ///
    /// # Errors
    /// A disk that cannot be read.
    pub fn lost_records(&self) -> Result<Vec<Lost>, Violation> {
        let Some(brokers) = &self.brokers else { return Ok(Vec::new()) };
        let images: Vec<_> = self.nodes.iter().map(|node| node.disk.clone()).collect();
        let facts = Facts(&self.suite.model);
        brokers
            .ledger
            .lost(&images, &facts)
            .map_err(|e| Violation::new(PROPERTY, format!("a disk image cannot be read: {e}")))
    }

    /// Records that the ledger holds.
    #[must_use]
    pub fn records_due(&self) -> usize {
        self.brokers.as_ref().map_or(0, |brokers| brokers.ledger.len())
    }
}

impl Script {
    /// From now on every process that starts runs a broker.
    pub fn add_brokers(&mut self, mode: Mode) {
        self.world.add_brokers(mode);
    }

    /// A producer hands a record to the broker of a node; the record's id if it was acknowledged.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn produce_through(
        &mut self,
        node: usize,
        topic: &str,
        partition: u32,
    ) -> Result<Option<u64>, Violation> {
        self.world.produce_through(node, topic, partition)
    }

    /// A line of the story.
    pub fn tell(&mut self, node: Option<usize>, text: &str) {
        self.world.tell(node, text.to_owned().into());
    }

    /// The story so far.
    pub fn take_story(&mut self) -> Vec<String> {
        self.world.take_story()
    }

    /// Processes that start from now on make a checkpoint of their store at this weight of applied
    /// entries, in bytes, and after this time.
    pub fn set_checkpoints(&mut self, bytes: u64, after: Micros) {
        if !self.acts(Actor::World, "checkpoints") {
            return;
        }
        self.world.setup.checkpoint_bytes = bytes;
        self.world.setup.checkpoint_after = after;
    }

    /// Copies the records of a partition from one node to another, as a move does before ownership
    /// flips; how many there are. The receiver's directory is its own.
    ///
    /// # Errors
    /// A disk that cannot be read or written.
    pub fn copy_partition(
        &mut self,
        place: &Place,
        from: usize,
        to: usize,
    ) -> Result<u64, Violation> {
        let logs = layout::partition_logs(&self.world.nodes[from].disk);
        let logs = logs.map_err(|e| Violation::new("plot", format!("the copy failed: {e}")))?;
        let log: Vec<Record> =
            logs.into_iter().filter(|(of, _)| of == place).flat_map(|(_, log)| log).collect();
        self.world.with_broker(to, |broker, sight| broker.receive(place, &log, sight))?;
        Ok(log.len() as u64)
    }

    /// Processes that start from now on take a snapshot every so many entries, and keep so many
    /// entries behind it.
    pub fn set_snapshots(&mut self, every: u64, kept: u64) {
        if !self.acts(Actor::World, "snapshots") {
            return;
        }
        self.world.setup.snapshot_entries = every;
        self.world.setup.kept_entries = kept;
    }

    /// A node loses its power, and everything unsynced with it; it stays down until it is started.
    pub fn crash_losing_all(&mut self, node: usize) {
        if !self.acts(Actor::Node(node), "power-cut") {
            return;
        }
        self.keep_down(node);
        if self.world.nodes[node].is_running() {
            self.world.end_process(node, End::PowerLosingAll);
        }
    }

    /// Takes back every cut, stall and pause, and starts whoever is down.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn heal_everything(&mut self) -> Verdict {
        self.world.heal_links();
        for node in 0..self.world.nodes.len() {
            self.world.resume(node);
            for lane in std::mem::take(&mut self.world.nodes[node].stuck) {
                self.free_lane_anyway(node, lane);
            }
            if !self.world.is_running(node) {
                self.start_anyway(node)?;
            }
        }
        Ok(())
    }
}

//! Scripts: worlds that a program drives, for scenarios and directed tests.
//!
//! Everything of a campaign's world is real here too (core, driver, log, store, disks, checkers);
//! only who decides differs: no random clients, no nemesis, the program says what happens and
//! when. Latencies and delays are still drawn from the seed, and the chances of [`Setup`] (loss,
//! duplication) hold if the program sets them. Nothing of this is reachable from a campaign.
//!
//! Times are virtual microseconds; nodes are positions in the list of names. A violation of any
//! property ends the script as it ends a campaign.

use super::noting::relief;
use super::{Event, LOOK_EVERY, World};
use crate::check::ground::Ground;
use crate::check::promises::Promises;
use crate::check::results::Acked;
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Choices, Stream};
use crate::node::State;
use crate::profile::{Profile, Setup};
use crate::tape::Decision;
use crate::trace::{Recording, Trace, What};
use bytes::Bytes;
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::job::{Call, Lane, ReplicaInput};
use holdfast_consensus::message::Outcome;
use holdfast_consensus::replica::ReplicaStatus;
use holdfast_consensus::traits::{LogReader, LogStore};
use holdfast_consensus::{Entry, Index, LogId, MemberId, Micros, Ticket};
use holdfast_fsm::{Command, SessionRef, View, command};
use holdfast_log::MemDisk;
use std::collections::BTreeMap;
use std::ops::Deref;

/// Calls of a script, and what became of them.
#[derive(Default)]
pub(super) struct Calls {
    /// Session and sequence of the calls that wait.
    open: BTreeMap<Ticket, Option<SessionRef>>,
    outcomes: BTreeMap<Ticket, Outcome>,
}

/// Which files of a disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything.
    Whole,
    /// The log with its identity file and the snapshots.
    Raft,
    /// The store.
    Store,
}

impl Part {
    fn holds(self, path: &str) -> bool {
        let raft = ["log/", "snap/"].iter().any(|dir| path.starts_with(dir)) || !path.contains('/');
        match self {
            Self::Whole => true,
            Self::Raft => raft,
            Self::Store => path.starts_with("store/"),
        }
    }
}

/// The content of a disk at one moment, as a backup holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskImage(BTreeMap<String, Vec<u8>>);

/// A world that a program drives. Reads go through [`World`].
pub struct Script {
    pub(super) world: World,
}

impl Deref for Script {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Setup {
    /// Settings for a script: a small healthy cluster, no chance of any fault, a local network,
    /// frequent checkpoints and no snapshots but those that are asked for.
    #[must_use]
    pub fn quiet(nodes: usize) -> Self {
        Self {
            nodes,
            clients: 0,
            quota: 0,
            active_min: 0,
            snapshot_entries: u64::MAX,
            kept_entries: 0,
            delay: 100,
            jitter: 200,
            ..Self::draw(Profile::Calm, &mut Choices::new(0))
        }
    }
}

impl World {
    /// A world for a program: nodes of these names, none started yet.
    #[must_use]
    pub fn scripted(seed: u64, names: &[&str], setup: Setup, trace: Trace) -> Script {
        Self::scripted_by(Choices::new(seed), names, setup, trace)
    }

    /// As [`World::scripted`], with these choices.
    #[must_use]
    pub fn scripted_by(choices: Choices, names: &[&str], setup: Setup, trace: Trace) -> Script {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let setup = Setup { nodes: names.len(), clients: 0, ..setup };
        let mut world = Self::build(choices, names, setup, trace);
        for node in &mut world.nodes {
            node.kept_down = true;
        }
        Script { world }
    }

    /// Virtual time.
    #[must_use]
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// The names of the nodes.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// True while a process runs on the node.
    #[must_use]
    pub fn is_running(&self, node: usize) -> bool {
        self.nodes[node].is_running()
    }

    /// True while the process of the node stands still.
    #[must_use]
    pub fn is_paused(&self, node: usize) -> bool {
        self.nodes[node].paused
    }

    /// What the replica of a node says of itself; `None` if none runs.
    #[must_use]
    pub fn status(&self, node: usize) -> Option<ReplicaStatus> {
        let n = &self.nodes[node];
        n.process().map(|process| process.replica.status(n.clock.show(self.now)))
    }

    /// Local reads of a node; `None` if no replica runs. A view outlives its process, as one does
    /// that a paused thread holds: its store is closed then, and it says so.
    #[must_use]
    pub fn view(&self, node: usize) -> Option<View> {
        self.nodes[node].process().map(|process| process.view.clone())
    }

    /// The member id of a node; zero before its first start.
    #[must_use]
    pub fn member(&self, node: usize) -> MemberId {
        self.nodes[node].member
    }

    /// A handle to the disk of a node. It is dead after the node's next crash: take it again.
    #[must_use]
    pub fn disk(&self, node: usize) -> MemDisk {
        self.nodes[node].disk.clone()
    }

    /// What the clock of a node shows.
    #[must_use]
    pub fn clock(&self, node: usize) -> Micros {
        self.nodes[node].clock.show(self.now)
    }

    /// Number of the process of a node: it rises with every crash.
    #[must_use]
    pub fn life(&self, node: usize) -> u64 {
        self.nodes[node].life
    }

    /// The node that leads in the highest term, by its own words.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let leads = |node: &usize| {
            let core = self.nodes[*node].process()?.replica.core();
            (core.role() == RoleKind::Leader).then(|| core.hard().term)
        };
        let leaders = (0..self.nodes.len()).filter_map(|node| Some((leads(&node)?, node)));
        leaders.max().map(|(_, node)| node)
    }

    /// True if every replica that runs is ready or held, one of them leads, and no paused node does.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        let serves = |s: ReplicaStatus| s.not_ready.is_none() || s.held.is_some();
        let ready = |node| self.status(node).is_none_or(serves);
        self.leader().is_some_and(|leader| !self.nodes[leader].paused)
            && (0..self.nodes.len()).all(ready)
    }

    /// What became of a call of the script; `None` while it waits (or died with its process).
    #[must_use]
    pub fn outcome(&self, ticket: Ticket) -> Option<&Outcome> {
        self.scripted.outcomes.get(&ticket)
    }

    /// Why the node refused to start over damage, if it did.
    #[must_use]
    pub fn refused(&self, node: usize) -> Option<&str> {
        self.nodes[node].refused.as_deref()
    }

    /// An answer to nobody in the crowd: to the script, or to somebody who gave up.
    pub(super) fn script_answered(
        &mut self,
        node: usize,
        ticket: Ticket,
        outcome: Outcome,
    ) -> Verdict {
        let Some(by) = self.scripted.open.remove(&ticket) else { return Ok(()) };
        if let Outcome::Committed { at, result } = &outcome {
            let who = self.nodes[node].name.clone();
            self.suite.on_acked(Acked { who, at: *at, result: result.clone(), by })?;
        }
        self.scripted.outcomes.insert(ticket, outcome);
        Ok(())
    }
}

impl Script {
    /// Whether a move of the program is made: always in a run from a seed, and in one from a tape
    /// if the tape holds it. That is how a scenario is shrunk.
    pub fn acts(&mut self, actor: Actor, kind: &'static str) -> bool {
        self.amount(actor, kind, "do", 1) > 0
    }

    /// How much of a move of the program is made: all of it in a run from a seed, what the tape
    /// says in one from a tape.
    pub fn amount(&mut self, who: Actor, kind: &'static str, name: &'static str, all: u64) -> u64 {
        let choices = &mut self.world.choices;
        choices.enter(Stream::Act, who, kind);
        let amount = choices.asked(name, all);
        choices.leave();
        amount
    }

    /// The decisions of the run so far, once, if they were kept.
    pub fn take_tape(&mut self) -> Vec<Decision> {
        self.world.choices.take_tape()
    }

    /// Runs until this time.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn run_until(&mut self, time: Micros) -> Verdict {
        self.run_until_true(|_| false, time).map(|_| ())
    }

    /// Runs for this long.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn run_for(&mut self, span: Micros) -> Verdict {
        let span = self.amount(Actor::World, "wait", "for", span);
        self.run_until(self.world.now.saturating_add(span))
    }

    /// Runs until it is true, looked at after each event, or until this time; which of the two.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn run_until_true(
        &mut self,
        mut done: impl FnMut(&World) -> bool,
        limit: Micros,
    ) -> Result<bool, Violation> {
        loop {
            if done(&self.world) {
                return Ok(true);
            }
            match self.world.queue.next_at() {
                Some(at) if at <= limit => self.world.advance()?,
                _ => {
                    self.world.now = self.world.now.max(limit);
                    return Ok(done(&self.world));
                }
            };
        }
    }

    /// Runs until every node that runs serves (see [`World::is_serving`]).
    ///
    /// # Errors
    /// The property that did not hold, or that they do not within 30 s.
    pub fn run_until_serving(&mut self) -> Verdict {
        let limit = self.world.now + 30_000_000;
        if self.run_until_true(World::is_serving, limit)? {
            return Ok(());
        }
        Err(Violation::new("progress", format!("nobody serves: {}", self.world.who_waits())))
    }

    /// Draws from the stream of the workload.
    pub fn draw(&mut self, low: u64, high: u64) -> u64 {
        self.world.choices.between(Stream::Workload, low, high)
    }

    /// Adds a transition to the trace, if it is kept. A string is a sentence of the story; see
    /// [`What::Guard`] for what the guard decides.
    pub fn note<W: Into<What>>(&mut self, node: Option<usize>, what: impl FnOnce() -> W) {
        self.world.note(node, what);
    }

    /// What was recorded, once; empty if the trace is off.
    pub fn take_trace(&mut self) -> Recording {
        self.world.take_trace()
    }

    /// Starts a node now.
    ///
    /// # Errors
    /// The property that did not hold; `restart` if the node refuses to start.
    pub fn start(&mut self, node: usize) -> Verdict {
        if self.acts(Actor::Node(node), "start") { self.start_anyway(node) } else { Ok(()) }
    }

    /// As [`Script::start`], and not a move of the program.
    pub(super) fn start_anyway(&mut self, node: usize) -> Verdict {
        self.world.nodes[node].kept_down = false;
        let life = self.world.nodes[node].life;
        self.world.start(node, life)
    }

    /// Starts every node, each within 20 ms.
    pub fn start_all(&mut self) {
        for node in 0..self.world.nodes.len() {
            self.world.nodes[node].kept_down = false;
            let at = self.world.now + self.world.choices.between(Stream::Process, 0, 20_000);
            let life = self.world.nodes[node].life;
            self.world.queue.push(at, Event::Start { node, life });
        }
    }

    /// Ends the process of a node, by power loss or by kill -9; it stays down until
    /// [`Script::start`]. Nothing happens to one that is down.
    pub fn crash(&mut self, node: usize, power: bool) {
        if !self.acts(Actor::Node(node), if power { "power-loss" } else { "kill" }) {
            return;
        }
        self.keep_down(node);
        if self.world.nodes[node].is_running() {
            self.world.crash(node, power);
        }
    }

    /// From now on nothing restarts the node after a crash but [`Script::start`].
    pub fn keep_down(&mut self, node: usize) {
        self.world.nodes[node].kept_down = true;
    }

    /// The process of a node stands still until [`Script::resume`]; its clock goes on.
    pub fn pause(&mut self, node: usize) {
        if self.acts(Actor::Node(node), "pause") {
            self.world.pause(node);
        }
    }

    /// The process of a node goes on.
    pub fn resume(&mut self, node: usize) {
        if self.acts(Actor::Node(node), "resume") {
            self.world.resume(node);
        }
    }

    /// No job of this lane ends until [`Script::free_lane`] or the end of the process.
    pub fn stall_lane(&mut self, node: usize, lane: Lane) {
        if !self.acts(Actor::Node(node), "stall") {
            return;
        }
        self.world.nodes[node].stuck.insert(lane);
        self.world
            .note(Some(node), || What::fault("stuck", format!("no job ends on lane {lane:?}")));
    }

    /// Jobs of this lane end again.
    pub fn free_lane(&mut self, node: usize, lane: Lane) {
        if self.acts(Actor::Node(node), "free") {
            self.free_lane_anyway(node, lane);
        }
    }

    /// As [`Script::free_lane`], and not a move of the program.
    pub(super) fn free_lane_anyway(&mut self, node: usize, lane: Lane) {
        self.world.nodes[node].stuck.remove(&lane);
        self.world
            .note(Some(node), || relief("stuck", &format!("jobs end again on lane {lane:?}")));
        self.world.release(node);
    }

    /// Nothing gets from one node to another any more, in this direction. Cuts add up.
    pub fn cut(&mut self, from: usize, to: usize) {
        if !self.acts(Actor::Link(from, to), "cut") {
            return;
        }
        self.world.network.cut(from, to);
        self.world.note(None, || What::Cut { links: vec![(from, to)] });
    }

    /// Takes back one [`Script::cut`].
    pub fn mend(&mut self, from: usize, to: usize) {
        if !self.acts(Actor::Link(from, to), "mend") {
            return;
        }
        self.world.network.uncut(from, to);
        self.world.note(None, || What::Uncut { links: vec![(from, to)] });
    }

    /// Cuts a node off from all others, in both directions.
    pub fn isolate(&mut self, node: usize) {
        for other in (0..self.world.nodes.len()).filter(|other| *other != node) {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Takes back one [`Script::isolate`].
    pub fn rejoin(&mut self, node: usize) {
        for other in (0..self.world.nodes.len()).filter(|other| *other != node) {
            self.mend(node, other);
            self.mend(other, node);
        }
    }

    /// Flips one bit (0 to 7) of one byte of a file of this node, as rot does: durably, whatever
    /// was synced.
    ///
    /// # Errors
    /// If the file has no such byte.
    pub fn flip(&mut self, node: usize, path: &str, offset: u64, bit: u8) -> Verdict {
        self.world.flip(node, path, offset, bit)
    }

    /// From now on every running node verifies its log in the background, a step each time; those
    /// that start later do as well.
    pub fn scrub_every(&mut self, time: Micros) {
        self.world.setup.scrub = time;
        for node in 0..self.world.nodes.len() {
            self.world.plan_scrub(node);
        }
    }

    /// Every entry that the log of a running node gives to read, from its first on.
    ///
    /// # Errors
    /// If the node is down, or an entry cannot be read.
    pub fn entries(&self, node: usize) -> Result<Vec<Entry>, Violation> {
        let n = &self.world.nodes[node];
        let process = n.process();
        let process =
            process.ok_or_else(|| Violation::new("plot", format!("{} is down", n.name)))?;
        let found = process.log.recovered();
        let (mut next, mut entries) = (found.first, Vec::new());
        while next <= found.last.index {
            let read = process.log.reader().read(next, found.last.index, 1 << 20);
            let read = read.map_err(|e| Violation::new("reads", format!("{}: {e}", n.name)))?;
            next = Index(next.0 + read.as_slice().len() as u64);
            entries.extend(read.as_slice().iter().cloned());
        }
        Ok(entries)
    }

    /// One line about every node, for a report that nothing moves.
    #[must_use]
    pub fn who_stands(&self) -> String {
        self.world.who_waits()
    }

    /// The files of a disk as a backup taken now holds them: all written bytes, synced or not.
    #[must_use]
    pub fn image(&self, node: usize) -> DiskImage {
        DiskImage(self.world.nodes[node].disk.files())
    }

    /// Puts files of a backup in the place of those of a node that is down; what the backup does
    /// not hold of this part is gone. An empty image wipes it. From now on nobody holds the node
    /// to what it promised before, unless its log stays: forgetting is what the operator did.
    ///
    /// # Panics
    /// If the node runs.
    pub fn restore(&mut self, node: usize, image: &DiskImage, part: Part) {
        assert!(!self.world.nodes[node].is_running(), "a running node cannot be restored");
        let n = &mut self.world.nodes[node];
        let mut files = n.disk.files();
        files.retain(|path, _| !part.holds(path));
        let back = image.0.iter().filter(|(path, _)| part.holds(path));
        files.extend(back.map(|(path, bytes)| (path.clone(), bytes.clone())));
        n.disk = n.disk.with_files(files);
        // What it promised, it promised by its log.
        if part != Part::Store {
            n.promises = Promises::default();
            n.ground = Ground::default();
        }
        self.world.note(Some(node), || {
            let what = if image.0.is_empty() { "is wiped" } else { "is replaced from a backup" };
            What::fault("restored", format!("{part:?} {what}").to_lowercase())
        });
    }

    /// What happened before this world began, on disks that were then restored: who the nodes are,
    /// and what was committed. From now on the checkers hold everybody to it.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn remember(&mut self, members: &[MemberId], committed: &[Entry]) -> Verdict {
        for (node, member) in members.iter().enumerate() {
            self.world.nodes[node].member = *member;
            self.world.members.insert(*member, node);
        }
        let mut last = LogId::default();
        for entry in committed {
            self.world.suite.history.on_entry("the past", last, entry)?;
            last = entry.id;
        }
        self.world.suite.on_commit("the past", last)
    }

    /// Calls a replica; `None` if none runs or its process stands still. It waits for as long as
    /// `patience` on the clock of the node.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn call(
        &mut self,
        node: usize,
        call: Call,
        patience: Micros,
    ) -> Result<Option<Ticket>, Violation> {
        let world = &mut self.world;
        if world.nodes[node].paused || !matches!(world.nodes[node].state, State::Up(_)) {
            return Ok(None);
        }
        world.next_ticket += 1;
        let ticket = Ticket(world.next_ticket);
        let by = match &call {
            Call::Propose { command } | Call::ProposeUnique { command } => {
                command::decode(command).ok().and_then(|(by, _)| by)
            }
            _ => None,
        };
        world.scripted.open.insert(ticket, by);
        let deadline = world.clock(node) + patience;
        world.note_call(node, None, ticket, &call);
        world.step(node, ReplicaInput::Call { ticket, call, deadline })?;
        Ok(Some(ticket))
    }

    /// As [`Script::call`], and runs until the answer is there, but no longer than `patience` and
    /// a second.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn ask(
        &mut self,
        node: usize,
        call: Call,
        patience: Micros,
    ) -> Result<Option<Outcome>, Violation> {
        let Some(ticket) = self.call(node, call, patience)? else { return Ok(None) };
        let limit = self.world.now + patience + 1_000_000;
        self.run_until_true(|world| world.outcome(ticket).is_some(), limit)?;
        Ok(self.world.outcome(ticket).cloned())
    }

    /// Proposes a command through a node and waits for its answer, up to 5 s.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn propose(
        &mut self,
        node: usize,
        command: &Command,
    ) -> Result<Option<Outcome>, Violation> {
        let encoded: Bytes = command
            .encode(None)
            .map_err(|e| Violation::new("codec", format!("{command:?}: {e}")))?;
        self.ask(node, Call::Propose { command: encoded }, 5_000_000)
    }

    /// The end of a campaign's run: everything heals, replicas converge, all lose their power and
    /// start from their disks alone, converge again, and hold every acknowledged write. Ends the
    /// script.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn settle(&mut self) -> Verdict {
        for node in &mut self.world.nodes {
            node.kept_down = false;
        }
        self.world.heal_links();
        self.world.heal();
        self.world.queue.push(self.world.now + LOOK_EVERY, Event::Look);
        self.world.run_to_end(Micros::MAX)
    }
}

//! A state machine of your own: one number that can be added to and taken from, replicated by the
//! same driver that the real node and the simulator run. This file is a chapter of the book, an
//! example (`cargo run -p holdfast-consensus --example tally`) and a test.
#![forbid(unsafe_code)]

use bytes::Bytes;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::job::{Call, Done, Job, ReplicaEffect, ReplicaInput};
use holdfast_consensus::memory::MemoryLog;
use holdfast_consensus::message::Outcome;
use holdfast_consensus::replica::{Replica, ReplicaConfig};
use holdfast_consensus::traits::{Applied, LogStore, SnapshotSink, SnapshotSource, StateMachine};
use holdfast_consensus::types::{
    Body, Entry, HardState, Index, LogId, MemberId, Membership, Micros, Seq, SnapshotMeta, Term,
    Ticket,
};
use holdfast_consensus::{Entries, codec};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

// ANCHOR: state
/// All there is to know. `applied` moves with the total, never apart from it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    applied: LogId,
    time: Micros,
    total: u64,
    membership: Membership,
    membership_index: Index,
    newest_type: u16,
}

/// Entry types. They are frozen once they are in a log.
const ADD: u16 = 1;
const TAKE: u16 = 2;

/// The bytes of a command: entry type and amount.
pub(crate) fn command(kind: u16, amount: u64) -> Bytes {
    [&kind.to_le_bytes()[..], &amount.to_le_bytes()].concat().into()
}

impl State {
    /// Carries out one command. A refusal is an answer like any other: every replica gives it.
    fn run(&mut self, command: &[u8]) -> Bytes {
        let Some((kind, Ok(amount))) = command
            .split_first_chunk()
            .map(|(kind, rest)| (u16::from_le_bytes(*kind), rest.try_into()))
        else {
            return Bytes::from_static(b"undecodable");
        };
        self.newest_type = self.newest_type.max(kind);
        let amount = u64::from_le_bytes(amount);
        let next = if kind == ADD {
            self.total.checked_add(amount)
        } else {
            self.total.checked_sub(amount)
        };
        let Some(next) = next else { return Bytes::from_static(b"refused") };
        self.total = next;
        Bytes::from(next.to_string())
    }

    fn apply(&mut self, entry: &Entry, replies: &mut Vec<(Index, Bytes)>) {
        match &entry.body {
            Body::Blank => {}
            Body::Membership(membership) => {
                self.membership = membership.as_ref().clone();
                self.membership_index = entry.id.index;
            }
            Body::Command(command) => replies.push((entry.id.index, self.run(command))),
        }
        self.applied = entry.id;
        self.time = entry.time;
    }
}
// ANCHOR_END: state

// ANCHOR: machine
/// What outlives the process: the state of the last checkpoint. A real machine has a file here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf(Arc<Mutex<State>>);

impl Shelf {
    /// Opens the machine on what the last checkpoint left; the log feeds it the rest again.
    pub(crate) fn open(&self) -> Tally {
        let live = self.lock().clone();
        Tally { live: Arc::new(Mutex::new(live)), shelf: self.clone(), skipped: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state machine. Its view shares the live state.
#[derive(Debug)]
pub(crate) struct Tally {
    live: Arc<Mutex<State>>,
    shelf: Shelf,
    skipped: u64,
}

impl Tally {
    fn live(&self) -> MutexGuard<'_, State> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is stored on.
    pub(crate) fn shelf(&self) -> Shelf {
        self.shelf.clone()
    }
}

impl StateMachine for Tally {
    type View = Arc<Mutex<State>>;
    type Image = Image;
    type Restore = Restore;

    fn applied(&self) -> Applied {
        let live = self.live();
        Applied {
            last: live.applied,
            durable: self.shelf.lock().applied,
            // Equal state must mean equal digest, and here the state is its own best digest.
            digest: u128::from(live.total),
            skipped: self.skipped,
        }
    }

    fn view(&self) -> Self::View {
        Arc::clone(&self.live)
    }

    fn apply(
        &mut self,
        entries: &Entries,
        replies: &mut Vec<(Index, Bytes)>,
    ) -> Result<Applied, StoreFault> {
        let held = self.live().applied;
        // After a restart entries come again: what is held is skipped and counted.
        let fresh = entries.starting_at(held.index.next());
        self.skipped += (entries.len() - fresh.len()) as u64;
        if fresh.first().is_some_and(|first| first.index != held.index.next()) {
            return Err(StoreFault::Untrusted(format!("entries leave a gap behind {held}")));
        }
        // A type from the future stops the replica before anything of the batch is applied.
        for entry in &fresh {
            if let Body::Command(command) = &entry.body
                && let Some(kind) = command.first_chunk().map(|k| u16::from_le_bytes(*k))
                && ![ADD, TAKE].contains(&kind)
            {
                return Err(StoreFault::UnknownType { at: entry.id.index, kind });
            }
        }
        let mut live = self.live();
        for entry in &fresh {
            live.apply(entry, replies);
        }
        drop(live);
        Ok(self.applied())
    }

    fn checkpoint(&mut self) -> Result<Applied, StoreFault> {
        let live = self.live().clone();
        *self.shelf.lock() = live;
        Ok(self.applied())
    }

    fn pin(&mut self) -> Result<(SnapshotMeta, Image), StoreFault> {
        let state = self.live().clone();
        let content = codec::encode("tally", &state)
            .map_err(|fault| StoreFault::Snapshot(fault.to_string()))?;
        let meta = SnapshotMeta {
            last: state.applied,
            time: state.time,
            membership: state.membership,
            membership_index: state.membership_index,
            digest: u128::from(state.total),
            newest_type: state.newest_type,
            ..SnapshotMeta::default()
        };
        Ok((meta, Image(Some(content.into()))))
    }

    fn restore(&mut self, meta: &SnapshotMeta) -> Result<Restore, StoreFault> {
        Ok(Restore { meta: meta.clone(), content: Vec::new() })
    }

    fn adopt(&mut self, restored: Restore) -> Result<Applied, StoreFault> {
        let state: State = codec::decode("tally", &restored.content)
            .map_err(|fault| StoreFault::Snapshot(fault.to_string()))?;
        let label = &restored.meta;
        if state.applied != label.last || u128::from(state.total) != label.digest {
            return Err(StoreFault::Snapshot(format!("the content is not {}", label.last)));
        }
        if state.applied.index > self.live().applied.index {
            *self.shelf.lock() = state.clone();
            *self.live() = state;
        }
        Ok(self.applied())
    }

    fn reopen(&mut self) -> Result<Applied, StoreFault> {
        let durable = self.shelf.lock().clone();
        *self.live() = durable;
        Ok(self.applied())
    }
}

/// A pinned state: one chunk.
pub(crate) struct Image(Option<Bytes>);

impl SnapshotSource for Image {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, StoreFault> {
        Ok(self.0.take())
    }
}

/// A state under construction.
pub(crate) struct Restore {
    meta: SnapshotMeta,
    content: Vec<u8>,
}

impl SnapshotSink for Restore {
    fn offset(&self) -> u64 {
        self.content.len() as u64
    }

    fn put_chunk(&mut self, offset: u64, chunk: &[u8]) -> Result<(), StoreFault> {
        if offset != self.offset() {
            return Err(StoreFault::Snapshot(format!("{offset} is not {}", self.offset())));
        }
        self.content.extend_from_slice(chunk);
        Ok(())
    }
}
// ANCHOR_END: machine

// ANCHOR: world
/// The smallest world: one member, a log in memory, and time that jumps to the next deadline.
struct World {
    replica: Replica<MemoryLog, Tally>,
    log: MemoryLog,
    tally: Tally,
    now: Micros,
    answers: Vec<(Ticket, Outcome)>,
}

impl World {
    fn found(shelf: &Shelf) -> Result<Self, Box<dyn std::error::Error>> {
        let member = MemberId(1);
        let membership = Membership::of_voters([(member, "n1".to_owned())]);
        let first =
            Entry { id: LogId::new(1, 1), time: 0, body: Body::Membership(membership.into()) };
        let mut log = MemoryLog::new();
        log.persist(&[Persist {
            seq: Seq(1),
            truncate_from: None,
            append: Entries::new(vec![first]).ok_or("one entry is always in order")?,
            hard: Some(HardState { term: Term(1), voted_for: None }),
        }])?;
        let mut tally = shelf.open();
        let replica = Replica::open(ReplicaConfig::new(member), 7, &mut log, &mut tally, 0)?;
        Ok(Self { replica, log, tally, now: 0, answers: Vec::new() })
    }

    /// Gives the replica one input and carries out everything that follows from it.
    fn step(&mut self, input: ReplicaInput<MemoryLog, Tally>) -> Result<(), String> {
        let mut inputs = VecDeque::from([input]);
        let mut effects = Vec::new();
        while let Some(input) = inputs.pop_front() {
            self.replica.step(self.now, input, &mut effects);
            for effect in effects.drain(..) {
                let done = match effect {
                    ReplicaEffect::Run(Job::Log(job)) => Done::Log(job.run(&mut self.log)),
                    ReplicaEffect::Run(Job::Apply(job)) => Done::Apply(job.run(&mut self.tally)),
                    ReplicaEffect::Run(Job::Side(lane, job)) => Done::Side(lane, job.run()),
                    ReplicaEffect::Answer { ticket, outcome } => {
                        self.answers.push((ticket, outcome));
                        continue;
                    }
                    ReplicaEffect::Stop(reason) => return Err(reason.to_string()),
                    // There is nobody to send to, and nobody looks.
                    ReplicaEffect::Send { .. } | ReplicaEffect::Observe(_) => continue,
                };
                inputs.push_back(ReplicaInput::Done(done));
            }
        }
        Ok(())
    }

    fn propose(&mut self, ticket: u64, command: Bytes) -> Result<(), String> {
        let call = Call::Propose { command };
        let deadline = self.now + 5_000_000;
        self.step(ReplicaInput::Call { ticket: Ticket(ticket), call, deadline })
    }

    /// Lets time pass, from deadline to deadline.
    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !done(self) {
            self.now = self.replica.next_deadline().ok_or("the replica waits for nothing")?;
            self.step(ReplicaInput::Wake)?;
        }
        Ok(())
    }
}

/// Proposes three commands; returns their answers, and the total as the next start finds it.
pub(crate) fn run() -> Result<(Vec<String>, u64), Box<dyn std::error::Error>> {
    let mut world = World::found(&Shelf::default())?;
    world.run_until(|w| w.replica.status(w.now).not_ready.is_none())?;
    for (ticket, command) in
        [command(ADD, 40), command(TAKE, 100), command(ADD, 2)].into_iter().enumerate()
    {
        world.propose(ticket as u64, command)?;
    }
    world.run_until(|w| w.answers.len() == 3)?;
    let answers = world.answers.iter().map(|(_, outcome)| match outcome {
        Outcome::Committed { at, result } => format!("{at}: {}", String::from_utf8_lossy(result)),
        other => format!("{other:?}"),
    });
    // The process ends: what the last checkpoint left is what the next one opens.
    world.tally.checkpoint()?;
    let total = world.tally.shelf().open().live().total;
    Ok((answers.collect(), total))
}
// ANCHOR_END: world

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (answers, total) = run()?;
    println!("{}\ntotal: {total}", answers.join("\n"));
    Ok(())
}

//! Clients: sessions, writes with unique values, retries under the same session and sequence,
//! barriers, local reads.

use super::record::process_of;
use super::{Event, World};
use crate::check::reads;
use crate::check::results::Acked;
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Stream};
use crate::profile::{OPERATIONS, Setup};
use crate::trace::{self, What};
use bytes::Bytes;
use holdfast_consensus::job::{Call, ReplicaInput};
use holdfast_consensus::message::Outcome;
use holdfast_consensus::{Index, Micros, Ticket};
use holdfast_fsm::{Answer, Command, CreateTopic, DeleteTopic, SessionRef};

/// What a client is at.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// The write; a barrier if there is none.
    pub(super) write: Option<Command>,
    by: Option<SessionRef>,
    pub(super) key: Option<Bytes>,
    /// When the replica must have answered, on its own clock.
    deadline: Micros,
    /// True while every attempt was refused for sure.
    refused: bool,
    /// What a barrier must cover.
    floor: Index,
    /// It is in the history.
    pub(super) recorded: bool,
}

#[derive(Clone, Debug, Default)]
struct Client {
    session: Option<u64>,
    sequence: u64,
    work: Option<Work>,
    ticket: Option<(Ticket, usize)>,
    turn: u64,
    acked: u64,
    /// Operations that came to their end, those that were given up among them.
    ended: u64,
    unique: u64,
    /// Number of the operation it is at, or begins next; [`NO_MORE`] if a tape has no further one.
    operation: u64,
}

/// A client whose tape has come to its end.
const NO_MORE: u64 = u64::MAX;

impl Client {
    const fn is_done(&self, quota: u64) -> bool {
        self.work.is_none() && (self.ended >= quota || self.operation == NO_MORE)
    }
}

/// What a read returned.
pub(super) enum Seen {
    /// The store is closed or catching up.
    Refused,
    /// The value, if there is one.
    Value(Option<Bytes>),
}

/// All of them.
pub(super) struct Clients {
    all: Vec<Client>,
    quota: u64,
    /// Highest index acknowledged to anybody.
    floor: Index,
}

impl Clients {
    pub(super) fn new(setup: &Setup) -> Self {
        let all = vec![Client::default(); setup.clients];
        Self { all, quota: setup.quota, floor: Index(0) }
    }

    pub(super) fn work_mut(&mut self, client: usize) -> Option<&mut Work> {
        self.all[client].work.as_mut()
    }

    pub(super) fn acked(&self) -> u64 {
        self.all.iter().map(|c| c.acked).sum()
    }

    pub(super) fn done(&self) -> bool {
        self.all.iter().all(|c| c.is_done(self.quota))
    }

    pub(super) fn nearly_done(&self) -> bool {
        self.finished() * 10 >= self.quota * self.all.len() as u64 * 8 || self.done()
    }

    /// Operations that were begun, registrations of sessions among them.
    pub(super) fn begun(&self) -> u64 {
        self.all.iter().map(|c| c.ended + u64::from(c.work.is_some())).sum()
    }

    /// Operations that came to their end.
    pub(super) fn finished(&self) -> u64 {
        self.all.iter().map(|c| c.ended).sum()
    }

    /// True if no operation is under way.
    pub(super) fn nobody_waits(&self) -> bool {
        self.all.iter().all(|c| c.work.is_none())
    }

    /// True if no client wants to begin another operation.
    pub(super) fn nobody_wants(&self) -> bool {
        self.all.iter().all(|c| c.ended >= self.quota || c.operation == NO_MORE)
    }

    pub(super) fn who_waits(&self) -> String {
        let waiting = self.all.iter().enumerate().filter(|(_, c)| c.work.is_some());
        let text: Vec<String> =
            waiting.map(|(n, c)| format!("client {n} at {:?}", c.work)).collect();
        text.join("; ")
    }
}

impl World {
    /// A client does something: begins an operation, or tries again.
    pub(super) fn act(&mut self, client: usize, turn: u64) -> Verdict {
        let c = &self.clients.all[client];
        if c.turn != turn || c.ticket.is_some() {
            return Ok(());
        }
        if c.work.is_some() {
            self.choices.enter(Stream::Try, Actor::Client(client), "");
        } else {
            if c.is_done(self.clients.quota) {
                return Ok(());
            }
            self.choices.enter_at(Stream::Op, Actor::Client(client), c.operation);
            self.clients.all[client].work = self.new_work(client);
        }
        let verdict = match self.clients.all[client].work {
            Some(_) => self.attempt(client),
            None => {
                self.clients.all[client].operation += 1;
                self.next_operation(client);
                Ok(())
            }
        };
        self.choices.leave();
        verdict
    }

    fn attempt(&mut self, client: usize) -> Verdict {
        let picked = self.choices.pick("at", self.nodes.len());
        let node = self.served_by(picked);
        if self.nodes[node].process().is_none() {
            self.later(client, 50_000);
            return Ok(());
        }
        let (_, locally) = self.setup.workload.reads();
        if self.choices.chance("reads-locally", locally) && !self.local_read(client, node)? {
            return Ok(());
        }
        self.call(client, node)
    }

    /// Plans the next operation of a client, after a pause. Its time is on the tape as a point in
    /// time, so that a tape may lose operations without moving those behind them.
    pub(super) fn next_operation(&mut self, client: usize) {
        let c = &mut self.clients.all[client];
        c.turn += 1;
        c.ticket = None;
        let actor = Actor::Client(client);
        let Some(next) = self.choices.next_number(Stream::Op, actor, c.operation) else {
            c.operation = NO_MORE;
            return;
        };
        c.operation = next;
        let turn = c.turn;
        if c.is_done(self.clients.quota) {
            return;
        }
        self.choices.enter_at(Stream::Op, actor, next);
        let at = self.choices.when("time", self.now, self.setup.pause_before(next));
        self.choices.leave();
        self.queue.push(at, Event::Act { client, turn });
    }

    /// An operation has come to its end.
    fn ended(&mut self, client: usize) {
        let c = &mut self.clients.all[client];
        c.ended += 1;
        c.operation = c.operation.saturating_add(1);
        self.next_operation(client);
    }

    fn call(&mut self, client: usize, node: usize) -> Verdict {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let patience = self.choices.between("patience", 300_000, 2_500_000);
        let call = self.new_call(client)?;
        self.record_attempt(client);
        self.clients.all[client].ticket = Some((ticket, node));
        let give_up = self.now + patience + 4_000_000;
        self.queue.push(give_up, Event::GiveUp { client, ticket });
        if self.nodes[node].paused {
            // The kernel accepts the connection; it is read once the process goes on.
            let life = self.nodes[node].life;
            self.held[node].push(Event::Call { node, life, ticket, call, patience });
            return Ok(());
        }
        let deadline = self.nodes[node].clock.show(self.now) + patience;
        if let Some(work) = &mut self.clients.all[client].work {
            work.deadline = deadline;
        }
        self.note_call(node, Some(client), ticket, &call);
        self.step(node, ReplicaInput::Call { ticket, call, deadline })
    }

    /// A process that stood still reads a call that was made to it meanwhile.
    pub(super) fn late_call(
        &mut self,
        node: usize,
        life: u64,
        ticket: Ticket,
        call: Call,
        patience: Micros,
    ) -> Verdict {
        if !self.lives(node, life) {
            return Ok(());
        }
        if self.nodes[node].paused {
            self.held[node].push(Event::Call { node, life, ticket, call, patience });
            return Ok(());
        }
        let deadline = self.nodes[node].clock.show(self.now) + patience;
        let caller = self.clients.all.iter().position(|c| c.ticket.is_some_and(|t| t.0 == ticket));
        if let Some(caller) = caller
            && let Some(work) = &mut self.clients.all[caller].work
        {
            work.deadline = deadline;
        }
        self.note_call(node, caller, ticket, &call);
        self.step(node, ReplicaInput::Call { ticket, call, deadline })
    }

    /// The call of one attempt. Half of the writes carry a request id of their own.
    fn new_call(&mut self, client: usize) -> Result<Call, Violation> {
        let unique = self.choices.chance("unique", 500);
        let request = u128::from(self.choices.bits("request")) << 64 | u128::from(self.next_ticket);
        let floor = self.clients.floor;
        let Some(work) = &mut self.clients.all[client].work else { return Ok(Call::Barrier) };
        let Some(command) = &work.write else {
            work.floor = floor;
            return Ok(Call::Barrier);
        };
        let encoded = match unique {
            true => command.encode_unique(work.by, request),
            false => command.encode(work.by),
        };
        let command = encoded.map_err(|e| Violation::new("codec", format!("{command:?}: {e}")))?;
        Ok(if unique { Call::ProposeUnique { command } } else { Call::Propose { command } })
    }

    fn later(&mut self, client: usize, mean: Micros) {
        let at = self.now + self.choices.wait("again-after", mean);
        let c = &mut self.clients.all[client];
        c.turn += 1;
        c.ticket = None;
        self.queue.push(at, Event::Act { client, turn: c.turn });
    }

    /// Draws an operation; `None` for one that a tape has taken out.
    fn new_work(&mut self, client: usize) -> Option<Work> {
        let work = |write, by, key| Work {
            write,
            by,
            key,
            deadline: 0,
            refused: true,
            floor: Index(0),
            recorded: false,
        };
        let Some(session) = self.clients.all[client].session else {
            return Some(work(Some(Command::RegisterSession), None, None));
        };
        let workload = self.setup.workload;
        let mut kinds: Vec<(&str, u64)> = OPERATIONS.into_iter().zip(workload.weights()).collect();
        let (barriers, _) = workload.reads();
        // So many thousandths of all are barriers, whatever the weights of the others add up to.
        kinds.iter_mut().for_each(|(_, weight)| *weight *= 1000 - barriers);
        kinds.push(("barrier", 100 * barriers));
        let kind = kinds[self.choices.among("kind", &kinds)].0;
        let key = Bytes::from(format!("k{}", self.choices.between("key", 0, self.setup.keys)));
        if kind == "barrier" {
            return Some(work(None, None, Some(key)));
        }
        let command = self.new_command(client, kind, &key)?;
        let c = &mut self.clients.all[client];
        c.sequence += 1;
        let by = Some(SessionRef { client: session, sequence: c.sequence });
        let kv = matches!(
            command,
            Command::KvPut { .. } | Command::KvCas { .. } | Command::KvDelete { .. }
        );
        Some(work(Some(command), by, kv.then_some(key)))
    }

    fn new_command(&mut self, client: usize, kind: &str, key: &Bytes) -> Option<Command> {
        let topic = format!("t{}", self.choices.between("topic", 0, self.setup.keys));
        let padding = self.choices.between("padding", 0, self.setup.value_bytes);
        let c = &mut self.clients.all[client];
        c.unique += 1;
        let mut value = format!("c{client}-{}-", c.unique).into_bytes();
        value.resize(value.len() + usize::try_from(padding).unwrap_or(0), b'.');
        let (key, value) = (key.clone(), Bytes::from(value));
        let command = match kind {
            "put" => Command::KvPut { key, value },
            "cas" => {
                let expected = self.suite.model.value_at(&key, self.suite.model.applied()).cloned();
                Command::KvCas { key, expected, value }
            }
            "delete" => Command::KvDelete { key },
            "create-topic" => Command::CreateTopic(CreateTopic {
                name: topic,
                partitions: 1,
                retention_ms: None,
                created_at_ms: self.now / 1000,
            }),
            "delete-topic" => {
                let incarnation = self.suite.model.topics().get(&topic).copied();
                Command::DeleteTopic(DeleteTopic { name: topic, incarnation })
            }
            _ => return None,
        };
        Some(command)
    }

    /// An answer of a replica.
    pub(super) fn answered(&mut self, node: usize, ticket: Ticket, outcome: Outcome) -> Verdict {
        self.hash.fold(ticket.0);
        self.note(Some(node), || {
            let (kind, text) = trace::outcome(&outcome);
            What::Answered { ticket: ticket.0, kind, text }
        });
        if self.broker_answered(ticket, &outcome)? {
            return Ok(());
        }
        let holder = self.clients.all.iter().position(|c| c.ticket.is_some_and(|t| t.0 == ticket));
        let Some(client) = holder else { return self.script_answered(node, ticket, outcome) };
        self.choices.enter(Stream::Reply, Actor::Client(client), "");
        let verdict = self.heard(client, node, outcome);
        self.choices.leave();
        verdict
    }

    /// A client hears the outcome of its call.
    fn heard(&mut self, client: usize, node: usize, outcome: Outcome) -> Verdict {
        match outcome {
            Outcome::Committed { at, result } => self.committed_answer(client, node, at, result),
            Outcome::Ready { applied, age } => {
                let Some(work) = self.clients.all[client].work.take() else { return Ok(()) };
                if age != 0 || applied < work.floor {
                    let name = &self.nodes[node].name;
                    let what = format!(
                        "{name} is ready at {applied} (age {age}), {} was acknowledged before",
                        work.floor
                    );
                    return Err(Violation::new(reads::PROPERTY, what));
                }
                if let Some(key) = work.key {
                    let seen = self.read(node, &key, work.floor)?;
                    self.record_read(client, seen);
                }
                self.progress_moved();
                self.ended(client);
                Ok(())
            }
            Outcome::NotCommitted(_) => {
                // Now and then the command is given up: then it must never take effect.
                let give_up = self.choices.chance("gives-up", 300);
                let name = self.nodes[node].name.clone();
                let c = &mut self.clients.all[client];
                if give_up
                    && let Some(work) = &c.work
                    && let (Some(by), true) = (work.by, work.refused)
                {
                    self.suite.on_refused(&name, by);
                    self.suite.recorder.fail(process_of(client));
                    c.work = None;
                    self.ended(client);
                    return Ok(());
                }
                self.later(client, 60_000);
                Ok(())
            }
            Outcome::Unknown(_) => {
                self.unknown(client);
                Ok(())
            }
            Outcome::Confirmed(_) => {
                let what = "a client got a confirmation and asked no question";
                Err(Violation::new(reads::PROPERTY, what))
            }
        }
    }

    fn committed_answer(
        &mut self,
        client: usize,
        node: usize,
        at: holdfast_consensus::LogId,
        result: Bytes,
    ) -> Verdict {
        self.hash.bytes(&result);
        let Some(work) = self.clients.all[client].work.take() else { return Ok(()) };
        let who = self.nodes[node].name.clone();
        self.suite.on_acked(Acked { who, at, result: result.clone(), by: work.by })?;
        let answer = Answer::decode(&result).ok();
        if let (Some(Answer::SessionRegistered { client: session }), None) = (&answer, work.by) {
            self.clients.all[client].session = Some(*session);
        }
        self.record_answer(client, &work, answer.as_ref());
        self.clients.all[client].acked += 1;
        self.clients.floor = self.clients.floor.max(at.index);
        self.progress_moved();
        // At its deadline a committed write is answered even if this replica has not applied it.
        let late = self.nodes[node].clock.show(self.now) >= work.deadline;
        if !late {
            self.nodes[node].answered.on_answer(at);
        }
        if let Some(key) = work.key {
            self.read(node, &key, if late { Index(0) } else { at.index })?;
        }
        self.ended(client);
        Ok(())
    }

    fn progress_moved(&mut self) {
        if self.phase != super::Phase::Active {
            self.progress.moved(self.now);
        }
    }

    fn unknown(&mut self, client: usize) {
        if let Some(work) = &mut self.clients.all[client].work {
            work.refused = false;
        }
        self.later(client, 60_000);
    }

    /// A client stops waiting: the outcome is unknown.
    pub(super) fn give_up(&mut self, client: usize, ticket: Ticket) {
        if self.clients.all[client].ticket.is_some_and(|t| t.0 == ticket) {
            self.note(None, || What::GaveUp { client, ticket: ticket.0 });
            self.unknown(client);
        }
    }

    /// Reads on a node; `false` if the client shall wait because the process is paused.
    fn local_read(&mut self, client: usize, node: usize) -> Result<bool, Violation> {
        if self.nodes[node].paused {
            self.later(client, 50_000);
            return Ok(false);
        }
        let key = format!("k{}", self.choices.between("read-key", 0, self.setup.keys));
        self.read(node, key.as_bytes(), Index(0))?;
        Ok(true)
    }

    /// Reads a key on a node and compares it with the committed log.
    fn read(&mut self, node: usize, key: &[u8], floor: Index) -> Result<Seen, Violation> {
        let n = &self.nodes[node];
        let Some(process) = n.process() else { return Ok(Seen::Refused) };
        // A store that is closed or catching up says so; that is an answer, not a lie.
        let Ok(at) = process.view.kv_get(key) else { return Ok(Seen::Refused) };
        self.summary.reads += 1;
        let value = at.value.map(|row| row.value);
        let applied = at.applied;
        self.note(Some(node), || trace::read(key, value.as_deref(), applied));
        let n = &self.nodes[node];
        n.answered.on_read(&n.name, applied)?;
        reads::check(&n.name, key, value.as_ref(), applied, floor, &self.suite.model)?;
        Ok(Seen::Value(value))
    }
}

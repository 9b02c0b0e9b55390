//! The stage of a scenario: a scripted world with brokers, the handful of moves that the programs
//! are made of, and the verdict.

use super::Report;
use crate::broker::ledger::{Lost, Place};
use crate::broker::{Mode, layout, meta, volume_of};
use crate::campaign;
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Choices};
use crate::profile::Setup;
use crate::trace::Trace;
use crate::world::World;
use crate::world::script::Script;
use holdfast_consensus::Micros;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::command::{
    AssignPartition, AttachChild, CompleteMove, DetachChild, PartitionRef, SetTarget,
};
use holdfast_fsm::records::Owner;
use holdfast_fsm::{Answer, Command, CreateTopic, DeleteTopic};

/// A second of virtual time.
pub const SECOND: Micros = 1_000_000;
/// A millisecond.
pub const MILLI: Micros = 1_000;

/// Name of the property that a scenario could be played at all.
const PLOT: &str = "plot";

fn reference(place: &Place) -> PartitionRef {
    let Place { topic, incarnation, partition } = place.clone();
    PartitionRef { topic, incarnation, partition }
}

/// The stage.
pub struct Stage {
    /// The world.
    pub world: Script,
    /// How the brokers make sure.
    pub mode: Mode,
    /// As they were before the first draw.
    choices: Choices,
    traced: bool,
    /// What was in no place when [`Stage::take_stock`] looked.
    missed: Vec<Lost>,
    lost: Option<Vec<Lost>>,
    stands_still: Option<String>,
}

/// The story went another way than the program meant: then its verdict says nothing.
#[must_use]
pub fn off_plot(why: impl Into<String>) -> Violation {
    Violation::new(PLOT, why)
}

impl Stage {
    /// Three nodes with brokers, not started yet.
    #[must_use]
    pub fn new(mode: Mode, choices: Choices, traced: bool) -> Self {
        Self::of(&["n1", "n2", "n3"], mode, choices, traced)
    }

    /// Nodes of these names.
    #[must_use]
    pub fn of(names: &[&str], mode: Mode, choices: Choices, traced: bool) -> Self {
        let trace = if traced { Trace::on() } else { Trace::default() };
        let setup = Setup {
            checkpoint_after: 100 * MILLI,
            segment_bytes: 64 << 10,
            ..Setup::quiet(names.len())
        };
        let mut world = World::scripted_by(choices.clone(), names, setup, trace);
        world.add_brokers(mode);
        let missed = Vec::new();
        Self { world, mode, choices, traced, missed, lost: None, stands_still: None }
    }

    /// Begins anew with nodes of these names.
    pub fn replace_nodes(&mut self, names: &[&str]) {
        *self = Self::of(names, self.mode, self.choices.clone(), self.traced);
    }

    /// A line of the story.
    pub fn tell(&mut self, text: impl AsRef<str>) {
        self.world.tell(None, text.as_ref());
    }

    /// As [`Stage::tell`], of a node.
    pub fn tell_of(&mut self, node: usize, text: impl AsRef<str>) {
        self.world.tell(Some(node), text.as_ref());
    }

    /// Starts everybody and waits until they serve.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn open(&mut self) -> Verdict {
        self.world.start_all();
        self.world.run_until_serving()?;
        self.world.run_for(300 * MILLI)
    }

    /// From now on processes that start make no checkpoint of their store: after a crash it is as
    /// old as their start.
    pub fn no_more_checkpoints(&mut self) {
        self.world.set_checkpoints(u64::MAX, u64::MAX / 4);
    }

    /// Proposes through a node and demands that it is committed.
    ///
    /// # Errors
    /// The property that did not hold, or that it was not committed.
    pub fn commit(&mut self, node: usize, command: &Command) -> Result<Answer, Violation> {
        match self.world.propose(node, command)? {
            Some(Outcome::Committed { result, .. }) => Answer::decode(&result)
                .map_err(|e| Violation::new("codec", format!("an answer does not decode: {e}"))),
            other => Err(off_plot(format!("{command:?} was not committed: {other:?}"))),
        }
    }

    /// Creates a topic whose partitions belong to these nodes; its incarnation.
    ///
    /// # Errors
    /// As [`Stage::commit`].
    pub fn create(
        &mut self,
        through: usize,
        name: &str,
        owners: &[usize],
    ) -> Result<u64, Violation> {
        if !self.world.acts(Actor::Node(through), "create") {
            return Ok(0);
        }
        let partitions = u32::try_from(owners.len()).unwrap_or(u32::MAX);
        let create = Command::CreateTopic(CreateTopic {
            name: name.to_owned(),
            partitions,
            retention_ms: None,
            created_at_ms: 0,
        });
        let Answer::TopicCreated { incarnation } = self.commit(through, &create)? else {
            return Err(off_plot(format!("{name} could not be created")));
        };
        for (partition, owner) in (0..).zip(owners) {
            self.assign(through, name, incarnation, partition, *owner)?;
        }
        Ok(incarnation)
    }

    fn assign(
        &mut self,
        through: usize,
        topic: &str,
        incarnation: u64,
        partition: u32,
        owner: usize,
    ) -> Verdict {
        let to = PartitionRef { topic: topic.to_owned(), incarnation, partition };
        let owner = self.owner(owner);
        let assign = Command::AssignPartition(AssignPartition { to, owner });
        match self.commit(through, &assign)? {
            Answer::PartitionAssigned { .. } => Ok(()),
            other => Err(off_plot(format!("{topic} could not be assigned: {other:?}"))),
        }
    }

    /// A node and its disk, as placements name them.
    #[must_use]
    pub fn owner(&self, node: usize) -> Owner {
        let node = self.world.names()[node].clone();
        Owner { volume: volume_of(&node), node }
    }

    /// The command that attaches a child, as a node sees both topics now; each tail as its owner
    /// reports it (R36). `None` if one of the topics is not there.
    #[must_use]
    pub fn attachment(
        &self,
        through: usize,
        child: &str,
        parent: &str,
        delay: Micros,
    ) -> Option<Command> {
        let view = self.world.view(through)?;
        let incarnation = |name: &str| meta::topic(&view, name).ok().flatten();
        let (child_incarnation, parent_incarnation) = (incarnation(child)?, incarnation(parent)?);
        let partitions = view.topic(parent).ok()?.value?.partitions;
        let tail = |partition: u32| {
            let place =
                Place { topic: parent.to_owned(), incarnation: parent_incarnation, partition };
            let owner = meta::owner(&view, &place).ok()??;
            let node = self.world.names().iter().position(|name| *name == owner)?;
            let logs = layout::partition_logs(&self.world.disk(node)).ok()?;
            logs.into_iter().find(|(of, _)| *of == place).map(|(_, log)| log.len() as u64)
        };
        Some(Command::AttachChild(AttachChild {
            child: child.to_owned(),
            child_incarnation,
            parent: parent.to_owned(),
            parent_incarnation,
            delay_ms: delay / MILLI,
            tails: (0..partitions).map(|p| tail(p).unwrap_or(0)).collect(),
        }))
    }

    /// Attaches a child; the attachment.
    ///
    /// # Errors
    /// As [`Stage::commit`].
    pub fn attach(
        &mut self,
        through: usize,
        child: &str,
        parent: &str,
        delay: Micros,
    ) -> Result<u64, Violation> {
        if !self.world.acts(Actor::Node(through), "attach") {
            return Ok(0);
        }
        let attach = self.attachment(through, child, parent, delay);
        let attach = attach.ok_or_else(|| off_plot("there is nothing to attach"))?;
        match self.commit(through, &attach)? {
            Answer::Attached { incarnation } => Ok(incarnation),
            other => Err(off_plot(format!("{child} could not be attached: {other:?}"))),
        }
    }

    /// Detaches a child.
    ///
    /// # Errors
    /// As [`Stage::commit`].
    pub fn detach(&mut self, through: usize, child: &str) -> Verdict {
        if !self.world.acts(Actor::Node(through), "detach") {
            return Ok(());
        }
        let detach =
            Command::DetachChild(DetachChild { child: child.to_owned(), incarnation: None });
        match self.commit(through, &detach)? {
            Answer::Detached { .. } => Ok(()),
            other => Err(off_plot(format!("{child} could not be detached: {other:?}"))),
        }
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// As [`Stage::commit`].
    pub fn delete(&mut self, through: usize, name: &str) -> Verdict {
        if !self.world.acts(Actor::Node(through), "delete") {
            return Ok(());
        }
        let delete = Command::DeleteTopic(DeleteTopic { name: name.to_owned(), incarnation: None });
        match self.commit(through, &delete)? {
            Answer::TopicDeleted { .. } => Ok(()),
            other => Err(off_plot(format!("{name} could not be deleted: {other:?}"))),
        }
    }

    /// Hands records to the broker of a node, one after the other at the same instant; how many
    /// were acknowledged.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn produce(&mut self, node: usize, topic: &str, records: u64) -> Result<u64, Violation> {
        let records = self.records(node, records);
        self.hand_over(node, topic, records)
    }

    fn records(&mut self, node: usize, all: u64) -> u64 {
        self.world.amount(Actor::Node(node), "produce", "records", all)
    }

    fn hand_over(&mut self, node: usize, topic: &str, records: u64) -> Result<u64, Violation> {
        let mut acknowledged = 0;
        for _ in 0..records {
            if self.world.produce_through(node, topic, 0)?.is_some() {
                acknowledged += 1;
            }
        }
        Ok(acknowledged)
    }

    /// As [`Stage::produce`], and demands that all are acknowledged.
    ///
    /// # Errors
    /// As [`Stage::produce`], or that one was not.
    pub fn produce_all(
        &mut self,
        node: usize,
        topic: &str,
        records: u64,
    ) -> Result<u64, Violation> {
        let records = self.records(node, records);
        match self.hand_over(node, topic, records)? {
            all if all == records => Ok(all),
            some => Err(off_plot(format!("{some} of {records} records were acknowledged"))),
        }
    }

    /// Waits until a node has applied everything that is committed.
    ///
    /// # Errors
    /// The property that did not hold, or that it does not within 10 s.
    pub fn until_current(&mut self, node: usize) -> Verdict {
        self.until("a node is current", 10 * SECOND, move |world| {
            let applied = world.status(node).map(|status| status.applied.last.index);
            applied.is_some_and(|applied| applied >= world.committed_index())
        })
    }

    /// Waits until the broker of a node has asked somebody and the question was answered, if it is
    /// of the kind that asks; the answer may still be on its way. A broker that does not ask has
    /// done what it does by then.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn question_is_out(&mut self, node: usize) -> Verdict {
        self.until_current(node)?;
        let limit = self.world.now() + 1_100 * MILLI;
        self.world.run_until_true(|world| world.asks(node), limit)?;
        self.world.run_for(30 * MILLI)
    }

    /// Runs until it is true.
    ///
    /// # Errors
    /// The property that did not hold, or that it is not within that time.
    pub fn until(
        &mut self,
        what: &str,
        within: Micros,
        done: impl FnMut(&World) -> bool,
    ) -> Verdict {
        let limit = self.world.now() + within;
        match self.world.run_until_true(done, limit)? {
            true => Ok(()),
            false => Err(off_plot(format!("{what}: not within {} ms", within / MILLI))),
        }
    }

    /// Makes a node lead.
    ///
    /// # Errors
    /// The property that did not hold, or that it does not lead in the end.
    pub fn lead(&mut self, node: usize) -> Verdict {
        if !self.world.acts(Actor::Node(node), "lead") {
            return Ok(());
        }
        for _ in 0..20 {
            match self.world.leader() {
                Some(leader) if leader == node => {
                    self.until_current(node)?;
                    return Ok(());
                }
                Some(leader) => {
                    let to = self.world.member(node);
                    self.world.ask(leader, Call::Transfer { to }, SECOND)?;
                }
                None => {}
            }
            self.world.run_for(100 * MILLI)?;
        }
        Err(off_plot(format!("n{} does not come to lead", node + 1)))
    }

    /// As [`Stage::lead`], but it is fine if it does not come about.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn lead_if_possible(&mut self, node: usize) -> Verdict {
        if let Some(leader) = self.world.leader()
            && leader != node
        {
            let to = self.world.member(node);
            self.world.ask(leader, Call::Transfer { to }, SECOND)?;
        }
        Ok(())
    }

    /// Moves partition 0 of a topic to another node: the target is set, the records are copied from
    /// the node that holds them, and the move is completed with the length of the copy. Without a
    /// node that holds them it is forced.
    ///
    /// # Errors
    /// As [`Stage::commit`].
    pub fn move_partition(
        &mut self,
        through: usize,
        place: &Place,
        from: Option<usize>,
        to: usize,
    ) -> Verdict {
        let moving = self.begin_move(through, place, to)?;
        let mut length = 0;
        if let Some(from) = from {
            self.until_current(to)?;
            length = self.world.copy_partition(place, from, to)?;
        }
        self.complete_move(through, place, moving, length, from.is_none())
    }

    /// Begins to move a partition to another node; the move.
    ///
    /// # Errors
    /// As [`Stage::commit`].
    pub fn begin_move(
        &mut self,
        through: usize,
        place: &Place,
        to: usize,
    ) -> Result<u64, Violation> {
        let view = self.world.view(through).ok_or_else(|| off_plot("nobody answers"))?;
        let row = view.assignment(&place.topic, place.partition).ok().and_then(|at| at.value);
        let row = row.ok_or_else(|| off_plot("the partition has no owner"))?;
        let (placed, target) = (row.stamp.incarnation, self.owner(to));
        let begin = Command::SetTarget(SetTarget { of: reference(place), placed, target });
        match self.commit(through, &begin)? {
            Answer::MoveStarted { incarnation } => Ok(incarnation),
            other => Err(off_plot(format!("the move could not begin: {other:?}"))),
        }
    }

    /// Completes a move with the length of the copy, as the new owner reports it.
    ///
    /// # Errors
    /// As [`Stage::commit`].
    pub fn complete_move(
        &mut self,
        through: usize,
        place: &Place,
        incarnation: u64,
        length: u64,
        forced: bool,
    ) -> Verdict {
        let of = reference(place);
        let complete = Command::CompleteMove(CompleteMove { of, incarnation, length, forced });
        match self.commit(through, &complete)? {
            Answer::MoveCompleted { .. } => Ok(()),
            other => Err(off_plot(format!("the move could not be completed: {other:?}"))),
        }
    }

    /// Puts the node's process an end to by a power cut that takes everything unsynced with it.
    pub fn power_cut(&mut self, node: usize) {
        let was_running = self.world.is_running(node);
        self.world.crash_losing_all(node);
        if was_running && !self.world.is_running(node) {
            self.tell_of(node, "loses its power");
        }
    }

    /// Starts a node, and cuts what it says off from the leader and the others as soon as it is
    /// connected to the leader: it hears the leader, and its own answers are lost.
    ///
    /// # Errors
    /// The property that did not hold, or that it is not connected within 3 s.
    pub fn start_unheard(&mut self, node: usize, leader: usize) -> Verdict {
        self.world.start(node)?;
        self.until("it is connected", 3 * SECOND, move |world| world.is_connected(node, leader))?;
        for other in (0..self.world.names().len()).filter(|other| *other != node) {
            self.world.cut(node, other);
        }
        Ok(())
    }

    /// What a node says is heard again.
    pub fn hear(&mut self, node: usize) {
        for other in (0..self.world.names().len()).filter(|other| *other != node) {
            self.world.mend(node, other);
        }
    }

    /// Asks the ledger in the middle of the story: what is in no place now is lost, also if it comes
    /// back from the trash later.
    ///
    /// # Errors
    /// A disk that cannot be read.
    pub fn take_stock(&mut self) -> Verdict {
        self.missed = self.world.lost_records()?;
        Ok(())
    }

    /// Everything heals; brokers go on for a while; then the ledger is asked, over the disk images,
    /// once as they are and once more after every node lost its power and came back. Nothing of this
    /// is a move of the program: a tape cannot shorten the wait, behind which what is not there
    /// counts as lost.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn finish(&mut self, wait: Micros) -> Verdict {
        self.world.heal_everything()?;
        self.world.run_until_serving()?;
        let until = self.world.now() + wait;
        self.world.run_until(until)?;
        let mut lost = self.world.lost_records()?;
        self.world.settle()?;
        if lost.is_empty() {
            lost = self.world.lost_records()?;
        }
        if lost.is_empty() {
            lost.append(&mut self.missed);
        }
        self.lost = Some(lost);
        Ok(())
    }

    /// The scenario ends here: the cluster rightly serves nobody, and says why.
    pub(super) fn stands_still(&mut self, why: String) {
        self.lost = Some(Vec::new());
        self.stands_still = Some(why);
    }

    pub(super) fn end(mut self, violation: Option<Violation>) -> Report {
        let lost = self.lost.take();
        let unfinished = lost.is_none() && violation.is_none();
        let violation = match unfinished {
            true => Some(off_plot("the scenario ended without asking the ledger")),
            false => violation,
        };
        let report = Report {
            seed: 0,
            story: self.world.take_story(),
            lost: lost.unwrap_or_default(),
            due: self.world.records_due(),
            stands_still: self.stands_still.take(),
            violation,
            summary: self.world.summary(),
            trace: self.world.take_trace(),
            tape: self.world.take_tape(),
        };
        campaign::discard(self.world);
        report
    }
}

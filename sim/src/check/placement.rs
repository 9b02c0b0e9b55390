//! Placements and links of the reference state machine: what the metastore must answer about them,
//! in the simplest form (fsm, `apply::placement` and `apply::links`; DESIGN section 6).

use holdfast_fsm::command::{
    AbortMove, AssignPartition, AttachChild, CompleteMove, DetachChild, PartitionRef, SetTarget,
};
use holdfast_fsm::records::Owner;
use holdfast_fsm::{Answer, CreateTopic};
use std::collections::BTreeMap;

/// One partition's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The placement in force.
    pub placed: u64,
    /// The owner.
    pub owner: Owner,
    /// The move under way: its incarnation and target.
    pub target: Option<(u64, Owner)>,
}

/// One child's attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The attachment.
    pub incarnation: u64,
    /// Name of the parent.
    pub parent: String,
}

/// Who owns what, and what feeds what, after some prefix of the committed log.
#[derive(Debug, Default)]
pub struct Placements {
    /// Incarnation and partitions of the live topics.
    topics: BTreeMap<String, (u64, u32)>,
    placed: BTreeMap<(String, u32), Placed>,
    links: BTreeMap<String, Attached>,
}

impl Placements {
    /// A topic was created.
    pub fn created(&mut self, topic: &CreateTopic, index: u64) {
        self.topics.insert(topic.name.clone(), (index, topic.partitions));
    }

    /// A topic was deleted, and everything that hangs on it.
    pub fn deleted(&mut self, topic: &str) {
        self.topics.remove(topic);
        self.placed.retain(|(name, _), _| name != topic);
        self.links.retain(|child, link| child != topic && link.parent != topic);
    }

    /// Owners by topic and partition.
    #[must_use]
    pub const fn owners(&self) -> &BTreeMap<(String, u32), Placed> {
        &self.placed
    }

    /// Attachments by child.
    #[must_use]
    pub const fn links(&self) -> &BTreeMap<String, Attached> {
        &self.links
    }

    /// Partitions of a live topic, or the refusal.
    fn topic(&self, name: &str, incarnation: u64) -> Result<u32, Answer> {
        match self.topics.get(name) {
            None => Err(Answer::NotFound),
            Some((current, _)) if *current != incarnation => {
                Err(Answer::WrongIncarnation { current: *current })
            }
            Some((_, partitions)) => Ok(*partitions),
        }
    }

    fn of(&mut self, of: &PartitionRef) -> Result<&mut Placed, Answer> {
        self.topic(&of.topic, of.incarnation)?;
        self.placed.get_mut(&(of.topic.clone(), of.partition)).ok_or(Answer::NotFound)
    }

    /// The first owner of a partition.
    pub fn assign(&mut self, c: AssignPartition, index: u64) -> Result<Answer, Answer> {
        let partitions = self.topic(&c.to.topic, c.to.incarnation)?;
        if c.to.partition >= partitions {
            return Err(Answer::NoSuchPartition { partitions });
        }
        let key = (c.to.topic, c.to.partition);
        if let Some(placed) = self.placed.get(&key) {
            return Err(Answer::AlreadyAssigned { placed: placed.placed });
        }
        self.placed.insert(key, Placed { placed: index, owner: c.owner, target: None });
        Ok(Answer::PartitionAssigned { placed: index })
    }

    /// A move begins.
    pub fn set_target(&mut self, c: SetTarget, index: u64) -> Result<Answer, Answer> {
        let row = self.of(&c.of)?;
        if row.placed != c.placed {
            return Err(Answer::WrongPlacement { current: row.placed });
        }
        if let Some((incarnation, _)) = row.target {
            return Err(Answer::MoveUnderWay { incarnation });
        }
        if row.owner == c.target {
            return Err(Answer::AlreadyOwner);
        }
        row.target = Some((index, c.target));
        Ok(Answer::MoveStarted { incarnation: index })
    }

    /// The target of the wanted move, taken out of its row.
    fn end(&mut self, of: &PartitionRef, incarnation: u64) -> Result<(&mut Placed, Owner), Answer> {
        let row = self.of(of)?;
        match row.target.clone() {
            None => Err(Answer::NoMove { placed: row.placed }),
            Some((current, _)) if current != incarnation => {
                Err(Answer::MoveUnderWay { incarnation: current })
            }
            Some((_, owner)) => {
                row.target = None;
                Ok((row, owner))
            }
        }
    }

    /// A move is completed.
    pub fn complete(&mut self, c: &CompleteMove) -> Result<Answer, Answer> {
        let (row, owner) = self.end(&c.of, c.incarnation)?;
        row.owner = owner;
        row.placed = c.incarnation;
        Ok(Answer::MoveCompleted { incarnation: c.incarnation })
    }

    /// A move is given up.
    pub fn abort(&mut self, c: &AbortMove) -> Result<Answer, Answer> {
        self.end(&c.of, c.incarnation)?;
        Ok(Answer::MoveAborted { incarnation: c.incarnation })
    }

    /// A child is attached.
    pub fn attach(&mut self, c: AttachChild, index: u64) -> Result<Answer, Answer> {
        self.topic(&c.child, c.child_incarnation)?;
        let partitions = self.topic(&c.parent, c.parent_incarnation)?;
        if let Some(link) = self.links.get(&c.child) {
            return Err(Answer::AlreadyAttached { incarnation: link.incarnation });
        }
        if c.tails.len() as u64 != u64::from(partitions) {
            return Err(Answer::WrongTails { partitions });
        }
        let mut at = Some(&c.parent);
        while let Some(topic) = at {
            if *topic == c.child {
                return Err(Answer::WouldFeedItself);
            }
            at = self.links.get(topic).map(|link| &link.parent);
        }
        self.links.insert(c.child, Attached { incarnation: index, parent: c.parent });
        Ok(Answer::Attached { incarnation: index })
    }

    /// A child is detached.
    pub fn detach(&mut self, c: &DetachChild) -> Result<Answer, Answer> {
        let current = self.links.get(&c.child).ok_or(Answer::NotFound)?.incarnation;
        if c.incarnation.is_some_and(|wanted| wanted != current) {
            return Err(Answer::WrongIncarnation { current });
        }
        self.links.remove(&c.child);
        Ok(Answer::Detached { incarnation: current })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::model::Model;
    use holdfast_consensus::rng::SplitMix64;
    use holdfast_consensus::traits::StateMachine;
    use holdfast_consensus::{Body, ClusterId, Entries, Entry, Index, LogId};
    use holdfast_fsm::records::VolumeId;
    use holdfast_fsm::{Command, DeleteTopic, Metastore, StoreOptions};
    use holdfast_log::MemDisk;
    use std::collections::BTreeSet;

    /// Commands about few names, incarnations and owners, so that most refusals occur.
    fn drawn(rng: &mut SplitMix64, index: u64) -> Command {
        let name = |rng: &mut SplitMix64| format!("t{}", rng.between(0, 4));
        let near = |rng: &mut SplitMix64| index.saturating_sub(rng.between(1, 24));
        let partition = |rng: &mut SplitMix64| u32::try_from(rng.between(0, 3)).expect("small");
        let owner = |rng: &mut SplitMix64| Owner {
            node: format!("n{}", rng.between(1, 4)),
            volume: VolumeId(u128::from(rng.between(1, 3))),
        };
        let of = |rng: &mut SplitMix64| PartitionRef {
            topic: name(rng),
            incarnation: near(rng),
            partition: partition(rng),
        };
        match rng.between(0, 16) {
            0..=2 => Command::CreateTopic(CreateTopic {
                name: name(rng),
                partitions: 2,
                retention_ms: None,
                created_at_ms: 0,
            }),
            3 => Command::DeleteTopic(DeleteTopic { name: name(rng), incarnation: None }),
            4..=6 => Command::AssignPartition(AssignPartition { to: of(rng), owner: owner(rng) }),
            7..=9 => {
                let (of, placed, target) = (of(rng), near(rng), owner(rng));
                Command::SetTarget(SetTarget { of, placed, target })
            }
            10 => {
                let (of, incarnation) = (of(rng), near(rng));
                let (length, forced) = (rng.between(0, 9), rng.chance(300));
                Command::CompleteMove(CompleteMove { of, incarnation, length, forced })
            }
            11 => Command::AbortMove(AbortMove { of: of(rng), incarnation: near(rng) }),
            12..=14 => Command::AttachChild(AttachChild {
                child: name(rng),
                child_incarnation: near(rng),
                parent: name(rng),
                parent_incarnation: near(rng),
                delay_ms: 0,
                tails: vec![7; usize::try_from(rng.between(1, 4)).expect("small")],
            }),
            _ => {
                let incarnation = rng.chance(500).then(|| near(rng));
                Command::DetachChild(DetachChild { child: name(rng), incarnation })
            }
        }
    }

    /// Aims a drawn command at what lives, so that it often succeeds.
    fn aimed(rng: &mut SplitMix64, model: &Model, mut command: Command) -> Command {
        let live = |name: &str| model.topics().get(name).copied();
        let placed = |of: &PartitionRef| {
            model.placements().owners().get(&(of.topic.clone(), of.partition)).cloned()
        };
        if rng.chance(250) {
            return command;
        }
        match &mut command {
            Command::AssignPartition(AssignPartition { to: of, .. })
            | Command::SetTarget(SetTarget { of, .. })
            | Command::CompleteMove(CompleteMove { of, .. })
            | Command::AbortMove(AbortMove { of, .. }) => {
                of.incarnation = live(&of.topic).unwrap_or(of.incarnation);
            }
            Command::AttachChild(c) => {
                c.child_incarnation = live(&c.child).unwrap_or(c.child_incarnation);
                c.parent_incarnation = live(&c.parent).unwrap_or(c.parent_incarnation);
            }
            _ => {}
        }
        match &mut command {
            Command::SetTarget(c) if rng.chance(700) => {
                c.placed = placed(&c.of).map_or(c.placed, |p| p.placed);
            }
            Command::CompleteMove(CompleteMove { of, incarnation, .. })
            | Command::AbortMove(AbortMove { of, incarnation }) => {
                let moving = placed(of).and_then(|p| p.target).map(|(move_, _)| move_);
                *incarnation = moving.unwrap_or(*incarnation);
            }
            _ => {}
        }
        command
    }

    #[test]
    fn the_metastore_answers_and_holds_what_the_simple_form_does() {
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            let mut rng = SplitMix64::new(seed);
            let options = StoreOptions::small(ClusterId(1), 1);
            let mut store = Metastore::open(MemDisk::new(), options).expect("opens");
            let mut model = Model::default();
            for index in 1..=300u64 {
                let command = drawn(&mut rng, index);
                let command = aimed(&mut rng, &model, command);
                let body = Body::Command(command.encode(None).expect("encodes"));
                let entry = Entry { id: LogId::new(1, index), time: index, body };
                model.apply(&entry);
                let mut replies = Vec::new();
                let entries = Entries::new(vec![entry]).expect("one entry");
                store.apply(&entries, &mut replies).expect("applies");
                let answer = Answer::decode(&replies[0].1).expect("decodes");
                assert_eq!(Some(&answer), model.answer_at(Index(index)), "seed {seed} {command:?}");
                let text = format!("{answer:?}");
                let word = text.split([' ', '(']).next().expect("a word");
                seen.insert(word.to_owned());
            }
            for ((topic, partition), placed) in model.placements().owners() {
                let row = store.view().assignment(topic, *partition).expect("read").value;
                let row = row.expect("a row");
                assert_eq!((row.stamp.incarnation, &row.owner), (placed.placed, &placed.owner));
                let target = row.target.map(|target| (target.stamp.incarnation, target.owner));
                assert_eq!(target, placed.target);
            }
            let links = store.view().links(None, 100).expect("read").value;
            let links: Vec<_> =
                links.iter().map(|l| (&l.child.name, l.stamp.incarnation)).collect();
            let model_links = model.placements().links();
            let expected: Vec<_> = model_links.iter().map(|(c, l)| (c, l.incarnation)).collect();
            assert_eq!(links, expected, "seed {seed}");
            store.view().verify_digest().expect("digest and counts hold");
        }
        for word in [
            "PartitionAssigned",
            "AlreadyAssigned",
            "NoSuchPartition",
            "WrongPlacement",
            "AlreadyOwner",
            "MoveStarted",
            "MoveUnderWay",
            "NoMove",
            "MoveCompleted",
            "MoveAborted",
            "Attached",
            "AlreadyAttached",
            "WrongTails",
            "WouldFeedItself",
            "Detached",
        ] {
            assert!(seen.contains(word), "{word} never occurred: {seen:?}");
        }
    }
}

//! The broker of one process: its passes, and what it keeps between them.

use super::accepted::{Accepted, AcceptedLog};
use super::fanout::Cursor;
use super::guarded::Guarded;
use super::late::{Hands, Leave};
use super::layout::Copy;
use super::ledger::Place;
use super::records::{self, Record};
use super::wants::{About, Act, Note, Task, Want};
use super::writer::Writer;
use super::{Mode, layout, meta};
use crate::trace::Decision;
use holdfast_consensus::Micros;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_consensus::replica::ReplicaStatus;
use holdfast_fsm::View;
use holdfast_fsm::guard::Inquiry;
use holdfast_fsm::records::Owner;
use holdfast_fsm::view::ReadError;
use holdfast_log::mem_disk::MemDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// How long an unanswered question blocks its act from being considered again.
const PATIENCE: Micros = 1_500_000;
/// Records that the dispatcher looks at in a pass.
const WINDOW: usize = 64;

/// What a broker sees of its node at one moment.
pub struct Sight<'a> {
    /// True virtual time.
    pub now: Micros,
    /// What the clock of the node shows.
    pub shown: Micros,
    /// Name of the node.
    pub me: &'a str,
    /// Name of the leader, if the replica knows it.
    pub leader: Option<&'a str>,
    /// The local store.
    pub view: &'a View,
    /// The replica.
    pub status: &'a ReplicaStatus,
    /// It has stopped by itself.
    pub stopped: bool,
}

/// What a call of the replica was for.
#[derive(Debug)]
pub(super) enum Asked {
    /// The own barrier of a node that believes that it leads: then the act is looked at again.
    SelfBarrier(Act),
    /// The barrier behind the answer to a question by name.
    Respond { to: String, ask: u64, about: About },
    /// A question by name, put to the leader.
    Leader(Act),
    /// The guard's inquiry.
    Guard(Act, Box<Inquiry>),
}

/// The broker of one process.
pub struct Broker {
    pub(super) mode: Mode,
    /// The node and its disk, as placements name them.
    pub(super) owner: Owner,
    pub(super) disk: MemDisk,
    pub(super) accepted: AcceptedLog,
    pub(super) cursors: BTreeMap<(String, u32), Cursor>,
    pub(super) guard: Guarded,
    asked: BTreeMap<u64, (Micros, Asked)>,
    /// Acts that are being decided, with the time of the decision's end.
    busy: BTreeMap<String, Micros>,
    /// A write under way.
    pub(super) writer: Option<Writer>,
    /// Acts that were decided and not carried out yet.
    pub(super) hands: Hands,
    /// Acts that were kept, so that the story tells each reason once.
    told: BTreeSet<String>,
    next_ask: u64,
    /// What the broker wants done.
    pub(super) wants: Vec<Want>,
}

impl Broker {
    /// Opens the files of a broker on its node's disk.
    ///
    /// # Errors
    /// What the disk says.
    pub fn open(mode: Mode, disk: MemDisk, me: &str, view: &View) -> io::Result<Self> {
        let owner = Owner { node: me.to_owned(), volume: super::volume_of(me) };
        let guard = Guarded::open(disk.clone(), &owner, view)?;
        let refusal = guard.refusal().map(|why| Want::Say(format!("has no data plane: {why}")));
        Ok(Self {
            mode,
            accepted: AcceptedLog::open(disk.clone())?,
            guard,
            owner,
            cursors: BTreeMap::new(),
            asked: BTreeMap::new(),
            busy: BTreeMap::new(),
            writer: None,
            hands: Hands::default(),
            told: BTreeSet::new(),
            next_ask: 0,
            wants: refusal.into_iter().collect(),
            disk,
        })
    }

    /// True if a cursor runs for a child under this attachment.
    #[must_use]
    pub fn has_cursor(&self, child: &str, attachment: u64) -> bool {
        self.cursors
            .iter()
            .any(|(key, cursor)| key.0 == child && cursor.link.stamp.incarnation == attachment)
    }

    /// True if an act that destroys waits for an answer.
    #[must_use]
    pub fn asks(&self) -> bool {
        !self.busy.is_empty()
    }

    /// What is wanted since the last time.
    pub fn take(&mut self) -> Vec<Want> {
        std::mem::take(&mut self.wants)
    }

    /// One pass of a task.
    ///
    /// # Errors
    /// What the disk says: a broker whose disk fails stops.
    pub fn pass(&mut self, task: Task, sight: &Sight<'_>) -> io::Result<()> {
        self.busy.retain(|_, until| *until > sight.now);
        self.asked.retain(|_, (until, _)| *until > sight.now);
        self.guard.walk(sight.view);
        self.catch_up(sight)?;
        match task {
            Task::Reconcile => self.reconcile(sight),
            Task::Dispatch => self.dispatch(sight),
            Task::Feed => self.feed(sight),
            Task::Sweep => self.sweep(sight),
        }
    }

    /// A producer hands over a record.
    ///
    /// # Errors
    /// What the disk says.
    pub fn produce(
        &mut self,
        topic: &str,
        partition: u32,
        record: Record,
        sight: &Sight<'_>,
    ) -> io::Result<bool> {
        let Ok(Some(incarnation)) = meta::topic(sight.view, topic) else { return Ok(false) };
        let place = Place { topic: topic.to_owned(), incarnation, partition };
        let mine = meta::owner(sight.view, &place).ok().flatten().is_some_and(|o| o == sight.me);
        let how = if mine { "appended by its owner" } else { "answered 202" };
        let taken = self.hand_on(&place, record, sight)?;
        if taken {
            self.wants.push(Want::Acknowledged { place, record, how });
        }
        Ok(taken)
    }

    /// Appends a record to a partition that the node owns, or accepts it for the owner; `false` if
    /// neither can be done now.
    pub(super) fn hand_on(
        &mut self,
        place: &Place,
        record: Record,
        sight: &Sight<'_>,
    ) -> io::Result<bool> {
        match meta::owner(sight.view, place) {
            Ok(Some(owner)) if owner == sight.me => return self.append(place, record, sight),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Ok(false),
        }
        // Records are accepted only by a node that has caught up since its start (R32).
        if self.mode == Mode::On && sight.status.not_ready.is_some() {
            return Ok(false);
        }
        self.accepted.accept(Accepted {
            sequence: 0,
            record,
            topic: place.topic.clone(),
            incarnation: place.incarnation,
            partition: place.partition,
            applied: sight.status.applied.last.index.0,
        })?;
        Ok(true)
    }

    /// Another broker tells something.
    ///
    /// # Errors
    /// What the disk says.
    pub fn told(&mut self, from: &str, note: Note, sight: &Sight<'_>) -> io::Result<()> {
        match note {
            Note::Commit(accepted) => self.commit(from, accepted, sight),
            Note::Committed(sequence) => {
                self.accepted.done(sequence);
                Ok(())
            }
            Note::NoSuchTopic(sequence) => self.refused_by_owner(sequence, sight),
            Note::Question { ask, about } => {
                self.call(Asked::Respond { to: from.to_owned(), ask, about }, Call::Barrier, sight);
                Ok(())
            }
            Note::Purge(topic) => self.purge(from, &topic, sight),
            Note::Answer { ask, so } => {
                let Some((_, Asked::Leader(act))) = self.asked.remove(&ask) else { return Ok(()) };
                self.busy.remove(&act.key());
                match so {
                    true => self.naively(&act, "the leader says so", sight),
                    false => {
                        self.keep(&act, "the leader says otherwise");
                        Ok(())
                    }
                }
            }
        }
    }

    /// The replica has an outcome.
    ///
    /// # Errors
    /// What the disk says.
    pub fn outcome(&mut self, ask: u64, outcome: &Outcome, sight: &Sight<'_>) -> io::Result<()> {
        let Some((_, asked)) = self.asked.remove(&ask) else { return Ok(()) };
        let ready = matches!(outcome, Outcome::Ready { .. });
        match asked {
            Asked::SelfBarrier(act) => {
                self.busy.remove(&act.key());
                match (ready, is_so(sight.view, &act.about())) {
                    (true, Ok(true)) => self.naively(&act, "I lead, and my store says so", sight),
                    (true, Ok(false)) => {
                        self.keep(&act, "after the barrier my store says otherwise");
                        Ok(())
                    }
                    (true, Err(why)) => {
                        self.keep(&act, &format!("it cannot be read: {why}"));
                        Ok(())
                    }
                    (false, _) => {
                        self.keep(&act, "my leadership could not be confirmed");
                        Ok(())
                    }
                }
            }
            Asked::Respond { to, ask, about } => {
                if ready && let Ok(so) = is_so(sight.view, &about) {
                    self.wants.push(Want::Tell { to, note: Note::Answer { ask, so } });
                }
                Ok(())
            }
            Asked::Guard(act, inquiry) => {
                self.busy.remove(&act.key());
                self.conclude(&act, *inquiry, outcome, sight)
            }
            Asked::Leader(_) => Ok(()),
        }
    }

    /// Decides on an act that destroys, in the way of the mode.
    pub(super) fn consider(&mut self, act: Act, sight: &Sight<'_>) -> io::Result<()> {
        if self.busy.contains_key(&act.key()) {
            return Ok(());
        }
        match self.mode {
            Mode::Off => self.naively(&act, "my store says so", sight),
            Mode::Local => {
                let status = sight.status;
                if status.leader.is_none() {
                    self.keep(&act, "I know of no leader");
                    return Ok(());
                }
                if status.applied.last.index < status.commit {
                    self.keep(&act, "I have not applied what I know to be committed");
                    return Ok(());
                }
                let why = format!("I hear a leader and have applied {}", status.commit);
                self.naively(&act, &why, sight)
            }
            Mode::Leader => {
                match sight.leader {
                    None => self.keep(&act, "I know of no leader"),
                    Some(leader) if leader == sight.me => {
                        self.occupy(&act, sight);
                        self.call(Asked::SelfBarrier(act), Call::Barrier, sight);
                    }
                    Some(leader) => {
                        self.occupy(&act, sight);
                        let (about, to) = (act.about(), leader.to_owned());
                        let ask = self.ask(Asked::Leader(act), sight);
                        self.wants.push(Want::Tell { to, note: Note::Question { ask, about } });
                    }
                }
                Ok(())
            }
            Mode::On => self.judge(act, sight),
        }
    }

    pub(super) fn occupy(&mut self, act: &Act, sight: &Sight<'_>) {
        self.busy_until(act, sight.now + PATIENCE);
    }

    pub(super) fn busy_until(&mut self, act: &Act, end: Micros) {
        self.busy.insert(act.key(), end);
    }

    fn ask(&mut self, asked: Asked, sight: &Sight<'_>) -> u64 {
        self.next_ask += 1;
        self.asked.insert(self.next_ask, (sight.now + PATIENCE, asked));
        self.next_ask
    }

    pub(super) fn call(&mut self, asked: Asked, call: Call, sight: &Sight<'_>) {
        let ask = self.ask(asked, sight);
        self.wants.push(Want::Call { ask, call });
    }

    /// Keeps the data, and says why (once for each act and reason).
    pub(super) fn keep(&mut self, act: &Act, why: &str) {
        let line = format!("keeps: would {}, but {why}", act.describe());
        if self.told.insert(line.clone()) {
            self.wants.push(Want::Decided(Decision::Keeps, line));
        }
    }

    /// Looks for directories whose topic is gone, and for what has lain in the trash for long
    /// enough. The lists are only hints.
    fn sweep(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        for copy in layout::copies(&self.disk)? {
            match meta::topic(sight.view, &copy.place.topic) {
                Ok(Some(incarnation)) if incarnation == copy.place.incarnation => {
                    self.reclaim(copy, sight)?;
                }
                Ok(Some(_)) if self.mode != Mode::On => {}
                Ok(_) => self.consider(Act::Remove(copy), sight)?,
                // A read error is no absence (N15); brokers took it for one.
                Err(_) if self.mode == Mode::Off => self.consider(Act::Remove(copy), sight)?,
                Err(why) => self.keep(&Act::Remove(copy), &format!("it cannot be read: {why}")),
            }
        }
        match self.mode {
            Mode::On => self.empty_trash(sight),
            _ => Ok(()),
        }
    }

    /// A copy of a partition that has another owner.
    fn reclaim(&mut self, copy: Copy, sight: &Sight<'_>) -> io::Result<()> {
        match meta::owner(sight.view, &copy.place) {
            Ok(Some(owner)) if owner != sight.me => {
                let node = sight.me.to_owned();
                self.consider(Act::Reclaim { copy, node }, sight)
            }
            _ => Ok(()),
        }
    }

    /// Moves accepted records to their partitions.
    fn dispatch(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        for accepted in self.accepted.waiting().into_iter().take(WINDOW) {
            let Ok(live) = meta::topic(sight.view, &accepted.topic) else { continue };
            if live != Some(accepted.incarnation) {
                if live.is_none() || self.mode == Mode::On {
                    self.consider(Act::Discard(accepted), sight)?;
                }
                continue;
            }
            let place = accepted.place();
            match meta::owner(sight.view, &place) {
                Ok(Some(owner)) if owner == sight.me => {
                    if self.append(&place, accepted.record, sight)? {
                        self.accepted.done(accepted.sequence);
                    }
                }
                Ok(Some(to)) => self.wants.push(Want::Tell { to, note: Note::Commit(accepted) }),
                Ok(None) | Err(_) => {}
            }
        }
        self.accepted.advance()
    }

    /// The owner of a partition takes an accepted record of another node.
    fn commit(&mut self, from: &str, accepted: Accepted, sight: &Sight<'_>) -> io::Result<()> {
        let to = from.to_owned();
        let live = meta::topic(sight.view, &accepted.topic);
        let note = match live {
            Ok(Some(incarnation)) if incarnation == accepted.incarnation => {
                if !self.append(&accepted.place(), accepted.record, sight)? {
                    return Ok(());
                }
                Note::Committed(accepted.sequence)
            }
            Ok(_) => Note::NoSuchTopic(accepted.sequence),
            Err(_) => return Ok(()),
        };
        self.wants.push(Want::Tell { to, note });
        Ok(())
    }

    /// The twin path of scenario 3: the owner knows no such topic, and only then the own store is
    /// looked at.
    fn refused_by_owner(&mut self, sequence: u64, sight: &Sight<'_>) -> io::Result<()> {
        let waiting = self.accepted.waiting();
        let Some(accepted) = waiting.into_iter().find(|a| a.sequence == sequence) else {
            return Ok(());
        };
        match meta::topic(sight.view, &accepted.topic) {
            Ok(Some(incarnation)) if incarnation == accepted.incarnation => Ok(()),
            Ok(_) => self.consider(Act::Discard(accepted), sight),
            Err(_) => Ok(()),
        }
    }

    /// Appends to the log of a partition that the node owns; a record that is there already is
    /// not appended again. `false` if the partition cannot be made: its row is not known here.
    pub(super) fn append(
        &mut self,
        place: &Place,
        record: Record,
        sight: &Sight<'_>,
    ) -> io::Result<bool> {
        let Some(copy) = self.ensure_copy(place, sight.view)? else { return Ok(false) };
        let path = layout::log_of(&copy.dir);
        if !records::read(&self.disk, &path)?.iter().any(|held| held.id == record.id) {
            records::append(&self.disk, &path, &[record])?;
            self.wants.push(Want::Appended { place: place.clone(), record });
        }
        Ok(true)
    }

    /// Another node says that a topic was deleted (N31). With the guard that is a reason to look.
    fn purge(&mut self, from: &str, topic: &str, sight: &Sight<'_>) -> io::Result<()> {
        if self.mode == Mode::On {
            return self.sweep(sight);
        }
        let copies = layout::copies(&self.disk)?;
        let Some(copy) = copies.into_iter().find(|copy| copy.place.topic == topic) else {
            return Ok(());
        };
        self.naively(&Act::Remove(copy), &format!("{from} says that {topic} was deleted"), sight)
    }

    /// Destroys without a permit, as brokers did.
    fn naively(&mut self, act: &Act, why: &str, sight: &Sight<'_>) -> io::Result<()> {
        let line = format!("goes on to {}: {why}", act.describe());
        self.wants.push(Want::Decided(Decision::Destroys, line));
        match self.put_off(act, Leave::Word, sight.now) {
            Some(_) => self.destroy(act),
            None => Ok(()),
        }
    }

    /// The act itself, without a permit: nothing in the product can do this.
    pub(super) fn destroy(&mut self, act: &Act) -> io::Result<()> {
        match act {
            Act::Remove(copy) => layout::remove_by_name(&self.disk, &copy.place.topic),
            Act::Reclaim { copy, .. } => layout::remove_place(&self.disk, &copy.place),
            Act::Clean { link, copy } => {
                layout::remove_file(&self.disk, &layout::offset_file(&copy.dir, link))
            }
            Act::Discard(accepted) => {
                self.accepted.done(accepted.sequence);
                self.accepted.advance()
            }
            Act::Anchor { link, copy, .. } => self.anchor_at_tail(link, copy),
            Act::Reap { .. } => Ok(()),
        }
    }
}

/// True if the store says that it is as asked.
fn is_so(view: &View, about: &About) -> Result<bool, ReadError> {
    let live = |child: &String| -> Result<Option<u64>, ReadError> {
        let links = meta::links(view)?;
        Ok(links.into_iter().find(|l| l.child.name == *child).map(|l| l.stamp.incarnation))
    };
    match about {
        About::Topic(name) => Ok(meta::topic(view, name)?.is_none()),
        About::Elsewhere { topic, partition, node } => {
            let Some(incarnation) = meta::topic(view, topic)? else { return Ok(false) };
            let place = Place { topic: topic.clone(), incarnation, partition: *partition };
            Ok(meta::owner(view, &place)?.is_some_and(|owner| owner != *node))
        }
        About::Current { child, attachment } => Ok(live(child)? == Some(*attachment)),
        About::Ended { child, attachment } => Ok(live(child)? != Some(*attachment)),
    }
}

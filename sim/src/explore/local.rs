//! One member in the search: the shipped core, what its disk holds, and the writes on their way
//! there. Every step is held to the core's own invariants and to what a promise needs.

use crate::check::{Verdict, Violation, promises};
use holdfast_consensus::core::Core;
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::invariant::{self, Before};
use holdfast_consensus::io::{CoreConfig, Effect, Input, Persist};
use holdfast_consensus::message::Message;
use holdfast_consensus::{
    Body, Entries, Entry, HardState, Index, LogId, MemberId, Membership, Micros, Recovered, Term,
    Ticket,
};
use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};

/// Shortest election timeout. Far above the heartbeat, so that no number of heartbeats within the
/// bounds ever reaches it: a clock then tells nothing that the fingerprint does not.
const ELECTION: Micros = 1 << 20;
/// A deadline that never comes.
const NEVER: Micros = u64::MAX / 4;
/// Name of the property that a core stops only for evidence of a broken one.
pub(super) const NEVER_STOPS: &str = "core-stop";

/// What a disk holds: what a restart begins with.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) hard: HardState,
    pub(super) log: Vec<Entry>,
}

impl Image {
    /// A formed cluster: everybody holds the first configuration (R7).
    fn formed(members: &[MemberId]) -> Self {
        let voters = members.iter().map(|m| (*m, format!("n{}", m.0)));
        let body = Body::Membership(Membership::of_voters(voters).into());
        let first = Entry { id: LogId::new(1, 1), time: 0, body };
        Self { hard: HardState { term: Term(1), voted_for: None }, log: vec![first] }
    }

    /// Carries a write out: truncate, append, hard state.
    fn take(&mut self, write: &Persist) {
        if let Some(from) = write.truncate_from {
            self.log.retain(|entry| entry.id.index < from);
        }
        self.log.extend_from_slice(write.append.as_slice());
        self.hard = write.hard.unwrap_or(self.hard);
    }

    /// The last entry.
    pub(super) fn last(&self) -> LogId {
        self.log.last().map_or(LogId::default(), |entry| entry.id)
    }

    /// True if it holds this very entry.
    fn holds(&self, id: LogId) -> bool {
        id == LogId::default() || self.log.iter().any(|entry| entry.id == id)
    }

    fn recovered(&self) -> Recovered {
        let mut terms: Vec<LogId> = Vec::new();
        for entry in &self.log {
            if terms.last().is_none_or(|run| run.term < entry.id.term) {
                terms.push(entry.id);
            }
        }
        let configuration = |entry: &Entry| match &entry.body {
            Body::Membership(membership) => Some((entry.id.index, membership.as_ref().clone())),
            _ => None,
        };
        Recovered {
            hard: self.hard,
            first: Index(1),
            last: self.last(),
            time: self.log.last().map_or(0, |entry| entry.time),
            terms,
            memberships: self.log.iter().filter_map(configuration).collect(),
            ..Recovered::default()
        }
    }
}

/// Something that happens to one member.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A message arrives.
    Deliver { from: MemberId, message: Box<Message> },
    /// It hears nothing until its election timeout is over, or its candidacy's.
    TimeOut,
    /// It leads and its heartbeat is due.
    Beat,
    /// It leads and hears nothing until it gives up.
    Silence,
    /// It leads and takes this command.
    Propose(u8),
    /// It leads and is asked for a read.
    Read(u8),
    /// Its oldest write becomes durable and is confirmed.
    Persist,
    /// It dies after this many of its writes became durable, and starts again.
    Crash(u8),
    /// Its oldest write fails with all behind it, and the log is opened again.
    Fail,
}

/// What a step of one member did to the world.
#[derive(Clone, Debug, Default)]
pub(super) struct Deeds {
    pub(super) sends: Vec<(MemberId, Message)>,
    pub(super) commit: Option<LogId>,
    /// The term that it leads since this step.
    pub(super) leads: Option<Term>,
    /// Reads that ended: with an index, or refused.
    pub(super) reads: Vec<(Ticket, Option<Index>)>,
}

/// One member.
#[derive(Clone, Debug)]
pub(super) struct Local {
    pub(super) core: Core,
    pub(super) image: Image,
    /// Invariant: in the order of issue; completed from the front.
    pub(super) queue: VecDeque<Persist>,
    /// The image once every write is carried out: the log in memory.
    pub(super) mirror: Image,
    now: Micros,
}

impl Local {
    /// A member of a freshly formed cluster.
    pub(super) fn formed(me: MemberId, members: &[MemberId]) -> Self {
        Self::start(me, Image::formed(members))
    }

    fn start(me: MemberId, image: Image) -> Self {
        let config = CoreConfig {
            election_min: ELECTION,
            election_max: 2 * ELECTION,
            heartbeat: 1,
            write_stall: NEVER,
            ..CoreConfig::new(me)
        };
        let core = Core::new(config, me.0, image.recovered(), 0);
        Self { core, mirror: image.clone(), image, queue: VecDeque::new(), now: 0 }
    }

    /// True if it waits for a deadline that is not a leader's.
    pub(super) fn waits(&self) -> bool {
        self.core.role() != RoleKind::Leader && self.core.next_deadline().is_some()
    }

    /// Lets something happen.
    ///
    /// # Errors
    /// An invariant of the core or a promise that did not hold. A panic of the core is one.
    pub(super) fn happen(&mut self, what: &Happening) -> Result<Deeds, Violation> {
        panic::catch_unwind(AssertUnwindSafe(|| self.carry_out(what))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Violation::new("panic", text.unwrap_or("a panic without a text")))
        })
    }

    fn carry_out(&mut self, what: &Happening) -> Result<Deeds, Violation> {
        let mut deeds = Deeds::default();
        match what {
            Happening::Deliver { from, message } => {
                let input = Input::Message { from: *from, message: Message::clone(message) };
                self.step(input, &mut deeds)?;
            }
            Happening::TimeOut | Happening::Beat => {
                self.now = self.core.next_deadline().unwrap_or(self.now).max(self.now);
                self.step(Input::Wake, &mut deeds)?;
            }
            Happening::Silence => {
                self.now += 2 * ELECTION;
                self.step(Input::Wake, &mut deeds)?;
            }
            Happening::Propose(n) => {
                let batch = vec![(Ticket(u64::from(*n)), vec![*n].into())];
                self.step(Input::Propose { batch }, &mut deeds)?;
            }
            Happening::Read(n) => {
                let ticket = Ticket(u64::from(*n));
                self.step(Input::ReadIndex { ticket, deadline: NEVER }, &mut deeds)?;
            }
            Happening::Persist => {
                let Some(write) = self.queue.pop_front() else { return Ok(deeds) };
                self.image.take(&write);
                self.step(Input::Persisted { through: write.seq }, &mut deeds)?;
            }
            Happening::Crash(durable) => {
                for write in self.queue.iter().take(usize::from(*durable)) {
                    self.image.take(write);
                }
                *self = Self::start(self.core.member(), std::mem::take(&mut self.image));
                // The first step says what recovery proved.
                self.step(Input::Headroom { low: false }, &mut deeds)?;
            }
            Happening::Fail => self.fail(&mut deeds)?,
        }
        Ok(deeds)
    }

    fn fail(&mut self, deeds: &mut Deeds) -> Verdict {
        let Some(first) = self.queue.front() else { return Ok(()) };
        let (at, fault) = (first.seq, LogFault::Poisoned { detail: "planted".to_owned() });
        self.queue.clear();
        self.mirror = self.image.clone();
        self.step(Input::PersistFailed { at, fault }, deeds)?;
        let (last, hard) = (self.image.last(), self.image.hard);
        self.step(Input::Reopened { last, hard, holes: Vec::new() }, deeds)
    }

    /// One step of the core, and what follows from it within the member.
    fn step(&mut self, input: Input, deeds: &mut Deeds) -> Verdict {
        let before = Before::of(&self.core);
        let led = self.core.role() == RoleKind::Leader;
        let mut effects = Vec::new();
        self.core.step(self.now, input, &mut effects);
        let broken = invariant::basic(&self.core)
            .into_iter()
            .chain(invariant::delta(&before, &self.core))
            .next();
        if let Some(broken) = broken {
            return Err(Violation::new("core-invariant", broken.to_string()));
        }
        if !led && self.core.role() == RoleKind::Leader {
            deeds.leads = Some(self.core.hard().term);
        }
        let mut fetches = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist(write) => {
                    self.mirror.take(&write);
                    self.queue.push_back(write);
                }
                Effect::Send { to, message, .. } => {
                    self.backs(&message)?;
                    deeds.sends.push((to, message));
                }
                Effect::Commit { through } => deeds.commit = deeds.commit.max(Some(through)),
                Effect::Fetch { fetch, from, to, .. } => fetches.push((fetch, from, to)),
                Effect::ReadAt { ticket, index } => deeds.reads.push((ticket, Some(index))),
                Effect::Refused { ticket, .. } => deeds.reads.push((ticket, None)),
                Effect::Stop(reason) => {
                    return Err(Violation::new(NEVER_STOPS, format!("{reason}")));
                }
                _ => {}
            }
        }
        for (fetch, from, to) in fetches {
            let held = self.mirror.log.iter().filter(|e| (from..=to).contains(&e.id.index));
            let entries = Entries::new(held.cloned().collect()).unwrap_or_default();
            self.step(Input::Fetched { fetch, entries: Ok(entries) }, deeds)?;
        }
        Ok(())
    }

    /// A message that somebody may rely on is backed by what the disk holds at this moment, so
    /// that no crash can take it back (Raft figure 2, persistent state).
    fn backs(&self, message: &Message) -> Verdict {
        let (hard, me) = (self.image.hard, Some(self.core.member()));
        let unbacked = match message {
            Message::Vote { pre: false, term, .. } => {
                hard.term < *term || (hard.term == *term && hard.voted_for != me)
            }
            Message::VoteReply { pre: false, granted: true, term, .. } => {
                hard.term < *term || (hard.term == *term && hard.voted_for.is_none())
            }
            Message::Append { term, .. } => hard.term < *term,
            Message::AppendReply { term, result: Ok(id), .. } => {
                hard.term < *term || !self.image.holds(*id)
            }
            _ => false,
        };
        if unbacked {
            let last = self.image.last();
            let what =
                format!("{message:?} leaves, but durable are {hard:?} and entries to {last}");
            return Err(Violation::new(promises::PROPERTY, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Local {
        Local::formed(MemberId(1), &[MemberId(1), MemberId(2)])
    }

    #[test]
    fn an_acknowledgement_of_what_is_not_durable_is_seen() {
        let local = two();
        let reply = |result| Message::AppendReply {
            term: Term(1),
            round: 1,
            result: Ok(result),
            promise: 0,
            low: false,
        };
        assert_eq!(local.backs(&reply(LogId::new(1, 1))), Ok(()));
        assert!(local.backs(&reply(LogId::new(1, 2))).is_err());
        let vote = |term| Message::VoteReply {
            term: Term(term),
            pre: false,
            asked: Term(term),
            granted: true,
        };
        assert!(local.backs(&vote(1)).is_err(), "voted for nobody in t1");
        assert!(local.backs(&vote(2)).is_err(), "t2 is not durable");
        let pre = Message::VoteReply { term: Term(2), pre: true, asked: Term(2), granted: true };
        assert_eq!(local.backs(&pre), Ok(()), "a pre-vote promises nothing");
    }

    #[test]
    fn a_crash_keeps_what_became_durable_and_nothing_else() {
        let mut local = two();
        local.happen(&Happening::TimeOut).expect("asks");
        let granted =
            Message::VoteReply { term: Term(2), pre: true, asked: Term(2), granted: true };
        let answer = Happening::Deliver { from: MemberId(2), message: Box::new(granted) };
        local.happen(&answer).expect("stands");
        assert_eq!((local.core.hard().term, local.queue.len()), (Term(2), 1));
        let mut lost = local.clone();
        lost.happen(&Happening::Crash(0)).expect("starts again");
        assert_eq!(lost.core.hard().term, Term(1));
        let mut kept = local.clone();
        kept.happen(&Happening::Crash(1)).expect("starts again");
        assert_eq!(kept.core.hard(), HardState { term: Term(2), voted_for: Some(MemberId(1)) });
    }
}

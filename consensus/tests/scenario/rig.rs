//! One core in the hands of a test.

use holdfast_consensus::core::Core;
use holdfast_consensus::entries::Entries;
use holdfast_consensus::event::Event;
use holdfast_consensus::invariant::{self, Before};
use holdfast_consensus::io::{CoreConfig, Effect, Input, Persist};
use holdfast_consensus::message::{Conflict, Message};
use holdfast_consensus::types::*;

/// The member under test.
pub(crate) const ME: MemberId = MemberId(1);
pub(crate) const B: MemberId = MemberId(2);
pub(crate) const C: MemberId = MemberId(3);
pub(crate) const D: MemberId = MemberId(4);
pub(crate) const E: MemberId = MemberId(5);

/// A configuration of voters 1..=count.
pub(crate) fn voters(count: u64) -> Membership {
    Membership::of_voters((1..=count).map(|n| (MemberId(n), format!("n{n}"))))
}

/// An entry without content.
pub(crate) fn entry(term: u64, index: u64) -> Entry {
    Entry { id: LogId::new(term, index), time: index, body: Body::Blank }
}

/// Consecutive entries with these (term, index).
pub(crate) fn entries(ids: &[(u64, u64)]) -> Entries {
    Entries::new(ids.iter().map(|(t, i)| entry(*t, *i)).collect()).expect("ordered")
}

/// What recovery proves of a log with these entries (the configuration counts as entry 1).
pub(crate) fn recovered(hard: HardState, membership: &Membership, ids: &[(u64, u64)]) -> Recovered {
    let mut terms: Vec<LogId> = Vec::new();
    for (term, index) in ids {
        if terms.last().is_none_or(|t| t.term.0 < *term) {
            terms.push(LogId::new(*term, *index));
        }
    }
    let last = ids.last().map_or(LogId::default(), |(t, i)| LogId::new(*t, *i));
    Recovered {
        hard,
        first: Index(1),
        last,
        terms,
        memberships: vec![(Index(1), membership.clone())],
        boot: 1,
        ..Recovered::default()
    }
}

pub(crate) fn in_term(term: u64) -> HardState {
    HardState { term: Term(term), voted_for: None }
}

/// An append of a leader whose own-term entry is committed.
pub(crate) fn append(
    term: u64,
    round: u64,
    prev: (u64, u64),
    commit: u64,
    ids: &[(u64, u64)],
) -> Message {
    Message::Append {
        term: Term(term),
        round,
        prev: LogId::new(prev.0, prev.1),
        commit: Index(commit),
        commit_own_term: true,
        entries: entries(ids),
    }
}

pub(crate) fn ack(term: u64, round: u64, at: (u64, u64)) -> Message {
    let result = Ok(LogId::new(at.0, at.1));
    Message::AppendReply { term: Term(term), round, result, promise: 0, low: false }
}

pub(crate) fn reject(term: u64, round: u64, conflict: Conflict) -> Message {
    let result = Err(conflict);
    Message::AppendReply { term: Term(term), round, result, promise: 0, low: false }
}

pub(crate) fn ask(term: u64, pre: bool, last: (u64, u64), transfer: bool) -> Message {
    Message::Vote { term: Term(term), pre, last: LogId::new(last.0, last.1), transfer }
}

pub(crate) fn vote(term: u64, pre: bool, asked: u64, granted: bool) -> Message {
    Message::VoteReply { term: Term(term), pre, asked: Term(asked), granted }
}

/// The core, its time and the writes that are not confirmed.
pub(crate) struct Rig {
    pub(crate) core: Core,
    pub(crate) now: Micros,
    pub(crate) writes: Vec<Seq>,
}

impl Rig {
    pub(crate) fn with(config: CoreConfig, recovered: Recovered) -> Self {
        let core = Core::new(config, 7, recovered, 1_000_000);
        Self { core, now: 1_000_000, writes: Vec::new() }
    }

    /// A member of `count` voters in `term` with these entries, all durable.
    pub(crate) fn follower(count: u64, term: u64, ids: &[(u64, u64)]) -> Self {
        Self::with(CoreConfig::new(ME), recovered(in_term(term), &voters(count), ids))
    }

    /// A leader of `count` voters in `term`, elected on these entries; its own first entry is
    /// durable here and sent, and nowhere acknowledged.
    pub(crate) fn leader(count: u64, term: u64, ids: &[(u64, u64)]) -> Self {
        Self::leader_with(CoreConfig::new(ME), count, term, ids)
    }

    pub(crate) fn leader_with(
        config: CoreConfig,
        count: u64,
        term: u64,
        ids: &[(u64, u64)],
    ) -> Self {
        let before = recovered(in_term(term - 1), &voters(count), ids);
        let mut rig = Self::with(config, before);
        rig.elect(count, term);
        rig.sync();
        rig
    }

    /// Wins an election in `term` with the votes of everybody; what follows is not yet durable.
    pub(crate) fn elect(&mut self, count: u64, term: u64) -> Vec<Effect> {
        self.expire();
        for peer in 2..=count {
            self.deliver(MemberId(peer), vote(term, true, term, true));
        }
        let mut out = self.sync();
        for peer in 2..=count {
            out.extend(self.deliver(MemberId(peer), vote(term, false, term, true)));
        }
        assert_eq!(self.core.leader(), Some(ME), "the election is won");
        out
    }

    pub(crate) fn step(&mut self, input: Input) -> Vec<Effect> {
        let before = Before::of(&self.core);
        let mut out = Vec::new();
        self.core.step(self.now, input, &mut out);
        assert_eq!(invariant::basic(&self.core), []);
        assert_eq!(invariant::delta(&before, &self.core), []);
        for effect in &out {
            match effect {
                Effect::Persist(Persist { seq, .. }) | Effect::Reset { seq, .. } => {
                    assert!(self.writes.last().is_none_or(|last| last < seq));
                    self.writes.push(*seq);
                }
                _ => {}
            }
        }
        out
    }

    pub(crate) fn deliver(&mut self, from: MemberId, message: Message) -> Vec<Effect> {
        self.step(Input::Message { from, message })
    }

    pub(crate) fn propose(&mut self, tickets: std::ops::Range<u64>) -> Vec<Effect> {
        let batch = tickets.map(|t| (Ticket(t), vec![7; 100].into())).collect();
        self.step(Input::Propose { batch })
    }

    /// Confirms every write so far.
    pub(crate) fn sync(&mut self) -> Vec<Effect> {
        match self.writes.last().copied() {
            Some(through) => self.sync_through(through),
            None => Vec::new(),
        }
    }

    pub(crate) fn sync_through(&mut self, through: Seq) -> Vec<Effect> {
        self.writes.retain(|seq| *seq > through);
        self.step(Input::Persisted { through })
    }

    pub(crate) fn after(&mut self, span: Micros) -> Vec<Effect> {
        self.now += span;
        self.step(Input::Wake)
    }

    /// Lets the core's next deadline pass.
    pub(crate) fn expire(&mut self) -> Vec<Effect> {
        self.now = self.now.max(self.core.next_deadline().expect("something is waited for"));
        self.step(Input::Wake)
    }
}

/// Messages to one member.
pub(crate) fn sent_to(out: &[Effect], member: MemberId) -> Vec<Message> {
    let mine = |effect: &Effect| match effect {
        Effect::Send { to, message, .. } if *to == member => Some(message.clone()),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

/// All messages.
pub(crate) fn sent(out: &[Effect]) -> Vec<(MemberId, Message)> {
    let mine = |effect: &Effect| match effect {
        Effect::Send { to, message, .. } => Some((*to, message.clone())),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

/// Acknowledged log ids.
pub(crate) fn acks(out: &[Effect]) -> Vec<(u64, u64)> {
    let held = |(_, message): (MemberId, Message)| match message {
        Message::AppendReply { result: Ok(id), .. } => Some((id.term.0, id.index.0)),
        _ => None,
    };
    sent(out).into_iter().filter_map(held).collect()
}

/// Conflicts that were reported.
pub(crate) fn conflicts(out: &[Effect]) -> Vec<Conflict> {
    let held = |(_, message): (MemberId, Message)| match message {
        Message::AppendReply { result: Err(conflict), .. } => Some(conflict),
        _ => None,
    };
    sent(out).into_iter().filter_map(held).collect()
}

/// The (round, prev index, entries) of every append to a member.
pub(crate) fn appends(out: &[Effect], member: MemberId) -> Vec<(u64, u64, usize)> {
    let shape = |message: Message| match message {
        Message::Append { round, prev, entries, .. } => Some((round, prev.index.0, entries.len())),
        _ => None,
    };
    sent_to(out, member).into_iter().filter_map(shape).collect()
}

/// The one write of a step.
pub(crate) fn persist(out: &[Effect]) -> Option<Persist> {
    let mine = |effect: &Effect| match effect {
        Effect::Persist(persist) => Some(persist.clone()),
        _ => None,
    };
    let all: Vec<_> = out.iter().filter_map(mine).collect();
    assert!(all.len() < 2, "one batch a step: {all:?}");
    all.into_iter().next()
}

pub(crate) fn commits(out: &[Effect]) -> Vec<u64> {
    let mine = |effect: &Effect| match effect {
        Effect::Commit { through } => Some(through.index.0),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

pub(crate) fn events(out: &[Effect]) -> Vec<Event> {
    let mine = |effect: &Effect| match effect {
        Effect::Observe(event) => Some(event.clone()),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

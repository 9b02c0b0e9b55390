//! Everything that the search met, each once: states of one member, messages, logs, and what a
//! member did with an input. A state of the cluster is then a handful of numbers, and a step that
//! was taken anywhere before is looked up instead of taken again.

use super::local::{Happening, Local};
use super::table::Memo;
use crate::check::Violation;
use bytes::Bytes;
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::message::Message;
use holdfast_consensus::wire;
use holdfast_consensus::{Body, Entry, Index, LogId, MemberId, Term, Ticket};
use std::collections::BTreeMap;

/// Kinds of inputs, in the upper four bits of a code; the lower ones hold the argument.
pub(super) mod kind {
    pub(crate) const DELIVER: u32 = 0;
    pub(crate) const TIME_OUT: u32 = 1;
    pub(crate) const BEAT: u32 = 2;
    pub(crate) const SILENCE: u32 = 3;
    pub(crate) const PROPOSE: u32 = 4;
    pub(crate) const PERSIST: u32 = 5;
    pub(crate) const CRASH: u32 = 6;
    pub(crate) const FAIL: u32 = 7;
    pub(crate) const READ: u32 = 8;
    /// A message arrives, and once more later.
    pub(crate) const REPEAT: u32 = 9;
    /// A message is lost.
    pub(crate) const LOSE: u32 = 10;
}

/// Bits of an argument.
const ARGUMENT: u32 = 28;

/// An input of one member, as one number.
pub(super) const fn code(kind: u32, argument: u32) -> u32 {
    kind << ARGUMENT | argument
}

/// Kind and argument of a code.
pub(super) const fn parts(code: u32) -> (u32, u32) {
    (code >> ARGUMENT, code & ((1 << ARGUMENT) - 1))
}

/// One place of a log: the term of the entry, and what it carries (0 nothing, 255 a configuration,
/// else the number of the command).
pub(super) type Cell = (u64, u8);

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) from: MemberId,
    pub(super) to: MemberId,
    pub(super) message: Message,
}

/// What the checkers look at in a state of one member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The log in memory.
    pub(super) mirror: u32,
    /// The log on disk.
    pub(super) image: u32,
    /// The term that it leads; zero if it does not.
    pub(super) leads: u64,
    /// It waits for a deadline that is not a leader's.
    pub(super) waits: bool,
    /// Writes on their way.
    pub(super) writes: u8,
}

/// What came of an input.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// State of the member afterwards.
    pub(super) next: u32,
    pub(super) sends: Vec<u32>,
    pub(super) commit: Option<LogId>,
    pub(super) leads: Option<Term>,
    pub(super) term: Term,
    pub(super) reads: Vec<(Ticket, Option<Index>)>,
    pub(super) violation: Option<Violation>,
}

/// The catalog.
#[derive(Debug)]
pub(super) struct Catalog {
    locals: Vec<(Local, View)>,
    local_ids: BTreeMap<u128, u32>,
    messages: Vec<Sent>,
    message_ids: BTreeMap<(MemberId, MemberId, Bytes), u32>,
    logs: Vec<Vec<Cell>>,
    log_ids: BTreeMap<Vec<Cell>, u32>,
    outcomes: Vec<Outcome>,
    memo: Memo,
}

impl Catalog {
    /// A catalog that holds the members of a freshly formed cluster, as states `0..members`.
    pub(super) fn new(members: &[MemberId]) -> Self {
        let mut catalog = Self {
            locals: Vec::new(),
            local_ids: BTreeMap::new(),
            messages: Vec::new(),
            message_ids: BTreeMap::new(),
            logs: Vec::new(),
            log_ids: BTreeMap::new(),
            outcomes: Vec::new(),
            memo: Memo::new(),
        };
        for member in members {
            catalog.intern(Local::formed(*member, members));
        }
        catalog
    }

    /// A state of one member.
    pub(super) fn local(&self, id: u32) -> &Local {
        &self.locals[id as usize].0
    }

    /// What the checkers look at in it.
    pub(super) fn view(&self, id: u32) -> View {
        self.locals[id as usize].1
    }

    /// A message.
    pub(super) fn message(&self, id: u32) -> &Sent {
        &self.messages[id as usize]
    }

    /// A log.
    pub(super) fn log(&self, id: u32) -> &[Cell] {
        &self.logs[id as usize]
    }

    /// What came of an input.
    pub(super) fn outcome(&self, id: u32) -> &Outcome {
        &self.outcomes[id as usize]
    }

    /// Sizes, for the report: states of members, messages, steps.
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.locals.len(), self.messages.len(), self.outcomes.len()]
    }

    /// What a code says.
    pub(super) fn happening(&self, code: u32) -> Happening {
        let (kind, argument) = parts(code);
        let small = u8::try_from(argument).unwrap_or(u8::MAX);
        match kind {
            kind::DELIVER => {
                let sent = self.message(argument);
                Happening::Deliver { from: sent.from, message: Box::new(sent.message.clone()) }
            }
            kind::TIME_OUT => Happening::TimeOut,
            kind::BEAT => Happening::Beat,
            kind::SILENCE => Happening::Silence,
            kind::PROPOSE => Happening::Propose(small),
            kind::PERSIST => Happening::Persist,
            kind::CRASH => Happening::Crash(small),
            kind::FAIL => Happening::Fail,
            _ => Happening::Read(small),
        }
    }

    /// Lets a member in a state take an input, or looks up what came of it before.
    pub(super) fn step(&mut self, local: u32, code: u32) -> u32 {
        let key = (u64::from(local) + 1) << 32 | u64::from(code);
        if let Some(known) = self.memo.get(key) {
            return known;
        }
        let outcome = self.take(local, code);
        let id = number(self.outcomes.len());
        self.outcomes.push(outcome);
        self.memo.insert(key, id);
        id
    }

    fn take(&mut self, local: u32, code: u32) -> Outcome {
        let mut next = self.local(local).clone();
        let what = self.happening(code);
        let me = next.core.member();
        let deeds = match next.happen(&what) {
            Ok(deeds) => deeds,
            Err(violation) => return Outcome::broken(local, violation),
        };
        if let Some(violation) = disagreement(&next) {
            return Outcome::broken(local, violation);
        }
        let sends = deeds.sends.into_iter();
        let sends = sends.map(|(to, message)| self.intern_message(Sent { from: me, to, message }));
        let mut sends: Vec<u32> = sends.collect();
        sends.sort_unstable();
        sends.dedup();
        let term = next.core.hard().term;
        Outcome {
            next: self.intern(next),
            sends,
            commit: deeds.commit,
            leads: deeds.leads,
            term,
            reads: deeds.reads,
            violation: None,
        }
    }

    fn intern(&mut self, local: Local) -> u32 {
        let mirror = self.intern_log(&local.mirror.log);
        let image = self.intern_log(&local.image.log);
        let mut words = vec![local.core.fingerprint()];
        for hard in [local.image.hard, local.mirror.hard] {
            words.push(u128::from(hard.term.0) << 64 | hard.voted_for.map_or(0, |m| m.0.into()));
        }
        words.push(u128::from(image) << 32 | u128::from(mirror));
        for write in &local.queue {
            words.extend(fold(write.truncate_from.map_or(0, |i| i.0), write.append.len(), write));
        }
        let mut flat = Vec::with_capacity(words.len() * 4);
        for word in words {
            let parts = [word >> 96, word >> 64, word >> 32, word];
            flat.extend(parts.map(|p| u32::try_from(p & u128::from(u32::MAX)).unwrap_or(0)));
        }
        let key = super::table::digest(&flat);
        if let Some(known) = self.local_ids.get(&key) {
            return *known;
        }
        let leads =
            if local.core.role() == RoleKind::Leader { local.core.hard().term.0 } else { 0 };
        let waits = local.waits();
        let writes = u8::try_from(local.queue.len()).unwrap_or(u8::MAX);
        let id = number(self.locals.len());
        self.locals.push((local, View { mirror, image, leads, waits, writes }));
        self.local_ids.insert(key, id);
        id
    }

    fn intern_message(&mut self, sent: Sent) -> u32 {
        let bytes = wire::encode_message(&sent.message)
            .expect("within the bounds of a search every message is short");
        let key = (sent.from, sent.to, bytes);
        if let Some(known) = self.message_ids.get(&key) {
            return *known;
        }
        let id = number(self.messages.len());
        self.messages.push(sent);
        self.message_ids.insert(key, id);
        id
    }

    fn intern_log(&mut self, log: &[Entry]) -> u32 {
        let cells: Vec<Cell> = log.iter().map(cell).collect();
        if let Some(known) = self.log_ids.get(&cells) {
            return *known;
        }
        let id = number(self.logs.len());
        self.logs.push(cells.clone());
        self.log_ids.insert(cells, id);
        id
    }
}

impl Outcome {
    /// True if nobody else learns of it.
    pub(super) fn is_silent(&self) -> bool {
        self.violation.is_none()
            && self.sends.is_empty()
            && self.commit.is_none()
            && self.reads.is_empty()
    }

    fn broken(local: u32, violation: Violation) -> Self {
        Self {
            next: local,
            sends: Vec::new(),
            commit: None,
            leads: None,
            term: Term(0),
            reads: Vec::new(),
            violation: Some(violation),
        }
    }
}

/// A write that is under way, as words.
fn fold(cut: u64, count: usize, write: &holdfast_consensus::io::Persist) -> Vec<u128> {
    let mut words = vec![u128::from(cut) << 64 | u128::from(count as u64)];
    words.extend(write.append.iter().map(|entry| {
        let (term, payload) = cell(entry);
        u128::from(term) << 64 | u128::from(entry.id.index.0) << 8 | u128::from(payload)
    }));
    let hard = write.hard.map_or(u128::MAX, |hard| {
        u128::from(hard.term.0) << 64 | hard.voted_for.map_or(0, |m| m.0.into())
    });
    words.push(hard);
    words
}

pub(super) fn cell(entry: &Entry) -> Cell {
    let payload = match &entry.body {
        Body::Blank => 0,
        Body::Command(bytes) => bytes.first().copied().unwrap_or(0),
        Body::Membership(_) => 255,
    };
    (entry.id.term.0, payload)
}

/// What the core believes of its log must be what it told its disk to hold.
fn disagreement(local: &Local) -> Option<Violation> {
    let last = local.mirror.last();
    let told = &local.mirror.log;
    let other = told.iter().find(|e| local.core.term_at(e.id.index) != Some(e.id.term));
    let gap = told.iter().enumerate().find(|(n, e)| e.id.index.0 != *n as u64 + 1);
    if local.core.last() == last && other.is_none() && gap.is_none() {
        return None;
    }
    let what = format!("memory ends at {}, the disk was told to hold {told:?}", local.core.last());
    Some(Violation::new(crate::check::log_matching::PROPERTY, what))
}

/// A position as a number of 32 bits.
pub(super) fn number(position: usize) -> u32 {
    u32::try_from(position).expect("memory ends long before four thousand million of these")
}

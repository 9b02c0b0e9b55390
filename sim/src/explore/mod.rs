//! Exhaustive search in a small scope: every schedule of a few members, terms, entries and faults,
//! on the shipped core.
//!
//! Breadth first from a formed cluster, so that the first violation has a shortest path. A state is
//! the cores with what their disks hold and what is on its way there, the messages in flight as a
//! set, and the history that the properties are judged by. Every state is held to election safety,
//! log matching, leader completeness, commit safety, durability on a majority of disks, the core's
//! own invariants, and to promises backed by a disk.
//!
//! **What may happen, in any order:** a message in flight arrives (whatever was sent before it), or
//! never does; a message is held back until it is out of date and arrives then, or arrives twice;
//! an election timeout passes at any moment; a leader hears nobody until it gives up;
//! a heartbeat is due; a command or a read comes to a leader; the oldest write of a member becomes
//! durable; a member dies after any number of its writes became durable and starts from its disk;
//! a write fails and the log is reopened. [`Bounds`] says how often.
//!
//! **What never happens:** snapshots and compaction, configuration changes (the core has none yet),
//! leadership transfers, damaged disks. A batch is written whole or not at all. Stickiness ends
//! with a member's own election timeout, never before it. Equal messages in flight are one. A
//! message that would change nothing where it goes is taken out of flight, unless it is one of
//! those that are held back.
//!
//! **Why it is fast:** what a member does depends on its own state and input alone. Both are
//! numbered, and a step that was taken anywhere before is looked up. States count as equal if
//! their 128-bit fingerprints are (two different ones among 10^9 collide with a chance of 10^-20).
//! The members of a formed cluster are alike, so the first to act is taken for the first, and the
//! next one for the second (only the order of a leader's rounds tells them apart).

mod catalog;
mod ghost;
mod local;
mod story;
mod table;
#[cfg(test)]
mod tests;

use crate::check::{Verdict, Violation};
use catalog::{Catalog, code, kind, number, parts};
use ghost::{Ghost, Ghosts};
use holdfast_consensus::MemberId;
use table::{Seen, digest};

/// How far the search goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Members, 1 to 4.
    pub nodes: u8,
    /// Elections: terms beyond the one that the cluster was formed in.
    pub terms: u64,
    /// Election timeouts that pass, of followers, candidates and leaders that hear nobody.
    pub lapses: u8,
    /// Commands.
    pub entries: u8,
    /// Crashes and failed writes.
    pub crashes: u8,
    /// Messages that are held back until they are out of date, that arrive twice, or that are lost
    /// to make room in a full network. One that never arrives needs none of these.
    pub losses: u8,
    /// Heartbeats beyond what the leader sends on news.
    pub beats: u8,
    /// Linearizable reads.
    pub reads: u8,
    /// Messages in flight at most: a step that would send more is not taken.
    pub flight: usize,
    /// Steps from the beginning at most.
    pub depth: u32,
    /// Distinct states at most: the search stops beyond them.
    pub states: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            nodes: 3,
            terms: 2,
            lapses: 2,
            entries: 1,
            crashes: 1,
            losses: 0,
            beats: 0,
            reads: 0,
            flight: 3,
            depth: u32::MAX,
            states: 60_000_000,
        }
    }
}

/// What a search amounted to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Steps taken: states reached, each as often as it was.
    pub steps: u64,
    /// Distinct states.
    pub distinct: u64,
    /// Steps of the longest path.
    pub depth: u32,
    /// True if every state within the bounds was visited.
    pub complete: bool,
    /// Steps that a bound on terms or messages kept from being taken.
    pub cut: u64,
    /// Distinct states of one member, messages, and steps of one member.
    pub sizes: [usize; 3],
    /// What did not hold, with a shortest path to it.
    pub found: Option<Found>,
}

/// A violation and how to get there.
#[derive(Clone, Debug)]
pub struct Found {
    /// What did not hold.
    pub violation: Violation,
    /// The steps, one line each.
    pub path: Vec<String>,
}

/// What a state has used up, and which members have acted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Spent {
    lapses: u8,
    entries: u8,
    crashes: u8,
    losses: u8,
    beats: u8,
    reads: u8,
    /// Members that took a step, as a count: they are numbered in that order.
    acted: u8,
}

impl Spent {
    const fn word(self) -> u32 {
        (self.lapses as u32)
            | (self.entries as u32) << 4
            | (self.crashes as u32) << 8
            | (self.losses as u32) << 12
            | (self.beats as u32) << 16
            | (self.reads as u32) << 20
            | (self.acted as u32) << 24
    }

    fn of(word: u32) -> Self {
        let part = |shift: u32| u8::try_from(word >> shift & 15).unwrap_or(0);
        Self {
            lapses: part(0),
            entries: part(4),
            crashes: part(8),
            losses: part(12),
            beats: part(16),
            reads: part(20),
            acted: part(24),
        }
    }
}

/// Most that a bound may be, as it is packed.
const PART_MAX: u8 = 15;
/// Where the member stands in the argument of a move that is no message's.
const MEMBER: u32 = 20;

/// Marks a message in flight that is held back.
const HELD: u32 = 1;

/// What a member is about to do.
#[derive(Copy, Clone, Debug)]
struct Act {
    member: usize,
    /// What it takes.
    input: u32,
    /// The move, as the path tells it.
    by: u32,
    /// Where the message stands that this uses up.
    used: Option<usize>,
}

/// Adds a message to the sorted ones behind `head`.
fn add(words: &mut Vec<u32>, head: usize, flying: u32) {
    if let Err(at) = words[head..].binary_search(&flying) {
        words.insert(head + at, flying);
    }
}

/// The search.
struct Search<'a> {
    bounds: &'a Bounds,
    /// One more property of the history, for tests.
    also: &'a dyn Fn(&Ghost) -> Verdict,
    nodes: usize,
    catalog: Catalog,
    ghosts: Ghosts,
    seen: Seen,
    /// What was judged already: logs and history.
    judged: Seen,
    /// Of every state, the one before it and the move between.
    parents: Vec<(u32, u32)>,
    /// States of the next depth: length, number, words.
    next: Vec<u32>,
    scratch: Vec<u32>,
    steps: u64,
    cut: u64,
}

/// Searches. `progress` is told of every depth before it is expanded, with the number of states
/// that wait at it.
///
/// # Panics
/// If a bound is larger than its field holds (15 for counts, 1 to 4 members).
pub fn explore(bounds: &Bounds, progress: &mut dyn FnMut(&Report, usize)) -> Report {
    search(bounds, &|_| Ok(()), progress)
}

/// Searches with one more property of the history.
fn search(
    bounds: &Bounds,
    also: &dyn Fn(&Ghost) -> Verdict,
    progress: &mut dyn FnMut(&Report, usize),
) -> Report {
    let Bounds { lapses, entries, crashes, losses, beats, reads, .. } = *bounds;
    assert!(
        [lapses, entries, crashes, losses, beats, reads].iter().all(|c| *c <= PART_MAX),
        "counts are at most {PART_MAX}"
    );
    assert!((1..=4).contains(&bounds.nodes), "1 to 4 members");
    let mut search = Search::new(bounds, also);
    let mut report = Report::default();
    let mut frontier = std::mem::take(&mut search.next);
    let mut waiting = 1;
    while !frontier.is_empty() {
        progress(&report, waiting);
        if report.depth >= bounds.depth || search.seen.len() > bounds.states {
            return report;
        }
        let result = search.expand_all(&frontier);
        let before = report.distinct;
        search.tell(&mut report);
        waiting = usize::try_from(report.distinct - before).unwrap_or(usize::MAX);
        if let Err(found) = result {
            report.depth += 1;
            report.found = Some(*found);
            return report;
        }
        frontier.clear();
        std::mem::swap(&mut frontier, &mut search.next);
        report.depth += u32::from(!frontier.is_empty());
    }
    report.complete = true;
    report
}

impl<'a> Search<'a> {
    fn new(bounds: &'a Bounds, also: &'a dyn Fn(&Ghost) -> Verdict) -> Self {
        let members: Vec<MemberId> = (1..=u64::from(bounds.nodes)).map(MemberId).collect();
        let catalog = Catalog::new(&members);
        let first = catalog.log(catalog.view(0).image)[0];
        let mut search = Self {
            bounds,
            also,
            nodes: members.len(),
            catalog,
            ghosts: Ghosts::new(first),
            seen: Seen::new(),
            judged: Seen::new(),
            parents: Vec::new(),
            next: Vec::new(),
            scratch: Vec::new(),
            steps: 0,
            cut: 0,
        };
        let locals = 0..number(search.nodes);
        search.scratch.extend(locals.chain([0, Spent::default().word()]));
        search.seen.insert(digest(&search.scratch));
        search.keep(0, 0);
        search
    }

    fn tell(&self, report: &mut Report) {
        report.steps = self.steps;
        report.distinct = self.seen.len() as u64;
        report.cut = self.cut;
        report.sizes = self.catalog.sizes();
    }

    /// Keeps the state in `scratch` for the next depth.
    fn keep(&mut self, parent: u32, by: u32) {
        let id = number(self.parents.len());
        self.parents.push((parent, by));
        self.next.push(number(self.scratch.len()));
        self.next.push(id);
        self.next.extend_from_slice(&self.scratch);
    }

    fn expand_all(&mut self, frontier: &[u32]) -> Result<(), Box<Found>> {
        let mut at = 0;
        while let Some(len) = frontier.get(at) {
            let end = at + 2 + *len as usize;
            self.expand(frontier[at + 1], &frontier[at + 2..end])?;
            at = end;
        }
        Ok(())
    }

    /// Every step from one state.
    fn expand(&mut self, id: u32, state: &[u32]) -> Result<(), Box<Found>> {
        let spent = Spent::of(state[self.nodes + 1]);
        let net = &state[self.nodes + 2..];
        for (at, sent) in net.iter().enumerate() {
            self.network(id, state, spent, (at, *sent))?;
        }
        for member in 0..self.nodes.min(usize::from(spent.acted) + 1) {
            self.member(id, state, spent, member)?;
        }
        Ok(())
    }

    /// What can become of a message in flight.
    fn network(
        &mut self,
        id: u32,
        state: &[u32],
        spent: Spent,
        (at, flying): (usize, u32),
    ) -> Result<(), Box<Found>> {
        let sent = flying >> 1;
        let to = usize::try_from(self.catalog.message(sent).to.0).unwrap_or(1) - 1;
        let head = self.nodes + 2;
        let room = spent.losses < self.bounds.losses;
        let dear = Spent { losses: spent.losses + 1, ..spent };
        if room && state.len() - head + self.nodes - 1 > self.bounds.flight {
            self.scratch.clear();
            self.scratch.extend_from_slice(state);
            self.scratch.remove(head + at);
            self.scratch[head - 1] = dear.word();
            let by = code(kind::LOSE, sent);
            self.reach(id, by).map_err(|violation| self.found(violation, id, by))?;
        }
        if to > usize::from(spent.acted) {
            return Ok(());
        }
        let input = code(kind::DELIVER, sent);
        self.act(id, state, spent, Act { member: to, input, by: input, used: Some(at) })?;
        if room && flying & HELD == 0 {
            let by = code(kind::REPEAT, sent);
            self.act(id, state, dear, Act { member: to, input, by, used: Some(at) })?;
        }
        Ok(())
    }

    /// What one member can do by itself.
    fn member(
        &mut self,
        id: u32,
        state: &[u32],
        spent: Spent,
        member: usize,
    ) -> Result<(), Box<Found>> {
        let view = self.catalog.view(state[member]);
        let bounds = self.bounds;
        let tag = number(member) << MEMBER;
        let mut go = |spent: Spent, kind: u32, argument: u32| {
            let by = code(kind, argument | tag);
            let input = code(kind, argument);
            self.act(id, state, spent, Act { member, input, by, used: None })
        };
        if spent.lapses < bounds.lapses {
            let spent = Spent { lapses: spent.lapses + 1, ..spent };
            if view.waits {
                go(spent, kind::TIME_OUT, 0)?;
            }
            if view.leads > 0 {
                go(spent, kind::SILENCE, 0)?;
            }
        }
        if view.writes > 0 {
            go(spent, kind::PERSIST, 0)?;
        }
        if view.leads > 0 {
            if spent.entries < bounds.entries {
                let spent = Spent { entries: spent.entries + 1, ..spent };
                go(spent, kind::PROPOSE, u32::from(spent.entries))?;
            }
            if spent.beats < bounds.beats {
                go(Spent { beats: spent.beats + 1, ..spent }, kind::BEAT, 0)?;
            }
            if spent.reads < bounds.reads {
                let spent = Spent { reads: spent.reads + 1, ..spent };
                go(spent, kind::READ, u32::from(spent.reads))?;
            }
        }
        if spent.crashes < bounds.crashes {
            let spent = Spent { crashes: spent.crashes + 1, ..spent };
            for durable in 0..=view.writes {
                go(spent, kind::CRASH, u32::from(durable))?;
            }
            if view.writes > 0 {
                go(spent, kind::FAIL, 0)?;
            }
        }
        Ok(())
    }

    /// One member takes an input.
    fn act(&mut self, id: u32, state: &[u32], spent: Spent, act: Act) -> Result<(), Box<Found>> {
        let Act { member, input, by, used } = act;
        let outcome = self.catalog.step(state[member], input);
        let outcome = self.catalog.outcome(outcome);
        if let Some(violation) = &outcome.violation {
            let violation = violation.clone();
            return Err(self.found(violation, id, by));
        }
        if outcome.term.0 > self.bounds.terms + 1 {
            self.cut += 1;
            return Ok(());
        }
        let head = self.nodes + 2;
        self.scratch.clear();
        self.scratch.extend_from_slice(&state[..head]);
        self.scratch[member] = outcome.next;
        let acted = spent.acted.max(u8::try_from(member + 1).unwrap_or(u8::MAX));
        let spent = Spent { acted, ..spent };
        self.scratch[head - 1] = spent.word();
        let net = state[head..].iter().enumerate().filter(|(at, _)| Some(*at) != used);
        self.scratch.extend(net.map(|(_, flying)| *flying));
        for sent in &outcome.sends {
            add(&mut self.scratch, head, sent << 1);
        }
        if parts(by).0 == kind::REPEAT {
            add(&mut self.scratch, head, parts(by).1 << 1 | HELD);
        }
        let who = u8::try_from(member + 1).unwrap_or(u8::MAX);
        let ghost = match parts(input).0 {
            kind::READ => self.ghosts.on_read(state[head - 2], parts(input).1),
            _ => state[head - 2],
        };
        match self.ghosts.on_outcome(ghost, who, outcome, &self.catalog) {
            Ok(ghost) => self.scratch[head - 2] = ghost,
            Err(violation) => return Err(self.found(violation, id, by)),
        }
        self.sweep(id, by, spent)
    }

    /// Takes out of flight what would change nothing where it goes, or holds some of it back.
    fn sweep(&mut self, id: u32, by: u32, spent: Spent) -> Result<(), Box<Found>> {
        let head = self.nodes + 2;
        let mut stale = Vec::new();
        let mut kept = head;
        for at in head..self.scratch.len() {
            let flying = self.scratch[at];
            if flying & HELD == 0 && self.changes_nothing(flying >> 1) {
                stale.push(flying);
            } else {
                self.scratch[kept] = flying;
                kept += 1;
            }
        }
        self.scratch.truncate(kept);
        let plain = self.scratch.clone();
        let left = u32::from(self.bounds.losses - spent.losses);
        for held in 0_u32..1 << stale.len().min(8) {
            if held.count_ones() > left {
                continue;
            }
            self.scratch.clone_from(&plain);
            for (n, flying) in stale.iter().enumerate().filter(|(n, _)| held >> n & 1 == 1) {
                debug_assert!(n < 8, "as many as there are bits");
                add(&mut self.scratch, head, flying | HELD);
            }
            let losses = spent.losses + u8::try_from(held.count_ones()).unwrap_or(u8::MAX);
            self.scratch[head - 1] = Spent { losses, ..spent }.word();
            if self.scratch.len() - head > self.bounds.flight {
                self.cut += 1;
                continue;
            }
            self.reach(id, by).map_err(|violation| self.found(violation, id, by))?;
        }
        Ok(())
    }

    /// True if a message would change nothing in the state in `scratch`.
    fn changes_nothing(&mut self, sent: u32) -> bool {
        let to = usize::try_from(self.catalog.message(sent).to.0).unwrap_or(1) - 1;
        let local = self.scratch[to];
        let outcome = self.catalog.step(local, code(kind::DELIVER, sent));
        let outcome = self.catalog.outcome(outcome);
        outcome.next == local && outcome.is_silent()
    }

    /// The state in `scratch` was reached.
    fn reach(&mut self, parent: u32, by: u32) -> Verdict {
        self.steps += 1;
        if !self.seen.insert(digest(&self.scratch)) {
            return Ok(());
        }
        let ghost = self.scratch[self.nodes];
        let mut views = [self.catalog.view(self.scratch[0]); 4];
        let mut words = [ghost; 13];
        for (n, local) in self.scratch[..self.nodes].iter().enumerate() {
            let view = self.catalog.view(*local);
            let term = u32::try_from(view.leads).unwrap_or(u32::MAX);
            words[3 * n..3 * n + 3].copy_from_slice(&[view.mirror, view.image, term]);
            views[n] = view;
        }
        if self.judged.insert(digest(&words)) {
            let history = self.ghosts.get(ghost);
            history.judge(&views[..self.nodes], &self.catalog)?;
            (self.also)(history)?;
        }
        self.keep(parent, by);
        Ok(())
    }
}

//! A log in memory.

use super::{MemorySnapshots, locked};
use crate::damage::{Hole, allows};
use crate::entries::Entries;
use crate::fault::LogFault;
use crate::io::Persist;
use crate::traits::{LogReader, LogStore, SnapshotStore, SpareWork};
use crate::types::{
    Body, Entry, HardState, Index, LogId, Membership, Micros, Recovered, Seq, SnapshotMeta, Term,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Entries of one pretended segment: compaction gives up whole segments only.
const SEGMENT_ENTRIES: u64 = 8;
/// Steps that a spare takes.
const SPARE_STEPS: u32 = 3;

#[derive(Debug, Default)]
struct State {
    hard: HardState,
    base: LogId,
    base_time: Micros,
    base_membership: Option<(Index, Membership)>,
    entries: Vec<Entry>,
    commit: Index,
    boot: u64,
    /// Raised by a crash or an open: objects of an older generation are refused.
    generation: u64,
    /// Set by a failed write; cleared by reopen.
    poisoned: bool,
    /// Persists that still fail.
    failing: u32,
    full: bool,
    spare: bool,
    spare_out: bool,
    /// Entries written since the last roll to another segment.
    in_segment: u64,
    /// Damaged entries; true where their identity was kept.
    holes: BTreeMap<Index, bool>,
    /// Why the log is held.
    held: Option<String>,
}

impl State {
    fn last(&self) -> LogId {
        self.entries.last().map_or(self.base, |e| e.id)
    }

    fn first(&self) -> Index {
        self.base.index.next()
    }

    fn term_at(&self, index: Index) -> Option<Term> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        if self.holes.get(&index) == Some(&false) {
            return None;
        }
        self.position(index).and_then(|p| self.entries.get(p)).map(|e| e.id.term)
    }

    /// True if nothing that is known of the log says that it holds another entry there.
    fn may_hold(&self, id: LogId) -> bool {
        if id.index < self.base.index || id.index > self.last().index {
            return false;
        }
        match self.term_at(id.index) {
            Some(term) => term == id.term,
            None => allows(id, self.base.index, self.last(), |index| self.term_at(index)),
        }
    }

    fn hole(&self, index: Index) -> Hole {
        let kept = self.holes.get(&index).copied().unwrap_or(false);
        let entry = self.position(index).and_then(|p| self.entries.get(p)).filter(|_| kept);
        Hole { index, known: entry.and_then(|e| e.identity().ok()) }
    }

    /// Refuses an entry that cannot be the one that was damaged.
    fn check_repair(&self, entry: &Entry) -> Result<(), LogFault> {
        let known = self.hole(entry.id.index).known;
        let other = known.is_some_and(|known| entry.identity() != Ok(known));
        if other || !self.may_hold(entry.id) {
            return Err(LogFault::Refused(format!(
                "entry {} is not the one that is damaged there",
                entry.id
            )));
        }
        Ok(())
    }

    fn position(&self, index: Index) -> Option<usize> {
        usize::try_from(index.0.checked_sub(self.first().0)?).ok()
    }

    /// Gives up the entries up to `through` and keeps what is needed to continue behind them.
    fn rebase(&mut self, through: LogId, time: Micros, membership: Option<(Index, Membership)>) {
        self.entries.retain(|e| e.id.index > through.index);
        self.holes.retain(|index, _| *index > through.index);
        self.base = through;
        self.base_time = time;
        self.base_membership = membership;
    }

    fn memberships(&self) -> Vec<(Index, Membership)> {
        let in_log = self.entries.iter().filter_map(|e| match &e.body {
            Body::Membership(m) if !self.holes.contains_key(&e.id.index) => {
                Some((e.id.index, m.as_ref().clone()))
            }
            _ => None,
        });
        self.base_membership.iter().cloned().chain(in_log).collect()
    }

    /// Entries that can be written on a full disk, counted from the start of this segment.
    const fn left(&self) -> u64 {
        if self.spare { 2 * SEGMENT_ENTRIES } else { SEGMENT_ENTRIES }
    }

    fn apply(&mut self, batch: &Persist) {
        if let Some(from) = batch.truncate_from {
            assert!(from > self.base.index, "a truncation never reaches into the base");
            self.entries.retain(|e| e.id.index < from);
            self.holes.retain(|index, _| *index < from);
            let ends_well = self.term_at(self.last().index).is_some();
            assert!(ends_well, "a log never ends with an entry of unknown identity");
        }
        for entry in &batch.append {
            assert_eq!(entry.id.index, self.last().index.next(), "an append leaves no gap");
            if self.in_segment >= SEGMENT_ENTRIES {
                self.spare = false;
                self.in_segment = 0;
            }
            self.in_segment += 1;
            self.entries.push(entry.clone());
        }
        if let Some(hard) = batch.hard {
            self.hard = hard;
        }
    }
}

/// What survives a crash of a [`MemoryLog`], and the switches that make it fail.
#[derive(Clone, Debug, Default)]
pub struct MemoryLogDisk {
    state: Arc<Mutex<State>>,
    snapshots: MemorySnapshots,
}

impl MemoryLogDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the log: raises the boot counter and cuts off every older handle.
    #[must_use]
    pub fn open(&self) -> MemoryLog {
        let mut state = locked(&self.state);
        state.generation += 1;
        state.boot += 1;
        state.poisoned = false;
        state.spare_out = false;
        let generation = state.generation;
        drop(state);
        MemoryLog { disk: self.clone(), generation }
    }

    /// The process dies: handles that still exist can change nothing more.
    pub fn crash(&self) {
        locked(&self.state).generation += 1;
        self.snapshots.crash();
    }

    /// The next `count` persists fail and poison the log.
    pub fn fail_persists(&self, count: u32) {
        locked(&self.state).failing = count;
    }

    /// The durable entry at an index does not verify any more; `kept` tells whether its identity
    /// is still known. Handles notice at their next read or open. False if there is no such entry,
    /// or it is the last one and its identity would be lost (then the log must be held).
    #[must_use]
    pub fn damage(&self, index: Index, kept: bool) -> bool {
        let mut state = locked(&self.state);
        let within = state.position(index).is_some_and(|at| at < state.entries.len());
        let fits = within && (kept || index < state.last().index);
        if fits {
            state.holes.insert(index, kept);
        }
        fits
    }

    /// The log is held from the next open on (R5).
    pub fn hold(&self, why: &str) {
        locked(&self.state).held = Some(why.into());
    }

    /// While set, no further spare can be had.
    pub fn set_full(&self, full: bool) {
        locked(&self.state).full = full;
    }

    /// The snapshot files beside the log.
    #[must_use]
    pub fn snapshots(&self) -> MemorySnapshots {
        self.snapshots.clone()
    }
}

/// A log in memory. See the module's word on durability.
#[derive(Debug)]
pub struct MemoryLog {
    disk: MemoryLogDisk,
    generation: u64,
}

impl MemoryLog {
    /// A log on a fresh disk.
    #[must_use]
    pub fn new() -> Self {
        MemoryLogDisk::new().open()
    }

    /// What it is stored on.
    #[must_use]
    pub fn disk(&self) -> MemoryLogDisk {
        self.disk.clone()
    }

    fn check(&self, state: &State) -> Result<(), LogFault> {
        if state.generation != self.generation {
            return Err(LogFault::Poisoned { detail: "this handle is older than a crash".into() });
        }
        if let Some(why) = &state.held {
            return Err(LogFault::Held { why: why.clone() });
        }
        if state.poisoned {
            return Err(LogFault::Poisoned { detail: "an earlier write failed".into() });
        }
        Ok(())
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl LogStore for MemoryLog {
    type Reader = MemoryLogReader;
    type Snapshots = MemorySnapshots;
    type Spare = MemorySpare;

    fn recovered(&self) -> Recovered {
        let state = locked(&self.disk.state);
        let mut terms: Vec<LogId> = Vec::new();
        for entry in &state.entries {
            if state.holes.get(&entry.id.index) == Some(&false) {
                continue;
            }
            if terms.last().is_none_or(|run| run.term != entry.id.term) {
                terms.push(entry.id);
            }
        }
        Recovered {
            hard: state.hard,
            first: state.first(),
            base: state.base,
            last: state.last(),
            time: state.entries.last().map_or(state.base_time, |e| e.time),
            terms,
            memberships: state.memberships(),
            snapshot: self.disk.snapshots.newest(),
            commit: state.commit,
            boot: state.boot,
            holes: state.holes.keys().map(|index| state.hole(*index)).collect(),
            held: state.held.clone(),
        }
    }

    fn reader(&self) -> MemoryLogReader {
        MemoryLogReader { state: Arc::clone(&self.disk.state) }
    }

    fn snapshots(&self) -> MemorySnapshots {
        self.disk.snapshots.clone()
    }

    fn persist(&mut self, batches: &[Persist]) -> Result<Seq, LogFault> {
        let mut state = locked(&self.disk.state);
        self.check(&state)?;
        let Some(last) = batches.last() else { return Ok(Seq(0)) };
        if state.failing > 0 {
            state.failing -= 1;
            state.poisoned = true;
            return Err(LogFault::Poisoned { detail: "a failure was asked for".into() });
        }
        let news: u64 = batches.iter().map(|b| b.append.len() as u64).sum();
        if state.full && state.in_segment + news > state.left() {
            return Err(LogFault::Full { detail: "no spare segment in memory".into() });
        }
        batches.iter().for_each(|batch| state.apply(batch));
        Ok(last.seq)
    }

    fn watermark(&mut self, commit: Index) -> Result<(), LogFault> {
        let mut state = locked(&self.disk.state);
        self.check(&state)?;
        state.commit = state.commit.max(commit);
        Ok(())
    }

    fn repair(&mut self, entries: &[Entry]) -> Result<Vec<Index>, LogFault> {
        let mut state = locked(&self.disk.state);
        self.check(&state)?;
        if state.failing > 0 {
            state.failing -= 1;
            state.poisoned = true;
            return Err(LogFault::Poisoned { detail: "a failure was asked for".into() });
        }
        let wanted = |e: &&Entry| state.holes.contains_key(&e.id.index);
        let stands = |e: &&Entry| {
            let at = state.position(e.id.index).filter(|_| !wanted(e));
            at.is_some_and(|at| state.entries[at] == **e)
        };
        let mut filled: Vec<Index> = entries.iter().filter(stands).map(|e| e.id.index).collect();
        let mut fill: Vec<Entry> = entries.iter().filter(wanted).cloned().collect();
        fill.sort_by_key(|e| e.id.index);
        let mut below = Term(0);
        for entry in &fill {
            state.check_repair(entry)?;
            if entry.id.term < below {
                return Err(LogFault::Refused("terms fall along the entries".into()));
            }
            below = entry.id.term;
        }
        for entry in fill {
            let index = entry.id.index;
            let at = state.position(index).expect("a hole lies within the log");
            state.entries[at] = entry;
            state.holes.remove(&index);
            filled.push(index);
        }
        filled.sort_unstable();
        Ok(filled)
    }

    fn spare(&mut self) -> Option<MemorySpare> {
        let mut state = locked(&self.disk.state);
        if state.spare || state.spare_out || self.check(&state).is_err() {
            return None;
        }
        state.spare_out = true;
        drop(state);
        Some(MemorySpare {
            state: Arc::clone(&self.disk.state),
            generation: self.generation,
            left: SPARE_STEPS,
        })
    }

    fn add_spare(&mut self, _spare: MemorySpare) -> Result<(), LogFault> {
        let mut state = locked(&self.disk.state);
        self.check(&state)?;
        state.spare = true;
        state.spare_out = false;
        Ok(())
    }

    fn low(&self) -> bool {
        let state = locked(&self.disk.state);
        state.full && !state.spare
    }

    fn compact(&mut self, through: Index) -> Result<Index, LogFault> {
        let mut state = locked(&self.disk.state);
        self.check(&state)?;
        let through = through.min(state.last().index);
        let whole =
            (through.0.saturating_sub(state.base.index.0) / SEGMENT_ENTRIES) * SEGMENT_ENTRIES;
        let mut cut = Index(state.base.index.0 + whole);
        while cut > state.base.index && state.term_at(cut).is_none() {
            cut = cut.prev();
        }
        if cut > state.base.index {
            let position = state.position(cut).expect("the cut lies inside the log");
            let (id, time) = (state.entries[position].id, state.entries[position].time);
            let membership = state.memberships().into_iter().rfind(|(at, _)| *at <= cut);
            state.rebase(id, time, membership);
        }
        Ok(state.first())
    }

    fn reset(&mut self, to: &SnapshotMeta) -> Result<LogId, LogFault> {
        let mut state = locked(&self.disk.state);
        self.check(&state)?;
        if to.last.index < state.base.index {
            return Ok(state.last());
        }
        if !state.may_hold(to.last) {
            state.entries.clear();
            state.holes.clear();
        }
        let membership = Some((to.membership_index, to.membership.clone()));
        state.rebase(to.last, to.time, membership);
        Ok(state.last())
    }

    fn reopen(&mut self) -> Result<Recovered, LogFault> {
        let mut state = locked(&self.disk.state);
        if state.generation != self.generation {
            return Err(LogFault::Poisoned { detail: "this handle is older than a crash".into() });
        }
        state.poisoned = false;
        state.spare_out = false;
        drop(state);
        Ok(self.recovered())
    }
}

/// Reads a [`MemoryLog`].
#[derive(Clone, Debug)]
pub struct MemoryLogReader {
    state: Arc<Mutex<State>>,
}

impl LogReader for MemoryLogReader {
    fn read(&self, from: Index, to: Index, max_bytes: usize) -> Result<Entries, LogFault> {
        let state = locked(&self.state);
        if from < state.first() {
            return Err(LogFault::Compacted { first: state.first() });
        }
        if from > to || to > state.last().index {
            let held = state.last().index;
            return Err(LogFault::Refused(format!(
                "{from}..={to} is not within the durable {held}"
            )));
        }
        let (start, end) = (state.position(from), state.position(to.next()));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(LogFault::Refused(format!("{from}..={to} is out of range")));
        };
        let hole = state.holes.range(from..=to).next().map(|(index, _)| *index);
        if hole == Some(from) {
            let run = (from.0..=to.0).take_while(|at| state.holes.contains_key(&Index(*at)));
            let last = run.last().map_or(from, Index);
            let detail = "damage was asked for".into();
            return Err(LogFault::Damaged { first: from, last, detail });
        }
        let end = hole.and_then(|index| state.position(index)).unwrap_or(end);
        let entries = Entries::new(state.entries[start..end].to_vec());
        Ok(entries.expect("a log holds ordered entries").within(max_bytes))
    }

    fn holes(&self, from: Index, to: Index) -> Vec<Hole> {
        let state = locked(&self.state);
        (from.0..=to.0).map(|index| state.hole(Index(index))).collect()
    }
}

/// A spare segment of a [`MemoryLog`]: nothing but a few steps.
#[derive(Debug)]
pub struct MemorySpare {
    state: Arc<Mutex<State>>,
    generation: u64,
    left: u32,
}

impl SpareWork for MemorySpare {
    fn step(&mut self) -> Result<bool, LogFault> {
        let mut state = locked(&self.state);
        if state.full && state.generation == self.generation {
            state.spare_out = false;
            return Err(LogFault::Full { detail: "a spare segment in memory".into() });
        }
        self.left = self.left.saturating_sub(1);
        Ok(self.left == 0)
    }
}

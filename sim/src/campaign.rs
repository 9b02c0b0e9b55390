//! Campaigns: many seeds, each a world of its own.

use crate::check::{Verdict, Violation};
use crate::choices::{Choices, Stream};
use crate::faults::Faults;
use crate::hash::TraceHash;
use crate::marks;
use crate::profile::Profile;
use crate::scenario;
use crate::tape::{Play, Tape};
use crate::trace::{Recording, Trace};
use crate::world::{Io, Summary, World};
use holdfast_consensus::Micros;
use holdfast_consensus::marks::MARKS;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The property that a seed gives the same run whenever it runs.
pub const DETERMINISM: &str = "determinism";

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its seed; zero if it came from a tape.
    pub seed: u64,
    /// What it amounted to.
    pub summary: Summary,
    /// The property that did not hold.
    pub violation: Option<Violation>,
    /// The trace; empty unless it was wanted.
    pub trace: Recording,
    /// The decisions of the run, if they were wanted.
    pub tape: Tape,
    /// What a scenario told, line by line; empty in a campaign.
    pub story: Vec<String>,
}

/// Many runs.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Seeds that ran.
    pub seeds: u64,
    /// Sums over them; `hash` folds their hashes in the order of seeds, `slowest` are the worst.
    pub sum: Summary,
    /// Seeds without a client that writes.
    pub idle: u64,
    /// Fewest acknowledged writes of one seed, idle ones left out.
    pub acked_min: u64,
    /// Different hashes among them.
    pub hashes: u64,
    /// Seeds that ran twice, for [`DETERMINISM`].
    pub twice: u64,
    /// How many seeds hit each mark of the product; [`MARKS`] without a hit are not in it.
    pub marks: BTreeMap<&'static str, u64>,
    /// Seeds that failed.
    pub failed: Vec<(u64, Violation)>,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Totals {
    /// The declared marks that no seed hit, but for those of branches that should be impossible.
    #[must_use]
    pub fn never_hit(&self) -> Vec<&'static str> {
        let possible = |mark: &&str| !mark.starts_with("unexpected-");
        let all = MARKS.iter().chain(marks::EVENTS).copied().filter(possible);
        all.filter(|mark| !self.marks.contains_key(mark)).collect()
    }
}

/// Keeps the text of a panic for the report instead of printing it. Call it once per process that
/// runs campaigns.
pub fn catch_panics() {
    panic::set_hook(Box::new(|info| {
        PANIC.with(|slot| *slot.borrow_mut() = Some(info.to_string()));
    }));
}

/// What a run violated. A panic is a violation of the property `panic`, with its text.
pub(crate) fn judge(run: impl FnOnce() -> Verdict) -> Option<Violation> {
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(verdict) => verdict.err(),
        Err(_) => {
            let text = PANIC.with(|slot| slot.borrow_mut().take());
            let text = text.unwrap_or_else(|| "a panic without a text".to_owned());
            Some(Violation::new("panic", text.replace('\n', " ")))
        }
    }
}

/// Drops a world. What a panic left half done is not worth dropping in order.
pub(crate) fn discard<T>(world: T) {
    if panic::catch_unwind(AssertUnwindSafe(|| drop(world))).is_err() {
        PANIC.with(|slot| *slot.borrow_mut() = None);
    }
}

/// What a run is made from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A seed of a profile.
    Seed(u64, Profile),
    /// A tape.
    Tape(Tape),
    /// A seed of a scenario.
    Play(u64, Play),
}

impl Source {
    /// The scenario, if it is of one.
    #[must_use]
    pub const fn play(&self) -> Option<Play> {
        match self {
            Self::Seed(..) => None,
            Self::Tape(tape) => tape.play,
            Self::Play(_, play) => Some(*play),
        }
    }

    /// The seed; zero for a tape.
    const fn seed(&self) -> u64 {
        match self {
            Self::Seed(seed, _) | Self::Play(seed, _) => *seed,
            Self::Tape(_) => 0,
        }
    }
}

/// How a run is watched.
#[derive(Copy, Clone, Debug, Default)]
pub struct Watch {
    /// Keep a trace.
    pub trace: bool,
    /// Keep a tape.
    pub tape: bool,
    /// Give the run up at this virtual time, as if every property had held. A scenario always runs
    /// to its end.
    pub until: Option<Micros>,
    /// A further property, looked at after every event of a campaign's world.
    pub check: Option<Check>,
    /// A stream to be disturbed ([`Choices::disturb`]).
    pub disturb: Option<Stream>,
}

/// A further property of a world.
pub type Check = fn(&World) -> Verdict;

/// Runs one seed. A panic is a violation of the property `panic`.
#[must_use]
pub fn run_seed(seed: u64, profile: Profile, traced: bool) -> Run {
    run_source(&Source::Seed(seed, profile), Watch { trace: traced, ..Watch::default() })
}

/// Runs a seed or a tape. A panic is a violation of the property `panic`.
#[must_use]
pub fn run_source(source: &Source, watch: Watch) -> Run {
    let trace = if watch.trace { Trace::on() } else { Trace::default() };
    let (mut choices, profile) = match source {
        Source::Seed(seed, profile) => (Choices::new(*seed), *profile),
        Source::Tape(tape) => (Choices::replay(tape.index()), tape.profile),
        Source::Play(seed, _) => (Choices::new(*seed), Profile::Default),
    };
    if let Some(stream) = watch.disturb {
        choices.disturb(stream);
    }
    if watch.tape {
        choices.record();
    }
    if let Some(play) = source.play() {
        return run_play(play, source.seed(), choices, watch);
    }
    let mut world = World::of(choices, profile, trace);
    let limit = watch.until.unwrap_or(Micros::MAX);
    let violation = judge(|| world.run_within(limit, watch.check));
    let mut trace = world.take_trace();
    trace.conclude(violation.as_ref());
    let summary = world.summary();
    let tape = Tape { decisions: world.choices().take_tape(), ..Tape::calm(profile) };
    discard(world);
    Run { seed: source.seed(), summary, violation, trace, tape, story: Vec::new() }
}

/// A scenario as a run: what it loses is a violation as well.
fn run_play(play: Play, seed: u64, choices: Choices, watch: Watch) -> Run {
    let report = scenario::run_by(play.scenario(), play.guard, choices, watch.trace);
    let violation = report.broken();
    let mut trace = report.trace;
    trace.conclude(violation.as_ref());
    let tape = Tape { play: Some(play), decisions: report.tape, ..Tape::calm(Profile::Default) };
    Run { seed, summary: report.summary, violation, trace, tape, story: report.story }
}

/// Runs a range of seeds on `jobs` threads. `progress` is called after each, with how many are
/// done and failed, from any thread.
pub fn run(
    seeds: Range<u64>,
    profile: Profile,
    jobs: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Totals {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicU64::new(0);
    let twice = AtomicU64::new(0);
    let runs = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let mut run = run_seed(seed, profile, false);
            if runs_twice(seed) {
                twice.fetch_add(1, Ordering::Relaxed);
                again(&mut run, profile);
            }
            if run.violation.is_some() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            let mut all = runs.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(run);
            progress(all.len() as u64, failed.load(Ordering::Relaxed));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by_key(|run| run.seed);
    Totals { twice: twice.into_inner(), ..total(runs) }
}

/// One seed in a hundred runs twice.
const fn runs_twice(seed: u64) -> bool {
    seed.is_multiple_of(100)
}

/// Runs a seed again in the same process: the run must be the same.
fn again(run: &mut Run, profile: Profile) {
    let second = run_seed(run.seed, profile, false);
    let (one, two) = (run.summary.hash, second.summary.hash);
    if one != two && run.violation.is_none() {
        let what = format!("the first run has hash {one:016x}, the second {two:016x}");
        run.violation = Some(Violation::new(DETERMINISM, what));
    }
}

fn total(runs: Vec<Run>) -> Totals {
    let mut totals = Totals { acked_min: u64::MAX, ..Totals::default() };
    let mut hash = TraceHash::default();
    let mut hashes = BTreeSet::new();
    for run in runs {
        let (sum, of) = (&mut totals.sum, &run.summary);
        totals.seeds += 1;
        sum.events += of.events;
        sum.acked += of.acked;
        sum.reads += of.reads;
        sum.operations += of.operations;
        sum.nodes = sum.nodes.max(of.nodes);
        for mark in &of.marks {
            *totals.marks.entry(mark).or_default() += 1;
        }
        hashes.insert(of.hash);
        sum.virtual_micros += of.virtual_micros;
        sum.replayed += of.replayed;
        add(&mut sum.log, of.log);
        add(&mut sum.store, of.store);
        for (total, one) in sum.snapshots.iter_mut().zip(of.snapshots) {
            *total += one;
        }
        Faults::add(&mut sum.faults, &of.faults);
        hash.fold(of.hash);
        sum.excused += of.excused;
        for (worst, one) in sum.slowest.iter_mut().zip(of.slowest) {
            *worst = one.max(*worst);
        }
        if of.idle {
            totals.idle += 1;
        } else {
            totals.acked_min = totals.acked_min.min(of.acked);
        }
        if let Some(violation) = run.violation {
            totals.failed.push((run.seed, violation));
        }
    }
    totals.sum.hash = hash.value();
    totals.hashes = hashes.len() as u64;
    if totals.seeds == totals.idle {
        totals.acked_min = 0;
    }
    totals
}

fn add(total: &mut Io, one: Io) {
    total.writes += one.writes;
    total.syncs += one.syncs;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_differs_from_itself_is_a_violation() {
        let mut run = run_seed(4, Profile::Calm, false);
        again(&mut run, Profile::Calm);
        assert_eq!(run.violation, None);
        run.summary.hash ^= 1;
        again(&mut run, Profile::Calm);
        assert_eq!(run.violation.map(|v| v.property), Some(DETERMINISM));
    }

    #[test]
    fn marks_are_counted_by_seed_and_missed_ones_named() {
        let mut runs: Vec<Run> = (0..2).map(|seed| run_seed(seed, Profile::Calm, false)).collect();
        runs[0].summary.marks = BTreeSet::from(["forwarded-again", "event-truncated"]);
        runs[1].summary.marks = BTreeSet::from(["forwarded-again"]);
        let totals = total(runs);
        assert_eq!(totals.marks, BTreeMap::from([("forwarded-again", 2), ("event-truncated", 1)]));
        assert_eq!(totals.hashes, 2);
        let never = totals.never_hit();
        assert!(never.contains(&"stale-rejection") && !never.contains(&"forwarded-again"));
        assert!(!never.contains(&"unexpected-spare"), "what cannot happen is not demanded");
    }

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn a_panic_is_a_violation_and_a_world_that_panics_again_is_let_go() {
        assert_eq!(judge(|| Ok(())), None);
        let broken = Violation::new("order", "out of it");
        assert_eq!(judge(|| Err(broken.clone())), Some(broken));
        assert_eq!(judge(|| panic!("gone")).map(|violation| violation.property), Some("panic"));
        discard(Bomb);
    }
}

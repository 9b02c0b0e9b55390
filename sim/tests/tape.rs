//! Tapes: replay bit for bit, as text and back, calm behind their end.

#![expect(clippy::disallowed_methods, reason = "the committed tapes are files of this directory")]

use holdfast_sim::campaign::{Run, Source, Watch, run_source};
use holdfast_sim::check::{Verdict, Violation};
use holdfast_sim::choices::Stream;
use holdfast_sim::faults::{ALL, Fault};
use holdfast_sim::profile::Profile;
use holdfast_sim::shrink::{NotFailing, Shrunk, Task, shrink};
use holdfast_sim::tape::Tape;
use holdfast_sim::world::World;
use std::path::PathBuf;

const TAPED: Watch = Watch { trace: false, tape: true, until: None, check: None, disturb: None };

#[test]
fn a_recorded_tape_replays_its_run_bit_for_bit() {
    for seed in 0..8 {
        let run = run_source(&Source::Seed(seed, Profile::Default), TAPED);
        assert_eq!(run.violation, None, "seed {seed}");
        let text = run.tape.render();
        let read = Tape::parse(&text).expect("what was rendered is a tape");
        let again = run_source(&Source::Tape(read), TAPED);
        assert_eq!(again.violation, None, "seed {seed}");
        assert_eq!(again.summary.events, run.summary.events, "seed {seed}");
        assert_eq!(again.summary.hash, run.summary.hash, "seed {seed}");
        assert_eq!(again.tape.render(), text, "seed {seed}");
    }
}

#[test]
fn an_empty_tape_is_a_calm_run() {
    for profile in [Profile::Default, Profile::Calm, Profile::Load] {
        let run = run_source(&Source::Tape(Tape::calm(profile)), TAPED);
        assert_eq!(run.violation, None, "{profile:?}");
        assert_eq!(run.tape.decisions, [], "{profile:?}: a calm run decides nothing");
        assert_eq!(run.summary.operations, 0, "{profile:?}");
        let of_the_end = [Fault::Kill, Fault::Crash];
        for fault in ALL.iter().filter(|fault| !of_the_end.contains(fault)) {
            assert_eq!(run.summary.faults.of(*fault), 0, "{profile:?}: {}", fault.name());
        }
    }
}

#[test]
fn a_tape_that_ends_early_goes_on_calmly() {
    let run = run_source(&Source::Seed(11, Profile::Default), TAPED);
    let half = run.tape.decisions.len() / 2;
    let tape = Tape { decisions: run.tape.decisions[..half].to_vec(), ..run.tape };
    let cut = run_source(&Source::Tape(tape), TAPED);
    assert_eq!(cut.violation, None);
    assert!(cut.summary.operations > 0);
}

/// A property that does not hold where faults strike: never are two nodes down at once after a
/// write was acknowledged.
fn two_are_never_down(world: &World) -> Verdict {
    let down = (0..world.names().len()).filter(|node| !world.is_running(*node)).count();
    match down >= 2 && world.acked() > 0 {
        true => Err(Violation::new("two-down", format!("{down} nodes are down"))),
        false => Ok(()),
    }
}

/// The first seed from here on at which it fails.
fn failing(from: u64) -> u64 {
    let watch = Watch { check: Some(two_are_never_down), ..Watch::default() };
    let fails = |seed: &u64| {
        let run = run_source(&Source::Seed(*seed, Profile::Default), watch);
        run.violation.is_some_and(|v| v.property == "two-down")
    };
    (from..from + 100).find(fails).expect("two nodes are down in one seed of a hundred")
}

fn shrunk(seed: u64, runs: u64) -> Shrunk {
    let task = Task {
        source: Source::Seed(seed, Profile::Default),
        property: Some("two-down".to_owned()),
        check: Some(two_are_never_down),
        runs,
        go_on: &mut |_, _| true,
    };
    shrink(task).expect("it fails to begin with")
}

fn replayed(tape: &Tape, disturb: Option<Stream>) -> Run {
    let watch = Watch { check: Some(two_are_never_down), disturb, ..TAPED };
    run_source(&Source::Tape(tape.clone()), watch)
}

#[test]
fn a_failure_shrinks_to_a_few_events_and_the_same_ones_each_time() {
    let seed = failing(0);
    let small = shrunk(seed, 600);
    assert!(small.size.events <= 10, "{:?}\n{}", small.size, small.tape.render());
    assert!(small.from.events > 100, "{:?}", small.from);
    assert_eq!(small.violation.property, "two-down");
    let again = shrunk(seed, 600);
    assert_eq!(again.tape.render(), small.tape.render());
    let read = Tape::parse(&small.tape.render()).expect("a tape");
    assert_eq!(replayed(&read, None).violation, Some(small.violation));
}

#[test]
fn a_tape_outlives_changes_of_unrelated_code() {
    let small = shrunk(failing(0), 600);
    for stream in Stream::ALL {
        let run = replayed(&small.tape, Some(*stream));
        let property = run.violation.map(|v| v.property);
        assert_eq!(property, Some("two-down"), "{}\n{}", stream.name(), small.tape.render());
    }
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    let task = |property: Option<&str>, check| {
        let (source, property) = (Source::Seed(0, Profile::Calm), property.map(str::to_owned));
        shrink(Task { source, property, check, runs: 10, go_on: &mut |_, _| true })
            .map(|shrunk| shrunk.size)
    };
    assert_eq!(task(None, None), Err(NotFailing::Held));
    let always: fn(&World) -> Verdict = |_| Err(Violation::new("always", "as its name says"));
    let other = NotFailing::Other("always".to_owned());
    assert_eq!(task(Some("durability"), Some(always)), Err(other));
}

#[test]
fn every_committed_tape_keeps_every_property() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tapes");
    let entries = std::fs::read_dir(&dir).expect("the directory of the tapes");
    let mut seen = 0;
    for entry in entries {
        let path = entry.expect("a readable entry").path();
        let text = std::fs::read_to_string(&path).expect("a readable tape");
        let tape = Tape::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(!tape.header.is_empty(), "{} does not say what it showed", path.display());
        let run = run_source(&Source::Tape(tape), TAPED);
        assert_eq!(run.violation, None, "{}", path.display());
        seen += 1;
    }
    assert!(seen > 0, "{} holds no tape", dir.display());
}

#[test]
fn a_committed_tape_is_seen_to_fail_where_its_property_does_not_hold() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/two-down.tape");
    let tape = Tape::parse(&std::fs::read_to_string(path).expect("the tape")).expect("a tape");
    assert_eq!(run_source(&Source::Tape(tape.clone()), TAPED).violation, None);
    assert_eq!(replayed(&tape, None).violation.map(|v| v.property), Some("two-down"));
}

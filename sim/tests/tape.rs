//! Tapes: replay bit for bit, as text and back, calm behind their end.

use holdfast_sim::campaign::{Source, Watch, run_source};
use holdfast_sim::faults::{ALL, Fault};
use holdfast_sim::profile::Profile;
use holdfast_sim::tape::Tape;

const TAPED: Watch = Watch { trace: false, tape: true, until: None };

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

//! Scenarios on tapes: what is left of the four losses when everything is taken off that they do not
//! need, and the same moves under the guard.

#![expect(clippy::disallowed_methods, reason = "the committed tapes are files of this directory")]

use holdfast_sim::broker::Mode;
use holdfast_sim::broker::ledger::PROPERTY;
use holdfast_sim::campaign::{Run, Source, Watch, run_source};
use holdfast_sim::shrink::{Shrunk, Size, Task, shrink};
use holdfast_sim::tape::{Play, Tape};
use std::path::PathBuf;

const FOUR: [&str; 4] = ["orphan-sweep", "stale-cursor", "discarded-records", "fresh-leader"];
const TAPED: Watch = Watch { trace: false, tape: true, until: None, check: None, disturb: None };

/// The committed tape of a scenario.
fn committed(name: &str) -> Tape {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/losses/{name}.tape"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    Tape::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn with_guard(tape: &Tape, guard: Mode) -> Run {
    let play = tape.play.map(|play| play.guarded(guard));
    run_source(&Source::Tape(Tape { play, ..tape.clone() }), TAPED)
}

fn property(run: &Run) -> Option<&'static str> {
    run.violation.as_ref().map(|violation| violation.property)
}

#[test]
fn the_shrunk_losses_lose_data_as_they_are_and_keep_it_under_the_guard() {
    for name in FOUR {
        let tape = committed(name);
        assert_eq!(tape.play.map(|play| play.scenario().name), Some(name));
        let run = run_source(&Source::Tape(tape.clone()), TAPED);
        assert_eq!(property(&run), Some(PROPERTY), "{name}: {:#?}", run.story);
        let events = Size::of(&run).events;
        assert!(events <= 40, "{name}: {events} events");
        let kept = with_guard(&tape, Mode::On);
        assert_eq!(kept.violation, None, "{name}: {:#?}", kept.story);
    }
}

#[test]
fn a_scenario_replays_from_its_tape_bit_for_bit() {
    for name in FOUR {
        for guard in [Mode::Off, Mode::On] {
            let play = Play::of(name, guard).expect("a scenario");
            let run = run_source(&Source::Play(3, play), TAPED);
            let text = run.tape.render();
            let again = run_source(&Source::Tape(Tape::parse(&text).expect("a tape")), TAPED);
            assert_eq!(again.summary.hash, run.summary.hash, "{name}");
            assert_eq!(again.tape.render(), text, "{name}");
            assert_eq!(again.story, run.story, "{name}");
        }
    }
}

#[test]
fn a_scenario_without_a_move_loses_nothing() {
    for name in FOUR {
        let play = Play::of(name, Mode::Off);
        let calm = Tape::calm(holdfast_sim::profile::Profile::Default);
        let run = run_source(&Source::Tape(Tape { play, ..calm }), TAPED);
        assert_ne!(property(&run), Some(PROPERTY), "{name}: {:#?}", run.story);
        assert_eq!(Size::of(&run).events, 0, "{name}");
    }
}

fn shrunk(name: &str, seed: u64) -> Shrunk {
    let source = Source::Play(seed, Play::of(name, Mode::Off).expect("a scenario"));
    let property = Some(PROPERTY.to_owned());
    shrink(Task { source, property, check: None, runs: 400, go_on: &mut |_, _| true })
        .expect("a run that loses data")
}

#[test]
fn a_loss_is_shrunk_to_the_moves_that_it_needs() {
    let small = shrunk("orphan-sweep", 7);
    assert!(small.from.events > 500, "{:?}", small.from);
    assert!(small.size.events <= 10, "{:?}\n{}", small.size, small.tape.render());
    assert_eq!(shrunk("orphan-sweep", 7).tape.render(), small.tape.render());
    assert_eq!(with_guard(&small.tape, Mode::On).violation, None);
}

#[test]
fn a_loss_is_not_shrunk_to_one_of_another_kind() {
    let evidence = shrunk("stale-cursor", 1).violation.evidence;
    assert!(evidence.contains("appended to orders after attachment"), "{evidence}");
}

//! A small campaign, its determinism, and the order of its seeds.

use holdfast_sim::campaign::{self, run_seed};
use holdfast_sim::faults::{ALL, Fault};
use holdfast_sim::profile::Profile;
use holdfast_sim::trace::text;

#[test]
fn forty_seeds_keep_every_property_under_every_fault() {
    let totals = campaign::run(0..40, Profile::Default, 2, &|_, _| {});
    assert_eq!(totals.failed, [], "a property did not hold");
    assert_eq!(totals.seeds, 40);
    assert!(totals.acked_min >= 50, "only {} acknowledged in a seed", totals.acked_min);
    // The undoing of directory operations needs more seeds than these to be certain.
    for fault in ALL.iter().filter(|fault| **fault != Fault::DirUndone) {
        assert!(totals.sum.faults.of(*fault) > 0, "{} never struck", fault.name());
    }
    assert!(totals.sum.replayed > 0, "no store was ever fed again");
    assert!(totals.sum.snapshots.iter().all(|count| *count > 0), "{:?}", totals.sum.snapshots);
}

#[test]
fn a_world_without_faults_serves_everybody() {
    let totals = campaign::run(0..10, Profile::Calm, 2, &|_, _| {});
    assert_eq!(totals.failed, [], "a property did not hold");
    assert_eq!(totals.sum.faults.of(Fault::Dropped), 0);
    assert_eq!(totals.sum.faults.of(Fault::Crash), 0);
}

#[test]
fn the_same_seed_is_the_same_run_and_another_seed_is_another() {
    let hash = |seed| run_seed(seed, Profile::Default, false).summary.hash;
    for seed in [3, 17, 21] {
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
    assert_ne!(hash(3), hash(17));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let hash = |jobs| campaign::run(100..106, Profile::Default, jobs, &|_, _| {}).sum.hash;
    assert_eq!(hash(1), hash(3));
}

#[test]
fn a_trace_tells_the_run_and_does_not_change_it() {
    let silent = run_seed(5, Profile::Default, false);
    let traced = run_seed(5, Profile::Default, true);
    assert_eq!(silent.summary.hash, traced.summary.hash);
    assert!(silent.trace.items.is_empty());
    let lines = text::write(&traced.trace);
    assert!(lines.contains("is leader in t"), "{lines}");
    assert!(lines.contains("founds"), "{lines}");
}

//! The scenarios, with the guard off and on.

use holdfast_sim::broker::Mode;
use holdfast_sim::scenario::{self, ALL, Report, Scenario};

const FOUR: [&str; 4] = ["orphan-sweep", "stale-cursor", "discarded-records", "fresh-leader"];

fn run(name: &str, mode: Mode, seed: u64) -> Report {
    scenario::run(scenario::named(name).expect("listed"), mode, seed, false)
}

/// Fails unless the run ended as it should; the story says why.
fn ends(report: &Report, good: bool) {
    assert_eq!(report.violation, None, "seed {}: {:#?}", report.seed, report.story);
    assert_eq!(report.lost.is_empty(), good, "seed {}: {:#?}", report.seed, report.story);
    assert!(report.due > 0, "nothing was at stake");
}

#[test]
fn the_four_lose_data_with_the_guard_off_and_keep_all_with_it_on() {
    for name in FOUR {
        for seed in 0..3 {
            ends(&run(name, Mode::Off, seed), false);
            ends(&run(name, Mode::On, seed), true);
        }
    }
}

#[test]
fn the_own_word_of_a_replica_is_not_enough_for_any_of_the_four() {
    for name in FOUR {
        ends(&run(name, Mode::Local, 0), false);
        ends(&run(name, Mode::Leader, 0), true);
    }
}

#[test]
fn the_word_of_a_leader_about_a_name_is_not_enough_either() {
    for name in [
        "recreated",
        "deposed-leader",
        "wrong-volume",
        "forced-move",
        "flip-back",
        "verdict-then-older",
        "older-cluster",
        "rival-cluster",
        "late-purge",
        "open-handle",
        "parent-recreated",
    ] {
        ends(&run(name, Mode::Leader, 0), false);
        ends(&run(name, Mode::On, 0), true);
    }
}

#[test]
fn what_was_right_when_it_was_decided_is_wrong_when_it_is_done() {
    for name in ["installed-between", "paused-permit", "long-sweep", "created-elsewhere"] {
        for mode in [Mode::Off, Mode::Local, Mode::Leader] {
            ends(&run(name, mode, 0), false);
        }
        ends(&run(name, Mode::On, 0), true);
    }
}

#[test]
fn the_own_word_of_a_replica_is_not_enough_behind_a_pause_either() {
    for name in ["minority-leader", "minority-self", "suspended"] {
        ends(&run(name, Mode::Local, 0), false);
        ends(&run(name, Mode::Leader, 0), true);
    }
}

/// The names between back-ticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_book_has_a_row_for_each_variant_with_what_plays_it() {
    let book = include_str!("../../book/src/scenarios.md");
    let row = |n: u32| {
        let begins = format!("| N{n} | ");
        let mut rows = book.lines().filter(|line| line.starts_with(&begins));
        let row = rows.next().unwrap_or_else(|| panic!("no row for N{n}"));
        assert_eq!(rows.next(), None, "two rows for N{n}");
        row
    };
    for n in 1..=31 {
        assert!(quoted(row(n)).len() + row(n).matches("cannot arise").count() > 0, "N{n}");
    }
    for scenario in ALL {
        let Some((_, about)) = scenario.summary.rsplit_once('(') else { continue };
        for n in about.split(|c: char| !c.is_alphanumeric()).filter_map(|w| w.strip_prefix('N')) {
            let n = n.parse().unwrap_or_else(|_| panic!("{}: N{n}", scenario.name));
            assert!(quoted(row(n)).contains(&scenario.name), "{} is not in N{n}", scenario.name);
        }
    }
}

#[test]
fn a_scenario_that_is_said_to_lose_data_does_so_with_the_guard_off() {
    let losing = |scenario: &&Scenario| scenario.loss;
    for scenario in ALL.iter().filter(losing) {
        let lost = (0..20).any(|seed| !run(scenario.name, Mode::Off, seed).lost.is_empty());
        assert!(lost, "{} never lost anything", scenario.name);
    }
}

#[test]
fn every_scenario_keeps_everything_with_the_guard_on() {
    for scenario in ALL {
        for seed in 0..2 {
            let report = run(scenario.name, Mode::On, seed);
            assert!(
                report.is_good(),
                "{} {}: {:#?}",
                scenario.name,
                report.verdict(),
                report.story
            );
        }
    }
}

/// The liveness budget: demanded by the scenarios themselves with the guard on.
#[test]
fn what_is_to_go_goes_in_time() {
    for name in ["budget", "budget-alone"] {
        for seed in 0..3 {
            let report = run(name, Mode::On, seed);
            assert!(report.is_good(), "{name} {}: {:#?}", report.verdict(), report.story);
            let told = report.story.iter().filter(|line| line.contains(" ms, of ")).count();
            assert!(told >= 2, "{name} demanded {told} things only: {:#?}", report.story);
        }
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let (one, two) = (run("stale-cursor", Mode::Off, 5), run("stale-cursor", Mode::Off, 5));
    assert_eq!(one.story, two.story);
    assert_eq!(one.summary.hash, two.summary.hash);
    assert_ne!(one.summary.hash, run("stale-cursor", Mode::Off, 6).summary.hash);
}

#[test]
fn names_are_unique_and_summaries_are_sentences() {
    for (n, scenario) in ALL.iter().enumerate() {
        assert!(ALL[..n].iter().all(|other| other.name != scenario.name));
        assert!(scenario.summary.len() > 30, "{}", scenario.name);
    }
    assert!(FOUR.iter().all(|name| scenario::named(name).is_some_and(|s| s.loss)));
}

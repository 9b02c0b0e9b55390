//! Small bounds run to completion; and false properties are refuted by a shortest path, so that a
//! clean search is known to have looked at the states that matter.

use super::*;

fn small() -> Bounds {
    Bounds { nodes: 2, terms: 2, lapses: 2, entries: 1, crashes: 1, losses: 1, ..Bounds::default() }
}

fn run(bounds: &Bounds) -> Report {
    explore(bounds, &mut |_, _| {})
}

/// Searches for a history that a claim forbids, and returns the path to it.
fn refute(bounds: &Bounds, claim: &dyn Fn(&Ghost) -> bool) -> Vec<String> {
    let also = |ghost: &Ghost| match claim(ghost) {
        true => Ok(()),
        false => Err(Violation::new("claim", "refuted")),
    };
    let report = search(bounds, &also, &mut |_, _| {});
    let found = report.found.expect("the claim is false");
    assert_eq!(found.violation.property, "claim", "{}", found.violation);
    found.path
}

#[test]
fn every_state_of_two_members_with_a_crash_and_a_late_message_keeps_every_property() {
    let report = run(&small());
    assert!(report.complete && report.found.is_none(), "{report:?}");
    assert!(report.distinct > 10_000, "{report:?}");
    let again = run(&small());
    assert_eq!((report.steps, report.distinct), (again.steps, again.distinct), "deterministic");
}

#[test]
fn every_state_of_three_members_that_elect_twice_keeps_every_property() {
    let report = run(&Bounds { entries: 0, crashes: 0, flight: 4, ..Bounds::default() });
    assert!(report.complete && report.found.is_none(), "{report:?}");
    assert!(report.distinct > 100_000, "{report:?}");
}

#[test]
fn a_read_is_served_only_behind_what_was_committed_before_it() {
    let report = run(&Bounds { crashes: 0, losses: 0, reads: 1, ..small() });
    assert!(report.complete && report.found.is_none(), "{report:?}");
}

#[test]
fn the_claim_that_no_command_is_ever_committed_is_refuted_by_a_path_that_commits_one() {
    let bounds = Bounds { crashes: 0, losses: 0, ..small() };
    let path = refute(&bounds, &|ghost| ghost.commands() == 0);
    let text = path.join("\n");
    for needed in ["hears nothing", "request for votes", "given command 1", "commits to t2.i3"] {
        assert!(text.contains(needed), "{needed}:\n{text}");
    }
}

#[test]
fn the_claim_that_only_one_term_is_led_is_refuted_even_with_messages_out_of_date() {
    let bounds = Bounds { entries: 0, ..small() };
    let path = refute(&bounds, &|ghost| ghost.terms_led() < 2);
    assert!(path.iter().any(|line| line.contains("stands in t3")), "{path:#?}");
}

#[test]
fn a_bound_ends_the_search_and_the_report_says_so() {
    let report = run(&Bounds { depth: 6, ..small() });
    assert!(!report.complete && report.depth == 6, "{report:?}");
    let report = run(&Bounds { states: 500, ..small() });
    assert!(!report.complete && report.distinct > 500, "{report:?}");
}

#[test]
fn what_a_state_has_used_up_fits_its_word() {
    let spent =
        Spent { lapses: 1, entries: 2, crashes: 3, losses: 4, beats: 15, reads: 6, acted: 4 };
    assert_eq!(Spent::of(spent.word()), spent);
}

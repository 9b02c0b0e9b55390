//! The trace as text: one aligned line for each transition.
//!
//! Columns: time in seconds, node, role, term, commit, applied, durable, last, then what happened;
//! the state is the one after the transition. A down node has a dash in every column.

use super::{Item, Recording, Standing, What};

/// The line with the names of the columns.
pub const HEADER: &str =
    "      time node role           term commit applied durable    last       what";

/// The whole recording: facts, header, one line for each transition.
#[must_use]
pub fn write(recording: &Recording) -> String {
    let title = [recording.title.clone()].into_iter().filter(|title| !title.is_empty());
    let facts = recording.facts.iter().map(|(name, value)| format!("{name}: {value}"));
    let head = title.chain(facts).map(|text| format!("# {text}"));
    let lines = recording.items.iter().map(|item| line(recording, item));
    let all = head.chain([HEADER.to_owned()]).chain(lines);
    all.flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// One line.
#[must_use]
pub fn line(recording: &Recording, item: &Item) -> String {
    let (seconds, micros) = (item.at / 1_000_000, item.at % 1_000_000);
    let name = item.node.map_or("--", |node| recording.name(node));
    let state = match item.after {
        Some(Standing::Up(at)) => format!(
            "{:<14} {:<4} {:<6} {:<7} {:<10} {:<10}",
            at.role.as_str(),
            at.term.to_string(),
            at.commit.0,
            at.applied.0,
            at.durable.to_string(),
            at.last.to_string()
        ),
        Some(Standing::Forming) => format!("{:<56}", "forming"),
        Some(Standing::Down) => format!("{:<56}", "down"),
        None => " ".repeat(56),
    };
    format!("{seconds:>3}.{micros:06} {name:<4} {state} {}", what(recording, &item.what))
}

/// What happened, in one line.
pub(super) fn what(recording: &Recording, what: &What) -> String {
    let name = |node: usize| recording.name(node).to_owned();
    let text = match what {
        What::Story(text) => format!("** {text}"),
        What::Guard(decision, text) => format!("guard {}: {text}", decision.as_str()),
        What::Sent { copy, to, kind, text, fate } => {
            let fate = match fate.as_str() {
                "" => String::new(),
                word => format!(" [{word}]"),
            };
            let arrow = if fate.contains("lost") { "-x" } else { "->" };
            format!("{arrow} {} {kind} {text}{fate} m{copy}", name(*to))
        }
        What::Arrived { copy, from, kind, text } => {
            format!("<- {} {kind} {text} m{copy}", name(*from))
        }
        What::Missed { copy, from, kind } => {
            format!("x- {} {kind}: the process it was meant for is gone, m{copy}", name(*from))
        }
        What::Inside { kind, text } => match *kind {
            "dropped" | "mark" | "log-reopened" | "store-reopened" => format!("{kind}: {text}"),
            _ => text.clone(),
        },
        What::Timer => "timer".to_owned(),
        What::JobBegan { lane, kind } if lane == kind => format!("job {kind} begins"),
        What::JobBegan { lane, kind } => format!("job {kind} begins on {lane}"),
        What::JobEnded { kind, .. } => format!("job {kind} ends"),
        What::Life { text, .. } => text.clone(),
        What::Fault { kind, text, until } => {
            let until = until.map_or_else(String::new, |until| {
                format!(", until {}.{:06}", until / 1_000_000, until % 1_000_000)
            });
            format!("FAULT {kind}: {text}{until}")
        }
        What::Relief { kind, text } => format!("relief {kind}: {text}"),
        What::Cut { links } => format!("FAULT cut: {}", arrows(recording, links)),
        What::Uncut { links } => format!("relief cut: {}", arrows(recording, links)),
        What::Called { client, ticket, kind, text } => {
            let who = client.map_or_else(|| "director".to_owned(), |c| format!("client {c}"));
            format!("{who} calls c{ticket} {kind}: {text}")
        }
        What::Answered { ticket, text, .. } => format!("answers c{ticket} {text}"),
        What::GaveUp { client, ticket } => format!("client {client} gives c{ticket} up"),
        What::Read { text } => format!("read {text}"),
        What::Violated { property, evidence } => format!("VIOLATED {property}: {evidence}"),
    };
    // One transition is one line, whatever an error text holds.
    text.replace(['\n', '\r'], " ")
}

/// Links as `n1->n2`, a pair in both directions as `n1<->n2`.
pub(super) fn arrows(recording: &Recording, links: &[(usize, usize)]) -> String {
    let mut words = Vec::new();
    for &(from, to) in links {
        let (a, b) = (recording.name(from), recording.name(to));
        match links.contains(&(to, from)) {
            true if from > to => {}
            true => words.push(format!("{a}<->{b}")),
            false => words.push(format!("{a}->{b}")),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Violation;
    use crate::trace::{Fate, Position};
    use holdfast_consensus::event::RoleKind;
    use holdfast_consensus::{Index, LogId, Term};

    fn recording() -> Recording {
        let at = LogId { term: Term(2), index: Index(41) };
        let up = Standing::Up(Position {
            role: RoleKind::PreCandidate,
            term: Term(2),
            commit: Index(40),
            applied: Index(39),
            durable: at,
            last: at,
        });
        let sent = What::Sent {
            copy: 8,
            to: 1,
            kind: "Vote",
            text: "for t3".to_owned(),
            fate: Fate::Dropped,
        };
        let mut recording = Recording {
            title: "seed 1".to_owned(),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            items: vec![
                Item { at: 1_500_000, node: Some(0), what: sent, after: Some(up) },
                Item {
                    at: 2_000_001,
                    node: Some(1),
                    what: What::fault("kill", "killed\nnow"),
                    after: Some(Standing::Down),
                },
            ],
            ..Recording::default()
        };
        recording.conclude(Some(&Violation::new("progress", "nobody moves")));
        recording
    }

    #[test]
    fn columns_stand_below_their_names() {
        let text = write(&recording());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# seed 1");
        for (name, value) in [
            ("node", "n1"),
            ("role", "pre-candidate"),
            ("term", "t2"),
            ("commit", "40"),
            ("applied", "39"),
            ("durable", "t2.i41"),
            ("last", "t2.i41"),
            ("what", "-x n2 Vote for t3 [lost] m8"),
        ] {
            let at = HEADER.find(&format!(" {name}")).expect("a column") + 1;
            assert!(lines[2][at..].starts_with(value), "{name}: {}", lines[2]);
        }
        assert!(lines[2].starts_with("  1.500000 "), "{}", lines[2]);
    }

    #[test]
    fn every_transition_is_one_line_and_the_violation_is_the_last() {
        let text = write(&recording());
        assert_eq!(text.lines().count(), 2 + 3, "title, header and three transitions:\n{text}");
        let last = text.lines().last().expect("lines");
        assert!(last.ends_with("VIOLATED progress: nobody moves"), "{last}");
        assert!(last.starts_with("  2.000001 --"), "{last}");
    }
}

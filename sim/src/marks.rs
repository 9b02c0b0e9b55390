//! What a run went through: the marks of the product, and the rarer of its events.

use holdfast_consensus::event::{Event, StepDown};

/// Names of the events that are counted like marks, in the order of the alphabet.
pub const EVENTS: &[&str] = &[
    "event-damaged",
    "event-headroom-low",
    "event-held",
    "event-installed",
    "event-log-reopened",
    "event-repaired",
    "event-snapshot-failed",
    "event-snapshot-transfer-failed",
    "event-stepped-down-damaged",
    "event-stepped-down-higher-term",
    "event-stepped-down-lost-quorum",
    "event-stepped-down-no-space",
    "event-stepped-down-write-failed",
    "event-stepped-down-write-stalled",
    "event-store-reopened",
    "event-truncated",
];

/// The mark that an event hits, if any.
#[must_use]
pub const fn mark_of(event: &Event) -> Option<&'static str> {
    Some(match event {
        Event::Mark(mark) | Event::Dropped { reason: mark } => mark,
        Event::Headroom { low: true } => "event-headroom-low",
        Event::Installed { .. } => "event-installed",
        Event::LogReopened { .. } => "event-log-reopened",
        Event::SnapshotFailed { .. } => "event-snapshot-failed",
        Event::TransferEnded { ok: false, .. } => "event-snapshot-transfer-failed",
        Event::SteppedDown { why, .. } => match why {
            StepDown::HigherTerm => "event-stepped-down-higher-term",
            StepDown::LostQuorum => "event-stepped-down-lost-quorum",
            StepDown::WriteFailed => "event-stepped-down-write-failed",
            StepDown::NoSpace => "event-stepped-down-no-space",
            StepDown::WriteStalled => "event-stepped-down-write-stalled",
            StepDown::Damaged => "event-stepped-down-damaged",
            _ => return None,
        },
        Event::StoreReopened { .. } => "event-store-reopened",
        Event::Truncated { .. } => "event-truncated",
        Event::Damaged { .. } => "event-damaged",
        Event::Repaired { .. } => "event-repaired",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::event::Cut;
    use holdfast_consensus::{Index, Term};

    #[test]
    fn events_and_marks_have_declared_names() {
        let events = [
            Event::Headroom { low: true },
            Event::LogReopened { fault: String::new() },
            Event::SteppedDown { term: Term(1), why: StepDown::LostQuorum },
            Event::Truncated { from: Index(1), last: Index(2), why: Cut::Replaced },
            Event::Damaged { first: Index(1), last: Index(2), count: 2 },
            Event::Repaired { count: 2, left: 0 },
            Event::SteppedDown { term: Term(1), why: StepDown::Damaged },
        ];
        for event in &events {
            let mark = mark_of(event).expect("it is counted");
            assert!(EVENTS.contains(&mark), "{mark}");
        }
        assert_eq!(mark_of(&Event::Dropped { reason: "why" }), Some("why"));
        assert_eq!(mark_of(&Event::Headroom { low: false }), None);
        assert!(EVENTS.is_sorted());
    }
}

//! Leader completeness: a leader holds every entry that was committed in an earlier term (Raft
//! figure 3).

use super::commit_safety::Committed;
use super::log_matching::History;
use super::{Verdict, Violation};
use holdfast_consensus::{LogId, Term};

/// Name of the property.
pub const PROPERTY: &str = "leader-completeness";

/// A member became leader of `term` with a log that ends at `last`.
///
/// # Errors
/// If something committed in an earlier term is missing in it.
pub fn on_leader(
    who: &str,
    term: Term,
    last: LogId,
    committed: &Committed,
    history: &History,
) -> Verdict {
    let known = committed.last();
    // Somebody may lead a later term already and have committed there.
    if known.term >= term || history.chain(known, last).is_some() {
        return Ok(());
    }
    Err(Violation::new(
        PROPERTY,
        format!(
            "{who} leads term {term} with a log that ends at {last} and lacks {known}, which is committed"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::{Body, Entry};

    #[test]
    fn a_leader_without_a_committed_entry_is_seen() {
        let mut history = History::default();
        for (prev, id) in [((0, 0), (1, 1)), ((1, 1), (1, 2)), ((1, 1), (2, 2))] {
            let entry = Entry { id: LogId::new(id.0, id.1), time: 0, body: Body::Blank };
            history.on_entry("x", LogId::new(prev.0, prev.1), &entry).expect("new");
        }
        let mut committed = Committed::default();
        committed.on_commit("a", LogId::new(1, 2), &history).expect("fine");
        let check = |last| on_leader("b", Term(3), last, &committed, &history);
        assert_eq!(check(LogId::new(1, 2)), Ok(()));
        assert!(check(LogId::new(1, 1)).is_err(), "too short");
        assert!(check(LogId::new(2, 2)).is_err(), "another branch");
    }
}

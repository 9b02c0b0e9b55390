//! Linearizability of the metastore's keys: every write and every read behind a barrier took effect
//! at one moment between its beginning and its end (Herlihy and Wing 1990; dissertation 6.3, 6.4).
//! Two judges that look at what clients saw and at nothing else: plain comparisons of times
//! ([`oracle`]), and the search ([`search`]).

use super::{Verdict, Violation};
use crate::history::search::{self, Outcome};
use crate::history::{History, oracle};

/// Name of the property as the plain judge finds it.
pub const ORACLE: &str = "unique-values";
/// Name of the property as the search finds it.
pub const PROPERTY: &str = "linearizability";

/// Situations that the search may look at for each key: far more than the histories of a run need.
const EFFORT: u64 = 200_000;

/// The plain judge.
///
/// # Errors
/// The lie.
pub fn plain(history: &History) -> Verdict {
    oracle::lie(history).map_or(Ok(()), |lie| Err(Violation::new(ORACLE, lie)))
}

/// The search. A history that is too much for it passes.
///
/// # Errors
/// The operation that has no moment.
pub fn searched(history: &History) -> Verdict {
    match search::check(history, EFFORT, &mut |_| {}) {
        Outcome::Linearizable | Outcome::Undecided => Ok(()),
        Outcome::Fails(failure) => {
            let possible: Vec<&str> =
                failure.possible.iter().map(|v| history.values.text(v.0)).collect();
            let instead = match possible.is_empty() {
                true => String::new(),
                false => format!("; possible: {}", possible.join(", ")),
            };
            Err(Violation::new(
                PROPERTY,
                format!(
                    "{} (from {} to {}) has no moment{instead}",
                    history.describe(&failure.operation),
                    failure.operation.begun,
                    failure.position
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::recorder::Recorder;
    use crate::history::{Action, NOTHING};

    #[test]
    fn both_judges_see_a_stale_read() {
        let mut recorder = Recorder::default();
        let (a, b) = (recorder.value(Some(b"a")), recorder.value(Some(b"b")));
        for value in [a, b] {
            recorder.begin(1, b"k", Action::Write(value));
            recorder.ok(1, None);
        }
        recorder.begin(2, b"k", Action::Read(NOTHING));
        let mut honest = recorder.clone();
        honest.ok(2, Some(Action::Read(b)));
        assert_eq!(plain(&honest.history()), Ok(()));
        assert_eq!(searched(&honest.history()), Ok(()));
        recorder.ok(2, Some(Action::Read(a)));
        assert!(plain(&recorder.history()).is_err());
        let seen = searched(&recorder.history()).expect_err("stale");
        assert!(seen.evidence.ends_with("possible: b~1"), "{seen}");
    }
}

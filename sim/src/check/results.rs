//! Honest results: an acknowledged call is committed where its answer says, its answer is what the
//! committed log yields there, and a command of a session is executed exactly once, however often
//! it was sent (dissertation 6.3; R26). `not committed` is never said of what takes effect.

use super::commit_safety::Committed;
use super::model::Model;
use super::{Verdict, Violation};
use bytes::Bytes;
use holdfast_consensus::LogId;
use holdfast_fsm::{Answer, SessionRef};

/// Name of the property.
pub const PROPERTY: &str = "honest-results";

/// An acknowledged call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Who answered whom.
    pub who: String,
    /// Where the answer says that the command stands.
    pub at: LogId,
    /// The answer's bytes.
    pub result: Bytes,
    /// Session and sequence, if any.
    pub by: Option<SessionRef>,
}

/// Checks an acknowledged call against the committed log; `false` if that does not reach it yet.
///
/// # Errors
/// If another entry was committed there, or the answer is not what the log yields.
pub fn check(acked: &Acked, committed: &Committed, model: &Model) -> Result<bool, Violation> {
    if acked.at.index > model.applied() {
        return Ok(false);
    }
    committed.agrees(&acked.who, acked.at).map_err(|v| Violation::new(PROPERTY, v.evidence))?;
    let Ok(answer) = Answer::decode(&acked.result) else {
        return Err(violation(acked, format!("the answer {:?} does not decode", acked.result)));
    };
    match model.answer_at(acked.at.index) {
        Some(expected) if *expected == answer => {}
        other => {
            return Err(violation(acked, format!("answered {answer:?}, the log yields {other:?}")));
        }
    }
    if let Some(by) = acked.by {
        let refused = matches!(answer, Answer::SessionExpired | Answer::StaleSequence { .. });
        if refused || model.executed_at(by).is_none_or(|at| at > acked.at.index) {
            return Err(violation(acked, format!("{by:?} was answered {answer:?}, not executed")));
        }
    }
    Ok(true)
}

/// A call was answered `not committed` and never sent again under this session and sequence.
///
/// # Errors
/// If it was executed all the same.
pub fn check_refused(who: &str, by: SessionRef, model: &Model) -> Verdict {
    match model.executed_at(by) {
        Some(at) => Err(Violation::new(
            PROPERTY,
            format!("{who}: {by:?} was answered `not committed` and was executed at {at}"),
        )),
        None => Ok(()),
    }
}

fn violation(acked: &Acked, why: String) -> Violation {
    Violation::new(PROPERTY, format!("{} at {}: {why}", acked.who, acked.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::log_matching::History;
    use holdfast_consensus::{Body, Entry};
    use holdfast_fsm::Command;

    fn world() -> (Committed, Model) {
        let (mut history, mut committed, mut model) =
            (History::default(), Committed::default(), Model::default());
        let by = SessionRef { client: 1, sequence: 1 };
        let commands = [
            Command::RegisterSession.encode(None),
            Command::KvPut { key: "k".into(), value: "v".into() }.encode(Some(by)),
        ];
        let mut prev = LogId::default();
        for (index, command) in (1..).zip(commands) {
            let body = Body::Command(command.expect("encodes"));
            let entry = Entry { id: LogId::new(1, index), time: 0, body };
            history.on_entry("a", prev, &entry).expect("new");
            prev = entry.id;
        }
        for entry in committed.on_commit("a", prev, &history).expect("fine") {
            model.apply(&entry);
        }
        (committed, model)
    }

    fn acked(term: u64, index: u64, answer: &Answer, sequence: u64) -> Acked {
        Acked {
            who: "n1".into(),
            at: LogId::new(term, index),
            result: answer.encode(),
            by: Some(SessionRef { client: 1, sequence }),
        }
    }

    #[test]
    fn a_false_answer_is_seen() {
        let (committed, model) = world();
        let check = |a: &Acked| check(a, &committed, &model);
        assert_eq!(check(&acked(1, 2, &Answer::KvStored, 1)), Ok(true));
        assert_eq!(check(&acked(1, 3, &Answer::KvStored, 2)), Ok(false), "not known yet");
        assert!(check(&acked(2, 2, &Answer::KvStored, 1)).is_err(), "another entry is there");
        assert!(check(&acked(1, 2, &Answer::KvDeleted, 1)).is_err(), "another answer");
        assert!(check(&acked(1, 2, &Answer::KvStored, 2)).is_err(), "it was never executed");
    }

    #[test]
    fn a_refused_command_that_takes_effect_is_seen() {
        let (_, model) = world();
        assert!(check_refused("n1", SessionRef { client: 1, sequence: 1 }, &model).is_err());
        assert_eq!(check_refused("n1", SessionRef { client: 1, sequence: 2 }, &model), Ok(()));
    }
}

//! Takes down what clients saw, as a history of registers: every write from its first attempt to
//! its last answer (retries go under one session and sequence, so it is one operation), and every
//! read that followed a barrier.

use super::{Action, End, History, NOTHING, Operation, Value};
use std::collections::BTreeMap;

/// The history so far.
#[derive(Clone, Debug)]
pub struct Recorder {
    history: History,
    open: BTreeMap<u32, Operation>,
    position: usize,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { history: History::new(), open: BTreeMap::new(), position: 0 }
    }
}

impl Recorder {
    /// The name of a value; `None` is nothing. Padding (dots at the end) only counts by its length.
    pub fn value(&mut self, value: Option<&[u8]>) -> Value {
        let Some(bytes) = value else { return NOTHING };
        let text = String::from_utf8_lossy(bytes);
        let short = text.trim_end_matches('.');
        Value(self.history.values.of(&format!("{short}~{}", bytes.len())))
    }

    /// A process begins an operation on a register; one that was open stays open for ever. What a
    /// read returns is told at its end.
    pub fn begin(&mut self, process: u32, key: &[u8], action: Action) {
        self.abandon(process);
        let key = self.history.keys.of(&String::from_utf8_lossy(key));
        let name = self.history.processes.of(&process.to_string());
        let begun = self.tick();
        self.open.insert(process, Operation { process: name, key, action, begun, end: End::Open });
    }

    /// The operation of a process took effect, as `action` if it turned out to be another than it
    /// began as (a compare-and-set that missed is a read).
    pub fn ok(&mut self, process: u32, action: Option<Action>) {
        let at = self.tick();
        if let Some(mut operation) = self.open.remove(&process) {
            operation.action = action.unwrap_or(operation.action);
            operation.end = End::Ok(at);
            self.history.operations.push(operation);
        }
    }

    /// The operation of a process never took effect.
    pub fn fail(&mut self, process: u32) {
        let at = self.tick();
        if let Some(mut operation) = self.open.remove(&process) {
            operation.end = End::Fail(at);
            self.push(operation);
        }
    }

    /// Nobody will learn what became of the operation of a process.
    pub fn abandon(&mut self, process: u32) {
        if let Some(operation) = self.open.remove(&process) {
            self.push(operation);
        }
    }

    fn push(&mut self, operation: Operation) {
        // A read that returned nothing says nothing.
        if operation.action.produces().is_some() {
            self.history.operations.push(operation);
        }
    }

    fn tick(&mut self) -> usize {
        self.position += 1;
        self.position
    }

    /// The history as it stands: what is open is of unknown outcome.
    #[must_use]
    pub fn history(&self) -> History {
        let mut so_far = self.clone();
        for process in self.open.keys() {
            so_far.abandon(*process);
        }
        so_far.history.operations.sort_by_key(|operation| operation.begun);
        so_far.history
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::search::{Outcome, check};

    #[test]
    fn operations_are_taken_down_as_they_turned_out() {
        let mut recorder = Recorder::default();
        let a = recorder.value(Some(b"a..."));
        assert_eq!(recorder.value(Some(b"a...")), a);
        assert_ne!(recorder.value(Some(b"a..")), a);
        recorder.begin(1, b"k", Action::Write(a));
        recorder.begin(2, b"k", Action::Cas { expected: NOTHING, value: Value(9) });
        recorder.ok(2, Some(Action::Read(a)));
        recorder.begin(2, b"k", Action::Read(NOTHING));
        recorder.fail(2);
        let history = recorder.history();
        let ends: Vec<End> = history.operations.iter().map(|o| o.end).collect();
        assert_eq!(ends, [End::Open, End::Ok(3)], "the failed read is left out");
        assert_eq!(check(&history, 1000, &mut |_| {}), Outcome::Linearizable);
        recorder.fail(1);
        let lied = recorder.history();
        assert!(matches!(check(&lied, 1000, &mut |_| {}), Outcome::Fails(_)));
    }
}

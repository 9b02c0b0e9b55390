//! Plain lies, found without a search, in histories whose writes have values of their own: an
//! observation names its write, so each rule is a comparison of times. Weaker than the search (it
//! looks at two or three operations at a time) and simpler: each judges the other.

use super::{Action, End, History, NOTHING, Operation, Value};
use std::collections::BTreeMap;

/// The first lie found, in words.
///
/// - *phantom*: a value that nobody had begun to write when it was observed;
/// - *undone*: a value whose write was said to have never taken effect;
/// - *stale*: a value that another completed write had replaced before the observation began;
/// - *lost*: nothing, although a completed write was there and no deletion could have come after;
/// - *backwards*: an older value after a newer one had been observed.
#[must_use]
pub fn lie(history: &History) -> Option<String> {
    let mut keys: BTreeMap<u32, Vec<&Operation>> = BTreeMap::new();
    for operation in &history.operations {
        keys.entry(operation.key).or_default().push(operation);
    }
    keys.into_values().find_map(|operations| Register::new(history, operations).lie())
}

struct Register<'a> {
    history: &'a History,
    operations: Vec<&'a Operation>,
    /// Who writes a value; absent if more than one does.
    writers: BTreeMap<Value, Option<&'a Operation>>,
}

/// True if the first was over before the second began.
fn before(first: &Operation, second: &Operation) -> bool {
    matches!(first.end, End::Ok(at) if at < second.begun)
}

impl<'a> Register<'a> {
    fn new(history: &'a History, operations: Vec<&'a Operation>) -> Self {
        let mut writers: BTreeMap<Value, Option<&Operation>> = BTreeMap::new();
        for operation in &operations {
            if let Some(value) = operation.action.produces().filter(|value| *value != NOTHING) {
                let known = writers.contains_key(&value);
                writers.insert(value, (!known).then_some(*operation));
            }
        }
        Self { history, operations, writers }
    }

    fn lie(&self) -> Option<String> {
        let mut newest: Vec<(&Operation, &Operation)> = Vec::new();
        for operation in &self.operations {
            let (End::Ok(ended), Some(value)) = (operation.end, operation.action.observes()) else {
                continue;
            };
            if value == NOTHING {
                if let Some(lost) = self.lost(operation, ended) {
                    return Some(self.tell(operation, "lost", &[lost]));
                }
                continue;
            }
            let writer = match self.writers.get(&value) {
                None => return Some(self.tell(operation, "phantom", &[])),
                Some(None) => continue,
                Some(Some(writer)) => *writer,
            };
            if writer.begun > ended {
                return Some(self.tell(operation, "phantom", &[writer]));
            }
            if matches!(writer.end, End::Fail(_)) {
                return Some(self.tell(operation, "undone", &[writer]));
            }
            let replaced = |w: &&&Operation| {
                w.action.produces().is_some() && before(writer, w) && before(w, operation)
            };
            if let Some(newer) = self.operations.iter().find(replaced) {
                return Some(self.tell(operation, "stale", &[writer, newer]));
            }
            let older = |(seen, by): &&(&Operation, &Operation)| {
                before(seen, operation) && before(writer, by)
            };
            if let Some((seen, by)) = newest.iter().find(older) {
                return Some(self.tell(operation, "backwards", &[writer, by, seen]));
            }
            newest.push((operation, writer));
        }
        None
    }

    /// A completed write that nothing can have deleted before `observer` found nothing.
    fn lost(&self, observer: &Operation, ended: usize) -> Option<&'a Operation> {
        let stays = |write: &&&'a Operation| {
            let deletes = |d: &&&Operation| {
                d.action.produces() == Some(NOTHING)
                    && !matches!(d.end, End::Fail(_))
                    && d.begun < ended
                    && !before(d, write)
            };
            write.action.produces().is_some_and(|value| value != NOTHING)
                && before(write, observer)
                && !self.operations.iter().any(|d| deletes(&d))
        };
        self.operations.iter().find(stays).copied()
    }

    fn tell(&self, observer: &Operation, lie: &str, others: &[&Operation]) -> String {
        let span = |o: &Operation| {
            let end = match o.end {
                End::Ok(at) => format!("to {at}"),
                End::Fail(at) => format!("to {at}, where it failed"),
                End::Open => "on, outcome unknown".into(),
            };
            format!("{} (from {} {end})", self.history.describe(o), o.begun)
        };
        let others: Vec<String> = others.iter().map(|o| span(o)).collect();
        let what = match observer.action {
            Action::Read(_) | Action::Write(_) => "",
            Action::Cas { .. } => "matched what it expected, ",
        };
        format!("{lie}: {what}{}; against it: {}", span(observer), others.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Value = Value(1);
    const B: Value = Value(2);

    fn lie_of(operations: &[(Action, usize, End)]) -> Option<String> {
        let operation = |(action, begun, end): &(Action, usize, End)| Operation {
            process: 0,
            key: 0,
            action: *action,
            begun: *begun,
            end: *end,
        };
        let operations = operations.iter().map(operation).collect();
        let lie = lie(&History { operations, ..History::new() })?;
        lie.split_once(':').map(|(word, _)| word.to_owned())
    }

    fn write(value: Value, begun: usize, ended: usize) -> (Action, usize, End) {
        (Action::Write(value), begun, End::Ok(ended))
    }

    fn read(value: Value, begun: usize) -> (Action, usize, End) {
        (Action::Read(value), begun, End::Ok(begun + 1))
    }

    #[test]
    fn each_lie_is_told_from_its_honest_twin() {
        let says = |operations: &[(Action, usize, End)]| lie_of(operations).unwrap_or_default();
        assert_eq!(says(&[read(A, 1)]), "phantom");
        assert_eq!(says(&[read(A, 1), write(A, 3, 4)]), "phantom");
        assert_eq!(says(&[write(A, 1, 4), read(A, 2)]), "");
        let failed = (Action::Write(A), 1, End::Fail(2));
        assert_eq!(says(&[failed, read(A, 3)]), "undone");
        assert_eq!(says(&[(Action::Write(A), 1, End::Open), read(A, 3)]), "");
        assert_eq!(says(&[write(A, 1, 2), write(B, 3, 4), read(A, 5)]), "stale");
        assert_eq!(says(&[write(A, 1, 2), write(B, 3, 9), read(A, 5)]), "");
        assert_eq!(says(&[write(A, 1, 2), read(NOTHING, 3)]), "lost");
        assert_eq!(says(&[write(A, 1, 2), write(NOTHING, 3, 9), read(NOTHING, 4)]), "");
        assert_eq!(says(&[write(NOTHING, 1, 2), write(A, 3, 4), read(NOTHING, 5)]), "lost");
        let seen = [write(A, 1, 2), write(B, 3, 20), read(B, 5), read(A, 7)];
        assert_eq!(says(&seen), "backwards");
        assert_eq!(says(&[write(A, 1, 2), write(B, 3, 20), read(A, 5), read(B, 7)]), "");
    }

    #[test]
    fn a_compare_and_set_observes_too() {
        let cas = (Action::Cas { expected: A, value: Value(3) }, 5, End::Ok(6));
        assert_eq!(lie_of(&[write(A, 1, 2), cas]), None);
        let stale = lie_of(&[write(A, 1, 2), write(B, 3, 4), cas]);
        assert_eq!(stale.as_deref(), Some("stale"));
    }
}

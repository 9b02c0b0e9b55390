//! The search against a judge that tries every order: on thousands of tiny histories both say the
//! same, and the shortest failing prefix is the shortest.

use super::search::{Outcome, check};
use super::{Action, End, History, NOTHING, Operation, Value};
use proptest::prelude::*;

/// Every order of every choice of operations: the definition itself.
fn brute(operations: &[Operation]) -> bool {
    fn go(left: &[Operation], state: Value) -> bool {
        let must = |o: &Operation| matches!(o.end, End::Ok(_));
        if !left.iter().any(must) {
            return true;
        }
        for (n, o) in left.iter().enumerate() {
            // Nothing may come before it that is left and ended before it began.
            let too_early = left.iter().any(|p| must(p) && p.ended() < Some(o.begun));
            let fits = o.action.observes().is_none_or(|value| value == state);
            if too_early || !fits || matches!(o.end, End::Fail(_)) {
                continue;
            }
            let mut rest = left.to_vec();
            rest.remove(n);
            if go(&rest, o.action.produces().unwrap_or(state)) {
                return true;
            }
        }
        false
    }
    go(operations, NOTHING)
}

/// As it was known at a position.
fn known(operations: &[Operation], until: usize) -> Vec<Operation> {
    (operations.iter().filter(|o| o.begun <= until))
        .map(|o| match o.ended() {
            Some(at) if at > until => Operation { end: End::Open, ..*o },
            _ => *o,
        })
        .collect()
}

fn shortest(operations: &[Operation]) -> Option<usize> {
    let mut ends: Vec<usize> = operations.iter().filter_map(Operation::ended).collect();
    ends.sort_unstable();
    ends.into_iter().find(|end| !brute(&known(operations, *end)))
}

/// A beginning: process, kind, two values, and how it ends.
type Raw = (usize, u8, u8, u8, u8);

/// Turns raw numbers into a history of few processes: each number begins an operation of its
/// process if none is open there, or ends the open one.
fn history(raw: &[Raw], values: u8) -> Vec<Operation> {
    let mut done: Vec<Operation> = Vec::new();
    let mut open: [Option<Operation>; 4] = [None; 4];
    for (at, (process, kind, a, b, end)) in raw.iter().copied().enumerate() {
        let process = process % open.len();
        let value = |v: u8| Value(u32::from(v % values));
        match open[process].take() {
            None => {
                let action = match kind % 5 {
                    0 | 1 => Action::Read(value(a)),
                    2 | 3 => Action::Write(value(a.max(1))),
                    _ => Action::Cas { expected: value(a), value: value(b) },
                };
                let process = u32::try_from(process).expect("few");
                let end = End::Open;
                open[process as usize] =
                    Some(Operation { process, key: 0, action, begun: at, end });
            }
            Some(operation) => {
                let end = match end % 6 {
                    0 => End::Fail(at),
                    1 => End::Open,
                    _ => End::Ok(at),
                };
                done.push(Operation { end, ..operation });
            }
        }
    }
    done.extend(open.into_iter().flatten());
    // A read says something only if it returned.
    done.retain(|o| !matches!(o.action, Action::Read(_)) || matches!(o.end, End::Ok(_)));
    done.sort_by_key(|o| o.begun);
    done
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_search_agrees_with_every_order_tried(
        raw in prop::collection::vec((0usize..4, any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>()), 2..17),
        values in 2u8..5,
    ) {
        let operations = history(&raw, values);
        let expected = shortest(&operations);
        let judged = check(&History { operations, ..History::new() }, 1 << 22, &mut |_| {});
        let found = match judged {
            Outcome::Linearizable => None,
            Outcome::Fails(failure) => Some(failure.position),
            Outcome::Undecided => return Err(TestCaseError::fail("undecided")),
        };
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn the_judge_itself_says_both() {
    let op = |action, begun, end| Operation { process: 0, key: 0, action, begun, end };
    let (a, b) = (Value(1), Value(2));
    let mut history = vec![
        op(Action::Write(a), 0, End::Ok(1)),
        op(Action::Write(b), 2, End::Open),
        op(Action::Read(b), 3, End::Ok(4)),
    ];
    assert!(brute(&history));
    history.push(op(Action::Read(a), 5, End::Ok(6)));
    assert_eq!(shortest(&history), Some(6));
}

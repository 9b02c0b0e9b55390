use super::*;
use holdfast_consensus::{HardState, MemberId, Term};

fn at(index: u64) -> EntryAt {
    EntryAt {
        segment: 1,
        offset: 4096 + index * 64,
        size: 64,
        weight: 64,
        crc: 0,
        term: Term(0),
        time: index * 10,
    }
}

fn voters(n: u64) -> Membership {
    Membership::of_voters((1..=n).map(|i| (MemberId(i), format!("n{i}"))))
}

/// Entries 1..=9 of terms 1, 1, 1, 2, 2, 2, 3, 3, 3; configurations at 1 and 5.
fn nine() -> State {
    let mut state = State::default();
    for index in 1..=9u64 {
        let membership = match index {
            1 => Some(voters(1)),
            5 => Some(voters(2)),
            _ => None,
        };
        state.append(LogId::new(index.div_ceil(3), index), at(index), membership).unwrap();
    }
    state
}

#[test]
fn identities_come_from_the_runs_of_terms() {
    let state = nine();
    assert_eq!(state.terms, [LogId::new(1, 1), LogId::new(2, 4), LogId::new(3, 7)]);
    assert_eq!(state.id_at(Index(0)), Some(LogId::default()));
    assert_eq!(state.id_at(Index(6)), Some(LogId::new(2, 6)));
    assert_eq!(state.id_at(Index(7)), Some(LogId::new(3, 7)));
    assert_eq!(state.id_at(Index(10)), None);
}

#[test]
fn what_does_not_follow_is_refused() {
    let mut state = nine();
    assert!(state.append(LogId::new(3, 11), at(11), None).is_err(), "gap");
    assert!(state.append(LogId::new(2, 10), at(10), None).is_err(), "lower term");
    assert!(state.append(LogId::new(3, 10), at(1), None).is_err(), "time goes back");
    assert!(state.truncate(Index(11)).is_err(), "cut behind the end");
    state.compact(Index(3));
    assert!(state.truncate(Index(3)).is_err(), "cut below the base");
    assert_eq!(state.last, LogId::new(3, 9));
}

#[test]
fn a_cut_rolls_back_terms_configurations_and_time() {
    let mut state = nine();
    state.truncate(Index(5)).unwrap();
    assert_eq!((state.last, state.time), (LogId::new(2, 4), 40));
    assert_eq!(state.terms, [LogId::new(1, 1), LogId::new(2, 4)]);
    assert_eq!(state.memberships, [(Index(1), voters(1))]);
    state.truncate(Index(1)).unwrap();
    assert_eq!((state.last, state.time), (LogId::default(), 0));
    assert!(state.memberships.is_empty() && state.terms.is_empty());
}

#[test]
fn a_compaction_keeps_the_run_and_the_configuration_in_force() {
    let mut state = nine();
    state.compact(Index(5));
    assert_eq!((state.base, state.base_time, state.first()), (LogId::new(2, 5), 50, Index(6)));
    assert_eq!(state.terms, [LogId::new(2, 6), LogId::new(3, 7)]);
    assert_eq!(state.memberships, [(Index(5), voters(2))]);
    state.compact(Index(9));
    assert_eq!((state.base, state.last), (LogId::new(3, 9), LogId::new(3, 9)));
    assert!(state.terms.is_empty() && state.entries.len() == 0);
    state.compact(Index(4));
    assert_eq!(state.base, LogId::new(3, 9), "a base never goes back");
}

#[test]
fn a_base_keeps_a_matching_suffix_and_drops_any_other() {
    let label = |term, index| SnapshotMeta {
        last: LogId::new(term, index),
        time: index * 10,
        membership: voters(3),
        membership_index: Index(2),
        ..SnapshotMeta::default()
    };
    let mut kept = nine();
    assert!(kept.keeps_suffix(LogId::new(2, 5)));
    kept.rebase(&label(2, 5), true).unwrap();
    assert_eq!((kept.base, kept.last), (LogId::new(2, 5), LogId::new(3, 9)));
    assert_eq!(kept.memberships, [(Index(2), voters(3))]);
    assert_eq!(kept.terms, [LogId::new(2, 6), LogId::new(3, 7)]);
    kept.rebase(&label(1, 3), true).unwrap();
    assert_eq!(kept.base, LogId::new(2, 5), "an older base changes nothing");

    let mut cut = nine();
    assert!(!cut.keeps_suffix(LogId::new(3, 5)));
    cut.rebase(&label(3, 5), false).unwrap();
    assert_eq!((cut.base, cut.last, cut.time), (LogId::new(3, 5), LogId::new(3, 5), 50));
    cut.append(LogId::new(3, 6), at(6), None).unwrap();
    assert_eq!(cut.terms, [LogId::new(3, 6)]);
}

#[test]
fn a_fresh_segment_repeats_the_state_at_its_beginning() {
    let mut state = nine();
    state.boot = 4;
    state.hard = HardState { term: Term(3), voted_for: None };
    let meta = state.meta_at(LogId::new(2, 4));
    assert_eq!((meta.boot, meta.time), (4, 40));
    assert_eq!(meta.membership, Some((Index(1), voters(1))));
}

/// BUGS B33: what is measured is the room, not the length.
#[test]
fn compaction_gives_back_the_room_of_a_long_log() {
    let mut state = State::default();
    for index in 1..=100_000 {
        state.append(LogId::new(1, index), at(index), None).unwrap();
    }
    let mut table = crate::reader::Table::<()>::of(&state, &BTreeMap::new());
    assert!(state.entries.room() >= 100_000);
    assert!(table.entries.room() >= 100_000);
    state.compact(Index(99_990));
    table.compact(state.first(), 1);
    assert_eq!((state.entries.len(), table.entries.len()), (10, 10));
    assert_eq!(state.entry(Index(99_991)), Some(&at(99_991)));
    assert!(state.entries.room() <= 8192, "{}", state.entries.room());
    assert!(table.entries.room() <= 8192, "{}", table.entries.room());
    // A log that is about as long as ever keeps its room.
    let mut steady = nine();
    let room = steady.entries.room();
    steady.compact(Index(3));
    assert_eq!(steady.entries.room(), room);
}

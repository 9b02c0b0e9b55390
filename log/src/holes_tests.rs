use super::*;
use holdfast_consensus::Micros;

fn at(term: u64, offset: u64) -> EntryAt {
    let (weight, time): (u32, Micros) = (1, 0);
    EntryAt { segment: 1, offset, size: 64, weight, crc: 0, term: Term(term), time }
}

/// Entries of these terms, from index 1 on.
fn state(terms: &[u64]) -> State {
    let mut state = State::default();
    for (n, term) in terms.iter().enumerate() {
        let index = n as u64 + 1;
        state.append(LogId::new(*term, index), at(*term, index), None).unwrap();
    }
    state
}

fn unknown(state: &State) -> Vec<u64> {
    state.holes.iter().filter(|(_, known)| !**known).map(|(index, _)| index.0).collect()
}

const HEADER: SegmentHeader = SegmentHeader {
    unique: 1,
    owner: crate::segment::Owner {
        member: holdfast_consensus::MemberId(1),
        group: 0,
        cluster: holdfast_consensus::ClusterId(0),
        epoch: 0,
    },
    first: Index(1),
    prev: LogId { term: Term(0), index: Index(0) },
    join: crate::segment::Join { unique: 0, end: 0, chain: 0 },
    copied: None,
    bytes: 0,
    boot: 0,
    previous: crate::segment::Previous {
        first: Index(0),
        prev: LogId { term: Term(0), index: Index(0) },
        join: crate::segment::Join { unique: 0, end: 0, chain: 0 },
    },
    reused: false,
};

#[test]
fn behind_an_unknown_place_only_what_nothing_can_have_cut_is_believed() {
    // The same term goes on: whoever has the later entry has the earlier ones.
    let mut same = state(&[1, 1, 2]);
    same.gap(&HEADER, Resume::at(LogId::new(2, 5))).unwrap();
    assert_eq!((unknown(&same), same.last), (vec![4, 5], LogId::new(2, 5)));
    // Another term: entries 2 and 3 may have been replaced by others of terms up to 3.
    let mut other = state(&[1, 2, 2]);
    other.commit = Index(1);
    other.gap(&HEADER, Resume::at(LogId::new(3, 4))).unwrap();
    assert_eq!((unknown(&other), other.last), (vec![2, 3, 4], LogId::new(3, 4)));
    // Nothing can have cut below the first index of the segment.
    let mut cut = state(&[1, 2, 2]);
    let header = SegmentHeader { first: Index(3), ..HEADER };
    cut.gap(&header, Resume::at(LogId::new(3, 4))).unwrap();
    assert_eq!(unknown(&cut), [3, 4]);
    // The log ended where it was: nothing is missing.
    let mut none = state(&[1, 2, 2]);
    none.gap(&HEADER, Resume::at(LogId::new(2, 3))).unwrap();
    assert_eq!((unknown(&none), none.last), (vec![], LogId::new(2, 3)));
    // It was cut within the damage, and ended below.
    let mut shorter = state(&[1, 1, 2, 2]);
    shorter.gap(&HEADER, Resume::at(LogId::new(1, 2))).unwrap();
    assert_eq!((unknown(&shorter), shorter.last), (vec![], LogId::new(1, 2)));
    // Known commits are never cut (R18): this contradicts itself.
    let mut wrong = state(&[1, 1, 2]);
    wrong.commit = Index(3);
    assert!(wrong.gap(&HEADER, Resume::at(LogId::new(2, 2))).is_err());
    let mut far = state(&[1]);
    assert!(far.gap(&HEADER, Resume::at(LogId::new(1, 1 << 40))).is_err());
}

#[test]
fn an_entry_behind_an_unknown_place_says_only_how_far_the_log_reached() {
    let mut state = state(&[1, 1]);
    state.gap(&HEADER, Resume::before(LogId::new(2, 5))).unwrap();
    assert_eq!(unknown(&state), [1, 2, 3, 4], "an uncommitted start may have been replaced");
    state.append(LogId::new(2, 5), at(2, 9), None).unwrap();
    assert_eq!(state.known_terms(), [LogId::new(2, 5)]);
    assert!(state.unproved().is_none());
    let mut open = state.clone();
    open.truncate(Index(5)).unwrap();
    assert!(open.unproved().is_some(), "it ends with an entry that nobody knows");
}

#[test]
fn a_hole_takes_only_what_it_may_have_held() {
    let mut state = state(&[1, 1]);
    state.commit = Index(2);
    state.gap(&HEADER, Resume::before(LogId::new(3, 5))).unwrap();
    state.append(LogId::new(3, 5), at(3, 9), None).unwrap();
    assert_eq!(unknown(&state), [3, 4]);
    assert!(state.misfit(LogId::new(4, 3), 0).is_some());
    assert!(state.misfit(LogId::new(0, 3), 0).is_some());
    state.fill(LogId::new(2, 3), at(2, 7), None).unwrap();
    assert_eq!(state.known_terms(), [LogId::new(1, 1), LogId::new(2, 3), LogId::new(3, 5)]);
    assert!(state.misfit(LogId::new(1, 4), 0).is_some(), "terms never fall");
    state.fill(LogId::new(3, 4), at(3, 8), None).unwrap();
    assert_eq!(state.known_terms(), [LogId::new(1, 1), LogId::new(2, 3), LogId::new(3, 4)]);
    assert!(state.holes.is_empty() && state.entries.from(0).all(|e| !e.is_hole()));
}

#[test]
fn a_known_hole_takes_its_own_entry_only() {
    let mut state = state(&[1]);
    state.append_lost(1, LogId::new(1, 2), 77).unwrap();
    state.append(LogId::new(1, 3), at(1, 9), None).unwrap();
    assert!(state.misfit(LogId::new(1, 2), 78).is_some());
    assert!(state.misfit(LogId::new(2, 2), 77).is_some());
    let right = EntryAt { crc: 77, ..at(1, 8) };
    state.fill(LogId::new(1, 2), right, None).unwrap();
    assert_eq!(state.entry(Index(2)), Some(&right));
    assert_eq!(state.fill(LogId::new(1, 2), at(1, 1), None), Ok(()), "no hole any more: skipped");
    assert_eq!(state.entry(Index(2)), Some(&right));
}

#[test]
fn as_many_missing_records_as_the_log_grew_by_are_entries() {
    let mut exact = state(&[1, 1]);
    let missing = Some(2);
    exact.gap(&HEADER, Resume { missing, ..Resume::before(LogId::new(3, 5)) }).unwrap();
    assert_eq!(unknown(&exact), [3, 4]);
    let mut more = state(&[1, 1]);
    let missing = Some(3);
    more.gap(&HEADER, Resume { missing, ..Resume::before(LogId::new(3, 5)) }).unwrap();
    assert_eq!(unknown(&more), [1, 2, 3, 4], "one of them may have been a cut");
}

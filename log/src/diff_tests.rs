use super::*;
use crate::{DiskFile, Log, LogOptions, MemDisk, Owner};
use bytes::Bytes;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{Entries, MemberId, Seq};

const CLUSTER: ClusterId = ClusterId(7);

fn entry(term: u64, index: u64, text: &str) -> Entry {
    let body = Body::Command(Bytes::from(format!("{index} {text}")));
    Entry { id: LogId::new(term, index), time: index, body }
}

/// A member's log: the terms of its entries from index 1 on, what it knows committed, its term.
fn log(member: u64, cluster: ClusterId, entries: &[Entry], commit: u64, term: u64) -> MemDisk {
    let disk = MemDisk::new();
    let owner = Owner { member: MemberId(member), group: 0, cluster, epoch: 3 };
    let options = LogOptions { segment_bytes: 65_536 };
    let mut log = Log::open(disk.clone(), owner, options).unwrap();
    for (seq, entry) in (1..).zip(entries) {
        let hard = Some(HardState { term: Term(term), voted_for: None });
        let append = Entries::new(vec![entry.clone()]).unwrap();
        log.persist(&[Persist { seq: Seq(seq), truncate_from: None, append, hard }]).unwrap();
    }
    // The second makes the first durable, and proves everything before it so.
    log.watermark(Index(commit)).unwrap();
    log.watermark(Index(commit)).unwrap();
    disk
}

fn entries(terms: &[u64]) -> Vec<Entry> {
    (1..).zip(terms).map(|(index, term)| entry(*term, index, "x")).collect()
}

fn of(terms: &[u64], commit: u64, term: u64) -> MemDisk {
    log(1, CLUSTER, &entries(terms), commit, term)
}

fn diff(a: &MemDisk, b: &MemDisk) -> Diff {
    let before = (a.files(), b.files());
    let (x, y) = (evidence(a).unwrap(), evidence(b).unwrap());
    let diff = compare(&x, &y).unwrap();
    assert_eq!((a.files(), b.files()), before, "not a byte has changed");
    let mirrored = compare(&y, &x).unwrap();
    assert_eq!(mirrored.verdict, diff.verdict, "the order has no meaning");
    assert_eq!(mirrored.violation, diff.violation, "the order has no meaning");
    diff
}

#[test]
fn logs_that_hold_the_same_are_the_same_however_long_each_is() {
    let (short, long) = (of(&[1, 1, 2], 2, 2), of(&[1, 1, 2, 2, 3], 5, 3));
    let diff = diff(&short, &long);
    assert_eq!(diff.common, Some((Index(1), Index(3))));
    assert_eq!((diff.same, diff.differ, diff.verdict), (3, 0, Verdict::Same));
    assert_eq!((diff.first, diff.violation), (None, None));
}

#[test]
fn a_compacted_log_is_compared_from_its_base_on() {
    let terms = vec![1; 400];
    let whole = of(&terms, 400, 1);
    let disk = of(&terms, 400, 1);
    let owner = Owner { member: MemberId(1), group: 0, cluster: CLUSTER, epoch: 3 };
    let options = LogOptions { segment_bytes: 65_536 };
    let first = Log::open(disk.clone(), owner, options).unwrap().compact(Index(390)).unwrap();
    assert!(first > Index(1), "something was given up");
    let diff = diff(&whole, &disk);
    assert_eq!(diff.common, Some((first.prev(), Index(400))));
    assert_eq!((diff.same, diff.verdict), (401 - first.prev().0, Verdict::Same));
}

#[test]
fn an_end_that_was_never_committed_may_differ() {
    let (stale, newer) = (of(&[1, 1, 2, 2], 2, 3), of(&[1, 1, 3], 3, 3));
    let diff = diff(&stale, &newer);
    let first = diff.first.unwrap();
    assert_eq!((first.index, first.by), (Index(3), By::Term));
    assert_eq!((first.a.term(), first.b.term()), (Some(Term(2)), Some(Term(3))));
    assert_eq!((diff.verdict, diff.violation), (Verdict::Differ, None));
}

#[test]
fn what_both_know_committed_must_not_differ() {
    let diff = diff(&of(&[1, 1, 2], 3, 2), &of(&[1, 1, 3], 3, 3));
    assert_eq!(diff.violation, Some(Violation::Committed));
    assert_eq!(diff.verdict, Verdict::Violation);
}

#[test]
fn one_term_has_one_entry_at_an_index() {
    let a = log(1, CLUSTER, &[entry(1, 1, "x"), entry(1, 2, "left")], 0, 1);
    let b = log(2, CLUSTER, &[entry(1, 1, "x"), entry(1, 2, "right")], 0, 1);
    let found = diff(&a, &b);
    assert_eq!(found.violation, Some(Violation::SameTerm));
    assert_eq!(found.first.map(|first| first.by), Some(By::Payload));
    let mut late = entry(1, 2, "left");
    late.time = 99;
    let b = log(2, CLUSTER, &[entry(1, 1, "x"), late], 0, 1);
    assert_eq!(diff(&a, &b).first.map(|first| first.by), Some(By::Time));
    let blank = Entry { body: Body::Blank, ..entry(1, 2, "") };
    let b = log(2, CLUSTER, &[entry(1, 1, "x"), blank], 0, 1);
    assert_eq!(diff(&a, &b).first.map(|first| first.by), Some(By::Kind));
}

#[test]
fn what_agrees_later_must_have_agreed_before() {
    let diff = diff(&of(&[1, 1, 2, 3], 0, 3), &of(&[1, 1, 3, 3], 0, 3));
    assert_eq!(diff.violation, Some(Violation::Rejoined(Index(4))));
    assert_eq!((diff.same, diff.differ), (3, 1));
}

#[test]
fn the_leader_of_a_later_term_holds_what_was_committed_before() {
    let committed = of(&[1, 1, 2], 3, 2);
    let found = diff(&committed, &of(&[1, 1, 4], 0, 4));
    assert_eq!(found.violation, Some(Violation::Incomplete));
    // In a later term it may have learned the commit after the other entry was written.
    let later = of(&[1, 1, 2], 3, 4);
    assert_eq!(diff(&later, &of(&[1, 1, 4], 0, 4)).violation, None);
}

#[test]
fn the_rules_bind_only_members_of_one_cluster() {
    let other = log(1, ClusterId(8), &entries(&[1, 1, 3]), 3, 3);
    let found = diff(&of(&[1, 1, 2], 3, 2), &other);
    assert_eq!((found.verdict, found.violation), (Verdict::Differ, None));
    let twin = log(1, ClusterId(8), &entries(&[1, 1, 2]), 3, 2);
    assert_eq!(diff(&of(&[1, 1, 2], 3, 2), &twin).verdict, Verdict::Differ);
}

#[test]
fn with_nothing_in_common_nothing_is_claimed() {
    let empty = of(&[], 0, 1);
    let found = diff(&of(&[1], 0, 1), &empty);
    assert_eq!((found.common, found.verdict), (None, Verdict::Unknown));
    assert_eq!(diff(&empty, &of(&[], 0, 1)).verdict, Verdict::Same);
}

/// Flips a bit in every record of this kind, or only in that of an index.
fn damage(disk: &MemDisk, kind: &str, index: Option<u64>) {
    let records = crate::inspect::records(disk).unwrap().map(Result::unwrap);
    let at = |found: Index| index.is_none_or(|index| found == Index(index));
    for record in records.filter(|r| r.kind == kind && at(r.index)) {
        disk.flip_bit(&record.file, record.offset + record.len - 9, 3).unwrap();
    }
}

#[test]
fn a_damaged_entry_is_compared_by_what_the_log_knows_of_it() {
    let (whole, damaged) = (of(&[1; 40], 40, 1), of(&[1; 40], 40, 1));
    damage(&damaged, "entry", Some(5));
    let holes = evidence(&damaged).unwrap().side().report.holes.clone();
    assert!(holes.len() == 1 && !holes[0].crc.is_empty(), "{holes:?}");
    assert_eq!(diff(&whole, &damaged).verdict, Verdict::Same);
    let mut others = entries(&[1; 40]);
    others[4] = entry(1, 5, "y");
    let other = log(2, CLUSTER, &others, 40, 1);
    let found = diff(&damaged, &other);
    assert_eq!(found.first.map(|first| (first.index, first.by)), Some((Index(5), By::Checksum)));
    assert_eq!(found.violation, Some(Violation::Committed));
}

#[test]
fn a_damaged_entry_of_unknown_identity_is_named_and_not_compared() {
    let (whole, damaged) = (of(&[1; 40], 40, 1), of(&[1; 40], 40, 1));
    damage(&damaged, "entry", Some(5));
    damage(&damaged, "index", None);
    let found = diff(&whole, &damaged);
    assert_eq!((found.verdict, found.first), (Verdict::Unknown, None));
    assert!(found.uncompared.contains(&Index(5)), "{:?}", found.uncompared);
    assert_eq!(found.same + found.uncompared.len() as u64, 40);
}

#[test]
fn a_log_of_which_nothing_is_proved_is_not_compared() {
    let (whole, damaged) = (of(&[1; 4], 4, 1), of(&[1; 4], 4, 1));
    let file = damaged.files().into_keys().find(|path| path.starts_with("log/0")).unwrap();
    for offset in [48, 4096 + 48] {
        damaged.flip_bit(&file, offset, 3).unwrap();
    }
    let evidence = evidence(&damaged).unwrap();
    assert!(evidence.side().report.fault.is_some());
    assert_eq!(diff(&whole, &damaged).verdict, Verdict::Unknown);
}

#[test]
fn a_file_that_a_live_node_uses_again_meanwhile_gives_no_entry_of_another() {
    let disk = of(&[1; 10], 10, 1);
    let others: Vec<_> = (1..=10).map(|index| entry(1, index, "y")).collect();
    let other = log(1, CLUSTER, &others, 10, 1);
    let evidence = evidence(&disk).unwrap();
    assert!(matches!(evidence.seen(Index(5)), Ok(Some(Seen::Entry { .. }))));
    let (path, bytes) = other.files().into_iter().find(|(p, _)| p.starts_with("log/0")).unwrap();
    disk.open(&path, crate::Mode::Write).unwrap().write_at(0, &bytes).unwrap();
    let seen = evidence.seen(Index(5));
    assert!(matches!(seen, Err(LogFault::Unopened { .. })), "{seen:?}");
}

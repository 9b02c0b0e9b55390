//! The contract of raft-rs's `Storage`, a power cut after every step, and raft-rs itself on it.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use holdfast_consensus::MemberId;
use holdfast_log::mem_disk::LoseAll;
use holdfast_log::{Disk, LogOptions, MemDisk, Owner, RealDisk};
use holdfast_raft_rs::{Fault, HoldfastStorage};
use protobuf::Message;
use raft::prelude::{ConfState, Entry, HardState, Snapshot};
use raft::{Config, Error, GetEntriesContext, RawNode, Storage, StorageError};

const OPTIONS: LogOptions = LogOptions { segment_bytes: 64 << 10 };

fn open<D: Disk>(disk: &D) -> Result<HoldfastStorage<D>, Fault> {
    let owner = Owner { member: MemberId(1), ..Owner::default() };
    HoldfastStorage::open(disk.clone(), owner, OPTIONS)
}

fn entry(term: u64, index: u64, len: usize) -> Entry {
    let mut entry = Entry::new();
    (entry.term, entry.index) = (term, index);
    entry.data = vec![7; len].into();
    entry
}

fn entries(term: u64, indexes: std::ops::Range<u64>) -> Vec<Entry> {
    indexes.map(|index| entry(term, index, 20)).collect()
}

fn hard(term: u64, vote: u64, commit: u64) -> HardState {
    let mut hard = HardState::new();
    (hard.term, hard.vote, hard.commit) = (term, vote, commit);
    hard
}

fn snapshot(term: u64, index: u64) -> Snapshot {
    let mut snapshot = Snapshot::new();
    snapshot.data = vec![9; 100].into();
    let meta = snapshot.mut_metadata();
    (meta.term, meta.index) = (term, index);
    meta.set_conf_state(ConfState::from((vec![1, 2], vec![])));
    snapshot
}

fn ask() -> GetEntriesContext {
    GetEntriesContext::empty(false)
}

fn is(error: Error, want: &StorageError) -> bool {
    matches!(error, Error::Store(got) if got == *want)
}

#[test]
fn a_new_storage_is_truncated_at_zero_and_not_initialized() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&RealDisk::create(dir.path()).unwrap()).unwrap();
    assert_eq!((storage.first_index().unwrap(), storage.last_index().unwrap()), (1, 0));
    assert!(!storage.initial_state().unwrap().initialized());
    assert_eq!(storage.term(0).unwrap(), 0);
    assert!(is(storage.term(1).unwrap_err(), &StorageError::Unavailable));
    let none = storage.snapshot(0, 2).unwrap_err();
    assert!(is(none, &StorageError::SnapshotTemporarilyUnavailable));
}

#[test]
fn entries_stop_at_the_size_that_was_asked_for_but_never_before_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&RealDisk::create(dir.path()).unwrap()).unwrap();
    storage.append(&entries(1, 1..8), Some(&hard(1, 1, 0))).unwrap();
    let size = u64::from(entry(1, 3, 20).compute_size());
    let count = |max: Option<u64>| storage.entries(3, 8, max, ask()).unwrap().len();
    assert_eq!(count(None), 5);
    assert_eq!(count(Some(u64::MAX)), 5);
    for (max, want) in [(0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (4 * size, 4)]
    {
        assert_eq!(count(Some(max)), want, "{max}");
    }
    let read = storage.entries(3, 5, None, ask()).unwrap();
    assert_eq!(read, entries(1, 3..5));
}

#[test]
fn terms_and_entries_before_the_base_are_compacted_and_behind_the_end_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&RealDisk::create(dir.path()).unwrap()).unwrap();
    for at in 0..60 {
        storage.append(&entries(2, at * 50 + 1..at * 50 + 51), None).unwrap();
    }
    assert!(matches!(storage.compact(2000), Err(Fault::Refused(_))), "no snapshot covers it");
    storage.keep_snapshot(snapshot(2, 2500)).unwrap();
    let first = storage.compact(2001).unwrap();
    assert!(first > 1 && first <= 2001, "{first}");
    assert_eq!(storage.first_index().unwrap(), first);
    assert_eq!(storage.term(first - 1).unwrap(), 2, "the term before the first is kept");
    assert!(is(storage.term(first - 2).unwrap_err(), &StorageError::Compacted));
    let compacted = storage.entries(first - 1, first + 1, None, ask()).unwrap_err();
    assert!(is(compacted, &StorageError::Compacted));
    assert!(is(storage.term(3001).unwrap_err(), &StorageError::Unavailable));
    assert_eq!(storage.entries(2990, 3001, None, ask()).unwrap(), entries(2, 2990..3001));
    assert_eq!(storage.snapshot(2500, 2).unwrap(), snapshot(2, 2500));
    let newer = storage.snapshot(2501, 2).unwrap_err();
    assert!(is(newer, &StorageError::SnapshotTemporarilyUnavailable));
}

/// What raft-rs can ask of a storage.
fn told<D: Disk>(storage: &HoldfastStorage<D>) -> String {
    let state = storage.initial_state().unwrap();
    let (first, last) = (storage.first_index().unwrap(), storage.last_index().unwrap());
    let held = match first <= last {
        true => storage.entries(first, last + 1, None, ask()).unwrap(),
        false => Vec::new(),
    };
    let base = storage.term(first - 1).unwrap();
    let hard = (state.hard_state.term, state.hard_state.vote);
    let snapshot = storage.snapshot(0, 2).ok();
    format!("{hard:?} {:?} {first} {last} {base} {held:?} {snapshot:?}", state.conf_state)
}

#[test]
fn every_acknowledged_step_survives_a_power_cut() {
    let mut disk = MemDisk::new();
    let mut storage = open(&disk).unwrap();
    for step in 0..7 {
        match step {
            0 => storage.set_conf_state(ConfState::from((vec![1, 2, 3], vec![]))).unwrap(),
            1 => storage.append(&entries(1, 1..9), Some(&hard(1, 2, 0))).unwrap(),
            2 => storage.append(&[], Some(&hard(2, 0, 3))).unwrap(),
            // In place of what stands from 5 on.
            3 => storage.append(&entries(2, 5..7), Some(&hard(2, 3, 4))).unwrap(),
            4 => storage.keep_snapshot(snapshot(1, 4)).unwrap(),
            5 => storage.apply_snapshot(snapshot(3, 20)).unwrap(),
            _ => storage.append(&entries(3, 21..24), Some(&hard(3, 1, 21))).unwrap(),
        }
        let before = told(&storage);
        drop(storage);
        disk = disk.crash(&mut LoseAll);
        storage = open(&disk).unwrap();
        assert_eq!(told(&storage), before, "step {step}");
    }
    assert_eq!(storage.first_index().unwrap(), 21);
    assert_eq!(storage.entries(21, 24, None, ask()).unwrap(), entries(3, 21..24));
    let stale = storage.apply_snapshot(snapshot(3, 20)).unwrap_err();
    assert!(stale.to_string().contains("out of date"), "{stale}");
}

#[test]
fn a_snapshot_that_was_kept_but_not_carried_out_is_carried_out_by_the_next_start() {
    let disk = MemDisk::new();
    let storage = open(&disk).unwrap();
    storage.append(&entries(1, 1..9), Some(&hard(1, 2, 0))).unwrap();
    // As if the power went away inside `apply_snapshot`: at 5 the leader's term was another one.
    storage.keep_snapshot(snapshot(2, 5)).unwrap();
    drop(storage);
    let storage = open(&disk).unwrap();
    assert_eq!((storage.first_index().unwrap(), storage.last_index().unwrap()), (6, 5));
    assert_eq!(storage.term(5).unwrap(), 2);
}

#[test]
fn a_gap_a_second_process_and_a_lost_file_are_refused() {
    let disk = MemDisk::new();
    let storage = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(Fault::Disk(_))), "it is locked");
    storage.append(&entries(1, 1..3), None).unwrap();
    let gap = storage.append(&entries(1, 5..6), None).unwrap_err();
    assert!(gap.to_string().contains("gap"), "{gap}");
    drop(storage);
    disk.unlink("raft-rs").unwrap();
    assert!(matches!(open(&disk), Err(Fault::Refused(_))), "the snapshot is gone");
}

/// Carries out what a node is ready for, in the order that raft-rs asks for.
fn step<D: Disk>(node: &mut RawNode<HoldfastStorage<D>>, applied: &mut Vec<Vec<u8>>) {
    while node.has_ready() {
        let mut ready = node.ready();
        let mut committed = ready.take_committed_entries();
        node.store().append(ready.entries(), ready.hs()).unwrap();
        let mut light = node.advance(ready);
        committed.extend(light.take_committed_entries());
        applied.extend(committed.into_iter().map(|e| e.data.to_vec()).filter(|d| !d.is_empty()));
        node.advance_apply();
    }
}

fn node<D: Disk>(storage: HoldfastStorage<D>) -> RawNode<HoldfastStorage<D>> {
    let config = Config { id: 1, election_tick: 10, heartbeat_tick: 3, ..Config::default() };
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&config, storage, &logger).unwrap()
}

#[test]
fn raft_rs_elects_commits_and_finds_everything_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::create(dir.path()).unwrap();
    let storage = open(&disk).unwrap();
    storage.set_conf_state(ConfState::from((vec![1], vec![]))).unwrap();
    let (mut first, mut applied) = (node(storage), Vec::new());
    first.campaign().unwrap();
    step(&mut first, &mut applied);
    for n in 0..20u8 {
        first.propose(Vec::new(), vec![n + 1; 10]).unwrap();
        step(&mut first, &mut applied);
    }
    let want: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n + 1; 10]).collect();
    assert_eq!(applied, want);
    drop(first);
    let (mut again, mut applied) = (node(open(&disk).unwrap()), Vec::new());
    again.campaign().unwrap();
    step(&mut again, &mut applied);
    assert_eq!(applied, want, "everything is committed again in the new term");
    assert!(again.raft.term > 1);
}

//! Starting on real directories: home, log, snapshots and store together.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{
    LogStore, SnapshotSink, SnapshotSource, SnapshotStore, StateMachine,
};
use holdfast_consensus::{Entries, Index, LogId, MemberId, Membership, Seq};
use holdfast_fsm::start::Refused;
use holdfast_fsm::{Plan, StartError, Started, start};
use holdfast_log::mem_disk::{LoseAll, RandomLoss};
use holdfast_log::{Home, HomeOptions, LogOptions, MemDisk};
use std::collections::BTreeMap;

const MEMBER: MemberId = MemberId(1);

fn home(disk: &MemDisk) -> Home<MemDisk> {
    let log = LogOptions { segment_bytes: 32_768 };
    let options = HomeOptions { name: "n1".to_owned(), fresh_member: MEMBER, log };
    Home::open(disk.clone(), &options).expect("the home opens")
}

fn formed() -> MemDisk {
    let disk = MemDisk::new();
    let mut home = home(&disk);
    home.found(CLUSTER, 1, Membership::of_voters([(MEMBER, "n1".to_owned())])).expect("founds");
    disk
}

fn begin(disk: &MemDisk) -> Result<Started<MemDisk>, StartError> {
    start(home(disk), disk.clone(), options())
}

/// A history whose first entry is the one that founding wrote.
fn history(last: u64) -> Entries {
    let founding = holdfast_consensus::Body::Membership(
        Membership::of_voters([(MEMBER, "n1".to_owned())]).into(),
    );
    let mut entries = vec![entry(1, founding)];
    entries[0].time = 0;
    entries.extend((2..=last).map(|n| command(n, None, &put(&format!("k{n}"), "v"))));
    run(entries)
}

/// Appends in batches of twenty, so that a long history fills several segments.
fn persist(started: &mut Started<MemDisk>, append: &Entries) {
    let mut left = append.clone();
    for seq in 1.. {
        let batch = left.take(20);
        let Some(last) = batch.last() else { return };
        let persist = Persist { seq: Seq(seq), truncate_from: None, append: batch, hard: None };
        started.log.persist(&[persist]).expect("the log takes it");
        if Some(last) == append.last() {
            return;
        }
        left = left.starting_at(last.index.next());
    }
}

/// A member that has logged `logged` entries, and applied and checkpointed `applied` of them.
fn lived(logged: u64, applied: u64) -> MemDisk {
    let disk = formed();
    let mut started = begin(&disk).expect("starts");
    let all = history(logged);
    persist(&mut started, &all.starting_at(Index(2)));
    let applied = usize::try_from(applied).expect("small");
    started.store.apply(&all.take(applied), &mut Vec::new()).expect("applies");
    started.store.checkpoint().expect("checkpoints");
    disk.crash(&mut RandomLoss::new(logged))
}

#[test]
fn a_home_without_a_cluster_does_not_start_and_gets_no_store() {
    let disk = MemDisk::new();
    let refused = start(home(&disk), disk.clone(), options()).err();
    assert_eq!(refused, Some(StartError::NotFormed));
    assert!(!disk.files().contains_key("store/meta.redb"));
}

#[test]
fn a_founded_member_replays_its_first_configuration() {
    let disk = formed();
    let started = begin(&disk).expect("starts");
    assert_eq!(started.plan, Plan::Replay { from: Index(1) });
    assert_eq!(started.log.recovered().last.index, Index(1));
    assert_eq!(started.identity.member, MEMBER);
}

#[test]
fn after_a_crash_the_store_goes_on_where_its_checkpoint_stands() {
    let disk = lived(40, 30);
    let mut started = begin(&disk).expect("starts");
    assert_eq!(started.plan, Plan::Replay { from: Index(31) });
    assert_eq!(started.log.recovered().last.index, Index(40));
    let all = history(40);
    started.store.apply(&all, &mut Vec::new()).expect("applies");
    assert_eq!(started.store.applied().skipped, 30);
    assert_eq!(started.store.counts().of(holdfast_fsm::records::TableId::Kv), 39);
}

#[test]
fn a_log_that_was_put_back_to_an_older_one_is_refused_and_nothing_changes() {
    let old = lived(10, 5).files();
    let new = lived(40, 30).files();
    // The log of the older backup, the store of today.
    let mixed: BTreeMap<_, _> = new
        .iter()
        .filter(|(path, _)| !path.starts_with("log/"))
        .chain(old.iter().filter(|(path, _)| path.starts_with("log/")))
        .map(|(path, bytes)| (path.clone(), bytes.clone()))
        .collect();
    let disk = MemDisk::from_files(mixed);
    let home = home(&disk);
    let before = disk.files();
    let trace = disk.trace_hash();
    let refused = start(home, disk.clone(), options()).err();
    let Some(StartError::Refused(Refused::StoreAhead { store, log })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((store, log), (LogId::new(1, 30), LogId::new(1, 10)));
    assert_eq!((disk.files(), disk.trace_hash()), (before, trace), "every byte is as it was");
}

#[test]
fn a_store_that_was_lost_is_rebuilt_from_the_whole_log() {
    let disk = lived(20, 15);
    let files = disk.files().into_iter().filter(|(path, _)| !path.starts_with("store"));
    let started = begin(&MemDisk::from_files(files.collect())).expect("starts");
    assert_eq!(started.plan, Plan::Replay { from: Index(1) });
}

#[test]
fn a_store_behind_a_compacted_log_is_restored_from_its_snapshot() {
    let disk = lived(300, 250);
    let mut started = begin(&disk).expect("starts");
    let (meta, mut image) = started.store.pin().expect("pins");
    let snapshots = started.log.snapshots();
    let mut writer = snapshots.create(&meta).expect("creates");
    while let Some(chunk) = image.next_chunk().expect("streams") {
        writer.put_chunk(writer.offset(), &chunk).expect("writes");
    }
    let meta = snapshots.publish(writer).expect("publishes");
    let first = started.log.compact(Index(250)).expect("compacts");
    assert!(first > Index(1), "the log begins later now: {first}");
    drop((started, image));
    let files = disk.crash(&mut LoseAll).files();
    let files = files.into_iter().filter(|(path, _)| !path.starts_with("store"));
    let disk = MemDisk::from_files(files.collect());
    let mut started = begin(&disk).expect("starts");
    assert_eq!(started.plan, Plan::Install { snapshot: meta.last });
    let mut reader = started.log.snapshots().open(&meta, 0).expect("opens");
    let mut sink = started.store.restore(&meta).expect("begins");
    while let Some(chunk) = reader.next_chunk().expect("reads") {
        sink.put_chunk(sink.offset(), &chunk).expect("takes");
    }
    let applied = started.store.adopt(sink).expect("adopts");
    assert_eq!((applied.last, applied.digest), (meta.last, meta.digest));
}

#[test]
fn a_damaged_store_is_set_aside_and_rebuilt_from_the_whole_log() {
    let mut files = lived(20, 15).files();
    let store = files.get_mut("store/meta.redb").expect("a store");
    store.truncate(100);
    let damaged = store.clone();
    let disk = MemDisk::from_files(files);
    let mut started = begin(&disk).expect("starts");
    assert!(matches!(started.plan, Plan::SetAside { .. }), "{:?}", started.plan);
    assert_eq!(disk.files()["store/stale-1.redb"], damaged, "set aside, not removed");
    started.store.apply(&history(20), &mut Vec::new()).expect("rebuilds");
    assert_eq!(started.store.applied().last.index, Index(20));
}

/// Damages both headers of the newest segment: its records verify and belong nowhere.
fn unproved(disk: &MemDisk) {
    let newest = disk.files().into_keys().rfind(|path| path.starts_with("log/0"));
    let newest = newest.expect("a segment");
    for offset in [48, 4096 + 48] {
        disk.flip_bit(&newest, offset, 3).expect("there");
    }
}

#[test]
fn over_a_held_log_the_store_is_read_and_nothing_is_written() {
    let disk = lived(400, 30);
    unproved(&disk);
    let before = disk.files();
    let started = begin(&disk).expect("a held member starts");
    assert!(matches!(started.plan, Plan::Look { .. }), "{:?}", started.plan);
    assert!(started.log.recovered().held.is_some());
    let applied = started.store.applied();
    assert_eq!((applied.last.index, applied.durable.index), (Index(30), Index(30)));
    let row = started.store.view().kv_get(b"k7").expect("readable").value;
    assert_eq!(row.map(|row| row.value.to_vec()), Some(b"v".to_vec()));
    drop(started);
    assert_eq!(disk.files(), before, "not a byte has changed");
}

#[test]
fn over_a_held_log_a_store_that_cannot_be_used_keeps_nobody_from_giving_entries_back() {
    for garbage in [None, Some(vec![7; 4096])] {
        let disk = lived(400, 30);
        unproved(&disk);
        let mut files = disk.files();
        files.retain(|path, _| !path.starts_with("store/"));
        files.extend(garbage.map(|bytes| ("store/meta.redb".to_owned(), bytes)));
        let disk = MemDisk::from_files(files.clone());
        let started = begin(&disk).expect("a held member starts");
        assert!(matches!(started.plan, Plan::Look { .. }), "{:?}", started.plan);
        assert_eq!(started.store.applied().last, LogId::default());
        drop(started);
        assert_eq!(disk.files(), files, "not a byte has changed");
    }
}

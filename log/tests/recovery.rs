//! The rows of recovery, one by one: what is torn, what is damaged, what is refused, and that a
//! refusal changes nothing.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SnapshotSink, SnapshotStore, SpareWork};
use holdfast_consensus::{
    Body, Entries, Entry, HardState, Index, LogId, MemberId, Membership, Seq, SnapshotMeta, Term,
};
use holdfast_log::inspect::{records, verify};
use holdfast_log::mem_disk::{KeepAll, LoseAll, Op};
use holdfast_log::{Disk, DiskFile, Log, LogOptions, MemDisk, Mode, Owner, RealDisk};
use std::collections::BTreeMap;

const OPTIONS: LogOptions = LogOptions { segment_bytes: 32 << 10 };
const OWNER: MemberId = MemberId(7);

fn open<D: Disk>(disk: &D) -> Result<Log<D>, LogFault> {
    Log::open(disk.clone(), Owner { member: OWNER, ..Owner::default() }, OPTIONS)
}

fn command(term: u64, index: u64, len: usize) -> Entry {
    let mut payload = vec![index.to_le_bytes()[0]; len.max(8)];
    payload[..8].copy_from_slice(&index.to_le_bytes());
    Entry { id: LogId::new(term, index), time: index, body: Body::Command(Bytes::from(payload)) }
}

fn batch(seq: u64, from: u64, to: u64, len: usize) -> Persist {
    let append = Entries::new((from..=to).map(|i| command(1, i, len)).collect()).unwrap();
    let hard = Some(HardState { term: Term(1), voted_for: Some(MemberId(3)) });
    Persist { seq: Seq(seq), truncate_from: None, append, hard }
}

fn append<D: Disk>(log: &mut Log<D>, seq: u64, from: u64, to: u64) {
    assert_eq!(log.persist(&[batch(seq, from, to, 100)]), Ok(Seq(seq)));
}

/// A log of three batches: entries 1..=2, 3..=4, 5..=6. The last is not proved by any later one.
fn three_batches() -> MemDisk {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    for n in 0..3 {
        append(&mut log, n + 1, 2 * n + 1, 2 * n + 2);
    }
    disk
}

/// Place of the record of an entry: file and offset.
fn place<D: Disk>(disk: &D, index: u64) -> (String, u64) {
    let found = records(disk).unwrap().map(Result::unwrap);
    let entry = found.filter(|r| r.kind == "entry" && r.index == Index(index)).last().unwrap();
    (entry.file, entry.offset)
}

fn flip<D: Disk>(disk: &D, path: &str, offset: u64) {
    let file = disk.open(path, Mode::Write).unwrap();
    let mut byte = [0];
    file.read_at(offset, &mut byte).unwrap();
    file.write_at(offset, &[byte[0] ^ 4]).unwrap();
    file.sync().unwrap();
}

fn damaged(disk: &MemDisk) -> (Index, Index, String) {
    let before = disk.files();
    let fault = open(disk).expect_err("must be refused");
    assert_eq!(disk.files(), before, "a refusal leaves every byte as it was");
    match fault {
        LogFault::Damaged { first, last, detail } => (first, last, detail),
        other => panic!("{other}"),
    }
}

#[test]
fn a_flipped_bit_below_the_proved_position_is_damage_and_names_everything() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 3);
    flip(&disk, &file, offset + 40);
    let (first, last, detail) = damaged(&disk);
    assert_eq!((first, last), (Index(3), Index(6)));
    assert!(detail.contains(&file) && detail.contains(&offset.to_string()), "{detail}");
    assert!(detail.contains("join again as a new member"), "{detail}");
}

#[test]
fn a_flipped_bit_above_the_proved_position_is_torn_and_cut() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 6);
    flip(&disk, &file, offset + 40);
    let log = open(&disk).unwrap();
    assert_eq!(log.recovered().last, LogId::new(1, 5));
    drop(log);
    // The cut is final: the bytes behind it never count again.
    flip(&disk, &file, offset + 40);
    assert_eq!(open(&disk).unwrap().recovered().last, LogId::new(1, 5));
}

#[test]
fn a_segment_that_became_shorter_is_damage_and_no_torn_tail() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 3);
    disk.open(&file, Mode::Write).unwrap().set_len(offset).unwrap();
    let (_, _, detail) = damaged(&disk);
    assert!(detail.contains(&file) && detail.contains("became shorter"), "{detail}");
}

#[test]
fn a_watermark_proves_the_newest_batch() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    append(&mut log, 1, 1, 2);
    log.watermark(Index(2)).unwrap();
    log.watermark(Index(2)).unwrap();
    drop(log);
    let (file, offset) = place(&disk, 2);
    flip(&disk, &file, offset);
    assert_eq!(damaged(&disk).0, Index(2));
}

#[test]
fn what_lies_behind_the_first_unproved_hole_is_cut_even_if_it_verifies() {
    // One unsynced batch of which the disk kept the second half: an ordinary power cut (R9).
    let disk = three_batches();
    let (file, offset) = place(&disk, 5);
    flip(&disk, &file, offset);
    let log = open(&disk).unwrap();
    assert_eq!(log.recovered().last, LogId::new(1, 4));
    assert_eq!(log.recovered().hard.voted_for, Some(MemberId(3)));
}

#[test]
fn a_torn_tail_never_hides_what_is_acknowledged_later() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 6);
    flip(&disk, &file, offset);
    let mut log = open(&disk).unwrap();
    append(&mut log, 1, 6, 9);
    drop(log);
    // The second crash finds the old torn place in its first segment, and does not mind.
    let log = open(&disk.crash(&mut LoseAll)).unwrap();
    assert_eq!(log.recovered().last, LogId::new(1, 9));
    let read = log.reader().read(Index(1), Index(9), 1 << 20).unwrap();
    assert_eq!(read.len(), 9);
}

#[test]
fn a_header_of_zeros_is_an_empty_segment_only_if_it_is_the_last_and_holds_nothing() {
    let disk = three_batches();
    let mut files = disk.files();
    let empty = "log/00000000000000000007-0000000099".to_owned();
    files.insert(empty.clone(), vec![0; 32 << 10]);
    let with_empty = MemDisk::from_files(files);
    assert_eq!(open(&with_empty).unwrap().recovered().last, LogId::new(1, 6));
    assert!(!with_empty.files().contains_key(&empty), "the leftover is removed");

    let (file, _) = place(&disk, 1);
    let handle = disk.open(&file, Mode::Write).unwrap();
    handle.write_at(0, &[0; 4096]).unwrap();
    let (_, _, detail) = damaged(&disk);
    assert!(detail.contains("header"), "{detail}");
}

/// A log of many segments.
fn long<D: Disk>(disk: &D) -> Log<D> {
    let mut log = open(disk).unwrap();
    for n in 0..40 {
        if let Some(mut spare) = log.spare() {
            while !spare.step().unwrap() {}
            log.add_spare(spare).unwrap();
        }
        assert_eq!(log.persist(&[batch(n + 1, 3 * n + 1, 3 * n + 3, 2000)]), Ok(Seq(n + 1)));
    }
    log
}

fn segments(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    files.keys().filter(|p| p.starts_with("log/0")).cloned().collect()
}

#[test]
fn a_missing_segment_in_the_middle_is_a_hole_and_no_shorter_log() {
    let disk = MemDisk::new();
    drop(long(&disk));
    let mut files = disk.files();
    let names = segments(&files);
    assert!(names.len() > 5, "{names:?}");
    files.remove(&names[2]);
    let (_, _, detail) = damaged(&MemDisk::from_files(files));
    assert!(detail.contains("missing"), "{detail}");
}

#[test]
fn a_compacted_log_has_lost_its_oldest_segments_and_is_sound() {
    let disk = MemDisk::new();
    let mut log = long(&disk);
    let reader = log.reader();
    let held = reader.read(Index(1), Index(3), 1 << 20).unwrap();
    let first = log.compact(Index(60)).unwrap();
    assert!(first > Index(40) && first <= Index(61), "{first}");
    assert_eq!(reader.read(Index(1), Index(3), 1), Err(LogFault::Compacted { first }));
    assert_eq!(held.as_slice()[2], command(1, 3, 2000), "what is held stays valid");
    drop(log);
    let log = open(&disk.crash(&mut LoseAll)).unwrap();
    let found = log.recovered();
    assert_eq!((found.first, found.last), (first, LogId::new(1, 120)));
    assert_eq!(found.base, LogId { term: Term(1), index: first.prev() });
    assert_eq!(found.time, 120);
}

#[test]
fn damage_in_an_older_segment_is_found_at_the_start() {
    let disk = MemDisk::new();
    drop(long(&disk));
    let (file, offset) = place(&disk, 20);
    flip(&disk, &file, offset + 100);
    assert_eq!(damaged(&disk).0, Index(20));
    let report = verify(&disk).unwrap();
    assert!(!report.healthy());
    assert!(report.segments.iter().any(|s| s.file == file && s.state == "damaged"));
    let bad = records(&disk).unwrap().map(Result::unwrap).filter(|r| !r.ok);
    assert!(bad.into_iter().any(|r| r.file == file && r.offset == offset));
}

#[test]
fn an_inspection_beside_a_live_log_changes_nothing_and_sees_everything() {
    let disk = MemDisk::new();
    let log = long(&disk);
    let (before, count) = (disk.files(), disk.counts().mutations);
    let entries = records(&disk).unwrap().map(Result::unwrap).filter(|r| r.kind == "entry");
    assert_eq!(entries.count(), 120);
    let report = verify(&disk).unwrap();
    assert!(report.healthy(), "{:?}", report.fault);
    assert_eq!((report.member, report.last, report.term), (OWNER, LogId::new(1, 120), Term(1)));
    assert_eq!(report.voted_for, Some(MemberId(3)));
    assert!(report.segments.iter().all(|s| s.state == "ok"), "{:?}", report.segments);
    assert_eq!((disk.files(), disk.counts().mutations), (before, count));
    drop(log);
}

#[test]
fn many_restarts_do_not_pile_up_segments() {
    let disk = MemDisk::new();
    let open = |disk: &MemDisk| {
        let owner = Owner { member: OWNER, ..Owner::default() };
        Log::open(disk.clone(), owner, LogOptions { segment_bytes: 256 << 10 })
    };
    for n in 0..50 {
        let mut log = open(&disk).unwrap();
        append(&mut log, 1, n + 1, n + 1);
        assert_eq!(log.recovered().boot, n + 1);
    }
    let names = segments(&disk.files());
    assert!(names.len() < 5, "{names:?}");
    let log = open(&disk).unwrap();
    assert_eq!(log.reader().read(Index(1), Index(50), 1 << 20).unwrap().len(), 50);
}

#[test]
fn a_full_disk_refuses_before_the_first_byte_and_loses_nothing() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    append(&mut log, 1, 1, 2);
    let used: u64 = disk.files().values().map(|f| f.len() as u64).sum();
    disk.set_budget(Some(used));
    let mut spare = log.spare().expect("a spare is wanted");
    assert!(!log.low(), "not before it has failed");
    assert!(matches!(spare.step(), Err(LogFault::Full { .. })));
    drop(spare);
    assert!(log.low());
    assert_eq!(disk.files().values().map(|f| f.len() as u64).sum::<u64>(), used, "nothing is left");
    let big = batch(2, 3, 20, 2000);
    assert!(matches!(log.persist(std::slice::from_ref(&big)), Err(LogFault::Full { .. })));
    assert!(matches!(log.persist(std::slice::from_ref(&big)), Err(LogFault::Poisoned { .. })));
    // Nothing was written: reopening needs no space, and what fits is still taken.
    assert_eq!(log.reopen().unwrap().last, LogId::new(1, 2));
    append(&mut log, 3, 3, 4);
    disk.set_budget(None);
    assert_eq!(log.persist(&[batch(4, 5, 22, 2000)]), Ok(Seq(4)));
    drop(log);
    assert_eq!(open(&disk.crash(&mut LoseAll)).unwrap().recovered().last, LogId::new(1, 22));
}

#[test]
fn a_full_disk_at_any_operation_keeps_what_was_acknowledged() {
    for room in (0..200).map(|n| n * 1024) {
        let disk = MemDisk::new();
        disk.set_budget(Some(room));
        let mut acknowledged = 0;
        if let Ok(mut log) = open(&disk) {
            for n in 0..12 {
                if log.persist(&[batch(n + 1, 3 * n + 1, 3 * n + 3, 1500)]).is_err() {
                    break;
                }
                acknowledged = 3 * n + 3;
            }
        }
        disk.set_budget(None);
        let log = open(&disk.crash(&mut KeepAll)).unwrap_or_else(|e| panic!("room {room}: {e}"));
        assert!(log.recovered().last.index >= Index(acknowledged), "room {room}");
    }
}

#[test]
fn an_entry_larger_than_a_segment_gets_one_of_its_own() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    append(&mut log, 1, 1, 1);
    assert_eq!(log.persist(&[batch(2, 2, 3, 200_000)]), Ok(Seq(2)));
    append(&mut log, 3, 4, 4);
    drop(log);
    let log = open(&disk.crash(&mut LoseAll)).unwrap();
    let read = log.reader().read(Index(1), Index(4), usize::MAX).unwrap();
    assert_eq!(read.as_slice()[2], command(1, 3, 200_000));
    assert_eq!(read.len(), 4);
}

#[test]
fn a_batch_larger_than_a_segment_is_split_over_several() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.persist(&[batch(1, 1, 100, 2000)]), Ok(Seq(1)));
    drop(log);
    let log = open(&disk.crash(&mut LoseAll)).unwrap();
    assert_eq!(log.reader().read(Index(1), Index(100), usize::MAX).unwrap().len(), 100);
}

#[test]
fn a_batch_of_the_usual_size_costs_one_sync() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    let before = disk.counts().log.syncs;
    let batches = [batch(1, 1, 3, 100), batch(2, 4, 5, 100), batch(3, 6, 9, 100)];
    assert_eq!(log.persist(&batches), Ok(Seq(3)));
    assert_eq!(disk.counts().log.syncs, before + 1);
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let disk = three_batches();
    let (file, _) = place(&disk, 1);
    disk.open(&file, Mode::Write).unwrap().write_at(8, &[9]).unwrap();
    let before = disk.files();
    let Err(LogFault::Refused(text)) = open(&disk).map(|_| ()) else { panic!("must be refused") };
    assert!(text.contains("format 9") && text.contains("reads 1"), "{text}");
    assert_eq!(disk.files(), before);
}

#[test]
fn a_log_of_another_member_is_refused_untouched() {
    let disk = three_batches();
    let before = disk.files();
    let other = Owner { member: MemberId(8), ..Owner::default() };
    let refused = Log::open(disk.clone(), other, OPTIONS).map(|_| ());
    assert!(matches!(refused, Err(LogFault::Refused(_))), "{refused:?}");
    assert_eq!(disk.files(), before);
}

#[test]
fn bytes_of_a_failed_sync_never_count_in_the_same_process() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    append(&mut log, 1, 1, 2);
    disk.fail_next(Op::Sync, "log/");
    assert!(matches!(log.persist(&[batch(2, 3, 4, 100)]), Err(LogFault::Poisoned { .. })));
    assert!(matches!(log.watermark(Index(1)), Err(LogFault::Poisoned { .. })));
    // They would read back, but they are not durable.
    assert_eq!(log.reopen().unwrap().last, LogId::new(1, 2));
    append(&mut log, 3, 3, 3);
    drop(log);
    assert_eq!(open(&disk.crash(&mut LoseAll)).unwrap().recovered().last, LogId::new(1, 3));
}

#[test]
fn a_published_snapshot_beyond_the_log_becomes_its_base_at_the_start() {
    // R25: the crash came between publishing and the base record.
    let disk = three_batches();
    let log = open(&disk).unwrap();
    let meta = SnapshotMeta {
        last: LogId::new(2, 50),
        time: 50,
        membership: Membership::of_voters([(MemberId(7), "a".to_owned())]),
        membership_index: Index(1),
        ..SnapshotMeta::default()
    };
    let store = log.snapshots();
    let mut writer = store.create(&meta).unwrap();
    writer.put_chunk(0, b"state").unwrap();
    let published = store.publish(writer).unwrap();
    assert_eq!(log.recovered().last, LogId::new(1, 6));
    drop(log);
    let found = open(&disk.crash(&mut LoseAll)).unwrap().recovered();
    assert_eq!((found.base, found.last, found.first), (meta.last, meta.last, Index(51)));
    assert_eq!(found.snapshot, Some(published));
    assert_eq!(found.hard.term, Term(1));
}

#[test]
fn reads_go_on_beside_the_writer_and_share_the_map() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(dir.path()).unwrap();
    let mut log = open(&disk).unwrap();
    append(&mut log, 1, 1, 1);
    let reader = log.reader();
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = reader.clone();
                scope.spawn(move || {
                    let (mut seen, mut last) = (0u64, Index(1));
                    while !done.load(std::sync::atomic::Ordering::Acquire) {
                        let next = last.next();
                        match reader.read(next, next, 1 << 20) {
                            Ok(entries) => {
                                assert_eq!(entries.as_slice()[0], command(1, next.0, 300));
                                (last, seen) = (next, seen + 1);
                            }
                            Err(LogFault::Refused(_)) => std::thread::yield_now(),
                            Err(fault) => panic!("{fault}"),
                        }
                    }
                    seen
                })
            })
            .collect();
        for n in 2..=200 {
            assert_eq!(log.persist(&[batch(n, n, n, 300)]), Ok(Seq(n)));
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    assert_eq!(log.reader().read(Index(1), Index(200), usize::MAX).unwrap().len(), 200);
}

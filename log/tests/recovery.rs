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

/// Opens a log that must be held, and tells why. Not a byte may change.
fn held(disk: &MemDisk) -> String {
    let before = disk.files();
    let why = match open(disk) {
        Ok(mut log) => {
            let why = log.recovered().held.expect("must be held");
            let refused = LogFault::Held { why: why.clone() };
            assert_eq!(log.persist(&[batch(9, 7, 7, 8)]), Err(refused.clone()));
            assert_eq!(log.watermark(Index(1)), Err(refused.clone()));
            assert_eq!(log.compact(Index(1)), Err(refused));
            assert!(log.spare().is_none());
            why
        }
        Err(LogFault::Held { why }) => why,
        Err(other) => panic!("{other}"),
    };
    assert_eq!(disk.files(), before, "a held log leaves every byte as it was");
    why
}

/// Opens a log that must have these holes (index, identity known), twice: they are not forgotten,
/// and no byte of the damaged file changes. Everything else must read back.
fn holes(disk: &MemDisk, damaged: &str, want: &[(u64, bool)]) -> Log<MemDisk> {
    let before = disk.files().get(damaged).cloned();
    for round in 0..2 {
        let log = open(disk).unwrap();
        let found = log.recovered();
        assert_eq!(found.held, None);
        let named: Vec<_> = found.holes.iter().map(|h| (h.index.0, h.known.is_some())).collect();
        assert_eq!(named, want, "round {round}");
        for index in found.first.0..=found.last.index.0 {
            let read = log.reader().read(Index(index), Index(index), 1 << 20);
            if want.iter().any(|(hole, _)| *hole == index) {
                assert!(
                    matches!(read, Err(LogFault::Damaged { first: Index(at), .. }) if at == index)
                );
            } else {
                assert_eq!(read.unwrap().last().map(|id| id.index), Some(Index(index)));
            }
        }
        assert_eq!(disk.files().get(damaged).cloned(), before, "the evidence stays");
    }
    open(disk).unwrap()
}

#[test]
fn a_flipped_bit_below_the_proved_position_is_a_hole_of_known_identity() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 3);
    flip(&disk, &file, offset + 40);
    let log = holes(&disk, &file, &[(3, true)]);
    let known = log.recovered().holes[0].known;
    assert_eq!(known, Some(command(1, 3, 100).identity().unwrap()));
    let found = log.recovered();
    assert_eq!((found.last, found.hard.voted_for), (LogId::new(1, 6), Some(MemberId(3))));
}

#[test]
fn a_whole_damaged_block_is_as_many_holes_as_it_held_entries() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 3);
    let block = offset / 4096 * 4096;
    disk.open(&file, Mode::Write).unwrap().write_at(block, &[0xEE; 4096]).unwrap();
    // The batch header is gone as well: its hard state was replaced, and R14 is content.
    holes(&disk, &file, &[(3, true), (4, true)]);
}

#[test]
fn without_the_side_index_a_hole_is_unknown_and_its_neighbours_are_read() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 3);
    flip(&disk, &file, offset + 40);
    let mut all = records(&disk).unwrap().map(Result::unwrap);
    let index = all.find(|r| r.kind == "index" && r.file == file && r.offset > offset).unwrap();
    flip(&disk, &file, index.offset + 40);
    holes(&disk, &file, &[(3, false)]);
}

#[test]
fn a_hole_is_filled_by_the_very_entry_and_by_no_other() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 3);
    flip(&disk, &file, offset + 40);
    let evidence = disk.files()[&file].clone();
    let mut log = open(&disk).unwrap();
    let other = Entry { time: 9, ..command(1, 3, 100) };
    assert!(matches!(log.repair(&[other]), Err(LogFault::Refused(_))));
    let syncs = disk.counts().log.syncs;
    let stands = Entry { time: 9, ..command(1, 4, 100) };
    let given = [command(1, 2, 100), command(1, 3, 100), stands];
    assert_eq!(log.repair(&given), Ok(vec![Index(2), Index(3)]), "4 is another, and sound");
    assert_eq!(disk.counts().log.syncs, syncs + 1, "one sync");
    assert_eq!(log.recovered().holes, []);
    let mut disk = disk;
    for _ in 0..4 {
        disk = disk.crash(&mut LoseAll);
        drop(log);
        log = open(&disk).unwrap();
        assert_eq!(log.recovered().holes, []);
        let read = log.reader().read(Index(1), Index(6), 1 << 20).unwrap();
        assert_eq!(read.as_slice()[2], command(1, 3, 100));
        assert_eq!((read.len(), read.as_slice()[5].id), (6, LogId::new(1, 6)));
    }
    assert_eq!(disk.files()[&file], evidence, "the damaged record stays as it is");
    // What filled the hole is damaged too: the hole is open again, and known.
    let repair = records(&disk).unwrap().map(Result::unwrap).filter(|r| r.kind == "repair");
    let repair = repair.last().unwrap();
    drop(log);
    flip(&disk, &repair.file, repair.offset + 40);
    let found = open(&disk).unwrap().recovered();
    let named: Vec<_> = found.holes.iter().map(|h| (h.index.0, h.known.is_some())).collect();
    assert_eq!((named, found.held), (vec![(3, true)], None));
}

#[test]
fn what_filled_a_hole_is_read_in_its_place_although_it_lies_behind_what_follows() {
    let disk = three_batches();
    let mut log = open(&disk).unwrap();
    append(&mut log, 4, 7, 12);
    let (file, offset) = place(&disk, 8);
    flip(&disk, &file, offset + 50);
    // The same segment holds entry 8 behind 12 now.
    assert_eq!(log.repair(&[command(1, 8, 100)]), Ok(vec![Index(8)]));
    let read = log.reader().read(Index(1), Index(12), 1 << 20).unwrap();
    let ids: Vec<u64> = read.iter().map(|e| e.id.index.0).collect();
    assert_eq!(ids, (1..=12).collect::<Vec<_>>());
}

#[test]
fn a_truncation_and_a_base_close_the_holes_that_they_cover() {
    for reset in [false, true] {
        let disk = three_batches();
        let (file, offset) = place(&disk, 3);
        flip(&disk, &file, offset + 40);
        let mut log = open(&disk).unwrap();
        if reset {
            let meta = SnapshotMeta { last: LogId::new(1, 3), time: 3, ..Default::default() };
            assert_eq!(log.reset(&meta), Ok(LogId::new(1, 6)));
        } else {
            let append = Entries::new(vec![command(2, 3, 50)]).unwrap();
            let hard = Some(HardState { term: Term(2), voted_for: None });
            let cut = Some(Index(3));
            let batch = Persist { seq: Seq(1), truncate_from: cut, append, hard };
            assert_eq!(log.persist(&[batch]), Ok(Seq(1)));
        }
        assert_eq!(log.recovered().holes, []);
        drop(log);
        let found = open(&disk.crash(&mut LoseAll)).unwrap().recovered();
        assert_eq!((found.holes, found.held), (vec![], None));
        assert_eq!(found.last, if reset { LogId::new(1, 6) } else { LogId::new(2, 3) });
    }
}

#[test]
fn compaction_gives_up_a_damaged_segment_only_past_its_holes() {
    let disk = MemDisk::new();
    drop(long(&disk));
    let (file, offset) = place(&disk, 20);
    flip(&disk, &file, offset + 100);
    let mut log = holes(&disk, &file, &[(20, true)]);
    assert_eq!(log.repair(&[command(1, 20, 2000)]), Ok(vec![Index(20)]));
    // The entries behind the filled hole still lie in the damaged segment.
    let first = log.compact(Index(20)).unwrap();
    assert!(first <= Index(20), "{first}");
    let read = log.reader().read(Index(20), Index(22), 1 << 20).unwrap();
    assert_eq!(read.as_slice()[0], command(1, 20, 2000));
    assert!(disk.files().contains_key(&file));
    let first = log.compact(Index(60)).unwrap();
    assert!(first > Index(20) && !disk.files().contains_key(&file));
    drop(log);
    let found = open(&disk.crash(&mut LoseAll)).unwrap().recovered();
    assert_eq!((found.first, found.last, found.holes), (first, LogId::new(1, 120), vec![]));
}

#[test]
fn a_failed_sync_reopens_a_damaged_log_as_it_was() {
    let disk = three_batches();
    let (file, offset) = place(&disk, 3);
    flip(&disk, &file, offset + 40);
    let mut log = open(&disk).unwrap();
    disk.fail_next(Op::Sync, "log/");
    assert!(log.persist(&[batch(2, 7, 8, 100)]).is_err());
    let found = log.reopen().unwrap();
    assert_eq!((found.last, found.held, found.holes.len()), (LogId::new(1, 6), None, 1));
    assert_eq!(log.persist(&[batch(3, 7, 8, 100)]), Ok(Seq(3)));
    disk.fail_next(Op::Sync, "log/");
    assert!(log.repair(&[command(1, 3, 100)]).is_err());
    assert_eq!(log.reopen().unwrap().holes.len(), 1, "what was not synced fills nothing");
    assert_eq!(log.repair(&[command(1, 3, 100)]), Ok(vec![Index(3)]));
}

#[test]
fn damage_that_comes_while_the_log_is_open_is_found_by_the_read_and_filled() {
    let disk = three_batches();
    let mut log = open(&disk).unwrap();
    let (file, offset) = place(&disk, 3);
    flip(&disk, &file, offset + 50);
    let reader = log.reader();
    assert_eq!(reader.read(Index(1), Index(6), 1 << 20).unwrap().len(), 2);
    let bad = reader.read(Index(3), Index(6), 1 << 20);
    assert!(matches!(bad, Err(LogFault::Damaged { first: Index(3), .. })), "{bad:?}");
    let known = command(1, 3, 100).identity().unwrap();
    assert_eq!(reader.holes(Index(3), Index(3))[0].known, Some(known));
    assert_eq!(log.repair(&[command(1, 3, 100)]), Ok(vec![Index(3)]));
    assert_eq!(reader.read(Index(1), Index(6), 1 << 20).unwrap().len(), 6);
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
    let why = held(&disk);
    assert!(why.contains(&file) && why.contains("became shorter"), "{why}");
    assert!(
        why.contains("put the data directory back") && why.contains("cannot replace a member"),
        "{why}"
    );
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
    holes(&disk, &file, &[(2, true)]);
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
    // One copy of the header is enough.
    handle.write_at(0, &[0; 4096]).unwrap();
    assert!(!verify(&disk).unwrap().healthy());
    let again = MemDisk::from_files(disk.files());
    assert_eq!(open(&again).unwrap().recovered().last, LogId::new(1, 6));
    handle.write_at(4096, &[0; 4096]).unwrap();
    let why = held(&disk);
    assert!(why.contains(&file), "{why}");
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
    let disk = MemDisk::from_files(files);
    let first = |name: &str| name[4..24].parse::<u64>().unwrap();
    // The next segment begins with the side index of the last batch.
    let (from, to) = (first(&names[2]), first(&names[3]));
    let want: Vec<_> = (from..to).map(|at| (at, at + 1 == to)).collect();
    assert!(verify(&disk).unwrap().segments.iter().any(|s| s.state == "missing"));
    let found = holes(&disk, &names[2], &want).recovered();
    assert_eq!((found.first, found.last), (Index(1), LogId::new(1, 120)));
}

#[test]
fn a_segment_whose_headers_are_gone_is_read_by_what_its_successor_repeats() {
    let disk = MemDisk::new();
    drop(long(&disk));
    let name = segments(&disk.files())[2].clone();
    disk.open(&name, Mode::Write).unwrap().write_at(0, &[0; 8192]).unwrap();
    assert!(!verify(&disk).unwrap().healthy());
    holes(&disk, &name, &[]);
}

#[test]
fn a_shorter_segment_inside_the_log_has_holes_where_its_bytes_were() {
    let disk = MemDisk::new();
    drop(long(&disk));
    let name = segments(&disk.files())[2].clone();
    let (first, next) = (name[4..24].parse::<u64>().unwrap(), segments(&disk.files())[3].clone());
    let next = next[4..24].parse::<u64>().unwrap();
    disk.open(&name, Mode::Write).unwrap().set_len(8192).unwrap();
    let want: Vec<_> = (first..next).map(|at| (at, at + 1 == next)).collect();
    let found = open(&disk).unwrap().recovered();
    let named: Vec<_> = found.holes.iter().map(|h| h.index.0).collect();
    assert_eq!(named, want.iter().map(|(at, _)| *at).collect::<Vec<_>>());
    assert_eq!((found.last, found.held), (LogId::new(1, 120), None));
}

#[test]
fn a_missing_newest_segment_is_no_log_that_was_never_continued() {
    let disk = MemDisk::new();
    drop(long(&disk));
    let mut files = disk.files();
    let newest = segments(&files).pop().unwrap();
    files.remove(&newest);
    let why = held(&MemDisk::from_files(files.clone()));
    assert!(why.contains("missing") && why.contains("S13"), "{why}");
    files.retain(|name, _| !segments(&disk.files()).contains(name));
    let why = held(&MemDisk::from_files(files));
    assert!(why.contains("missing"), "{why}");
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
    let report = verify(&disk).unwrap();
    assert!(!report.healthy());
    assert!(report.segments.iter().any(|s| s.file == file && s.state == "damaged"));
    let hole = &report.holes[0];
    let crc = format!("{:08x}", command(1, 20, 2000).identity().unwrap().crc);
    assert_eq!((hole.index, hole.term, &hole.crc), (Index(20), Some(Term(1)), &crc));
    let place = &report.damage[0];
    assert_eq!((&place.file, place.offset, place.row), (&file, offset, "P5"));
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
    for _ in 0..2 {
        let refused = log.persist(std::slice::from_ref(&big));
        assert!(matches!(refused, Err(LogFault::Full { .. })), "again and again, and no fault");
    }
    // Nothing was written: a hard state still is.
    let hard = Some(log.recovered().hard);
    let vote = Persist { seq: Seq(3), truncate_from: None, append: Entries::empty(), hard };
    assert_eq!(log.persist(&[vote]), Ok(Seq(3)));
    assert_eq!(log.recovered().last, LogId::new(1, 2));
    disk.set_budget(None);
    assert_eq!(log.persist(&[batch(4, 3, 22, 2000)]), Ok(Seq(4)));
    drop(log);
    assert_eq!(open(&disk.crash(&mut LoseAll)).unwrap().recovered().last, LogId::new(1, 22));
}

/// R45: commands end before the last segment does, votes go on, and the spare that they left lets
/// the log open without a free byte.
#[test]
fn votes_and_a_restart_find_room_on_a_disk_without_a_free_byte() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    append(&mut log, 1, 1, 1);
    while let Some(mut spare) = log.spare() {
        while !spare.step().unwrap() {}
        log.add_spare(spare).unwrap();
    }
    // This disk wants a sector for a name, even for one that takes the place of another.
    let name = 512;
    disk.set_budget(Some(disk.used() + name));
    let (mut last, mut refused) = (1, 0);
    for seq in 2..200 {
        match log.persist(&[batch(seq, last + 1, last + 1, 1500)]) {
            Ok(_) => last += 1,
            Err(LogFault::Full { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0 && last > 5 && log.low(), "{refused} refused, {last} written");
    let vote = |term| Persist {
        seq: Seq(200 + term),
        truncate_from: None,
        append: Entries::empty(),
        hard: Some(HardState { term: Term(term), voted_for: Some(MemberId(3)) }),
    };
    log.persist(&[vote(7)]).expect("there is room for a vote");
    let blank = Entry { id: LogId::new(7, last + 1), time: 9, body: Body::Blank };
    let opens = Persist { append: Entries::new(vec![blank]).unwrap(), ..vote(8) };
    log.persist(&[opens]).expect("and for the entry that opens a term");
    drop(log);
    let disk = disk.crash(&mut LoseAll);
    disk.set_budget(Some(disk.used() + name));
    let mut log = open(&disk).expect("a start needs nothing but the spare");
    assert_eq!(log.recovered().last, LogId::new(7, last + 1));
    assert_eq!(log.recovered().hard.term, Term(8));
    log.persist(&[vote(9)]).expect("and it votes");
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
fn a_start_without_a_spare_does_not_wait_for_a_whole_segment() {
    const LONG: LogOptions = LogOptions { segment_bytes: 4 << 20 };
    let disk = MemDisk::new();
    let start = || Log::open(disk.clone(), Owner { member: OWNER, ..Owner::default() }, LONG);
    let mut log = start().unwrap();
    let newest = |disk: &MemDisk| disk.files().into_iter().rfind(|(name, _)| name.contains('-'));
    assert_eq!(newest(&disk).unwrap().1.len(), 1 << 20);
    // The log goes on behind its short segment, in one of the usual length.
    for n in 1..=40 {
        assert_eq!(log.persist(&[batch(n, n, n, 50_000)]), Ok(Seq(n)));
    }
    assert_eq!(newest(&disk).unwrap().1.len(), 4 << 20);
    drop(log);
    let log = start().unwrap();
    assert_eq!(log.recovered().last.index, Index(40));
    assert_eq!(log.reader().read(Index(1), Index(40), 1 << 30).unwrap().len(), 40);
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let disk = three_batches();
    let (file, _) = place(&disk, 1);
    let handle = disk.open(&file, Mode::Write).unwrap();
    [8, 4096 + 8].iter().for_each(|at| handle.write_at(*at, &[9]).unwrap());
    let before = disk.files();
    let Err(LogFault::Refused(text)) = open(&disk).map(|_| ()) else { panic!("must be refused") };
    assert!(text.contains("format 9") && text.contains("reads 2"), "{text}");
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

#[test]
fn the_side_index_costs_no_sync_and_not_a_block() {
    let cases = [(1, 128, 4096), (16, 128, 4096), (256, 128, 49_152), (256, 1024, 278_528)];
    for (entries, len, before) in cases {
        let disk = MemDisk::new();
        let owner = Owner { member: OWNER, ..Owner::default() };
        let options = LogOptions { segment_bytes: 4 << 20 };
        let mut log = Log::open(disk.clone(), owner, options).unwrap();
        for seq in 1..=2 {
            let from = (seq - 1) * entries + 1;
            let syncs = disk.counts().log.syncs;
            let persist = batch(seq, from, from + entries - 1, len);
            assert_eq!(log.persist(&[persist]), Ok(Seq(seq)));
            assert_eq!(disk.counts().log.syncs, syncs + 1);
        }
        // The second batch carries the side index of the first.
        let all: Vec<_> = records(&disk).unwrap().map(Result::unwrap).filter(|r| r.ok).collect();
        let start = all.iter().rposition(|r| r.kind == "batch").unwrap();
        assert_eq!(all[start + 1].kind, "index");
        let bytes = all[start..].iter().map(|r| r.len).sum::<u64>().next_multiple_of(4096);
        println!("{entries} x {len} B: {bytes} bytes written, {before} without side index");
        assert_eq!(bytes, before, "{entries} of {len}");
    }
}

/// Seed 774476 of the simulator: a leader with a wrong time proposed what no log can go on with.
#[test]
fn an_entry_that_goes_back_in_term_or_time_is_refused_before_the_first_byte() {
    let disk = three_batches();
    let mut log = open(&disk).unwrap();
    let before = disk.files();
    for (term, time) in [(1, 5), (0, 7)] {
        let entry = Entry { time, ..command(term, 7, 100) };
        let append = Entries::new(vec![entry]).unwrap();
        let persist = Persist { seq: Seq(1), truncate_from: None, append, hard: None };
        let refused = log.persist(&[persist]);
        let named = matches!(&refused, Err(LogFault::Refused(why)) if why.contains("goes back"));
        assert!(named, "{refused:?}");
        assert_eq!(disk.files(), before, "not a byte was written");
        log.reopen().unwrap();
    }
    append(&mut log, 2, 7, 8);
}

use super::*;
use crate::inspect::{RecordInfo, records as all_records};
use crate::mem_disk::Op;
use crate::{Log, LogOptions, MemDisk, Owner};
use bytes::Bytes;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{Body, Entries, Entry, HardState, LogId, MemberId, Seq, Term};

const OPTIONS: LogOptions = LogOptions { segment_bytes: 32 << 10 };
const STEP: u64 = 4 << 10;

fn open(disk: &MemDisk) -> Log<MemDisk> {
    let owner = Owner { member: MemberId(7), ..Owner::default() };
    Log::open(disk.clone(), owner, OPTIONS).unwrap()
}

fn command(index: u64) -> Entry {
    let body = Body::Command(Bytes::from(vec![index.to_le_bytes()[0]; 100]));
    Entry { id: LogId::new(1, index), time: index, body }
}

fn append(log: &mut Log<MemDisk>, from: u64, to: u64) {
    let append = Entries::new((from..=to).map(command).collect()).unwrap();
    let hard = Some(HardState { term: Term(1), voted_for: Some(MemberId(3)) });
    let batch = Persist { seq: Seq(to), truncate_from: None, append, hard };
    assert_eq!(log.persist(&[batch]), Ok(Seq(to)));
}

/// A log of a few segments, with three entries in each batch.
fn log() -> (MemDisk, Log<MemDisk>) {
    let disk = MemDisk::new();
    let mut log = open(&disk);
    for n in 0..20 {
        append(&mut log, 3 * n + 1, 3 * n + 3);
    }
    (disk, log)
}

/// Everything that a whole pass finds, and the bytes that it verifies.
fn pass(scrub: &mut Scrub<MemDisk>) -> (Vec<Finding>, u64) {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for _ in 0..10_000 {
        let step = scrub.step(STEP);
        found.extend(step.found);
        bytes += step.bytes;
        if step.passed {
            return (found, bytes);
        }
    }
    panic!("no end of the pass");
}

fn sealed(log: &Log<MemDisk>) -> Vec<Arc<Segment<crate::MemFile>>> {
    let others = log.segments.values().filter(|s| s.header.unique != log.active.header.unique);
    others.cloned().collect()
}

fn records_of(disk: &MemDisk, segment: &Segment<crate::MemFile>) -> Vec<RecordInfo> {
    let all = all_records(disk).unwrap().map(Result::unwrap);
    all.filter(|r| r.segment == segment.header.unique).collect()
}

#[test]
fn a_sound_log_passes_again_and_again_and_every_sealed_byte_is_verified() {
    let (_, log) = log();
    let mut scrub = log.reader().scrub();
    let ends: u64 = sealed(&log).iter().map(|segment| segment.published()).sum();
    assert!(sealed(&log).len() > 1);
    for _ in 0..3 {
        let (found, bytes) = pass(&mut scrub);
        assert_eq!(found, []);
        let gaps = sealed(&log).len() as u64 * crate::position::BLOCK;
        assert!(bytes <= ends && bytes + gaps > ends, "{bytes} of {ends}");
    }
}

#[test]
fn a_log_of_one_segment_has_nothing_to_verify() {
    let mut log = open(&MemDisk::new());
    append(&mut log, 1, 3);
    let mut scrub = log.reader().scrub();
    for _ in 0..3 {
        assert_eq!(scrub.step(STEP), Scrubbed::default());
    }
}

/// Every record of every sealed segment, a bit of each of its bytes in turn: found at its place, and
/// as what it is.
#[test]
fn a_flipped_bit_of_any_record_is_found_and_names_its_entry() {
    let (disk, log) = log();
    let (mut entries, mut others) = (0, 0);
    for segment in sealed(&log) {
        for record in records_of(&disk, &segment) {
            for byte in (0..record.len).step_by(5) {
                let at = record.offset + byte;
                let bit = u8::try_from(at % 8).unwrap();
                disk.flip_bit(&record.file, at, bit).unwrap();
                let (found, _) = pass(&mut log.reader().scrub());
                disk.flip_bit(&record.file, at, bit).unwrap();
                let entry = (record.kind == "entry").then_some((record.index, record.index));
                let told: Vec<_> = found.iter().map(|f| (f.offset, f.entries, f.news)).collect();
                assert_eq!(told, [(record.offset, entry, true)], "{record:?} byte {byte}");
                match entry {
                    Some(_) => entries += 1,
                    None => others += 1,
                }
            }
        }
    }
    assert!(entries > 500 && others > 100, "{entries} {others}");
    assert_eq!(pass(&mut log.reader().scrub()).0, [], "every bit was put back");
}

#[test]
fn the_second_copy_of_a_header_is_verified_too() {
    let (disk, log) = log();
    let segment = &sealed(&log)[0];
    disk.flip_bit(&segment.path, HEADER_COPY + 30, 1).unwrap();
    let (found, _) = pass(&mut log.reader().scrub());
    assert_eq!(found.iter().map(|f| (f.offset, f.entries)).collect::<Vec<_>>(), [(4096, None)]);
}

#[test]
fn a_damaged_batch_header_takes_no_entry_with_it() {
    let (disk, log) = log();
    let segment = &sealed(&log)[0];
    let batches = records_of(&disk, segment).into_iter().filter(|r| r.kind == "batch");
    let third = batches.filter(|r| r.offset > FIRST_BATCH).nth(1).unwrap();
    disk.flip_bit(&third.file, third.offset + 40, 1).unwrap();
    let (found, _) = pass(&mut log.reader().scrub());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].offset, found[0].entries), (third.offset, None));
    assert_eq!(found[0].fault(), None, "there is nothing to give back");
}

#[test]
fn a_rotten_segment_is_told_entry_by_entry_and_no_step_reads_it_all() {
    let (disk, log) = log();
    let segment = &sealed(&log)[0];
    let end = segment.published();
    for offset in (FIRST_BATCH..end).step_by(16) {
        disk.flip_bit(&segment.path, offset, 0).unwrap();
    }
    let lost = |found: &[Finding]| -> Vec<(u64, u64)> {
        found.iter().filter_map(|f| f.entries).map(|(a, b)| (a.0, b.0)).collect()
    };
    let next = sealed(&log)[1].header.first;
    let mut scrub = log.reader().scrub();
    let mut all = Vec::new();
    loop {
        let step = scrub.step(STEP);
        assert!(step.bytes <= 3 * STEP, "{}", step.bytes);
        all.extend(step.found);
        if step.passed {
            break;
        }
    }
    let runs = lost(&all);
    let told: Vec<u64> = runs.iter().flat_map(|(first, last)| *first..=*last).collect();
    assert_eq!(told, (1..next.0).collect::<Vec<_>>(), "each once");
}

#[test]
fn what_was_told_is_no_news_until_it_is_given_back_and_passes_go_on() {
    let (disk, mut log) = log();
    let segment = Arc::clone(&sealed(&log)[0]);
    let record = |index: u64| {
        let all = records_of(&disk, &segment);
        all.into_iter().find(|r| r.kind == "entry" && r.index == Index(index)).unwrap()
    };
    let (second, fifth) = (record(2), record(5));
    // In the chain and in the padding: the entry's own CRC says nothing of either.
    disk.flip_bit(&segment.path, second.offset + 25, 1).unwrap();
    disk.flip_bit(&segment.path, fifth.offset + fifth.len - 1, 1).unwrap();
    let mut scrub = log.reader().scrub();
    let told = |scrub: &mut Scrub<MemDisk>| -> Vec<_> {
        pass(scrub).0.into_iter().map(|f| (f.entries, f.news)).collect()
    };
    let (two, five) = (Some((Index(2), Index(2))), Some((Index(5), Index(5))));
    assert_eq!(told(&mut scrub), [(two, true), (five, true)]);
    assert_eq!(told(&mut scrub), [(two, false), (five, false)], "said already, and still so");
    assert_eq!(log.repair(&[command(2)]), Ok(vec![Index(2)]));
    assert_eq!(told(&mut scrub), [(None, false), (five, false)], "nothing is lost by the first");
    assert_eq!(log.repair(&[command(5)]), Ok(vec![Index(5)]));
    assert_eq!(log.reader().read(Index(1), Index(6), 1 << 20).unwrap().len(), 6);
    let record = record(7);
    disk.flip_bit(&segment.path, record.offset + 40, 1).unwrap();
    assert!(told(&mut scrub).contains(&(Some((Index(7), Index(7))), true)), "it goes on");
}

#[test]
fn a_repair_in_a_sealed_segment_is_verified_like_any_entry() {
    let (disk, mut log) = log();
    let segment = Arc::clone(&sealed(&log)[0]);
    let second = records_of(&disk, &segment).into_iter().find(|r| r.index == Index(2)).unwrap();
    disk.flip_bit(&segment.path, second.offset + 40, 1).unwrap();
    assert_eq!(log.repair(&[command(2)]), Ok(vec![Index(2)]));
    append(&mut log, 61, 63);
    for n in 21..30 {
        append(&mut log, 3 * n + 1, 3 * n + 3);
    }
    let all = all_records(&disk).unwrap().map(Result::unwrap);
    let repair = all.into_iter().find(|r| r.kind == "repair").unwrap();
    assert_ne!(repair.segment, log.active.header.unique, "its segment is sealed");
    disk.flip_bit(&repair.file, repair.offset + 40, 1).unwrap();
    let (found, _) = pass(&mut log.reader().scrub());
    let told: Vec<_> = found.iter().map(|f| (f.offset, f.entries)).collect();
    let two = Some((Index(2), Index(2)));
    assert_eq!(told, [(second.offset, None), (repair.offset, two)]);
    assert_eq!(log.repair(&[command(2)]), Ok(vec![Index(2)]), "given back once more");
    assert_eq!(log.reader().read(Index(2), Index(2), 1).unwrap().as_slice(), [command(2)]);
}

#[test]
fn the_segment_that_is_written_to_is_left_alone() {
    let (disk, mut log) = log();
    let last = log.recovered().last.index.0;
    let record = records_of(&disk, &log.active).into_iter().rfind(|r| r.kind == "entry").unwrap();
    disk.flip_bit(&record.file, record.offset + 40, 1).unwrap();
    let mut scrub = log.reader().scrub();
    assert_eq!(pass(&mut scrub).0, []);
    for n in 0..10 {
        append(&mut log, last + 1 + n, last + 1 + n);
    }
    let (found, _) = pass(&mut scrub);
    assert_eq!(found.len(), 1, "by now it is sealed: {found:?}");
    assert_eq!(found[0].entries, Some((record.index, record.index)));
}

#[test]
fn a_segment_given_up_in_the_middle_of_a_pass_is_left_and_used_again() {
    let (disk, mut log) = log();
    let mut scrub = log.reader().scrub();
    scrub.step(STEP);
    scrub.step(STEP);
    let first = Arc::clone(&sealed(&log)[0]);
    assert_eq!(scrub.segment, first.header.unique, "in the middle of it");
    let (path, next) = (first.path.clone(), sealed(&log)[1].header.first);
    drop(first);
    assert_eq!(log.compact(next.prev()), Ok(next));
    assert!(!disk.files().contains_key(&path));
    assert!(log.retired.is_some(), "the scrub holds no segment between its steps");
    let mut spare = log.spare().unwrap();
    while !spare.step().unwrap() {}
    log.add_spare(spare).unwrap();
    assert_eq!(pass(&mut scrub).0, []);
    for n in 20..40 {
        append(&mut log, 3 * n + 1, 3 * n + 3);
        assert_eq!(scrub.step(STEP).found, [], "whatever is written and rolled beside it");
    }
    assert_eq!(pass(&mut scrub).0, []);
    log.compact(Index(120)).unwrap();
    assert!(scrub.step(STEP).found.is_empty());
}

#[test]
fn what_cannot_be_read_is_damage_and_back_when_the_disk_gives_it_again() {
    let (disk, mut log) = log();
    let segment = Arc::clone(&sealed(&log)[0]);
    let first = records_of(&disk, &segment).into_iter().find(|r| r.kind == "entry").unwrap();
    let block = first.offset - first.offset % crate::position::BLOCK;
    let mut scrub = log.reader().scrub();
    let before = |at: &Cursor| at.offset == at.batch_end && align_up(at.offset) == block;
    while !matches!(&scrub.stage, Stage::Records(at) if before(at)) {
        assert_eq!(scrub.step(1).found, []);
    }
    // The walk over its batch, and the entry itself.
    for _ in 0..2 {
        disk.fail_next(Op::Read, &segment.path);
    }
    let (found, _) = pass(&mut scrub);
    let runs: Vec<_> = found.iter().filter_map(|f| f.entries).collect();
    assert_eq!(runs, [(Index(1), Index(1))], "{found:?}");
    assert!(matches!(found[0].fault(), Some(LogFault::Damaged { first: Index(1), .. })));
    disk.clear_failures();
    let before = disk.files();
    assert_eq!(log.repair(&[command(1)]), Ok(vec![Index(1)]), "it stands there");
    assert_eq!(disk.files(), before, "nothing had to be written for it");
    assert_eq!(log.repair(&[Entry { body: Body::Blank, ..command(1) }]), Ok(vec![]));
    assert_eq!(pass(&mut scrub).0, []);
}

#[test]
fn a_void_entry_is_nobodys_loss() {
    let (disk, mut log) = log();
    let segment = Arc::clone(&sealed(&log)[0]);
    let second = records_of(&disk, &segment).into_iter().find(|r| r.index == Index(2)).unwrap();
    let append = Entries::new(vec![Entry { id: LogId::new(2, 2), ..command(2) }]).unwrap();
    let hard = Some(HardState { term: Term(2), voted_for: None });
    let cut = Persist { seq: Seq(99), truncate_from: Some(Index(2)), append, hard };
    log.persist(&[cut]).unwrap();
    disk.flip_bit(&segment.path, second.offset + 40, 1).unwrap();
    let (found, _) = pass(&mut log.reader().scrub());
    let told: Vec<_> = found.iter().map(|f| (f.offset, f.entries)).collect();
    assert_eq!(told, [(second.offset, None)]);
}

#[test]
fn a_poisoned_log_and_a_held_one_are_verified_and_not_touched() {
    let (disk, mut log) = log();
    disk.fail_next(Op::Sync, "log/");
    let append = Entries::new(vec![command(61)]).unwrap();
    let batch = Persist { seq: Seq(61), truncate_from: None, append, hard: None };
    assert!(log.persist(&[batch]).is_err());
    let mut scrub = log.reader().scrub();
    let before = disk.files();
    assert_eq!(pass(&mut scrub).0, [], "what was acknowledged is as it was");
    assert_eq!(disk.files(), before);
    log.reopen().unwrap();
    assert_eq!(pass(&mut scrub).0, [], "and so it is in the segments of the reopened log");
    drop(log);

    // Both headers of the newest segment: nothing tells what it promised.
    let newest = disk.files().into_keys().rfind(|path| path.starts_with("log/0")).unwrap();
    disk.flip_bit(&newest, 48, 1).unwrap();
    disk.flip_bit(&newest, HEADER_COPY + 48, 1).unwrap();
    let disk = disk.kill();
    let log = open(&disk);
    assert!(log.recovered().held.is_some());
    let record = records_of(&disk, &log.segments[log.segments.keys().next().unwrap()]);
    let entry = record.iter().find(|r| r.kind == "entry").unwrap();
    disk.flip_bit(&entry.file, entry.offset + 40, 1).unwrap();
    let before = disk.files();
    let (found, _) = pass(&mut log.reader().scrub());
    assert_eq!(found.iter().filter_map(|f| f.entries).count(), 1, "{found:?}");
    assert_eq!(disk.files(), before);
}

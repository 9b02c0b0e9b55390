//! Damage anywhere in a small log of several segments: never a wrong entry, never an acknowledged
//! entry lost in silence. Everything is a hole, held, or harmless; and stays so through crashes.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use bytes::Bytes;
use holdfast_consensus::damage::hole_at;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::traits::{LogReader, LogStore};
use holdfast_consensus::{
    Body, Entries, Entry, HardState, Index, LogId, MemberId, Membership, Recovered, Seq, Term,
};
use holdfast_log::inspect::records;
use holdfast_log::mem_disk::{KeepAll, LoseAll, PowerLoss, RandomLoss};
use holdfast_log::{Disk, DiskFile, Log, LogOptions, MemDisk, Mode, Owner};
use std::collections::BTreeMap;

const OPTIONS: LogOptions = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };

fn open(disk: &MemDisk) -> Result<Log<MemDisk>, LogFault> {
    Log::open(disk.clone(), Owner { member: MemberId(7), ..Owner::default() }, OPTIONS)
}

fn entry(term: u64, index: u64) -> Entry {
    let body = match index % 7 {
        0 => Body::Blank,
        3 => {
            let name = (MemberId(7), format!("n{index}"));
            Body::Membership(Membership::of_voters([name]).into())
        }
        _ => Body::Command(Bytes::from(vec![index.to_le_bytes()[0]; 40])),
    };
    Entry { id: LogId::new(term, index), time: index, body }
}

/// What was acknowledged.
#[derive(Clone, Debug, Default)]
struct Truth {
    entries: Vec<Entry>,
    hard: HardState,
}

/// Some restarts, cuts and segments, and a watermark behind the last batch.
fn history() -> (MemDisk, Truth) {
    let (disk, mut truth) = (MemDisk::new(), Truth::default());
    let mut log = open(&disk).unwrap();
    for seq in 1..=17u64 {
        if seq % 8 == 0 {
            drop(log);
            log = open(&disk).unwrap();
        }
        let last = truth.entries.len() as u64;
        // Two cuts, one of them below the first index of its segment.
        let cut = match seq {
            7 => Some(last),
            13 => Some(last - 6),
            _ => None,
        };
        let first = cut.unwrap_or(last + 1);
        let term = 1 + seq / 6;
        truth.entries.truncate(usize::try_from(first - 1).unwrap());
        truth.hard = HardState { term: Term(term), voted_for: Some(MemberId(seq % 2)) };
        if seq % 6 != 0 {
            truth.hard.voted_for = Some(MemberId(1));
        } else {
            truth.hard.voted_for = None;
        }
        let append: Vec<Entry> = (first..first + 3).map(|index| entry(term, index)).collect();
        truth.entries.extend(append.iter().cloned());
        let append = Entries::new(append).unwrap();
        let batch = Persist {
            seq: Seq(seq),
            truncate_from: cut.map(Index),
            append,
            hard: Some(truth.hard),
        };
        log.persist(&[batch]).unwrap();
    }
    log.watermark(Index(9)).unwrap();
    log.watermark(Index(9)).unwrap();
    let newest = records(&disk).unwrap().map(Result::unwrap).filter(|r| r.ok).last();
    assert_eq!(newest.map(|r| r.kind), Some("watermark"), "the newest batch is proved");
    (disk, truth)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    known: u64,
    unknown: u64,
    held: u64,
    refused: u64,
    harmless: u64,
}

/// Opens a damaged log and holds it against the truth. `None` if it refuses or is held.
fn judge(disk: &MemDisk, truth: &Truth, counts: &mut Counts, what: &str) -> Option<Recovered> {
    let before = disk.files();
    let log = match open(disk) {
        Ok(log) => log,
        Err(LogFault::Held { .. } | LogFault::Refused(_)) => {
            assert_eq!(disk.files(), before, "{what}");
            counts.refused += 1;
            return None;
        }
        Err(other) => panic!("{what}: {other}"),
    };
    let found = log.recovered();
    let mut at = found.first;
    while at <= found.last.index {
        match log.reader().read(at, at, 1 << 20) {
            Ok(read) => {
                let want = usize::try_from(at.0 - 1).ok().and_then(|n| truth.entries.get(n));
                // A held log ends where it cannot tell: what was cut later may still show.
                if found.held.is_none() {
                    assert_eq!(Some(&read.as_slice()[0]), want, "{what}: a wrong entry");
                }
            }
            Err(LogFault::Damaged { .. }) => {
                let hole = hole_at(&found.holes, at).unwrap_or_else(|| panic!("{what}: {at}"));
                let want = &truth.entries[usize::try_from(at.0 - 1).unwrap()];
                let right = want.identity().unwrap();
                assert!(hole.known.is_none_or(|known| known == right), "{what}: {hole:?}");
            }
            Err(other) => panic!("{what}: {other}"),
        }
        at = at.next();
    }
    if found.held.is_some() {
        assert_eq!(disk.files(), before, "{what}: a held log changes nothing");
        counts.held += 1;
        return None;
    }
    assert_eq!(found.last, truth.entries.last().unwrap().id, "{what}: acknowledged and lost");
    assert_eq!(found.hard, truth.hard, "{what}");
    match found.holes.iter().any(|hole| hole.known.is_none()) {
        true => counts.unknown += 1,
        false if found.holes.is_empty() => counts.harmless += 1,
        false => counts.known += 1,
    }
    Some(found)
}

/// Fills every hole from the truth and demands the whole of it, now and at the next open.
fn heal(disk: &MemDisk, truth: &Truth, holes: &Recovered, what: &str) {
    let mut log = open(disk).unwrap();
    let entries: Vec<Entry> = (holes.holes.iter())
        .map(|hole| truth.entries[usize::try_from(hole.index.0 - 1).unwrap()].clone())
        .collect();
    let filled = log.repair(&entries).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(filled.len(), entries.len(), "{what}");
    for round in 0..2 {
        let found = log.recovered();
        assert_eq!((&found.holes, &found.held), (&vec![], &None), "{what}: round {round}");
        let mut all = Vec::new();
        while all.len() < truth.entries.len() {
            let from = Index(all.len() as u64 + 1);
            let piece = log.reader().read(from, found.last.index, 1 << 20).unwrap();
            all.extend(piece.iter().cloned());
        }
        assert_eq!(all, truth.entries, "{what}: round {round}");
        let configurations = truth.entries.iter().filter_map(|e| match &e.body {
            Body::Membership(m) => Some((e.id.index, m.as_ref().clone())),
            _ => None,
        });
        assert_eq!(found.memberships, configurations.collect::<Vec<_>>(), "{what}");
        drop(log);
        log = open(&disk.crash(&mut LoseAll)).unwrap();
    }
}

type Files = BTreeMap<String, Vec<u8>>;

fn segments(files: &Files) -> Vec<String> {
    files.keys().filter(|name| name.starts_with("log/0")).cloned().collect()
}

/// Which bytes to strike: every byte of every record and header, and some of the zeros between.
fn places(disk: &MemDisk) -> Vec<(String, usize)> {
    let mut wanted: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for (name, bytes) in disk.files().into_iter().filter(|(name, _)| name.starts_with("log/0")) {
        let mut marks: Vec<bool> = (0..bytes.len()).map(|at| at % 509 == 0).collect();
        marks[..224].fill(true);
        marks[4096..4096 + 224].fill(true);
        wanted.insert(name, marks);
    }
    for record in records(disk).unwrap().map(Result::unwrap).filter(|r| r.kind != "header") {
        let from = usize::try_from(record.offset).unwrap();
        let to = from + usize::try_from(record.len).unwrap();
        wanted.get_mut(&record.file).unwrap()[from..to].fill(true);
    }
    let all = wanted.into_iter().flat_map(|(name, marks)| {
        let struck = marks.into_iter().enumerate().filter(|(_, wanted)| *wanted);
        struck.map(move |(at, _)| (name.clone(), at)).collect::<Vec<_>>()
    });
    all.collect()
}

#[test]
fn a_flipped_bit_at_any_byte_loses_nothing_in_silence() {
    let (disk, truth) = history();
    let files = disk.files();
    assert!(segments(&files).len() > 3, "{:?}", segments(&files));
    let mut counts = Counts::default();
    let places = places(&disk);
    for (n, (name, at)) in places.iter().enumerate() {
        let mut struck = files.clone();
        struck.get_mut(name).unwrap()[*at] ^= 1 << (n % 8);
        let disk = MemDisk::from_files(struck);
        let what = format!("{name} byte {at}");
        if let Some(found) = judge(&disk, &truth, &mut counts, &what)
            && n % 16 == 0
        {
            heal(&disk, &truth, &found, &what);
        }
    }
    println!("{} flips: {counts:?}", places.len());
    assert!(counts.known > 1000 && counts.harmless > 1000, "{counts:?}");
    // One flipped bit leaves either the record or the side index.
    assert_eq!((counts.unknown, counts.held, counts.refused), (0, 0, 0), "{counts:?}");
}

#[test]
fn any_lost_block_and_any_two_of_them_lose_nothing_in_silence() {
    let (disk, truth) = history();
    let files = disk.files();
    let blocks: Vec<(String, usize)> = segments(&files)
        .into_iter()
        .flat_map(|name| (0..files[&name].len() / 4096).map(move |block| (name.clone(), block)))
        .filter(|(name, block)| {
            // The watermark alone proves the newest batch: with both gone the batch was never
            // proved durable (R10).
            files[name][block * 4096..(block + 1) * 4096].iter().any(|b| *b != 0)
        })
        .collect();
    let newest = blocks.last().unwrap().clone();
    let (mut one, mut two) = (Counts::default(), Counts::default());
    for (n, first) in blocks.iter().enumerate() {
        for second in &blocks[n..] {
            if first != second && (*first == newest || *second == newest) {
                continue;
            }
            for fill in [0, 0xEE] {
                let mut struck = files.clone();
                for (name, block) in [first, second] {
                    struck.get_mut(name).unwrap()[block * 4096..(block + 1) * 4096].fill(fill);
                }
                let disk = MemDisk::from_files(struck);
                let what = format!("{first:?} {second:?} {fill}");
                let counts = if first == second { &mut one } else { &mut two };
                if let Some(found) = judge(&disk, &truth, counts, &what) {
                    heal(&disk, &truth, &found, &what);
                }
            }
        }
    }
    println!("{} blocks, one lost: {one:?}; two lost: {two:?}", blocks.len());
    assert_eq!((one.held, one.refused), (0, 0), "{one:?}");
    assert!(one.known > 0 && two.unknown > 0, "{one:?} {two:?}");
}

#[test]
fn a_lost_or_shortened_file_loses_nothing_in_silence() {
    let (disk, truth) = history();
    let files = disk.files();
    let names = segments(&files);
    let mut counts = Counts::default();
    // The oldest is gone as after compaction; any other shows.
    for name in &names[1..] {
        let mut struck = files.clone();
        struck.remove(name);
        let disk = MemDisk::from_files(struck);
        if let Some(found) = judge(&disk, &truth, &mut counts, name) {
            heal(&disk, &truth, &found, name);
        }
    }
    for name in &names {
        for blocks in 0..files[name].len() / 4096 {
            let mut struck = files.clone();
            struck.get_mut(name).unwrap().truncate(blocks * 4096 + 100);
            let (disk, what) = (MemDisk::from_files(struck), format!("{name} {blocks} blocks"));
            if let Some(found) = judge(&disk, &truth, &mut counts, &what) {
                heal(&disk, &truth, &found, &what);
            }
        }
    }
    println!("lost and shortened files: {counts:?}");
    assert!(counts.held > 0, "{counts:?}");
}

/// A log with two holes, and what it holds.
fn damaged() -> (MemDisk, Truth) {
    let (disk, truth) = history();
    for index in [4, 20] {
        let all: Vec<_> = records(&disk).unwrap().map(Result::unwrap).collect();
        let live =
            |r: &&holdfast_log::inspect::RecordInfo| r.kind == "entry" && r.index == Index(index);
        let last = all.iter().rfind(live).unwrap();
        let file = disk.open(&last.file, Mode::Write).unwrap();
        let mut byte = [0];
        file.read_at(last.offset + 33, &mut byte).unwrap();
        file.write_at(last.offset + 33, &[byte[0] ^ 9]).unwrap();
        file.sync().unwrap();
    }
    (disk, truth)
}

#[test]
fn a_crash_anywhere_in_an_open_over_holes_changes_no_verdict() {
    let (disk, truth) = damaged();
    let files = disk.files();
    let named = |found: &Recovered| found.holes.iter().map(|h| h.index.0).collect::<Vec<_>>();
    let mut rng = SplitMix64::new(5);
    for fuse in 0..40 {
        for choice in 0..3 {
            let mut disk = MemDisk::from_files(files.clone());
            for _ in 0..3 {
                disk.set_fuse(Some(fuse + rng.next_u64() % 3));
                open(&disk).map(drop).ok();
                let seed = rng.next_u64();
                let mut loss: Box<dyn PowerLoss> = match choice {
                    0 => Box::new(LoseAll),
                    1 => Box::new(KeepAll),
                    _ => Box::new(RandomLoss::new(seed)),
                };
                disk = disk.crash(loss.as_mut());
            }
            let what = format!("fuse {fuse} choice {choice}");
            let found = judge(&disk, &truth, &mut Counts::default(), &what).unwrap();
            assert_eq!(named(&found), [4, 20], "{what}");
        }
    }
}

#[test]
fn a_crash_anywhere_in_a_repair_leaves_the_hole_or_fills_it() {
    let (disk, truth) = damaged();
    let files = disk.files();
    let (mut open_still, mut filled) = (0, 0);
    for fuse in 0..30 {
        for seed in 0..6 {
            let disk = MemDisk::from_files(files.clone());
            disk.set_fuse(Some(fuse));
            let acknowledged = open(&disk).is_ok_and(|mut log| {
                log.repair(&[truth.entries[3].clone(), truth.entries[19].clone()]).is_ok()
            });
            let disk = disk.crash(&mut RandomLoss::new(seed));
            let what = format!("fuse {fuse} seed {seed}");
            let found = judge(&disk, &truth, &mut Counts::default(), &what).unwrap();
            assert!(!acknowledged || found.holes.is_empty(), "{what}");
            if found.holes.is_empty() {
                filled += 1;
            } else {
                open_still += 1;
                heal(&disk, &truth, &found, &what);
            }
        }
    }
    assert!(open_still > 10 && filled > 10, "{open_still} {filled}");
}

/// The newest segment repeats the configuration in force for the day when those before it are given
/// up. While the configuration is damaged it does not know it.
#[test]
fn a_configuration_that_was_given_back_outlives_the_segment_it_stood_in() {
    let disk = MemDisk::new();
    let command =
        |index: u64| Entry { body: Body::Command(Bytes::from(vec![7; 40])), ..entry(1, index) };
    let append = |log: &mut Log<MemDisk>, indexes: std::ops::RangeInclusive<u64>| {
        for index in indexes {
            let one = if index == 3 { entry(1, 3) } else { command(index) };
            let append = Entries::new(vec![one]).unwrap();
            let hard = Some(HardState { term: Term(1), voted_for: None });
            log.persist(&[Persist { seq: Seq(index), truncate_from: None, append, hard }]).unwrap();
        }
        log.watermark(Index(9)).unwrap();
        log.watermark(Index(9)).unwrap();
    };
    let mut log = open(&disk).unwrap();
    append(&mut log, 1..=9);
    drop(log);
    let stood = records(&disk).unwrap().map(Result::unwrap);
    let stood = stood.filter(|r| r.kind == "entry" && r.index == Index(3)).last().unwrap();
    disk.flip_bit(&stood.file, stood.offset + 60, 1).unwrap();
    let mut log = open(&disk).unwrap();
    assert_eq!(log.recovered().memberships, [], "the only configuration is damaged");
    assert_eq!(log.repair(&[entry(1, 3)]).unwrap(), [Index(3)]);
    append(&mut log, 10..=40);
    let mut given_up = 0;
    for through in 1..=40 {
        let before = log.recovered().first;
        given_up += u64::from(log.compact(Index(through)).unwrap() > before);
        let found = open(&MemDisk::from_files(disk.files())).unwrap().recovered();
        assert_eq!(found.memberships, log.recovered().memberships, "through {through}");
        assert_eq!(found.memberships.last().map(|(at, _)| *at), Some(Index(3)), "{through}");
    }
    assert!(given_up >= 3, "{given_up}");
}

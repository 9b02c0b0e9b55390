//! A segment that the log gave up becomes the next spare. What is left in it never counts, and nobody
//! who still holds bytes of it sees them change.
#![forbid(unsafe_code)]

use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{Body, Entries, Entry, HardState, Index, LogId, MemberId, Seq, Term};
use holdfast_log::inspect::verify;
use holdfast_log::mem_disk::{LoseAll, RandomLoss};
use holdfast_log::{Disk, DiskFile, Log, LogOptions, MemDisk, Mode, Owner, RealDisk};
use std::ops::Range;

const OPTIONS: LogOptions = LogOptions { segment_bytes: 32 << 10 };

fn open<D: Disk>(disk: &D) -> Log<D> {
    let owner = Owner { member: MemberId(7), ..Owner::default() };
    Log::open(disk.clone(), owner, OPTIONS).expect("the log opens")
}

fn command(index: u64) -> Entry {
    let mut payload = vec![index.to_le_bytes()[0]; 2000];
    payload[..8].copy_from_slice(&index.to_le_bytes());
    Entry { id: LogId::new(1, index), time: index, body: Body::Command(Bytes::from(payload)) }
}

fn append<D: Disk>(log: &mut Log<D>, n: u64) -> Result<(), LogFault> {
    let append = Entries::new((3 * n + 1..=3 * n + 3).map(command).collect()).expect("in order");
    let hard = Some(HardState { term: Term(1), voted_for: None });
    log.persist(&[Persist { seq: Seq(n + 1), truncate_from: None, append, hard }]).map(drop)
}

/// Prepares the spare that the log wants, if it wants one.
fn prepare<D: Disk>(log: &mut Log<D>) -> Result<(), LogFault> {
    let Some(mut spare) = log.spare() else { return Ok(()) };
    while !spare.step()? {}
    log.add_spare(spare)
}

/// Appends batches, and gives up everything but the last few entries after each. Stops at the first
/// fault, and returns the number of batches that were acknowledged.
fn live<D: Disk>(log: &mut Log<D>, batches: Range<u64>) -> u64 {
    for n in batches.clone() {
        if prepare(log).and_then(|()| append(log, n)).is_err() {
            return n;
        }
        if log.compact(Index((3 * n).saturating_sub(20))).is_err() {
            return n + 1;
        }
    }
    batches.end
}

fn files(disk: &MemDisk) -> Vec<String> {
    disk.files().into_keys().filter(|path| path.starts_with("log/")).collect()
}

/// Spares that hold what they held as segments: no header, and something behind it.
fn used_spares<D: Disk>(disk: &D) -> Vec<String> {
    let names = disk.list("log").expect("listed");
    let mut spares: Vec<String> =
        names.into_iter().filter(|n| n.starts_with("spare-") && !n.ends_with(".tmp")).collect();
    spares.retain(|name| {
        let file = disk.open(&format!("log/{name}"), Mode::Read).expect("there");
        let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("small")];
        file.read_at(0, &mut bytes).expect("readable");
        assert!(bytes[..8192].iter().all(|byte| *byte == 0), "{name} has no header");
        bytes.iter().any(|byte| *byte != 0)
    });
    spares
}

#[test]
fn a_log_that_gives_up_what_it_logged_stays_at_a_few_files() {
    let disk = MemDisk::new();
    let mut log = open(&disk);
    assert_eq!(live(&mut log, 0..240), 240);
    assert!(files(&disk).len() < 10, "{:?}", files(&disk));
    prepare(&mut log).expect("there is space");
    assert!(!used_spares(&disk).is_empty(), "a segment that was given up is a spare");
    drop(log);
    let found = open(&disk.crash(&mut LoseAll)).recovered();
    assert_eq!((found.last, found.holes, found.held), (LogId::new(1, 720), vec![], None));
}

#[test]
fn what_a_file_held_before_is_nothing_behind_the_end_of_what_it_holds_now() {
    for (batches, loss) in (30..60).zip((0..4).cycle()) {
        let disk = MemDisk::new();
        let mut log = open(&disk);
        assert_eq!(live(&mut log, 0..batches), batches);
        let first = log.recovered().first;
        drop(log);
        let report = verify(&disk).expect("a log");
        assert!(report.healthy(), "{batches}: {report:?}");
        let log = open(&disk.crash(&mut RandomLoss::new(loss)));
        let found = log.recovered();
        assert_eq!((found.first, found.last.index), (first, Index(3 * batches)), "{batches}");
        for index in first.0..=3 * batches {
            let read = log.reader().read(Index(index), Index(index), 1 << 20);
            assert_eq!(read.expect("readable").as_slice(), [command(index)]);
        }
    }
}

#[test]
fn a_crash_anywhere_in_the_life_of_a_file_loses_nothing() {
    let mut crashes = 0;
    for operations in (0..).step_by(5) {
        let disk = MemDisk::new();
        let mut log = open(&disk);
        assert_eq!(live(&mut log, 0..20), 20);
        disk.set_fuse(Some(operations));
        let acknowledged = live(&mut log, 20..50);
        drop(log);
        if !disk.is_blown() {
            break;
        }
        crashes += 1;
        let found = open(&disk.crash(&mut RandomLoss::new(operations))).recovered();
        assert_eq!((found.holes, found.held), (vec![], None), "after {operations} operations");
        assert!(found.last.index >= Index(3 * acknowledged), "after {operations} operations");
    }
    assert!(crashes > 30, "{crashes}");
}

#[test]
fn a_file_whose_bytes_somebody_holds_is_not_used_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = RealDisk::open(dir.path()).expect("there");
    let mut log = open(&disk);
    for n in 0..40 {
        prepare(&mut log).and_then(|()| append(&mut log, n)).expect("there is space");
    }
    let held: Vec<Entries> = (1..=120)
        .map(|at| log.reader().read(Index(at), Index(at), 1 << 20).expect("readable"))
        .collect();
    assert_eq!(live(&mut log, 40..120), 120);
    for (entries, index) in held.iter().zip(1..) {
        assert_eq!(entries.as_slice(), [command(index)], "what is held stays as it was");
    }
    // Nobody holds bytes any more: spares are what was given up.
    drop(held);
    assert_eq!(live(&mut log, 120..200), 200);
    prepare(&mut log).expect("there is space");
    assert!(!used_spares(&disk).is_empty());
}

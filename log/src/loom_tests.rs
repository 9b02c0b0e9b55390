//! What writer and readers share, under every interleaving and with every value that a load may
//! see: `RUSTFLAGS="--cfg loom" cargo test -p holdfast-log --release --lib loom_tests`.
//!
//! The models run the real log. Its disk keeps every version of a file and serves the one that a
//! relaxed load names, so that a reader that nothing has synchronised sees bytes of the past. Two
//! models of a weaker protocol must fail: that is how the others are known to be able to.

use crate::disk::{Disk, DiskFile, Mode};
use crate::log::{Log, LogOptions};
use crate::mem_disk::{MemDisk, MemFile};
use crate::reader::Reader;
use crate::segment::Owner;
use crate::sync::Boundary;
use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{Body, Entries, Entry, HardState, Index, LogId, MemberId, Seq};
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// A disk whose files may read as they were.
#[derive(Clone, Debug)]
struct Stale(MemDisk);

/// Every version of a file, and the index of the newest, which nobody is sure to see.
#[derive(Debug)]
struct StaleFile {
    file: MemFile,
    versions: Mutex<Vec<Vec<u8>>>,
    newest: AtomicUsize,
}

impl StaleFile {
    fn whole(file: &MemFile) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
        file.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    fn changed(&self) -> io::Result<()> {
        let bytes = Self::whole(&self.file)?;
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.push(bytes);
        let newest = versions.len() - 1;
        drop(versions);
        self.newest.store(newest, Ordering::Relaxed);
        Ok(())
    }
}

impl Disk for Stale {
    type File = StaleFile;

    fn open(&self, path: &str, mode: Mode) -> io::Result<StaleFile> {
        let file = self.0.open(path, mode)?;
        let versions = Mutex::new(vec![StaleFile::whole(&file)?]);
        Ok(StaleFile { file, versions, newest: AtomicUsize::new(0) })
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.0.unlink(path)
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.0.make_dir(path)
    }
    fn is_dir(&self, path: &str) -> io::Result<bool> {
        self.0.is_dir(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.0.remove_dir(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }
}

impl DiskFile for StaleFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.changed()
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = self.share(offset, into.len())?;
        into.copy_from_slice(&bytes);
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)?;
        self.changed()
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let seen = self.newest.load(Ordering::Relaxed);
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let range = versions.get(seen).and_then(|bytes| bytes.get(from..from.checked_add(len)?));
        range.map(Bytes::copy_from_slice).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Runs a model to its end and prints the number of its executions.
fn model(name: &str, run: impl Fn() + Sync + Send + 'static) {
    bounded(name, None, run);
}

/// As [`model`], with at most so many threads stopped where they could have gone on.
fn bounded(name: &str, preemptions: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    // What is behind no branch of interest still counts as one: opening a log is long.
    builder.max_branches = 100_000;
    builder.preemption_bound = preemptions;
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        run();
    });
    println!("{name}: {} executions", executions.load(std::sync::atomic::Ordering::Relaxed));
}

/// True if the model fails in some execution.
fn fails(run: impl Fn() + Sync + Send + 'static) -> bool {
    let run = std::panic::AssertUnwindSafe(move || model("weakened", run));
    std::panic::catch_unwind(run).is_err()
}

const OPTIONS: LogOptions = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };

fn open() -> Log<Stale> {
    let owner = Owner { member: MemberId(7), ..Owner::default() };
    Log::open(Stale(MemDisk::new()), owner, OPTIONS).expect("a log opens on an empty disk")
}

fn entry(term: u64, index: u64, len: usize) -> Entry {
    let body = Body::Command(Bytes::from(vec![(16 * term + index).to_le_bytes()[0]; len]));
    Entry { id: LogId::new(term, index), time: 1, body }
}

fn append(log: &mut Log<Stale>, seq: u64, cut: Option<u64>, entry: Entry) {
    let term = entry.id.term;
    let append = Entries::new(vec![entry]).expect("one entry is in order");
    let hard = Some(HardState { term, voted_for: None });
    let batch = Persist { seq: Seq(seq), truncate_from: cut.map(Index), append, hard };
    log.persist(&[batch]).expect("the disk has no faults");
}

fn read(reader: &Reader<Stale>, from: u64, to: u64) -> Result<Vec<Entry>, LogFault> {
    reader.read(Index(from), Index(to), 1 << 20).map(|e| e.iter().cloned().collect())
}

#[test]
fn what_is_below_a_boundary_is_seen_whole() {
    model("boundary", || {
        let bytes = Arc::new(AtomicU64::new(0));
        let boundary = Arc::new(Boundary::new(0));
        let (theirs, mark) = (Arc::clone(&bytes), Arc::clone(&boundary));
        let writer = thread::spawn(move || {
            for end in 1..=2 {
                theirs.store(end, Ordering::Relaxed);
                mark.publish(end);
            }
        });
        let end = boundary.observe();
        assert!(bytes.load(Ordering::Relaxed) >= end, "a reader sees what was published");
        writer.join().expect("the writer ends");
    });
}

#[test]
fn a_boundary_without_release_and_acquire_is_refuted() {
    assert!(fails(|| {
        let bytes = Arc::new(AtomicU64::new(0));
        let boundary = Arc::new(AtomicU64::new(0));
        let (theirs, mark) = (Arc::clone(&bytes), Arc::clone(&boundary));
        let writer = thread::spawn(move || {
            theirs.store(1, Ordering::Relaxed);
            mark.store(1, Ordering::Relaxed);
        });
        let end = boundary.load(Ordering::Relaxed);
        assert!(bytes.load(Ordering::Relaxed) >= end, "a reader sees what was published");
        writer.join().expect("the writer ends");
    }));
}

#[test]
fn a_reader_beside_an_append_sees_the_entry_whole_or_not_at_all() {
    model("append", || {
        let mut log = open();
        let reader = log.reader();
        let writer = thread::spawn(move || append(&mut log, 1, None, entry(1, 1, 100)));
        match read(&reader, 1, 1) {
            Ok(seen) => assert_eq!(seen, vec![entry(1, 1, 100)]),
            Err(LogFault::Refused(_)) => {}
            Err(other) => panic!("{other}"),
        }
        writer.join().expect("the writer ends");
        assert_eq!(read(&reader, 1, 1), Ok(vec![entry(1, 1, 100)]));
    });
}

#[test]
fn an_entry_that_is_shown_before_it_is_written_is_refuted() {
    assert!(fails(|| {
        let mut log = open();
        append(&mut log, 1, None, entry(1, 1, 100));
        let reader = log.reader();
        let writer = thread::spawn(move || {
            // The acknowledgement, one step early: where the next entry will lie is known.
            let mut at = *log.state.entry(Index(1)).expect("it was written");
            at.offset = log.offset + crate::record::BATCH_RECORD as u64;
            log.active.publish(log.offset + crate::position::BLOCK);
            log.table.write().unwrap_or_else(PoisonError::into_inner).entries.push(at);
            append(&mut log, 2, None, entry(1, 2, 100));
        });
        match read(&reader, 1, 2) {
            Ok(seen) => assert_eq!(seen, vec![entry(1, 1, 100), entry(1, 2, 100)]),
            Err(LogFault::Refused(_)) => {}
            Err(other) => panic!("{other}"),
        }
        writer.join().expect("the writer ends");
    }));
}

#[test]
fn a_reader_beside_a_roll_reads_on_in_the_next_segment() {
    model("roll", || {
        let mut log = open();
        append(&mut log, 1, None, entry(1, 1, 14 << 10));
        let reader = log.reader();
        let writer = thread::spawn(move || append(&mut log, 2, None, entry(1, 2, 14 << 10)));
        match read(&reader, 1, 2) {
            Ok(seen) => assert_eq!(seen, vec![entry(1, 1, 14 << 10), entry(1, 2, 14 << 10)]),
            Err(LogFault::Refused(_)) => {
                assert_eq!(read(&reader, 1, 1), Ok(vec![entry(1, 1, 14 << 10)]))
            }
            Err(other) => panic!("{other}"),
        }
        writer.join().expect("the writer ends");
    });
}

#[test]
fn a_reader_beside_a_compaction_reads_what_was_there_or_is_told() {
    model("compaction", || {
        let mut log = open();
        append(&mut log, 1, None, entry(1, 1, 14 << 10));
        append(&mut log, 2, None, entry(1, 2, 14 << 10));
        let reader = log.reader();
        let held = read(&reader, 1, 1).expect("it is there");
        let writer = thread::spawn(move || log.compact(Index(1)).expect("the disk has no faults"));
        match read(&reader, 1, 2) {
            Ok(seen) => assert_eq!(seen, vec![entry(1, 1, 14 << 10), entry(1, 2, 14 << 10)]),
            Err(LogFault::Compacted { first }) => assert_eq!(first, Index(2)),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(writer.join().expect("the writer ends"), Index(2));
        assert_eq!(held, vec![entry(1, 1, 14 << 10)], "what is held stays");
        assert_eq!(read(&reader, 2, 2), Ok(vec![entry(1, 2, 14 << 10)]));
    });
}

#[test]
fn a_reader_beside_a_cut_sees_one_history_or_the_other() {
    model("cut", || {
        let mut log = open();
        append(&mut log, 1, None, entry(1, 1, 100));
        let reader = log.reader();
        let writer = thread::spawn(move || append(&mut log, 2, Some(1), entry(2, 1, 100)));
        let seen = read(&reader, 1, 1).expect("one of the two is there");
        assert!(seen == vec![entry(1, 1, 100)] || seen == vec![entry(2, 1, 100)]);
        writer.join().expect("the writer ends");
        assert_eq!(read(&reader, 1, 1), Ok(vec![entry(2, 1, 100)]));
    });
}

#[test]
fn two_readers_verify_one_segment_beside_an_append() {
    // Without a bound: 198,084 executions, a minute.
    bounded("two readers", Some(3), || {
        let mut log = open();
        append(&mut log, 1, None, entry(1, 1, 100));
        let (reader, other) = (log.reader(), log.reader());
        let writer = thread::spawn(move || append(&mut log, 2, None, entry(1, 2, 100)));
        let second = thread::spawn(move || read(&other, 1, 1));
        assert_eq!(read(&reader, 1, 1), Ok(vec![entry(1, 1, 100)]));
        assert_eq!(second.join().expect("the reader ends"), Ok(vec![entry(1, 1, 100)]));
        writer.join().expect("the writer ends");
    });
}

#[test]
fn no_two_spares_are_in_the_making() {
    model("spare", || {
        let mut log = open();
        let mut spare = log.spare().expect("a new log wants one");
        let maker = thread::spawn(move || {
            while !spare.step().expect("the disk has no faults") {}
            spare
        });
        append(&mut log, 1, None, entry(1, 1, 100));
        assert!(log.spare().is_none(), "one is being made");
        let spare = maker.join().expect("the maker ends");
        log.add_spare(spare).expect("it is finished");
        let mut second = log.spare().expect("one to go on with, and one that writes leave alone");
        assert!(log.spare().is_none(), "the second is being made");
        while !second.step().expect("the disk has no faults") {}
        log.add_spare(second).expect("it is finished");
        assert!(log.spare().is_none(), "both are there");
        assert!(!log.low());
    });
}

#[test]
fn a_spare_that_fails_is_known_before_another_is_begun() {
    model("failing spare", || {
        let mut log = open();
        let mut spare = log.spare().expect("a new log wants one");
        log.disk.0.set_budget(Some(0));
        let maker = thread::spawn(move || assert!(spare.step().is_err(), "the disk is full"));
        if let Some(next) = log.spare() {
            assert!(log.low(), "whoever may begin another knows that the last one failed");
            drop(next);
        }
        maker.join().expect("the maker ends");
        assert!(log.low() && log.spare().is_some(), "a failed one is tried again");
    });
}

#[test]
fn a_scrub_beside_a_roll_and_a_compaction_finds_every_byte_as_it_was_written() {
    bounded("scrub", Some(2), || {
        let mut log = open();
        append(&mut log, 1, None, entry(1, 1, 14 << 10));
        let mut scrub = log.reader().scrub();
        let writer = thread::spawn(move || {
            append(&mut log, 2, None, entry(1, 2, 14 << 10));
            append(&mut log, 3, None, entry(1, 3, 14 << 10));
            log.compact(Index(1)).expect("the disk has no faults")
        });
        for _ in 0..3 {
            assert_eq!(scrub.step(1 << 20).found, []);
        }
        assert_eq!(writer.join().expect("the writer ends"), Index(2));
        while !scrub.step(1 << 20).passed {}
    });
}

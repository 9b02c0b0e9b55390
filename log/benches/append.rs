//! What the log costs: appending, beside writing and syncing the bare payload to a preallocated file
//! in the same run; reading a million entries; opening a gibibyte; and whether it would pay to write
//! segments over old ones instead of over zeros.
//!
//! `cargo bench -p holdfast-log -- append` runs one group.

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{Body, Entries, Entry, HardState, Index, LogId, MemberId, Seq, Term};
use holdfast_log::{Disk, DiskFile, Log, LogOptions, Mode, Owner, RealDisk, Spare};
use std::thread::JoinHandle;
use std::time::Duration;

/// Entries a sync, and bytes of each.
const SHAPES: [(u64, usize); 4] = [(1, 128), (16, 128), (256, 128), (256, 1024)];
const FILE: u64 = 64 << 20;

/// A log that compacts behind itself, so that a long run needs two or three segments. Spares are
/// made beside it, on a thread, as in a node.
struct Appender {
    log: Log<RealDisk>,
    payload: Bytes,
    seq: u64,
    next: u64,
    compact: bool,
    spare: Option<JoinHandle<Spare<RealDisk>>>,
}

fn open(disk: RealDisk, segment_bytes: u64) -> Log<RealDisk> {
    let owner = Owner { member: MemberId(1), ..Owner::default() };
    Log::open(disk, owner, LogOptions { segment_bytes }).expect("the log opens")
}

impl Appender {
    fn new(disk: RealDisk, payload: usize, segment_bytes: u64, compact: bool) -> Self {
        let log = open(disk, segment_bytes);
        let payload = Bytes::from(vec![7; payload]);
        let mut new = Self { log, payload, seq: 0, next: 1, compact, spare: None };
        new.make_spare();
        new
    }

    fn make_spare(&mut self) {
        if let Some(made) = self.spare.take_if(|made| made.is_finished()) {
            self.log.add_spare(made.join().expect("a spare is made")).expect("a spare is taken");
        }
        if self.spare.is_none()
            && let Some(mut spare) = self.log.spare()
        {
            self.spare = Some(std::thread::spawn(move || {
                while !spare.step().expect("a spare is made") {}
                spare
            }));
        }
    }

    fn append(&mut self, count: u64) {
        let entry = |index| Entry {
            id: LogId::new(1, index),
            time: index,
            body: Body::Command(self.payload.clone()),
        };
        let append = Entries::new((self.next..self.next + count).map(entry).collect());
        self.seq += 1;
        self.next += count;
        let hard = (self.seq == 1).then_some(HardState { term: Term(1), voted_for: None });
        let append = append.expect("in order");
        let batch = Persist { seq: Seq(self.seq), truncate_from: None, append, hard };
        self.log.persist(&[batch]).expect("the log takes the batch");
        self.make_spare();
        if self.compact && self.next % 4096 < count {
            self.log.compact(Index(self.next - count)).expect("old segments go");
        }
    }
}

fn filled(disk: &RealDisk, name: &str, bytes: u64) -> <RealDisk as Disk>::File {
    let file = disk.open(name, Mode::CreateNew).expect("a file is made");
    let zeros = vec![0; 64 << 10];
    for offset in (0..bytes).step_by(zeros.len()) {
        file.write_at(offset, &zeros).expect("the file is filled");
    }
    file.sync().expect("the file is synced");
    file
}

/// The bare payload, at ever higher offsets of a file that was filled before.
struct Raw {
    file: <RealDisk as Disk>::File,
    offset: u64,
    buffer: Vec<u8>,
}

impl Raw {
    fn new(disk: &RealDisk, bytes: usize) -> Self {
        Self { file: filled(disk, "raw", FILE), offset: 0, buffer: vec![7; bytes] }
    }

    fn append(&mut self) {
        let len = self.buffer.len() as u64;
        if self.offset + len > FILE {
            self.offset = 0;
        }
        self.file.write_at(self.offset, &self.buffer).expect("the write works");
        self.file.sync().expect("the sync works");
        self.offset += len;
    }
}

fn append(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let mut group = c.benchmark_group("append");
    for (count, payload) in SHAPES {
        group.throughput(Throughput::Elements(count));
        let shape = format!("{count}x{payload}");
        let disk = RealDisk::create(dir.path().join(&shape)).expect("a directory");
        let mut log = Appender::new(disk.clone(), payload, FILE, true);
        group.bench_function(BenchmarkId::new("log", &shape), |b| b.iter(|| log.append(count)));
        let bytes = usize::try_from(count).expect("small") * payload;
        let mut raw = Raw::new(&disk, bytes);
        group.bench_function(BenchmarkId::new("raw", &shape), |b| b.iter(|| raw.append()));
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    const ENTRIES: u64 = 1 << 20;
    let dir = tempfile::tempdir().expect("a scratch directory");
    let mut group = c.benchmark_group("read");
    group.sample_size(10).throughput(Throughput::Elements(ENTRIES));
    let disk = RealDisk::create(dir.path()).expect("a directory");
    let mut log = Appender::new(disk, 128, FILE, false);
    while log.next <= ENTRIES {
        log.append(1024);
    }
    let reader = log.log.reader();
    group.bench_function("1Mi x 128", |b| {
        b.iter(|| {
            let (mut from, mut bytes) = (Index(1), 0u64);
            while from.0 <= ENTRIES {
                let piece = reader.read(from, Index(ENTRIES), 1 << 20).expect("entries are there");
                for entry in piece.iter() {
                    if let Body::Command(payload) = &entry.body {
                        bytes += payload.len() as u64;
                    }
                }
                from = piece.last().expect("at least one").index.next();
            }
            assert_eq!(bytes, ENTRIES * 128);
        });
    });
    group.finish();
}

fn reopen(c: &mut Criterion) {
    const ENTRIES: u64 = 1 << 20;
    let dir = tempfile::tempdir().expect("a scratch directory");
    let mut group = c.benchmark_group("reopen");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    group.throughput(Throughput::Bytes(ENTRIES * 1024));
    let disk = RealDisk::create(dir.path()).expect("a directory");
    let mut log = Appender::new(disk.clone(), 1024, FILE, false);
    while log.next <= ENTRIES {
        log.append(1024);
    }
    drop(log);
    group.bench_function("1Mi x 1024", |b| {
        b.iter(|| assert_eq!(open(disk.clone(), FILE).recovered().last.index, Index(ENTRIES)));
    });
    group.finish();
}

/// A segment of batches over zeros, with the next one filled beside it; and the same over the bytes
/// of an old segment, which needs no filling. The log does the first.
fn segment_life(c: &mut Criterion) {
    const SEGMENT: u64 = 16 << 20;
    let dir = tempfile::tempdir().expect("a scratch directory");
    let disk = RealDisk::create(dir.path()).expect("a directory");
    let mut group = c.benchmark_group("segment");
    group.sample_size(10).throughput(Throughput::Bytes(SEGMENT));
    for batch in [16usize << 10, 64 << 10, 256 << 10] {
        let data = vec![7; batch];
        let write = |file: &<RealDisk as Disk>::File| {
            for offset in (0..SEGMENT).step_by(batch) {
                file.write_at(offset, &data).expect("the write works");
                file.sync().expect("the sync works");
            }
        };
        let mut number = 0;
        let mut next = filled(&disk, &format!("fresh-{batch}-0"), SEGMENT);
        group.bench_function(BenchmarkId::new("fresh", batch), |b| {
            b.iter(|| {
                number += 1;
                let (theirs, name) = (disk.clone(), format!("fresh-{batch}-{number}"));
                let filling = std::thread::spawn(move || filled(&theirs, &name, SEGMENT));
                write(&next);
                next = filling.join().expect("the next one is filled");
                disk.unlink(&format!("fresh-{batch}-{}", number - 1)).expect("the old one goes");
            });
        });
        let old = filled(&disk, &format!("old-{batch}"), SEGMENT);
        group.bench_function(BenchmarkId::new("recycled", batch), |b| b.iter(|| write(&old)));
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    append(&mut criterion);
    read(&mut criterion);
    reopen(&mut criterion);
    segment_life(&mut criterion);
    criterion.final_summary();
}

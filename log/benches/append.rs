//! Appending to the log, beside writing and syncing the same bytes to a preallocated file, in the
//! same run: the distance between the two is what the log itself costs.

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogStore, SpareWork};
use holdfast_consensus::{Body, Entries, Entry, HardState, Index, LogId, MemberId, Seq, Term};
use holdfast_log::{Disk, DiskFile, Log, LogOptions, Mode, Owner, RealDisk};

const PAYLOAD: usize = 128;
const BATCHES: [u64; 3] = [1, 16, 256];
const FILE: u64 = 64 << 20;

/// A log that compacts behind itself, so that a long run needs two or three segments.
struct Appender {
    log: Log<RealDisk>,
    seq: u64,
    next: u64,
}

impl Appender {
    fn new(disk: RealDisk) -> Self {
        let owner = Owner { member: MemberId(1), ..Owner::default() };
        let options = LogOptions { segment_bytes: FILE };
        let log = Log::open(disk, owner, options).expect("the log opens");
        let mut new = Self { log, seq: 0, next: 1 };
        new.make_spare();
        new
    }

    fn make_spare(&mut self) {
        if let Some(mut spare) = self.log.spare() {
            while !spare.step().expect("a spare is made") {}
            self.log.add_spare(spare).expect("a spare is taken");
        }
    }

    fn append(&mut self, count: u64) {
        let payload = Bytes::from_static(&[7; PAYLOAD]);
        let entry = |index| Entry {
            id: LogId::new(1, index),
            time: index,
            body: Body::Command(payload.clone()),
        };
        let append = Entries::new((self.next..self.next + count).map(entry).collect());
        self.seq += 1;
        self.next += count;
        let hard = (self.seq == 1).then_some(HardState { term: Term(1), voted_for: None });
        let append = append.expect("in order");
        let batch = Persist { seq: Seq(self.seq), truncate_from: None, append, hard };
        self.log.persist(&[batch]).expect("the log takes the batch");
        if self.next % 4096 < count {
            self.log.compact(Index(self.next - count)).expect("old segments go");
            self.make_spare();
        }
    }
}

/// The same number of bytes, padded in the same way, to a file that was filled before.
struct Raw {
    file: <RealDisk as Disk>::File,
    offset: u64,
    buffer: Vec<u8>,
}

impl Raw {
    fn new(disk: &RealDisk, count: u64) -> Self {
        let name = format!("raw-{count}");
        let file = disk.open(&name, Mode::CreateNew).expect("a file is made");
        let zeros = vec![0; 64 << 10];
        for offset in (0..FILE).step_by(zeros.len()) {
            file.write_at(offset, &zeros).expect("the file is filled");
        }
        file.sync().expect("the file is synced");
        // A record header, an entry's prefix and the payload, and one batch header.
        let bytes = 88 + count * (32 + 16 + PAYLOAD as u64);
        let buffer = vec![7; usize::try_from(bytes.next_multiple_of(4096)).expect("small")];
        Self { file, offset: 0, buffer }
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
    for count in BATCHES {
        group.throughput(Throughput::Elements(count));
        let disk = RealDisk::create(dir.path().join(format!("log-{count}"))).expect("a directory");
        let mut log = Appender::new(disk.clone());
        group.bench_function(BenchmarkId::new("log", count), |b| b.iter(|| log.append(count)));
        let mut raw = Raw::new(&disk, count);
        group.bench_function(BenchmarkId::new("raw", count), |b| b.iter(|| raw.append()));
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    append(&mut criterion);
    criterion.final_summary();
}

//! A sync that fails once on a real file system (B36, R12): the kernel reports the error, marks the
//! pages clean and lets every later sync of the file succeed without writing them; what is read back
//! is what was written, until the power is lost. The disk below does that to real files.

use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore};
use holdfast_consensus::{Body, Entries, Entry, HardState, Index, LogId, MemberId, Seq, Term};
use holdfast_log::{Disk, DiskFile, Log, LogOptions, Mode, Owner, RealDisk};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

type File = <RealDisk as Disk>::File;

/// What a power loss undoes.
#[derive(Debug, Default)]
struct Kernel {
    /// The next sync of a file of the log fails.
    fails: bool,
    /// By path: bytes as they were before writes that no sync has covered, oldest first.
    dirty: BTreeMap<String, Vec<(u64, Vec<u8>)>>,
    /// The same for writes whose sync failed: no later sync covers them.
    dropped: BTreeMap<String, Vec<(u64, Vec<u8>)>>,
    /// Files whose sync failed, and syncs of them that were tried afterwards.
    failed: BTreeMap<String, u32>,
}

/// A directory of the real file system on a disk whose syncs may fail.
#[derive(Clone, Debug)]
struct Failing {
    disk: RealDisk,
    kernel: Arc<Mutex<Kernel>>,
}

#[derive(Debug)]
struct FailingFile {
    file: File,
    path: String,
    kernel: Arc<Mutex<Kernel>>,
}

impl Failing {
    fn kernel<T>(&self, act: impl FnOnce(&mut Kernel) -> T) -> T {
        act(&mut self.kernel.lock().expect("unpoisoned"))
    }

    /// The power is lost: whatever no sync has covered is as it was before.
    fn lose_power(&self) {
        self.kernel(|kernel| {
            for lost in [&mut kernel.dirty, &mut kernel.dropped] {
                for (path, writes) in std::mem::take(lost) {
                    let file = self.disk.open(&path, Mode::Write);
                    // A file that was removed since has nothing to lose.
                    let Ok(file) = file else { continue };
                    for (offset, bytes) in writes.iter().rev() {
                        file.write_at(*offset, bytes).expect("the real disk has no faults");
                    }
                }
            }
        });
    }
}

impl Disk for Failing {
    type File = FailingFile;

    fn open(&self, path: &str, mode: Mode) -> io::Result<FailingFile> {
        let file = self.disk.open(path, mode)?;
        Ok(FailingFile { file, path: path.to_owned(), kernel: Arc::clone(&self.kernel) })
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)?;
        self.kernel(|kernel| {
            for map in [&mut kernel.dirty, &mut kernel.dropped] {
                if let Some(writes) = map.remove(from) {
                    map.insert(to.to_owned(), writes);
                }
            }
        });
        Ok(())
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.disk.unlink(path)
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.disk.make_dir(path)
    }
    fn is_dir(&self, path: &str) -> io::Result<bool> {
        self.disk.is_dir(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
}

impl DiskFile for FailingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut before = vec![0; data.len()];
        let held = self.file.len()?.saturating_sub(offset);
        let held = usize::try_from(held).unwrap_or(usize::MAX).min(before.len());
        self.file.read_at(offset, &mut before[..held])?;
        let mut kernel = self.kernel.lock().expect("unpoisoned");
        kernel.dirty.entry(self.path.clone()).or_default().push((offset, before));
        drop(kernel);
        self.file.write_at(offset, data)
    }
    fn sync(&self) -> io::Result<()> {
        let mut kernel = self.kernel.lock().expect("unpoisoned");
        let dirty = kernel.dirty.remove(&self.path).unwrap_or_default();
        if let Some(tries) = kernel.failed.get_mut(&self.path) {
            *tries += 1;
        }
        if std::mem::take(&mut kernel.fails) {
            kernel.dropped.entry(self.path.clone()).or_default().extend(dirty);
            kernel.failed.insert(self.path.clone(), 0);
            return Err(io::Error::other("the device reports an error"));
        }
        drop(kernel);
        self.file.sync()
    }
    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.file.share(offset, len)
    }
}

const OWNER: MemberId = MemberId(0xa);

fn open<D: Disk>(disk: &D) -> Log<D> {
    let owner = Owner { member: OWNER, ..Owner::default() };
    let options = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };
    Log::open(disk.clone(), owner, options).expect("the log opens")
}

fn batch(seq: u64, from: u64, to: u64) -> Persist {
    let body = |i: u64| Body::Command(Bytes::from(format!("{seq} {i} {}", "-".repeat(900))));
    let entry = |i| Entry { id: LogId::new(1, i), time: i, body: body(i) };
    Persist {
        seq: Seq(seq),
        truncate_from: None,
        append: Entries::new((from..=to).map(entry).collect()).expect("consecutive"),
        hard: (seq == 1).then_some(HardState { term: Term(1), voted_for: Some(OWNER) }),
    }
}

#[test]
fn nothing_acknowledged_is_lost_after_a_sync_that_failed_and_then_seemed_to_succeed() {
    // The sync fails at each of a run of writes in turn, those that roll to another segment too.
    for at in 0..24u64 {
        let dir = tempfile::tempdir().expect("a directory");
        let disk =
            Failing { disk: RealDisk::open(dir.path()).expect("there"), kernel: Arc::default() };
        let mut log = open(&disk);
        let (mut acknowledged, mut failures) = (Vec::new(), 0);
        for round in 0..30u64 {
            let next = log.recovered().last.index.0 + 1;
            let write = batch(round + 1, next, next + 1);
            disk.kernel(|kernel| kernel.fails = round == at);
            match log.persist(std::slice::from_ref(&write)) {
                Ok(_) => acknowledged.extend(write.append.as_slice().iter().cloned()),
                Err(LogFault::Poisoned { .. }) => {
                    failures += 1;
                    // Terminal and typed, whatever the disk says now.
                    let again = log.persist(std::slice::from_ref(&write));
                    assert!(matches!(again, Err(LogFault::Poisoned { .. })), "{again:?}");
                    assert!(log.watermark(Index(0)).is_err() && log.compact(Index(0)).is_err());
                    let last = log.reopen().expect("it can be proved what is left").last;
                    let held = acknowledged.last().map(|e: &Entry| e.id).unwrap_or_default();
                    assert_eq!(last, held, "no byte of the failed range counts");
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(failures, 1, "the fault of round {at} struck");
        let tries = disk.kernel(|kernel| kernel.failed.values().sum::<u32>());
        assert_eq!(tries, 0, "a file whose sync failed is never synced again (round {at})");
        drop(log);
        disk.lose_power();
        let log = open(&RealDisk::open(dir.path()).expect("there"));
        let last = acknowledged.last().expect("most writes succeed").id;
        assert_eq!(log.recovered().last, last, "round {at}");
        let mut found = Vec::new();
        while let Some(next) = Some(Index(found.len() as u64 + 1)).filter(|n| *n <= last.index) {
            let read = log.reader().read(next, last.index, usize::MAX).expect("readable");
            found.extend(read.as_slice().iter().cloned());
        }
        assert_eq!(found, acknowledged, "round {at}");
    }
}

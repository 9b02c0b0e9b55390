//! The log and its snapshot files keep the contracts of `holdfast-consensus`, on a disk in memory
//! that loses whatever it may and on the real one.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use holdfast_consensus::conformance::{LogFactory, log_store, snapshot_store};
use holdfast_consensus::{Index, MemberId};
use holdfast_log::inspect::records;
use holdfast_log::mem_disk::{LoseAll, Op};
use holdfast_log::{Disk, DiskFile, Log, LogOptions, MappedDisk, MemDisk, Mode, Owner, RealDisk};
use std::io;
use std::path::PathBuf;

const OPTIONS: LogOptions = LogOptions { segment_bytes: 128 << 10 };

fn owner() -> Owner {
    Owner { member: MemberId(77), ..Owner::default() }
}

fn open<D: Disk>(disk: D) -> Result<Log<D>, String> {
    Log::open(disk, owner(), OPTIONS).map_err(|e| e.to_string())
}

fn damage<D: Disk>(disk: &D) -> bool {
    let newest = disk.list("snap").unwrap().into_iter().rfind(|n| n.ends_with(".snap")).unwrap();
    let file = disk.open(&format!("snap/{newest}"), Mode::Write).unwrap();
    let (at, mut byte) = (file.len().unwrap() / 2, [0]);
    file.read_at(at, &mut byte).unwrap();
    file.write_at(at, &[byte[0] ^ 1]).unwrap();
    file.sync().unwrap();
    true
}

/// Flips a bit of an entry, and unless its identity is to be kept, one of the side index behind it.
fn damage_entry<D: Disk>(disk: &D, index: Index, kept: bool) {
    let all: Vec<_> = records(disk).unwrap().map(Result::unwrap).collect();
    let at = all.iter().position(|r| r.kind == "entry" && r.index == index).unwrap();
    let side = all[at..].iter().find(|r| r.kind == "index").filter(|_| !kept);
    for record in [Some(&all[at]), side].into_iter().flatten() {
        let file = disk.open(&record.file, Mode::Write).unwrap();
        let mut byte = [0];
        file.read_at(record.offset + 40, &mut byte).unwrap();
        file.write_at(record.offset + 40, &[byte[0] ^ 1]).unwrap();
        file.sync().unwrap();
    }
}

/// Power is cut at every crash, and nothing unsynced survives.
#[derive(Default)]
struct OnMemory {
    disk: MemDisk,
}

impl LogFactory for OnMemory {
    type Log = Log<MemDisk>;

    fn create(&mut self) -> Result<Self::Log, String> {
        self.disk = MemDisk::new();
        open(self.disk.clone())
    }
    fn restart(&mut self, log: Self::Log) -> Result<Self::Log, String> {
        drop(log);
        open(self.disk.clone())
    }
    fn crash(&mut self, log: Self::Log) -> Result<Self::Log, String> {
        self.disk = self.disk.crash(&mut LoseAll);
        drop(log);
        open(self.disk.clone())
    }
    fn fail_next_persist(&mut self, _log: &Self::Log) -> bool {
        self.disk.fail_next(Op::Sync, "log/");
        true
    }
    fn damage_newest_snapshot(&mut self, _log: &Self::Log) -> bool {
        damage(&self.disk)
    }
    fn damage_entry(
        &mut self,
        log: Self::Log,
        index: Index,
        kept: bool,
    ) -> Result<Option<Self::Log>, String> {
        drop(log);
        damage_entry(&self.disk, index, kept);
        open(self.disk.clone()).map(Some)
    }
}

/// A crash is a dropped log: the page cache survives, as with `kill -9`.
struct OnDisk<D> {
    _dir: tempfile::TempDir,
    make: fn(PathBuf) -> io::Result<D>,
    disk: D,
}

impl<D> OnDisk<D> {
    fn new(make: fn(PathBuf) -> io::Result<D>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = make(dir.path().to_path_buf()).unwrap();
        Self { _dir: dir, make, disk }
    }
}

impl<D: Disk> LogFactory for OnDisk<D> {
    type Log = Log<D>;

    fn create(&mut self) -> Result<Self::Log, String> {
        *self = Self::new(self.make);
        open(self.disk.clone())
    }
    fn restart(&mut self, log: Self::Log) -> Result<Self::Log, String> {
        drop(log);
        open(self.disk.clone())
    }
    fn crash(&mut self, log: Self::Log) -> Result<Self::Log, String> {
        self.restart(log)
    }
    fn damage_newest_snapshot(&mut self, _log: &Self::Log) -> bool {
        damage(&self.disk)
    }
    fn damage_entry(
        &mut self,
        log: Self::Log,
        index: Index,
        kept: bool,
    ) -> Result<Option<Self::Log>, String> {
        drop(log);
        damage_entry(&self.disk, index, kept);
        open(self.disk.clone()).map(Some)
    }
}

#[test]
fn the_log_in_memory_keeps_the_contract_through_power_cuts() {
    assert_eq!(log_store(&mut OnMemory::default()), Ok(()));
}

#[test]
fn the_snapshots_in_memory_keep_the_contract_through_power_cuts() {
    assert_eq!(snapshot_store(&mut OnMemory::default()), Ok(()));
}

#[test]
fn the_log_on_a_real_disk_keeps_the_contract() {
    assert_eq!(log_store(&mut OnDisk::new(RealDisk::open)), Ok(()));
}

#[test]
fn the_snapshots_on_a_real_disk_keep_the_contract() {
    assert_eq!(snapshot_store(&mut OnDisk::new(RealDisk::open)), Ok(()));
}

#[test]
fn the_log_on_a_mapped_disk_keeps_the_contract() {
    assert_eq!(log_store(&mut OnDisk::new(MappedDisk::create)), Ok(()));
    assert_eq!(snapshot_store(&mut OnDisk::new(MappedDisk::create)), Ok(()));
}

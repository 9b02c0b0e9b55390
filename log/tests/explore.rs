//! Crash exploration, as far as seconds reach; and with a disk under the log that breaks one promise
//! at a time, each of which must be seen. The whole is `holdfast-sim crash-explore`.

use bytes::Bytes;
use holdfast_log::explore::{Bounds, Report, Violation, explore};
use holdfast_log::{Disk, DiskFile, MemDisk, MemFile, Mode};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a careless disk leaves out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Omission {
    /// Nothing.
    None,
    /// Directories are never synced: names may be undone after their acknowledgement.
    DirectorySync,
    /// The content of segments is never synced: an acknowledgement before the sync.
    SegmentSync,
    /// Every second sync of a segment does nothing.
    EverySecondSync,
    /// A snapshot's content is never synced before it is published.
    SnapshotSync,
    /// Segments are never removed.
    Unlink,
}

/// A disk that leaves something out and says that it was done.
#[derive(Clone, Debug)]
struct Careless {
    disk: MemDisk,
    omission: Omission,
    syncs: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CarelessFile {
    file: MemFile,
    /// Whose syncs may be left out.
    kind: Kind,
    disk: Careless,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A segment while it is written: it is opened by the name of the spare that it was.
    Segment,
    Snapshot,
    Other,
}

impl Disk for Careless {
    type File = CarelessFile;

    fn open(&self, path: &str, mode: Mode) -> io::Result<CarelessFile> {
        let file = self.disk.open(path, mode)?;
        let kind = match mode {
            Mode::Write if path.starts_with("log/spare-") => Kind::Segment,
            Mode::CreateNew if path.starts_with("snap/") => Kind::Snapshot,
            _ => Kind::Other,
        };
        Ok(CarelessFile { file, kind, disk: self.clone() })
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        if self.omission == Omission::Unlink && path.starts_with("log/0") {
            return Ok(());
        }
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
        if self.omission == Omission::DirectorySync { Ok(()) } else { self.disk.sync_dir(path) }
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
}

impl DiskFile for CarelessFile {
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
        self.file.write_at(offset, data)
    }
    fn sync(&self) -> io::Result<()> {
        let omitted = match self.disk.omission {
            Omission::SegmentSync => self.kind == Kind::Segment,
            Omission::EverySecondSync => {
                self.kind == Kind::Segment
                    && self.disk.syncs.fetch_add(1, Ordering::Relaxed) % 2 == 1
            }
            Omission::SnapshotSync => self.kind == Kind::Snapshot,
            _ => false,
        };
        if omitted { Ok(()) } else { self.file.sync() }
    }
    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.file.share(offset, len)
    }
}

const BOUNDS: Bounds = Bounds { ops: 1, depth: 0, inside: 0, outcomes: 256, draws: 1, seed: 7 };

fn careless(omission: Omission, bounds: Bounds) -> (Report, Option<Violation>) {
    explore(bounds, &|disk| Careless { disk, omission, syncs: Arc::default() })
}

#[test]
fn every_crash_of_short_histories_keeps_what_was_acknowledged() {
    let (report, violation) = explore(Bounds { ops: 2, ..BOUNDS }, &|disk| disk);
    assert!(
        violation.is_none(),
        "{}\n{report:?}",
        violation.map_or(String::new(), |v| v.to_string())
    );
    assert!(report.sequences > 300 && report.images > 3000, "{report:?}");
    assert_eq!(report.whole + report.subsets, report.points, "nothing had to be sampled");
}

#[test]
fn a_crash_inside_a_recovery_and_inside_the_next_one_loses_nothing() {
    let bounds = Bounds { ops: 0, depth: 2, inside: 0, outcomes: 64, ..BOUNDS };
    let (report, violation) = explore(bounds, &|disk| disk);
    assert!(
        violation.is_none(),
        "{}\n{report:?}",
        violation.map_or(String::new(), |v| v.to_string())
    );
    assert!(report.inner_points > 1000, "{report:?}");
}

#[test]
fn a_disk_that_leaves_nothing_out_passes() {
    let (report, violation) = careless(Omission::None, BOUNDS);
    assert!(
        violation.is_none(),
        "{}\n{report:?}",
        violation.map_or(String::new(), |v| v.to_string())
    );
}

#[test]
fn each_omission_of_a_careless_disk_is_seen() {
    for omission in [
        Omission::DirectorySync,
        Omission::SegmentSync,
        Omission::EverySecondSync,
        Omission::SnapshotSync,
        Omission::Unlink,
    ] {
        let (report, violation) = careless(omission, BOUNDS);
        let violation =
            violation.unwrap_or_else(|| panic!("{omission:?} was not seen: {report:?}"));
        println!("{omission:?} after {} histories: {violation}", report.sequences);
    }
}

#[test]
fn two_explorations_from_one_seed_visit_the_same_and_another_seed_draws_others() {
    let once = explore(BOUNDS, &|disk| disk).0;
    assert_eq!(once, explore(BOUNDS, &|disk| disk).0);
    let other = explore(Bounds { seed: 8, ..BOUNDS }, &|disk| disk).0;
    assert_eq!((once.points, once.sequences), (other.points, other.sequences));
    assert_ne!(once.images, other.images, "the draws differ");
}

//! A start that refuses because of what lies in its directory, or because of who asks: nothing was
//! changed, and `explain` says the same words before.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::{MemberId, Membership};
use holdfast_fsm::explain::{Configured, End, explain};
use holdfast_fsm::records::VolumeId;
use holdfast_fsm::{Metastore, Plane, StoreOptions, entrance};
use holdfast_log::disk::{Disk, DiskFile, Mode};
use holdfast_log::{Home, HomeOptions, LogOptions, MemDisk, MemFile, RealDisk};
use std::io;

/// A disk on which some paths belong to another user.
#[derive(Clone, Debug)]
struct Shared {
    disk: MemDisk,
    /// May be read and not written.
    unwritable: Vec<&'static str>,
    /// May not be read either.
    unreadable: Vec<&'static str>,
}

impl Shared {
    fn denied(&self, path: &str) -> io::Result<()> {
        if self.unreadable.contains(&path) {
            let why = format!("open {path}: Permission denied");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(())
    }
}

impl Disk for Shared {
    type File = MemFile;

    fn open(&self, path: &str, mode: Mode) -> io::Result<MemFile> {
        self.denied(path)?;
        self.disk.open(path, mode)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.denied(dir)?;
        self.disk.list(dir)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
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
    fn permits(&self, path: &str) -> io::Result<()> {
        if self.unwritable.contains(&path) {
            let why = format!("use {path}: Permission denied");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        self.denied(path)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
}

fn home_options() -> HomeOptions {
    let log = LogOptions { segment_bytes: 32_768 };
    HomeOptions { name: "n1".to_owned(), fresh_member: MemberId(1), log }
}

/// A member of a cluster, with a store and a data plane.
fn lived() -> MemDisk {
    let disk = MemDisk::new();
    let mut home = Home::open(disk.clone(), &home_options()).expect("the home opens");
    home.found(CLUSTER, 1, Membership::of_voters([(MemberId(1), "n1".to_owned())]))
        .expect("founds");
    drop(home);
    Metastore::open(disk.clone(), options()).expect("a store");
    Plane::open(disk.clone(), CLUSTER, "n1", VolumeId(5)).expect("a plane");
    disk
}

fn configured() -> Configured {
    Configured { name: Some("n1".to_owned()), segment_bytes: Some(32_768), store: options_of }
}

fn options_of(cluster: holdfast_consensus::ClusterId, epoch: u64) -> StoreOptions {
    StoreOptions::small(cluster, epoch)
}

/// Why a start refuses, the same before and when it is made; nothing is changed by either, twice.
fn refusal<D: Disk>(disk: &D, below: &MemDisk, what: &str) -> String {
    let before = below.files();
    let told = explain(disk, &configured()).expect("it can be read");
    let End::Refused { by, why } = told.end else { panic!("{what}: {:?}", told.end) };
    for _ in 0..2 {
        let (part, error) =
            entrance::open(disk.clone(), &home_options(), options_of).err().expect("it refuses");
        // One names the kind of the error behind the path.
        let words = |text: &str| text.replace(": is a directory", "");
        assert_eq!((part, words(&error.to_string())), (by, words(&why)), "{what}");
        assert!(below.files() == before, "{what}: nothing is changed");
    }
    assert!(why.to_lowercase().contains("nothing was changed"), "{what}: {why}");
    why
}

#[test]
fn what_stands_where_a_file_of_the_log_belongs_is_named_before_anything_is_written() {
    let paths = ["log/spare-0000000099", "log/spare-0000000099.tmp", "log/newest", "store/reserve"];
    for path in paths {
        let disk = lived();
        if disk.files().contains_key(path) {
            disk.unlink(path).expect("it is there");
        }
        disk.make_dir(path).expect("made");
        let why = refusal(&disk, &disk, path);
        assert!(why.contains("move it out of the data directory"), "{why}");
    }
}

#[test]
fn a_file_that_leads_nowhere_is_refused_untouched() {
    for path in ["store/reserve", "store/meta.redb", "log/newest"] {
        leads_nowhere(path);
    }
}

fn leads_nowhere(link: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = RealDisk::open(dir.path()).expect("a disk");
    for (path, bytes) in lived().files() {
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        parents.for_each(|parent| disk.make_dir(parent).expect("made"));
        if path != link {
            let file = disk.open(&path, Mode::CreateNew).expect("made");
            file.write_at(0, &bytes).expect("written");
        }
    }
    std::os::unix::fs::symlink("nowhere", dir.path().join(link)).expect("a link");
    let refused =
        entrance::open(disk.clone(), &home_options(), options_of).err().expect("it refuses");
    assert!(
        refused.1.to_string().contains(&format!("`{link}` is a link to nothing")),
        "{}",
        refused.1
    );
    for part in ["store", "log"] {
        assert!(!disk.list(part).expect("listed").contains(&"nowhere".to_owned()));
    }
}

#[test]
fn a_file_in_the_place_of_a_directory_and_a_directory_in_the_place_of_the_lock_are_named() {
    for dir in ["data", "snap"] {
        let files = lived().files();
        let prefix = format!("{dir}/");
        let rest = files.into_iter().filter(|(path, _)| !path.starts_with(&prefix));
        let disk = MemDisk::from_files(rest.chain([(dir.to_owned(), vec![1])]).collect());
        let why = refusal(&disk, &disk, dir);
        assert!(why.contains(&format!("`{dir}` is no directory")), "{why}");
        assert!(why.contains("move it out of the data directory"), "{why}");
    }
}

#[test]
fn who_may_not_write_is_told_so_before_anything_is_written() {
    for path in
        ["", "log", "snap", "store", "data/trash", "store/meta.redb", "log/newest", "store/reserve"]
    {
        let below = lived();
        if path == "store/reserve" && !below.files().contains_key(path) {
            below.open(path, Mode::CreateNew).and_then(|file| file.sync()).expect("made");
        }
        let (unwritable, unreadable) = (vec![path], Vec::new());
        let disk = Shared { disk: below.clone(), unwritable, unreadable };
        let why = refusal(&disk, &below, path);
        assert!(why.contains("Permission denied") && why.contains("mode u+rwX"), "{why}");
        assert!(!why.contains("poisoned"), "{why}");
    }
}

#[test]
fn who_may_not_read_is_not_told_what_a_start_would_do() {
    for path in ["log", "log/newest", "identity", "data/volume", "store/meta.redb"] {
        let below = lived();
        let (unwritable, unreadable) = (Vec::new(), vec![path]);
        let disk = Shared { disk: below.clone(), unwritable, unreadable };
        let error = explain(&disk, &configured()).expect_err("it cannot be known");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}: {error}");
        assert!(error.to_string().contains("cannot be read by this user"), "{path}: {error}");
        let opened = entrance::open(disk.clone(), &home_options(), options_of);
        let why = opened.err().expect("it refuses").1.to_string();
        assert!(why.contains("Permission denied") && !why.contains("poisoned"), "{path}: {why}");
    }
}

#[test]
fn a_store_or_a_volume_of_another_is_refused_untouched_with_the_remedy() {
    let flip = |path: &str| {
        let disk = lived();
        let file = disk.open(path, Mode::Write).expect("it is there");
        file.write_at(20, &[0xff; 4]).expect("written");
        disk
    };
    let why = refusal_of(&flip("data/volume"), "a flipped volume file");
    assert!(why.contains("data/volume cannot be read") && why.contains("new volume id"), "{why}");

    let disk = lived();
    disk.unlink("data/volume").expect("it is there");
    disk.make_dir("data/topics/a-copy").expect("made");
    let why = refusal_of(&disk, "a lost volume file");
    assert!(why.contains("data/volume is missing") && why.contains("stay assigned"), "{why}");

    let disk = lived();
    disk.unlink("store/meta.redb").expect("it is there");
    let foreign = StoreOptions::small(holdfast_consensus::ClusterId(77), 1);
    Metastore::open(disk.clone(), foreign).expect("a store");
    let why = refusal_of(&disk, "another cluster's store");
    assert!(why.contains("Move the file aside") && !why.contains("an empty one"), "{why}");
    disk.rename("store/meta.redb", "store/theirs").expect("moved");
    entrance::open(disk, &home_options(), options_of).map(drop).expect("the remedy helps");
}

fn refusal_of(disk: &MemDisk, what: &str) -> String {
    refusal(disk, disk, what)
}

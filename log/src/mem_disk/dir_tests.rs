//! Directories: moved, removed, and found again after a crash.

use super::*;

fn put(disk: &MemDisk, path: &str) {
    let file = disk.open(path, Mode::CreateNew).expect("create");
    file.write_at(0, path.as_bytes()).expect("write");
    file.sync().expect("sync");
}

fn paths(disk: &MemDisk) -> Vec<String> {
    disk.files().into_keys().collect()
}

/// Undoes the operations whose description starts with one of these.
struct Undo(&'static [&'static str]);

impl PowerLoss for Undo {
    fn name(&mut self, what: &str) -> bool {
        !self.0.iter().any(|undone| what.starts_with(undone))
    }
    fn file(&mut self, _path: &str, _dirty: usize, _differs: bool) -> bool {
        true
    }
    fn sector(&mut self, _sector: usize, _blank: bool) -> SectorFate {
        SectorFate::New
    }
}

/// A directory `tmp/x` with a durable file in it, and a durable directory `live`.
fn built() -> MemDisk {
    let disk = MemDisk::new();
    for dir in ["tmp", "tmp/x", "live"] {
        disk.make_dir(dir).expect("dir");
    }
    put(&disk, "tmp/x/stamp");
    for dir in ["tmp/x", "tmp", ""] {
        disk.sync_dir(dir).expect("sync dir");
    }
    disk
}

#[test]
fn a_directory_moves_with_everything_beneath_it_and_open_files_go_on() {
    let disk = built();
    disk.make_dir("tmp/x/deep").expect("dir");
    put(&disk, "tmp/x/deep/f");
    put(&disk, "tmp/x2");
    let file = disk.open("tmp/x/stamp", Mode::Write).expect("open");
    disk.rename("tmp/x", "live/y").expect("rename");
    assert_eq!(paths(&disk), ["live/y/deep/f", "live/y/stamp", "tmp/x2"]);
    file.write_at(0, b"more").expect("the handle follows");
    assert_eq!(&disk.files()["live/y/stamp"][..4], b"more");
    assert!(disk.is_dir("live/y").expect("there"));
    assert!(!disk.is_dir("live/y/stamp").expect("there"));
    assert_eq!(disk.is_dir("tmp/x").expect_err("moved").kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_move_is_kept_or_undone_whole() {
    let moved = || {
        let disk = built();
        disk.rename("tmp/x", "live/y").expect("rename");
        disk
    };
    assert_eq!(paths(&moved().crash(&mut LoseAll)), ["tmp/x/stamp"]);
    assert_eq!(paths(&moved().crash(&mut KeepAll)), ["live/y/stamp"]);
    for parent in ["live", "tmp"] {
        let disk = moved();
        disk.sync_dir(parent).expect("sync dir");
        assert_eq!(paths(&disk.crash(&mut LoseAll)), ["live/y/stamp"], "{parent} was synced");
    }
    let disk = moved();
    disk.sync_dir("live/y").expect("sync the directory that moved");
    let after = disk.crash(&mut LoseAll);
    assert_eq!(paths(&after), ["tmp/x/stamp"], "its own sync says nothing about its name");
}

#[test]
fn what_is_synced_inside_stays_with_the_directory_where_ever_it_is_found() {
    let disk = built();
    disk.rename("tmp/x", "live/y").expect("rename");
    put(&disk, "live/y/record");
    disk.sync_dir("live/y").expect("sync dir");
    let old = disk.crash(&mut LoseAll);
    assert_eq!(paths(&old), ["tmp/x/record", "tmp/x/stamp"]);
    let disk = built();
    put(&disk, "tmp/x/late");
    disk.rename("tmp/x", "live/y").expect("rename");
    disk.sync_dir("live").expect("sync dir");
    let before = disk.kill();
    before.sync_dir("live/y").expect("sync dir");
    assert_eq!(paths(&before.crash(&mut LoseAll)), ["live/y/late", "live/y/stamp"]);
}

#[test]
fn an_unsynced_file_of_a_moved_directory_has_a_fate_of_its_own() {
    let disk = || {
        let disk = built();
        put(&disk, "tmp/x/late");
        disk.rename("tmp/x", "live/y").expect("rename");
        disk
    };
    let fates: [(&'static [&'static str], &[&str]); 3] = [
        (&["create tmp/x/late"], &["live/y/stamp"]),
        (&["rename"], &["tmp/x/late", "tmp/x/stamp"]),
        (&[], &["live/y/late", "live/y/stamp"]),
    ];
    for (undone, left) in fates {
        assert_eq!(paths(&disk().crash(&mut Undo(undone))), left, "without {undone:?}");
    }
    let disk = disk();
    disk.unlink("live/y/late").expect("unlink");
    let after = disk.crash(&mut Undo(&["create tmp/x/late"]));
    assert_eq!(paths(&after), ["live/y/stamp"], "a removal builds on the creation");
}

#[test]
fn a_move_that_builds_on_an_undone_directory_is_undone_with_it() {
    let disk = MemDisk::new();
    for dir in ["tmp", "live"] {
        disk.make_dir(dir).expect("dir");
    }
    disk.sync_dir("").expect("sync dir");
    disk.make_dir("tmp/x").expect("dir");
    put(&disk, "tmp/x/stamp");
    disk.rename("tmp/x", "live/y").expect("rename");
    let after = disk.crash(&mut Undo(&["create tmp/x"]));
    assert!(after.files().is_empty() && after.list("live").expect("list").is_empty());
}

#[test]
fn an_empty_directory_is_removed_and_comes_back_until_its_parent_is_synced() {
    let disk = built();
    let full = disk.remove_dir("tmp/x").expect_err("not empty");
    assert_eq!(full.kind(), io::ErrorKind::DirectoryNotEmpty);
    let file = disk.remove_dir("tmp/x/stamp").expect_err("a file");
    assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
    disk.unlink("tmp/x/stamp").expect("unlink");
    disk.remove_dir("tmp/x").expect("remove");
    let undone = disk.clone().kill().crash(&mut Undo(&["unlink", "remove"]));
    assert_eq!(paths(&undone), ["tmp/x/stamp"]);
    let disk = built();
    disk.unlink("tmp/x/stamp").expect("unlink");
    disk.remove_dir("tmp/x").expect("remove");
    disk.sync_dir("tmp").expect("sync dir");
    let after = disk.crash(&mut LoseAll);
    assert!(after.files().is_empty(), "what stood in a removed directory is gone with it");
    assert!(after.list("tmp").expect("list").is_empty());
    after.make_dir("tmp/x").expect("again");
    after.sync_dir("tmp").expect("sync dir");
    assert!(after.crash(&mut LoseAll).files().is_empty(), "a new directory is empty");
}

#[test]
fn moves_onto_something_or_into_themselves_are_refused() {
    let disk = built();
    disk.make_dir("live/y").expect("dir");
    let taken = disk.rename("tmp/x", "live/y").expect_err("taken");
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    let inside = disk.rename("tmp", "tmp/x/z").expect_err("into itself");
    assert_eq!(inside.kind(), io::ErrorKind::InvalidInput);
    let nowhere = disk.rename("tmp/x", "none/y").expect_err("no parent");
    assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
    assert_eq!(paths(&disk), ["tmp/x/stamp"]);
}

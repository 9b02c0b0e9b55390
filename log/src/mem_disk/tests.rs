use super::*;

fn put(disk: &MemDisk, path: &str, bytes: &[u8]) -> MemFile {
    let file = disk.open(path, Mode::CreateNew).expect("create");
    file.write_at(0, bytes).expect("write");
    file
}

fn get(disk: &MemDisk, path: &str) -> Option<Vec<u8>> {
    disk.files().remove(path)
}

/// Fates that a test writes down.
#[derive(Default)]
struct Script {
    undo: Vec<&'static str>,
    new_length: bool,
    fates: BTreeMap<usize, SectorFate>,
    asked: Vec<usize>,
}

impl PowerLoss for Script {
    fn name(&mut self, what: &str) -> bool {
        !self.undo.iter().any(|u| what.starts_with(u))
    }
    fn file(&mut self, _path: &str, _dirty: usize, _differs: bool) -> bool {
        self.new_length
    }
    fn sector(&mut self, sector: usize, _blank: bool) -> SectorFate {
        self.asked.push(sector);
        self.fates.get(&sector).copied().unwrap_or(SectorFate::New)
    }
}

#[test]
fn what_is_synced_survives_and_what_is_not_is_lost() {
    let disk = MemDisk::new();
    let file = put(&disk, "a", b"hello");
    file.sync().expect("sync");
    disk.sync_dir("").expect("sync dir");
    file.write_at(5, b" world").expect("write");
    put(&disk, "b", b"x").sync().expect("sync");
    let after = disk.crash(&mut LoseAll);
    assert_eq!(get(&after, "a"), Some(b"hello".to_vec()));
    assert_eq!(get(&after, "b"), None, "the name was never made durable");
}

#[test]
fn a_killed_process_leaves_its_writes_but_they_are_still_unsynced() {
    let disk = MemDisk::new();
    put(&disk, "a", b"hello");
    let killed = disk.kill();
    assert_eq!(get(&killed, "a"), Some(b"hello".to_vec()));
    assert_eq!(get(&killed.crash(&mut LoseAll), "a"), None);
    let again = MemDisk::new();
    put(&again, "a", b"hello");
    assert_eq!(get(&again.crash(&mut KeepAll), "a"), Some(b"hello".to_vec()));
}

#[test]
fn sectors_have_fates_of_their_own() {
    let disk = MemDisk::new();
    let file = put(&disk, "a", &[1; SECTOR * 6]);
    file.sync().expect("sync");
    disk.sync_dir("").expect("sync dir");
    file.write_at(SECTOR as u64, &[2; SECTOR * 5]).expect("write");
    file.write_at(4 * SECTOR as u64, &[3; SECTOR]).expect("write");
    let mut script = Script::default();
    script.fates.insert(1, SectorFate::Old);
    script.fates.insert(3, SectorFate::Torn(100));
    script.fates.insert(4, SectorFate::Middle);
    script.fates.insert(5, SectorFate::Garbage(9));
    let bytes = get(&disk.crash(&mut script), "a").expect("the file");
    assert_eq!(script.asked, [1, 2, 3, 4, 5], "the untouched sector is not asked about");
    let sector = |n: usize| &bytes[n * SECTOR..(n + 1) * SECTOR];
    assert_eq!(sector(0), [1; SECTOR]);
    assert_eq!(sector(1), [1; SECTOR]);
    assert_eq!(sector(2), [2; SECTOR]);
    assert_eq!((sector(3)[99], sector(3)[100]), (2, 1));
    assert_eq!(sector(4), [2; SECTOR], "the version between");
    assert!(sector(5).iter().all(|b| [1, 2].contains(b)), "no garbage over durable bytes");
}

#[test]
fn garbage_appears_only_where_nothing_was() {
    let disk = MemDisk::new();
    let file = put(&disk, "a", &[0; SECTOR * 2]);
    file.sync().expect("sync");
    disk.sync_dir("").expect("sync dir");
    file.write_at(0, &[7; SECTOR]).expect("write");
    let mut script = Script::default();
    script.fates.insert(0, SectorFate::Garbage(5));
    let bytes = get(&disk.crash(&mut script), "a").expect("the file");
    assert!(bytes[..SECTOR].iter().any(|b| ![0, 7].contains(b)));
    assert_eq!(bytes[SECTOR..], [0; SECTOR]);
}

#[test]
fn a_length_is_old_or_new_and_what_was_cut_comes_back_with_it() {
    for new_length in [false, true] {
        let disk = MemDisk::new();
        let file = put(&disk, "a", &[1; 700]);
        file.sync().expect("sync");
        disk.sync_dir("").expect("sync dir");
        file.set_len(600).expect("cut");
        let after = disk.crash(&mut Script { new_length, ..Script::default() });
        let expected = if new_length { vec![1; 600] } else { vec![1; 700] };
        assert_eq!(get(&after, "a"), Some(expected));
    }
    let disk = MemDisk::new();
    let file = put(&disk, "a", &[1; 700]);
    file.sync().expect("sync");
    disk.sync_dir("").expect("sync dir");
    file.set_len(100).expect("cut");
    file.set_len(700).expect("extend");
    let mut zeros = vec![1; 100];
    zeros.resize(700, 0);
    assert_eq!(get(&disk, "a"), Some(zeros));
    assert_eq!(get(&disk.crash(&mut LoseAll), "a"), Some(vec![1; 700]));
}

#[test]
fn whole_sectors_that_were_cut_come_back_with_the_old_length() {
    let disk = MemDisk::new();
    let file = put(&disk, "a", &[1; SECTOR * 5]);
    file.sync().expect("sync");
    disk.sync_dir("").expect("sync dir");
    file.set_len(100).expect("cut");
    let bytes = get(&disk.crash(&mut Script::default()), "a");
    assert_eq!(bytes, Some(vec![1; SECTOR * 5]));
}

#[test]
fn a_rename_is_whole_or_undone_and_the_replaced_file_returns() {
    let build = || {
        let disk = MemDisk::new();
        for (path, bytes) in [("d/new", b"new"), ("d/old", b"old")] {
            disk.make_dir("d").expect("dir");
            put(&disk, path, bytes).sync().expect("sync");
        }
        disk.sync_dir("").expect("sync dir");
        disk.sync_dir("d").expect("sync dir");
        disk.rename("d/new", "d/old").expect("rename");
        assert_eq!(get(&disk, "d/old"), Some(b"new".to_vec()));
        disk
    };
    let undone = build().crash(&mut LoseAll);
    assert_eq!(get(&undone, "d/old"), Some(b"old".to_vec()));
    assert_eq!(get(&undone, "d/new"), Some(b"new".to_vec()));
    let kept = build().crash(&mut KeepAll);
    assert_eq!(get(&kept, "d/old"), Some(b"new".to_vec()));
    assert_eq!(get(&kept, "d/new"), None);
    let disk = build();
    disk.sync_dir("d").expect("sync dir");
    assert_eq!(get(&disk.crash(&mut LoseAll), "d/old"), Some(b"new".to_vec()));
}

#[test]
fn an_operation_on_an_undone_name_is_undone_with_it() {
    let disk = MemDisk::new();
    put(&disk, "tmp", b"x").sync().expect("sync");
    put(&disk, "other", b"y").sync().expect("sync");
    disk.rename("tmp", "final").expect("rename");
    let after = disk.crash(&mut Script { undo: vec!["create tmp"], ..Script::default() });
    assert_eq!(after.list("").expect("list"), ["other"]);
}

#[test]
fn a_directory_that_was_never_synced_takes_its_files_along() {
    let disk = MemDisk::new();
    disk.make_dir("d").expect("dir");
    put(&disk, "d/a", b"x").sync().expect("sync");
    disk.sync_dir("d").expect("sync dir");
    assert!(disk.crash(&mut LoseAll).files().is_empty());
}

#[test]
fn after_the_fuse_nothing_works_and_nothing_changes() {
    let disk = MemDisk::new();
    let file = put(&disk, "a", b"one");
    disk.set_fuse(Some(1));
    file.write_at(0, b"two").expect("the last operation");
    assert!(disk.is_blown());
    assert!(file.write_at(0, b"six").is_err());
    assert!(file.sync().is_err());
    assert!(file.read_at(0, &mut [0]).is_err());
    assert!(disk.list("").is_err());
    assert!(disk.open("a", Mode::Read).is_err());
    let after = disk.kill();
    assert_eq!(get(&after, "a"), Some(b"two".to_vec()));
    assert!(file.write_at(0, b"six").is_err(), "an old handle stays dead");
    drop(file);
    assert_eq!(get(&after, "a"), Some(b"two".to_vec()));
}

#[test]
fn a_failed_sync_leaves_bytes_readable_and_a_later_success_does_not_save_them() {
    let disk = MemDisk::new();
    let file = put(&disk, "a", &[1; SECTOR * 2]);
    file.sync().expect("sync");
    disk.sync_dir("").expect("sync dir");
    file.write_at(0, &[2; SECTOR * 2]).expect("write");
    disk.fail_next(Op::Sync, "a");
    assert!(file.sync().is_err());
    assert_eq!(get(&disk, "a"), Some(vec![2; SECTOR * 2]), "it reads back");
    file.write_at(SECTOR as u64, &[3; SECTOR]).expect("write one of them again");
    file.sync().expect("the next sync succeeds");
    let bytes = get(&disk.crash(&mut LoseAll), "a").expect("the file");
    assert_eq!(bytes[..SECTOR], [1; SECTOR], "lost all the same");
    assert_eq!(bytes[SECTOR..], [3; SECTOR], "written again, so durable");
}

#[test]
fn a_full_disk_refuses_growth_and_takes_it_again_after_a_removal() {
    let disk = MemDisk::new();
    disk.set_budget(Some(1000));
    let file = put(&disk, "a", &[1; 600]);
    let full = file.write_at(600, &[1; 500]).expect_err("over the budget");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    file.write_at(0, &[2; 600]).expect("no growth");
    disk.unlink("a").expect("unlink");
    put(&disk, "b", &[1; 1000]);
    assert_eq!(disk.counts().full, 1);
}

#[test]
fn a_lock_is_held_until_dropped_or_crashed() {
    let disk = MemDisk::new();
    let held = disk.lock("LOCK").expect("free");
    let refused = disk.lock("LOCK").err().expect("held");
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    drop(held);
    let held = disk.lock("LOCK").expect("free again");
    let after = disk.kill();
    let other = after.lock("LOCK").expect("the holder died");
    drop(held);
    assert!(after.lock("LOCK").is_err(), "a dead holder's drop frees nothing");
    drop(other);
}

#[test]
fn modes_and_ends_of_files_are_minded() {
    let disk = MemDisk::from_files([("d/e/a".to_owned(), b"abc".to_vec())].into());
    assert_eq!(disk.list("d").expect("list"), ["e"]);
    assert_eq!(disk.list("d/e").expect("list"), ["a"]);
    let not_there = disk.open("d/b", Mode::Read).expect_err("not there");
    assert_eq!(not_there.kind(), io::ErrorKind::NotFound);
    let there = disk.open("d/e/a", Mode::CreateNew).expect_err("there");
    assert_eq!(there.kind(), io::ErrorKind::AlreadyExists);
    let file = disk.open("d/e/a", Mode::Read).expect("open");
    assert!(file.write_at(0, b"x").is_err(), "read only");
    let end = file.read_at(2, &mut [0; 2]).expect_err("behind the end");
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.share(1, 2).expect("share"), "bc");
}

#[test]
fn the_trace_hash_tells_different_histories_apart_and_equal_ones_not() {
    let run = |bytes: &[u8]| {
        let disk = MemDisk::new();
        disk.make_dir("log").expect("dir");
        put(&disk, "log/a", bytes).sync().expect("sync");
        (disk.trace_hash(), disk.counts())
    };
    assert_eq!(run(b"same"), run(b"same"));
    assert_ne!(run(b"same").0, run(b"else").0);
    let counts = run(b"same").1;
    assert_eq!((counts.log.writes, counts.log.syncs, counts.log.bytes_written), (1, 1, 4));
    assert_eq!(counts.store.writes, 0);
}

#[test]
fn unlinked_files_stay_readable_through_open_handles_and_are_then_forgotten() {
    let disk = MemDisk::new();
    let file = put(&disk, "a", b"abc");
    disk.sync_dir("").expect("sync dir");
    disk.unlink("a").expect("unlink");
    disk.sync_dir("").expect("sync dir");
    assert_eq!(file.share(0, 3).expect("still open"), "abc");
    assert_eq!(disk.image().inodes.len(), 1);
    drop(file);
    assert_eq!(disk.image().inodes.len(), 0);
}

#[test]
fn random_loss_keeps_every_synced_byte_whatever_the_seed() {
    for seed in 0..200 {
        let disk = MemDisk::new();
        let file = put(&disk, "a", &[1; SECTOR * 4]);
        file.sync().expect("sync");
        disk.sync_dir("").expect("sync dir");
        file.write_at(SECTOR as u64 * 2, &[2; SECTOR * 6]).expect("write");
        put(&disk, "b", &[3; 10]);
        disk.unlink("a").expect("unlink");
        let after = disk.crash(&mut RandomLoss::new(seed));
        if let Some(bytes) = get(&after, "a") {
            assert_eq!(bytes[..SECTOR * 2], [1; SECTOR * 2], "seed {seed}");
            assert!(bytes.len() == SECTOR * 4 || bytes.len() == SECTOR * 8, "seed {seed}");
        }
    }
}

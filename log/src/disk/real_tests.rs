use super::*;

fn scratch() -> (tempfile::TempDir, RealDisk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(dir.path()).unwrap();
    (dir, disk)
}

#[test]
fn written_bytes_are_read_and_shared() {
    let (_dir, disk) = scratch();
    let file = disk.open("a", Mode::CreateNew).unwrap();
    file.write_at(0, &[0; 8192]).unwrap();
    file.write_at(4096, b"hello").unwrap();
    file.sync().unwrap();
    let mut five = [0; 5];
    file.read_at(4096, &mut five).unwrap();
    assert_eq!(&five, b"hello");
    assert_eq!(&file.share(4096, 5).unwrap()[..], b"hello");
}

#[test]
fn a_view_outlives_its_file_and_its_name() {
    let (_dir, disk) = scratch();
    let file = disk.open("a", Mode::CreateNew).unwrap();
    file.write_at(0, b"some bytes").unwrap();
    let view = file.share(5, 5).unwrap();
    disk.unlink("a").unwrap();
    drop(file);
    assert_eq!(&view[..], b"bytes");
}

#[test]
fn reads_and_views_behind_the_end_are_typed_errors_with_the_path() {
    let (_dir, disk) = scratch();
    let file = disk.open("short", Mode::CreateNew).unwrap();
    file.write_at(0, b"abc").unwrap();
    for error in [
        file.read_at(1, &mut [0; 3]).unwrap_err(),
        file.share(1, 3).unwrap_err(),
        file.share(u64::MAX, 2).unwrap_err(),
    ] {
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("short"), "{error}");
    }
}

#[test]
fn a_view_of_a_file_that_grew_since_the_map_was_made_works() {
    let (_dir, disk) = scratch();
    let file = disk.open("a", Mode::CreateNew).unwrap();
    file.write_at(0, b"abc").unwrap();
    let old = file.share(0, 3).unwrap();
    file.write_at(3, b"def").unwrap();
    assert_eq!(&file.share(2, 3).unwrap()[..], b"cde");
    assert_eq!(&old[..], b"abc");
}

#[test]
fn a_mapped_file_is_not_shrunk() {
    let (_dir, disk) = scratch();
    let file = disk.open("a", Mode::CreateNew).unwrap();
    file.write_at(0, b"abc").unwrap();
    file.set_len(2).unwrap();
    let _view = file.share(0, 2).unwrap();
    assert_eq!(file.set_len(1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(file.len().unwrap(), 2);
}

#[test]
fn a_directory_is_renamed_whole_to_a_free_name_and_removed_when_it_is_empty() {
    let (_dir, disk) = scratch();
    disk.make_dir("d").unwrap();
    disk.make_dir("e").unwrap();
    disk.open("d/a", Mode::CreateNew).unwrap();
    let taken = disk.rename("d", "e").unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    disk.rename("d", "e/f").unwrap();
    assert_eq!((disk.is_dir("e/f").unwrap(), disk.is_dir("e/f/a").unwrap()), (true, false));
    assert_eq!(disk.is_dir("d").unwrap_err().kind(), io::ErrorKind::NotFound);
    let full = disk.remove_dir("e/f").unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::DirectoryNotEmpty);
    disk.unlink("e/f/a").unwrap();
    disk.remove_dir("e/f").unwrap();
    assert!(disk.list("e").unwrap().is_empty());
}

#[test]
fn a_lock_excludes_the_second_and_ends_with_its_guard() {
    let (_dir, disk) = scratch();
    let guard = disk.lock("lock").unwrap();
    let refused = disk.lock("lock").err().expect("held");
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    drop(guard);
    assert!(disk.lock("lock").is_ok());
}

#[test]
fn modes_directories_and_paths_behave_as_the_seam_says() {
    let (_dir, disk) = scratch();
    assert_eq!(disk.open("x", Mode::Read).unwrap_err().kind(), io::ErrorKind::NotFound);
    disk.make_dir("d").unwrap();
    disk.make_dir("d").unwrap();
    disk.open("d/b", Mode::CreateNew).unwrap();
    disk.open("d/a", Mode::CreateNew).unwrap();
    let again = disk.open("d/a", Mode::CreateNew).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.list("d").unwrap(), ["a", "b"]);
    disk.rename("d/a", "d/b").unwrap();
    disk.sync_dir("d").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(disk.list("d").unwrap(), ["b"]);
    for bad in ["/etc", "../x", "d/../x", "./x"] {
        let error = disk.open(bad, Mode::Read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad}");
    }
}

#[test]
fn a_lock_is_seen_without_being_taken() {
    let (dir, disk) = scratch();
    assert!(!disk.is_locked("lock").unwrap());
    assert!(!dir.path().join("lock").exists(), "looking makes no file");
    let held = disk.lock("lock").unwrap();
    assert!(disk.is_locked("lock").unwrap());
    // Whoever removes the file does not get in.
    disk.unlink("lock").unwrap();
    assert!(disk.is_locked("lock").unwrap());
    let again = disk.lock("lock").map(drop).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::WouldBlock, "{again}");
    drop(held);
    assert!(!disk.is_locked("lock").unwrap());
    disk.lock("lock").unwrap();
}

#[test]
fn a_mapped_disk_stores_what_is_there_and_writes_what_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let disk = mapped::MappedDisk::create(dir.path()).unwrap();
    let file = disk.open("a", Mode::CreateNew).unwrap();
    file.write_at(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    // Inside, over the end of a page, over the end of the file, and inside what was added.
    for (at, byte) in [(10, 2), (4000, 3), (8100, 4), (8200, 5)] {
        file.write_at(at, &[byte; 200]).unwrap();
    }
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 8400);
    let mut wanted = vec![1; 8400];
    for (at, byte) in [(10, 2), (4000, 3), (8100, 4), (8200, 5)] {
        wanted[at..at + 200].fill(byte);
    }
    assert!(std::fs::read(dir.path().join("a")).unwrap() == wanted);
    assert!(file.share(0, 8400).unwrap() == wanted);
    let cut = file.set_len(100).unwrap_err();
    assert!(cut.to_string().contains("the file is mapped"), "{cut}");
    let reading = disk.open("a", Mode::Read).unwrap();
    assert!(reading.write_at(0, &[9]).is_err());
}

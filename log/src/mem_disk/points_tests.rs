use super::*;
use crate::disk::{Disk, DiskFile, Mode};
use crate::mem_disk::{KeepAll, LoseAll};
use std::collections::BTreeSet;

const REACH: Reach = Reach { bound: 1000, samples: 5, draws: 0, seed: 1 };

type Files = BTreeMap<String, Vec<u8>>;

/// Every image of this moment, by its hash.
fn images(disk: &MemDisk, reach: &Reach) -> (BTreeMap<u64, Files>, Coverage) {
    let mut all = BTreeMap::new();
    let coverage = disk.point().outcomes(reach, &mut |outcome| {
        let made = outcome.disk();
        let files = made.files();
        assert_eq!(made.synced(&[""]).files(), files, "an image is durable");
        let before = all.insert(outcome.hash, files.clone());
        assert!(before.is_none_or(|b| b == files), "equal hashes, equal images");
        Ok(())
    });
    (all, coverage.expect("no visit fails"))
}

fn file(disk: &MemDisk, path: &str, bytes: &[u8]) -> crate::mem_disk::MemFile {
    let file = disk.open(path, Mode::CreateNew).expect("create");
    file.write_at(0, bytes).expect("write");
    file.sync().expect("sync");
    disk.sync_dir("").expect("sync the directory");
    file
}

fn heads(images: &BTreeMap<u64, Files>, path: &str) -> BTreeSet<[u8; 2]> {
    images.values().filter_map(|files| files.get(path)).map(|f| [f[0], f[SECTOR]]).collect()
}

#[test]
fn every_subset_of_two_sectors_comes_back_torn_ones_included() {
    let disk = MemDisk::new();
    let file = file(&disk, "a", &[1; 2 * SECTOR]);
    file.write_at(0, &[2; 2 * SECTOR]).expect("write");
    let (all, coverage) = images(&disk, &REACH);
    assert_eq!(coverage, Coverage::Whole);
    // Old, new and torn for each of the two: nothing was blank, so there is no garbage.
    assert_eq!(all.len(), 9);
    assert_eq!(heads(&all, "a"), BTreeSet::from([[1, 1], [1, 2], [2, 1], [2, 2]]));
    let (all, coverage) = images(&disk, &Reach { bound: 4, ..REACH });
    assert_eq!((all.len(), coverage), (4, Coverage::Subsets), "the torn ones are left out first");
    let (all, coverage) = images(&disk, &Reach { bound: 3, ..REACH });
    assert_eq!(coverage, Coverage::Sampled);
    let heads = heads(&all, "a");
    assert!(heads.contains(&[1, 1]) && heads.contains(&[2, 2]), "the extremes are there");
}

#[test]
fn a_sector_that_stays_as_it_is_is_no_choice_and_one_written_twice_has_three() {
    let disk = MemDisk::new();
    let file = file(&disk, "a", &[1; 2 * SECTOR]);
    file.write_at(0, &[1; 2 * SECTOR]).expect("write");
    assert_eq!(images(&disk, &REACH).0.len(), 1);
    for value in [2, 3] {
        file.write_at(0, &[value; SECTOR]).expect("write");
    }
    let (all, _) = images(&disk, &Reach { bound: 3, ..REACH });
    assert_eq!(heads(&all, "a"), BTreeSet::from([[1, 1], [2, 1], [3, 1]]));
}

#[test]
fn a_length_is_the_old_or_the_new_one_and_blank_sectors_may_hold_garbage() {
    let disk = MemDisk::new();
    let file = file(&disk, "a", &[1; SECTOR]);
    file.write_at(SECTOR as u64, &[2; SECTOR]).expect("write");
    let (all, _) = images(&disk, &REACH);
    let lengths: Vec<usize> = all.values().map(|files| files["a"].len()).collect();
    // With the new length: zeros, what was written, torn, garbage.
    assert_eq!(lengths.iter().filter(|len| **len == 2 * SECTOR).count(), 4);
    assert_eq!(lengths.iter().filter(|len| **len == SECTOR).count(), 1);
}

#[test]
fn names_come_back_in_every_way_but_none_without_what_it_builds_on() {
    let disk = MemDisk::new();
    disk.open("a", Mode::CreateNew).expect("create").sync().expect("sync");
    disk.rename("a", "b").expect("rename");
    disk.open("c", Mode::CreateNew).expect("create").sync().expect("sync");
    let (all, _) = images(&disk, &REACH);
    let names: BTreeSet<Vec<&str>> =
        all.values().map(|files| files.keys().map(String::as_str).collect()).collect();
    let expected: [&[&str]; 6] = [&[], &["a"], &["b"], &["c"], &["a", "c"], &["b", "c"]];
    assert_eq!(names, expected.iter().map(|names| names.to_vec()).collect());
}

#[test]
fn what_a_crash_draws_is_among_the_images() {
    let disk = MemDisk::new();
    let file = file(&disk, "a", &[0; 3 * SECTOR]);
    file.write_at(0, &[2; 3 * SECTOR]).expect("write");
    disk.open("b", Mode::CreateNew).expect("create");
    let (all, _) = images(&disk, &REACH);
    for made in [disk.point().whole(&mut LoseAll), disk.point().whole(&mut KeepAll)] {
        assert!(all.values().any(|files| *files == made.files()));
    }
    // A draw has the hash that the same image has when it is put together.
    let mut drawn = 0;
    let reach = Reach { draws: 40, ..REACH };
    disk.point()
        .outcomes(&reach, &mut |outcome| {
            drawn += u64::from(!all.contains_key(&outcome.hash));
            assert!(all.get(&outcome.hash).is_none_or(|files| *files == outcome.disk().files()));
            Ok(())
        })
        .expect("no visit fails");
    assert!((1..40).contains(&drawn), "{drawn} of 40 draws were torn or garbage elsewhere");
}

#[test]
fn each_moment_before_an_operation_is_remembered_once() {
    let disk = MemDisk::new();
    disk.watch();
    let file = disk.open("a", Mode::CreateNew).expect("create");
    file.write_at(0, &[1; SECTOR]).expect("write");
    file.sync().expect("sync");
    let points = disk.take_points();
    let next: Vec<&str> = points.iter().map(CrashPoint::next).collect();
    assert_eq!(next, ["Create a", "Write a", "Sync a"]);
    assert!(points[0].whole(&mut KeepAll).files().is_empty());
    assert_eq!(points[2].whole(&mut KeepAll).files()["a"], [1; SECTOR]);
    assert!(disk.take_points().is_empty(), "they are handed out once");
}

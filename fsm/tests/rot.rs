//! Rot in the store's own file: whatever byte of it changes, the store is either as it was or
//! refused as untrusted, so that a start sets it aside; nothing panics, nothing wrong is served.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::Entries;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::StateMachine;
use holdfast_fsm::start::{StoreFacts, facts};
use holdfast_fsm::{DISTRUST_FILE, Metastore, OpenError, ReadError, StoreOptions};
use holdfast_log::MemDisk;
use holdfast_log::disk::Disk;
use holdfast_log::mem_disk::LoseAll;
use std::collections::BTreeMap;

const FILE: &str = "store/meta.redb";
const PAGE: usize = 4096;
const APPLIED: usize = 250;

type Files = BTreeMap<String, Vec<u8>>;

/// A checkpointed store, as after kill -9, with its whole history.
fn store() -> (Files, Entries) {
    let all = script(7, 400);
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    feed(&mut machine, &all.take(APPLIED), 20);
    machine.checkpoint().expect("checkpoints");
    (disk.crash(&mut LoseAll).files(), all)
}

/// Digests after [`APPLIED`] entries and after all of them.
fn digests(all: &Entries) -> [u128; 2] {
    let mut machine = fresh();
    feed(&mut machine, &all.take(APPLIED), 20);
    let then = machine.applied().digest;
    feed(&mut machine, &all.starting_at(holdfast_consensus::Index(APPLIED as u64 + 1)), 20);
    [then, machine.applied().digest]
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// It is as it was, and goes on.
    Harmless,
    /// Refused before a byte of it changed.
    AtOpen,
    /// Refused by a read or a walk.
    ByRead,
    /// Refused while it was written.
    ByWrite,
}

fn untrusted<T>(result: Result<T, StoreFault>, what: &str) -> Result<T, Found> {
    result.map_err(|fault| match fault {
        StoreFault::Untrusted(_) => Found::ByWrite,
        other => panic!("{what}: {other:?}"),
    })
}

fn read<T>(result: Result<T, ReadError>, what: &str) -> Result<T, Found> {
    result.map_err(|error| match error {
        ReadError::Store(StoreFault::Untrusted(_)) => Found::ByRead,
        other => panic!("{what}: {other:?}"),
    })
}

/// Lives with the damaged file as a member does.
fn live(disk: &MemDisk, all: &Entries, digests: [u128; 2]) -> Result<(), Found> {
    let before = disk.files();
    match facts(disk, &options()).expect("the disk is well") {
        StoreFacts::Holds(last) => assert_eq!(last.index.0, APPLIED as u64),
        StoreFacts::Untrusted(_) => {
            assert_eq!(disk.files(), before, "what is refused keeps every byte");
            return Err(Found::AtOpen);
        }
        other => panic!("{other:?}"),
    }
    let mut machine = match Metastore::open(disk.clone(), options()) {
        Ok(machine) => machine,
        Err(OpenError::Untrusted(_)) => return Err(Found::AtOpen),
        Err(other) => panic!("{other:?}"),
    };
    let digest = read(machine.view().verify_digest(), "the first walk")?.value;
    assert_eq!(digest, digests[0]);
    let mut replies = Vec::new();
    let mut left = all.starting_at(holdfast_consensus::Index(APPLIED as u64 + 1));
    while let Some(last) = left.take(20).last().map(|id| id.index) {
        untrusted(machine.apply(&left.take(20), &mut replies), "apply")?;
        untrusted(machine.checkpoint(), "checkpoint")?;
        left = left.starting_at(last.next());
    }
    let digest = read(machine.view().verify_digest(), "the walk at the end")?.value;
    assert_eq!(digest, digests[1], "it walks clean and is another state");
    drop(machine);
    let again = Metastore::open(disk.crash(&mut LoseAll), options()).map_err(|_| Found::AtOpen)?;
    assert_eq!(read(again.view().verify_digest(), "the walk after a restart")?.value, digests[1]);
    Ok(())
}

fn sweep(damages: impl Iterator<Item = (String, Vec<u8>)>) -> BTreeMap<Found, usize> {
    let (files, all) = store();
    let digests = digests(&all);
    let mut seen = BTreeMap::new();
    for (what, bytes) in damages {
        let mut files = files.clone();
        files.insert(FILE.to_owned(), bytes);
        let disk = MemDisk::from_files(files);
        let trial = std::panic::AssertUnwindSafe(|| live(&disk, &all, digests));
        let found = std::panic::catch_unwind(trial).unwrap_or_else(|_| panic!("{what}: a panic"));
        *seen.entry(found.err().unwrap_or(Found::Harmless)).or_default() += 1;
    }
    seen
}

/// Pages that hold anything.
fn pages(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    (0..bytes.len() / PAGE).filter(|page| bytes[page * PAGE..][..PAGE].iter().any(|b| *b != 0))
}

#[test]
fn flipped_bits_anywhere_are_harmless_or_found() {
    let bytes = store().0[FILE].clone();
    let offsets = || (0..32).chain((32..PAGE).step_by(331));
    let places: Vec<_> = pages(&bytes).flat_map(|p| offsets().map(move |o| p * PAGE + o)).collect();
    let seen = sweep(places.iter().map(|place| {
        let mut bytes = bytes.clone();
        bytes[*place] ^= 1 << (place % 8);
        (format!("{FILE}:{place}:{}", place % 8), bytes)
    }));
    println!("{} flips: {seen:?}", places.len());
    assert!(seen.contains_key(&Found::AtOpen), "no flip was ever found: {seen:?}");
}

#[test]
fn pages_that_were_lost_filled_or_written_elsewhere_are_found() {
    let bytes = store().0[FILE].clone();
    let pages: Vec<_> = pages(&bytes).collect();
    let seen = sweep(pages.iter().flat_map(|page| {
        let at = page * PAGE;
        let with = |content: &[u8], what: &str| {
            let mut bytes = bytes.clone();
            bytes[at..at + PAGE].copy_from_slice(content);
            (format!("page {page}: {what}"), bytes)
        };
        let other = pages[(page + 3) % pages.len()] * PAGE;
        [
            with(&[0; PAGE], "zeros"),
            with(&[0xff; PAGE], "ones"),
            with(&bytes[other..other + PAGE], "another page"),
        ]
    }));
    println!("{} pages: {seen:?}", pages.len() * 3);
    assert!(seen.contains_key(&Found::AtOpen), "no page was ever missed: {seen:?}");
}

/// Changes a byte in every copy of the values of the script, live and old.
fn spoil(disk: &MemDisk) {
    let bytes = disk.files()[FILE].clone();
    let begins = |at: &usize| bytes[*at..][..16] == [b'v'; 16] && bytes[at - 1] != b'v';
    let runs: Vec<_> = (1..bytes.len() - 16).filter(begins).collect();
    assert!(!runs.is_empty());
    for at in runs {
        disk.flip_bit(FILE, at as u64 + 8, 0).expect("there");
    }
}

#[test]
fn damage_that_is_met_in_use_is_marked_and_the_file_is_never_trusted_again() {
    let (files, all) = store();
    let disk = MemDisk::from_files(files);
    let uncached = StoreOptions { cache_bytes: 0, ..options() };
    let mut machine = Metastore::open(disk.clone(), uncached).expect("opens");
    spoil(&disk);
    let found = machine.view().verify_digest().map(|_| ()).map_err(|e| read::<()>(Err(e), "walk"));
    assert_eq!(found, Err(Err(Found::ByRead)));
    let next = all.starting_at(holdfast_consensus::Index(APPLIED as u64 + 1)).take(5);
    assert!(untrusted(machine.apply(&next, &mut Vec::new()), "apply").is_err());
    assert!(untrusted(machine.reopen(), "reopen").is_err(), "waiting does not make it better");
    drop(machine);
    // Even if it reads well again: who knows what it will be tomorrow.
    spoil(&disk);
    let disk = disk.crash(&mut LoseAll);
    assert!(disk.files().contains_key(DISTRUST_FILE));
    assert!(matches!(facts(&disk, &options()), Ok(StoreFacts::Untrusted(_))));
    let refused = Metastore::open(disk.clone(), options()).err();
    assert!(matches!(refused, Some(OpenError::Untrusted(_))), "{refused:?}");
    let looked = Metastore::look(disk.clone(), options()).expect("a held member starts");
    assert!(looked.header().is_empty(), "and does not read from it");
    drop(looked);
    // What a start does: the file is renamed, a new one takes its place, and the mark is gone.
    disk.rename(FILE, "store/stale-1.redb").expect("renames");
    let mut machine = open(&disk);
    assert!(!disk.files().contains_key(DISTRUST_FILE));
    feed(&mut machine, &all, 20);
    assert_eq!(machine.applied().digest, digests(&all)[1]);
}

//! What `explain` says a start would do, against starts that were really made: over whole, cut,
//! damaged and mixed-up directories, the same end for the same reason, the same files changed from
//! the same byte on; and the directory that was asked about as it was.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::io::Persist;
use holdfast_consensus::replica::{Replica, ReplicaConfig};
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::traits::{
    LogStore, SnapshotSink, SnapshotSource, SnapshotStore, StateMachine,
};
use holdfast_consensus::{Body, Entries, Index, MemberId, Membership, Seq};
use holdfast_fsm::entrance;
use holdfast_fsm::explain::{Configured, End, Explained, Stage, explain};
use holdfast_fsm::records::VolumeId;
use holdfast_fsm::start::StoreFacts;
use holdfast_fsm::{Metastore, Plan, Plane, StoreOptions, start};
use holdfast_log::mem_disk::{LoseAll, RandomLoss};
use holdfast_log::overlay::{Change, Changed};
use holdfast_log::{Home, HomeOptions, LogOptions, MemDisk};
use std::collections::{BTreeMap, BTreeSet};

type Files = BTreeMap<String, Vec<u8>>;

const SEGMENT: u64 = 32_768;

fn configured() -> Configured {
    Configured {
        name: Some("n1".to_owned()),
        segment_bytes: Some(SEGMENT),
        store: StoreOptions::small,
    }
}

fn home_options() -> HomeOptions {
    let log = LogOptions { segment_bytes: SEGMENT };
    HomeOptions { name: "n1".to_owned(), fresh_member: MemberId(u64::MAX), log }
}

fn voters(others: u64) -> Membership {
    Membership::of_voters((1..=1 + others).map(|n| (MemberId(n), format!("n{n}"))))
}

/// A member of a cluster with so many others that has logged `logged` entries, and applied and
/// checkpointed `applied` of them; with `cut`, a snapshot took the place of the first of them.
fn lived(others: u64, logged: u64, applied: u64, cut: bool) -> MemDisk {
    let disk = MemDisk::new();
    let options = HomeOptions { fresh_member: MemberId(1), ..home_options() };
    let mut home = Home::open(disk.clone(), &options).expect("the home opens");
    home.found(CLUSTER, 1, voters(others)).expect("founds");
    let mut started = start(home, disk.clone(), options_of_store()).expect("starts");
    let mut founding = entry(1, Body::Membership(voters(others).into()));
    founding.time = 0;
    let mut entries = vec![founding];
    entries.extend((2..=logged).map(|n| command(n, None, &put(&format!("k{n}"), "v"))));
    let all = Entries::new(entries).expect("a run");
    let mut left = all.starting_at(Index(2));
    for seq in 1.. {
        let append = left.take(20);
        let Some(last) = append.last().map(|last| last.index) else { break };
        left = left.starting_at(last.next());
        let persist = Persist { seq: Seq(seq), truncate_from: None, append, hard: None };
        started.log.persist(&[persist]).expect("the log takes it");
    }
    let applied = usize::try_from(applied).expect("small");
    started.store.apply(&all.take(applied), &mut Vec::new()).expect("applies");
    started.store.checkpoint().expect("checkpoints");
    started.log.watermark(Index(applied as u64)).expect("a watermark");
    started.log.watermark(Index(applied as u64)).expect("a watermark");
    if cut {
        let (meta, mut image) = started.store.pin().expect("pins");
        let snapshots = started.log.snapshots();
        let mut writer = snapshots.create(&meta).expect("creates");
        while let Some(chunk) = image.next_chunk().expect("streams") {
            writer.put_chunk(writer.offset(), &chunk).expect("writes");
        }
        snapshots.publish(writer).expect("publishes");
        started.log.compact(meta.last.index).expect("compacts");
    }
    disk
}

fn options_of_store() -> StoreOptions {
    options()
}

/// The start as a node makes it.
fn real(disk: &MemDisk) -> End {
    let refused = |by: Stage, why: String| End::Refused { by, why };
    let home = match entrance::open(disk.clone(), &home_options(), StoreOptions::small) {
        Ok(home) => home,
        Err((by, e)) => return refused(by, e.to_string()),
    };
    if !home.is_formed() {
        return End::Waits;
    }
    let cluster = home.identity().cluster;
    let options = StoreOptions::small(cluster, home.identity().epoch);
    let mut started = match start(home, disk.clone(), options) {
        Ok(started) => started,
        Err(e) => return refused(Stage::Store, e.to_string()),
    };
    let config = ReplicaConfig::new(started.identity.member);
    let (log, store) = (&mut started.log, &mut started.store);
    match Replica::<_, Metastore<MemDisk>>::open(config, 0, log, store, 0) {
        Err(why) => refused(Stage::Replica, why.to_string()),
        Ok(replica) => {
            if let Err(e) = Plane::open(disk.clone(), cluster, "n1", VolumeId(u128::MAX)) {
                return refused(Stage::Plane, e.to_string());
            }
            End::Runs {
                plan: started.plan.clone(),
                recovered: Box::new(started.log.recovered()),
                status: Box::new(replica.status(0)),
            }
        }
    }
}

/// What changed must be what was said, from the byte that was said.
fn same_changes(before: &Files, after: &Files, changes: &[Changed], what: &str) {
    let mut said = BTreeSet::new();
    let of_files = |c: &&Changed| c.change != Some(Change::Made(None));
    for Changed { path, to, change } in changes.iter().filter(of_files) {
        said.insert(path);
        said.extend(to);
        let here = to.as_ref().unwrap_or(path);
        match change {
            None => assert_eq!(after[here], before[path], "{what}: {path}"),
            Some(Change::Removed) => assert!(before.contains_key(path), "{what}: {path}"),
            Some(Change::Made(Some(len)) | Change::Replaced(len)) => {
                assert_eq!(after[here].len() as u64, *len, "{what}: {path}");
            }
            Some(Change::Made(None)) => {}
            Some(Change::Rewritten { from, before: was, now }) => {
                let (old, new) = (&before[path], &after[here]);
                assert_eq!((old.len() as u64, new.len() as u64), (*was, *now), "{what}: {path}");
                let from = usize::try_from(*from).expect("small");
                assert_eq!(old[..from], new[..from], "{what}: {path}");
                assert_ne!(old.get(from), new.get(from), "{what}: {path} at {from}");
            }
        }
    }
    let paths = before.keys().chain(after.keys());
    let differ: BTreeSet<_> = paths.filter(|path| before.get(*path) != after.get(*path)).collect();
    let gone_on =
        |path: &&&String| !before.contains_key(**path) || before.get(**path) != after.get(**path);
    assert_eq!(said.iter().filter(gone_on).copied().collect::<BTreeSet<_>>(), differ, "{what}");
}

/// Explains a start, makes it, and compares.
fn compare(files: &Files, what: &str) -> Explained {
    let disk = MemDisk::from_files(files.clone());
    let trace = disk.trace_hash();
    let told = explain(&disk, &configured()).expect("it can be read");
    assert!(disk.trace_hash() == trace, "{what}: nothing was written");
    assert!(disk.files() == *files, "{what}: not a byte has changed");
    assert_eq!(told.end, real(&disk), "{what}");
    same_changes(files, &disk.files(), &told.changes, what);
    if matches!(told.end, End::Refused { .. }) {
        let mut after = disk.files();
        if !files.contains_key("lock") {
            after.remove("lock");
        }
        let differ: Vec<_> = after
            .iter()
            .filter(|(path, bytes)| files.get(*path) != Some(bytes))
            .map(|f| f.0)
            .collect();
        assert!(
            after == *files,
            "{what}: a start that refuses changes nothing, not {differ:?}: {:?}",
            told.end
        );
    }
    told
}

/// In one word, to see that every end was met.
fn word(told: &Explained) -> &'static str {
    match &told.end {
        End::Waits => "waits",
        End::Refused { by: Stage::Home, .. } => "home",
        End::Refused { by: Stage::Plane, .. } => "plane",
        End::Refused { by: Stage::Store, .. } => "store",
        End::Refused { by: Stage::Replica, .. } => "replica",
        End::Runs { plan, status, .. } => match plan {
            _ if status.damaged.is_some() => "damaged",
            Plan::Fresh => "fresh",
            Plan::Replay { .. } => "replay",
            Plan::Install { .. } => "install",
            Plan::SetAside { .. } => "set aside",
            Plan::Look { .. } => "look",
            Plan::Refuse(_) => "refuse",
        },
    }
}

fn without(files: &Files, prefix: &str) -> Files {
    files
        .iter()
        .filter(|(p, _)| !p.starts_with(prefix))
        .map(|(p, b)| (p.clone(), b.clone()))
        .collect()
}

/// The files of one directory, with the log of another.
fn with_log_of(files: &Files, other: &Files) -> Files {
    let mut mixed = without(files, "log/");
    mixed.extend(
        other.iter().filter(|(p, _)| p.starts_with("log/")).map(|(p, b)| (p.clone(), b.clone())),
    );
    mixed
}

/// Damages both headers of the newest segment.
fn unproved(files: &Files) -> Files {
    let mut files = files.clone();
    let (_, newest) = files.iter_mut().rfind(|(path, _)| path.starts_with("log/0")).expect("one");
    for at in [48, 4096 + 48] {
        newest[at] ^= 8;
    }
    files
}

fn changed(files: &Files, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> Files {
    let mut files = files.clone();
    change(files.get_mut(path).expect("it is there"));
    files
}

#[test]
fn every_end_of_a_start_is_told_before_it_comes() {
    let (lived_one, whole) = (lived(2, 40, 30, false).files(), lived(2, 300, 250, false).files());
    let cut = lived(2, 300, 250, true).files();
    let alone = lived(0, 400, 30, false).files();
    let snapshot = cut.keys().find(|path| path.ends_with(".snap")).expect("one").clone();
    let other = MemDisk::new();
    Plane::open(other.clone(), CLUSTER, "n9", VolumeId(5)).expect("a plane");
    let mut strange_plane = whole.clone();
    strange_plane.extend(other.files());
    let empty_log = with_log_of(&whole, &Files::new());
    let cases: Vec<(&str, &str, Files)> = vec![
        ("an empty directory", "waits", Files::new()),
        ("a whole one", "replay", whole.clone()),
        ("one that is not compacted, without a store", "replay", without(&whole, "store/")),
        ("a compacted one", "replay", cut.clone()),
        ("a compacted one without a store", "install", without(&cut, "store/")),
        (
            "a compacted one, store and snapshot gone",
            "store",
            without(&without(&cut, "store/"), "snap/"),
        ),
        (
            "a compacted one, store gone, snapshot damaged",
            "store",
            without(&changed(&cut, &snapshot, |bytes| bytes[300] ^= 1), "store/"),
        ),
        (
            "a store that was cut short",
            "set aside",
            changed(&whole, "store/meta.redb", |b| b.truncate(100)),
        ),
        ("the log of an older backup", "store", with_log_of(&whole, &lived_one)),
        ("the log gone", "home", empty_log),
        ("the identity file gone", "home", without(&whole, "identity")),
        ("a damaged identity file", "home", changed(&whole, "identity", |bytes| bytes[20] ^= 1)),
        ("both headers of the newest segment damaged", "look", unproved(&whole)),
        ("the same in a cluster of one", "replica", unproved(&alone)),
        ("partitions of another node", "plane", strange_plane),
    ];
    for (what, expected, files) in cases {
        let told = compare(&files, what);
        assert_eq!(word(&told), expected, "{what}: {:?}", told.end);
        if expected == "look" {
            assert_eq!(told.changes.iter().filter(|c| c.path.starts_with("log")).count(), 0);
        }
    }
}

#[test]
fn what_is_told_of_a_whole_directory_is_what_there_is() {
    let told = compare(&lived(2, 40, 30, false).files(), "whole");
    let report = told.log.expect("judged");
    assert!(report.healthy() && report.last.index == Index(40), "{report:?}");
    assert_eq!(told.identity.map(|identity| identity.name), Some("n1".to_owned()));
    assert!(matches!(told.store, Some(StoreFacts::Holds(last)) if last.index == Index(30)));
    let End::Runs { plan, recovered, status } = told.end else { panic!("it runs") };
    assert_eq!(plan, Plan::Replay { from: Index(31) });
    assert_eq!(recovered.boot, 2, "the number of the start that was asked about");
    assert_eq!((status.durable.index, status.proved.index), (Index(40), Index(40)));
}

#[test]
fn without_a_configuration_the_directory_says_how_it_is_configured() {
    let files = lived(2, 300, 250, false).files();
    let asked = Configured { name: None, segment_bytes: None, store: StoreOptions::small };
    let disk = MemDisk::from_files(files.clone());
    let (told, exact) = (explain(&disk, &asked), explain(&disk, &configured()));
    assert_eq!(told.expect("it can be read"), exact.expect("it can be read"));
    let renamed = Configured { name: Some("n7".to_owned()), ..asked };
    let told = explain(&disk, &renamed).expect("it can be read");
    let End::Refused { by: Stage::Home, why } = told.end else { panic!("{:?}", told.end) };
    assert!(why.contains("`n1`") && why.contains("`n7`"), "{why}");
}

#[test]
fn after_any_power_cut_a_start_does_what_was_told() {
    let mut met = BTreeSet::new();
    for seed in 0..40 {
        let disk = lived(2, 30 + seed * 7, 20 + seed * 3, seed % 3 == 0);
        let after = match seed % 4 {
            0 => disk.crash(&mut LoseAll),
            _ => disk.crash(&mut RandomLoss::new(seed)),
        };
        met.insert(word(&compare(&after.files(), &format!("seed {seed}"))));
    }
    assert!(met.contains("replay"), "{met:?}");
}

/// Some damage, drawn: flipped bits, a file lost, cut or blanked in part.
fn damage(files: &mut Files, rng: &mut SplitMix64) {
    let paths: Vec<String> = files.keys().filter(|path| !path.contains("spare")).cloned().collect();
    for _ in 0..rng.between(1, 3) {
        let at = rng.between(0, paths.len() as u64 - 1);
        let path = &paths[usize::try_from(at).expect("small")];
        let kind = rng.between(0, 9);
        let Some(bytes) = files.get_mut(path).filter(|bytes| !bytes.is_empty()) else { continue };
        let any = rng.between(0, bytes.len() as u64 - 1);
        // Half of the time where the records of a log begin.
        let low = if rng.chance(500) { any } else { any % 24_576 };
        let place = usize::try_from(low).expect("small").min(bytes.len() - 1);
        match kind {
            0 => {
                files.remove(path);
            }
            1 => bytes.truncate(place),
            2 => bytes.iter_mut().skip(place).take(4096).for_each(|byte| *byte = 0),
            _ => bytes[place] ^= 1 << rng.between(0, 7),
        }
    }
}

#[test]
fn over_any_damage_a_start_does_what_was_told() {
    let whole = [
        lived(2, 300, 250, false).files(),
        lived(2, 300, 250, true).files(),
        lived(0, 90, 60, false).files(),
    ];
    let mut met: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..600u64 {
        let mut rng = SplitMix64::new(seed);
        let mut files = whole[usize::try_from(seed % 3).expect("small")].clone();
        damage(&mut files, &mut rng);
        let told = compare(&files, &format!("seed {seed}"));
        *met.entry(word(&told)).or_default() += 1;
    }
    println!("{met:?}");
    for end in ["replay", "damaged", "look", "home", "replica"] {
        assert!(met.get(end).is_some_and(|n| *n > 2), "{end} is hardly met: {met:?}");
    }
}

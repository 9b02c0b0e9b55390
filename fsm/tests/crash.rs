//! The store under power cuts, failing disks and full disks: what was durable stays, what was
//! rolled back is applied again exactly once, and nothing else is ever seen.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::traits::{SnapshotSink, StateMachine};
use holdfast_consensus::{Entries, Index, LogId};
use holdfast_fsm::{Command, Metastore, OpenError, ReadError, StoreOptions};
use holdfast_log::MemDisk;
use holdfast_log::mem_disk::{KeepAll, LoseAll, Op, PowerLoss, RandomLoss};

/// Digest after each entry of a history, computed on a store that never fails.
fn digests(all: &Entries) -> Vec<u128> {
    let mut machine = fresh();
    let mut digests = vec![0];
    for count in 1..=all.len() {
        machine.apply(&all.take(count), &mut Vec::new()).expect("the history applies");
        digests.push(machine.applied().digest);
    }
    digests
}

fn digest_at(digests: &[u128], last: LogId) -> u128 {
    digests[usize::try_from(last.index.0).expect("small")]
}

/// Everything the apply lane does: batches of several sizes, checkpoints, a pinned image.
/// Returns the last index whose checkpoint was reported durable.
fn work(machine: &mut Metastore<MemDisk>, all: &Entries) -> (LogId, Result<(), StoreFault>) {
    let mut durable = machine.applied().durable;
    let mut go = || -> Result<(), StoreFault> {
        let mut done = 0;
        for (round, by) in [3, 1, 8, 5, 2, 13].into_iter().cycle().enumerate() {
            if done >= all.len() {
                return Ok(());
            }
            done += by;
            machine.apply(&all.take(done), &mut Vec::new())?;
            if round % 3 == 2 {
                durable = machine.checkpoint()?.durable;
            }
        }
        Ok(())
    };
    let result = go();
    (durable, result)
}

fn losses(seed: u64) -> Vec<Box<dyn PowerLoss>> {
    vec![Box::new(LoseAll), Box::new(KeepAll), Box::new(RandomLoss::new(seed))]
}

#[test]
fn after_a_kill_the_log_feeds_the_store_again_and_nothing_is_applied_twice() {
    let all = script(1, 120);
    let want = digests(&all);
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    machine.apply(&all.take(50), &mut Vec::new()).unwrap();
    machine.checkpoint().unwrap();
    machine.apply(&all.take(90), &mut Vec::new()).unwrap();
    let killed = disk.kill();
    drop(machine);
    let mut machine = open(&killed);
    assert_eq!(machine.applied().last.index, Index(50), "back to the last checkpoint");
    assert_eq!(machine.applied().durable, machine.applied().last);
    assert_eq!(machine.applied().digest, want[50]);
    let replies = feed(&mut machine, &all, 7);
    assert_eq!(machine.applied().digest, want[120]);
    assert!(replies.iter().all(|(index, _)| *index > Index(50)), "nothing is answered again");
    assert_eq!(machine.applied().skipped, 49 + 1, "what was held is skipped and counted");
    machine.view().verify_digest().unwrap();
}

#[test]
fn after_a_clean_stop_nothing_is_applied_again() {
    let all = script(2, 60);
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    feed(&mut machine, &all, 9);
    let stopped = machine.checkpoint().unwrap();
    drop(machine);
    let machine = open(&disk);
    assert_eq!(machine.applied().last, stopped.last);
    assert_eq!(machine.applied().digest, stopped.digest);
}

#[test]
fn dropping_the_store_makes_nothing_durable_that_the_log_may_not_cover() {
    let all = script(3, 40);
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    machine.apply(&all.take(20), &mut Vec::new()).unwrap();
    machine.checkpoint().unwrap();
    machine.apply(&all, &mut Vec::new()).unwrap();
    let before = disk.trace_hash();
    drop(machine);
    assert_eq!(disk.trace_hash(), before, "dropping writes nothing");
    assert_eq!(open(&disk).applied().last.index, Index(20));
}

#[test]
fn a_checkpoint_with_nothing_new_costs_no_sync() {
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    apply_one(&mut machine, None, &create("a"));
    machine.checkpoint().unwrap();
    let before = disk.trace_hash();
    machine.checkpoint().unwrap();
    assert_eq!(disk.trace_hash(), before);
}

#[test]
fn a_crash_at_any_disk_operation_of_apply_and_checkpoint_loses_nothing_durable() {
    let all = script(4, 100);
    let want = digests(&all);
    let mut fuse = 0;
    loop {
        let mut blown = false;
        for (which, mut loss) in losses(fuse).into_iter().enumerate() {
            let disk = MemDisk::new();
            let mut machine = open(&disk);
            disk.set_fuse(Some(fuse));
            let (durable, result) = work(&mut machine, &all);
            blown |= result.is_err();
            let crashed = disk.crash(&mut *loss);
            drop(machine);
            let mut machine = open(&crashed);
            let found = machine.applied();
            let why = format!("fuse {fuse}, loss {which}, durable {durable}");
            assert!(found.last >= durable, "{why}: found {}", found.last);
            assert_eq!(found.digest, digest_at(&want, found.last), "{why}");
            machine.view().verify_digest().unwrap_or_else(|e| panic!("{why}: {e}"));
            feed(&mut machine, &all, 11);
            assert_eq!(machine.applied().digest, want[100], "{why}");
            machine.checkpoint().unwrap();
        }
        if !blown {
            break;
        }
        fuse += 1;
    }
    assert!(fuse > 50, "the fuse met only {fuse} operations");
}

#[test]
fn a_crash_at_any_disk_operation_of_creating_a_store_leaves_none_or_an_empty_one() {
    let mut fuse = 0;
    loop {
        let mut made = false;
        for mut loss in losses(fuse) {
            let disk = MemDisk::new();
            disk.set_fuse(Some(fuse));
            made |= Metastore::open(disk.clone(), options()).is_ok();
            let machine = open(&disk.crash(&mut *loss));
            assert_eq!(machine.applied().last, LogId::default());
        }
        if made {
            break;
        }
        fuse += 1;
    }
    assert!(fuse > 5, "the fuse met only {fuse} operations");
}

#[test]
fn a_crash_at_any_disk_operation_of_an_install_leaves_the_old_or_the_new_state() {
    let all = script(5, 160);
    let want = digests(&all);
    let mut source = fresh();
    feed(&mut source, &all.take(120), 120);
    let (meta, chunks) = snapshot(&mut source);
    let mut seen = [0; 2];
    let mut fuse = 0;
    loop {
        let mut adopted = false;
        for mut loss in losses(fuse) {
            let disk = MemDisk::new();
            let mut machine = open(&disk);
            machine.apply(&all.take(30), &mut Vec::new()).unwrap();
            machine.checkpoint().unwrap();
            disk.set_fuse(Some(fuse));
            let install = |machine: &mut Metastore<MemDisk>| -> Result<(), StoreFault> {
                let mut sink = machine.restore(&meta)?;
                for chunk in &chunks {
                    sink.put_chunk(sink.offset(), chunk)?;
                }
                machine.adopt(sink).map(drop)
            };
            let done = install(&mut machine).is_ok();
            adopted |= done;
            let crashed = disk.crash(&mut *loss);
            drop(machine);
            let mut machine = open(&crashed);
            let last = machine.applied().last.index.0;
            assert!([30, 120].contains(&last), "fuse {fuse}: at {last}");
            assert!(!done || last == 120, "an adopted state is durable");
            seen[usize::from(last == 120)] += 1;
            machine.view().verify_digest().unwrap();
            feed(&mut machine, &all, 50);
            assert_eq!(machine.applied().digest, want[160], "fuse {fuse}");
            assert_eq!(crashed.files().len(), 1, "leftovers are removed");
        }
        if adopted {
            break;
        }
        fuse += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "both outcomes: {seen:?}");
}

#[test]
fn after_a_failed_sync_the_file_is_never_used_again() {
    let all = script(6, 80);
    let want = digests(&all);
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    machine.apply(&all.take(40), &mut Vec::new()).unwrap();
    machine.checkpoint().unwrap();
    machine.apply(&all.take(60), &mut Vec::new()).unwrap();
    disk.fail_next(Op::Sync, "meta.redb");
    let fault = machine.checkpoint().unwrap_err();
    assert!(
        matches!(&fault, StoreFault::Poisoned { detail } if detail.contains("sync")),
        "{fault}"
    );
    let closed = machine.apply(&all, &mut Vec::new()).unwrap_err();
    assert!(matches!(closed, StoreFault::Poisoned { .. }));
    let reopened = machine.reopen().unwrap();
    assert_eq!(reopened.last, LogId::default(), "rebuilt from nothing: the log feeds it again");
    assert_eq!(reopened.durable, LogId::default());
    feed(&mut machine, &all, 20);
    assert_eq!(machine.applied().digest, want[80]);
    machine.checkpoint().unwrap();
    let machine = open(&disk.crash(&mut LoseAll));
    assert_eq!(machine.applied().digest, want[80]);
}

#[test]
fn after_a_failed_write_the_store_reopens_at_its_last_checkpoint() {
    let all = script(7, 80);
    let want = digests(&all);
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    let view = machine.view();
    machine.apply(&all.take(40), &mut Vec::new()).unwrap();
    machine.checkpoint().unwrap();
    machine.apply(&all.take(60), &mut Vec::new()).unwrap();
    let before = view.held().unwrap();
    assert_eq!(before.last.index, Index(60));
    disk.fail_next(Op::Write, "meta.redb");
    machine.checkpoint().unwrap_err();
    assert!(matches!(view.held(), Err(ReadError::Closed { .. })), "no reads from a closed store");
    let reopened = machine.reopen().unwrap();
    assert_eq!(reopened.last.index, Index(40));
    let behind = ReadError::CatchingUp { applied: Index(40), needed: Index(60) };
    assert_eq!(view.held().unwrap_err(), behind, "nobody sees time go back");
    machine.apply(&all.take(59), &mut Vec::new()).unwrap();
    assert!(matches!(view.held(), Err(ReadError::CatchingUp { .. })));
    machine.apply(&all.take(60), &mut Vec::new()).unwrap();
    let after = view.held().unwrap();
    assert_eq!((after.last, after.digest), (before.last, before.digest));
    assert!(after.generation > before.generation);
    feed(&mut machine, &all, 20);
    assert_eq!(machine.applied().digest, want[80]);
}

#[test]
fn a_full_disk_is_said_as_such_and_freed_space_is_enough_to_go_on() {
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    apply_one(&mut machine, None, &create("a"));
    machine.checkpoint().unwrap();
    let used: u64 = disk.files().values().map(|f| f.len() as u64).sum();
    disk.set_budget(Some(used + 8192));
    let mut all = vec![command(1, None, &create("a"))];
    for index in 2..=40 {
        let value = vec![b'x'; 60_000].into();
        let put = Command::KvPut { key: bytes(&format!("k{index}")), value };
        all.push(command(index, None, &put));
    }
    let all = run(all);
    let fault = all
        .iter()
        .skip(1)
        .find_map(|e| {
            let one = run(vec![e.clone()]);
            machine.apply(&one, &mut Vec::new()).and_then(|_| machine.checkpoint()).err()
        })
        .expect("the disk is full");
    assert!(matches!(fault, StoreFault::Full { .. }), "{fault}");
    assert!(machine.apply(&all, &mut Vec::new()).is_err(), "closed until it is reopened");
    disk.set_budget(None);
    machine.reopen().unwrap();
    machine.apply(&all, &mut Vec::new()).unwrap();
    machine.checkpoint().unwrap();
    assert_eq!(machine.counts().0, [1, 0, 0, 0, 39, 0, 0]);
    machine.view().verify_digest().unwrap();
}

#[test]
fn the_same_history_gives_the_same_disk_operations() {
    let all = script(8, 100);
    let traces: Vec<u64> = (0..2)
        .map(|_| {
            let disk = MemDisk::new();
            let (_, result) = work(&mut open(&disk), &all);
            result.expect("nothing fails");
            disk.trace_hash()
        })
        .collect();
    assert_eq!(traces[0], traces[1]);
}

#[test]
fn a_disk_that_fails_at_any_moment_costs_a_reopen_and_nothing_else() {
    let all = script(9, 120);
    let want = digests(&all);
    let mut reopened = 0;
    for seed in 0..150 {
        let mut rng = SplitMix64::new(seed);
        let disk = MemDisk::new();
        let mut machine = open(&disk);
        let (mut durable, mut budget) = (LogId::default(), 12);
        while machine.applied().durable.index.0 < 120 {
            if budget > 0 && rng.chance(300) {
                budget -= 1;
                let op = [Op::Sync, Op::Write, Op::SetLen, Op::Rename, Op::SyncDir, Op::Create];
                disk.fail_next(op[usize::try_from(rng.between(0, 6)).unwrap() % 6], "store");
            }
            let from = machine.applied().last.index.0;
            let to = usize::try_from(from + rng.between(1, 20)).unwrap();
            let step = machine.apply(&all.take(to), &mut Vec::new());
            let step = step.and_then(|_| {
                if rng.chance(400) { machine.checkpoint() } else { Ok(machine.applied()) }
            });
            match step {
                Ok(applied) => durable = applied.durable,
                Err(_) => {
                    reopened += 1;
                    while let Err(fault) = machine.reopen() {
                        assert!(
                            matches!(fault, StoreFault::Poisoned { .. }),
                            "seed {seed}: {fault}"
                        );
                    }
                    let back = machine.applied();
                    assert_eq!(back.digest, digest_at(&want, back.last), "seed {seed}");
                    assert_eq!(back.durable, back.last, "seed {seed}");
                    durable = back.durable;
                }
            }
        }
        assert_eq!(machine.applied().digest, want[120], "seed {seed}");
        machine.view().verify_digest().unwrap();
        let machine = open(&disk.crash(&mut RandomLoss::new(seed)));
        assert!(machine.applied().last >= durable, "seed {seed}");
        assert_eq!(machine.applied().digest, digest_at(&want, machine.applied().last));
    }
    assert!(reopened > 100, "only {reopened} reopened");
}

#[test]
fn a_store_of_another_cluster_or_epoch_or_a_newer_format_is_refused_untouched() {
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    apply_one(&mut machine, None, &create("a"));
    machine.checkpoint().unwrap();
    drop(machine);
    let (before, trace) = (disk.files(), disk.trace_hash());
    let other = StoreOptions { cluster: holdfast_consensus::ClusterId(9), ..options() };
    let refused = Metastore::open(disk.clone(), other).unwrap_err();
    assert!(matches!(refused, OpenError::OtherCluster { .. }), "{refused}");
    assert!(refused.to_string().contains("Move the file aside"));
    let other = StoreOptions { epoch: 2, ..options() };
    let refused = Metastore::open(disk.clone(), other).unwrap_err();
    assert!(matches!(refused, OpenError::OtherEpoch { .. }), "{refused}");
    let held = Metastore::inspect(&disk, &options()).unwrap().unwrap();
    assert_eq!(held.last.index, Index(1));
    assert_eq!((disk.files(), disk.trace_hash()), (before, trace), "nothing was written");
}

#[test]
fn a_store_whose_bytes_were_changed_is_not_trusted() {
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    for n in 0..20 {
        apply_one(&mut machine, None, &put(&format!("key-{n}"), "a value to be changed"));
    }
    machine.checkpoint().unwrap();
    drop(machine);
    let mut files = disk.files();
    let file = files.get_mut("store/meta.redb").unwrap();
    let needle = b"a value to be changed";
    let found = (0..file.len() - needle.len()).filter(|at| file[*at..].starts_with(needle));
    for at in found.collect::<Vec<_>>() {
        file[at] ^= 1;
    }
    let refused = Metastore::open(MemDisk::from_files(files), options()).unwrap_err();
    assert!(matches!(refused, OpenError::Untrusted(_)), "{refused}");
    let empty = MemDisk::from_files([("store/meta.redb".to_owned(), Vec::new())].into());
    let refused = Metastore::open(empty, options()).unwrap_err();
    assert!(matches!(refused, OpenError::Untrusted(_)), "{refused}");
}

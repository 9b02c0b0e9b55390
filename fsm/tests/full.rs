//! A store on a full disk (R21, R45).

mod common;

use common::{bytes, command, options, put};
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::{Applied, StateMachine};
use holdfast_consensus::{Entries, Index};
use holdfast_fsm::{Metastore, StoreOptions};
use holdfast_log::MemDisk;

fn open(disk: &MemDisk) -> Metastore<MemDisk> {
    let options = StoreOptions { reserve: true, ..options() };
    Metastore::open(disk.clone(), options).expect("the store opens")
}

fn apply(machine: &mut Metastore<MemDisk>, index: u64) -> Result<Applied, StoreFault> {
    let entry = command(index, None, &put(&format!("k{index}"), &"x".repeat(1000)));
    let entries = Entries::new(vec![entry]).expect("one entry");
    machine.apply(&entries, &mut Vec::new())
}

/// Fills the disk and applies until the store refuses; the index that it refused.
fn until_refused(machine: &mut Metastore<MemDisk>, disk: &MemDisk, from: u64) -> u64 {
    disk.set_budget(Some(disk.used()));
    let mut low = None;
    for index in from..from + 5000 {
        match apply(machine, index) {
            Ok(_) if machine.low() => {
                low.get_or_insert(index);
            }
            Ok(_) => {}
            Err(StoreFault::Full { .. }) => {
                assert!(low.is_some_and(|at| at < index), "it says so before it refuses");
                return index;
            }
            Err(other) => panic!("{index}: {other}"),
        }
    }
    panic!("a store on a full disk takes everything")
}

#[test]
fn a_store_without_space_refuses_before_it_is_touched_and_goes_on_by_itself() {
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    let view = machine.view();
    apply(&mut machine, 1).expect("there is space");
    assert!(!machine.low());
    let refused = until_refused(&mut machine, &disk, 2);
    assert!(refused > 3, "refused at {refused}: the reserve gave the store room");
    let last = machine.applied().last;
    for _ in 0..3 {
        assert_eq!(machine.reopen().expect("it is open").last, last, "it was never closed");
        assert!(matches!(apply(&mut machine, refused), Err(StoreFault::Full { .. })));
        let read = view.kv_get(&bytes("k1")).expect("reads go on");
        assert_eq!((read.applied, read.value.is_some()), (Index(refused - 1), true));
    }
    machine.checkpoint().expect("what is there can be made durable");
    machine.make_room();
    assert!(machine.low(), "there is still no space");
    disk.set_budget(None);
    machine.make_room();
    assert!(!machine.low(), "the reserve was made again");
    apply(&mut machine, refused).expect("there is space again");
}

#[test]
fn a_start_on_a_full_disk_serves_what_is_there() {
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    let refused = until_refused(&mut machine, &disk, 1);
    machine.checkpoint().expect("what is there can be made durable");
    drop(machine);
    let disk = disk.kill();
    disk.set_budget(Some(disk.used()));
    let mut machine = open(&disk);
    assert_eq!(machine.applied().last.index, Index(refused - 1));
    assert!(machine.view().kv_get(&bytes("k1")).expect("it serves reads").value.is_some());
    // Whatever its pages have left, and then nothing; either way it comes back.
    match apply(&mut machine, refused) {
        Ok(_) => assert!(machine.low()),
        Err(fault) => assert!(matches!(fault, StoreFault::Full { .. }), "{fault}"),
    }
    disk.set_budget(None);
    machine.reopen().expect("there is space again");
    apply(&mut machine, refused + 1).or_else(|_| apply(&mut machine, refused)).expect("it goes on");
}

/// What a low store still takes goes on for long if it is made durable in between: its pages are
/// used again.
#[test]
fn a_store_that_is_low_takes_deletes_as_long_as_checkpoints_give_pages_back() {
    let disk = MemDisk::new();
    let mut machine = open(&disk);
    for index in 1..=40 {
        apply(&mut machine, index).expect("there is space");
    }
    let refused = until_refused(&mut machine, &disk, 41);
    for (n, index) in (refused..refused + 30).enumerate() {
        machine.checkpoint().expect("what is there can be made durable");
        let delete = holdfast_fsm::Command::KvDelete { key: bytes(&format!("k{}", n + 1)) };
        let entries = Entries::new(vec![command(index, None, &delete)]).expect("one entry");
        let done = machine.apply(&entries, &mut Vec::new());
        done.unwrap_or_else(|fault| panic!("delete {n}: {fault}"));
    }
    assert!(machine.low());
}

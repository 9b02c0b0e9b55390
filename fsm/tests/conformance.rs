//! The suite that every state machine of this workspace must pass, on both disks.
#![forbid(unsafe_code)]

mod common;

use bytes::Bytes;
use common::{create, options, put};
use holdfast_consensus::conformance::{MachineFactory, state_machine};
use holdfast_fsm::Metastore;
use holdfast_log::disk::Disk;
use holdfast_log::mem_disk::RandomLoss;
use holdfast_log::{MemDisk, RealDisk};

fn effective(n: u64) -> Bytes {
    put(&format!("key-{n}"), "value").encode(None).expect("a command encodes")
}

fn refused() -> Bytes {
    create("no blanks allowed").encode(None).expect("a command encodes")
}

fn unknown() -> Bytes {
    Bytes::from_static(&[0x0f, 0x27, 0, 1, 2, 3])
}

fn opened<D: Disk>(disk: D) -> Result<Metastore<D>, String> {
    Metastore::open(disk, options()).map_err(|e| e.to_string())
}

struct InMemory {
    /// The disks of the machines handed out, newest last.
    disk: MemDisk,
    crashes: u64,
}

impl MachineFactory for InMemory {
    type Machine = Metastore<MemDisk>;

    fn create(&mut self) -> Result<Self::Machine, String> {
        self.disk = MemDisk::new();
        opened(self.disk.clone())
    }
    fn crash(&mut self, machine: Self::Machine) -> Result<Self::Machine, String> {
        self.crashes += 1;
        let disk = machine.disk().crash(&mut RandomLoss::new(self.crashes));
        drop(machine);
        opened(disk)
    }
    fn command(&self, n: u64) -> Bytes {
        effective(n)
    }
    fn refused(&self) -> Bytes {
        refused()
    }
    fn unknown(&self) -> Bytes {
        unknown()
    }
}

struct OnDisk {
    root: tempfile::TempDir,
    made: u32,
}

impl MachineFactory for OnDisk {
    type Machine = Metastore<RealDisk>;

    fn create(&mut self) -> Result<Self::Machine, String> {
        self.made += 1;
        let path = self.root.path().join(self.made.to_string());
        opened(RealDisk::create(path).map_err(|e| e.to_string())?)
    }
    fn crash(&mut self, machine: Self::Machine) -> Result<Self::Machine, String> {
        // Dropping seals the file first: what is left is what kill -9 would leave.
        let disk = machine.disk().clone();
        drop(machine);
        opened(disk)
    }
    fn command(&self, n: u64) -> Bytes {
        effective(n)
    }
    fn refused(&self) -> Bytes {
        refused()
    }
    fn unknown(&self) -> Bytes {
        unknown()
    }
}

#[test]
fn the_metastore_is_a_state_machine_on_a_disk_in_memory() {
    let mut factory = InMemory { disk: MemDisk::new(), crashes: 0 };
    state_machine(&mut factory).unwrap_or_else(|sentence| panic!("{sentence}"));
    assert!(factory.crashes >= 2, "the suite crashes machines");
}

#[test]
fn the_metastore_is_a_state_machine_on_a_real_disk() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let mut factory = OnDisk { root, made: 0 };
    state_machine(&mut factory).unwrap_or_else(|sentence| panic!("{sentence}"));
}

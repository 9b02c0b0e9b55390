//! The in-memory implementations keep the contracts of the traits.

use bytes::Bytes;
use holdfast_consensus::Index;
use holdfast_consensus::conformance::{
    LogFactory, MachineFactory, log_store, snapshot_store, state_machine,
};
use holdfast_consensus::memory::{MemoryCommand, MemoryLog, MemoryMachine};

struct Logs;

impl LogFactory for Logs {
    type Log = MemoryLog;

    fn create(&mut self) -> Result<MemoryLog, String> {
        Ok(MemoryLog::new())
    }

    fn restart(&mut self, log: MemoryLog) -> Result<MemoryLog, String> {
        Ok(log.disk().open())
    }

    fn crash(&mut self, log: MemoryLog) -> Result<MemoryLog, String> {
        log.disk().crash();
        Ok(log.disk().open())
    }

    fn fail_next_persist(&mut self, log: &MemoryLog) -> bool {
        log.disk().fail_persists(1);
        true
    }

    fn damage_entry(
        &mut self,
        log: MemoryLog,
        index: Index,
        kept: bool,
    ) -> Result<Option<MemoryLog>, String> {
        if !log.disk().damage(index, kept) {
            return Err(format!("no entry {index} to be damaged"));
        }
        Ok(Some(log.disk().open()))
    }

    fn damage_newest_snapshot(&mut self, log: &MemoryLog) -> bool {
        log.disk().snapshots().corrupt()
    }
}

struct Machines;

impl MachineFactory for Machines {
    type Machine = MemoryMachine;

    fn create(&mut self) -> Result<MemoryMachine, String> {
        Ok(MemoryMachine::new())
    }

    fn crash(&mut self, machine: MemoryMachine) -> Result<MemoryMachine, String> {
        machine.disk().crash();
        Ok(machine.disk().open())
    }

    fn command(&self, n: u64) -> Bytes {
        if n.is_multiple_of(3) {
            MemoryCommand::Push(n).encode()
        } else {
            MemoryCommand::Add { name: format!("counter-{}", n % 5), amount: n }.encode()
        }
    }

    fn refused(&self) -> Bytes {
        MemoryCommand::Take { name: "never-written".into(), amount: 1 }.encode()
    }

    fn unknown(&self) -> Bytes {
        Bytes::from_static(&[0xff, 0x7f, 1, 2, 3])
    }
}

#[test]
fn the_memory_log_keeps_the_contract_of_a_log() {
    assert_eq!(log_store(&mut Logs), Ok(()));
}

#[test]
fn the_memory_snapshots_keep_the_contract_of_a_snapshot_store() {
    assert_eq!(snapshot_store(&mut Logs), Ok(()));
}

#[test]
fn the_memory_machine_keeps_the_contract_of_a_state_machine() {
    assert_eq!(state_machine(&mut Machines), Ok(()));
}

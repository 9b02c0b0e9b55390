//! The example of the book keeps the contract of a state machine, and does what the book says.
#![forbid(unsafe_code)]

#[path = "../examples/tally.rs"]
#[expect(dead_code, reason = "the example's `main` is for people")]
mod tally;

use bytes::Bytes;
use holdfast_consensus::conformance::{MachineFactory, state_machine};
use tally::{Shelf, Tally, command};

struct Tallies;

impl MachineFactory for Tallies {
    type Machine = Tally;

    fn create(&mut self) -> Result<Tally, String> {
        Ok(Shelf::default().open())
    }

    fn crash(&mut self, machine: Tally) -> Result<Tally, String> {
        Ok(machine.shelf().open())
    }

    fn command(&self, n: u64) -> Bytes {
        command(1, n)
    }

    fn refused(&self) -> Bytes {
        command(2, u64::MAX)
    }

    fn unknown(&self) -> Bytes {
        command(0x7fff, 1)
    }
}

#[test]
fn the_tally_keeps_the_contract_of_a_state_machine() {
    assert_eq!(state_machine(&mut Tallies), Ok(()));
}

#[test]
fn the_tally_counts_and_refuses_through_a_replica() {
    let (answers, total) = tally::run().expect("one member is a majority");
    assert_eq!(total, 42);
    let said: Vec<_> = answers.iter().map(|a| a.split(": ").nth(1).unwrap_or_default()).collect();
    assert_eq!(said, ["40", "refused", "42"]);
}

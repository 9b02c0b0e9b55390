//! Suites that tell whether an implementation of [`crate::traits`] keeps its contract.
//!
//! An embedder who brings a log or a state machine of his own writes a factory and calls
//! [`log_store`], [`snapshot_store`] and [`state_machine`] from a test. Each runs a number of
//! cases on fresh objects and returns the first broken sentence of the contract.

mod log_damage;
mod log_store;
mod samples;
mod snapshot_store;
mod state_machine;

pub use log_store::log_store;
pub use samples::{history, label, membership};
pub use snapshot_store::snapshot_store;
pub use state_machine::state_machine;

use crate::traits::{LogStore, StateMachine};
use crate::types::Index;
use bytes::Bytes;

/// What a case returns: a sentence that names what was broken.
pub type Verdict = Result<(), String>;

/// Makes logs for the suites.
pub trait LogFactory {
    /// The log under test.
    type Log: LogStore;

    /// An empty log in a place of its own.
    ///
    /// # Errors
    /// A sentence; the suite stops with it.
    fn create(&mut self) -> Result<Self::Log, String>;
    /// Closes the log in good order and opens it again.
    ///
    /// # Errors
    /// As [`LogFactory::create`].
    fn restart(&mut self, log: Self::Log) -> Result<Self::Log, String>;
    /// Opens what would be left if the power failed now.
    ///
    /// # Errors
    /// As [`LogFactory::create`].
    fn crash(&mut self, log: Self::Log) -> Result<Self::Log, String>;
    /// Makes the next persist fail. False if the factory cannot: the case is left out.
    fn fail_next_persist(&mut self, _log: &Self::Log) -> bool {
        false
    }
    /// Closes the log, damages the durable entry at an index where it is stored, and opens the log
    /// again. `kept` tells whether what the log has noted of the entry's identity elsewhere stays
    /// readable. `None` if the factory cannot: the cases are left out.
    ///
    /// # Errors
    /// As [`LogFactory::create`].
    fn damage_entry(
        &mut self,
        _log: Self::Log,
        _index: Index,
        _kept: bool,
    ) -> Result<Option<Self::Log>, String> {
        Ok(None)
    }
    /// Damages the content of the newest published snapshot where it is stored. False if the
    /// factory cannot: the case is left out.
    fn damage_newest_snapshot(&mut self, _log: &Self::Log) -> bool {
        false
    }
}

/// Makes state machines, and commands for them, for the suite.
pub trait MachineFactory {
    /// The state machine under test.
    type Machine: StateMachine;

    /// An empty machine in a place of its own. All machines belong to one cluster and epoch.
    ///
    /// # Errors
    /// A sentence; the suite stops with it.
    fn create(&mut self) -> Result<Self::Machine, String>;
    /// Opens what would be left if the power failed now.
    ///
    /// # Errors
    /// As [`MachineFactory::create`].
    fn crash(&mut self, machine: Self::Machine) -> Result<Self::Machine, String>;
    /// A command that changes the state when it stands at index `n` behind the commands of
    /// all lower indexes, the first of which stands at index 2.
    fn command(&self, n: u64) -> Bytes;
    /// A command that is well formed and refused whatever the state.
    fn refused(&self) -> Bytes;
    /// A command of an entry type that the machine does not know.
    fn unknown(&self) -> Bytes;
}

/// Fails the case with a sentence unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($sentence:tt)+) => {
        if !$condition {
            return Err(format!($($sentence)+));
        }
    };
}

/// Fails the case with a sentence unless both sides are equal; shows both.
macro_rules! ensure_eq {
    ($have:expr, $want:expr, $($sentence:tt)+) => {
        match (&$have, &$want) {
            (have, want) => {
                if have != want {
                    let sentence = format!($($sentence)+);
                    return Err(format!("{sentence}: found {have:?}, expected {want:?}"));
                }
            }
        }
    };
}

use {ensure, ensure_eq};

/// Puts the name of the case in front of its verdict.
fn named(name: &str, verdict: Verdict) -> Verdict {
    verdict.map_err(|sentence| format!("{name}: {sentence}"))
}

/// Turns a fault into a sentence.
fn said<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|fault| format!("{what}: {fault}"))
}

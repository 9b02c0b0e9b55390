//! In-memory implementations of [`crate::traits`], for tests, models and embedders' first steps.
//!
//! They keep the durability contract: what a `*Disk` handle holds is what a crash leaves. A log
//! keeps what was persisted, a machine what was checkpointed, a snapshot store what was published
//! and the chunks of one partial file. An object that outlived a crash can change nothing more.

mod log;
mod machine;
mod snapshots;

pub use log::{MemoryLog, MemoryLogDisk, MemoryLogReader, MemorySpare};
pub use machine::{
    MemoryCommand, MemoryImage, MemoryMachine, MemoryMachineDisk, MemoryReply, MemoryRestore,
    MemoryView,
};
pub use snapshots::{MemorySnapshotReader, MemorySnapshotWriter, MemorySnapshots};

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex of this module. A panic while it was held is a failed test already.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

//! The primitives that writer and readers share: those of the standard library, or those of loom
//! under `--cfg loom`, where `loom_tests` tries every interleaving and every value that a load may
//! see. Whatever publishes records to readers uses these and nothing else.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, RwLock};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, RwLock};

/// An offset below which bytes are final: whoever observes it sees all that was written before it
/// was published.
#[derive(Debug)]
pub(crate) struct Boundary(AtomicU64);

impl Boundary {
    pub(crate) fn new(at: u64) -> Self {
        Self(AtomicU64::new(at))
    }

    /// Everything below `at` was written before this.
    pub(crate) fn publish(&self, at: u64) {
        self.0.store(at, Ordering::Release);
    }

    pub(crate) fn observe(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

//! A small broker on the simulated disk, whose metadata are the real store: what four data losses
//! of a real broker came from, and what the guard makes impossible (SCENARIOS).
//!
//! It owns topic directories with partition logs, an accepted-record log with checkpoint and
//! compaction, and fan-out cursors. It reads topics, assignments and links from the local store of
//! its node, and destroys for four reasons: a sweep of orphaned directories, the anchoring and the
//! cleaning up of cursors, and the discarding of accepted records whose topic is gone. How it
//! makes sure is its [`Mode`]: with the guard on it calls `holdfast_fsm::guard`; the other modes
//! are what brokers did before, written here and nowhere in the product.
//!
//! The broker is a value that takes inputs and returns what it wants done; the world runs it, and
//! it dies with its process.

pub mod accepted;
pub mod engine;
mod fanout;
mod guarded;
mod late;
pub mod layout;
pub mod ledger;
pub mod meta;
mod mode;
pub mod records;
pub mod wants;
mod writer;

pub use mode::Mode;

use holdfast_fsm::records::VolumeId;

/// The disk of a node, as placements name it.
#[must_use]
pub fn volume_of(node: &str) -> VolumeId {
    VolumeId(u128::from(crate::hash::of_bytes(node.as_bytes())) | 1)
}

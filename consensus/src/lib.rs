//! The pure Raft core of Holdfast, the replica driver and everything that both worlds share.
//!
//! Nothing in this crate reads a clock, the environment or unseeded randomness, and nothing does
//! I/O: time and input go in, effects come out. `holdfast-log` and `holdfast-fsm` implement the
//! traits of [`traits`]; the real node and the simulator drive the very same [`replica`].
//!
//! Citations: "Raft" is Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm*
//! (2014); "dissertation" is Ongaro, *Consensus: Bridging Theory and Practice* (2014).
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod codec;

pub mod conformance;
pub mod core;
pub mod damage;
pub mod entries;
pub mod event;
pub mod fault;
pub mod handshake;
pub mod invariant;
pub mod io;
pub mod job;
pub mod marks;
pub mod memory;
pub mod message;
pub mod quorum;
pub mod replica;
pub mod rng;
pub mod traits;
pub mod types;
pub mod wire;

pub use damage::{Hole, Identity};
pub use entries::Entries;
pub use types::*;

//! The real world of Holdfast: sockets, threads, files and the clock around the replica that
//! `holdfast-consensus` defines, the HTTP API, and the `holdfast` binary.
//!
//! Nothing here decides anything about safety: the node carries out the effects of the replica
//! driver, which the simulator runs as well.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod exposition;
pub mod http;
pub mod metrics;
pub mod node;
pub mod peer;
mod plane;
pub mod stderr;
mod vital;

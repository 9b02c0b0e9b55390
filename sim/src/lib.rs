//! The simulated world of Holdfast.
//!
//! One thread, virtual time, one seed: the real core, replica driver, log and store on simulated
//! networks, disks, clocks and processes, under faults drawn from the seed, held to the properties
//! in [`check`]. Guarantees: the same seed gives the same run, on every machine and whatever runs
//! beside it. Assumes: the code under test draws no chance and reads no clock of its own, which
//! the lints of its crates forbid.
//!
//! | module | what it does |
//! |---|---|
//! | [`choices`], [`profile`] | chance, by place; what a run is made of |
//! | [`tape`], [`shrink`] | the decisions of a run as a file; the smallest that still fails |
//! | [`world`] | nodes, network, processes, clients, nemesis; [`world::script`]: worlds that a program drives |
//! | [`check`] | the properties, one file for each |
//! | [`history`] | what clients saw, and whether it is linearizable |
//! | [`campaign`] | many seeds, on several threads |
//! | [`explore`] | every state of a small cluster, on the core alone |
//! | [`mutants`] | real bugs, planted to prove that the simulator sees them |
#![forbid(unsafe_code)]

pub mod broker;
pub mod campaign;
pub mod check;
pub mod choices;
pub mod damage;
pub mod explore;
pub mod faults;
pub mod flips;
pub mod hash;
pub mod history;
pub mod marks;
pub mod mutants;
pub mod node;
pub mod profile;
pub mod queue;
pub mod scenario;
pub mod shadow;
pub mod shrink;
pub mod tape;
pub mod trace;
pub mod world;

//! One test per rule of Raft figure 2 and 3, and of the bugs that real implementations had.
//!
//! Each drives one core by hand and looks at its exact effects; invariants are checked after every
//! step. The cluster-wide properties are in `core_cluster.rs`.

#[path = "scenario/paper_damage.rs"]
mod damage;
#[path = "scenario/paper_durability.rs"]
mod durability;
#[path = "scenario/paper_election.rs"]
mod election;
#[path = "scenario/paper_leader.rs"]
mod leader;
#[path = "scenario/paper_read.rs"]
mod read;
#[path = "scenario/paper_replication.rs"]
mod replication;
#[path = "scenario/rig.rs"]
mod rig;
#[path = "scenario/paper_snapshot.rs"]
mod snapshot;

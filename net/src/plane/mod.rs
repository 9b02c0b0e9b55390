//! The data plane of a real node: who owns which partition, and the directories of the partitions
//! that this node owns.

pub(crate) mod assign;
mod plan;
pub(crate) mod report;
pub(crate) mod worker;

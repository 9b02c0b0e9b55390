//! The identity file: who a directory belongs to. It can never restore a lost log (R1).

use holdfast_consensus::{ClusterId, MemberId, Membership};
use serde::{Deserialize, Serialize};

/// How far the forming of a cluster has come (R7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdentityState {
    /// The member has a durable id and belongs to no cluster yet.
    Empty,
    /// This member founds the cluster; its first entry may not be durable yet.
    Founding {
        /// The first configuration.
        membership: Membership,
    },
    /// The member belongs to the cluster.
    Formed,
}

/// What a directory says about its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The member; must equal the id in the log's segment headers (R1).
    pub member: MemberId,
    /// The configured node name.
    pub name: String,
    /// The cluster; zero while there is none.
    pub cluster: ClusterId,
    /// Recovery epoch (R8).
    pub epoch: u64,
    /// State of forming.
    pub state: IdentityState,
    /// Inode number and birth time of this file in nanoseconds (R2); not recorded yet.
    pub place: Option<(u64, u64)>,
}

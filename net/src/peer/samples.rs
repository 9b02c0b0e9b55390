//! What members say of themselves in tests.

use holdfast_consensus::handshake::{Hello, PROTOCOL_VERSION};
use holdfast_consensus::{ClusterId, Index, LogId, MemberId, Membership, Term};

/// A member that has nothing to tell yet, in its first start.
pub(crate) fn hello(name: &str, member: u64, cluster: u128) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        name: name.into(),
        member: MemberId(member),
        cluster: ClusterId(cluster),
        epoch: 0,
        group: 0,
        boot: 1,
        term: Term(0),
        durable: LogId::default(),
        commit: Index(0),
        forming: None,
        membership: Membership::default(),
        http: String::new(),
        build: String::new(),
        newest_type: 0,
        volume: 0,
    }
}

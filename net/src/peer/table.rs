//! Who is behind each name: what peers said of themselves, and who may change it.
//!
//! A name is not an identity: any process can bear it. What is kept here under a name (its HTTP
//! address, its disk, whether it is connected) is used for status and for the placement of
//! partitions, so an empty process that bears the name of a member must not replace it (R1, R7),
//! and neither must an earlier start of that member (R3): a copied or rolled-back directory.

use super::has_cluster;
use holdfast_consensus::MemberId;
use holdfast_consensus::handshake::Hello;
use std::collections::BTreeMap;

/// A peer that presented itself, as last seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it said of itself. Invariant: once a hello was accepted by the handshake, only another
    /// accepted one replaces it, and of one member only a hello of the same or a later start.
    pub hello: Hello,
    /// Connections with this very member that are up now, in both directions.
    pub connections: usize,
}

/// Peers by name. Bounded by the names that the handshake accepts, or, while this node has no
/// cluster, by those that present themselves to it.
#[derive(Debug, Default)]
pub(super) struct Table(BTreeMap<String, Seen>);

impl Table {
    /// Notes a connection. `known` if the handshake accepted the peer, if the configuration lists
    /// its member id, or if this node has no cluster yet by which anybody could be judged.
    pub(super) fn arrived(&mut self, hello: &Hello, known: bool) {
        match self.0.get_mut(&hello.name) {
            Some(seen) if seen.hello.member == hello.member => {
                seen.connections += 1;
                let earlier = hello.boot < seen.hello.boot;
                if !earlier && (has_cluster(hello) || !has_cluster(&seen.hello)) {
                    seen.hello = hello.clone();
                }
            }
            _ if known => {
                let seen = Seen { hello: hello.clone(), connections: 1 };
                self.0.insert(hello.name.clone(), seen);
            }
            _ => {}
        }
    }

    /// Notes the end of a connection; true if it was the last one of this member, or of somebody
    /// who is not kept here.
    pub(super) fn gone(&mut self, name: &str, member: MemberId) -> bool {
        match self.0.get_mut(name) {
            Some(seen) if seen.hello.member == member => {
                seen.connections = seen.connections.saturating_sub(1);
                seen.connections == 0
            }
            // Another member stands under that name by now: it is not gone.
            Some(_) => false,
            None => true,
        }
    }

    pub(super) fn all(&self) -> BTreeMap<String, Seen> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::samples;

    fn hello(member: u64, cluster: u128, boot: u64, http: &str) -> Hello {
        Hello { boot, http: http.into(), ..samples::hello("n2", member, cluster) }
    }

    fn now(table: &Table) -> (u64, String, usize) {
        let seen = &table.all()["n2"];
        (seen.hello.member.0, seen.hello.http.clone(), seen.connections)
    }

    #[test]
    fn an_empty_process_under_the_name_of_a_member_changes_nothing() {
        let mut table = Table::default();
        table.arrived(&hello(9, 0, 1, "wrong"), false);
        assert!(table.all().is_empty(), "not even before the member itself was seen");
        table.arrived(&hello(2, 7, 3, "right"), true);
        table.arrived(&hello(9, 0, 1, "wrong"), false);
        assert_eq!(now(&table), (2, "right".into(), 1));
        // Its end is not the member's.
        assert!(!table.gone("n2", MemberId(9)));
        assert_eq!(now(&table), (2, "right".into(), 1));
        assert!(table.gone("n2", MemberId(2)));
        // The member comes back elsewhere.
        table.arrived(&hello(2, 7, 4, "moved"), true);
        assert_eq!(now(&table), (2, "moved".into(), 1));
    }

    #[test]
    fn an_accepted_member_replaces_whoever_was_seen_while_forming() {
        let mut table = Table::default();
        table.arrived(&hello(9, 0, 1, "first"), true);
        table.arrived(&hello(2, 7, 1, "second"), true);
        assert_eq!(now(&table), (2, "second".into(), 1));
        assert!(!table.gone("n2", MemberId(9)), "the one that stands there now is not gone");
    }

    #[test]
    fn an_earlier_start_of_the_same_member_changes_no_address() {
        let mut table = Table::default();
        table.arrived(&hello(2, 7, 5, "now"), true);
        table.arrived(&hello(2, 7, 4, "copied"), true);
        assert_eq!(now(&table), (2, "now".into(), 2));
        table.arrived(&hello(2, 0, 6, "empty"), true);
        assert_eq!(now(&table), (2, "now".into(), 3), "nor does one without a cluster");
    }
}

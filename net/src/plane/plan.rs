//! Which partitions get which owner: a pure function of what is assigned and who is there.
//!
//! Level-triggered: it looks at the state as it is, not at what changed, so a pass that was cut
//! short, or made twice, or by two leaders in turn, ends in the same place. It only ever gives an
//! owner to a partition that has none: the owner of a partition that is there stays, also while it
//! is dead (N30).

use holdfast_fsm::command::{AssignPartition, PartitionRef};
use holdfast_fsm::records::Owner;
use std::collections::BTreeMap;

/// A topic with partitions that have no owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unowned {
    /// Name of the topic.
    pub(crate) topic: String,
    /// Its incarnation.
    pub(crate) incarnation: u64,
    /// The partitions without an owner, in order.
    pub(crate) partitions: Vec<u32>,
}

/// Gives every partition of `unowned` to one of `live`, at most `most` of them. Each goes to whom
/// has the fewest so far (`owned` counts what everybody has already), the first by name among
/// equals: from nothing, the spread is at most one.
pub(crate) fn plan(
    unowned: &[Unowned],
    live: &[Owner],
    owned: &BTreeMap<Owner, u64>,
    most: usize,
) -> Vec<AssignPartition> {
    let count = |owner: &Owner| owned.get(owner).copied().unwrap_or(0);
    let mut load: Vec<(u64, &Owner)> = live.iter().map(|owner| (count(owner), owner)).collect();
    let wanted = unowned.iter().flat_map(|topic| topic.partitions.iter().map(move |p| (topic, *p)));
    let mut planned = Vec::new();
    for (topic, partition) in wanted.take(most) {
        let Some(least) = load.iter_mut().min() else { break };
        least.0 += 1;
        let to =
            PartitionRef { topic: topic.topic.clone(), incarnation: topic.incarnation, partition };
        planned.push(AssignPartition { to, owner: least.1.clone() });
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_fsm::records::VolumeId;

    fn owner(node: &str) -> Owner {
        Owner { node: node.to_owned(), volume: VolumeId(7) }
    }

    fn unowned(topic: &str, partitions: u32) -> Unowned {
        let partitions = (0..partitions).collect();
        Unowned { topic: topic.to_owned(), incarnation: 3, partitions }
    }

    fn spread(planned: &[AssignPartition]) -> BTreeMap<&str, u64> {
        let mut spread = BTreeMap::new();
        for assignment in planned {
            *spread.entry(assignment.owner.node.as_str()).or_default() += 1;
        }
        spread
    }

    #[test]
    fn partitions_are_spread_evenly_and_the_same_way_each_time() {
        let live = [owner("n1"), owner("n2"), owner("n3")];
        let topics = [unowned("a", 4), unowned("b", 1), unowned("c", 3)];
        let planned = plan(&topics, &live, &BTreeMap::new(), 100);
        assert_eq!(planned.len(), 8);
        assert_eq!(spread(&planned), [("n1", 3), ("n2", 3), ("n3", 2)].into());
        assert_eq!(plan(&topics, &live, &BTreeMap::new(), 100), planned);
    }

    #[test]
    fn who_has_more_already_gets_fewer() {
        let live = [owner("n1"), owner("n2")];
        let owned = [(owner("n1"), 3), (owner("dead"), 9)].into();
        let planned = plan(&[unowned("a", 5)], &live, &owned, 100);
        assert_eq!(spread(&planned), [("n1", 1), ("n2", 4)].into());
    }

    #[test]
    fn another_disk_of_the_same_node_is_another_owner() {
        let new = Owner { node: "n1".to_owned(), volume: VolumeId(8) };
        let owned = [(owner("n1"), 3)].into();
        let planned = plan(&[unowned("a", 2)], &[new.clone(), owner("n2")], &owned, 100);
        assert_eq!(spread(&planned), [("n1", 1), ("n2", 1)].into());
        assert!(planned.iter().any(|p| p.owner == new), "{planned:?}");
    }

    #[test]
    fn a_pass_is_bounded_and_without_anybody_nothing_is_planned() {
        let live = [owner("n1")];
        assert_eq!(plan(&[unowned("a", 50)], &live, &BTreeMap::new(), 8).len(), 8);
        assert_eq!(plan(&[unowned("a", 50)], &[], &BTreeMap::new(), 8), []);
    }
}

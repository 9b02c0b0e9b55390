//! The leader gives an owner to each partition that has none (FEATURES 110, 115, 119, 122).
//!
//! Level-triggered: each pass reads what is there and proposes what is missing. A pass of a leader
//! that was deposed meanwhile does no harm: an assignment is refused if the partition has an owner
//! by then, or if the topic is another incarnation.

use super::plan::{Unowned, plan};
use crate::clock;
use crate::node::{Node, Phase};
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::message::Outcome;
use holdfast_consensus::replica::ReplicaStatus;
use holdfast_consensus::{Micros, Term};
use holdfast_fsm::command::AssignPartition;
use holdfast_fsm::records::{Counts, Owner, Topic, VolumeId};
use holdfast_fsm::{Answer, Command, ReadError, View};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Pause between two looks.
const TICK: Duration = Duration::from_millis(100);
/// A pass is made at least this often, in microseconds.
const AT_LEAST_EVERY: Micros = 10_000_000;
/// How long a pass waits for voters that are not there, since one arrived or the leader changed:
/// else the first topic of a cluster that is just starting lands on one node.
const ARRIVALS: Micros = 1_000_000;
/// Most assignments of one pass, and of those under way at a time.
const PER_PASS: usize = 1024;
const AT_A_TIME: usize = 64;
/// How long an assignment may take.
const WITHIN: Duration = Duration::from_secs(5);
/// Rows in one reading step.
const PAGE: usize = 1000;

/// What the last complete pass saw: while it is like that, another would find nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    term: Term,
    counts: Counts,
    live: Vec<Owner>,
}

/// Runs until the node stops.
pub(crate) async fn run(node: Arc<Node>) {
    let mut complete: Option<(Seen, Micros)> = None;
    let mut arrival: Option<(Term, Vec<Owner>, Micros)> = None;
    loop {
        tokio::time::sleep(TICK).await;
        let published = node.published();
        if matches!(published.phase, Phase::Stopping | Phase::Stopped(_)) {
            return;
        }
        let leads = |replica: &&ReplicaStatus| {
            replica.role == RoleKind::Leader && replica.not_ready.is_none()
        };
        let (Some(replica), Some(view)) = (published.replica.as_ref().filter(leads), node.view())
        else {
            (complete, arrival) = (None, None);
            continue;
        };
        let (term, live, now) = (replica.hard.term, live(&node, replica), clock::now());
        if arrival.as_ref().is_none_or(|(t, l, _)| (*t, l) != (term, &live)) {
            arrival = Some((term, live.clone(), now));
        }
        let since = arrival.as_ref().map_or(now, |(.., at)| *at);
        if live.len() < replica.membership.voters.len() && now < since + ARRIVALS {
            continue;
        }
        // A closed store is reopened, and looked at again at the next tick.
        let Ok(held) = view.held() else { continue };
        let seen = Seen { term, counts: held.counts, live };
        let fresh = |(last, at): &(Seen, Micros)| *last == seen && now < at + AT_LEAST_EVERY;
        if complete.as_ref().is_some_and(fresh) {
            continue;
        }
        match pass(&node, view, &seen.live).await {
            Ok(true) => complete = Some((seen, now)),
            Ok(false) => {}
            Err(error) => tracing::debug!("a pass over the assignments ended: {error}"),
        }
    }
}

/// The voters that are connected and have a disk for topics, this node included, by name.
fn live(node: &Node, replica: &ReplicaStatus) -> Vec<Owner> {
    let mut owners: Vec<Owner> = node
        .peers()
        .seen()
        .into_values()
        .filter(|seen| seen.connections > 0 && replica.membership.is_voter(seen.hello.member))
        .map(|seen| Owner { node: seen.hello.name, volume: VolumeId(seen.hello.volume) })
        .collect();
    if replica.membership.is_voter(node.member()) {
        let volume = VolumeId(node.peers().me().volume);
        owners.push(Owner { node: node.config().name.clone(), volume });
    }
    owners.retain(|owner| owner.volume != VolumeId(0));
    owners.sort();
    owners
}

/// One pass. True if nothing was left to do.
async fn pass(node: &Arc<Node>, view: &View, live: &[Owner]) -> Result<bool, ReadError> {
    let (reading, owners) = (view.clone(), live.to_vec());
    let read = tokio::task::spawn_blocking(move || read(&reading)).await;
    let (unowned, owned) = match read {
        Ok(read) => read?,
        Err(panicked) => {
            tracing::error!("reading the assignments failed: {panicked}");
            return Ok(false);
        }
    };
    let planned = plan(&unowned, &owners, &owned, PER_PASS);
    if planned.is_empty() {
        if !unowned.is_empty() {
            tracing::warn!("{} topics wait for an owner: no voter is there", unowned.len());
        }
        return Ok(true);
    }
    let mut under_way = JoinSet::new();
    let mut assigned = 0;
    for assignment in planned {
        if under_way.len() >= AT_A_TIME {
            assigned += u64::from(matches!(under_way.join_next().await, Some(Ok(true))));
        }
        under_way.spawn(propose(Arc::clone(node), assignment));
    }
    while let Some(done) = under_way.join_next().await {
        assigned += u64::from(matches!(done, Ok(true)));
    }
    tracing::info!("gave {assigned} partitions an owner");
    Ok(false)
}

/// Proposes one assignment; true if it took effect.
async fn propose(node: Arc<Node>, assignment: AssignPartition) -> bool {
    let command = Command::AssignPartition(assignment);
    let bytes = match command.encode_unique(None, node.request_id()) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!("an assignment cannot be encoded: {error}");
            return false;
        }
    };
    match node.propose(bytes, WITHIN).await {
        Outcome::Committed { result, .. } => {
            matches!(Answer::decode(&result), Ok(Answer::PartitionAssigned { .. }))
        }
        // The next pass sees what became of it.
        _ => false,
    }
}

type Read = (Vec<Unowned>, BTreeMap<Owner, u64>);

/// All partitions without an owner, and how many each owner has.
fn read(view: &View) -> Result<Read, ReadError> {
    let (mut unowned, mut owned) = (Vec::new(), BTreeMap::new());
    let mut after: Option<String> = None;
    loop {
        let topics = view.topics(after.as_deref(), PAGE)?.value;
        for topic in &topics {
            let partitions = read_topic(view, topic, &mut owned)?;
            if !partitions.is_empty() {
                let (name, incarnation) = (topic.stamp.name.clone(), topic.stamp.incarnation);
                unowned.push(Unowned { topic: name, incarnation, partitions });
            }
        }
        // A page may also end early, at its limit of bytes.
        after = topics.last().map(|topic| topic.stamp.name.clone());
        if after.is_none() {
            return Ok((unowned, owned));
        }
    }
}

fn read_topic(
    view: &View,
    topic: &Topic,
    owned: &mut BTreeMap<Owner, u64>,
) -> Result<Vec<u32>, ReadError> {
    let (mut missing, mut next) = (Vec::new(), 0_u32);
    loop {
        let after = next.checked_sub(1);
        let rows = view.assignments(&topic.stamp.name, after, PAGE)?.value;
        let Some(last) = rows.last().map(|row| row.partition) else { break };
        for row in rows.into_iter().filter(|row| row.topic == topic.stamp) {
            missing.extend(next..row.partition);
            next = row.partition + 1;
            *owned.entry(row.owner).or_default() += 1;
        }
        // Rows of another incarnation belong to a topic that was replaced under our eyes: the next
        // pass reads it anew.
        if next <= last {
            return Ok(Vec::new());
        }
    }
    missing.extend(next..topic.partitions);
    Ok(missing)
}

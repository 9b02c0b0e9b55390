//! `/v1/status`: this node, and what the others say of themselves.

use super::ApiError;
use crate::client;
use crate::node::{Node, Phase};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use bytes::Bytes;
use holdfast_consensus::MemberId;
use holdfast_consensus::replica::{DamageStatus, PeerStatus, ReplicaStatus};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long another member may take to answer.
const PEER_WITHIN: Duration = Duration::from_millis(800);

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    /// Every member.
    #[default]
    Cluster,
    /// This node alone.
    Local,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusQuery {
    #[serde(default)]
    scope: Scope,
}

/// One member as it sees itself, or as it looks from outside if it does not answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Node name.
    pub name: String,
    /// Member id.
    pub member: String,
    /// Role, or `unreachable`, or `waiting` before there is a cluster.
    pub role: String,
    /// Process id; null if unreachable.
    pub pid: Option<u32>,
    /// Base URL of its API.
    pub http: String,
    /// Last applied index; read together with `digest`.
    pub applied: Option<u64>,
    /// Commit index.
    pub commit: Option<u64>,
    /// Last index of the log.
    pub last: Option<u64>,
    /// Index of the newest snapshot; 0 if there is none.
    pub snapshot_index: Option<u64>,
    /// State digest at `applied`, in hex.
    pub digest: Option<String>,
    /// True if it may serve and has space to go on with.
    pub healthy: bool,
    /// Why it is not healthy.
    pub reason: Option<String>,
    /// Entries of its log that do not verify and are being fetched from other members; null if
    /// there are none.
    #[serde(default)]
    pub damaged: Option<DamageView>,
    /// Why it is held: it neither votes nor acknowledges until it is replaced; null if it is not.
    #[serde(default)]
    pub held: Option<String>,
    /// Why its disk has no space to go on with; null if it has. While this stands the member takes
    /// no leadership that another could have, and its leader takes no writes but those that free
    /// space if a majority of the voters is like this. It ends by itself once there is space.
    #[serde(default)]
    pub disk_full: Option<String>,
    /// Its topics' directories: what lives, what went to the trash, and what is kept and why.
    /// Null if unreachable.
    #[serde(default)]
    pub data: Value,
}

/// Damaged entries of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageView {
    /// The lowest index.
    pub first: u64,
    /// The highest index.
    pub last: u64,
    /// How many there are.
    pub count: usize,
}

/// A peer as its leader sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerView {
    /// Its name.
    pub name: String,
    /// Highest index known durable there.
    pub match_index: u64,
    /// Milliseconds since its last answer; null if it never answered this leader.
    pub silent_ms: Option<u64>,
    /// `probe`, `replicate` or `snapshot`.
    pub state: String,
}

/// What one node knows: itself and who leads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LocalStatus {
    /// The leader's name, where known.
    pub leader: Option<String>,
    /// Its term.
    pub term: u64,
    /// The cluster id in hex; null while there is none.
    pub cluster: Option<String>,
    /// Build version.
    pub build: String,
    /// What a leader knows of the others; empty at everybody else.
    #[serde(default)]
    pub peers: Vec<PeerView>,
    /// The node itself.
    #[serde(flatten)]
    pub member: MemberStatus,
}

/// The cluster as one node sees it now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The leader's name, where anybody knows one.
    pub leader: Option<String>,
    /// The highest term that anybody reports.
    pub term: u64,
    /// The cluster id in hex; null while there is none.
    pub cluster: Option<String>,
    /// Every member.
    pub members: Vec<MemberStatus>,
}

pub(super) async fn status(
    State(node): State<Arc<Node>>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(query) = query?;
    let value = match query.scope {
        Scope::Local => serde_json::to_value(local(&node)),
        Scope::Cluster => serde_json::to_value(cluster(&node).await),
    };
    value.map(Json).map_err(|e| ApiError::internal(e.to_string()))
}

fn local(node: &Node) -> LocalStatus {
    let published = node.published();
    let me = node.peers().me();
    let disk_full = published.disk_full();
    let reason = published.not_ready().or_else(|| disk_full.clone());
    let replica = published.replica.as_ref();
    let role = match (&published.phase, replica) {
        (Phase::Stopped(_), _) => "stopped",
        (Phase::Stopping, _) => "stopping",
        (Phase::Running, Some(replica)) => replica.role.as_str(),
        (Phase::Waiting(_), _) => "waiting",
        (Phase::Starting | Phase::Running, _) => "starting",
    };
    let index = |get: fn(&ReplicaStatus) -> u64| replica.map(get);
    let peers = replica.map(|r| r.peers.iter().map(|p| peer_view(r, p)).collect());
    let named = (me.cluster.0 != 0).then(|| me.cluster.to_string());
    LocalStatus {
        leader: replica.and_then(|r| r.leader.map(|id| r.membership.name_of(id))),
        term: replica.map_or(me.term.0, |r| r.hard.term.0),
        cluster: named,
        build: me.build,
        peers: peers.unwrap_or_default(),
        member: MemberStatus {
            name: me.name,
            member: me.member.to_string(),
            role: role.to_owned(),
            pid: Some(std::process::id()),
            http: me.http,
            applied: index(|r| r.applied.last.index.0),
            commit: index(|r| r.commit.0),
            last: index(|r| r.last.index.0),
            snapshot_index: index(|r| r.snapshot.0),
            digest: replica.map(|r| format!("{:032x}", r.applied.digest)),
            healthy: reason.is_none(),
            reason,
            damaged: replica.and_then(|r| r.damaged.as_ref()).map(damage_view),
            held: replica.and_then(|r| r.held.clone()),
            disk_full,
            data: node.report().json(),
        },
    }
}

fn damage_view(damage: &DamageStatus) -> DamageView {
    DamageView { first: damage.first.0, last: damage.last.0, count: damage.count }
}

fn peer_view(replica: &ReplicaStatus, peer: &PeerStatus) -> PeerView {
    PeerView {
        name: replica.membership.name_of(peer.member),
        match_index: peer.match_index.0,
        silent_ms: peer.silent.map(|micros| micros / 1000),
        state: peer.state.to_owned(),
    }
}

/// Where the others are: the configuration in force, or `initial_members` before there is one.
fn others(node: &Node) -> Vec<(String, Option<MemberId>, Option<String>)> {
    let seen = node.peers().seen();
    let published = node.published();
    let mut names: BTreeMap<String, Option<MemberId>> =
        node.config().members.iter().map(|m| (m.name.clone(), None)).collect();
    if let Some(replica) = published.replica.as_ref().filter(|r| !r.membership.names.is_empty()) {
        names = replica.membership.names.iter().map(|(id, n)| (n.clone(), Some(*id))).collect();
    }
    names.remove(&node.config().name);
    let configured = |name: &str| {
        node.config().members.iter().find(|m| m.name == name).and_then(|m| m.http.clone())
    };
    names
        .into_iter()
        .map(|(name, id)| {
            let hello = seen.get(&name).map(|s| &s.hello);
            // What an authenticated peer says of itself replaces the configured hint.
            let http = hello.map(|h| h.http.clone()).filter(|h| !h.is_empty());
            let http = http.or_else(|| configured(&name));
            (name, id.or_else(|| hello.map(|h| h.member)), http)
        })
        .collect()
}

async fn cluster(node: &Arc<Node>) -> ClusterStatus {
    let mine = local(node);
    let asked: Vec<_> = others(node)
        .into_iter()
        .map(|(name, id, http)| tokio::spawn(ask(name, id, http, mine.cluster.clone())))
        .collect();
    let mut members = vec![mine.member.clone()];
    let mut views = vec![(mine.term, mine.leader.clone())];
    for task in asked {
        match task.await {
            Ok((member, view)) => {
                members.push(member);
                views.extend(view);
            }
            Err(e) => tracing::error!("a status request failed: {e}"),
        }
    }
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let term = views.iter().map(|(term, _)| *term).max().unwrap_or(0);
    // Only the newest term's leader counts, and only if it answers.
    let leader = views
        .into_iter()
        .filter(|(t, _)| *t == term)
        .find_map(|(_, leader)| leader)
        .filter(|name| members.iter().any(|m| m.name == *name && m.pid.is_some()));
    ClusterStatus { leader, term, cluster: mine.cluster, members }
}

async fn ask(
    name: String,
    id: Option<MemberId>,
    http: Option<String>,
    cluster: Option<String>,
) -> (MemberStatus, Option<(u64, Option<String>)>) {
    let endpoint = http.clone().unwrap_or_default();
    let failure = match http {
        None => "its HTTP address is not known yet".to_owned(),
        Some(endpoint) => match fetch(&endpoint).await {
            Ok(status) => match misplaced(&name, cluster.as_deref(), &status) {
                None => return (status.member, Some((status.term, status.leader))),
                Some(why) => format!("{endpoint} {why}"),
            },
            Err(why) => why,
        },
    };
    let id = id.map(|id| id.to_string()).unwrap_or_default();
    (unreachable(name, id, endpoint, failure), None)
}

/// What is known of a member that does not answer.
fn unreachable(name: String, member: String, http: String, reason: String) -> MemberStatus {
    MemberStatus {
        name,
        member,
        role: "unreachable".to_owned(),
        pid: None,
        http,
        applied: None,
        commit: None,
        last: None,
        snapshot_index: None,
        digest: None,
        healthy: false,
        reason: Some(reason),
        damaged: None,
        held: None,
        disk_full: None,
        data: Value::Null,
    }
}

/// Why what answers at a member's address is not that member, if it is not. One of no cluster bears
/// the name, and says itself what is wrong.
fn misplaced(name: &str, cluster: Option<&str>, found: &LocalStatus) -> Option<String> {
    let theirs = found.cluster.as_deref();
    if found.member.name != name {
        return Some(format!("is answered by a node that calls itself {}", found.member.name));
    }
    let foreign = theirs.zip(cluster).is_some_and(|(theirs, ours)| theirs != ours);
    foreign.then(|| format!("is answered by a node of cluster {}", theirs.unwrap_or_default()))
}

async fn fetch(endpoint: &str) -> Result<LocalStatus, String> {
    let asked =
        client::once(endpoint, Method::GET, "/v1/status?scope=local", Bytes::new(), PEER_WITHIN);
    let answer = asked.await.map_err(|e| e.to_string())?;
    serde_json::from_slice(&answer.body).map_err(|e| format!("{endpoint} answers no status: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, cluster: Option<&str>) -> LocalStatus {
        LocalStatus {
            leader: None,
            term: 1,
            cluster: cluster.map(str::to_owned),
            build: String::new(),
            peers: Vec::new(),
            member: unreachable(name.to_owned(), String::new(), String::new(), String::new()),
        }
    }

    #[test]
    fn what_answers_at_a_members_address_must_be_that_member() {
        let why = |name, cluster| misplaced("n2", Some("c1"), &found(name, cluster));
        assert_eq!(why("n2", Some("c1")), None);
        assert_eq!(why("n2", None), None, "an emptied one says itself what is wrong");
        assert!(why("n3", Some("c1")).is_some_and(|text| text.contains("calls itself n3")));
        assert!(why("n2", Some("c9")).is_some_and(|text| text.contains("of cluster c9")));
        // Before there is a cluster, nobody is foreign.
        assert_eq!(misplaced("n2", None, &found("n2", Some("c1"))), None);
    }
}

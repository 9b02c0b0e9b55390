//! `holdfast explain-restart`: what a start on a data directory would do, and why, without doing it.

use super::logs::{damage_table, failed, report_json};
use super::show::table;
use super::{Failure, print_line};
use crate::config::Settings;
use crate::node::plan_text;
use clap::Args;
use holdfast_consensus::replica::ReplicaStatus;
use holdfast_consensus::{ClusterId, Recovered};
use holdfast_fsm::StoreOptions;
use holdfast_fsm::explain::{Configured, End, Explained, Stage, explain};
use holdfast_fsm::start::{Plan, StoreFacts};
use holdfast_log::inspect::Report;
use holdfast_log::overlay::{Change, Changed};
use holdfast_log::{IdentityState, RealDisk};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that a running node holds locked.
const LOCK: &str = "lock";
/// How often the directory of a running node is read again if what was read does not fit together:
/// the node may have removed a file, or written a page, between two reads.
const TRIES: u32 = 5;
/// How long it is given to come to rest in between.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// A node's data directory
    dir: PathBuf,
    /// The configuration that the node would be started with, for its name and segment size
    /// [default: those that the directory has]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    contain_panics();
    let dir = &args.dir;
    let settings = args.config.as_deref().map(Settings::read).transpose();
    let settings = settings.map_err(|e| Failure::usage(e.to_string()))?.unwrap_or_default();
    let configured = Configured {
        name: settings.name,
        segment_bytes: settings.segment_bytes,
        store: StoreOptions::new,
    };
    let disk = RealDisk::open(dir).map_err(|e| failed(dir, &e))?;
    let (told, live) = look(dir, &disk, &configured)?;
    print_line(&if args.json {
        as_json(dir, live, &told).to_string()
    } else {
        as_text(dir, live, &told)
    });
    match &told.end {
        End::Refused { why, .. } => Err(Failure::check(format!("a start would refuse: {why}"))),
        End::Runs { plan: Plan::Look { held }, .. } => {
            Err(Failure::check(format!("the member would be held: {held}")))
        }
        End::Runs { .. } | End::Waits => Ok(()),
    }
}

/// What a start would do, and whether a process runs on the directory.
fn look(
    dir: &Path,
    disk: &RealDisk,
    configured: &Configured,
) -> Result<(Explained, bool), Failure> {
    let mut tries = 1;
    loop {
        let live = disk.is_locked(LOCK).map_err(|e| failed(dir, &e))?;
        let told = explain(disk, configured);
        let doubtful = told.as_ref().map_or(true, |told| {
            let sound = matches!(&told.end, End::Runs { status, .. } if status.damaged.is_none());
            !sound || matches!(told.store, Some(StoreFacts::Untrusted(_)))
        });
        if !live || !doubtful || tries == TRIES {
            return told.map(|told| (told, live)).map_err(|e| failed(dir, &e));
        }
        tries += 1;
        std::thread::sleep(PAUSE);
    }
}

/// A panic of the store's library over a damaged page is caught where it is called, and becomes a part
/// of what is told: it is no message of this program.
fn contain_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !holdfast_fsm::panic_is_contained() {
            before(info);
        }
    }));
}

fn stage(by: Stage) -> &'static str {
    match by {
        Stage::Home => "home",
        Stage::Plane => "plane",
        Stage::Store => "store",
        Stage::Replica => "replica",
    }
}

fn as_json(dir: &Path, live: bool, told: &Explained) -> Value {
    let identity = told.identity.as_ref().map(|identity| {
        let state = match identity.state {
            IdentityState::Empty => "empty",
            IdentityState::Founding { .. } => "founding",
            IdentityState::Formed => "formed",
        };
        json!({
            "name": identity.name, "member": identity.member.to_string(), "state": state,
            "cluster": identity.cluster.to_string(), "epoch": format!("{:016x}", identity.epoch),
        })
    });
    let (end, by, why) = match &told.end {
        End::Waits => ("waits", None, None),
        End::Runs { .. } => ("runs", None, None),
        End::Refused { by, why } => ("refused", Some(stage(*by)), Some(why)),
    };
    let (boot, plan, replica) = match &told.end {
        End::Runs { plan, recovered, status } => {
            (Some(boot(plan, recovered)), Some(plan_json(plan)), Some(replica_json(status)))
        }
        _ => (None, None, None),
    };
    json!({
        "dir": dir.display().to_string(),
        "live": live,
        "identity": identity,
        "start": boot,
        "end": end,
        "refused_by": by,
        "why": why,
        "plan": plan,
        "replica": replica,
        "store": told.store.as_ref().map(store_json),
        "log": told.log.as_ref().ok().map(report_json),
        "log_fault": told.log.as_ref().err().map(ToString::to_string),
        "changes": told.changes.iter().map(change_json).collect::<Vec<_>>(),
    })
}

/// The number of the start. A held member writes nothing, the number neither.
fn boot(plan: &Plan, recovered: &Recovered) -> u64 {
    recovered.boot + u64::from(matches!(plan, Plan::Look { .. }))
}

fn plan_json(plan: &Plan) -> Value {
    let (kind, from, snapshot) = match plan {
        Plan::Fresh => ("fresh", None, None),
        Plan::Replay { from } => ("replay", Some(from.0), None),
        Plan::Install { snapshot } => ("install", None, Some(*snapshot)),
        Plan::SetAside { .. } => ("set_aside", None, None),
        Plan::Look { .. } => ("look", None, None),
        Plan::Refuse(_) => ("refuse", None, None),
    };
    json!({
        "kind": kind, "from": from, "text": plan_text(plan),
        "snapshot_term": snapshot.map(|id| id.term.0),
        "snapshot_index": snapshot.map(|id| id.index.0),
    })
}

fn store_json(store: &StoreFacts) -> Value {
    let (state, last, why) = match store {
        StoreFacts::Empty => ("empty", None, None),
        StoreFacts::Holds(last) => ("holds", Some(last), None),
        StoreFacts::Untrusted(why) => ("untrusted", None, Some(why)),
        StoreFacts::Foreign(why) => ("foreign", None, Some(why)),
    };
    json!({
        "state": state, "term": last.map(|id| id.term.0), "index": last.map(|id| id.index.0),
        "why": why,
    })
}

fn replica_json(status: &ReplicaStatus) -> Value {
    let damaged = status
        .damaged
        .as_ref()
        .map(|d| json!({ "first": d.first.0, "last": d.last.0, "count": d.count }));
    let known = |value: Value| if status.held.is_none() { value } else { Value::Null };
    json!({
        "voter": status.membership.is_voter(status.member),
        "stands": stands(status),
        "term": known(status.hard.term.0.into()),
        "voted_for": status.hard.voted_for.map(|member| member.to_string()),
        "votes_as_term": known(status.proved.term.0.into()),
        "votes_as_index": known(status.proved.index.0.into()),
        "acknowledges": known(status.durable.index.0.into()),
        "commit": status.commit.0,
        "applied": status.applied.last.index.0,
        "damaged": damaged,
        "held": status.held,
        "not_ready": status.not_ready,
    })
}

/// True if it may ever be a candidate as it is.
fn stands(status: &ReplicaStatus) -> bool {
    let voter = status.membership.is_voter(status.member);
    voter && status.damaged.is_none() && status.held.is_none()
}

fn change_json(changed: &Changed) -> Value {
    let Changed { path, to, change } = changed;
    let (kind, from, before, bytes) = match change {
        None => ("renamed", None, None, None),
        Some(Change::Made(bytes)) => ("made", None, None, *bytes),
        Some(Change::Removed) => ("removed", None, None, None),
        Some(Change::Replaced(bytes)) => ("replaced", None, None, Some(*bytes)),
        Some(Change::Rewritten { from, before, now }) => {
            ("rewritten", Some(*from), Some(*before), Some(*now))
        }
    };
    json!({
        "path": path, "to": to, "kind": kind, "from": from, "bytes_before": before,
        "bytes": bytes, "why": purpose(changed),
    })
}

/// What a path is for, so that a change of it can be understood.
fn purpose(changed: &Changed) -> &'static str {
    let (path, to) = (changed.path.as_str(), changed.to.as_deref());
    let here = to.unwrap_or(path);
    match here.split_once('/') {
        None if here == "identity" => "who the directory belongs to",
        None if here == "formed" => "marks that the member belongs to a cluster",
        None if here == LOCK => "the lock of the process",
        Some(("log", "newest")) => "the note of the newest segment",
        Some(("log", name)) if name.starts_with("spare-") => "a prepared segment",
        Some(("log", _)) if changed.change == Some(Change::Removed) => {
            "a segment; what counts of it is copied into the fresh one"
        }
        Some(("log", _)) if to.is_some() => "a spare becomes the fresh segment of this start",
        Some(("log", _)) => "a segment",
        Some(("snap", _)) => "a snapshot",
        Some(("store", name)) if name.starts_with("stale-") => "the store, set aside",
        Some(("store", _)) => "the store",
        Some(("data", _)) => "the directories of the node's partitions",
        _ => "",
    }
}

fn as_text(dir: &Path, live: bool, told: &Explained) -> String {
    let mut lines = vec![who(told)];
    let nobodys =
        told.identity.is_none() && told.log.as_ref().is_ok_and(|log| log.segments.is_empty());
    if nobodys && std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        lines.push(
            "it is not empty, and holds none of a node's files: perhaps another one was meant"
                .to_owned(),
        );
    }
    if live {
        lines.push(
            "a process holds the lock of this directory and goes on undisturbed; this is what a start would \
             find if it ended now"
                .to_owned(),
        );
    }
    match &told.log {
        Ok(report) => lines.extend(log_text(report)),
        Err(fault) => lines.push(format!("\nthe log cannot be judged: {fault}")),
    }
    lines.extend(told.store.as_ref().map(store_text));
    lines.push(String::new());
    match &told.end {
        End::Refused { why, .. } => lines.push(format!("a start would REFUSE: {why}")),
        End::Waits => lines.push(
            "a start would wait: the member belongs to no cluster yet. With cluster_state = \"new\" it forms one \
             with its initial_members, else it waits for one that lists it"
                .to_owned(),
        ),
        End::Runs { plan, recovered, status } => {
            lines.push(format!("start {} would run:", boot(plan, recovered)));
            lines.extend(member_text(plan, status).iter().map(|line| format!("- {line}")));
        }
    }
    lines.push(String::new());
    lines.extend(changes_text(&told.changes));
    lines.join("\n")
}

fn who(told: &Explained) -> String {
    match &told.identity {
        Some(identity) if identity.cluster == ClusterId::default() => {
            format!("node {}, member {}, no cluster yet", identity.name, identity.member)
        }
        Some(identity) => format!(
            "node {}, member {}, cluster {}, epoch {:016x}",
            identity.name, identity.member, identity.cluster, identity.epoch
        ),
        None => "the directory does not say whom it belongs to".to_owned(),
    }
}

fn log_text(report: &Report) -> Vec<String> {
    let mut lines = vec![String::new()];
    if report.segments.is_empty() {
        lines.push("there is no log".to_owned());
        return lines;
    }
    let heading = ["SEGMENT", "STATE", "ROW", "FIRST", "RECORDS", "ENTRIES", "END"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(report.segments.iter().map(|s| {
        let (first, end) = (s.first.0.to_string(), s.end.to_string());
        let (records, entries) = (s.records.to_string(), s.entries.to_string());
        vec![s.file.clone(), s.state.to_owned(), s.row.to_owned(), first, records, entries, end]
    }));
    lines.push(table(&rows));
    lines.extend(damage_table(report));
    match &report.fault {
        Some(why) => lines.push(format!("the log proves too little: {why}")),
        None => lines.push(format!(
            "proved: term {}, {}, last entry {}, durable up to segment {} offset {}",
            report.term.0,
            report.voted_for.map_or("no vote".to_owned(), |member| format!("vote for {member}")),
            report.last,
            report.durable.0,
            report.durable.1,
        )),
    }
    for segment in report.segments.iter().filter(|s| s.state == "torn") {
        lines.push(format!(
            "torn: what stands behind {} of {} was never acknowledged, and does not count",
            segment.end, segment.file
        ));
    }
    for snapshot in &report.snapshots {
        lines.push(match &snapshot.fault {
            None => format!("snapshot {}, {} bytes", snapshot.last, snapshot.bytes),
            Some(why) => format!("{} is passed over: {why}", snapshot.file),
        });
    }
    lines
}

fn store_text(store: &StoreFacts) -> String {
    match store {
        StoreFacts::Empty => "the store has applied nothing, or there is none".to_owned(),
        StoreFacts::Holds(last) => format!("the store has applied {last}, durably"),
        StoreFacts::Untrusted(why) | StoreFacts::Foreign(why) => why.clone(),
    }
}

/// What the member would do and leave undone.
fn member_text(plan: &Plan, status: &ReplicaStatus) -> Vec<String> {
    let mut lines = vec![plan_text(plan)];
    if status.held.is_some() {
        return lines;
    }
    let name = |member| status.membership.name_of(member);
    let vote = match status.hard.voted_for {
        Some(member) => format!("in term {} its vote is {}'s", status.hard.term.0, name(member)),
        None => format!("in term {} it has not voted", status.hard.term.0),
    };
    lines.push(format!("it votes by its last entry, {}; {vote}", status.proved));
    let voter = status.membership.is_voter(status.member);
    match &status.damaged {
        Some(damaged) => {
            let what = match damaged.count {
                1 => format!("damaged entry {} is", damaged.first),
                n => format!("{n} damaged entries, {} to {}, are", damaged.first, damaged.last),
            };
            lines.push(format!(
                "{what} fetched from other members; until then it does not stand, and \
                 acknowledges nothing behind {}",
                status.durable.index
            ));
        }
        None => lines.push(format!(
            "it acknowledges what it holds, up to {}, and {}",
            status.durable.index,
            if voter {
                "may stand for leader"
            } else {
                "never stands: its configuration does not list it as a voter"
            }
        )),
    }
    lines.push(format!(
        "{} is known committed; it serves local reads once a leader has confirmed everything up to {} and it is \
         applied",
        status.commit, status.proved.index
    ));
    lines
}

fn changes_text(changes: &[Changed]) -> Vec<String> {
    if changes.is_empty() {
        return vec!["on disk it would change nothing".to_owned()];
    }
    let mut rows = Vec::new();
    for changed in changes {
        let Changed { path, to, change } = changed;
        let what = match change {
            None => "renamed".to_owned(),
            Some(Change::Made(None)) => "made, a directory".to_owned(),
            Some(Change::Made(Some(bytes))) => format!("made, {bytes} bytes"),
            Some(Change::Removed) => "removed".to_owned(),
            Some(Change::Replaced(bytes)) => format!("replaced, {bytes} bytes"),
            Some(Change::Rewritten { from, before, now }) if before == now => {
                format!("written from byte {from} on")
            }
            Some(Change::Rewritten { from, before, now }) => {
                format!("written from byte {from} on, {before} to {now} bytes")
            }
        };
        let path = to.as_ref().map_or_else(|| path.clone(), |to| format!("{path} -> {to}"));
        let why = purpose(changed).to_owned();
        rows.push(vec![format!("  {path}"), what, why]);
    }
    vec!["on disk it would change, before anything else happens:".to_owned(), table(&rows)]
}

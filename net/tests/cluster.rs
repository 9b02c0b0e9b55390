//! Real processes, really killed.

mod common;

use common::{Dev, Process, binary, eventually, holdfast, http, kill, listens, metric, stderr};
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

/// True if all members are healthy and hold the same state.
fn agree(dev: &Dev) -> bool {
    let status = dev.status();
    let members = status["members"].as_array().expect("members");
    members.len() == usize::from(dev.nodes)
        && members.iter().all(|m| {
            m["healthy"] == true
                && m["applied"] == members[0]["applied"]
                && m["digest"] == members[0]["digest"]
        })
}

fn restart(line: &str) -> Process {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("an executable"));
    command.args(words);
    Process::start(command)
}

#[test]
fn three_nodes_keep_topics_through_kill_9_of_the_leader() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    let created = dev.json(&["topic", "create", "orders", "--partitions", "3", "--json"]);
    assert_eq!(created["partitions"], 3);
    let seen = eventually("the topic is read through another node", || {
        let (status, body) = http(dev.http + 1, "GET", "/v1/topics/orders", b"");
        (status == 200).then_some(body)
    });
    assert!(seen.contains("\"partitions\":3"), "{seen}");

    let (name, pid, at) = dev.leader();
    kill(pid, Signal::KILL);
    let begun = Instant::now();
    let survivor = dev.args((at + 1) % 3, &["topic", "create", "payments", "--json"]);
    let survivor: Vec<_> = survivor.iter().map(String::as_str).collect();
    let created = holdfast(&survivor[..survivor.len() - 4]);
    assert!(created.status.success(), "{}", stderr(&created));
    assert!(begun.elapsed() < Duration::from_secs(3), "took {:?}", begun.elapsed());

    let line = dev.process.wait_for_line("the line that starts the node again", |line| {
        line.contains("holdfast serve --config ")
    });
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!(words.len(), 4, "{line}");
    assert!(words[0].ends_with("holdfast") && words[3].contains(&name), "{line}");
    let again = restart(&line);
    eventually("the members agree", || agree(&dev).then_some(()));
    let (status, body) = http(dev.http + at, "GET", "/v1/topics/payments", b"");
    assert_eq!(status, 200, "{body}");
    drop(again);
    let ports = dev.http..dev.http + 3;
    dev.stop();
    assert!(ports.into_iter().all(|port| !listens(port)), "a node outlived dev");
}

#[test]
fn acknowledged_writes_outlive_the_cluster_and_a_killed_dev_takes_its_nodes_along() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = dir.path().join("acked");
    let ledger = ledger.to_str().expect("UTF-8");
    let mut dev = Dev::start(&dir.path().join("cluster"), 3, &["--snapshot-entries", "50"]);
    let report =
        dev.json(&["bench", "--clients", "4", "--seconds", "1", "--acked", ledger, "--json"]);
    assert!(report["ops"].as_u64().expect("a count") > 20, "{report}");
    for key in ["op", "protocol", "clients", "seconds", "ops_per_s", "p50_ms", "p99_ms", "max_ms"] {
        assert!(!report[key].is_null(), "{key} in {report}");
    }
    assert!(report["longest_gap_ms"].is_number() && report["errors"].is_number(), "{report}");

    kill(dev.process.pid(), Signal::KILL);
    dev.process.ended();
    let base = dev.http;
    let ports = base..base + 6;
    eventually("the nodes end with dev", || ports.clone().all(|p| !listens(p)).then_some(()));
    drop(dev);

    let dev = Dev::start_at(&dir.path().join("cluster"), 3, base, &["--snapshot-entries", "50"]);
    let check = dev.run(&["bench", "--check", ledger]);
    assert!(check.status.success(), "{}", stderr(&check));
    let snapshots: u64 = (0..3).map(|i| metric(base + i, "holdfast_snapshot_index")).sum();
    assert!(snapshots > 0, "snapshots are taken");

    // The check finds what is not there.
    let forged = r#"{"op":"put","key":"bench-99999","value":"x","index":1}"#;
    std::fs::write(ledger, forged).expect("written");
    let check = dev.run(&["bench", "--check", ledger]);
    assert_eq!(check.status.code(), Some(1), "{}", stderr(&check));
    dev.stop();
}

#[test]
fn a_leader_that_is_asked_to_stop_hands_leadership_over_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    dev.json(&["kv", "put", "color", "green", "--json"]);
    eventually("all have it", || agree(&dev).then_some(()));
    let (name, pid, _) = dev.leader();
    let term = dev.status()["term"].as_u64().expect("a term");
    kill(pid, Signal::TERM);
    dev.process.wait_for_line("its end", |line| line.contains(&format!("{name} has ended")));
    let log = std::fs::read_to_string(dir.path().join(format!("{name}.log"))).expect("a log");
    let to = log.split("hands leadership to ").nth(1).and_then(|rest| rest.lines().next());
    let to = to.unwrap_or_else(|| panic!("no handover in {log}")).trim();
    assert!(log.contains("leadership was handed over"), "the handover succeeds: {log}");
    let (leader, ..) = dev.leader();
    assert_eq!(leader, to, "whom the old leader chose leads");
    // One election in all: nobody had to miss the old leader first.
    assert_eq!(dev.status()["term"].as_u64(), Some(term + 1));
    dev.json(&["kv", "put", "color", "red", "--json"]);
    dev.stop();
}

#[test]
fn without_a_quorum_writes_end_at_their_deadline_and_reads_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    dev.json(&["kv", "put", "color", "green", "--json"]);
    eventually("all have it", || agree(&dev).then_some(()));
    let status = dev.status();
    for member in &status["members"].as_array().expect("members")[1..] {
        kill(member["pid"].as_u64().expect("a process id"), Signal::KILL);
    }
    eventually("the survivor is not ready", || {
        (http(dev.http, "GET", "/readyz", b"").0 == 503).then_some(())
    });
    let (status, body) = http(dev.http, "PUT", "/v1/kv/color?timeout_ms=300", b"red");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("\"code\":\"unavailable\""), "{body}");
    assert_eq!(http(dev.http, "GET", "/livez", b"").0, 200);
    let (status, body) = http(dev.http, "GET", "/v1/kv/color", b"");
    assert_eq!((status, body.as_str()), (200, "green"));
    let (status, body) =
        http(dev.http, "GET", "/v1/kv/color?level=linearizable&timeout_ms=300", b"");
    assert_eq!(status, 503, "{body}");
    assert!(!body.contains("written"), "a read writes nothing anyway: {body}");
    let failed = dev.run(&["kv", "put", "color", "red", "--timeout", "1", "--json"]);
    assert_eq!(failed.status.code(), Some(3), "{}", stderr(&failed));
    let said: serde_json::Value = serde_json::from_slice(&failed.stdout).expect("JSON");
    assert_eq!(said["code"], "unavailable", "{said}");
    assert_eq!(said["may_commit"], false, "{said}");
    let (_, ready) = http(dev.http, "GET", "/readyz", b"");
    eventually("it says for whom it waits", || {
        let (_, text) = http(dev.http, "GET", "/readyz", b"");
        (text.contains("n2") && text.contains("n3")).then_some(())
    });
    assert!(ready.starts_with("not ready: "), "{ready}");
    dev.stop();
}

#[test]
fn every_acknowledged_write_of_a_single_node_was_synced() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    let before = metric(dev.http, "holdfast_job_seconds_count{job=\"persist\"}");
    for i in 0..10 {
        let (status, body) = http(dev.http, "PUT", &format!("/v1/kv/k{i}"), b"v");
        assert_eq!(status, 200, "{body}");
    }
    let syncs = metric(dev.http, "holdfast_job_seconds_count{job=\"persist\"}") - before;
    assert!(syncs >= 10, "{syncs} syncs for 10 writes one after the other");
    let (_, pid, _) = dev.leader();
    kill(pid, Signal::KILL);
    let line = dev.process.wait_for_line("the line that starts the node again", |line| {
        line.contains("holdfast serve --config ")
    });
    let again = restart(&line);
    eventually("the node is ready again", || {
        (listens(dev.http) && http(dev.http, "GET", "/readyz", b"").0 == 200).then_some(())
    });
    for i in 0..10 {
        assert_eq!(http(dev.http, "GET", &format!("/v1/kv/k{i}"), b""), (200, "v".to_owned()));
    }
    // Beside the live node, and after its death.
    let data = dir.path().join("n1");
    let data = data.to_str().expect("UTF-8");
    let report = common::json(&["log", "verify", data, "--json"]);
    assert_eq!(report["healthy"], true, "{report}");
    let cluster = report["cluster"].as_str().expect("an id");
    assert!(
        cluster.chars().any(|digit| digit != '0'),
        "the first segment does not know it: {report}"
    );
    assert!(report["last_index"].as_u64().expect("an index") >= 10, "{report}");
    drop(again);
    dev.stop();
    let dump = holdfast(&["log", "dump", data, "--json"]);
    let entries = common::stdout(&dump).matches("\"kind\":\"entry\"").count();
    assert!(entries >= 10, "{entries} entries");
    let none = holdfast(&["log", "verify", "/no/such/directory"]);
    assert_eq!(none.status.code(), Some(3), "{}", stderr(&none));
}

#[test]
fn an_empty_node_started_with_existing_waits_and_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = common::free_ports(2);
    let mut command = binary();
    command.args(["serve", "--name", "n1", "--http-addr", &format!("127.0.0.1:{base}")]);
    command.args(["--initial-members", &format!("n1=127.0.0.1:{}", base + 1)]);
    command.arg("--data-dir").arg(dir.path().join("n1"));
    let mut node = Process::start(command);
    node.wait_for_line("a log line", |line| line.contains("waits for a cluster that lists it"));
    let (status, body) = http(base, "GET", "/readyz", b"");
    assert!(status == 503 && body.contains("waits for a cluster"), "{status} {body}");
    let (status, body) = http(base, "GET", "/v1/kv/a", b"");
    assert!(status == 503 && body.contains("not_ready"), "{status} {body}");
    let (_, body) = http(base, "GET", "/v1/status", b"");
    assert!(body.contains("\"role\":\"waiting\""), "{body}");
    kill(node.pid(), Signal::TERM);
    assert_eq!(node.ended(), Some(0), "{}", node.text());
}

//! Who is who: processes that bear a name which is not theirs, directories that were emptied, and a
//! second `dev` on the first one's directory.

mod common;

use common::{Dev, Process, binary, eventually, http, kill, stderr};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn restart(line: &str) -> Process {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("an executable"));
    command.args(words);
    Process::start(command)
}

/// Kills a node of `dev`; the line that starts it again.
fn killed(dev: &Dev, name: &str) -> String {
    kill(member(dev, name)["pid"].as_u64().expect("a process id"), Signal::KILL);
    dev.process.wait_for_line("the line that starts it again", |line| {
        line.contains("holdfast serve --config ") && line.contains(name)
    })
}

/// A member as the whole cluster is seen through the first node.
fn member(dev: &Dev, name: &str) -> Value {
    let (_, body) = http(dev.http, "GET", "/v1/status", b"");
    let status: Value = serde_json::from_str(&body).expect("JSON");
    let members = status["members"].as_array().expect("members");
    members.iter().find(|m| m["name"] == name).cloned().expect("it is listed")
}

fn all_healthy(dev: &Dev) -> Option<()> {
    let status = dev.status();
    let well = status["members"].as_array()?.iter().all(|m| m["healthy"] == true);
    (well && !status["leader"].is_null()).then_some(())
}

/// Lines of a node's log that say this.
fn said(dir: &Path, name: &str, what: &str) -> usize {
    let log = std::fs::read_to_string(dir.join(format!("{name}.log"))).expect("a log");
    log.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn an_empty_process_under_a_members_name_takes_nothing_from_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    let ports = common::free_ports(2);
    let mut members: Vec<String> =
        (0..3).map(|i| format!("n{}=127.0.0.1:{}", i + 1, dev.peer_port(i))).collect();
    members[1] = format!("n2=127.0.0.1:{}", ports + 1);
    let mut command = binary();
    command.args(["serve", "--name", "n2", "--initial-members", &members.join(",")]);
    command.args(["--http-addr", &format!("127.0.0.1:{ports}")]);
    command.arg("--data-dir").arg(dir.path().join("impostor"));
    let impostor = Process::start(command);
    let line = impostor
        .wait_for_line("it says who it is not", |line| line.contains("under another member id"));
    let real = member(&dev, "n2");
    assert!(line.contains(real["member"].as_str().expect("an id")), "{line}");
    for name in ["n1", "n3"] {
        eventually("the others say so", || {
            (said(dir.path(), name, "an empty process calls itself n2") == 1).then_some(())
        });
    }
    assert_eq!(real["http"], dev.url(1), "{real}");
    eventually("nothing is wrong with the members", || all_healthy(&dev));
    // Partitions still go to all three: the one that is connected is the member.
    let topic = dev.json(&["topic", "create", "orders", "--partitions", "3", "--json"]);
    let owners: Vec<&Value> =
        topic["owners"].as_array().expect("owners").iter().map(|o| &o["node"]).collect();
    assert!(owners.contains(&&Value::from("n2")), "{topic}");

    // Nor while the member is away.
    let line = killed(&dev, "n2");
    let gone = eventually("it is seen to be away", || {
        Some(member(&dev, "n2")).filter(|m| m["role"] == "unreachable")
    });
    assert_eq!(gone["http"], dev.url(1), "{gone}");
    let again = restart(&line);
    eventually("the member is back", || all_healthy(&dev));
    assert_eq!(member(&dev, "n2")["member"], real["member"]);
    drop((again, impostor));
    dev.stop();
}

#[test]
fn an_emptied_directory_is_told_who_it_was_and_works_again_once_it_is_put_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    dev.json(&["kv", "put", "color", "green", "--json"]);
    eventually("all have it", || all_healthy(&dev));
    let before = member(&dev, "n2")["member"].as_str().expect("an id").to_owned();
    let line = killed(&dev, "n2");
    let (data, aside) = (dir.path().join("n2"), dir.path().join("aside"));
    std::fs::rename(&data, &aside).expect("moved");
    let mut empty = restart(&line);
    let ready = eventually("it says who it was", || {
        let port = dev.http + 1;
        let (status, body) = common::listens(port).then(|| http(port, "GET", "/readyz", b""))?;
        (status == 503 && body.contains("under another member id")).then_some(body)
    });
    for part in [before.as_str(), "put its directory back", "cannot replace a member"] {
        assert!(ready.contains(part), "{part}: {ready}");
    }
    assert!(!ready.contains("form a new"), "{ready}");
    assert_eq!(empty.text().matches("under another member id").count(), 1, "{}", empty.text());
    let (status, body) = http(dev.http + 1, "PUT", "/v1/kv/color", b"blue");
    assert!(status == 503 && body.contains("\"code\":\"not_ready\""), "{status} {body}");
    assert!(body.contains("belongs to no cluster") && body.contains("ask another"), "{body}");
    let why = eventually("status says it", || {
        Some(member(&dev, "n2")).filter(|m| m["role"] == "waiting")
    });
    assert!(why["reason"].as_str().is_some_and(|r| r.contains("another member id")), "{why}");
    for name in ["n1", "n3"] {
        eventually("the others say so, once", || {
            (said(dir.path(), name, "an empty process calls itself n2") == 1).then_some(())
        });
    }
    assert_eq!(http(dev.http, "PUT", "/v1/kv/color", b"red").0, 200, "they go on");
    kill(empty.pid(), Signal::TERM);
    assert_eq!(empty.ended(), Some(0), "{}", empty.text());
    std::fs::remove_dir_all(&data).expect("removed");
    std::fs::rename(&aside, &data).expect("moved");
    let again = restart(&line);
    eventually("it is a member again", || all_healthy(&dev));
    assert_eq!(member(&dev, "n2")["member"], before.as_str());
    drop(again);
    dev.stop();
}

fn configurations(dir: &Path) -> Vec<String> {
    let path = |i: u16| dir.join(format!("n{i}.toml"));
    (1..=3).map(|i| std::fs::read_to_string(path(i)).expect("it is there")).collect()
}

#[test]
fn a_second_dev_on_a_directory_in_use_changes_nothing_and_a_later_one_says_what_it_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    dev.json(&["kv", "put", "color", "green", "--json"]);
    let before = configurations(dir.path());
    let ports = common::free_ports(6);
    let (base, peers) = (ports.to_string(), (ports + 3).to_string());
    let second = || {
        let mut command = binary();
        command.arg("dev").arg("--dir").arg(dir.path());
        command.args(["--http-base", &base, "--peer-base", &peers]);
        command
    };
    let output = second().output().expect("runs");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("another `holdfast dev` runs in"), "{}", stderr(&output));
    assert_eq!(configurations(dir.path()), before);
    eventually("the cluster goes on", || all_healthy(&dev));
    dev.stop();

    let output = second().args(["--nodes", "2"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("give --nodes 3"), "{}", stderr(&output));
    assert_eq!(configurations(dir.path()), before);

    let dev = Dev::start_at(dir.path(), 3, ports, &[]);
    let text = dev.process.text();
    assert!(text.contains("n1.toml changes: http_addr from "), "{text}");
    assert_eq!(http(dev.http + 2, "GET", "/v1/kv/color", b""), (200, "green".to_owned()));
    eventually("the same cluster, elsewhere", || all_healthy(&dev));
    dev.stop();
}

//! The directories of topics on real nodes: made for their owners, moved to the trash when the
//! topic is gone, and kept whenever that is not proved.

mod common;

use common::{Dev, Process, eventually, http, kill, metric, stdout};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn names(dir: PathBuf) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return BTreeSet::new() };
    let name = |e: std::io::Result<std::fs::DirEntry>| {
        e.expect("the directory stays").file_name().into_string().expect("ASCII")
    };
    entries.map(name).collect()
}

/// The copies that a node holds of a topic.
fn copies(dir: &Path, node: u16, topic: &str) -> BTreeSet<String> {
    let all = names(dir.join(format!("n{node}")).join("data/topics"));
    all.into_iter().filter(|name| name.ends_with(&format!("-{topic}"))).collect()
}

/// What a node has let go of a topic, without the files that say why.
fn trash(dir: &Path, node: u16, topic: &str) -> BTreeSet<String> {
    let all = names(dir.join(format!("n{node}")).join("data/trash"));
    all.into_iter().filter(|name| name.ends_with(&format!("-{topic}"))).collect()
}

fn local(port: u16) -> Value {
    let (_, body) = http(port, "GET", "/v1/status?scope=local", b"");
    serde_json::from_str(&body).expect("JSON")
}

fn owners(topic: &Value) -> Vec<String> {
    let owners = topic["owners"].as_array().expect("owners");
    owners.iter().map(|o| o["node"].as_str().expect("a node").to_owned()).collect()
}

fn restart(line: &str) -> Process {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("an executable"));
    command.args(words);
    Process::start(command)
}

/// Kills a node of `dev`; the line that starts it again.
fn killed(dev: &Dev, node: u16) -> String {
    let name = format!("n{node}");
    let status = dev.status();
    let members = status["members"].as_array().expect("members");
    let member = members.iter().find(|m| m["name"] == name.as_str()).expect("a member");
    kill(member["pid"].as_u64().expect("a process id"), Signal::KILL);
    dev.process.wait_for_line("the line that starts it again", |line| {
        line.contains("holdfast serve --config ") && line.contains(&name)
    })
}

#[test]
fn partitions_are_spread_over_the_nodes_and_a_deleted_topic_goes_to_the_trash_of_each() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    let created = dev.json(&["topic", "create", "orders", "--partitions", "6", "--json"]);
    let placed = owners(&created);
    assert_eq!(placed.len(), 6, "all owners are known at once: {created}");
    for node in 1..=3_u16 {
        let name = format!("n{node}");
        assert_eq!(placed.iter().filter(|owner| **owner == name).count(), 2, "{created}");
        eventually("its copies", || (copies(dir.path(), node, "orders").len() == 2).then_some(()));
    }
    let shown = dev.json(&["topic", "describe", "orders", "--json"]);
    assert_eq!(owners(&shown), placed);
    let text = stdout(&dev.run(&["topic", "describe", "orders"]));
    assert!(text.contains("OWNER") && text.contains("n3"), "{text}");
    dev.json(&["topic", "create", "payments", "--json"]);
    let kept: usize = (1..=3).map(|node| copies(dir.path(), node, "payments").len()).sum();
    assert!(kept <= 1);

    dev.json(&["topic", "delete", "orders", "--json"]);
    for node in 1..=3_u16 {
        eventually("the copies are let go", || {
            let (live, gone) =
                (copies(dir.path(), node, "orders"), trash(dir.path(), node, "orders"));
            (live.is_empty() && gone.len() == 2).then_some(())
        });
        let port = dev.http + node - 1;
        // Counted a moment after the rename.
        eventually("they are counted", || {
            let trashed = metric(port, "holdfast_copies_total{event=\"trashed\"}");
            let permits = metric(port, "holdfast_permits_total{line=\"local\"}");
            (trashed == 2 && permits == 2).then_some(())
        });
    }
    // A topic of the same name is another incarnation, in other directories.
    dev.json(&["topic", "create", "orders", "--partitions", "3", "--json"]);
    for node in 1..=3_u16 {
        eventually("a new copy", || (copies(dir.path(), node, "orders").len() == 1).then_some(()));
        assert_eq!(trash(dir.path(), node, "orders").len(), 2, "the old ones stay in the trash");
    }
    let live: usize = (1..=3).map(|node| copies(dir.path(), node, "payments").len()).sum();
    assert_eq!(live, 1, "nothing else was touched");
    dev.stop();
}

#[test]
fn what_bears_a_foreign_stamp_or_none_stays_and_is_listed() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    dev.json(&["topic", "create", "orders", "--json"]);
    let copy = eventually("its copy", || copies(dir.path(), 1, "orders").into_iter().next());
    let topics = dir.path().join("n1/data/topics");
    std::fs::create_dir(topics.join("stranger")).expect("a directory");
    std::fs::write(topics.join("stranger/records"), b"the only ones").expect("written");
    // The stamp of another copy proves nothing of this one, whatever becomes of that.
    std::fs::create_dir(topics.join("twin")).expect("a directory");
    std::fs::copy(topics.join(&copy).join("stamp"), topics.join("twin/stamp")).expect("copied");
    dev.json(&["topic", "delete", "orders", "--json"]);
    eventually("the copy is let go", || copies(dir.path(), 1, "orders").is_empty().then_some(()));
    let data = eventually("they are listed", || {
        let data = local(dev.http)["data"].clone();
        (data["quarantined"] == 2).then_some(data)
    });
    let listed = data["kept_list"].as_array().expect("a list");
    for place in ["stranger", "twin"] {
        let kept = listed.iter().find(|kept| kept["place"] == place).expect("it is listed");
        assert_eq!(kept["reason"], "bad-stamp", "{kept}");
        assert!(topics.join(place).is_dir(), "{place} stays");
    }
    assert!(topics.join("stranger/records").is_file());
    let text = stdout(&dev.run(&["status"]));
    assert!(text.contains("n1 keeps stranger: its stamp cannot be used"), "{text}");
    assert_eq!(metric(dev.http, "holdfast_copies_quarantined"), 2);
    dev.stop();
}

#[test]
fn a_node_that_was_killed_destroys_nothing_while_the_others_are_away() {
    let dir = tempfile::tempdir().expect("a directory");
    // Snapshots behind the topics: the restarted store begins before some of what follows.
    let dev = Dev::start(dir.path(), 3, &["--snapshot-entries", "20"]);
    for i in 0..4 {
        dev.json(&["topic", "create", &format!("t{i}"), "--partitions", "3", "--json"]);
    }
    let mine = |node: u16| -> usize {
        (0..4).map(|i| copies(dir.path(), node, &format!("t{i}")).len()).sum()
    };
    eventually("every node has its copies", || (1..=3).all(|n| mine(n) == 4).then_some(()));
    // The node misses a deletion, and comes back alone.
    let third = killed(&dev, 3);
    dev.json(&["topic", "delete", "t0", "--json"]);
    let lines = [killed(&dev, 1), killed(&dev, 2)];
    let alone = restart(&third);
    let port = dev.http + 2;
    eventually("it is up", || (common::listens(port)).then_some(()));
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(mine(3), 4, "nothing is destroyed without the others");
    }
    assert_eq!(metric(port, "holdfast_copies_total{event=\"trashed\"}"), 0);
    // With them it learns of the deletion, and goes on.
    let others = lines.map(|line| restart(&line));
    eventually("the deleted topic goes", || {
        (copies(dir.path(), 3, "t0").is_empty() && trash(dir.path(), 3, "t0").len() == 1)
            .then_some(())
    });
    for node in 1..=3 {
        eventually("the others stay", || (mine(node) == 3).then_some(()));
    }
    drop((alone, others));
    dev.stop();
}

#[test]
fn a_data_plane_of_another_node_is_refused_untouched() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 2, &[]);
    dev.json(&["topic", "create", "orders", "--partitions", "2", "--json"]);
    eventually("copies", || {
        (copies(dir.path(), 1, "orders").len() == 1 && copies(dir.path(), 2, "orders").len() == 1)
            .then_some(())
    });
    dev.stop();
    // The volume of n2 is mounted on n1 (N21).
    let (one, two) = (dir.path().join("n1/data"), dir.path().join("n2/data"));
    std::fs::rename(&one, dir.path().join("aside")).expect("moved");
    std::fs::rename(&two, &one).expect("moved");
    let before = copies(dir.path(), 1, "orders");
    let mut command = common::binary();
    command.arg("serve").arg("--config").arg(dir.path().join("n1.toml"));
    let mut node = Process::start(command);
    assert_eq!(node.ended(), Some(3), "{}", node.text());
    assert!(node.text().contains("belongs to node `n2`"), "{}", node.text());
    assert_eq!(copies(dir.path(), 1, "orders"), before);
}

//! Real nodes whose disks have rotted: what is damaged is given back by the others, and who can
//! prove too little is held.

mod common;

use common::{Dev, eventually, holdfast, http, kill, killed, metric, restart, stderr, stdout};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn local(port: u16) -> Option<Value> {
    if !common::listens(port) {
        return None;
    }
    let (_, body) = http(port, "GET", "/v1/status?scope=local", b"");
    serde_json::from_str(&body).ok()
}

/// A cluster of three that holds forty keys, in logs of several segments, and was then killed.
fn cluster(dir: &Path) -> (Dev, Vec<String>) {
    let dev = Dev::start(dir, 3, &["--segment-bytes", "65536"]);
    for i in 0..40 {
        assert_eq!(http(dev.http, "PUT", &format!("/v1/kv/k{i}"), &[b'v'; 100]).0, 200);
    }
    // Two watermarks behind the last write prove it durable.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let lines = killed(&dev);
    (dev, lines)
}

fn flip(path: &Path, offset: u64) {
    let mut bytes = std::fs::read(path).expect("a segment");
    bytes[usize::try_from(offset).expect("small")] ^= 0x40;
    std::fs::write(path, bytes).expect("written");
}

/// Damages every third entry of a log, and returns how many.
fn damage_entries(data: &Path) -> usize {
    let dump = holdfast(&["log", "dump", data.to_str().expect("UTF-8"), "--json"]);
    let lines = stdout(&dump);
    let records = lines.lines().map(|line| serde_json::from_str(line).expect("JSON lines"));
    let commands = |r: &Value| r["kind"] == "entry" && r["len"].as_u64() > Some(100);
    let entries: Vec<Value> = records.filter(commands).collect();
    let hit = entries.iter().step_by(3);
    for entry in hit.clone() {
        let file = data.join(entry["file"].as_str().expect("a file"));
        flip(&file, entry["offset"].as_u64().expect("an offset") + 70);
    }
    hit.count()
}

/// Every file that a held member must leave alone.
fn evidence(data: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in ["log", "snap", "store"] {
        let Ok(entries) = std::fs::read_dir(data.join(dir)) else { continue };
        for entry in entries {
            let path = entry.expect("the directory stays").path();
            let bytes = std::fs::read(&path).expect("a file");
            files.insert(path.display().to_string(), bytes);
        }
    }
    files
}

#[test]
fn a_node_over_a_damaged_log_says_so_until_the_others_have_given_everything_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let (dev, lines) = cluster(dir.path());
    let count = damage_entries(&dir.path().join("n2"));
    assert!(count >= 6, "{count}");
    let second = restart(&lines[1]);
    // While it is alone nobody gives anything back.
    let status = eventually("it says that it is damaged", || {
        local(dev.http + 1).filter(|status| !status["damaged"].is_null())
    });
    assert_eq!(status["damaged"]["count"], count, "{status}");
    assert_eq!(status["healthy"], false, "{status}");
    let said = status["reason"].as_str().expect("a reason");
    assert!(said.contains("are fetched from other members"), "{said}");
    assert_eq!(metric(dev.http + 1, "holdfast_damaged_entries"), count as u64);
    let (first, last) = (&status["damaged"]["first"], &status["damaged"]["last"]);
    let range = format!("{count} entries of the log, i{first} to i{last}, do not verify");
    let line = second.wait_for_line("a line that names them", |line| line.contains(&range));
    assert!(line.contains("keep those running, and replace this disk"), "{line}");
    let _third = restart(&lines[2]);
    eventually("everything is back", || {
        let status = local(dev.http + 1)?;
        (status["damaged"].is_null() && status["healthy"] == true).then_some(())
    });
    assert_eq!(metric(dev.http + 1, "holdfast_repaired_entries_total"), count as u64);
    for i in 0..40 {
        let (status, body) = http(dev.http + 1, "GET", &format!("/v1/kv/k{i}"), b"");
        assert_eq!(status, 200, "{body}");
    }
    let _first = restart(&lines[0]);
    eventually("all are healthy", || {
        let members = dev.status()["members"].as_array().cloned()?;
        members.iter().all(|member| member["healthy"] == true).then_some(())
    });
    let verify = holdfast(&["log", "verify", dir.path().join("n2").to_str().expect("UTF-8")]);
    assert!(!stdout(&verify).contains("to be given back"), "{}", stdout(&verify));
}

/// Every second of the first entries that hold a key, in the first segment of a node's log.
fn hit(data: &Path, count: usize) -> Vec<Value> {
    let dump = holdfast(&["log", "dump", data.to_str().expect("UTF-8"), "--json"]);
    let lines = stdout(&dump);
    let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let commands = records.filter(|r| r["entry"]["command"] == "kv_put" && r["segment"] == 1);
    let hit: Vec<Value> = commands.step_by(2).take(count).collect();
    assert_eq!(hit.len(), count, "the first segment holds some");
    hit
}

/// Flips a bit of each under a process that has the file open.
fn rot(data: &Path, entries: &[Value]) {
    for entry in entries {
        let file = data.join(entry["file"].as_str().expect("a file"));
        let file = OpenOptions::new().read(true).write(true).open(file).expect("a segment");
        let (at, mut byte) = (entry["offset"].as_u64().expect("an offset") + 70, [0]);
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 0x40], at).expect("written");
    }
}

/// Bits of two entries rot while the node runs, in a segment that is full and that nobody reads.
#[test]
fn what_rots_while_a_node_runs_is_found_by_its_scrub_and_given_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let (dev, lines) = cluster(dir.path());
    let data = dir.path().join("n2");
    let hit = hit(&data, 2);
    let (_first, _third) = (restart(&lines[0]), restart(&lines[2]));
    let second = restart(&lines[1]);
    // By then its start has verified everything, its store has read what it takes from the log (another
    // read would find the damage before the scrub does), and the scrub has not begun.
    eventually("it holds the last key", || {
        local(dev.http + 1)?;
        (http(dev.http + 1, "GET", "/v1/kv/k39", b"").0 == 200).then_some(())
    });
    rot(&data, &hit);
    second.wait_for_line("a line of the scrub", |line| {
        let index = hit[0]["index"].as_u64().expect("an index");
        line.contains(&format!("the scrub found entries i{index} to i{index} damaged"))
    });
    eventually("both are back", || {
        let back = metric(dev.http + 1, "holdfast_repaired_entries_total") == 2;
        let status = local(dev.http + 1)?;
        (back && status["damaged"].is_null() && status["healthy"] == true).then_some(())
    });
    for (node, found) in [(0, 0), (1, 2), (2, 0)] {
        let count = |name: &str| metric(dev.http + node, name);
        eventually("a pass has ended", || {
            (count("holdfast_log_scrub_passes_total") > 0).then_some(())
        });
        assert_eq!(count("holdfast_log_scrub_damaged_total"), found, "n{}", node + 1);
        assert!(count("holdfast_log_scrub_bytes_total") >= 2 * 49_152);
    }
    let verify = holdfast(&["log", "verify", data.to_str().expect("UTF-8")]);
    assert!(!stdout(&verify).contains("to be given back"), "{}", stdout(&verify));
}

#[test]
fn a_lone_voter_goes_on_when_its_scrub_finds_what_nobody_can_give_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &["--segment-bytes", "65536"]);
    let value = vec![b'x'; 2000];
    for i in 0..60 {
        assert_eq!(http(dev.http, "PUT", &format!("/v1/kv/k{i}"), &value).0, 200);
    }
    let data = dir.path().join("n1");
    rot(&data, &hit(&data, 1));
    eventually("the scrub has found it", || {
        (metric(dev.http, "holdfast_log_scrub_damaged_total") == 1).then_some(())
    });
    let log = std::fs::read_to_string(dir.path().join("n1.log")).expect("a log");
    assert!(log.contains("the only voter: it goes on"), "{log}");
    assert_eq!(http(dev.http, "PUT", "/v1/kv/after", b"x").0, 200);
    assert_eq!(http(dev.http, "GET", "/v1/kv/k1", b"").1.as_bytes(), value);
    dev.stop();
}

#[test]
fn a_node_whose_log_proves_too_little_is_held_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (dev, lines) = cluster(dir.path());
    let data = dir.path().join("n3");
    let names = std::fs::read_dir(data.join("log")).expect("a log");
    let newest = names
        .map(|entry| entry.expect("the directory stays").path())
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('0')))
        .max()
        .expect("a segment");
    // Both copies of its header: nothing tells where its records belong.
    for offset in [48, 4096 + 48] {
        flip(&newest, offset);
    }
    let before = evidence(&data);
    let (_first, _second) = (restart(&lines[0]), restart(&lines[1]));
    let mut held = restart(&lines[2]);
    let status = eventually("it says that it is held", || {
        local(dev.http + 2).filter(|status| !status["held"].is_null())
    });
    assert_eq!(status["healthy"], false, "{status}");
    assert_eq!(metric(dev.http + 2, "holdfast_held"), 1);
    let (ready, why) = http(dev.http + 2, "GET", "/readyz", b"");
    assert!(ready == 503 && why.contains("this member is held"), "{why}");
    held.wait_for_line("a line with the remedy", |line| {
        line.contains("this member is held") && line.contains("holdfast log verify")
    });
    eventually("the others serve", || {
        let write = http(dev.http, "PUT", "/v1/kv/after", b"x");
        (write.0 == 200).then_some(())
    });
    let (read, _) = http(dev.http + 2, "GET", "/v1/kv/after", b"");
    assert_ne!(read, 200, "it serves no reads");
    for (method, path) in [("GET", "/v1/kv/after?level=linearizable"), ("PUT", "/v1/kv/after")] {
        let (status, body) = http(dev.http + 2, method, path, b"y");
        assert!(status == 503 && body.contains("\"code\":\"not_ready\""), "{method}: {body}");
        assert!(body.contains("this member is held") && body.contains("ask another"), "{body}");
        assert!(body.contains("\"may_commit\":false"), "{body}");
    }
    kill(held.pid(), Signal::TERM);
    assert_eq!(held.ended(), Some(0), "{}", held.text());
    assert!(evidence(&data) == before, "not a byte has changed");
    let alone = holdfast(&["log", "verify", data.to_str().expect("UTF-8")]);
    assert_eq!(alone.status.code(), Some(1), "{}", stderr(&alone));
}

//! The tools that look into a data directory, over directories of real nodes.

mod common;

use common::{Dev, eventually, holdfast, http, killed, listens, restart, stderr, stdout};
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{Entries, Entry, HardState, LogId, MemberId, Seq};
use holdfast_log::{Home, HomeOptions, LogOptions, RealDisk};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Every file of a directory, by path.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("it stays").path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    let bytes = std::fs::read(&path).expect("a file");
                    found.insert(path.display().to_string(), bytes);
                }
            }
        }
    }
    found
}

fn diff(a: &Path, b: &Path) -> (Option<i32>, Value) {
    let (a, b) = (a.to_str().expect("UTF-8"), b.to_str().expect("UTF-8"));
    let output = holdfast(&["log", "diff", a, b, "--json"]);
    let text = stdout(&output);
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// The directory of a node that does not run.
fn home(dir: &Path) -> Home<RealDisk> {
    let name = dir.file_name().and_then(|name| name.to_str()).expect("a node's name").to_owned();
    let log = LogOptions { segment_bytes: 65_536 };
    let options = HomeOptions { name, fresh_member: MemberId(1), log };
    let disk = RealDisk::open(dir).expect("a directory");
    Home::open(disk, &options).expect("it does not run")
}

/// Gives two nodes that do not run, each another entry of one term and one index. They need not have
/// ended alike: while a cluster stops, one of them may still stand for election or win it.
fn part(one: &Path, two: &Path) -> LogId {
    let mut homes = [home(one), home(two)];
    let ends = homes.each_mut().map(|home| home.log().recovered());
    let term = ends[0].hard.term.max(ends[1].hard.term);
    let last = ends[0].last.index.min(ends[1].last.index);
    let (id, time) = (LogId { term, index: last.next() }, ends[0].time.max(ends[1].time));
    for ((home, end), text) in homes.iter_mut().zip(ends).zip([&b"left"[..], b"right"]) {
        let body = holdfast_consensus::Body::Command(text.into());
        let append = Entries::new(vec![Entry { id, time, body }]).expect("one entry");
        let truncate_from = (end.last.index > last).then_some(id.index);
        let hard = (end.hard.term < term).then_some(HardState { term, voted_for: None });
        let persist = Persist { seq: Seq(1), truncate_from, append, hard };
        home.log().persist(&[persist]).expect("it takes it");
    }
    id
}

#[test]
fn two_members_are_compared_while_they_run_and_when_they_have_parted() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &["--segment-bytes", "65536"]);
    for i in 0..20 {
        assert_eq!(http(dev.http, "PUT", &format!("/v1/kv/k{i}"), b"v").0, 200);
    }
    let (one, two) = (dir.path().join("n1"), dir.path().join("n2"));
    let (code, found) = diff(&one, &two);
    assert_eq!((code, found["verdict"].as_str()), (Some(0), Some("same")), "{found}");
    assert!(found["same"].as_u64() >= Some(10), "{found}");
    assert_eq!(found["one_cluster"], true);
    assert_ne!(found["a"]["member"], found["b"]["member"]);
    dev.stop();

    let whole = (files(&one), files(&two));
    assert_eq!(diff(&one, &two).0, Some(0));
    assert!(whole == (files(&one), files(&two)), "not a byte has changed");
    let dump = stdout(&holdfast(&["log", "dump", one.to_str().expect("UTF-8"), "--json"]));
    let last = dump.lines().last().expect("a summary");
    let summary: Value = serde_json::from_str(last).expect("JSON");
    assert!(summary["kind"] == "summary" && summary["ok"] == true, "{summary}");
    assert_eq!(summary["records"], dump.lines().count() - 1);
    assert!(summary["last_index"].as_u64() >= found["a"]["last_index"].as_u64(), "{summary}");
    a_dump_chooses_and_hides_no_damage(&one, summary["records"].as_u64().expect("a count"));

    let parted = part(&one, &two);
    let (code, found) = diff(&one, &two);
    assert_eq!((code, found["verdict"].as_str()), (Some(1), Some("violation")), "{found}");
    let first = &found["first_difference"];
    assert_eq!(
        (first["index"].as_u64(), first["by"].as_str()),
        (Some(parted.index.0), Some("payload"))
    );
    assert_eq!((first["a"]["bytes"].as_u64(), first["at_byte"].as_u64()), (Some(4), Some(0)));
    let (a, b) = (one.to_str().expect("UTF-8"), two.to_str().expect("UTF-8"));
    let text = holdfast(&["log", "diff", a, b]);
    assert!(
        stdout(&text).contains("SAFETY VIOLATION: two different entries of one term"),
        "{}",
        stdout(&text)
    );
    assert!(stderr(&text).contains("SAFETY VIOLATION"), "{}", stderr(&text));
    let none = holdfast(&["log", "diff", a, "/no/such/directory"]);
    assert_eq!(none.status.code(), Some(3));
}

/// The lines of `log dump --json` with these arguments, the summary last, and the exit status.
fn dump(dir: &Path, more: &[&str]) -> (Option<i32>, Vec<Value>) {
    let dir = dir.to_str().expect("UTF-8");
    let output = holdfast(&[&["log", "dump", dir, "--json"], more].concat());
    let text = stdout(&output);
    let line = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"));
    (output.status.code(), text.lines().map(line).collect())
}

/// Of a log whose node does not run, of so many records.
fn a_dump_chooses_and_hides_no_damage(dir: &Path, all: u64) {
    let range = ["--from", "5", "--to", "7"];
    let indexes = |told: &[Value]| -> Vec<_> {
        let records = told.iter().filter(|r| r["kind"] == "entry");
        records.map(|r| r["index"].as_u64().expect("an index")).collect()
    };
    let (code, some) = dump(dir, &[&range[..], &["--kind", "entry"]].concat());
    assert_eq!((code, indexes(&some)), (Some(0), vec![5, 6, 7]));
    let summary = some.last().expect("a summary");
    assert_eq!((some.len(), summary["records"].as_u64()), (4, Some(3)));
    assert_eq!(summary["passed_over"].as_u64(), Some(all - 3), "{summary}");

    let (_, commands) = dump(dir, &["--kind", "command,configuration"]);
    let put = |r: &&Value| r["entry"]["command"] == "kv_put" && r["entry"]["key"] == "k13";
    let put: Vec<_> = commands.iter().filter(put).collect();
    assert!(put.len() == 1 && put[0]["entry"]["value"] == "v", "{put:?}");
    let kinds = |kind: &str| commands.iter().filter(|r| r["entry"]["kind"] == kind).count();
    assert!(kinds("configuration") >= 1 && kinds("blank") == 0 && kinds("command") >= 20);
    let text = holdfast(&["log", "dump", dir.to_str().expect("UTF-8"), "--kind", "command"]);
    assert!(stdout(&text).contains(": command kv put \"k13\" = \"v\""), "{}", stdout(&text));
    assert!(stdout(&text).contains("passed over; the log ends with t"), "{}", stdout(&text));

    let copy = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(copy.path().join("log")).expect("made");
    for (path, bytes) in files(&dir.join("log")) {
        let name = Path::new(&path).file_name().expect("a name");
        std::fs::write(copy.path().join("log").join(name), bytes).expect("written");
    }
    let six = some.iter().find(|r| r["index"] == 6).expect("entry 6");
    let offset = six["offset"].as_u64().zip(six["len"].as_u64()).expect("a place");
    let file = copy.path().join(six["file"].as_str().expect("a file"));
    flip(&file, usize::try_from(offset.0 + offset.1 - 9).expect("small"));
    let (code, told) = dump(copy.path(), &[&range[..], &["--kind", "blank"]].concat());
    assert_eq!((code, indexes(&told)), (Some(1), vec![]));
    assert!(told[0]["kind"] == "none" && told[0]["offset"] == six["offset"], "{told:?}");
    let missing = |told: &[Value]| told.last().expect("a summary")["missing_here"].clone();
    assert_eq!(missing(&told), serde_json::json!([[6, 6]]));
    let (code, told) = dump(copy.path(), &["--from", "7"]);
    assert_eq!((code, missing(&told)), (Some(1), serde_json::json!([])), "it lies elsewhere");
    for wrong in [["--kind", "batch"], ["--from", "8"], ["--kind", "what"]] {
        assert_eq!(dump(dir, &[&range[2..], &wrong].concat()).0, Some(2), "{wrong:?}");
    }
}

fn explain(dir: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let mut args = vec!["explain-restart", dir.to_str().expect("UTF-8"), "--json"];
    args.extend(more);
    let output = holdfast(&args);
    let text = stdout(&output);
    let told = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    (output.status.code(), told)
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[offset] ^= 0x40;
    std::fs::write(path, bytes).expect("written");
}

/// Damages every third entry that holds a key.
fn damage_entries(data: &Path) {
    let dump = stdout(&holdfast(&["log", "dump", data.to_str().expect("UTF-8"), "--json"]));
    let records = dump.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let entries = records.filter(|r| r["kind"] == "entry" && r["len"].as_u64() > Some(100));
    for entry in entries.step_by(3) {
        let file = data.join(entry["file"].as_str().expect("a file"));
        let offset = entry["offset"].as_u64().expect("an offset");
        flip(&file, usize::try_from(offset).expect("small") + 70);
    }
}

/// Damages both headers of the newest segment.
fn damage_headers(data: &Path) {
    let log = std::fs::read_dir(data.join("log")).expect("a log");
    let paths = log.map(|entry| entry.expect("it stays").path());
    let segment = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('0'))
    };
    let newest = paths.filter(segment).max().expect("a segment");
    flip(&newest, 48);
    flip(&newest, 4096 + 48);
}

#[test]
fn a_start_is_explained_beside_a_live_node_and_does_what_was_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &["--segment-bytes", "65536"]);
    for i in 0..30 {
        assert_eq!(http(dev.http, "PUT", &format!("/v1/kv/k{i}"), &[b'v'; 100]).0, 200);
    }
    // Two watermarks behind the last write prove it durable.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let data: Vec<_> = (1..=3).map(|n| dir.path().join(format!("n{n}"))).collect();
    let (code, told) = explain(&data[1], &[]);
    assert!(code == Some(0) && told["live"] == true && told["end"] == "runs", "{told}");
    assert!(told["replica"]["acknowledges"].as_u64() >= Some(30), "{told}");
    assert_eq!(told["replica"]["stands"], true, "{told}");
    let lines = killed(&dev);

    std::fs::write(data[0].join("store/meta.redb"), vec![7; 5000]).expect("written");
    damage_entries(&data[1]);
    damage_headers(&data[2]);
    let before = files(dir.path());
    let told: Vec<_> = data.iter().map(|dir| explain(dir, &[])).collect();
    let text = holdfast(&["explain-restart", data[1].to_str().expect("UTF-8")]);
    assert!(files(dir.path()) == before, "not a byte has changed");
    assert!(stdout(&text).contains("on disk it would change"), "{}", stdout(&text));
    assert!(told.iter().all(|(_, told)| told["live"] == false));
    let codes: Vec<_> = told.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [Some(0), Some(0), Some(1)], "who is held would not come back");
    let kinds: Vec<_> = told.iter().map(|(_, told)| told["plan"]["kind"].clone()).collect();
    assert_eq!(kinds, ["set_aside", "replay", "look"]);
    let renamed = told[0].1["changes"].as_array().expect("changes");
    assert!(renamed.iter().any(|c| c["to"] == "store/stale-1.redb"), "{renamed:?}");

    for (n, (line, (_, told))) in (0..3u16).zip(lines.iter().zip(&told)) {
        let process = restart(line);
        let text = told["plan"]["text"].as_str().expect("words");
        process.wait_for_line("the plan that was told", |line| line.contains(text));
        let status = eventually("it answers", || {
            let port = dev.http + n;
            let (_, body) =
                listens(port).then(|| http(port, "GET", "/v1/status?scope=local", b""))?;
            serde_json::from_str::<Value>(&body).ok().filter(|status| !status["last"].is_null())
        });
        assert_eq!(status["held"], told["replica"]["held"], "{status}");
        assert_eq!(status["damaged"], told["replica"]["damaged"], "{status}");
    }
    assert!(data[0].join("store/stale-1.redb").is_file(), "as was told");
}

/// The exit status with standard output, or standard error, on a device that is full.
fn on_a_full_device(args: &[&str], stderr_too: bool) -> Option<i32> {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let mut command = common::binary();
    command.args(args).stdout(full());
    if stderr_too {
        command.stderr(full());
    }
    command.output().expect("it runs").status.code()
}

#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    assert_eq!(http(dev.http, "PUT", "/v1/kv/k", b"v").0, 200);
    let (data, url) = (dir.path().join("n1"), dev.url(0));
    let (data, url) = (data.to_str().expect("UTF-8"), url.as_str());
    let asks: [&[&str]; 8] = [
        &["log", "dump", data],
        &["log", "verify", data],
        &["log", "diff", data, data],
        &["explain-restart", data],
        &["status", "--endpoint", url],
        &["topic", "list", "--endpoint", url],
        &["kv", "get", "k", "--endpoint", url],
        &["kv", "put", "k", "v", "--endpoint", url],
    ];
    for ask in asks {
        for more in [&[][..], &["--json"]] {
            let args = [ask, more].concat();
            assert_eq!(holdfast(&args).status.code(), Some(0), "{args:?}");
            assert_eq!(on_a_full_device(&args, false), Some(3), "{args:?}");
            assert_eq!(on_a_full_device(&args, true), Some(3), "{args:?}");
        }
    }
    assert_eq!(on_a_full_device(&["--version"], false), Some(3));
    assert_eq!(on_a_full_device(&["serve", "--config", "/no/such/file"], true), Some(2));
}

#[test]
fn a_setting_that_a_node_would_refuse_is_refused_before_dev_writes_anything() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = dir.path().join("dev");
    let (http, peer) = (common::free_ports(3).to_string(), common::free_ports(3).to_string());
    let mut args = vec!["dev", "--dir", dev.to_str().expect("UTF-8"), "--segment-bytes", "5"];
    args.extend(["--http-base", &http, "--peer-base", &peer]);
    let output = holdfast(&args);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("segment_bytes"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty(), "{}", stdout(&output));
    assert!(!dev.join("n1.toml").exists() && !dev.join("n1").exists());
}

#[test]
fn a_start_that_would_be_refused_is_told_with_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    assert_eq!(http(dev.http, "PUT", "/v1/kv/k", b"v").0, 200);
    dev.stop();
    let data = dir.path().join("n1");
    let config = dir.path().join("other.toml");
    std::fs::write(&config, "name = 'n9'\n").expect("written");
    let (code, told) = explain(&data, &["--config", config.to_str().expect("UTF-8")]);
    assert!(code == Some(1) && told["end"] == "refused" && told["refused_by"] == "home", "{told}");
    assert!(told["why"].as_str().is_some_and(|why| why.contains("configured as `n9`")), "{told}");
    std::fs::rename(data.join("log"), dir.path().join("elsewhere")).expect("renamed");
    let (code, told) = explain(&data, &[]);
    assert!(code == Some(1) && told["why"].as_str().is_some_and(|why| why.contains("is gone")));
    let nowhere = holdfast(&["explain-restart", "/no/such/directory"]);
    assert_eq!(nowhere.status.code(), Some(3), "{}", stderr(&nowhere));
    let empty = tempfile::tempdir().expect("a directory");
    let (code, told) = explain(empty.path(), &[]);
    assert!(code == Some(0) && told["end"] == "waits", "{told}");
    assert!(files(empty.path()).is_empty(), "nothing was made");
}

//! Bad input and hostile surroundings: one clear message, and nothing is lost.

mod common;

use common::{Dev, Process, binary, eventually, free_ports, holdfast, http, kill, metric, stderr};
use holdfast_consensus::wire::{Frame, FrameKind, encode_frame};
use holdfast_consensus::{ClusterId, MemberId};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

/// A node with both listeners on loopback.
fn serve(name: &str, members: &str, http: u16, dir: &Path, more: &[&str]) -> Command {
    let mut command = binary();
    command.args(["serve", "--name", name, "--initial-members", members]);
    command.args(["--http-addr", &format!("127.0.0.1:{http}")]).args(more);
    command.arg("--data-dir").arg(dir);
    command
}

#[test]
fn each_bad_request_is_answered_with_its_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    let big = vec![b'x'; 300 << 10];
    let value = vec![b'x'; 70 << 10];
    let long_key = format!("/v1/kv/{}", "k".repeat(300));
    let long_name = format!("/v1/topics/{}", "n".repeat(300));
    let cases: [(&str, &str, &[u8], u16, &str); 26] = [
        ("POST", "/v1/topics", br#"{"name":"good","partitions":1}"#, 201, "incarnation"),
        ("POST", "/v1/topics", br#"{"name":"good","partitions":1}"#, 409, "topic_exists"),
        ("POST", "/v1/topics", br#"{"name":"a b","partitions":1}"#, 400, "249 characters"),
        ("POST", "/v1/topics", br#"{"name":"zero","partitions":0}"#, 400, "partitions"),
        ("POST", "/v1/topics", br#"{"name":"#, 400, "invalid_argument"),
        ("GET", "/v1/topics/none", b"", 404, "topic_not_found"),
        ("DELETE", "/v1/topics/none", b"", 404, "topic_not_found"),
        ("PUT", "/v1/kv/a?expected=b", b"c", 412, "cas_mismatch"),
        ("PUT", "/v1/kv/a", &value, 413, "65536"),
        ("GET", "/v1/topics?limit=0", b"", 400, "at least 1"),
        ("PUT", "/v1/kv/a", &big, 413, "too_large"),
        ("PUT", &long_key, b"v", 400, "256 bytes"),
        ("GET", &long_key, b"", 400, "256 bytes"),
        ("PUT", "/v1/kv/", b"v", 400, "256 bytes"),
        ("GET", "/v1/kv/", b"", 400, "256 bytes"),
        ("GET", &long_name, b"", 400, "249 characters"),
        ("DELETE", "/v1/topics/", b"", 400, "249 characters"),
        ("PUT", "/v1/kv/a?expected=%ff", b"c", 400, "expected_hex"),
        ("PUT", "/v1/kv/a?expected=%f", b"c", 400, "hexadecimal"),
        ("PUT", "/v1/kv/a%zz", b"c", 400, "hexadecimal"),
        ("GET", "/v1/topics?after=%ff", b"", 400, "UTF-8"),
        ("GET", "/v1/kv/a?lvel=linearizable", b"", 400, "lvel"),
        ("DELETE", "/v1/kv/a?expected=b", b"", 400, "expected"),
        ("DELETE", "/v1/topics/good?level=linearizable", b"", 400, "level"),
        ("GET", "/nowhere", b"", 404, "no_such_route"),
        ("POST", "/v1/kv/a", b"", 405, "method_not_allowed"),
    ];
    for (method, path, body, status, word) in cases {
        let (found, text) = http(dev.http, method, path, body);
        assert_eq!(found, status, "{method} {path}: {text}");
        assert!(text.contains(word), "{method} {path}: {text}");
        assert!(text.len() < 300, "what was sent is not echoed at length: {text}");
    }
    let (status, _) = http(dev.http, "PUT", "/v1/kv/a?absent=true", b"first");
    assert_eq!(status, 200);
    let (status, text) = http(dev.http, "PUT", "/v1/kv/a?absent=true", b"second");
    assert!(status == 412 && text.contains("first"), "{status} {text}");
    dev.stop();
}

/// Sends bytes to a peer port and returns once the node has closed the connection.
fn send_to_peer_port(port: u16, bytes: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the node listens");
    stream.write_all(bytes).expect("the node reads");
    let mut rest = Vec::new();
    // A reset is as good an end as any.
    if let Err(e) = stream.read_to_end(&mut rest) {
        assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}");
    }
    assert!(rest.is_empty(), "a stranger learned {rest:02x?}");
}

#[test]
fn a_false_frame_is_refused_counted_and_harmless() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    let frame = Frame {
        kind: FrameKind::Hello,
        cluster: ClusterId(7),
        epoch: 0,
        group: 0,
        from: MemberId(1),
        to: MemberId(2),
    };
    let good = encode_frame(&frame, b"no handshake").expect("small").to_vec();
    let mut long = good.clone();
    long[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut future = good.clone();
    future[4] = 99;
    let mut rotten = good.clone();
    rotten[70] ^= 1;
    for bytes in [long, rotten, good, b"GET / HTTP/1.1\r\nhost: peers\r\n\r\n".repeat(4)] {
        send_to_peer_port(dev.peer_port(0), &bytes);
    }
    send_to_peer_port(dev.peer_port(0), &future);
    eventually("the refusals are counted", || {
        let frames = metric(dev.http, "holdfast_peer_rejected_total{reason=\"frame\"}");
        let versions = metric(dev.http, "holdfast_peer_rejected_total{reason=\"frame_version\"}");
        (frames == 4 && versions == 1).then_some(())
    });
    let log = std::fs::read_to_string(dir.path().join("n1.log")).expect("a log");
    assert!(log.contains("exceeds") && log.contains("frame version 99"), "{log}");
    assert_eq!(http(dev.http, "PUT", "/v1/kv/a", b"b").0, 200);
    dev.stop();
}

#[test]
fn a_taken_port_names_the_option_that_changes_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken_port = taken.local_addr().expect("an address").port();
    let (port, free) = (taken_port.to_string(), free_ports(2));
    let dir_text = dir.path().to_str().expect("UTF-8");
    let dev = ["dev", "--nodes", "1", "--dir", dir_text, "--peer-base", &free.to_string()]
        .map(str::to_owned);
    let output = binary().args(&dev).args(["--http-base", &port]).output().expect("runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("--http-base"), "{}", stderr(&output));

    let members = format!("n1=127.0.0.1:{taken_port}");
    let mut node = Process::start(serve("n1", &members, free, &dir.path().join("n1"), &[]));
    assert_eq!(node.ended(), Some(3));
    assert!(node.text().contains("--peer-addr"), "{}", node.text());
}

#[test]
fn a_data_directory_in_use_or_of_another_node_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    let ports = free_ports(2);
    let data = dir.path().join("n1");
    let members = format!("n1=127.0.0.1:{}", ports + 1);
    let mut second = Process::start(serve("n1", &members, ports, &data, &[]));
    assert_eq!(second.ended(), Some(3));
    assert!(second.text().contains("another process uses"), "{}", second.text());
    dev.stop();

    let members = format!("other=127.0.0.1:{}", ports + 1);
    let mut other = Process::start(serve("other", &members, ports, &data, &[]));
    assert_eq!(other.ended(), Some(3));
    assert!(other.text().contains("n1") && other.text().contains("other"), "{}", other.text());
}

#[test]
fn a_node_of_another_cluster_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let ports = free_ports(4);
    let (alpha, beta) = (dir.path().join("alpha"), dir.path().join("beta"));
    let alpha_at = format!("alpha=127.0.0.1:{}", ports + 2);
    let beta_at = format!("beta=127.0.0.1:{}", ports + 3);
    let new = ["--cluster-state", "new"];
    let first = Process::start(serve("alpha", &alpha_at, ports, &alpha, &new));
    let mut second = Process::start(serve("beta", &beta_at, ports + 1, &beta, &new));
    for node in [&first, &second] {
        node.wait_for_line("a cluster of its own", |line| line.contains("founded cluster"));
    }
    kill(second.pid(), Signal::TERM);
    assert_eq!(second.ended(), Some(0), "{}", second.text());

    // Each has formed a cluster of one; now the second is told that the first is its peer.
    let both = format!("{alpha_at},{beta_at}");
    let second = Process::start(serve("beta", &both, ports + 1, &beta, &new));
    let line = second.wait_for_line("the refusal", |line| line.contains("belongs to cluster"));
    assert!(line.contains("alpha"), "{line}");
    eventually("the refusal is counted on both sides", || {
        let counter = "holdfast_peer_rejected_total{reason=\"cluster\"}";
        (metric(ports, counter) > 0 && metric(ports + 1, counter) > 0).then_some(())
    });
    drop(first);
}

#[test]
fn different_tokens_never_meet() {
    let dir = tempfile::tempdir().expect("a directory");
    let ports = free_ports(4);
    let members = format!("n1=127.0.0.1:{},n2=127.0.0.1:{}", ports + 2, ports + 3);
    let mut nodes = Vec::new();
    for (i, token) in ["0123456789abcdef0123456789abcdef", "another token of 32 characters or more"]
        .iter()
        .enumerate()
    {
        let name = format!("n{}", i + 1);
        let file = dir.path().join(format!("{name}.token"));
        std::fs::write(&file, token).expect("written");
        let more = ["--peer-token-file", file.to_str().expect("UTF-8"), "--cluster-state", "new"];
        let port = ports + u16::try_from(i).expect("small");
        let command = serve(&name, &members, port, &dir.path().join(&name), &more);
        nodes.push(Process::start(command));
    }
    for (i, node) in nodes.iter().enumerate() {
        node.wait_for_line("the refusal", |line| line.contains("the peer token differs"));
        let port = ports + u16::try_from(i).expect("small");
        let (status, body) = http(port, "GET", "/readyz", b"");
        assert!(status == 503 && body.contains("waiting for"), "{status} {body}");
        assert!(metric(port, "holdfast_peer_rejected_total{reason=\"token\"}") > 0);
    }
}

#[test]
fn bad_configuration_and_usage_exit_with_2_and_name_the_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("n1.toml");
    std::fs::write(&file, "name = 'n1'\nheart_beat = 3\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let cases: [(&[&str], &str); 8] = [
        (&["serve", "--config", file], "heart_beat"),
        (&["serve", "--name", "n1"], "data_dir"),
        (&["serve", "--name", "n1", "--data-dir", "x", "--peer-addr", "0.0.0.0:1"], "insecure"),
        (&["status", "--endpoint", "nonsense"], "nonsense"),
        (&["status", "--timeout", "0"], "above 0"),
        (&["status", "--endpoint", "http://localhost:99999"], "99999"),
        (&["dev", "--peer-base", "0", "--dir", dir.path().to_str().expect("UTF-8")], "--peer-base"),
        (&["bench", "--protocol", "binary"], "binary"),
    ];
    for (args, word) in cases {
        let output = holdfast(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(word), "{args:?}: {}", stderr(&output));
    }
    let nobody = format!("http://127.0.0.1:{}", free_ports(1));
    let output = holdfast(&["status", "--endpoint", &nobody, "--timeout", "0.3", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON, always");
    assert_eq!(said["code"], "environment", "{said}");
    assert!(said["message"].as_str().is_some_and(|m| m.contains("cannot reach")), "{said}");
    assert_eq!(said["may_commit"], serde_json::Value::Null, "a read commits nothing: {said}");
    // A person who waits is told what for, and a program that nothing was written.
    let args = ["kv", "put", "a", "b", "--endpoint", &nobody, "--timeout", "1.6", "--json"];
    let output = holdfast(&args);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot reach"), "{}", stderr(&output));
    assert!(stderr(&output).contains("trying for"), "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON, always");
    assert_eq!(said["may_commit"], false, "{said}");
    let help = common::stdout(&holdfast(&["--help"]));
    assert!(help.starts_with("Replicated metadata that survives kill -9"), "{help}");
}

/// Turns one byte of an acknowledged entry, in the middle of the records.
fn damage_log(data: &Path) {
    let dump = holdfast(&["log", "dump", data.to_str().expect("UTF-8"), "--json"]);
    assert_eq!(dump.status.code(), Some(0), "a whole log is no failure: {}", stderr(&dump));
    let lines = common::stdout(&dump);
    let entries: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON lines"))
        .filter(|record: &serde_json::Value| record["kind"] == "entry")
        .collect();
    let entry = &entries[entries.len() / 2];
    let (file, offset) = (entry["file"].as_str(), entry["offset"].as_u64());
    let path = data.join(file.expect("a file"));
    let mut bytes = std::fs::read(&path).expect("a segment");
    let at = usize::try_from(offset.expect("an offset") + 70).expect("small");
    bytes[at] ^= 0x40;
    std::fs::write(&path, bytes).expect("written");
}

#[test]
fn a_damaged_log_is_reported_with_the_identity_of_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    for i in 0..20 {
        assert_eq!(http(dev.http, "PUT", &format!("/v1/kv/k{i}"), &[b'v'; 100]).0, 200);
    }
    dev.stop();
    let data = dir.path().join("n1");
    damage_log(&data);
    let data = data.to_str().expect("UTF-8");
    let verify = holdfast(&["log", "verify", data, "--json"]);
    assert_eq!(verify.status.code(), Some(1), "{}", stderr(&verify));
    let report: serde_json::Value = serde_json::from_slice(&verify.stdout).expect("JSON");
    assert_eq!(report["healthy"], false, "{report}");
    // The entry's identity survives in the side index, and what is proved is told.
    assert_eq!(report["fault"], serde_json::Value::Null, "{report}");
    assert_eq!(report["damage"][0]["row"], "P5", "{report}");
    assert_eq!(report["damage"][0]["index"], report["holes"][0]["index"], "{report}");
    assert_eq!(report["holes"].as_array().map(Vec::len), Some(1), "{report}");
    assert!(report["last_index"].as_u64() > report["holes"][0]["index"].as_u64(), "{report}");
    let text = common::stdout(&holdfast(&["log", "verify", data]));
    assert!(text.contains("DAMAGED") && text.contains("given back by peers"), "{text}");
    let dump = holdfast(&["log", "dump", data]);
    assert_eq!(dump.status.code(), Some(1), "damage is a failed check: {}", stderr(&dump));
    assert!(common::stdout(&dump).lines().any(|line| line.starts_with('!')), "it is marked");
}

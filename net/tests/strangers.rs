//! What others do to a node without meaning it well, or without knowing: requests that never end, log
//! lines that nobody takes, a node that hangs.

mod common;

use common::{Dev, Process, binary, eventually, free_ports, holdfast, http, kill, metric, stdout};
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// A cluster of one, with its HTTP port.
fn alone(dir: &Path, more: &[&str]) -> (Command, u16) {
    let port = free_ports(2);
    let mut command = binary();
    command.args(["serve", "--name", "n1", "--cluster-state", "new", "--initial-members"]);
    command.arg(format!("n1=127.0.0.1:{}", port + 1)).arg("--data-dir").arg(dir);
    command.args(["--http-addr", &format!("127.0.0.1:{port}")]).args(more);
    (command, port)
}

fn is_ready(port: u16) {
    eventually("the node is ready", || {
        (common::listens(port) && http(port, "GET", "/readyz", b"").0 == 200).then_some(())
    });
}

#[test]
fn requests_that_never_end_hold_no_more_than_the_connections_that_are_allowed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (command, port) = alone(dir.path(), &["--http-connections", "8"]);
    let _node = Process::start(command);
    is_ready(port);
    let half = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the node listens");
        stream
            .write_all(b"PUT /v1/kv/a HTTP/1.1\r\nhost: x\r\ncontent-le")
            .expect("the node reads");
        stream
    };
    // Connections that were just closed may count for a moment.
    let held = eventually("eight are held, and the ninth is told so", || {
        let held: Vec<_> = (0..8).map(|_| half()).collect();
        // And still told so when whatever was closed before does not count any more.
        for wait in [0, 500] {
            std::thread::sleep(std::time::Duration::from_millis(wait));
            let mut one_more = TcpStream::connect(("127.0.0.1", port)).expect("the node listens");
            let request = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            one_more.write_all(request).ok()?;
            let mut said = String::new();
            one_more.read_to_string(&mut said).ok()?;
            said.starts_with("HTTP/1.1 503").then_some(())?;
            assert!(said.contains("too_many_connections"), "{said}");
        }
        Some(held)
    });
    // Our own commands are told so as well, with a body of any size, and know that nothing was done.
    let (url, long) = (format!("http://127.0.0.1:{port}"), "x".repeat(60_000));
    for words in [&["kv", "get", "a"][..], &["kv", "put", "a", "b"], &["kv", "put", "a", &long]] {
        let args = [words, &["--json", "--timeout", "3", "--endpoint", &url]].concat();
        let output = holdfast(&args);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said["code"], "too_many_connections", "{said}");
        assert_ne!(said["may_commit"], true, "{said}");
    }
    drop(held);
    is_ready(port);
    assert_eq!(http(port, "GET", "/v1/kv/a", b"").0, 404);
    assert_eq!(http(port, "PUT", "/v1/kv/a", b"b").0, 200);
    assert!(metric(port, "holdfast_http_refused_total{reason=\"connections\"}") > 0);
}

/// Writes a value, and finds that lines were lost.
fn goes_on(port: u16, mut node: Process) {
    is_ready(port);
    assert_eq!(http(port, "PUT", "/v1/kv/a", b"b").0, 200);
    assert!(metric(port, "holdfast_log_lines_lost_total") > 0);
    kill(node.pid(), Signal::TERM);
    assert_eq!(node.ended(), Some(0));
}

#[test]
fn a_node_goes_on_when_nobody_reads_its_log_and_when_the_disk_under_it_is_full() {
    for format in ["text", "json"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut command, port) = alone(dir.path(), &["--log", "debug", "--log-format", format]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the node starts");
        drop(child.stderr.take());
        goes_on(port, Process::of(child));

        let dir = tempfile::tempdir().expect("a directory");
        let (mut command, port) = alone(dir.path(), &["--log-format", format]);
        let full = OpenOptions::new().write(true).open("/dev/full").expect("there");
        goes_on(port, Process::of(command.stderr(full).spawn().expect("the node starts")));
    }
}

#[test]
fn a_node_that_hangs_does_not_use_up_the_time_of_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    assert_eq!(http(dev.http, "PUT", "/v1/kv/a", b"b").0, 200);
    let (_, _, leader) = dev.leader();
    let hung = (leader + 1) % 3;
    let members = dev.status()["members"].clone();
    let pid = members[usize::from(hung)]["pid"].as_u64().expect("a process id");
    kill(pid, Signal::STOP);
    for words in
        [&["kv", "get", "a"][..], &["kv", "put", "c", "d"], &["topic", "list"], &["status"]]
    {
        let args = dev.args(hung, words);
        let output = holdfast(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{words:?}: {}", common::stderr(&output));
        if words[0] == "kv" && words[1] == "get" {
            assert_eq!(stdout(&output).trim_end(), "b");
        }
    }
    kill(pid, Signal::CONT);
    dev.stop();
}

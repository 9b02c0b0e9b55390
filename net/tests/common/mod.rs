//! Real processes for the tests of this folder.
#![allow(dead_code, reason = "each test file uses its own part of this module")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    // Nothing of the caller's environment may configure the nodes of a test.
    for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("HOLDFAST_")) {
        command.env_remove(key);
    }
    command
}

/// Runs the binary to its end.
pub(crate) fn holdfast(args: &[&str]) -> Output {
    binary().args(args).output().expect("the binary runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the binary, demands success, and returns its standard output as JSON.
pub(crate) fn json(args: &[&str]) -> Value {
    let output = holdfast(args);
    assert!(output.status.success(), "{args:?}: {}{}", stdout(&output), stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

/// Tries until it holds.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first of `count` consecutive ports that nobody uses now. The process id spreads test
/// binaries that run at the same time.
pub(crate) fn free_ports(count: u16) -> u16 {
    static NEXT: Mutex<u16> = Mutex::new(0);
    let mut next = NEXT.lock().expect("unpoisoned");
    let start = 20_000 + u16::try_from(std::process::id() % 500).expect("below 500") * 20;
    loop {
        let base = start + *next;
        *next += count;
        assert!(*next < 5000, "no free ports");
        if (base..base + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

pub(crate) fn kill(pid: u64, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).expect("a process id");
    let pid = rustix::process::Pid::from_raw(pid).expect("not zero");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// A child process whose output lines are kept; it is killed when the value drops.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// A child that was started by hand, whose output nobody reads.
    pub(crate) fn of(child: Child) -> Self {
        Self { child, lines: Arc::default() }
    }

    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        collect(child.stdout.take().expect("piped"), &lines);
        collect(child.stderr.take().expect("piped"), &lines);
        Self { child, lines }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("unpoisoned").clone()
    }

    pub(crate) fn text(&self) -> String {
        self.lines().join("\n")
    }

    pub(crate) fn pid(&self) -> u64 {
        u64::from(self.child.id())
    }

    /// Waits for the end and returns the exit status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        eventually("the process ends", || self.child.try_wait().expect("a child")).code()
    }

    pub(crate) fn wait_for_line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.lines().into_iter().find(|line| wanted(line)) {
                return line;
            }
            assert!(
                Instant::now() < until,
                "not within {PATIENCE:?}: {what}; it said:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().expect("a child of this process");
            self.child.wait().expect("a child of this process");
        }
    }
}

fn collect(from: impl Read + Send + 'static, into: &Arc<Mutex<Vec<String>>>) {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            into.lock().expect("unpoisoned").push(line);
        }
    });
}

/// A cluster under `holdfast dev`.
pub(crate) struct Dev {
    pub(crate) process: Process,
    pub(crate) http: u16,
    pub(crate) nodes: u16,
}

impl Dev {
    pub(crate) fn start(dir: &Path, nodes: u16, more: &[&str]) -> Self {
        let http = free_ports(2 * nodes);
        Self::start_at(dir, nodes, http, more)
    }

    pub(crate) fn start_at(dir: &Path, nodes: u16, http: u16, more: &[&str]) -> Self {
        let mut command = binary();
        command.arg("dev").arg("--dir").arg(dir).args(more).args([
            "--nodes",
            &nodes.to_string(),
            "--http-base",
            &http.to_string(),
            "--peer-base",
            &(http + nodes).to_string(),
        ]);
        let mut process = Process::start(command);
        eventually("dev is ready", || {
            let ended = process.child.try_wait().expect("a child");
            assert!(ended.is_none(), "dev ended early: {}", process.text());
            process.lines().iter().any(|line| line == "ready").then_some(())
        });
        Self { process, http, nodes }
    }

    pub(crate) fn url(&self, node: u16) -> String {
        format!("http://127.0.0.1:{}", self.http + node)
    }

    pub(crate) fn peer_port(&self, node: u16) -> u16 {
        self.http + self.nodes + node
    }

    /// `args` and an endpoint for every node, beginning with `first`.
    pub(crate) fn args(&self, first: u16, args: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        for i in 0..self.nodes {
            all.push("--endpoint".to_owned());
            all.push(self.url((first + i) % self.nodes));
        }
        all
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let all = self.args(0, args);
        json(&all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let all = self.args(0, args);
        holdfast(&all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn status(&self) -> Value {
        self.json(&["status", "--json"])
    }

    /// Name, process id and position of the leader.
    pub(crate) fn leader(&self) -> (String, u64, u16) {
        eventually("a leader", || {
            let status = self.status();
            let name = status["leader"].as_str()?.to_owned();
            let members = status["members"].as_array()?;
            let at = members.iter().position(|m| m["name"] == name.as_str())?;
            Some((name, members[at]["pid"].as_u64()?, u16::try_from(at).ok()?))
        })
    }

    /// Asks `dev` to stop and waits until it has.
    pub(crate) fn stop(mut self) {
        kill(self.process.pid(), rustix::process::Signal::TERM);
        assert_eq!(self.process.ended(), Some(0), "{}", self.process.text());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // `dev` gone, its nodes go as well: they hold a pipe to it.
        if std::thread::panicking() {
            eprintln!("dev said:\n{}", self.process.text());
        }
    }
}

/// True if somebody listens there.
pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// One request by hand: status and body.
pub(crate) fn http(port: u16, method: &str, path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the node listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the node reads");
    // A node that refuses a large body may answer before it has read all of it.
    let sent = stream.write_all(body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer ({sent:?}, {read:?}): {answer:?}"));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// The value of a metric, zero if it is not there yet.
pub(crate) fn metric(port: u16, name: &str) -> u64 {
    let (_, text) = http(port, "GET", "/metrics", b"");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.trim().parse().expect("a number"))
}

/// Kills every node of `dev`; the lines that start them again, by number.
pub(crate) fn killed(dev: &Dev) -> Vec<String> {
    for member in dev.status()["members"].as_array().expect("members") {
        kill(member["pid"].as_u64().expect("a process id"), rustix::process::Signal::KILL);
    }
    let line = |node: u16| {
        let name = format!("n{node}");
        dev.process.wait_for_line("the line that starts it again", |line| {
            line.contains("holdfast serve --config ") && line.contains(&name)
        })
    };
    (1..=dev.nodes).map(line).collect()
}

/// Starts a node again by such a line.
pub(crate) fn restart(line: &str) -> Process {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("an executable"));
    command.args(words);
    Process::start(command)
}

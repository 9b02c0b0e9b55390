//! `holdfast dev`: a local cluster of real processes on loopback.

use super::{Failure, dev_dir, print_line};
use crate::client;
use crate::config::{MemberEntry, Settings};
use crate::stderr::say;
use bytes::Bytes;
use clap::Args;
use hyper::{Method, StatusCode};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How long the nodes may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the nodes may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two looks at a node that is not ready.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Args, Clone)]
pub(super) struct DevArgs {
    /// Number of nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// Directory for the nodes' data, configuration and logs
    #[arg(long, default_value = ".holdfast-dev")]
    dir: PathBuf,
    /// HTTP port of the first node; the others follow
    #[arg(long, default_value_t = 7600)]
    http_base: u16,
    /// Peer port of the first node; the others follow
    #[arg(long, default_value_t = 7700)]
    peer_base: u16,
    /// Take a snapshot after this many entries, and keep as many behind it
    #[arg(long)]
    snapshot_entries: Option<u64>,
    /// Size of a log segment in bytes [default: small enough for --snapshot-entries]
    #[arg(long)]
    segment_bytes: Option<u64>,
}

/// One node of the cluster.
struct Spawned {
    name: String,
    http: String,
    log: PathBuf,
    restart: String,
    pid: u32,
}

/// A child that ended.
struct Ended {
    node: usize,
    status: std::io::Result<ExitStatus>,
}

pub(super) async fn run(args: DevArgs) -> Result<(), Failure> {
    check_ports(&args)?;
    let exe = executable()?;
    let dir = directory(&args.dir)?;
    // Held to the end of this function: the directory is this process's until its nodes are gone.
    let mut claimed = dev_dir::claim(&dir)?;
    let all: Vec<_> = (0..args.nodes).map(|i| settings(&args, &dir, i)).collect();
    // What a node would refuse is refused before anything is written or said.
    for settings in &all {
        settings.clone().validate().map_err(|e| Failure::usage(e.to_string()))?;
    }
    let changes = claimed.configure(&all)?;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let (stop, _) = tokio::sync::watch::channel(false);
    let mut nodes = Vec::new();
    for i in 0..args.nodes {
        let formed = claimed.is_formed(&format!("n{}", i + 1));
        nodes.push(start_node(&args, &exe, &dir, (i, formed), &ended, &stop)?);
    }
    announce(&nodes, &dir);
    changes.iter().for_each(|line| print_line(line));
    let end = tokio::select! {
        end = until_ready(&nodes, &mut ends) => end,
        () = asked_to_stop() => Ok(false),
    };
    let end = match end {
        Ok(true) => {
            print_line("ready");
            stay(&nodes, &mut ends).await;
            Ok(())
        }
        Ok(false) => Ok(()),
        Err(failure) => Err(failure),
    };
    stop.send_replace(true);
    drop(ended);
    // Every watcher reports its child's end and then drops its sender.
    let all = async { while ends.recv().await.is_some() {} };
    if tokio::time::timeout(STOP_WITHIN + Duration::from_secs(2), all).await.is_err() {
        say(format_args!("some nodes did not stop in time"));
    }
    end
}

fn check_ports(args: &DevArgs) -> Result<(), Failure> {
    for (base, flag, what) in
        [(args.http_base, "--http-base", "HTTP"), (args.peer_base, "--peer-base", "peer")]
    {
        if base == 0 {
            return Err(Failure::usage(format!("{flag}: 0 is no port; give one above it")));
        }
        for i in 0..args.nodes {
            let port = base.checked_add(i).ok_or_else(|| {
                Failure::usage(format!("{flag}: {base} leaves no room for {} ports", args.nodes))
            })?;
            // Dropped at once: the node binds it for good a moment later.
            if let Err(e) = TcpListener::bind(("127.0.0.1", port)) {
                return Err(Failure::environment(format!(
                    "cannot use port {port} for the {what} listener of n{}: {e}; stop whoever uses it, or choose other ports with {flag}",
                    i + 1
                )));
            }
        }
    }
    let (low, high) = (args.http_base.min(args.peer_base), args.http_base.max(args.peer_base));
    if high - low < args.nodes {
        return Err(Failure::usage(
            "--http-base and --peer-base overlap; keep them apart by at least the number of nodes",
        ));
    }
    Ok(())
}

fn executable() -> Result<PathBuf, Failure> {
    let exe = std::env::current_exe()
        .map_err(|e| Failure::environment(format!("cannot find this executable: {e}")))?;
    no_blanks(&exe, "the path of the executable; move it to a path without")?;
    if exe.file_name().is_some_and(|name| name == "holdfast") {
        Ok(exe)
    } else {
        Err(Failure::environment(format!(
            "the executable is {}; it must be called holdfast, so that the printed lines work",
            exe.display()
        )))
    }
}

/// The printed restart lines are pasted into shells and cut apart by scripts.
fn no_blanks(path: &Path, what: &str) -> Result<(), Failure> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_whitespace) => Ok(()),
        _ => Err(Failure::usage(format!(
            "the path {} has blanks in it, or bytes that are not UTF-8: {what}",
            path.display()
        ))),
    }
}

fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    let failed = |e: std::io::Error| {
        Failure::environment(format!("--dir: cannot use {}: {e}", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    let dir = dir.canonicalize().map_err(failed)?;
    no_blanks(&dir, "choose another directory with --dir")?;
    Ok(dir)
}

fn settings(args: &DevArgs, dir: &Path, i: u16) -> Settings {
    let http = |i: u16| format!("127.0.0.1:{}", args.http_base + i);
    let peer = |i: u16| format!("127.0.0.1:{}", args.peer_base + i);
    let member = |i: u16| MemberEntry {
        name: format!("n{}", i + 1),
        peer: peer(i),
        http: Some(format!("http://{}", http(i))),
    };
    Settings {
        name: Some(format!("n{}", i + 1)),
        data_dir: Some(dir.join(format!("n{}", i + 1))),
        http_addr: Some(http(i)),
        peer_addr: Some(peer(i)),
        initial_members: Some((0..args.nodes).map(member).collect()),
        snapshot_entries: args.snapshot_entries,
        segment_bytes: args.segment_bytes.or(args.snapshot_entries.map(segment_for)),
        ..Settings::default()
    }
}

/// Only whole segments are given up: with few entries between snapshots, segments must be small,
/// or nothing would ever be compacted. A batch of one entry takes a block or two.
fn segment_for(snapshot_entries: u64) -> u64 {
    snapshot_entries.saturating_mul(8192).clamp(256 << 10, 16 << 20)
}

fn start_node(
    args: &DevArgs,
    exe: &Path,
    dir: &Path,
    (i, formed): (u16, bool),
    ended: &mpsc::UnboundedSender<Ended>,
    stop: &tokio::sync::watch::Sender<bool>,
) -> Result<Spawned, Failure> {
    let name = format!("n{}", i + 1);
    let config = dir.join(format!("{name}.toml"));
    let log = dir.join(format!("{name}.log"));
    let failed = |what: &Path, e: &dyn std::fmt::Display| {
        Failure::environment(format!("cannot write {}: {e}", what.display()))
    };
    let out = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(|e| failed(&log, &e))?;
    let err = out.try_clone().map_err(|e| failed(&log, &e))?;
    let mut command = Command::new(exe);
    command.arg("serve").arg("--config").arg(&config).arg("--stop-with-stdin");
    // Only a directory without the mark may take part in forming; a node that is started again
    // by hand waits for the cluster that lists it.
    if !formed {
        command.arg("--cluster-state").arg("new");
    }
    // The pipe on standard input ends with this process, however it ends.
    let child = command
        .stdin(Stdio::piped())
        .stdout(out)
        .stderr(err)
        // Ctrl-C at the terminal is for `dev`, which then stops its children in order.
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::environment(format!("cannot start {}: {e}", exe.display())))?;
    let pid = child.id().unwrap_or_default();
    let node = usize::from(i);
    tokio::spawn(watch(node, child, ended.clone(), stop.subscribe()));
    Ok(Spawned {
        http: format!("http://127.0.0.1:{}", args.http_base + i),
        restart: format!("{} serve --config {}", exe.display(), config.display()),
        name,
        log,
        pid,
    })
}

/// Waits for a child; asks it to stop when told to, and kills it if it does not.
async fn watch(
    node: usize,
    mut child: Child,
    ended: mpsc::UnboundedSender<Ended>,
    mut stop: tokio::sync::watch::Receiver<bool>,
) {
    // Taken now: waiting for a child closes its standard input, which would stop it.
    let pipe = child.stdin.take();
    let by_itself = tokio::select! {
        status = child.wait() => Some(status),
        _ = stop.changed() => None,
    };
    // The child stops when its standard input ends.
    drop(pipe);
    let status = match by_itself {
        Some(status) => status,
        None => match tokio::time::timeout(STOP_WITHIN, child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                if let Err(e) = child.start_kill() {
                    say(format_args!("cannot kill process {:?}: {e}", child.id()));
                }
                child.wait().await
            }
        },
    };
    if ended.send(Ended { node, status }).is_err() {
        say(format_args!("a node ended after dev"));
    }
}

fn announce(nodes: &[Spawned], dir: &Path) {
    print_line(&format!("a cluster of {} in {}", nodes.len(), dir.display()));
    for node in nodes {
        print_line(&format!(
            "  {}  {}  pid {}  log {}",
            node.name,
            node.http,
            node.pid,
            node.log.display()
        ));
    }
    let at = |i: usize| nodes.get(i).map_or("", |n| n.http.as_str());
    let other = at(1.min(nodes.len() - 1));
    print_line("try, in another terminal:");
    print_line(&format!("  holdfast status --endpoint {}", at(0)));
    print_line(&format!("  holdfast topic create orders --partitions 3 --endpoint {}", at(0)));
    print_line(&format!("  holdfast topic list --endpoint {other}"));
    print_line(&format!("  curl {other}/v1/topics/orders"));
    print_line("kill a node with kill -9 PID; Ctrl-C here stops them all");
}

/// True when every node is ready; a failure if one ends before.
async fn until_ready(
    nodes: &[Spawned],
    ends: &mut mpsc::UnboundedReceiver<Ended>,
) -> Result<bool, Failure> {
    let until = Instant::now() + READY_WITHIN;
    for node in nodes {
        let mut why = "it does not answer".to_owned();
        loop {
            if let Ok(ended) = ends.try_recv() {
                return Err(early_end(&nodes[ended.node], &ended.status));
            }
            let within = Duration::from_secs(2);
            match client::once(&node.http, Method::GET, "/readyz", Bytes::new(), within).await {
                Ok(answer) if answer.status == StatusCode::OK => break,
                Ok(answer) => why = String::from_utf8_lossy(&answer.body).trim().to_owned(),
                Err(_) => {}
            }
            if Instant::now() >= until {
                return Err(Failure::environment(format!(
                    "{} is not ready after {} s: {why}; see {}",
                    node.name,
                    READY_WITHIN.as_secs(),
                    node.log.display()
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(true)
}

fn early_end(node: &Spawned, status: &std::io::Result<ExitStatus>) -> Failure {
    let text = std::fs::read_to_string(&node.log).unwrap_or_default();
    let tail: Vec<_> = text.lines().rev().take(3).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    Failure::environment(format!(
        "{} ended before it was ready ({}); its log {} ends with:\n{}",
        node.name,
        describe(status),
        node.log.display(),
        tail.join("\n")
    ))
}

fn describe(status: &std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match status.signal() {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("exit status {}", status.code().unwrap_or_default()),
        },
        Err(e) => format!("cannot be waited for: {e}"),
    }
}

/// Reports nodes that end, until somebody stops `dev`.
async fn stay(nodes: &[Spawned], ends: &mut mpsc::UnboundedReceiver<Ended>) {
    let stop = asked_to_stop();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            ended = ends.recv() => {
                let Some(ended) = ended else { return };
                let node = &nodes[ended.node];
                let how = describe(&ended.status);
                print_line(&format!("{} has ended ({how}); this starts it again:", node.name));
                print_line(&node.restart);
            }
        }
    }
}

/// Returns on SIGTERM or Ctrl-C.
pub(super) async fn asked_to_stop() {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(e) => {
            say(format_args!("cannot wait for SIGTERM: {e}"));
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => {
            if let Err(e) = interrupted {
                say(format_args!("cannot wait for Ctrl-C: {e}"));
            }
        }
    }
}

//! `holdfast serve`: one node.

use super::{Failure, runtime};
use crate::config::{Config, LogFormat, Settings};
use crate::http;
use crate::node;
use crate::stderr::{Lines, say};
use crate::vital::vital;
use clap::Args;
use holdfast_fsm::distrust;
use holdfast_log::RealDisk;
use std::io::{IsTerminal, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

/// Worker threads for sockets; the core loop and the lanes have their own.
const IO_THREADS: usize = 4;
/// How long open requests may take to end once the node stops.
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(super) struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Stop when standard input ends: whoever started the node holds the other end
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

pub(super) fn run(args: ServeArgs) -> Result<(), Failure> {
    let file = args.config.as_deref().map(Settings::read).transpose();
    let config = file
        .and_then(|file| file.unwrap_or_default().overlaid(args.settings).validate())
        .map_err(|e| Failure::usage(e.to_string()))?;
    start_logging(&config)?;
    stop_on_panic(config.data_dir.clone());
    runtime(IO_THREADS)?.block_on(serve(config, args.stop_with_stdin))
}

fn start_logging(config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|e| Failure::usage(format!("log: {:?} is no filter: {e}", config.log)))?;
    // A line that cannot be written is counted: it must not end whoever wrote it.
    let base = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines::new)
        .log_internal_errors(false);
    let started = match config.log_format {
        LogFormat::Json => base.json().try_init(),
        LogFormat::Text => {
            base.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init()
        }
    };
    started.map_err(|e| Failure::environment(format!("cannot start logging: {e}")))
}

/// A panic in the core loop or a lane ends the process: a node with half of its threads would
/// keep its peers waiting. A panic in a request ends only that request. A panic of the store's
/// library over a damaged page is caught where it is called, or ends the process if it meets more
/// damage on its way there: so the store is marked here, before it goes on.
fn stop_on_panic(data_dir: PathBuf) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if holdfast_fsm::panic_is_contained() {
            let what = info.to_string().replace('\n', " ");
            say(format_args!(
                "the store is damaged; a start sets it aside and rebuilds it ({what})"
            ));
            let marked = RealDisk::open(&data_dir).and_then(|disk| distrust(&disk, &what));
            if let Err(e) = marked {
                say(format_args!("the damaged store could not be marked: {e}"));
            }
            return;
        }
        before(info);
        let thread = std::thread::current();
        let ours = ["holdfast-core", "holdfast-log", "holdfast-apply", "holdfast-side"];
        if thread.name().is_some_and(|name| ours.iter().any(|o| name.starts_with(o))) {
            say("a broken invariant stops this node; nothing false was told");
            std::process::abort();
        }
    }));
}

async fn bind(key: &str, flag: &str, addr: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(addr).await.map_err(|e| {
        let remedy = match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("the port is taken; stop whoever uses it, or change it with {flag}")
            }
            _ => format!("{e}; correct it, in the file or with {flag}"),
        };
        Failure::environment(format!("{key}: cannot listen on {addr}: {remedy}"))
    })
}

async fn serve(config: Config, stop_with_stdin: bool) -> Result<(), Failure> {
    let http_listener = bind("http_addr", "--http-addr", config.http_addr).await?;
    let peer_listener = bind("peer_addr", "--peer-addr", config.peer_addr).await?;
    let (name, http_connections) = (config.name.clone(), config.http_connections);
    tracing::info!(
        "node {name}: HTTP on {}, peers on {}, data in {}",
        config.http_addr,
        config.peer_addr,
        config.data_dir.display()
    );
    let running =
        node::start(config, peer_listener).map_err(|e| Failure::environment(e.to_string()))?;
    let handle = std::sync::Arc::clone(&running.node);
    let (stop_http, http_stopped) = oneshot::channel::<()>();
    let app = http::router(std::sync::Arc::clone(&handle));
    let metrics = std::sync::Arc::clone(handle.metrics());
    let server = http::Server::new(http_listener, app, metrics, http_connections);
    let server = vital("HTTP server", server.run(http_stopped));
    let ended = running.join();
    tokio::pin!(ended);
    let end = tokio::select! {
        end = &mut ended => end,
        why = asked_to_stop(stop_with_stdin) => {
            tracing::info!("node {name} stops: {why}");
            handle.stop();
            ended.await
        }
    };
    if stop_http.send(()).is_err() {
        tracing::debug!("the HTTP server had ended");
    }
    if tokio::time::timeout(DRAIN, server).await.is_err() {
        tracing::debug!("some HTTP connections were still open");
    }
    match end {
        Ok(()) => {
            tracing::info!("node {name} has stopped");
            Ok(())
        }
        Err(e) => Err(Failure::environment(e.to_string())),
    }
}

async fn asked_to_stop(with_stdin: bool) -> &'static str {
    let stdin_ended = async {
        if with_stdin {
            stdin_end().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = on(SignalKind::terminate()) => "SIGTERM",
        () = on(SignalKind::interrupt()) => "Ctrl-C",
        () = stdin_ended => "the process that started it has ended",
    }
}

async fn on(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(e) => {
            tracing::error!("cannot wait for a signal: {e}");
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for the end of standard input on a thread of its own, which the exit of the process ends.
async fn stdin_end() {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        while matches!(std::io::stdin().read(&mut rest), Ok(n) if n > 0) {}
        if ended.send(()).is_err() {
            tracing::debug!("the node had ended before its standard input");
        }
    });
    if end.await.is_err() {
        tracing::debug!("the watcher of standard input ended early");
    }
}

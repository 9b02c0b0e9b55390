//! The command line.

mod ask;
mod bench;
mod check;
mod data;
mod decoded;
mod dev;
mod dev_dir;
mod diff;
mod dump;
mod explain;
mod logs;
mod serve;
mod show;

use crate::stderr::say;
use clap::{Args, Parser, Subcommand};
use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replicated metadata that survives kill -9.
#[derive(Parser)]
#[command(name = "holdfast", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a local cluster of real processes on loopback
    Dev(dev::DevArgs),
    /// Run one node
    Serve(Box<serve::ServeArgs>),
    /// Show members, roles, indexes and health
    Status(ClientArgs),
    /// Create, list, describe and delete topics
    #[command(subcommand)]
    Topic(data::TopicCommand),
    /// Get, put, compare-and-set and delete keys
    #[command(subcommand)]
    Kv(data::KvCommand),
    /// Look into the log of a data directory, read-only
    #[command(subcommand)]
    Log(logs::LogCommand),
    /// Say what a start on a data directory would do, and change nothing
    ExplainRestart(explain::ExplainArgs),
    /// Put load on a cluster, or check what a load had acknowledged
    Bench(bench::BenchArgs),
}

impl Command {
    /// True if standard output is for a program.
    fn json(&self) -> bool {
        match self {
            Self::Dev(_) | Self::Serve(_) => false,
            Self::Status(client) => client.json,
            Self::Topic(command) => command.client().json,
            Self::Kv(command) => command.client().json,
            Self::Log(command) => command.json(),
            Self::ExplainRestart(args) => args.json,
            Self::Bench(args) => args.json,
        }
    }
}

/// Endpoints of the cluster that `dev` starts.
const DEV_ENDPOINTS: [&str; 3] =
    ["http://127.0.0.1:7600", "http://127.0.0.1:7601", "http://127.0.0.1:7602"];

/// What every client command takes.
#[derive(Args, Clone, Debug)]
struct ClientArgs {
    /// Base URL of a node; repeat it for more. The next one is asked when one is down
    /// [default: the cluster of `holdfast dev`]
    #[arg(long = "endpoint", value_name = "URL")]
    endpoints: Vec<String>,
    /// Print JSON and nothing else
    #[arg(long)]
    json: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    timeout: f64,
}

impl ClientArgs {
    fn endpoints(&self) -> Vec<String> {
        if self.endpoints.is_empty() {
            DEV_ENDPOINTS.map(str::to_owned).to_vec()
        } else {
            self.endpoints.clone()
        }
    }

    fn timeout(&self) -> Result<std::time::Duration, Failure> {
        std::time::Duration::try_from_secs_f64(self.timeout)
            .ok()
            .filter(|t| !t.is_zero() && t.as_secs() < 86_400)
            .ok_or_else(|| Failure::usage("--timeout must be above 0 and below 86400 seconds"))
    }
}

/// Why a command failed, with its exit status.
#[derive(Debug)]
struct Failure {
    status: u8,
    message: String,
    /// The error answer of the API, or what is known in its place: a program reads this one.
    answer: Option<serde_json::Value>,
}

impl Failure {
    /// Something that was checked does not hold (exit 1).
    fn check(message: impl Into<String>) -> Self {
        Self { status: 1, message: message.into(), answer: None }
    }

    /// The command line makes no sense (exit 2).
    fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: message.into(), answer: None }
    }

    /// The surroundings do not play along (exit 3).
    fn environment(message: impl Into<String>) -> Self {
        Self { status: 3, message: message.into(), answer: None }
    }
}

impl Failure {
    /// The same failure, with an object that a program reads in its place.
    fn with(mut self, answer: serde_json::Value) -> Self {
        self.answer = Some(answer).filter(serde_json::Value::is_object);
        self
    }

    /// What a program reads on standard output if the command printed nothing else.
    fn json(&self) -> serde_json::Value {
        if let Some(answer) = &self.answer {
            return answer.clone();
        }
        let code = match self.status {
            1 => "check_failed",
            2 => "usage",
            _ => "environment",
        };
        serde_json::json!({ "code": code, "message": self.message })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are no failures; both print to the right stream by themselves.
            let printed = e.print();
            if e.use_stderr() {
                return ExitCode::from(2);
            }
            if let Err(broken) = printed {
                end_over(&broken);
            }
            return ExitCode::SUCCESS;
        }
    };
    let json = cli.command.json();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if json && !PRINTED.load(Ordering::Relaxed) {
                print_line(&failure.json().to_string());
            }
            say(format_args!("{failure}"));
            ExitCode::from(failure.status)
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Dev(args) => runtime(2)?.block_on(dev::run(args)),
        Command::Serve(args) => serve::run(*args),
        Command::Status(args) => runtime(1)?.block_on(show::status(args)),
        Command::Topic(command) => runtime(1)?.block_on(data::topic(command)),
        Command::Kv(command) => runtime(1)?.block_on(data::kv(command)),
        Command::Log(command) => logs::run(command),
        Command::ExplainRestart(args) => explain::run(&args),
        Command::Bench(args) => runtime(2)?.block_on(bench::run(args)),
    }
}

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("holdfast-io")
        .enable_all()
        .build()
        .map_err(|e| Failure::environment(format!("cannot start the I/O threads: {e}")))
}

/// True once this process has printed a line to standard output.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints a line to standard output. A reader that went away (`holdfast status | head -1`) ends
/// the process quietly, as it does other tools; whatever else keeps the line from being written ends
/// it with exit status 3, so that nobody takes what was cut short for an answer.
fn print_line(text: &str) {
    print_bytes(text.as_bytes());
}

/// As [`print_line`], of bytes that need not be text.
fn print_bytes(bytes: &[u8]) {
    use std::io::Write;
    PRINTED.store(true, Ordering::Relaxed);
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(bytes).and_then(|()| out.write_all(b"\n"));
    // A line is longer than any buffer at times: what is left in it is written here, or told.
    if let Err(e) = printed.and_then(|()| out.flush()) {
        end_over(&e);
    }
}

/// Ends the process because standard output cannot be written.
fn end_over(e: &std::io::Error) -> ! {
    if e.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    say(format_args!("cannot write standard output: {e}"));
    std::process::exit(3);
}

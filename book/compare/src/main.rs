//! The log of Holdfast beside the bare disk and other logs, measured in one run of one process, so
//! that ratios mean something where absolute figures drift. Prints the tables of the performance
//! chapter of the book.
//!
//! Every peer pays for real durability: what `append` has returned for survives a power cut, as far
//! as the disk keeps its word. Each file under `peers` says which setting makes it so.
#![forbid(unsafe_code)]

mod append;
mod batch;
mod child;
mod device;
mod error;
mod peers;
mod read;
mod reopen;
mod spread;
mod ways;

use clap::{Args, Parser, Subcommand};
use error::CompareError;
use peers::Kind;
use std::path::PathBuf;
use std::process::ExitCode;

/// The log of Holdfast beside the bare disk and other logs, in one run.
///
/// Peers take turns in short rounds and medians are printed, so that noise favours nobody. Progress
/// goes to standard error. Exit status: 0 good, 2 usage, 3 a peer or the disk failed.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Append batches with one sync each, beside write and fdatasync of the bare payload.
    LogAppend(append::AppendArgs),
    /// Read a million entries in order.
    LogRead(read::ReadArgs),
    /// Open a log of a gibibyte after a process that ended without closing it.
    LogReopen(reopen::ReopenArgs),
    /// Write a file and make it durable, by a call and through a map.
    LogWays(ways::WaysArgs),
    /// One step of `log-reopen` in a process of its own.
    #[command(hide = true)]
    Child(child::ChildArgs),
}

/// What every measurement takes.
#[derive(Debug, Args)]
struct Common {
    /// Directory on the file system to measure; scratch directories are made in it and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Peers to measure, separated by commas; by default all but holdfast-mapped.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<Kind>,
    /// Print JSON: an array with an object for each row.
    #[arg(long)]
    json: bool,
}

impl Common {
    /// The peers that were asked for among these, in the order of the list.
    fn chosen(&self, all: &[Kind]) -> Vec<Kind> {
        let usual = self.peers.is_empty();
        let asked = |kind: &Kind| self.peers.contains(kind) || (usual && kind.is_usual());
        all.iter().copied().filter(asked).collect()
    }

    /// A scratch directory on the file system that is measured; removed when dropped.
    fn scratch(&self) -> Result<tempfile::TempDir, CompareError> {
        tempfile::Builder::new()
            .prefix("holdfast-compare-")
            .tempdir_in(&self.dir)
            .map_err(|e| CompareError::disk("make a scratch directory in", &self.dir, &e))
    }
}

/// Prints rows as they were asked for: the table of the book, or an array of objects.
fn print<R: serde::Serialize>(
    json: bool,
    rows: &[R],
    table: impl FnOnce(&[R]) -> String,
) -> Result<(), CompareError> {
    if json {
        let text = serde_json::to_string(rows).map_err(|e| CompareError::Encode(e.to_string()))?;
        println!("{text}");
    } else {
        print!("{}", table(rows));
    }
    Ok(())
}

fn run(cli: Cli) -> Result<(), CompareError> {
    match cli.command {
        Command::LogAppend(args) => append::run(&args),
        Command::LogRead(args) => read::run(&args),
        Command::LogReopen(args) => reopen::run(&args),
        Command::LogWays(args) => ways::run(&args),
        Command::Child(args) => child::run(&args),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.status())
        }
    }
}

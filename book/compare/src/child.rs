//! Steps of `log-reopen` that need a process of their own: only a process that ends without closing
//! anything leaves what a killed one leaves.

use crate::batch::Payloads;
use crate::error::CompareError;
use crate::peers::Kind;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Entries of one batch while a log is filled.
const BATCH: usize = 1024;

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Fill a new log.
    Fill,
    /// Open it again; prints the nanoseconds that took and the last index.
    Open,
}

#[derive(Debug, Args)]
pub(crate) struct ChildArgs {
    #[arg(long)]
    step: Step,
    #[arg(long)]
    kind: Kind,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    entries: u64,
    #[arg(long)]
    bytes: usize,
}

/// Carries out one step and ends the process without closing the log.
///
/// # Errors
/// [`CompareError`].
pub(crate) fn run(args: &ChildArgs) -> Result<(), CompareError> {
    match args.step {
        Step::Fill => {
            let mut peer = match args.kind {
                // One that keeps what it is given.
                Kind::Holdfast => {
                    std::fs::create_dir_all(&args.dir)
                        .map_err(|e| CompareError::disk("make", &args.dir, &e))?;
                    args.kind.reopen(&args.dir)?.0
                }
                kind => kind.create(&args.dir)?,
            };
            let (mut payloads, mut next) = (Payloads::new(), 1);
            while next <= args.entries {
                let rest = usize::try_from(args.entries - next + 1).unwrap_or(BATCH);
                peer.append(&payloads.batch(next, rest.min(BATCH), args.bytes))?;
                next += rest.min(BATCH) as u64;
            }
            std::process::exit(0)
        }
        Step::Open => {
            let began = Instant::now();
            let (_open, last) = args.kind.reopen(&args.dir)?;
            println!("{} {last}", began.elapsed().as_nanos());
            std::process::exit(0)
        }
    }
}

/// Runs a step in a process of its own and returns what it printed.
///
/// # Errors
/// [`CompareError::Child`] if it ended badly, [`CompareError::Disk`] if it could not be started.
pub(crate) fn spawn(
    step: Step,
    kind: Kind,
    dir: &Path,
    entries: u64,
    bytes: usize,
) -> Result<String, CompareError> {
    let this = std::env::current_exe()
        .map_err(|e| CompareError::disk("find", Path::new("this program"), &e))?;
    let word = if step == Step::Fill { "fill" } else { "open" };
    let output = Command::new(&this)
        .args(["child", "--step", word, "--kind", kind.name(), "--dir"])
        .arg(dir)
        .args(["--entries", &entries.to_string(), "--bytes", &bytes.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| CompareError::disk("start", &this, &e))?;
    if !output.status.success() {
        let step = format!("{word} {}", kind.name());
        return Err(CompareError::Child { step, status: output.status.to_string() });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

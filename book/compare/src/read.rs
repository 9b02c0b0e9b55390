//! `log-read`: entries in order, from a log that this process has just written. Both logs verify
//! checksums on every read; raft-engine those of whole blocks, Holdfast each entry's own.

use crate::batch::Payloads;
use crate::error::CompareError;
use crate::peers::{Holdfast, Kind, Peer, RaftEngine, Replay};
use crate::spread::{Spread, short};
use crate::{Common, print};
use clap::Args;
use holdfast_log::RealDisk;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// Entries of one batch while the logs are filled.
const BATCH: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    common: Common,
    /// Entries to write and to read.
    #[arg(long, default_value_t = 1 << 20)]
    entries: u64,
    /// Bytes of one payload.
    #[arg(long, default_value_t = 128)]
    bytes: usize,
    /// Passes over the whole log; in each, both have their turn.
    #[arg(long, default_value_t = 9)]
    passes: usize,
}

/// A line of the comparison.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    entries: u64,
    /// Bytes of one payload.
    bytes: usize,
    /// Median over the passes.
    entries_per_s: f64,
    /// To raft-engine: median over the passes of the ratio within the pass; absent without it.
    ratio: Option<f64>,
    entries_per_s_spread: Spread,
    passes: usize,
}

fn filled<P: Peer + Replay + 'static>(
    mut peer: P,
    args: &ReadArgs,
) -> Result<Box<dyn Replay>, CompareError> {
    let (mut payloads, mut next) = (Payloads::new(), 1);
    while next <= args.entries {
        let count = usize::try_from(args.entries - next + 1).map_or(BATCH, |rest| rest.min(BATCH));
        peer.append(&payloads.batch(next, count, args.bytes))?;
        next += count as u64;
    }
    Ok(Box::new(peer))
}

fn open(kind: Kind, dir: &Path, args: &ReadArgs) -> Result<Box<dyn Replay>, CompareError> {
    std::fs::create_dir_all(dir).map_err(|e| CompareError::disk("make", dir, &e))?;
    match kind {
        Kind::RaftEngine => filled(RaftEngine::open(dir)?, args),
        _ => filled(Holdfast::open(RealDisk::create(dir), false)?, args),
    }
}

/// Fills both logs, reads them in turns, and prints the rows.
///
/// # Errors
/// [`CompareError`].
pub(crate) fn run(args: &ReadArgs) -> Result<(), CompareError> {
    if args.entries == 0 || args.bytes == 0 || args.passes == 0 {
        return Err(CompareError::Usage("at least one entry of one byte, and one pass".into()));
    }
    let kinds = args.common.chosen(&[Kind::RaftEngine, Kind::Holdfast]);
    if kinds.is_empty() {
        return Err(CompareError::Usage("log-read compares holdfast and raft-engine".into()));
    }
    let scratch = args.common.scratch()?;
    let mut logs = Vec::new();
    for kind in kinds {
        eprintln!("fill {} with {} entries of {} B", kind.name(), args.entries, args.bytes);
        logs.push((kind, open(kind, &scratch.path().join(kind.name()), args)?, Vec::new()));
    }
    eprintln!("read in {} passes", args.passes);
    for _ in 0..args.passes {
        for (kind, log, rates) in &mut logs {
            let began = Instant::now();
            let read = log.read_all(args.entries)?;
            rates.push(args.entries as f64 / began.elapsed().as_secs_f64());
            if read != args.entries * args.bytes as u64 {
                let why = format!("{read} bytes of payload came back");
                return Err(CompareError::peer(kind.name(), "read", why));
            }
        }
    }
    let base = logs.iter().find(|(kind, ..)| *kind == Kind::RaftEngine);
    let base = base.map(|(_, _, rates)| rates.clone());
    let row = |(kind, _, rates): &(Kind, Box<dyn Replay>, Vec<f64>)| {
        let ratios = |base: &Vec<f64>| rates.iter().zip(base).map(|(a, b)| a / b).collect();
        let spread = Spread::of(rates.clone());
        Row {
            name: kind.name(),
            entries: args.entries,
            bytes: args.bytes,
            entries_per_s: spread.median,
            ratio: base.as_ref().map(|base| Spread::of(ratios(base)).median),
            entries_per_s_spread: spread,
            passes: rates.len(),
        }
    };
    let rows: Vec<Row> = logs.iter().map(row).collect();
    print(args.common.json, &rows, table)
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| log | entries read | entries/s (min/median/max) | ratio to raft-engine |\n|---|---|---|---|\n",
    );
    for row in rows {
        let rate = row.entries_per_s_spread;
        let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} x {} B | {} / **{}** / {} | {ratio} |",
            row.name,
            row.entries,
            row.bytes,
            short(rate.min),
            short(rate.median),
            short(rate.max),
        );
    }
    out
}

//! `log-reopen`: a log of a gibibyte is opened after a process that ended without closing it. Each
//! opening is a process of its own that ends the same way, so every one follows an unclean end.
//!
//! Holdfast reads every byte and verifies every record before it reports anything; raft-engine and
//! the stores leave most checksums to later reads.

use crate::child::{Step, spawn};
use crate::error::CompareError;
use crate::peers::Kind;
use crate::spread::Spread;
use crate::{Common, print};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;

/// Those that keep entries to come back to.
const KEEPERS: [Kind; 4] = [Kind::Holdfast, Kind::RaftEngine, Kind::Redb, Kind::Fjall];

#[derive(Debug, Args)]
pub(crate) struct ReopenArgs {
    #[command(flatten)]
    common: Common,
    /// Entries in the log.
    #[arg(long, default_value_t = 1 << 20)]
    entries: u64,
    /// Bytes of one payload.
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// How often each is opened; the files are in the page cache.
    #[arg(long, default_value_t = 5)]
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
    seconds: f64,
    seconds_spread: Spread,
    passes: usize,
}

/// Fills, opens, and prints the rows.
///
/// # Errors
/// [`CompareError`].
pub(crate) fn run(args: &ReopenArgs) -> Result<(), CompareError> {
    if args.entries == 0 || args.bytes == 0 || args.passes == 0 {
        return Err(CompareError::Usage("at least one entry of one byte, and one pass".into()));
    }
    let kinds = args.common.chosen(&KEEPERS);
    if kinds.is_empty() {
        return Err(CompareError::Usage("none of these peers keeps a log to open again".into()));
    }
    let scratch = args.common.scratch()?;
    let dir = |kind: Kind| scratch.path().join(kind.name());
    for kind in &kinds {
        eprintln!("fill {} with {} entries of {} B", kind.name(), args.entries, args.bytes);
        spawn(Step::Fill, *kind, &dir(*kind), args.entries, args.bytes)?;
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); kinds.len()];
    for pass in 1..=args.passes {
        eprintln!("open, pass {pass} of {}", args.passes);
        for (kind, times) in kinds.iter().zip(&mut times) {
            let said = spawn(Step::Open, *kind, &dir(*kind), args.entries, args.bytes)?;
            times.push(seconds(*kind, &said, args.entries)?);
        }
    }
    let row = |(kind, times): (&Kind, &Vec<f64>)| {
        let spread = Spread::of(times.clone());
        Row {
            name: kind.name(),
            entries: args.entries,
            bytes: args.bytes,
            seconds: spread.median,
            seconds_spread: spread,
            passes: times.len(),
        }
    };
    let rows: Vec<Row> = kinds.iter().zip(&times).map(row).collect();
    print(args.common.json, &rows, table)
}

/// The time in what an opening process said, provided that it found every entry.
fn seconds(kind: Kind, said: &str, entries: u64) -> Result<f64, CompareError> {
    let mut words = said.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(nanos)), Some(Ok(last))) = (words.next(), words.next()) else {
        return Err(CompareError::peer(kind.name(), "open", format!("it said {said:?}")));
    };
    if last != entries {
        let why = format!("the last entry was {last}, not {entries}");
        return Err(CompareError::peer(kind.name(), "open", why));
    }
    Ok(nanos as f64 / 1e9)
}

fn table(rows: &[Row]) -> String {
    let mut out =
        String::from("| log | entries | seconds to open (min/median/max) |\n|---|---|---|\n");
    for row in rows {
        let time = row.seconds_spread;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} x {} B | {:.3} / **{:.3}** / {:.3} |",
            row.name, row.entries, row.bytes, time.min, time.median, time.max,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_that_lost_entries_is_no_measurement() {
        assert_eq!(seconds(Kind::Redb, "1500000000 7\n", 7).unwrap(), 1.5);
        let lost = seconds(Kind::Redb, "1500000000 6\n", 7).unwrap_err().to_string();
        assert_eq!(lost, "redb: open: the last entry was 6, not 7");
        assert!(seconds(Kind::Redb, "", 7).is_err());
    }
}

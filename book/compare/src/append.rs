//! `log-append`: batches with one sync each, beside the bare disk.

use crate::batch::Payloads;
use crate::device::Device;
use crate::error::CompareError;
use crate::peers::{Kind, Peer};
use crate::spread::{Spread, short};
use crate::{Common, print};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Entries a sync, and bytes of each payload.
const SHAPES: [(usize, usize); 4] = [(1, 128), (16, 128), (256, 128), (256, 1024)];
/// Batches before anything is measured.
const WARM: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    #[command(flatten)]
    common: Common,
    /// Rounds for each shape; in each, every peer has its turn.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Milliseconds of one turn.
    #[arg(long, default_value_t = 150)]
    turn_ms: u64,
}

/// A line of the comparison.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    /// Entries a sync.
    batch: usize,
    /// Bytes of one payload.
    bytes: usize,
    /// Median over the rounds.
    entries_per_s: f64,
    /// To raw: median over the rounds of the ratio within the round.
    ratio: f64,
    entries_per_s_spread: Spread,
    ratio_spread: Spread,
    /// Bytes written to the block device for each entry, preparation of files included: median over
    /// the rounds. Absent where there is no block device.
    device_bytes_per_entry: Option<f64>,
    rounds: usize,
}

/// A peer and what was measured of it so far.
struct Turns {
    kind: Kind,
    peer: Box<dyn Peer>,
    payloads: Payloads,
    next: u64,
    rates: Vec<f64>,
    /// Bytes written to the device for each entry, by round.
    written: Vec<f64>,
}

impl Turns {
    fn append(&mut self, count: usize, bytes: usize) -> Result<(), CompareError> {
        let batch = self.payloads.batch(self.next, count, bytes);
        self.peer.append(&batch)?;
        self.next += count as u64;
        Ok(())
    }

    /// Appends for this long, and at least once.
    fn turn(
        &mut self,
        shape: (usize, usize),
        time: Duration,
        device: &Device,
    ) -> Result<(), CompareError> {
        let (before, first) = (device.written()?, self.next);
        let began = Instant::now();
        let mut took = Duration::ZERO;
        while took < time {
            self.append(shape.0, shape.1)?;
            took = began.elapsed();
        }
        let entries = (self.next - first) as f64;
        self.rates.push(entries / took.as_secs_f64());
        if let (Some(before), Some(after)) = (before, device.written()?) {
            self.written.push(after.saturating_sub(before) as f64 / entries);
        }
        Ok(())
    }
}

/// Measures every shape and prints the rows.
///
/// # Errors
/// [`CompareError`].
pub(crate) fn run(args: &AppendArgs) -> Result<(), CompareError> {
    if args.rounds == 0 || args.turn_ms == 0 {
        return Err(CompareError::Usage("at least one round of at least a millisecond".into()));
    }
    let kinds = args.common.chosen(&Kind::ALL);
    if !kinds.contains(&Kind::Raw) {
        return Err(CompareError::Usage(
            "raw must be among the peers: it is what the others are divided by".into(),
        ));
    }
    let mut rows = Vec::new();
    for shape in SHAPES {
        rows.extend(measure(args, &kinds, shape)?);
    }
    print(args.common.json, &rows, table)
}

fn measure(
    args: &AppendArgs,
    kinds: &[Kind],
    shape: (usize, usize),
) -> Result<Vec<Row>, CompareError> {
    let (count, bytes) = shape;
    let turn = Duration::from_millis(args.turn_ms);
    let secs = turn.as_secs_f64() * (args.rounds * kinds.len()) as f64;
    eprintln!("append {count} x {bytes} B a sync: about {secs:.0} s");
    let scratch = args.common.scratch()?;
    let device = Device::under(scratch.path())?;
    let mut all = Vec::new();
    for kind in kinds {
        let peer = kind.create(&scratch.path().join(kind.name()))?;
        let (payloads, rates) = (Payloads::new(), Vec::new());
        let mut one = Turns { kind: *kind, peer, payloads, next: 1, rates, written: Vec::new() };
        for _ in 0..WARM {
            one.append(count, bytes)?;
        }
        all.push(one);
    }
    for round in 0..args.rounds {
        // Another one begins each round: nobody always follows the same neighbour's writes.
        let first = round % all.len();
        for n in 0..all.len() {
            let at = (first + n) % all.len();
            all[at].turn(shape, turn, &device)?;
        }
    }
    Ok(rows(&all, shape))
}

fn rows(all: &[Turns], (batch, bytes): (usize, usize)) -> Vec<Row> {
    let raw = all.iter().find(|one| one.kind == Kind::Raw).map_or(&[][..], |one| &one.rates);
    let row = |one: &Turns| {
        let rates = Spread::of(one.rates.clone());
        let ratios = Spread::of(one.rates.iter().zip(raw).map(|(rate, raw)| rate / raw).collect());
        Row {
            name: one.kind.name(),
            batch,
            bytes,
            entries_per_s: rates.median,
            ratio: ratios.median,
            entries_per_s_spread: rates,
            ratio_spread: ratios,
            device_bytes_per_entry: (!one.written.is_empty())
                .then(|| Spread::of(one.written.clone()).median),
            rounds: one.rates.len(),
        }
    };
    all.iter().map(row).collect()
}

fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    for (batch, bytes) in SHAPES {
        let mut lines = format!(
            "{batch} x {bytes} B a sync\n\n\
             | log | entries/s (min/median/max) | ratio to raw (min/median/max) | device bytes/entry |\n\
             |---|---|---|---|\n"
        );
        for row in rows.iter().filter(|row| (row.batch, row.bytes) == (batch, bytes)) {
            let (rate, ratio) = (row.entries_per_s_spread, row.ratio_spread);
            // Writing to a string cannot fail.
            let _ = writeln!(
                lines,
                "| {} | {} / **{}** / {} | {:.2} / **{:.2}** / {:.2} | {} |",
                row.name,
                short(rate.min),
                short(rate.median),
                short(rate.max),
                ratio.min,
                ratio.median,
                ratio.max,
                row.device_bytes_per_entry.map_or("-".to_owned(), |bytes| format!("{bytes:.0}")),
            );
        }
        out.push_str(&lines);
        out.push('\n');
    }
    out
}

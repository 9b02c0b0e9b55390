//! `log-ways`: how bytes get into a file that is there already, and durable: by a write and
//! `fdatasync`, by a store through a map and `msync`, or by a write past the page cache. Beside each,
//! how the file was filled: the page cache keeps what came in one large write as one large folio, and
//! `msync` writes back whole folios.

use crate::batch::Payloads;
use crate::device::Device;
use crate::error::CompareError;
use crate::print;
use crate::spread::{Spread, short};
use clap::Args;
use holdfast_log::{Disk, DiskFile, MappedDisk, Mode, RealDisk};
use serde::Serialize;
use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes made durable at once.
const SIZES: [usize; 4] = [128, 4 << 10, 32 << 10, 256 << 10];
/// Length of each file; written from the front again when it is full.
const FILE: u64 = 64 << 20;
/// Bytes of each write that a file is filled with: what the log does, a block, and a lot.
const FILLS: [usize; 3] = [64 << 10, BLOCK, 1 << 20];
const NAME: &str = "file";
/// What a device takes as a whole.
const BLOCK: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct WaysArgs {
    /// Directory on the file system to measure; scratch directories are made in it and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Print JSON: an array with an object for each row.
    #[arg(long)]
    json: bool,
    /// Rounds for each size; in each, every way has its turn.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Milliseconds of one turn.
    #[arg(long, default_value_t = 120)]
    turn_ms: u64,
}

/// A line of the comparison.
#[derive(Debug, Serialize)]
struct Row {
    way: &'static str,
    /// Bytes of each write that the file was filled with.
    fill: usize,
    /// Bytes made durable at once.
    bytes: usize,
    /// Median over the rounds.
    writes_per_s: f64,
    /// To the first row of the size: median over the rounds of the ratio within the round.
    ratio: f64,
    writes_per_s_spread: Spread,
    ratio_spread: Spread,
    /// Bytes written to the block device for each write: median over the rounds. Absent where there
    /// is no block device.
    device_bytes_per_write: Option<f64>,
    rounds: usize,
}

/// A file of [`FILE`] bytes that bytes are made durable in.
trait Way {
    fn put(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
}

/// As the disk has it.
struct By<F>(F);

impl<F: DiskFile> Way for By<F> {
    fn put(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)?;
        self.0.sync()
    }
}

/// Past the page cache, which takes whole blocks that begin at one in memory too.
struct Past {
    file: File,
    buffer: Vec<u8>,
    lead: usize,
}

impl Past {
    fn open(path: &Path, most: usize) -> io::Result<Self> {
        // Another number on other processors.
        let flag = rustix::fs::OFlags::DIRECT.bits();
        let flag = i32::try_from(flag).map_err(io::Error::other)?;
        let file = OpenOptions::new().write(true).custom_flags(flag).open(path)?;
        let buffer = vec![0; most + BLOCK];
        let lead = buffer.as_ptr().align_offset(BLOCK);
        Ok(Self { file, buffer, lead })
    }
}

impl Way for Past {
    fn put(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let aligned = &mut self.buffer[self.lead..self.lead + data.len()];
        aligned.copy_from_slice(data);
        self.file.write_all_at(aligned, offset)?;
        self.file.sync_data()
    }
}

/// One way, and what was measured of it.
struct Turns {
    way: &'static str,
    fill: usize,
    file: Box<dyn Way>,
    payloads: Payloads,
    next: u64,
    rates: Vec<f64>,
    written: Vec<f64>,
}

impl Turns {
    /// A file on this disk, filled in writes of `fill` bytes.
    fn create<D: Disk>(
        way: &'static str,
        disk: io::Result<D>,
        fill: usize,
    ) -> Result<Self, CompareError> {
        let make = || -> io::Result<D::File> {
            let disk = disk?;
            filled(&disk, fill)?;
            disk.open(NAME, Mode::Write)
        };
        let file = make().map_err(|e| CompareError::peer(way, "fill a file", e))?;
        Ok(Self::of(way, fill, Box::new(By(file))))
    }

    fn of(way: &'static str, fill: usize, file: Box<dyn Way>) -> Self {
        let (payloads, rates, written) = (Payloads::new(), Vec::new(), Vec::new());
        Self { way, fill, file, payloads, next: 0, rates, written }
    }

    /// Makes so many bytes durable, where the next ones belong.
    fn write(&mut self, bytes: usize) -> Result<(), CompareError> {
        let batch = self.payloads.batch(0, 1, bytes);
        if self.next + bytes as u64 > FILE {
            self.next = 0;
        }
        (self.file.put(self.next, &batch.whole))
            .map_err(|e| CompareError::peer(self.way, "write", e))?;
        self.next += bytes as u64;
        Ok(())
    }

    fn turn(&mut self, bytes: usize, time: Duration, device: &Device) -> Result<(), CompareError> {
        let before = device.written()?;
        let (began, mut took, mut count) = (Instant::now(), Duration::ZERO, 0u64);
        while took < time {
            self.write(bytes)?;
            count += 1;
            took = began.elapsed();
        }
        self.rates.push(count as f64 / took.as_secs_f64());
        if let (Some(before), Some(after)) = (before, device.written()?) {
            self.written.push(after.saturating_sub(before) as f64 / count as f64);
        }
        Ok(())
    }
}

/// Measures every size and prints the rows.
///
/// # Errors
/// [`CompareError`].
pub(crate) fn run(args: &WaysArgs) -> Result<(), CompareError> {
    if args.rounds == 0 || args.turn_ms == 0 {
        return Err(CompareError::Usage("at least one round of at least a millisecond".into()));
    }
    let mut rows = Vec::new();
    for bytes in SIZES {
        let scratch = tempfile::Builder::new()
            .prefix("holdfast-ways-")
            .tempdir_in(&args.dir)
            .map_err(|e| CompareError::disk("make a scratch directory in", &args.dir, &e))?;
        let device = Device::under(scratch.path())?;
        let mut all = ways(scratch.path(), bytes)?;
        eprintln!("{bytes} B at once: {} ways, {} rounds", all.len(), args.rounds);
        for round in 0..args.rounds {
            let (first, count) = (round % all.len(), all.len());
            for n in 0..count {
                let time = Duration::from_millis(args.turn_ms);
                all[(first + n) % count].turn(bytes, time, &device)?;
            }
        }
        rows.extend(measured(&all, bytes));
    }
    print(args.json, &rows, table)
}

/// Makes a durable file in writes of `fill` bytes.
fn filled<D: Disk>(disk: &D, fill: usize) -> io::Result<()> {
    let file = disk.open(NAME, Mode::CreateNew)?;
    let zeros = vec![0; fill];
    for offset in (0..FILE).step_by(fill) {
        file.write_at(offset, &zeros)?;
    }
    file.sync()?;
    Ok(())
}

/// All ways in which so many bytes can be written, the log's own first: it is what the others are
/// divided by.
fn ways(dir: &Path, bytes: usize) -> Result<Vec<Turns>, CompareError> {
    let mut all = Vec::new();
    for fill in FILLS {
        let dir = dir.join(fill.to_string());
        all.push(Turns::create("write, fdatasync", RealDisk::create(dir.join("written")), fill)?);
        all.push(Turns::create("store, msync", MappedDisk::create(dir.join("mapped")), fill)?);
    }
    if bytes.is_multiple_of(BLOCK) {
        let (way, dir) = ("write past the cache, fdatasync", dir.join("past"));
        let past = || -> io::Result<Past> {
            filled(&RealDisk::create(&dir)?, FILLS[0])?;
            Past::open(&dir.join(NAME), bytes)
        };
        let past = past().map_err(|e| CompareError::peer(way, "fill a file", e))?;
        all.push(Turns::of(way, FILLS[0], Box::new(past)));
    }
    Ok(all)
}

fn measured(all: &[Turns], bytes: usize) -> Vec<Row> {
    let base = all.first().map_or(&[][..], |one| &one.rates);
    let row = |one: &Turns| {
        let rates = Spread::of(one.rates.clone());
        let ratios =
            Spread::of(one.rates.iter().zip(base).map(|(rate, base)| rate / base).collect());
        let written = Spread::of(one.written.clone()).median;
        Row {
            way: one.way,
            fill: one.fill,
            bytes,
            writes_per_s: rates.median,
            ratio: ratios.median,
            writes_per_s_spread: rates,
            ratio_spread: ratios,
            device_bytes_per_write: (!one.written.is_empty()).then_some(written),
            rounds: one.rates.len(),
        }
    };
    all.iter().map(row).collect()
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| bytes at once | filled in | way | a second (min/median/max) | ratio (min/median/max) | device bytes each |\n\
         |---|---|---|---|---|---|\n",
    );
    for row in rows {
        let (rate, ratio) = (row.writes_per_s_spread, row.ratio_spread);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} KiB | {} | {} / **{}** / {} | {:.2} / **{:.2}** / {:.2} | {} |",
            row.bytes,
            row.fill >> 10,
            row.way,
            short(rate.min),
            short(rate.median),
            short(rate.max),
            ratio.min,
            ratio.median,
            ratio.max,
            row.device_bytes_per_write.map_or("-".to_owned(), |bytes| format!("{bytes:.0}")),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_writes_the_same_bytes() {
        let dir = tempfile::tempdir_in(".").unwrap();
        for mut one in ways(dir.path(), BLOCK).unwrap() {
            for _ in 0..3 {
                one.write(BLOCK).unwrap();
            }
        }
        let ways = ["written", "mapped"];
        let mut places: Vec<_> =
            FILLS.iter().flat_map(|fill| ways.map(|way| format!("{fill}/{way}"))).collect();
        places.push("past".to_owned());
        let read = |place: &String| std::fs::read(dir.path().join(place).join(NAME)).unwrap();
        let first = read(&places[0]);
        assert_eq!(first.iter().rposition(|byte| *byte != 0).map(|at| at / BLOCK), Some(2));
        assert!(places.iter().all(|place| read(place) == first));
    }
}

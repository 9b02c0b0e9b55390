//! `damage`: a directory is damaged on purpose.

use super::{ENVIRONMENT, FAILED, parse_count, print};
use clap::Args;
use holdfast_log::{Disk, RealDisk};
use holdfast_sim::damage::{Change, DamageError, Step, Wish, plan};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status of a command that asks for nothing.
const USAGE: u8 = 2;
/// What a running node holds locked.
const LOCK: &str = "lock";

/// Damage a data directory on purpose, to watch what its member makes of it. Work on a copy.
#[derive(Args)]
pub(crate) struct Damage {
    /// The data directory of a node that does not run.
    dir: PathBuf,
    /// Flip a bit in the record of this entry of the log.
    #[arg(long, value_name = "INDEX")]
    entry: Vec<u64>,
    /// Flip a bit in so many records of the log, as the seed says.
    #[arg(long, value_name = "BITS", value_parser = parse_count)]
    random: Option<usize>,
    /// Flip a bit of a file: `FILE:OFFSET`, or `FILE:OFFSET:BIT` with a bit from 0 to 7.
    #[arg(long, value_name = "FILE:OFFSET[:BIT]", value_parser = parse_flip)]
    flip: Vec<Wish>,
    /// Let a range of a file read as zeros, as sectors do that were never written.
    #[arg(long, value_name = "FILE:OFFSET:LEN", value_parser = parse_zero)]
    zero: Vec<Wish>,
    /// Cut a file to this length.
    #[arg(long, value_name = "FILE:LEN", value_parser = parse_cut)]
    cut: Vec<Wish>,
    /// Remove a file.
    #[arg(long, value_name = "FILE", value_parser = parse_lose)]
    lose: Vec<Wish>,
    /// What is drawn, is drawn from this.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Say what would be damaged, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

/// A file of the directory: relative, and nothing that leads out of it.
fn file_of(text: &str) -> Result<String, String> {
    let inside = |part: &str| !part.is_empty() && part != "." && part != "..";
    match text.split('/').all(inside) && text != LOCK {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no file of a data directory, such as log/NAME")),
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e| format!("{text:?}: {e}"))
}

fn parse_flip(text: &str) -> Result<Wish, String> {
    let mut parts = text.split(':');
    let (Some(file), Some(offset)) = (parts.next(), parts.next()) else {
        return Err("write FILE:OFFSET or FILE:OFFSET:BIT".to_owned());
    };
    let bit = parts.next().map_or(Ok(0), number)?;
    if bit > 7 || parts.next().is_some() {
        return Err("a byte has the bits 0 to 7".to_owned());
    }
    Ok(Wish::Flip { file: file_of(file)?, offset: number(offset)?, bit })
}

fn parse_zero(text: &str) -> Result<Wish, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [file, offset, len] = parts[..] else { return Err("write FILE:OFFSET:LEN".to_owned()) };
    Ok(Wish::Zero { file: file_of(file)?, offset: number(offset)?, len: number(len)? })
}

fn parse_cut(text: &str) -> Result<Wish, String> {
    let (file, len) = text.split_once(':').ok_or("write FILE:LEN")?;
    Ok(Wish::Cut { file: file_of(file)?, len: number(len)? })
}

fn parse_lose(text: &str) -> Result<Wish, String> {
    Ok(Wish::Lose { file: file_of(text)? })
}

impl Damage {
    pub(crate) fn execute(self) -> ExitCode {
        let wishes = self.wishes();
        if wishes.is_empty() {
            eprintln!(
                "nothing to damage: say --entry, --random, --flip, --zero, --cut or --lose \
                 (`holdfast log dump DIR` shows what there is)"
            );
            return ExitCode::from(USAGE);
        }
        match self.carry_out(&wishes) {
            Ok(steps) => print(&self.report(&steps)).err().unwrap_or(ExitCode::SUCCESS),
            Err(code) => code,
        }
    }

    fn wishes(&self) -> Vec<Wish> {
        let entries = self.entry.iter().map(|index| Wish::Entry { index: *index });
        let random = self.random.map(|bits| Wish::Random { bits });
        let files = [&self.flip, &self.zero, &self.cut, &self.lose];
        entries.chain(random).chain(files.into_iter().flatten().cloned()).collect()
    }

    fn carry_out(&self, wishes: &[Wish]) -> Result<Vec<Step>, ExitCode> {
        let said = |e: &dyn std::fmt::Display| {
            eprintln!("{}: {e}", self.dir.display());
            ExitCode::from(ENVIRONMENT)
        };
        if !self.dir.join("log").is_dir() {
            let why = "holds no log; give a node's data directory, the one with `log` in it";
            return Err(said(&why));
        }
        let disk = RealDisk::open(&self.dir).map_err(|e| said(&e))?;
        // Nothing is damaged below the feet of a node that runs.
        let _lock = disk.lock(LOCK).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => said(&"a node runs here; stop it, or damage a copy (`cp -a`)"),
            _ => said(&e),
        })?;
        let refused = |e: DamageError| {
            said(&e);
            ExitCode::from(if matches!(e, DamageError::Nothing(_)) { FAILED } else { ENVIRONMENT })
        };
        let steps = plan(&disk, wishes, self.seed).map_err(refused)?;
        if !self.dry_run {
            steps.iter().try_for_each(|step| step.carry_out(&disk)).map_err(refused)?;
        }
        Ok(steps)
    }

    fn report(&self, steps: &[Step]) -> String {
        if self.json {
            let all: Vec<Value> = steps.iter().map(as_json).collect();
            return format!("{}\n", json!({ "done": !self.dry_run, "damage": all }));
        }
        let mut lines: Vec<String> = steps.iter().map(Step::to_string).collect();
        if self.dry_run {
            lines.push("nothing was changed".to_owned());
        }
        lines.join("\n") + "\n"
    }
}

fn as_json(step: &Step) -> Value {
    let (kind, offset, len, bit) = match step.change {
        Change::Flip(offset, bit) => ("flip", Some(offset), None, Some(bit)),
        Change::Zero(offset, len) => ("zero", Some(offset), Some(len), None),
        Change::Cut(len, _) => ("cut", None, Some(len), None),
        Change::Lose => ("lose", None, None, None),
    };
    json!({
        "file": step.file, "kind": kind, "offset": offset, "len": len, "bit": bit,
        "hits": step.hits,
    })
}

//! `check-history`: is a history from a file linearizable?

use super::{ENVIRONMENT, FAILED, print};
use clap::Args;
use holdfast_sim::history::search::{self, Failure, Outcome};
use holdfast_sim::history::{End, History, lines};
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;
use std::time::Instant;

/// Exit status of an input that cannot be read.
const MALFORMED: u8 = 2;

/// Judge a history of operations on registers.
///
/// FILE holds one JSON object a line, an event each, in the order in which they happened: process,
/// type (invoke, ok, fail, info), f (read, write, cas), key (may be absent: one register), value
/// (for cas an array of two: expected, new; null is what was never written). An operation that
/// failed never took effect; one with info, or without an end, takes effect once at any time after
/// it began, or never, and its process may go on with another.
///
/// Exit status: 0 linearizable, 1 not, 2 the file is no history, 3 it could not be read or judged.
#[derive(Args)]
pub(crate) struct CheckHistory {
    /// The history; - for standard input.
    file: String,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
    /// Give up on a register after looking at this many situations in one pass.
    #[arg(long, default_value_t = 20_000_000)]
    effort: u64,
}

impl CheckHistory {
    pub(crate) fn execute(self) -> ExitCode {
        let Self { file, json, effort } = self;
        let text = match read(&file) {
            Ok(text) => text,
            Err(e) => {
                eprintln!("{file}: {e}; name a file that holds a history, or - for standard input");
                return ExitCode::from(ENVIRONMENT);
            }
        };
        let history = match lines::parse(&text) {
            Ok(history) => history,
            Err(bad) => {
                eprintln!("{file}: {bad}");
                return ExitCode::from(MALFORMED);
            }
        };
        let mut progress = Progress::new(history.operations.len());
        let outcome = search::check(&history, effort, &mut |done| progress.show(done));
        let text = match json {
            true => format!("{}\n", as_json(&history, &outcome)),
            false => as_text(&history, &outcome),
        };
        if let Err(code) = print(&text) {
            return code;
        }
        match outcome {
            Outcome::Linearizable => ExitCode::SUCCESS,
            Outcome::Fails(_) => ExitCode::from(FAILED),
            Outcome::Undecided => {
                eprintln!(
                    "undecided: too many operations are open at a time for this effort; raise --effort, \
                     or split the history into one for each key"
                );
                ExitCode::from(ENVIRONMENT)
            }
        }
    }
}

fn read(file: &str) -> std::io::Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// Prints progress to standard error, at most twice a second and only in searches of two seconds.
struct Progress {
    begun: Instant,
    last: Instant,
    of: usize,
    most: usize,
}

impl Progress {
    fn new(of: usize) -> Self {
        let begun = Instant::now();
        Self { begun, last: begun, of, most: 0 }
    }

    fn show(&mut self, done: usize) {
        self.most = self.most.max(done);
        let now = Instant::now();
        let early = now.duration_since(self.begun).as_secs() < 2;
        if early || now.duration_since(self.last).as_millis() < 500 {
            return;
        }
        self.last = now;
        let again = if done < self.most { ", looking for the shortest prefix" } else { "" };
        eprintln!("{done} of {} operations{again}", self.of);
    }
}

/// The values that a read could have returned, in words.
fn possible(history: &History, failure: &Failure) -> Vec<String> {
    failure.possible.iter().map(|value| history.values.text(value.0).to_owned()).collect()
}

fn as_text(history: &History, outcome: &Outcome) -> String {
    let failure = match outcome {
        Outcome::Linearizable => return "linearizable\n".into(),
        Outcome::Undecided => return "undecided\n".into(),
        Outcome::Fails(failure) => failure,
    };
    let line = failure.position;
    let what = history.describe(&failure.operation);
    let why = match failure.operation.end {
        End::Fail(_) => "failed, but its effect was observed",
        End::Ok(_) | End::Open => "cannot be placed",
    };
    let mut text = format!(
        "not linearizable\n\
         the first {line} lines show it, fewer do not\n\
         line {line}: {what}, invoked at line {}, {why}\n",
        failure.operation.begun
    );
    let possible = possible(history, failure);
    if !possible.is_empty() {
        text += &format!("it could have read {}\n", possible.join(" or "));
    }
    text
}

fn as_json(history: &History, outcome: &Outcome) -> Value {
    let linearizable = match outcome {
        Outcome::Linearizable => json!(true),
        Outcome::Fails(_) => json!(false),
        Outcome::Undecided => Value::Null,
    };
    let mut object = json!({
        "linearizable": linearizable,
        "operations": history.operations.len(),
        "keys": history.keys.len(),
    });
    if let Outcome::Fails(failure) = outcome {
        object["prefix"] = json!(failure.position);
        object["operation"] = json!({
            "line": failure.position,
            "invoked": failure.operation.begun,
            "process": history.processes.text(failure.operation.process),
            "key": history.keys.text(failure.operation.key),
            "what": history.describe(&failure.operation),
        });
        object["possible"] = json!(possible(history, failure));
    }
    object
}

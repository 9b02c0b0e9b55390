//! `holdfast log`: its commands, and `verify`: looks into a data directory, read-only, safe beside a live node.

use super::dump::Choice;
use super::show::table;
use super::{Failure, print_line};
use clap::Subcommand;
use holdfast_consensus::{ClusterId, MemberId};
use holdfast_log::RealDisk;
use holdfast_log::inspect::{self, Report};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub(super) enum LogCommand {
    /// Print the records, with what the entries among them say
    Dump {
        /// A node's data directory
        dir: PathBuf,
        #[command(flatten)]
        choice: Choice,
        /// One JSON object a line, the last one a summary
        #[arg(long)]
        json: bool,
    },
    /// Check every checksum, as a start would, and change nothing
    Verify {
        /// A node's data directory
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare two logs entry by entry, and change nothing
    Diff {
        /// A node's data directory
        a: PathBuf,
        /// Another one
        b: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl LogCommand {
    pub(super) fn json(&self) -> bool {
        match self {
            Self::Dump { json, .. } | Self::Verify { json, .. } | Self::Diff { json, .. } => *json,
        }
    }
}

pub(super) fn run(command: LogCommand) -> Result<(), Failure> {
    match command {
        LogCommand::Dump { dir, choice, json } => super::dump::run(&dir, &choice, json),
        LogCommand::Verify { dir, json } => verify(&dir, json),
        LogCommand::Diff { a, b, json } => super::diff::run(&a, &b, json),
    }
}

pub(super) fn open(dir: &Path) -> Result<RealDisk, Failure> {
    if !dir.join("log").is_dir() {
        return Err(Failure::environment(format!(
            "{} holds no log; give a node's data directory, the one with `log` in it",
            dir.display()
        )));
    }
    RealDisk::open(dir).map_err(|e| Failure::environment(e.to_string()))
}

pub(super) fn failed(dir: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::environment(format!("{}: {e}", dir.display()))
}

/// One sentence on what is damaged, if anything is and the log opens all the same.
pub(super) fn damage_text(report: &Report) -> Option<String> {
    let first = report.damage.first()?;
    let holes = match report.holes.as_slice() {
        [] => "no entry is missing".to_owned(),
        [one] => format!("entry {} is missing until a peer gives it back", one.index),
        [one, .., last] => format!(
            "{} entries from {} to {} are missing until peers give them back",
            report.holes.len(),
            one.index,
            last.index
        ),
    };
    let more = report.damage.len() - 1;
    Some(format!(
        "damaged at {} offset {} (row {}): {}{}; {holes}",
        first.file,
        first.offset,
        first.row,
        first.detail,
        match more {
            0 => String::new(),
            1 => ", and one more place".to_owned(),
            _ => format!(", and {more} more places"),
        },
    ))
}

/// Whose log it is; `None` if nothing says so. No member has the id zero.
pub(super) fn member(report: &Report) -> Option<String> {
    (report.member != MemberId(0)).then(|| report.member.to_string())
}

fn verify(dir: &Path, json: bool) -> Result<(), Failure> {
    let report = inspect::verify(&open(dir)?).map_err(|e| failed(dir, &e))?;
    print_line(&if json { report_json(&report).to_string() } else { report_text(&report) });
    if report.healthy() {
        return Ok(());
    }
    let fault = report.fault.clone().or_else(|| damage_text(&report));
    let broken = report.snapshots.iter().find_map(|s| {
        s.fault.as_ref().map(|fault| format!("snapshot {} does not verify: {fault}", s.file))
    });
    // Whoever asks for this has looked already.
    let fault = fault.map(|why| why.replace("look at it with `holdfast log verify`, then ", ""));
    Err(Failure::check(fault.or(broken).unwrap_or_default()))
}

pub(super) fn report_json(report: &Report) -> Value {
    // A log that cannot be opened proves none of these: null, which no zero can be taken for.
    let known = |value: Value| if report.fault.is_none() { value } else { Value::Null };
    let segments: Vec<_> = report
        .segments
        .iter()
        .map(|s| {
            json!({
                "file": s.file, "segment": s.segment, "first": s.first.0, "records": known(s.records.into()),
                "entries": known(s.entries.into()), "end": known(s.end.into()), "state": s.state, "row": s.row,
            })
        })
        .collect();
    let snapshots: Vec<_> = report
        .snapshots
        .iter()
        .map(|s| {
            json!({
                "file": s.file, "term": s.last.term.0, "index": s.last.index.0,
                "bytes": s.bytes, "fault": s.fault,
            })
        })
        .collect();
    let damage: Vec<_> = report
        .damage
        .iter()
        .map(|d| {
            json!({
                "file": d.file, "offset": d.offset, "end": d.end, "row": d.row,
                "term": d.entry.map(|id| id.term.0), "index": d.entry.map(|id| id.index.0),
                "crc": d.crc, "detail": d.detail,
            })
        })
        .collect();
    let holes: Vec<_> = report
        .holes
        .iter()
        .map(|h| json!({ "index": h.index.0, "term": h.term.map(|term| term.0), "crc": h.crc }))
        .collect();
    json!({
        "format": report.format,
        "member": member(report),
        "cluster": (report.cluster != ClusterId(0)).then(|| report.cluster.to_string()),
        "term": known(report.term.0.into()),
        "voted_for": report.voted_for.map(|member| member.to_string()),
        "last_term": known(report.last.term.0.into()),
        "last_index": known(report.last.index.0.into()),
        "durable": known(json!({ "segment": report.durable.0, "offset": report.durable.1 })),
        "segments": segments,
        "snapshots": snapshots,
        "damage": damage,
        "holes": holes,
        "healthy": report.healthy(),
        "fault": report.fault,
    })
}

fn report_text(report: &Report) -> String {
    let known = |n: u64| if report.fault.is_none() { n.to_string() } else { "-".to_owned() };
    let mut rows =
        vec![["FILE", "STATE", "FIRST", "RECORDS", "ENTRIES", "END"].map(str::to_owned).to_vec()];
    for s in &report.segments {
        rows.push(vec![
            s.file.clone(),
            s.state.to_owned(),
            s.first.0.to_string(),
            known(s.records),
            known(s.entries),
            known(s.end),
        ]);
    }
    for s in &report.snapshots {
        let state = if s.fault.is_none() { "ok" } else { "damaged" };
        let last = s.last.index.0.to_string();
        let blank = String::from("-");
        rows.push(vec![
            s.file.clone(),
            state.to_owned(),
            last,
            blank.clone(),
            blank,
            s.bytes.to_string(),
        ]);
    }
    let proved = match &report.fault {
        Some(_) => "nothing is proved: the log cannot be opened as it is".to_owned(),
        None => format!(
            "term {}, voted for {}\nlast entry {}, proved durable up to segment {} offset {}",
            report.term.0,
            report.voted_for.map_or("nobody".to_owned(), |member| member.to_string()),
            report.last,
            report.durable.0,
            report.durable.1
        ),
    };
    let mut text = format!(
        "member {}, cluster {}, {proved}\n\n{}",
        member(report).unwrap_or_else(|| "-".to_owned()),
        match report.cluster {
            ClusterId(0) => "none yet".to_owned(),
            cluster => cluster.to_string(),
        },
        table(&rows)
    );
    for part in damage_table(report) {
        text = format!("{text}\n\n{part}");
    }
    text
}

/// The damaged places with their rows, and the entries that are missing, where there are any.
pub(super) fn damage_table(report: &Report) -> Vec<String> {
    let mut parts = Vec::new();
    if !report.damage.is_empty() {
        let mut rows =
            vec![["DAMAGED", "OFFSET", "END", "ROW", "ENTRY", "CRC"].map(str::to_owned).to_vec()];
        rows.extend(report.damage.iter().map(|d| {
            let entry = d.entry.map_or_else(|| "-".to_owned(), |id| id.to_string());
            let (from, to) = (d.offset.to_string(), d.end.to_string());
            vec![d.file.clone(), from, to, d.row.to_owned(), entry, d.crc.clone()]
        }));
        parts.push(table(&rows));
    }
    if !report.holes.is_empty() {
        let holes: Vec<String> = report.holes.iter().map(|h| h.index.to_string()).collect();
        parts.push(format!("entries to be given back by peers: {}", holes.join(" ")));
    }
    parts
}

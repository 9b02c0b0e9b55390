//! `holdfast log dump`: the records of a log, one by one, and the choice among them. However large
//! the log is, what is held of it while they are printed is a piece of one segment; the verdict at the
//! end takes what a start takes, a few dozen bytes for each record.
//!
//! A choice never hides damage: places at which nothing verifies are printed whatever was asked for,
//! since nobody knows what stood there, and the end names the entries of the range that are missing.

use super::decoded::{entry_json, entry_kind, entry_text};
use super::diff::{range_text, ranges};
use super::logs::{damage_text, failed, open};
use super::{Failure, print_line};
use clap::Args;
use holdfast_consensus::{Entry, Index};
use holdfast_log::inspect::{self, RecordInfo, Report};
use serde_json::{Value, json};
use std::path::Path;

/// What `--kind` takes: the kinds of records, and those of the entries in them.
const KINDS: [&str; 14] = [
    "command",
    "configuration",
    "blank",
    "header",
    "batch",
    "entry",
    "truncate",
    "watermark",
    "base",
    "meta",
    "seal",
    "index",
    "repair",
    "none",
];
/// Kinds of records that belong to no index.
const UNINDEXED: [&str; 5] = ["header", "batch", "watermark", "meta", "index"];

/// Which records are wanted.
#[derive(Args, Debug, Default)]
pub(super) struct Choice {
    /// Only what says something of the entries from this index on
    #[arg(long, value_name = "INDEX")]
    from: Option<u64>,
    /// Only what says something of the entries up to this index
    #[arg(long, value_name = "INDEX")]
    to: Option<u64>,
    /// Only records of these kinds. `command`, `configuration` and `blank` choose entries by what
    /// they hold; `entry` and `repair` are all of them. Places where nothing verifies (`none`) are
    /// always printed
    #[arg(long = "kind", value_name = "KIND,..", value_delimiter = ',', value_parser = KINDS)]
    kinds: Vec<String>,
}

impl Choice {
    fn check(&self) -> Result<(), Failure> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            return Err(Failure::usage(format!("--from {from} lies behind --to {to}")));
        }
        let unindexed = self.kinds.iter().find(|kind| UNINDEXED.contains(&kind.as_str()));
        match unindexed {
            Some(kind) if self.ranged() => Err(Failure::usage(format!(
                "a record of kind `{kind}` belongs to no index: --from and --to cannot choose it"
            ))),
            _ => Ok(()),
        }
    }

    const fn ranged(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    fn chooses(&self) -> bool {
        self.ranged() || !self.kinds.is_empty()
    }

    /// True if a hole at this index lies in the range.
    fn covers(&self, index: Index) -> bool {
        self.from.is_none_or(|from| from <= index.0) && self.to.is_none_or(|to| index.0 <= to)
    }

    /// True if the record says something of the range. A cut voids all that follows its index, and a
    /// base all that comes before.
    fn reaches(&self, record: &RecordInfo) -> bool {
        if !record.ok || !self.ranged() {
            return true;
        }
        match record.kind {
            "truncate" => self.to.is_none_or(|to| record.index.0 <= to),
            "base" => self.from.is_none_or(|from| from <= record.index.0),
            kind => !UNINDEXED.contains(&kind) && self.covers(record.index),
        }
    }

    /// True if the kind is asked for. `entry` is what the record holds, if it holds one.
    fn names(&self, record: &RecordInfo, entry: Option<&Entry>) -> bool {
        let asked = |kind: &str| self.kinds.iter().any(|asked| asked == kind);
        !record.ok
            || self.kinds.is_empty()
            || asked(record.kind)
            || entry.is_some_and(|entry| asked(entry_kind(entry)))
    }
}

/// What was printed and what was not.
#[derive(Debug, Default)]
struct Count {
    printed: u64,
    passed_over: u64,
}

pub(super) fn run(dir: &Path, choice: &Choice, json: bool) -> Result<(), Failure> {
    choice.check()?;
    let disk = open(dir)?;
    let mut count = Count::default();
    let mut records = inspect::records(&disk).map_err(|e| failed(dir, &e))?;
    while let Some(record) = records.next() {
        let record = record.map_err(|e| failed(dir, &e))?;
        let reaches = choice.reaches(&record);
        let entry = if reaches { records.entry(&record) } else { Ok(None) };
        let entry = entry.map_err(|e| failed(dir, &e))?;
        if !reaches || !choice.names(&record, entry.as_ref()) {
            count.passed_over += 1;
            continue;
        }
        count.printed += 1;
        print_line(&match json {
            true => record_json(&record, entry.as_ref()).to_string(),
            false => record_text(&record, entry.as_ref()),
        });
    }
    // A torn end is in order; whether anything is damaged shows only when all of it is judged.
    let report = inspect::verify(&disk).map_err(|e| failed(dir, &e))?;
    if json {
        print_line(&summary_json(choice, &count, &report).to_string());
    } else if choice.chooses() {
        print_line(&summary_text(choice, &count, &report));
    }
    report.fault.clone().or_else(|| damage_text(&report)).map_or(Ok(()), |e| Err(Failure::check(e)))
}

/// Entries of the range that cannot be read until peers give them back, as ranges.
fn missing(choice: &Choice, report: &Report) -> Vec<(u64, u64)> {
    let holes = report.holes.iter().map(|hole| hole.index);
    ranges(&holes.filter(|index| choice.covers(*index)).collect::<Vec<_>>())
}

/// The last line of a dump: readers that look for a `kind` of record pass over it, and one that finds
/// none knows that the dump was cut short.
fn summary_json(choice: &Choice, count: &Count, report: &Report) -> Value {
    let known = |n: u64| report.fault.is_none().then_some(n);
    let missing: Vec<_> = missing(choice, report).iter().map(|r| json!([r.0, r.1])).collect();
    json!({
        "kind": "summary",
        "records": count.printed,
        "passed_over": count.passed_over,
        "member": super::logs::member(report),
        "last_term": known(report.last.term.0),
        "last_index": known(report.last.index.0),
        "damaged": report.damage.len(),
        "missing": report.holes.len(),
        "missing_here": report.fault.is_none().then_some(missing),
        "ok": report.fault.is_none() && report.damage.is_empty() && report.holes.is_empty(),
        "fault": report.fault,
    })
}

/// What a choice left out, for people.
fn summary_text(choice: &Choice, count: &Count, report: &Report) -> String {
    let Count { printed, passed_over } = count;
    let mut text = format!("{printed} records printed, {passed_over} passed over");
    match (&report.fault, missing(choice, report).as_slice()) {
        (Some(_), _) => text.push_str("; where the log ends is not proved"),
        (None, []) => text.push_str(&format!("; the log ends with {}", report.last)),
        (None, holes) => {
            let holes: Vec<_> = holes.iter().map(|(from, to)| range_text(*from, *to)).collect();
            text.push_str(&format!(
                "; the log ends with {}; DAMAGED in the range, and not to be read here: {}",
                report.last,
                holes.join(", ")
            ));
        }
    }
    text
}

fn record_json(record: &RecordInfo, entry: Option<&Entry>) -> Value {
    json!({
        "segment": record.segment,
        "file": record.file,
        "offset": record.offset,
        "kind": record.kind,
        "term": record.term.0,
        "index": record.index.0,
        "len": record.len,
        "ok": record.ok,
        "detail": record.detail,
        "entry": entry.map(entry_json),
    })
}

fn record_text(record: &RecordInfo, entry: Option<&Entry>) -> String {
    let RecordInfo { file, offset, kind, term, index, len, detail, .. } = record;
    let mark = if record.ok { ' ' } else { '!' };
    let said = entry.map_or_else(String::new, |e| format!(": {} {}", entry_kind(e), entry_text(e)));
    format!("{mark} {file} {offset:>9} {len:>7} {kind:<9} {term}.{index} {detail}{said}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use holdfast_consensus::{Body, LogId, Term};

    fn record(kind: &'static str, index: u64) -> RecordInfo {
        RecordInfo {
            segment: 1,
            file: "log/1".to_owned(),
            offset: 8192,
            kind,
            term: Term(1),
            index: Index(index),
            len: 48,
            ok: kind != "none",
            detail: String::new(),
        }
    }

    fn choice(from: Option<u64>, to: Option<u64>, kinds: &[&str]) -> Choice {
        Choice { from, to, kinds: kinds.iter().map(|&kind| kind.to_owned()).collect() }
    }

    #[test]
    fn a_range_chooses_by_index_and_takes_what_voids_entries_of_it() {
        let some = choice(Some(5), Some(7), &[]);
        let reached: Vec<_> = (3..=9).filter(|i| some.reaches(&record("entry", *i))).collect();
        assert_eq!(reached, [5, 6, 7]);
        assert!(some.reaches(&record("truncate", 3)), "a cut from 3 on voids 5");
        assert!(!some.reaches(&record("truncate", 8)));
        assert!(some.reaches(&record("base", 9)), "a base at 9 stands for 5");
        assert!(!some.reaches(&record("base", 4)));
        for kind in UNINDEXED {
            assert!(!some.reaches(&record(kind, 6)), "{kind} belongs to no index");
            assert!(choice(None, None, &[]).reaches(&record(kind, 0)));
        }
    }

    #[test]
    fn no_choice_hides_a_place_where_nothing_verifies() {
        let bad = record("none", 0);
        for choice in [
            choice(Some(5), Some(7), &[]),
            choice(None, None, &["blank"]),
            choice(Some(1), None, &["command", "entry"]),
        ] {
            assert!(choice.reaches(&bad) && choice.names(&bad, None), "{choice:?}");
        }
    }

    #[test]
    fn kinds_choose_records_and_what_the_entries_in_them_hold() {
        let id = LogId::new(1, 5);
        let blank = Entry { id, time: 0, body: Body::Blank };
        let command = Entry { id, time: 0, body: Body::Command(Bytes::from_static(b"x")) };
        let commands = choice(None, None, &["command", "seal"]);
        assert!(commands.names(&record("entry", 5), Some(&command)));
        assert!(commands.names(&record("repair", 5), Some(&command)));
        assert!(!commands.names(&record("entry", 5), Some(&blank)));
        assert!(
            commands.names(&record("seal", 5), None) && !commands.names(&record("base", 5), None)
        );
        assert!(choice(None, None, &["entry"]).names(&record("entry", 5), Some(&blank)));
        assert!(!choice(None, None, &["entry"]).names(&record("repair", 5), Some(&blank)));
    }

    #[test]
    fn what_cannot_be_chosen_is_refused() {
        assert!(choice(Some(8), Some(7), &[]).check().is_err());
        assert!(choice(Some(7), Some(7), &["command"]).check().is_ok());
        let why = choice(Some(1), None, &["entry", "batch"]).check().unwrap_err();
        assert!(why.status == 2 && why.message.contains("`batch`"), "{why}");
        assert!(choice(None, None, &["batch"]).check().is_ok());
    }
}

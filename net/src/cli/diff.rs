//! `holdfast log diff`: two data directories side by side, read-only, safe beside live nodes.

use super::decoded::entry_text;
use super::logs::{failed, member, open, report_json};
use super::show::table;
use super::{Failure, print_line};
use holdfast_consensus::{Body, Index};
use holdfast_log::diff::{Diff, Difference, Extent, Seen, Side, Verdict, compare, evidence};
use serde_json::{Value, json};
use std::path::Path;

/// What to do about logs that Raft forbids.
const ALARM: &str =
    "stop both members, leave both directories as they are, and report this with copies of them";

pub(super) fn run(a: &Path, b: &Path, json: bool) -> Result<(), Failure> {
    let left = evidence(&open(a)?).map_err(|e| failed(a, &e))?;
    let right = evidence(&open(b)?).map_err(|e| failed(b, &e))?;
    let diff = compare(&left, &right).map_err(|e| Failure::environment(e.to_string()))?;
    let sides = [(a, left.side()), (b, right.side())];
    print_line(&if json { as_json(&diff, sides).to_string() } else { as_text(&diff, sides) });
    match diff.verdict {
        Verdict::Same => Ok(()),
        Verdict::Violation => {
            Err(Failure::check(format!("SAFETY VIOLATION: {}; {ALARM}", violation(&diff))))
        }
        Verdict::Differ => Err(Failure::check("the logs differ")),
        Verdict::Unknown if diff.common.is_none() => {
            Err(Failure::check("the logs hold nothing in common"))
        }
        Verdict::Unknown => Err(Failure::check("not all of what both hold could be compared")),
    }
}

fn violation(diff: &Diff) -> String {
    let found = diff.violation.zip(diff.first.as_ref());
    found.map_or_else(String::new, |(violation, first)| violation.text(first.index))
}

/// Ascending indexes as ranges.
pub(super) fn ranges(indexes: &[Index]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for index in indexes.iter().map(|index| index.0) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    ranges
}

/// What only one of two logs holds, before and behind what both hold.
fn only(own: Option<&Extent>, other: Option<&Extent>) -> [Option<(u64, u64)>; 2] {
    let Some(own) = own else { return [None, None] };
    let (first, last) = (own.base.index.0 + 1, own.last.index.0);
    let range = |from: u64, to: u64| (from <= to).then_some((from, to));
    match other {
        None => [None, range(first, last)],
        Some(other) => [
            range(first, last.min(other.base.index.0)),
            range(first.max(other.last.index.0 + 1), last),
        ],
    }
}

fn as_json(diff: &Diff, sides: [(&Path, &Side); 2]) -> Value {
    let pair = |range: Option<(u64, u64)>| range.map(|(from, to)| json!([from, to]));
    let [(_, a), (_, b)] = sides;
    let one_sided = |own: &Side, other: &Side| {
        let [before, after] = only(own.extent.as_ref(), other.extent.as_ref());
        json!({ "before": pair(before), "after": pair(after) })
    };
    let uncompared: Vec<_> = ranges(&diff.uncompared).iter().map(|r| json!([r.0, r.1])).collect();
    json!({
        "a": side_json(sides[0]),
        "b": side_json(sides[1]),
        "common": pair(diff.common.map(|(from, to)| (from.0, to.0))),
        "same": diff.same,
        "differ": diff.differ,
        "uncompared": uncompared,
        "only_a": one_sided(a, b),
        "only_b": one_sided(b, a),
        "first_difference": diff.first.as_ref().map(difference_json),
        "one_cluster": diff.one_cluster,
        "violation": diff.violation.map(|_| violation(diff)),
        "verdict": diff.verdict.word(),
    })
}

/// What `log verify` says of a directory, and what else is compared.
fn side_json((dir, side): (&Path, &Side)) -> Value {
    let mut value = report_json(&side.report);
    let extent = side.extent.as_ref();
    value["dir"] = json!(dir.display().to_string());
    value["name"] = json!(side.name);
    value["cluster"] = json!(side.cluster.to_string());
    value["epoch"] = json!(format!("{:016x}", side.epoch));
    value["boot"] = json!(extent.map(|e| e.boot));
    value["base_term"] = json!(extent.map(|e| e.base.term.0));
    value["base_index"] = json!(extent.map(|e| e.base.index.0));
    value["committed"] = json!(extent.map(|e| e.known.0));
    value
}

fn difference_json(first: &Difference) -> Value {
    json!({
        "index": first.index.0,
        "by": first.by.word(),
        "at_byte": first_byte(first),
        "a": seen_json(&first.a),
        "b": seen_json(&first.b),
    })
}

fn seen_json(seen: &Seen) -> Value {
    let (time, place) = match seen {
        Seen::Entry { entry, place, .. } => (Some(entry.time), Some(place)),
        _ => (None, None),
    };
    json!({
        "kind": seen.kind(),
        "term": seen.term().map(|term| term.0),
        "crc": seen.crc().map(|crc| format!("{crc:08x}")),
        "time_us": time,
        "file": place.map(|(file, _)| file),
        "offset": place.map(|(_, offset)| offset),
        "bytes": payload(seen).map(<[u8]>::len),
        "text": decoded(seen),
    })
}

fn payload(seen: &Seen) -> Option<&[u8]> {
    match seen {
        Seen::Entry { entry, .. } => match &entry.body {
            Body::Command(bytes) => Some(bytes),
            Body::Blank | Body::Membership(_) => None,
        },
        _ => None,
    }
}

/// The first byte at which two commands differ.
fn first_byte(first: &Difference) -> Option<usize> {
    let (a, b) = payload(&first.a).zip(payload(&first.b))?;
    let differ = a.iter().zip(b).position(|(x, y)| x != y);
    differ.or((a.len() != b.len()).then_some(a.len().min(b.len())))
}

/// What a log says of an entry, for people.
fn decoded(seen: &Seen) -> String {
    let Seen::Entry { entry, .. } = seen else {
        return match seen {
            Seen::Base(_) => "compacted: only its term is known".to_owned(),
            Seen::Lost { .. } => "damaged: only its term and CRC are known".to_owned(),
            _ => "damaged: nothing of it is known".to_owned(),
        };
    };
    entry_text(entry)
}

fn as_text(diff: &Diff, sides: [(&Path, &Side); 2]) -> String {
    let mut lines = vec![table(&heads(sides)), String::new()];
    if !diff.one_cluster {
        lines.push(
            "they are not of one cluster and recovery epoch: they may well differ".to_owned(),
        );
    }
    lines.push(match diff.common {
        None => "they hold nothing in common".to_owned(),
        Some((from, to)) => {
            let count = |n: u64, what: &str| (n > 0).then(|| format!("{n} {what}"));
            let unknown = diff.uncompared.len() as u64;
            let parts = [
                count(diff.same, "the same"),
                count(diff.differ, "different"),
                count(unknown, "not comparable, since one of the two is damaged"),
            ];
            let parts: Vec<_> = parts.into_iter().flatten().collect();
            format!("both hold {from} to {to}: {}", parts.join(", "))
        }
    });
    if !diff.uncompared.is_empty() {
        let all = ranges(&diff.uncompared);
        let shown: Vec<_> = all.iter().map(|(from, to)| range_text(*from, *to)).collect();
        lines.push(format!("not compared: {}", shown.join(", ")));
    }
    let [(_, a), (_, b)] = sides;
    for (name, own, other) in [("A", a, b), ("B", b, a)] {
        let [before, after] = only(own.extent.as_ref(), other.extent.as_ref());
        let why = [(before, "the other has compacted them"), (after, "the other ends before them")];
        for (range, why) in why {
            lines.extend(
                range.map(|(from, to)| format!("only {name}: {} ({why})", range_text(from, to))),
            );
        }
    }
    if let Some(first) = &diff.first {
        lines.push(String::new());
        lines.extend(first_text(first));
        lines.extend(superseded(diff, first, a, b));
    }
    if diff.violation.is_some() {
        lines.push(String::new());
        lines.push(format!("SAFETY VIOLATION: {}.", violation(diff)));
        lines.push(format!("Raft never lets two members of one cluster hold this: {ALARM}."));
    }
    lines.join("\n")
}

pub(super) fn range_text(from: u64, to: u64) -> String {
    if from == to { format!("i{from}") } else { format!("i{from} to i{to}") }
}

fn heads(sides: [(&Path, &Side); 2]) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new(), "A".to_owned(), "B".to_owned()]];
    let mut row = |name: &str, of: &dyn Fn(&Path, &Side) -> String| {
        rows.push(vec![name.to_owned(), of(sides[0].0, sides[0].1), of(sides[1].0, sides[1].1)]);
    };
    let unknown = || "-".to_owned();
    row("directory", &|dir, _| dir.display().to_string());
    row("node", &|_, side| side.name.clone().unwrap_or_else(unknown));
    row("member", &|_, side| member(&side.report).unwrap_or_else(|| "-".to_owned()));
    row("cluster", &|_, side| side.cluster.to_string());
    row("epoch", &|_, side| format!("{:016x}", side.epoch));
    row("start", &|_, side| side.extent.map_or_else(unknown, |e| e.boot.to_string()));
    row("term", &|_, side| match side.extent.filter(|_| side.report.fault.is_none()) {
        None => "not proved".to_owned(),
        Some(e) => match e.hard.voted_for {
            Some(member) => format!("{}, vote {member}", e.hard.term),
            None => format!("{}, no vote", e.hard.term),
        },
    });
    row("log", &|_, side| match side.extent {
        None => "nothing can be read".to_owned(),
        Some(e) if e.base == e.last => format!("empty behind {}", e.base),
        Some(e) => format!("{} to {}", e.base.index.next(), e.last),
    });
    row("committed", &|_, side| {
        side.extent.map_or_else(unknown, |e| format!("at least to {}", e.known))
    });
    row("snapshots", &|_, side| {
        let of = |s: &holdfast_log::inspect::SnapshotInfo| match s.fault {
            None => s.last.to_string(),
            Some(_) => format!("{} (damaged)", s.file),
        };
        let all: Vec<_> = side.report.snapshots.iter().map(of).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    });
    row("damage", &|_, side| {
        let (places, holes) = (side.report.damage.len(), side.report.holes.len());
        match &side.report.fault {
            Some(_) => "held or refused: see `holdfast log verify`".to_owned(),
            None if places + holes == 0 => "none".to_owned(),
            None => format!("{places} places, {holes} entries missing"),
        }
    });
    rows
}

fn first_text(first: &Difference) -> Vec<String> {
    let mut lines =
        vec![format!("the first difference is at {}, by {}", first.index, first.by.word())];
    for (name, seen) in [("A", &first.a), ("B", &first.b)] {
        let term = seen.term().map_or_else(|| "t?".to_owned(), |term| term.to_string());
        let crc = seen.crc().map_or_else(String::new, |crc| format!(", crc {crc:08x}"));
        let time = match seen {
            Seen::Entry { entry, .. } => format!(", log time {} us", entry.time),
            _ => String::new(),
        };
        lines.push(format!("  {name}  {term}, {}{time}{crc}: {}", seen.kind(), decoded(seen)));
    }
    lines.extend(first_byte(first).map(|at| format!("  their payloads differ from byte {at} on")));
    lines
}

/// Whose end is to be replaced, where one of the two knows what was committed.
fn superseded(diff: &Diff, first: &Difference, a: &Side, b: &Side) -> Option<String> {
    if diff.violation.is_some() || !diff.one_cluster {
        return None;
    }
    let knows = |side: &Side| side.extent.is_some_and(|e| e.known >= first.index);
    let (knowing, other) = match (knows(a), knows(b)) {
        (true, _) => ("A", "B"),
        (_, true) => ("B", "A"),
        _ => return Some(
            "neither knows these entries committed: a leader replaces one of the two ends, or both"
                .to_owned(),
        ),
    };
    Some(format!(
        "{knowing} knows {} committed: what {other} holds from there on was never committed, and a leader replaces it",
        first.index
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::LogId;

    fn extent(base: u64, last: u64) -> Extent {
        let id = |index| if index == 0 { LogId::default() } else { LogId::new(1, index) };
        let hard = Default::default();
        Extent { hard, boot: 1, base: id(base), last: id(last), known: Index(base) }
    }

    #[test]
    fn indexes_are_told_as_ranges() {
        let indexes = [1, 2, 3, 7, 9, 10].map(Index);
        assert_eq!(ranges(&indexes), [(1, 3), (7, 7), (9, 10)]);
        assert_eq!(ranges(&[]), []);
    }

    #[test]
    fn what_only_one_holds_lies_before_or_behind_what_both_hold() {
        let of = |a: Extent, b: Extent| only(Some(&a), Some(&b));
        assert_eq!(of(extent(0, 9), extent(0, 9)), [None, None]);
        assert_eq!(of(extent(0, 9), extent(4, 7)), [Some((1, 4)), Some((8, 9))]);
        assert_eq!(of(extent(4, 7), extent(0, 9)), [None, None]);
        assert_eq!(of(extent(0, 3), extent(5, 9)), [Some((1, 3)), None], "all was compacted there");
        assert_eq!(of(extent(5, 9), extent(0, 3)), [None, Some((6, 9))]);
        assert_eq!(only(Some(&extent(0, 9)), None), [None, Some((1, 9))]);
    }
}

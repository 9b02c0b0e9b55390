//! The trace as a small still picture for a document: time runs down, a column for each node, a
//! row for each transition that tells something, and messages as arrows between the columns.
//!
//! Distances are rows, not time. A run has thousands of transitions; the picture takes the most
//! telling kinds of them, whole kinds at a time, while they fit in [`ROWS`] rows, and says how
//! many it left out. There is no script in it.

use super::text;
use super::{Copy, Decision, Item, Recording, Standing, What};
use holdfast_consensus::event::RoleKind;
use std::collections::BTreeMap;

/// Most rows of a picture. The most telling kind (the story, the guard, the violation) is never
/// cut.
pub const ROWS: usize = 64;

const LINE: usize = 15;
const GAP: usize = 7;
const TOP: usize = 50;
const WIDTH: usize = 920;
const TIME: usize = 74;
const BAR: usize = 12;
/// Characters of a line of text, on average as wide as this many pixels.
const CHARACTER: usize = 6;
const KINDS: usize = 6;

/// How telling a transition is: from 0, for what a reader must see, to [`KINDS`], for what no
/// picture shows. An arrival belongs to its sending.
fn kind_of(item: &Item) -> usize {
    match &item.what {
        What::Violated { .. } | What::Story(_) | What::Guard(..) => 0,
        What::Fault { .. } | What::Relief { .. } | What::Cut { .. } | What::Uncut { .. } => 1,
        What::Life { kind: "runs" | "refuses" | "founds", .. } => 1,
        What::Inside { kind: "step-down" | "install" | "truncate", .. } => 1,
        What::Inside { kind: "role", text } if text.starts_with("is leader") => 1,
        What::Sent { kind: "Confirm" | "ConfirmReply", .. } => 2,
        What::Called { .. } | What::Answered { .. } | What::GaveUp { .. } => 2,
        What::Sent { kind: "Vote" | "VoteReply" | "TimeoutNow", .. } => 3,
        What::Sent { kind: "SnapshotOffer" | "SnapshotAck", .. } => 3,
        What::Sent { kind: "Append" | "Forward" | "ForwardReply", .. } => 4,
        What::Sent { kind: "ReadIndex" | "ReadIndexReply", .. } | What::Read { .. } => 5,
        _ => KINDS,
    }
}

/// Kinds below this are shown.
fn shown(items: &[Item]) -> usize {
    let mut counts = [0usize; KINDS + 1];
    for item in items {
        counts[kind_of(item)] += 1;
    }
    let mut rows = 0;
    let fits = counts[..KINDS].iter().take_while(|count| {
        rows += **count;
        rows <= ROWS
    });
    fits.count().max(1)
}

/// A row of the picture.
struct Row<'a> {
    item: &'a Item,
    /// Where its first line stands.
    y: usize,
    lines: Vec<String>,
}

struct Picture<'a> {
    recording: &'a Recording,
    column: usize,
    out: Vec<String>,
}

/// The picture of a recording.
#[must_use]
pub fn write(recording: &Recording) -> String {
    let columns = recording.nodes.len().max(1);
    let column = (90 * 3 / columns.max(3)).max(52);
    let mut picture = Picture { recording, column, out: Vec::new() };
    let limit = shown(&recording.items);
    let room = (WIDTH - picture.text_x() - 8) / CHARACTER;
    let (mut rows, mut y, mut ends) = (Vec::new(), TOP, BTreeMap::new());
    let mut bars = vec![Vec::new(); columns];
    for item in &recording.items {
        if let (Some(node), Some(after)) = (item.node, item.after)
            && let Some(bar) = bars.get_mut(node)
        {
            let same = |last: &(usize, Standing)| look(last.1) == look(after);
            if !bar.last().is_some_and(same) {
                bar.push((y, after));
            }
        }
        if let What::Arrived { copy, .. } | What::Missed { copy, .. } = item.what {
            ends.insert(copy, y);
        }
        if kind_of(item) < limit {
            // The mark of a story's sentences in the text is none in a picture.
            let words = text::what(recording, &item.what);
            let lines = wrapped(words.trim_start_matches("** "), room);
            let height = lines.len() * LINE + GAP;
            rows.push(Row { item, y, lines });
            y += height;
        }
    }
    let left_out = recording.items.len() - rows.len();
    picture.bars(&bars, y);
    for row in &rows {
        picture.row(row, &ends, y);
    }
    picture.finish(y, left_out)
}

/// What of a standing the bar of a node shows.
fn look(standing: Standing) -> Option<(RoleKind, u64)> {
    match standing {
        Standing::Up(at) => Some((at.role, at.term.0)),
        Standing::Down | Standing::Forming => None,
    }
}

impl Picture<'_> {
    fn x(&self, node: usize) -> usize {
        TIME + 14 + node * self.column + BAR / 2
    }

    fn text_x(&self) -> usize {
        self.x(self.recording.nodes.len().max(1) - 1) + BAR + 24
    }

    /// The life of each node: a bar, in the colour of its role, with the term where it changes.
    fn bars(&mut self, bars: &[Vec<(usize, Standing)>], bottom: usize) {
        for (node, changes) in bars.iter().enumerate() {
            let x = self.x(node);
            let ends = changes.iter().skip(1).map(|(y, _)| *y).chain([bottom]);
            for ((from, standing), to) in changes.iter().zip(ends) {
                let (left, height) = (x - BAR / 2, to.saturating_sub(*from));
                if height == 0 {
                    continue;
                }
                let Some((role, term)) = look(*standing) else {
                    self.out.push(format!(
                        "<path d=\"M{x} {from}V{to}\" stroke=\"#8d949b\" stroke-dasharray=\"2 4\"/>"
                    ));
                    continue;
                };
                let fill = match role {
                    RoleKind::Leader => "#1f5fae",
                    RoleKind::Candidate => "#e08a1e",
                    RoleKind::PreCandidate => "#f3d9a6",
                    RoleKind::Follower => "#d5dde5",
                };
                self.out.push(format!(
                    "<rect x=\"{left}\" y=\"{from}\" width=\"{BAR}\" height=\"{height}\" \
                     fill=\"{fill}\"/>"
                ));
                if height >= LINE {
                    let (tx, ty) = (left + BAR + 2, from + 10);
                    let word = if role == RoleKind::Leader { "L " } else { "" };
                    self.out.push(format!(
                        "<text x=\"{tx}\" y=\"{ty}\" font-size=\"9\" fill=\"#667079\">\
                         {word}t{term}</text>"
                    ));
                }
            }
        }
    }

    fn row(&mut self, row: &Row, ends: &BTreeMap<Copy, usize>, bottom: usize) {
        let (seconds, micros) = (row.item.at / 1_000_000, row.item.at % 1_000_000);
        let base = row.y + 11;
        self.out.push(format!(
            "<text x=\"{TIME}\" y=\"{base}\" text-anchor=\"end\" fill=\"#667079\">\
             {seconds}.{micros:06}</text>"
        ));
        let (x, tone) = (self.text_x(), tone(&row.item.what));
        let who =
            row.item.node.map_or_else(String::new, |n| format!("{}: ", self.recording.name(n)));
        for (n, line) in row.lines.iter().enumerate() {
            let (y, who) = (base + n * LINE, if n == 0 { who.as_str() } else { "" });
            let text = escaped(&format!("{who}{line}"));
            self.out.push(format!("<text x=\"{x}\" y=\"{y}\" fill=\"{tone}\">{text}</text>"));
        }
        if let What::Violated { .. } = row.item.what {
            let (y, right) = (row.y, WIDTH - 8);
            self.out.push(format!("<path d=\"M8 {y}H{right}\" stroke=\"#b3261e\"/>"));
        }
        match (row.item.node, &row.item.what) {
            (Some(from), What::Sent { copy, to, fate, .. }) => {
                let end = ends.get(copy).copied().unwrap_or(bottom).max(row.y + 10);
                self.arrow(self.x(from), row.y + 7, self.x(*to), end, fate.is_lost());
            }
            (Some(node), _) => {
                let (x, y) = (self.x(node), row.y + 7);
                self.out.push(format!(
                    "<circle cx=\"{x}\" cy=\"{y}\" r=\"4.5\" fill=\"#fff\" stroke=\"{tone}\" \
                     stroke-width=\"2\"/>"
                ));
            }
            (None, _) => {}
        }
    }

    fn arrow(&mut self, x1: usize, y1: usize, x2: usize, y2: usize, lost: bool) {
        let right = x2 > x1;
        let (x1, x2) =
            if right { (x1 + BAR / 2, x2 - BAR / 2) } else { (x1 - BAR / 2, x2 + BAR / 2) };
        if lost {
            let (x, y) = (x1.midpoint(x2), y1 + 2);
            let (a, b, c, d) = (x - 4, y - 4, x + 4, y + 4);
            self.out.push(format!(
                "<path d=\"M{x1} {y1}L{x} {y}\" stroke=\"#b3261e\" stroke-dasharray=\"4 3\"/>\
                 <path d=\"M{a} {b}L{c} {d}M{c} {b}L{a} {d}\" stroke=\"#b3261e\" \
                 stroke-width=\"1.6\"/>"
            ));
            return;
        }
        self.out.push(format!(
            "<path d=\"M{x1} {y1}L{x2} {y2}\" stroke=\"#47698f\" marker-end=\"url(#head)\"/>"
        ));
    }

    fn finish(self, bottom: usize, left_out: usize) -> String {
        let height = bottom + 34;
        let title = escaped(&self.recording.title);
        let mut all = vec![format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11.5\" fill=\"none\" role=\"img\" \
             aria-label=\"{title}\">\n<defs><marker id=\"head\" markerWidth=\"8\" \
             markerHeight=\"8\" refX=\"7\" refY=\"3.5\" orient=\"auto\"><path d=\"M0 0L7 3.5L0 7z\" \
             fill=\"#47698f\"/></marker></defs>\n<rect width=\"{WIDTH}\" height=\"{height}\" \
             fill=\"#ffffff\"/>\n<text x=\"12\" y=\"19\" font-size=\"13\" font-weight=\"600\" \
             fill=\"#1d2126\">{title}</text>"
        )];
        for (node, name) in self.recording.nodes.iter().enumerate() {
            let (x, name) = (self.x(node), escaped(name));
            all.push(format!(
                "<text x=\"{x}\" y=\"41\" text-anchor=\"middle\" font-weight=\"600\" \
                 fill=\"#1d2126\">{name}</text>"
            ));
        }
        all.extend(self.out);
        let y = bottom + 20;
        all.push(format!(
            "<text x=\"12\" y=\"{y}\" fill=\"#667079\">Time runs down, in seconds, not to scale. \
             Bars: blue leads (L), orange stands, grey follows, dotted is down. {left_out} lesser \
             transitions are left out.</text>\n</svg>\n"
        ));
        all.join("\n")
    }
}

/// The colour of a sentence.
const fn tone(what: &What) -> &'static str {
    match what {
        What::Violated { .. } | What::Fault { .. } | What::Cut { .. } => "#b3261e",
        What::Guard(Decision::Destroys, _) => "#b3261e",
        What::Guard(..) => "#1a5fb4",
        What::Called { .. } | What::Answered { .. } | What::GaveUp { .. } => "#2a7a45",
        What::Story(_) => "#1d2126",
        _ => "#4a545d",
    }
}

/// Lines of at most so many characters, broken between words.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, String::len);
        if line > 0 && line + 1 + word.len() > room {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    if lines.len() > 3 {
        lines.truncate(3);
        if let Some(line) = lines.last_mut() {
            line.push_str(" ...");
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Violation;
    use crate::trace::Fate;

    fn sent(at: u64, copy: Copy, kind: &'static str, fate: Fate) -> Item {
        let what = What::Sent { copy, to: 1, kind, text: "for t2".to_owned(), fate };
        Item { at, node: Some(0), what, after: Some(Standing::Down) }
    }

    fn recording(heartbeats: u64) -> Recording {
        let mut recording = Recording {
            title: "a <b> & \"c\"".to_owned(),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            ..Recording::default()
        };
        recording.items.push(sent(5, 1, "Vote", Fate::Dropped));
        recording.items.push(sent(6, 2, "Vote", Fate::Underway));
        let arrived = What::Arrived { copy: 2, from: 0, kind: "Vote", text: "for t2".to_owned() };
        recording.items.push(Item { at: 9, node: Some(1), what: arrived, after: None });
        recording
            .items
            .extend((0..heartbeats).map(|n| sent(10 + n, 3 + n, "Append", Fate::Underway)));
        recording.conclude(Some(&Violation::new("progress", "nobody <moves>")));
        recording
    }

    #[test]
    fn a_picture_shows_arrows_crosses_and_the_violation_and_escapes_its_texts() {
        let svg = write(&recording(1));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("marker-end").count(), 2, "a vote and an append arrive:\n{svg}");
        assert_eq!(svg.matches("stroke-dasharray=\"4 3\"").count(), 1, "one vote is lost:\n{svg}");
        assert!(svg.contains("VIOLATED progress: nobody &lt;moves&gt;"));
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;"));
        assert!(!svg.contains("<script") && !svg.contains("href"));
    }

    #[test]
    fn a_long_run_leaves_the_lesser_kinds_out_and_says_so() {
        let svg = write(&recording(1_000));
        assert_eq!(svg.matches("marker-end").count(), 1, "only the vote:\n{svg}");
        assert!(svg.contains("1001 lesser transitions are left out"), "{svg}");
    }

    #[test]
    fn texts_are_broken_between_words_and_end_in_dots() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        let long = wrapped(&"word ".repeat(100), 20);
        assert_eq!(long.len(), 3);
        assert!(long[2].ends_with(" ..."));
        assert_eq!(wrapped("", 8), [""]);
    }
}

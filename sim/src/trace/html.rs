//! The trace as a page: one file that draws the run and opens from disk.
//!
//! Guarantees: the page holds everything it needs and is forbidden by its own content policy to
//! load anything; every text of the run stands in one JSON value in which no character can end
//! the element that holds it. The assets under `page/` are plain HTML, CSS and JavaScript.

use super::{Fate, Item, Recording, Standing, What};
use holdfast_consensus::event::RoleKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const MODEL: &str = include_str!("page/model.js");
const DRAW: &str = include_str!("page/draw.js");
const SCRIPT: &str = include_str!("page/page.js");

/// The page of a recording.
#[must_use]
pub fn write(recording: &Recording) -> String {
    let data = escaped(&data(recording).to_string());
    // The data go in last, so that no text of the run is taken for a place to fill.
    let assets = [("STYLE", STYLE), ("MODEL", MODEL), ("DRAW", DRAW), ("PAGE", SCRIPT)];
    let page = assets.iter().fold(PAGE.to_owned(), |page, (name, asset)| {
        page.replacen(&format!("/*{name}*/"), asset, 1)
    });
    page.replacen("/*DATA*/", &data, 1)
}

/// JSON without a character that HTML could take for its own. They occur in strings alone.
fn escaped(json: &str) -> String {
    json.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Words and states that occur often, by their first position.
#[derive(Default)]
struct Tables {
    words: BTreeMap<String, usize>,
    states: BTreeMap<[u64; 8], usize>,
}

impl Tables {
    fn word(&mut self, word: &str) -> usize {
        let next = self.words.len();
        *self.words.entry(word.to_owned()).or_insert(next)
    }

    fn state(&mut self, after: Option<Standing>) -> i64 {
        let at = match after {
            None => return -1,
            Some(Standing::Down) => return -2,
            Some(Standing::Forming) => return -3,
            Some(Standing::Up(at)) => at,
        };
        let role = match at.role {
            RoleKind::Follower => 0,
            RoleKind::PreCandidate => 1,
            RoleKind::Candidate => 2,
            RoleKind::Leader => 3,
        };
        let row = [
            role,
            at.term.0,
            at.commit.0,
            at.applied.0,
            at.durable.term.0,
            at.durable.index.0,
            at.last.term.0,
            at.last.index.0,
        ];
        let next = self.states.len();
        let row = *self.states.entry(row).or_insert(next);
        i64::try_from(row).unwrap_or(-1)
    }
}

/// Everything the page draws.
fn data(recording: &Recording) -> Value {
    let mut tables = Tables::default();
    let items: Vec<Value> = recording.items.iter().map(|item| row(item, &mut tables)).collect();
    let violation = recording.violation().map(|(property, evidence)| json!([property, evidence]));
    json!({
        "title": recording.title,
        "facts": recording.facts,
        "nodes": recording.nodes,
        "violation": violation,
        "words": in_order(tables.words),
        "states": in_order(tables.states),
        "items": items,
    })
}

fn in_order<K: Ord>(table: BTreeMap<K, usize>) -> Vec<K> {
    let mut rows: Vec<(usize, K)> = table.into_iter().map(|(key, at)| (at, key)).collect();
    rows.sort_unstable();
    rows.into_iter().map(|(_, key)| key).collect()
}

/// One transition: time, node, class, kind, text, state after it, and what its class adds.
fn row(item: &Item, tables: &mut Tables) -> Value {
    let mut extra = Vec::new();
    let text = match &item.what {
        What::Story(text) | What::Guard(_, text) => text.as_str(),
        What::Sent { copy, to, text, fate, .. } => {
            extra.extend([json!(copy), json!(to), json!(fate_number(*fate))]);
            text
        }
        // The page takes the content from where the message was sent.
        What::Arrived { copy, from, .. } | What::Missed { copy, from, .. } => {
            extra.extend([json!(copy), node_number(Some(*from))]);
            ""
        }
        What::Inside { text, .. } | What::Life { text, .. } | What::Read { text } => text,
        What::Timer => "",
        What::JobBegan { lane, .. } | What::JobEnded { lane, .. } => {
            extra.push(json!(tables.word(lane)));
            ""
        }
        What::Fault { text, until, .. } => {
            extra.push(json!(until.unwrap_or(0)));
            text
        }
        What::Relief { text, .. } => text,
        What::Cut { links } | What::Uncut { links } => {
            extra.extend(links.iter().flat_map(|(from, to)| [json!(from), json!(to)]));
            ""
        }
        What::Called { client, ticket, text, .. } => {
            extra.extend([node_number(*client), json!(ticket)]);
            text
        }
        What::Answered { ticket, text, .. } => {
            extra.push(json!(ticket));
            text
        }
        What::GaveUp { client, ticket } => {
            extra.extend([json!(client), json!(ticket)]);
            ""
        }
        What::Violated { evidence, .. } => evidence,
    };
    let (kind, after) = (tables.word(item.what.kind()), tables.state(item.after));
    let class = class(&item.what);
    let head = [
        json!(item.at),
        node_number(item.node),
        json!(class),
        json!(kind),
        json!(text),
        json!(after),
    ];
    Value::Array(head.into_iter().chain(extra).collect())
}

/// A number, or -1 for nobody.
fn node_number(node: Option<usize>) -> Value {
    match node {
        Some(node) if node != usize::MAX => json!(node),
        _ => json!(-1),
    }
}

/// Position in the list `FATES` of `model.js`.
fn fate_number(fate: Fate) -> usize {
    match fate {
        Fate::Underway => 0,
        Fate::Held => 1,
        Fate::Again => 2,
        Fate::Dropped => 3,
        Fate::Cut => 4,
        Fate::Unconnected => 5,
    }
}

/// Position in the list `CLASSES` of `model.js`.
fn class(what: &What) -> usize {
    match what {
        What::Story(_) => 0,
        What::Guard(..) => 1,
        What::Sent { .. } => 2,
        What::Arrived { .. } => 3,
        What::Missed { .. } => 4,
        What::Inside { .. } => 5,
        What::Timer => 6,
        What::JobBegan { .. } => 7,
        What::JobEnded { .. } => 8,
        What::Life { .. } => 9,
        What::Fault { .. } => 10,
        What::Relief { .. } => 11,
        What::Cut { .. } => 12,
        What::Uncut { .. } => 13,
        What::Called { .. } => 14,
        What::Answered { .. } => 15,
        What::GaveUp { .. } => 16,
        What::Read { .. } => 17,
        What::Violated { .. } => 18,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Violation;

    fn tricky() -> Recording {
        let mut recording = Recording {
            title: "</script><b>seed 1".to_owned(),
            facts: vec![("again".to_owned(), "replay 1 && echo '/*PAGE*/'".to_owned())],
            nodes: vec!["n1".to_owned()],
            items: vec![Item {
                at: 5,
                node: Some(0),
                what: What::Story("<img src=x> \u{2028} \"quoted\" </script>".to_owned()),
                after: Some(Standing::Down),
            }],
            ..Recording::default()
        };
        recording.conclude(Some(&Violation::new("progress", "<!-- nobody moves")));
        recording
    }

    /// The JSON that a page holds, as a browser cuts it out.
    fn held(page: &str) -> &str {
        let (_, rest) = page.split_once("type=\"application/json\">").expect("the data");
        rest.split_once("</script>").expect("the end of the data").0
    }

    #[test]
    fn the_page_holds_the_data_and_no_text_of_the_run_escapes_from_them() {
        let page = write(&tricky());
        let json = held(&page);
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        let data: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(data["title"], "</script><b>seed 1");
        assert_eq!(data["facts"][0][1], "replay 1 && echo '/*PAGE*/'");
        assert_eq!(data["items"][0][4], "<img src=x> \u{2028} \"quoted\" </script>");
        assert_eq!(data["violation"], json!(["progress", "<!-- nobody moves"]));
        assert_eq!(page.matches("<img").count(), 0);
    }

    #[test]
    fn the_page_needs_nothing_from_anywhere() {
        let page = write(&tricky());
        for word in ["http:", "https:", "//cdn", "@import", "url(", "import ", "fetch("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
        assert!(page.is_ascii(), "the assets are plain ASCII");
        let empty = write(&Recording::default());
        assert!(empty.len() < 120_000, "the assets are {} bytes", empty.len());
        for name in ["STYLE", "MODEL", "DRAW", "PAGE", "DATA"] {
            assert!(!empty.contains(&format!("/*{name}*/")), "{name} was not filled in");
        }
    }

    #[test]
    fn the_lists_of_the_page_name_what_the_numbers_mean() {
        let list = |name: &str| {
            let (_, rest) = MODEL.split_once(&format!("const {name} = [")).expect("the list");
            let words = rest.split_once("];").expect("its end").0;
            words.split(',').map(|w| w.trim().trim_matches('"').to_owned()).collect::<Vec<_>>()
        };
        let fates =
            [Fate::Underway, Fate::Held, Fate::Again, Fate::Dropped, Fate::Cut, Fate::Unconnected];
        for fate in fates {
            assert_eq!(list("FATES")[fate_number(fate)], fate.as_str());
        }
        let classes = list("CLASSES");
        assert_eq!(classes[class(&What::Timer)], "timer");
        assert_eq!(classes[class(&What::Uncut { links: Vec::new() })], "uncut");
        assert_eq!(classes[class(&What::Story(String::new()))], "story");
        let violated = What::Violated { property: "p", evidence: String::new() };
        assert_eq!(classes[class(&violated)], "violated");
        assert_eq!(classes.len(), 1 + class(&violated));
    }
}

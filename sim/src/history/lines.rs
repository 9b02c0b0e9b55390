//! Histories as JSON lines: one object a line, an event each, in the order in which they happened
//! (the form that Jepsen's tests write). Positions of the history are line numbers, from 1.
//!
//! Fields: `process` (a number or text), `type` (`invoke`, `ok`, `fail`, `info`), `f` (`read`,
//! `write`, `cas`), `key` (may be absent: one register), `value` (for `cas` an array of two); others
//! are passed over. Values are compared as JSON; `null` is what a register holds before it was
//! written. An end needs `process` and `type` only (an `ok` read also `value`); what else it says must
//! agree with the beginning. A process has one operation at a time; one that ended with `info` may
//! go on with another, and its former one stays open for ever.

use super::{Action, End, History, NOTHING, Operation, Value};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt;

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.what, self.remedy)
    }
}

type Bad = (String, &'static str);

/// What a process is at.
struct Pending {
    line: usize,
    f: String,
    key: String,
    given: Option<Json>,
}

#[derive(Default)]
struct Reader {
    history: History,
    open: BTreeMap<String, Pending>,
}

/// Reads a history.
///
/// # Errors
/// The first line that cannot be read.
pub fn parse(text: &str) -> Result<History, BadLine> {
    let mut reader = Reader { history: History::new(), open: BTreeMap::new() };
    for (at, content) in text.lines().enumerate() {
        let line = at + 1;
        if content.trim().is_empty() {
            continue;
        }
        reader.event(line, content).map_err(|(what, remedy)| BadLine { line, what, remedy })?;
    }
    let pending: Vec<(String, Pending)> = std::mem::take(&mut reader.open).into_iter().collect();
    for (process, pending) in pending {
        let line = pending.line;
        (reader.finish(&process, pending, End::Open, None)).map_err(|(what, remedy)| BadLine {
            line,
            what,
            remedy,
        })?;
    }
    reader.history.operations.sort_by_key(|operation| operation.begun);
    Ok(reader.history)
}

const FORM: &str = "write one JSON object a line, such as \
    {\"process\":0,\"type\":\"invoke\",\"f\":\"write\",\"key\":\"x\",\"value\":1}";

impl Reader {
    fn event(&mut self, line: usize, content: &str) -> Result<(), Bad> {
        let json: Json =
            serde_json::from_str(content).map_err(|e| (format!("no JSON ({e})"), FORM))?;
        let Json::Object(fields) = json else {
            return Err(("no JSON object".into(), FORM));
        };
        let process = match fields.get("process") {
            Some(Json::Number(number)) => number.to_string(),
            Some(Json::String(text)) => text.clone(),
            Some(other) => {
                return Err((format!("`process` is {other}"), "give a number or a text"));
            }
            None => return Err(("no `process`".into(), "say which process this is of")),
        };
        let kind = text(&fields, "type")?.ok_or_else(|| {
            ("no `type`".to_owned(), "give one of \"invoke\", \"ok\", \"fail\", \"info\"")
        })?;
        match kind {
            "invoke" => self.invoke(line, process, &fields),
            "ok" => self.ended(&process, &fields, End::Ok(line)),
            "fail" => self.ended(&process, &fields, End::Fail(line)),
            "info" => self.ended(&process, &fields, End::Open),
            other => Err((
                format!("`type` is {other:?}"),
                "give one of \"invoke\", \"ok\", \"fail\", \"info\"",
            )),
        }
    }

    fn invoke(
        &mut self,
        line: usize,
        process: String,
        fields: &Map<String, Json>,
    ) -> Result<(), Bad> {
        if let Some(pending) = self.open.get(&process) {
            return Err((
                format!(
                    "process {process} invokes while its operation of line {} is open",
                    pending.line
                ),
                "end that operation first (`info` if its outcome is unknown), or use another process",
            ));
        }
        let Some(f) = text(fields, "f")? else {
            return Err(("no `f`".into(), "give one of \"read\", \"write\", \"cas\""));
        };
        let given = fields.get("value").cloned();
        match (f, &given) {
            ("read", _) | ("write", Some(_)) => {}
            ("write", None) => {
                return Err(("a write without `value`".into(), "say what is written"));
            }
            ("cas", Some(Json::Array(pair))) if pair.len() == 2 => {}
            ("cas", _) => {
                return Err((
                    "a cas needs as `value` an array of two".into(),
                    "write [expected, new]",
                ));
            }
            (other, _) => {
                return Err((
                    format!("`f` is {other:?}"),
                    "registers know \"read\", \"write\" and \"cas\" only",
                ));
            }
        }
        let key = key(fields).unwrap_or_default();
        self.open.insert(process, Pending { line, f: f.to_owned(), key, given });
        Ok(())
    }

    fn ended(&mut self, process: &str, fields: &Map<String, Json>, end: End) -> Result<(), Bad> {
        let Some(pending) = self.open.remove(process) else {
            return Err((
                format!("process {process} ends an operation that it did not invoke"),
                "every end needs an `invoke` of the same process before it",
            ));
        };
        let began = pending.line;
        let other = |what: &str| {
            let what = format!("{what} differs from that of line {began}, which this line ends");
            Err((what, "an end must agree with its beginning"))
        };
        if text(fields, "f")?.is_some_and(|f| f != pending.f) {
            return other("`f`");
        }
        if key(fields).is_some_and(|key| key != pending.key) {
            return other("`key`");
        }
        let said = fields.get("value");
        let ok = matches!(end, End::Ok(_));
        if ok
            && pending.f != "read"
            && said.is_some_and(|v| !v.is_null() && pending.given.as_ref() != Some(v))
        {
            return other("`value`");
        }
        self.finish(process, pending, end, said)
    }

    /// Adds an operation to the history, unless it says nothing.
    fn finish(
        &mut self,
        process: &str,
        pending: Pending,
        end: End,
        said: Option<&Json>,
    ) -> Result<(), Bad> {
        let Pending { line, f, key, given } = pending;
        let action = match (f.as_str(), given) {
            ("read", _) if !matches!(end, End::Ok(_)) => return Ok(()),
            ("read", _) => {
                let Some(value) = said else {
                    return Err((
                        "an ok read without `value`".into(),
                        "say what it returned (null if nothing was written)",
                    ));
                };
                Action::Read(self.value(value))
            }
            ("cas", Some(Json::Array(pair))) => match pair.as_slice() {
                [expected, value] => {
                    Action::Cas { expected: self.value(expected), value: self.value(value) }
                }
                _ => return Ok(()),
            },
            (_, Some(value)) => Action::Write(self.value(&value)),
            (_, None) => return Ok(()),
        };
        let history = &mut self.history;
        let (process, key) = (history.processes.of(process), history.keys.of(&key));
        history.operations.push(Operation { process, key, action, begun: line, end });
        Ok(())
    }

    fn value(&mut self, value: &Json) -> Value {
        if value.is_null() {
            return NOTHING;
        }
        Value(self.history.values.of(&value.to_string()))
    }
}

fn text<'a>(fields: &'a Map<String, Json>, name: &str) -> Result<Option<&'a str>, Bad> {
    match fields.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(other) => Err((format!("`{name}` is {other}"), "give a text in quotation marks")),
    }
}

/// The register, if one is named: a text as it is, anything else as JSON.
fn key(fields: &Map<String, Json>) -> Option<String> {
    match fields.get("key") {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::search::{Outcome, check};

    fn verdict(text: &str) -> Outcome {
        check(&parse(text).expect("reads"), 1 << 20, &mut |_| {})
    }

    #[test]
    fn a_history_is_read_and_judged() {
        let text = r#"
{"process":0,"type":"invoke","f":"write","value":1}
{"process":1,"type":"invoke","f":"read","value":null,"time":12}
{"process":0,"type":"ok","f":"write","value":1}
{"process":1,"type":"ok","f":"read","value":null}
{"process":1,"type":"invoke","f":"cas","value":[1,2]}
{"process":1,"type":"info"}
{"process":1,"type":"invoke","f":"read"}
{"process":1,"type":"ok","value":2}
"#;
        let history = parse(text).expect("reads");
        assert_eq!(history.operations.len(), 4);
        assert_eq!(history.describe(&history.operations[2]), "process 1 cas 1 to 2");
        assert_eq!(verdict(text), Outcome::Linearizable);
        let stale = text.replace("\"value\":2}", "\"value\":null}");
        let Outcome::Fails(failure) = verdict(&stale) else { panic!("a stale read") };
        assert_eq!((failure.position, failure.operation.begun), (9, 8));
    }

    #[test]
    fn keys_are_registers_of_their_own() {
        let line = |kind: &str, f: &str, key: &str, value: &str| {
            format!(r#"{{"process":"a","type":"{kind}","f":"{f}","key":{key},"value":{value}}}"#)
        };
        let text = [
            line("invoke", "write", "\"x\"", "1"),
            line("ok", "write", "\"x\"", "1"),
            line("invoke", "read", "7", "null"),
            line("ok", "read", "7", "null"),
        ];
        assert_eq!(verdict(&text.join("\n")), Outcome::Linearizable);
        let same = text.join("\n").replace("7", "\"x\"");
        assert!(matches!(verdict(&same), Outcome::Fails(_)));
    }

    #[test]
    fn every_kind_of_bad_line_is_refused_with_its_number_and_a_remedy() {
        let invoke = r#"{"process":0,"type":"invoke","f":"write","value":1}"#;
        let cases = [
            ("nonsense", 1),
            ("[1]", 1),
            (r#"{"type":"invoke","f":"read"}"#, 1),
            (r#"{"process":[],"type":"invoke","f":"read"}"#, 1),
            (r#"{"process":0,"f":"read"}"#, 1),
            (r#"{"process":0,"type":"begin","f":"read"}"#, 1),
            (r#"{"process":0,"type":"invoke"}"#, 1),
            (r#"{"process":0,"type":"invoke","f":"append","value":1}"#, 1),
            (r#"{"process":0,"type":"invoke","f":"write"}"#, 1),
            (r#"{"process":0,"type":"invoke","f":"cas","value":[1]}"#, 1),
            (r#"{"process":0,"type":"ok","f":"read","value":1}"#, 1),
        ];
        for (text, line) in cases {
            let bad = parse(text).expect_err(text);
            assert_eq!(bad.line, line, "{text}");
            assert!(!bad.remedy.is_empty(), "{text}");
        }
        let second = [
            invoke.to_owned(),
            r#"{"process":0,"type":"ok","f":"read"}"#.into(),
            r#"{"process":0,"type":"ok","f":"write","value":2}"#.into(),
            r#"{"process":0,"type":"ok","f":"write","key":"x"}"#.into(),
        ];
        for text in second {
            assert_eq!(parse(&format!("{invoke}\n{text}")).expect_err(&text).line, 2, "{text}");
        }
        let read = r#"{"process":0,"type":"invoke","f":"read"}"#;
        let bad = parse(&format!("{read}\n\n{{\"process\":0,\"type\":\"ok\"}}")).expect_err("bare");
        assert_eq!(bad.line, 3);
        assert!(bad.to_string().starts_with("line 3: an ok read without `value`; "), "{bad}");
    }
}

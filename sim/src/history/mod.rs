//! Histories of operations on registers, and whether they are linearizable (Herlihy and Wing
//! 1990): whether each operation can be given one moment between its beginning and its end at
//! which it took effect, so that every read returns what was written last.
//!
//! | module | what it does |
//! |---|---|
//! | [`search`] | decides it, key by key, and finds the shortest prefix that is not |
//! | [`lines`] | reads a history from JSON lines |
//! | [`recorder`] | takes one down in a run |
//! | [`oracle`] | finds plain lies (phantoms, stale and lost values) without a search |
//!
//! Assumed: a register holds nothing at first; an operation that failed never took effect; one
//! whose outcome is unknown, or that never ended, takes effect once at any time after it began, or
//! never. A history is linearizable if and only if the part of each key is (locality, Herlihy and
//! Wing 3.3), so keys are judged one by one.

pub mod lines;
pub mod oracle;
pub mod recorder;
pub mod search;

#[cfg(test)]
mod brute_tests;

use std::collections::BTreeMap;

/// A value by its name: equal values have equal names.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u32);

/// What a register holds before anything was written, and what a deletion leaves.
pub const NOTHING: Value = Value(0);

/// What an operation does, with what it was given or returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Returned this.
    Read(Value),
    /// Writes this.
    Write(Value),
    /// Writes `value` if the register holds `expected`, which it did if the operation went well.
    Cas {
        /// Must be there.
        expected: Value,
        /// Is written.
        value: Value,
    },
}

impl Action {
    /// What it must find, if it must find something.
    #[must_use]
    pub const fn observes(self) -> Option<Value> {
        match self {
            Self::Read(value) | Self::Cas { expected: value, .. } => Some(value),
            Self::Write(_) => None,
        }
    }

    /// What it leaves, if it changes something.
    #[must_use]
    pub const fn produces(self) -> Option<Value> {
        match self {
            Self::Write(value) | Self::Cas { value, .. } => Some(value),
            Self::Read(_) => None,
        }
    }
}

/// How an operation ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It took effect before this position.
    Ok(usize),
    /// It was said at this position that it never took effect.
    Fail(usize),
    /// Nobody knows.
    Open,
}

/// One operation. Positions order beginnings and ends; no two of a history are equal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who.
    pub process: u32,
    /// On which register.
    pub key: u32,
    /// What.
    pub action: Action,
    /// Position of its beginning.
    pub begun: usize,
    /// How it ended.
    pub end: End,
}

impl Operation {
    /// Position of its end, if it ended.
    #[must_use]
    pub const fn ended(&self) -> Option<usize> {
        match self.end {
            End::Ok(at) | End::Fail(at) => Some(at),
            End::Open => None,
        }
    }
}

/// Names by text, in the order in which they first came.
#[derive(Clone, Debug, Default)]
pub struct Names {
    texts: Vec<String>,
    known: BTreeMap<String, u32>,
}

impl Names {
    /// The name of a text.
    pub fn of(&mut self, text: &str) -> u32 {
        if let Some(name) = self.known.get(text) {
            return *name;
        }
        let name = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_owned());
        self.known.insert(text.to_owned(), name);
        name
    }

    /// The text of a name; a question mark for one that was never given.
    #[must_use]
    pub fn text(&self, name: u32) -> &str {
        usize::try_from(name).ok().and_then(|at| self.texts.get(at)).map_or("?", String::as_str)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.texts.len()
    }

    /// True if none was given.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// A history. Reads that returned nothing (failed or unknown) are not in it: they say nothing.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations, in the order of their beginnings.
    pub operations: Vec<Operation>,
    /// Names of processes.
    pub processes: Names,
    /// Names of registers.
    pub keys: Names,
    /// Names of values; [`NOTHING`] is `null`.
    pub values: Names,
}

impl History {
    /// A history without operations.
    #[must_use]
    pub fn new() -> Self {
        let mut history = Self::default();
        history.values.of("null");
        history
    }

    /// An operation in words.
    #[must_use]
    pub fn describe(&self, operation: &Operation) -> String {
        let value = |v: Value| self.values.text(v.0);
        let what = match operation.action {
            Action::Read(v) => format!("read {}", value(v)),
            Action::Write(v) => format!("write {}", value(v)),
            Action::Cas { expected, value: v } => {
                format!("cas {} to {}", value(expected), value(v))
            }
        };
        let key = match self.keys.text(operation.key) {
            "" => String::new(),
            key => format!(" (key {key})"),
        };
        format!("process {} {what}{key}", self.processes.text(operation.process))
    }
}

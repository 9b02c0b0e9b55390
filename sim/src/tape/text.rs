//! A tape as text.
//!
//! ```text
//! holdfast-tape 1
//! # durability: n2 has lost 1.7, which was acknowledged
//! # seed 1234 of profile default
//! profile default
//! setup: nodes=5
//! nemesis 64: kind=power-loss node=1 after=1200
//! message n1>n2 append 57: lost
//! crash n2 0: sector=1 sector.3=1
//! op c1 0: kind=put at=1230000
//! ```
//!
//! The tape of a scenario says `scenario NAME GUARD` in the place of the profile, and holds the moves
//! of its program: `act n1 produce 0: records=3`, `act n1>n2 cut 0: do`.
//!
//! The first line names format and version; `#` begins a comment. A line is a place and its
//! decisions: stream, whom it concerns (`n` nodes, `c` clients, `n1>n2` a link, all from one), a
//! detail, a number (left out where it is zero and nothing else stands before it), a colon, then
//! `name=value`, or the name alone for a plain yes. `.3` behind a name is its fourth draw there. A
//! line that begins with a blank continues the one before. Times are microseconds.

use super::{Decision, Place, Play, Tape, Value};
use crate::broker::Mode;
use crate::choices::{Actor, Stream};
use crate::profile::{PROFILES, Profile};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The first line of every tape.
pub const MAGIC: &str = "holdfast-tape 1";
/// Columns that a line fills before it is continued on the next.
const COLUMNS: usize = 100;

/// Why a text is no tape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadTape {
    /// Its line, from one.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stream.name())?;
        match self.actor {
            Actor::World => {}
            Actor::Node(node) => write!(f, " n{}", node + 1)?,
            Actor::Link(from, to) => write!(f, " n{}>n{}", from + 1, to + 1)?,
            Actor::Client(client) => write!(f, " c{}", client + 1)?,
        }
        if !self.detail.is_empty() {
            write!(f, " {}", self.detail)?;
        }
        let bare = self.actor == Actor::World && self.detail.is_empty();
        if bare && self.number == 0 { Ok(()) } else { write!(f, " {}", self.number) }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.repeat > 0 {
            write!(f, ".{}", self.repeat)?;
        }
        match &self.value {
            Value::Number(1) => Ok(()),
            Value::Number(number) => write!(f, "={number}"),
            Value::Word(word) => write!(f, "={word}"),
        }
    }
}

impl Tape {
    /// The tape as a file.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!("{MAGIC}\n");
        for line in &self.header {
            text.push_str(&format!("# {line}\n"));
        }
        match self.play {
            None => text.push_str(&format!("profile {}\n", self.profile.name())),
            Some(play) => {
                let (name, guard) = (play.scenario().name, play.guard.name());
                text.push_str(&format!("scenario {name} {guard}\n"));
            }
        }
        let mut at: BTreeMap<&Place, Vec<&Decision>> = BTreeMap::new();
        for decision in &self.decisions {
            at.entry(&decision.place).or_default().push(decision);
        }
        let (setup, rest): (Vec<_>, Vec<_>) =
            self.places().into_iter().partition(|place| place.stream == Stream::Setup);
        for place in setup.into_iter().chain(rest) {
            let mut line = format!("{place}:");
            for decision in at.get(&place).into_iter().flatten() {
                let word = format!(" {decision}");
                if line.len() + word.len() > COLUMNS {
                    text.push_str(&line);
                    text.push('\n');
                    line = " ".to_owned();
                }
                line.push_str(&word);
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// Reads a tape.
    ///
    /// # Errors
    /// [`BadTape`] with the first line that is none.
    pub fn parse(text: &str) -> Result<Self, BadTape> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        if first != MAGIC {
            let why = format!("{first:?} is not {MAGIC:?}: no tape, or one of another version");
            return Err(BadTape { line: 1, why });
        }
        let mut tape = Self::calm(Profile::Default);
        let mut place = None;
        for (at, line) in lines {
            parse_line(line, &mut tape, &mut place).map_err(|why| BadTape { line: at + 1, why })?;
        }
        Ok(tape)
    }
}

fn parse_line(line: &str, tape: &mut Tape, place: &mut Option<Place>) -> Result<(), String> {
    let line = line.trim_end();
    if line.is_empty() {
        return Ok(());
    }
    if let Some(comment) = line.strip_prefix('#') {
        tape.header.push(comment.trim_start().to_owned());
        return Ok(());
    }
    if let Some(name) = line.strip_prefix("profile ") {
        tape.profile = Profile::named(name)
            .ok_or_else(|| format!("no profile {name:?}; there are {}", PROFILES.join(", ")))?;
        return Ok(());
    }
    if let Some(words) = line.strip_prefix("scenario ") {
        tape.play = Some(parse_play(words)?);
        return Ok(());
    }
    let words = match line.strip_prefix(' ') {
        Some(more) => more,
        None => {
            let (head, words) = line
                .split_once(':')
                .ok_or_else(|| format!("{line:?} has no colon behind its place"))?;
            *place = Some(parse_place(head)?);
            words
        }
    };
    let place = place.as_ref().ok_or("a continued line continues nothing")?;
    for word in words.split_whitespace() {
        tape.decisions.push(parse_decision(place, word)?);
    }
    Ok(())
}

fn parse_play(words: &str) -> Result<Play, String> {
    let (name, guard) = words
        .split_once(' ')
        .ok_or_else(|| format!("{words:?} is not a scenario and how it is guarded"))?;
    let guard = Mode::named(guard)
        .ok_or_else(|| format!("no guard {guard:?}; there are {}", Mode::NAMES.join(", ")))?;
    Play::of(name, guard).ok_or_else(|| format!("no scenario {name:?}; `scenario list` names them"))
}

fn parse_place(head: &str) -> Result<Place, String> {
    let mut tokens = head.split_whitespace().peekable();
    let name = tokens.next().unwrap_or_default();
    let stream = Stream::named(name).ok_or_else(|| {
        let all: Vec<_> = Stream::ALL.iter().map(|s| s.name()).collect();
        format!("no stream {name:?}; there are {}", all.join(", "))
    })?;
    let actor = tokens.peek().and_then(|token| parse_actor(token));
    if actor.is_some() {
        tokens.next();
    }
    let mut place = Place::new(stream, actor.unwrap_or(Actor::World), "", 0);
    for token in tokens {
        match token.parse() {
            Ok(number) => place.number = number,
            Err(_) if place.detail.is_empty() => place.detail = Cow::Owned(token.to_owned()),
            Err(_) => return Err(format!("{token:?} is neither a detail nor a number")),
        }
    }
    Ok(place)
}

fn parse_actor(token: &str) -> Option<Actor> {
    let member = |text: &str, sort: char| {
        text.strip_prefix(sort)?.parse::<usize>().ok()?.checked_sub(1).filter(|n| *n < 1 << 16)
    };
    if let Some((from, to)) = token.split_once('>') {
        return Some(Actor::Link(member(from, 'n')?, member(to, 'n')?));
    }
    let node = member(token, 'n').map(Actor::Node);
    node.or_else(|| member(token, 'c').map(Actor::Client))
}

fn parse_decision(place: &Place, word: &str) -> Result<Decision, String> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, value),
        None => (word, "1"),
    };
    let (name, repeat) = match name.split_once('.') {
        Some((name, repeat)) => {
            let repeat = repeat.parse().map_err(|e| format!("{word:?}: {repeat:?}: {e}"))?;
            (name, repeat)
        }
        None => (name, 0),
    };
    if name.is_empty() || value.is_empty() {
        return Err(format!("{word:?} is not a name with a value"));
    }
    let value = match value.as_bytes()[0].is_ascii_digit() {
        true => Value::Number(value.parse().map_err(|e| format!("{word:?}: {e}"))?),
        false => Value::Word(Cow::Owned(value.to_owned())),
    };
    let name = Cow::Owned(name.to_owned());
    Ok(Decision { place: place.clone(), name, repeat, calm: value.clone(), value })
}

//! The choice tape: the decisions of a run that differ from the calm ones.
//!
//! A tape is a text file (see [`text`]), so that it can be read in review and committed as a
//! regression test. It addresses decisions by place and name, not by their order in the run:
//! whatever is not on it is calm, and what nobody asks for is not used. That is what lets a tape
//! outlive changes of unrelated code. Guarantee: with the same code, a recorded tape replays its
//! run bit for bit.

pub mod text;

use crate::broker::Mode;
use crate::choices::{Actor, Stream, decision_key, mix, place_key};
use crate::profile::Profile;
use crate::scenario::{self, Scenario};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Where a decision is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The stream.
    pub stream: Stream,
    /// Whom it concerns.
    pub actor: Actor,
    /// A word that divides the stream, such as a kind of message; empty if nothing does.
    pub detail: Cow<'static, str>,
    /// Its number among the places of this stream, actor and detail, from zero.
    pub number: u32,
}

impl Place {
    pub(crate) const fn new(
        stream: Stream,
        actor: Actor,
        detail: &'static str,
        number: u32,
    ) -> Self {
        Self { stream, actor, detail: Cow::Borrowed(detail), number }
    }

    /// The hash that stands for it in a run.
    pub(crate) fn key(&self) -> u64 {
        mix(place_key(self.stream, self.actor, &self.detail), u64::from(self.number))
    }
}

/// A value on a tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number; 1 for "yes".
    Number(u64),
    /// One of several named options.
    Word(Cow<'static, str>),
}

/// A decision that was not calm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Where it was made.
    pub place: Place,
    /// What it decided.
    pub name: Cow<'static, str>,
    /// How often this name was drawn at this place before.
    pub repeat: u32,
    /// What came out.
    pub value: Value,
    /// What would have been calm; the value itself if that is not known (a tape that was read).
    pub calm: Value,
}

impl Decision {
    fn key(&self) -> u64 {
        decision_key(self.place.key(), &self.name, self.repeat)
    }
}

/// A scenario and how its brokers make sure: what a tape is of that is not of a profile.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Play {
    scenario: &'static str,
    /// How the brokers make sure.
    pub guard: Mode,
}

impl Play {
    /// The scenario of this name; `None` if there is none.
    #[must_use]
    pub fn of(scenario: &str, guard: Mode) -> Option<Self> {
        scenario::named(scenario).map(|found| Self { scenario: found.name, guard })
    }

    /// The same scenario, with brokers that make sure in this way.
    #[must_use]
    pub const fn guarded(self, guard: Mode) -> Self {
        Self { guard, ..self }
    }

    /// The scenario.
    ///
    /// # Panics
    /// Never: a play is made of one that exists.
    #[must_use]
    pub fn scenario(self) -> &'static Scenario {
        scenario::named(self.scenario).expect("a play is made of a scenario that exists")
    }
}

/// The decisions of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tape {
    /// Comments: what it showed, and where it was found.
    pub header: Vec<String>,
    /// What the world is made of where the tape says nothing.
    pub profile: Profile,
    /// The scenario whose moves it holds; `None` in a tape of a campaign.
    pub play: Option<Play>,
    /// The decisions, in the order of the run.
    pub decisions: Vec<Decision>,
}

impl Tape {
    /// A tape without a decision: the calm run of a profile.
    #[must_use]
    pub const fn calm(profile: Profile) -> Self {
        Self { header: Vec::new(), profile, play: None, decisions: Vec::new() }
    }

    /// The places with at least one decision, each once, in the order of the tape.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let mut seen = BTreeSet::new();
        let all = self.decisions.iter().map(|d| &d.place);
        all.filter(|place| seen.insert((*place).clone())).cloned().collect()
    }

    /// How many places of this stream there are.
    #[must_use]
    pub fn count(&self, stream: Stream) -> usize {
        self.places().iter().filter(|place| place.stream == stream).count()
    }

    /// The form in which a run asks for its decisions.
    #[must_use]
    pub fn index(&self) -> Index {
        let mut index = Index::default();
        for decision in &self.decisions {
            let place = &decision.place;
            index.values.insert(decision.key(), decision.value.clone());
            let numbers = index.numbers.entry((place.stream, place.actor)).or_default();
            numbers.insert(u64::from(place.number));
        }
        index
    }
}

/// A tape by the keys of its decisions.
#[derive(Clone, Debug, Default)]
pub struct Index {
    values: BTreeMap<u64, Value>,
    numbers: BTreeMap<(Stream, Actor), BTreeSet<u64>>,
}

impl Index {
    pub(crate) fn get(&self, key: u64) -> Option<&Value> {
        self.values.get(&key)
    }

    pub(crate) fn next_number(&self, stream: Stream, actor: Actor, from: u64) -> Option<u64> {
        self.numbers.get(&(stream, actor))?.range(from..).next().copied()
    }
}

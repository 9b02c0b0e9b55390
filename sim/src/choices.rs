//! Chance: every decision has a *place*, and its value depends on the seed and that place alone.
//!
//! A place is a named stream, who it concerns, and a number in it: the 57th append from n1 to n2,
//! slot 64 of the nemesis, operation 3 of client 1, the second crash of n3. Inside a place each
//! decision has a name. So code that draws more or fewer values somewhere changes nothing
//! elsewhere, and a recorded tape keeps its meaning when unrelated code changes.
//!
//! Every decision has a *calm* value: no fault, the shortest delay, the least work. A tape
//! ([`crate::tape`]) stores only what differs from it. A run from a tape takes the calm value for
//! whatever the tape does not hold, and the nearest permitted value for what is out of bounds.

use crate::tape::{Decision, Index, Place, Value};
use holdfast_consensus::Micros;
use holdfast_consensus::rng::SplitMix64;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Declares the streams with their names in one place.
macro_rules! streams {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Who draws.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Stream { $($(#[$doc])* $variant,)* }

        impl Stream {
            /// Every stream.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name on a tape.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

streams! {
    /// Whatever is drawn outside of every other place.
    Run = "run",
    /// The settings of the run.
    Setup = "setup",
    /// Anything of the network that has no place of its own.
    Network = "network",
    /// Anything of a disk that has no place of its own.
    Disk = "disk",
    /// The clock of a machine, anew after each loss of power.
    Clock = "clock",
    /// Anything of a process that has no place of its own.
    Process = "process",
    /// Anything of a client that has no place of its own.
    Workload = "workload",
    /// A start of a process, by the number of its life.
    Boot = "boot",
    /// An attempt to connect two nodes.
    Dial = "dial",
    /// The fate of one message on a link, counted for each kind of message.
    Message = "message",
    /// The latency of one job of a node, counted for each kind of job.
    Job = "job",
    /// What a crash leaves, by the number of the life it ends.
    Crash = "crash",
    /// A slot of virtual time in which a fault may strike.
    Nemesis = "nemesis",
    /// An operation of a client, with its first attempt.
    Op = "op",
    /// A further attempt of a client.
    Try = "try",
    /// What a client makes of an answer.
    Reply = "reply",
    /// The end of faults, by the number of the look that saw it due.
    Heal = "heal",
    /// A majority that is healed first, and how a node of the rest is broken.
    Majority = "majority",
    /// A move of a scenario's program, counted for each kind of move.
    Act = "act",
}

impl Stream {
    /// The stream of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|stream| stream.name() == name)
    }
}

/// Whom a place concerns. Nodes and clients count from zero here, and from one on a tape.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// Nobody in particular.
    World,
    /// A node.
    Node(usize),
    /// The way from one node to another.
    Link(usize, usize),
    /// A client.
    Client(usize),
}

impl Actor {
    fn code(self) -> u64 {
        match self {
            Self::World => 0,
            Self::Node(node) => 1 << 32 | node as u64,
            Self::Link(from, to) => 2 << 32 | (from as u64) << 16 | to as u64,
            Self::Client(client) => 3 << 32 | client as u64,
        }
    }
}

/// Name of a decision inside its place. A [`Stream`] serves as one where nobody thought of better.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Name(&'static str);

impl From<Stream> for Name {
    fn from(stream: Stream) -> Self {
        Self(stream.name())
    }
}

impl From<&'static str> for Name {
    fn from(name: &'static str) -> Self {
        Self(name)
    }
}

/// Mixes a number into a key.
pub(crate) const fn mix(key: u64, with: u64) -> u64 {
    let z = (key ^ with).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(17)
}

/// The hash of a word (FNV-1a), the same in every build.
pub(crate) const fn word(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

/// The key of a place before its number.
pub(crate) fn place_key(stream: Stream, actor: Actor, detail: &str) -> u64 {
    mix(mix(word(stream.name()), actor.code()), word(detail))
}

/// The key of a decision.
pub(crate) fn decision_key(place: u64, name: &str, repeat: u32) -> u64 {
    mix(mix(place, word(name)), u64::from(repeat))
}

/// Where values come from.
#[derive(Clone, Debug)]
enum Source {
    Seed(u64),
    Tape(Index),
}

/// The place that draws now.
#[derive(Clone, Debug)]
struct Scope {
    place: Place,
    key: u64,
    /// How often each name was drawn here.
    counts: Vec<(&'static str, u32)>,
}

/// The source of every random decision of a run.
#[derive(Clone, Debug)]
pub struct Choices {
    source: Source,
    /// Entered places, the innermost at `depth`; what lies behind is kept for its memory.
    scopes: Vec<Scope>,
    depth: usize,
    /// Next number of the places that are numbered as they come.
    numbers: BTreeMap<u64, u32>,
    tape: Option<Vec<Decision>>,
    draws: u64,
    disturbed: Option<Stream>,
}

impl Choices {
    fn from(source: Source) -> Self {
        let place = Place::new(Stream::Run, Actor::World, "", 0);
        let key = place.key();
        let base = Scope { place, key, counts: Vec::new() };
        let (numbers, tape) = (BTreeMap::new(), None);
        Self { source, scopes: vec![base], depth: 0, numbers, tape, draws: 0, disturbed: None }
    }

    /// The choices of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::from(Source::Seed(SplitMix64::new(seed ^ 0x486f_6c64_6661_7374).next_u64()))
    }

    /// The choices of a tape; calm ones where it holds nothing.
    #[must_use]
    pub fn replay(tape: Index) -> Self {
        Self::from(Source::Tape(tape))
    }

    /// Does to one stream what a change of code does that has nothing to do with a failure: each of
    /// its places draws twice more, and where they are numbered as they come, there was one more
    /// before them. For tests of how well a tape keeps its meaning.
    pub const fn disturb(&mut self, stream: Stream) {
        self.disturbed = Some(stream);
    }

    /// Keeps every decision that is not calm from now on.
    pub fn record(&mut self) {
        self.tape = Some(Vec::new());
    }

    /// The decisions since [`Choices::record`], in the order in which they were made.
    #[must_use]
    pub fn take_tape(&mut self) -> Vec<Decision> {
        self.tape.take().unwrap_or_default()
    }

    /// True if the choices come from a tape.
    #[must_use]
    pub const fn is_tape(&self) -> bool {
        matches!(self.source, Source::Tape(_))
    }

    /// How many draws there were.
    #[must_use]
    pub const fn draws(&self) -> u64 {
        self.draws
    }

    /// Enters the next place of its kind: draws belong to it until [`Choices::leave`].
    pub fn enter(&mut self, stream: Stream, actor: Actor, detail: &'static str) {
        let key = place_key(stream, actor, detail);
        let first = u32::from(self.disturbed == Some(stream));
        let next = self.numbers.entry(key).or_insert(first);
        let number = *next;
        *next += 1;
        self.push(stream, actor, detail, number, key);
    }

    /// Enters the place with this number; the caller enters none twice, or with other names.
    pub fn enter_at(&mut self, stream: Stream, actor: Actor, number: u64) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.push(stream, actor, "", number, place_key(stream, actor, ""));
    }

    fn push(&mut self, stream: Stream, actor: Actor, detail: &'static str, number: u32, key: u64) {
        let key = mix(key, u64::from(number));
        let place = Place::new(stream, actor, detail, number);
        self.depth += 1;
        match self.scopes.get_mut(self.depth) {
            Some(scope) => {
                (scope.place, scope.key) = (place, key);
                scope.counts.clear();
            }
            None => self.scopes.push(Scope { place, key, counts: Vec::new() }),
        }
        if self.disturbed == Some(stream) {
            self.bits("inserted");
            self.bits("inserted");
        }
    }

    /// Goes back to the place before the last one entered.
    pub const fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// The first number from `from` on at which there is anything of this stream and actor: `from`
    /// itself in a run from a seed, nothing behind the end of a tape.
    #[must_use]
    pub fn next_number(&self, stream: Stream, actor: Actor, from: u64) -> Option<u64> {
        match &self.source {
            Source::Seed(_) => Some(from),
            Source::Tape(tape) => tape.next_number(stream, actor, from),
        }
    }

    /// True in a run from a tape that holds something of this stream at `from` or later.
    #[must_use]
    pub fn foresees(&self, stream: Stream, actor: Actor, from: u64) -> bool {
        self.is_tape() && self.next_number(stream, actor, from).is_some()
    }

    /// One decision. `read` takes a value of the tape and answers `None` if it is of the wrong
    /// sort; `write` says how the tape stores a value, and whether it is calm.
    fn draw<T: Copy>(
        &mut self,
        name: Name,
        from: impl FnOnce(&mut SplitMix64) -> T,
        read: impl FnOnce(Stored, u64) -> T,
        write: impl FnOnce(T, u64) -> Option<(Value, Value)>,
    ) -> T {
        self.draws += 1;
        let scope = &mut self.scopes[self.depth];
        let repeat = match scope.counts.iter_mut().find(|(known, _)| *known == name.0) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                scope.counts.push((name.0, 0));
                0
            }
        };
        let key = decision_key(scope.key, name.0, repeat);
        let value = match &self.source {
            Source::Seed(seed) => from(&mut SplitMix64::new(mix(*seed, key))),
            Source::Tape(tape) => read(tape.get(key), key),
        };
        if let Some(tape) = &mut self.tape
            && let Some((value, calm)) = write(value, key)
        {
            let (place, name) = (scope.place.clone(), Cow::Borrowed(name.0));
            tape.push(Decision { place, name, repeat, value, calm });
        }
        value
    }

    fn number(
        &mut self,
        name: Name,
        calm: u64,
        bounds: (u64, u64),
        from: impl FnOnce(&mut SplitMix64) -> u64,
    ) -> u64 {
        let read = |stored: Stored, _| match stored {
            Some(Value::Number(value)) => (*value).clamp(bounds.0, bounds.1),
            Some(Value::Word(_)) | None => calm,
        };
        let write =
            |value, _| (value != calm).then_some((Value::Number(value), Value::Number(calm)));
        self.draw(name, from, read, write)
    }

    /// Any 64 bits, for names and seeds of others. Calm: a number made from the place.
    pub fn bits(&mut self, name: impl Into<Name>) -> u64 {
        let read = |stored: Stored, key| match stored {
            Some(Value::Number(value)) => *value,
            Some(Value::Word(_)) | None => key,
        };
        let write =
            |value, key| (value != key).then_some((Value::Number(value), Value::Number(key)));
        self.draw(name.into(), SplitMix64::next_u64, read, write)
    }

    /// A value in `low..high`; `low` if the range is empty. Calm: `low`.
    pub fn between(&mut self, name: impl Into<Name>, low: u64, high: u64) -> u64 {
        let bounds = (low, high.saturating_sub(1).max(low));
        self.number(name.into(), low, bounds, |rng| rng.between(low, high))
    }

    /// A position in a list of `len` things, which must not be empty. Calm: the first.
    pub fn pick(&mut self, name: impl Into<Name>, len: usize) -> usize {
        usize::try_from(self.between(name, 0, len as u64)).unwrap_or(0)
    }

    /// True in `per_mille` of thousand cases; on a tape, whatever they are. Calm: false.
    pub fn chance(&mut self, name: impl Into<Name>, per_mille: u64) -> bool {
        self.number(name.into(), 0, (0, 1), |rng| {
            u64::from(per_mille > 0 && rng.between(0, 1000) < per_mille)
        }) > 0
    }

    /// What the run itself found out, unless the tape says otherwise. Calm: false.
    pub fn observe(&mut self, name: impl Into<Name>, found: bool) -> bool {
        self.number(name.into(), 0, (0, 1), |_| u64::from(found)) > 0
    }

    /// How much the program of a scenario asks for, unless the tape says less. Calm: nothing.
    pub fn asked(&mut self, name: impl Into<Name>, amount: u64) -> u64 {
        self.number(name.into(), 0, (0, amount), |_| amount)
    }

    /// One of these values, each as likely as it is frequent. Calm: the first. A tape may hold any
    /// value within `bounds`, both included.
    pub fn choose(&mut self, name: impl Into<Name>, bounds: (u64, u64), of: &[u64]) -> u64 {
        let calm = of.first().copied().unwrap_or(bounds.0);
        self.number(name.into(), calm, bounds, |rng| {
            let at = usize::try_from(rng.between(0, of.len() as u64)).unwrap_or(0);
            of.get(at).copied().unwrap_or(calm)
        })
    }

    /// The position of one of these named options, with its weight. Calm: the first. A tape names
    /// the option, whatever its weight.
    pub fn among(&mut self, name: impl Into<Name>, options: &[(&'static str, u64)]) -> usize {
        let from = |rng: &mut SplitMix64| {
            let all = options.iter().map(|(_, weight)| weight).sum();
            let mut left = rng.between(0, all);
            let holds = |weight: u64| {
                let here = left < weight;
                left = left.saturating_sub(weight);
                here
            };
            options.iter().map(|(_, weight)| *weight).position(holds).unwrap_or(0)
        };
        let read = |stored: Stored, _| match stored {
            Some(Value::Word(named)) => {
                options.iter().position(|(label, _)| *label == named.as_ref()).unwrap_or(0)
            }
            Some(Value::Number(_)) | None => 0,
        };
        let label = |at: usize| Value::Word(Cow::Borrowed(options.get(at).map_or("", |o| o.0)));
        let write = |at, _| (at > 0).then(|| (label(at), label(0)));
        self.draw(name.into(), from, read, write)
    }

    /// A waiting time with this mean: short ones are common, long ones rare, none over eight
    /// times the mean. Calm: the shortest.
    pub fn wait(&mut self, name: impl Into<Name>, mean: u64) -> u64 {
        let calm = shortest(mean);
        self.number(name.into(), calm, (0, mean.saturating_mul(8) + 8), |rng| wait(rng, mean))
    }

    /// A point in virtual time after a wait with this mean. A tape stores the point, so that what
    /// goes before may become shorter. Calm: after the shortest wait.
    pub fn when(&mut self, name: impl Into<Name>, now: Micros, mean: u64) -> Micros {
        let calm = now + shortest(mean);
        self.number(name.into(), calm, (now, Micros::MAX), |rng| now + wait(rng, mean))
    }
}

/// What a tape holds for a decision.
type Stored<'a> = Option<&'a Value>;

const fn shortest(mean: u64) -> u64 {
    (mean / 2).div_ceil(2)
}

/// The sum of halvings: geometric over octaves, uniform within, mean about `mean`.
fn wait(rng: &mut SplitMix64, mean: u64) -> u64 {
    let mut scale = mean / 2 + 1;
    while scale < mean * 4 && rng.chance(400) {
        scale *= 2;
    }
    rng.between(scale / 2, scale * 2)
}

#[cfg(test)]
mod tests;

//! The search: Wing and Gong's (1993), with the memory of Lowe (2017), one register at a time.
//!
//! It walks over the beginnings and ends of operations and keeps every *configuration* that is
//! possible: what the register holds, and which of the open operations have taken effect. When an
//! operation ends it must have taken effect, so open ones take effect just in time, in every order
//! that ends with it. No configuration left: the history is not linearizable.
//!
//! What keeps the configurations few, each by an argument that one of two choices loses nothing:
//! - a read that may take effect does so at once: it changes nothing;
//! - of equal open operations, the one that ends first takes effect first;
//! - of two configurations that differ only in operations of unknown outcome, the one that has used
//!   fewer of them can do all that the other can;
//! - a completed write whose value nobody will observe any more hides directly before the next
//!   write; one of unknown outcome never happened;
//! - a value that somebody has still to observe, and that nobody can write again, may not be
//!   overwritten.
//!
//! The last two look at what is still to come, so they answer yes or no for a whole history. The
//! shortest prefix that fails is therefore found by asking about prefixes, halving each time. A
//! first pass keeps only some configurations: if one survives the history is linearizable, and only
//! if none does are all of them kept.

use super::{Action, End, History, Operation, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Operations of one register that may be open at a time.
const SLOTS: usize = 256;
/// Configurations that the first pass keeps.
const NARROW: usize = 48;
/// Configurations that it looks at for each that it keeps, between two ends of operations.
const PER_KEPT: usize = 64;
/// Values that an impossible read is tried with, to say what it could have returned.
const TRIED: usize = 24;

/// What a history is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every operation has its moment.
    Linearizable,
    /// It is not; this is the shortest prefix that shows it.
    Fails(Failure),
    /// The search would have taken more than the given effort.
    Undecided,
}

/// The shortest prefix that is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Position of its last event, the end of `operation`.
    pub position: usize,
    /// The operation that cannot be placed.
    pub operation: Operation,
    /// If it is a read: values that it could have returned instead, as far as a few tries show.
    pub possible: Vec<Value>,
}

/// Is told now and then how many operations were judged, at least.
pub type Watch<'a> = &'a mut dyn FnMut(usize);

/// Judges a history. `effort` bounds the configurations that one pass over a register looks at.
pub fn check(history: &History, effort: u64, watch: Watch<'_>) -> Outcome {
    let mut by_key: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for operation in &history.operations {
        by_key.entry(operation.key).or_default().push(*operation);
    }
    let (mut worst, mut undecided): (Option<Failure>, bool) = (None, false);
    let mut before = 0;
    for operations in by_key.values() {
        // Only a shorter prefix than the one known is of interest.
        let mut until = worst.as_ref().map_or(usize::MAX, |failure| failure.position);
        if worst.is_some() {
            until = until.saturating_sub(1);
        }
        let verdict = judge(operations, until, effort, &mut |within| watch(before + within));
        before += operations.len();
        match verdict {
            Outcome::Linearizable => {}
            Outcome::Undecided => undecided = true,
            Outcome::Fails(failure) => worst = Some(failure),
        }
    }
    match worst {
        Some(failure) => Outcome::Fails(failure),
        None if undecided => Outcome::Undecided,
        None => Outcome::Linearizable,
    }
}

/// Judges the operations of one register up to a position.
fn judge(operations: &[Operation], until: usize, effort: u64, watch: Watch<'_>) -> Outcome {
    let all = prefix(operations, until);
    let dies = match run(&all, effort, watch) {
        Verdict::Survives => return Outcome::Linearizable,
        Verdict::Undecided => return Outcome::Undecided,
        Verdict::Dies(at) => at,
    };
    // It dies no later than the shortest prefix ends: looking ahead only makes it die sooner.
    let ends: BTreeSet<usize> = all.iter().filter_map(Operation::ended).collect();
    let ends: Vec<usize> = ends.into_iter().filter(|at| *at >= dies).collect();
    let (mut low, mut high) = (0, ends.len().saturating_sub(1));
    // Often it is the very place.
    let mut probe = low;
    while low < high {
        match run(&prefix(operations, ends[probe]), effort, watch) {
            Verdict::Survives => low = probe + 1,
            Verdict::Dies(_) => high = probe,
            Verdict::Undecided => return Outcome::Undecided,
        }
        probe = low.midpoint(high);
    }
    let Some(position) = ends.get(low).copied() else { return Outcome::Undecided };
    let ended = |o: &&Operation| o.ended() == Some(position);
    let Some(operation) = operations.iter().find(ended).copied() else {
        return Outcome::Undecided;
    };
    let possible = possible(operations, &operation, effort, watch);
    Outcome::Fails(Failure { position, operation, possible })
}

/// What a read could have returned: the newest values of the register, each tried.
fn possible(
    operations: &[Operation],
    read: &Operation,
    effort: u64,
    watch: Watch<'_>,
) -> Vec<Value> {
    let (Action::Read(_), Some(position)) = (read.action, read.ended()) else { return Vec::new() };
    let before = prefix(operations, position);
    let mut candidates: Vec<Value> = Vec::new();
    for value in before.iter().rev().filter_map(|o| o.action.produces()) {
        if !candidates.contains(&value) {
            candidates.push(value);
        }
    }
    candidates.truncate(TRIED);
    if !candidates.contains(&super::NOTHING) {
        candidates.push(super::NOTHING);
    }
    candidates.retain(|value| {
        let tried: Vec<Operation> = (before.iter())
            .map(|o| match o.begun == read.begun {
                true => Operation { action: Action::Read(*value), ..*o },
                false => *o,
            })
            .collect();
        run(&tried, effort, watch) == Verdict::Survives
    });
    candidates
}

/// What was known at a position: later ends have not happened.
fn prefix(operations: &[Operation], until: usize) -> Vec<Operation> {
    let known = |o: &Operation| {
        let end = match o.ended() {
            Some(at) if at > until => End::Open,
            _ => o.end,
        };
        let says_nothing = matches!(o.action, Action::Read(_)) && !matches!(end, End::Ok(_));
        (o.begun <= until && !says_nothing).then_some(Operation { end, ..*o })
    };
    operations.iter().filter_map(known).collect()
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Survives,
    /// At the end of an operation at this position.
    Dies(usize),
    Undecided,
}

fn run(operations: &[Operation], effort: u64, watch: Watch<'_>) -> Verdict {
    for width in [NARROW, usize::MAX] {
        let mut search = Search::new(operations, width, effort);
        match search.walk(watch) {
            Verdict::Dies(_) if search.narrowed => {}
            verdict => return verdict,
        }
    }
    Verdict::Undecided
}

/// A possible situation.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Config {
    state: u32,
    /// By slot: the open operation there has taken effect.
    done: [u64; SLOTS / 64],
}

impl Config {
    const fn has(&self, slot: usize) -> bool {
        self.done[slot / 64] >> (slot % 64) & 1 == 1
    }

    const fn set(&mut self, slot: usize) {
        self.done[slot / 64] |= 1 << (slot % 64);
    }

    const fn clear(&mut self, slot: usize) {
        self.done[slot / 64] &= !(1 << (slot % 64));
    }

    /// How many of these have taken effect.
    fn used(&self, optional: &[u64; SLOTS / 64]) -> u32 {
        self.done.iter().zip(optional).map(|(done, optional)| (done & optional).count_ones()).sum()
    }
}

/// What is known of one value.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Operations that must observe it and have not ended.
    must: usize,
    /// Operations of unknown or bad outcome that may observe it and have not been given up.
    may: usize,
    /// Operations that may still produce it.
    producers: usize,
    /// Slots of the open ones that observe it.
    observing: Vec<usize>,
    /// Slots of the open ones that produce it.
    producing: Vec<usize>,
}

/// An operation with values renamed to 0.. within the register.
#[derive(Copy, Clone, Debug)]
struct Move {
    observes: Option<u32>,
    produces: Option<u32>,
    end: End,
    slot: Option<usize>,
    given_up: bool,
}

impl Move {
    const fn must(&self) -> bool {
        matches!(self.end, End::Ok(_))
    }

    /// Order in which equal operations are used up: first what must take effect, last what will be
    /// said to have failed.
    const fn order(&self) -> (u8, usize) {
        match self.end {
            End::Ok(at) => (0, at),
            End::Open => (1, 0),
            End::Fail(_) => (2, 0),
        }
    }
}

struct Search {
    moves: Vec<Move>,
    /// Position, operation, true at its beginning.
    events: Vec<(usize, usize, bool)>,
    values: Vec<Known>,
    slots: Vec<Option<usize>>,
    configs: Vec<Config>,
    width: usize,
    left: u64,
    narrowed: bool,
}

impl Search {
    fn new(operations: &[Operation], width: usize, effort: u64) -> Self {
        let mut names: BTreeMap<Value, u32> = BTreeMap::from([(super::NOTHING, 0)]);
        let mut name = |value: Value| {
            let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
            *names.entry(value).or_insert(next)
        };
        let moves: Vec<Move> = (operations.iter())
            .map(|o| Move {
                observes: o.action.observes().map(&mut name),
                produces: o.action.produces().map(&mut name),
                end: o.end,
                slot: None,
                given_up: false,
            })
            .collect();
        let mut values = vec![Known::default(); names.len()];
        for m in &moves {
            if let Some(value) = m.observes {
                let known = &mut values[value as usize];
                *(if m.must() { &mut known.must } else { &mut known.may }) += 1;
            }
            if let Some(value) = m.produces {
                values[value as usize].producers += 1;
            }
        }
        let mut events = Vec::with_capacity(operations.len() * 2);
        for (n, o) in operations.iter().enumerate() {
            events.push((o.begun, n, true));
            events.extend(o.ended().map(|at| (at, n, false)));
        }
        events.sort_unstable();
        let configs = vec![Config::default()];
        let slots = Vec::new();
        let mut search =
            Self { moves, events, values, slots, configs, width, left: effort, narrowed: false };
        for n in 0..search.moves.len() {
            search.give_up_useless(n);
        }
        search
    }

    fn walk(&mut self, watch: Watch<'_>) -> Verdict {
        for at in 0..self.events.len() {
            if at % 256 == 0 {
                watch(at / 2);
            }
            let (position, n, begins) = self.events[at];
            if self.moves[n].given_up {
                continue;
            }
            if begins {
                if !self.begin(n) {
                    return Verdict::Undecided;
                }
                continue;
            }
            if !self.end(n) {
                return Verdict::Undecided;
            }
            if self.configs.is_empty() {
                return Verdict::Dies(position);
            }
        }
        Verdict::Survives
    }

    /// An operation that need not take effect, and whose value nobody will observe, never happens:
    /// it would only take away a value that somebody may need.
    fn give_up_useless(&mut self, n: usize) {
        let mut next = vec![n];
        while let Some(n) = next.pop() {
            let m = self.moves[n];
            let Some(value) = m.produces else { continue };
            let known = &self.values[value as usize];
            // What will be said to have failed may have been used, which its end must still judge.
            let used = m.slot.is_some() && matches!(m.end, End::Fail(_));
            if m.must() || m.given_up || used || known.must + known.may > 0 {
                continue;
            }
            self.moves[n].given_up = true;
            self.values[value as usize].producers -= 1;
            self.vacate(n);
            if let Some(observed) = m.observes {
                self.values[observed as usize].may -= 1;
                next.extend(self.producers_of(observed));
            }
        }
    }

    /// Open operations that produce a value.
    fn producers_of(&self, value: u32) -> Vec<usize> {
        let slots = &self.values[value as usize].producing;
        slots.iter().filter_map(|slot| self.slots[*slot]).collect()
    }

    /// The operation is open from now on; false if there is no room for it.
    fn begin(&mut self, n: usize) -> bool {
        self.give_up_useless(n);
        if self.moves[n].given_up {
            return true;
        }
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.slots.len() < SLOTS => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return false,
        };
        self.slots[slot] = Some(n);
        self.moves[n].slot = Some(slot);
        let m = self.moves[n];
        if let Some(value) = m.observes {
            self.values[value as usize].observing.push(slot);
        }
        if let Some(value) = m.produces {
            self.values[value as usize].producing.push(slot);
        } else {
            for config in &mut self.configs {
                if Some(config.state) == m.observes {
                    config.set(slot);
                }
            }
        }
        true
    }

    /// The operation ends; false if that takes too much effort.
    fn end(&mut self, n: usize) -> bool {
        let Some(slot) = self.moves[n].slot else { return true };
        let before = std::mem::take(&mut self.configs);
        let mut after = Vec::with_capacity(before.len());
        match self.moves[n].end {
            End::Ok(_) => {
                if !self.just_in_time(n, slot, before, &mut after) {
                    return false;
                }
            }
            End::Fail(_) | End::Open => after.extend(before.iter().filter(|c| !c.has(slot))),
        }
        self.configs = after;
        self.close(n);
        self.configs.sort_unstable();
        self.configs.dedup();
        self.prefer_unused();
        if self.configs.len() > self.width {
            // Sorted: those that have used the fewest operations of unknown outcome are kept.
            self.narrowed = true;
            self.configs.truncate(self.width);
        }
        true
    }

    /// Every way in which open operations take effect, the last of them `n`. Those that use few
    /// operations of unknown outcome come first, so that what uses more of them, and achieves the
    /// same, is left out.
    fn just_in_time(
        &mut self,
        n: usize,
        slot: usize,
        before: Vec<Config>,
        after: &mut Vec<Config>,
    ) -> bool {
        let optional = self.optional();
        let mut seen = Seen::default();
        let mut levels: BTreeMap<u32, Vec<Config>> = BTreeMap::new();
        for config in before {
            match config.has(slot) {
                true => after.push(config),
                false => levels.entry(config.used(&optional)).or_default().push(config),
            }
        }
        let reads = self.moves[n].produces.is_none();
        let mut looked = 0;
        while let Some(mut level) = levels.first_entry() {
            let Some(config) = level.get_mut().pop() else {
                level.remove();
                continue;
            };
            let Some(left) = self.left.checked_sub(1) else { return false };
            self.left = left;
            looked += 1;
            if looked > self.width.saturating_mul(PER_KEPT) {
                self.narrowed = true;
                break;
            }
            if !reads && let Some(done) = self.apply(&config, n, slot) {
                after.push(done);
            }
            for other in self.choices(&config, slot) {
                let Some(at) = self.slots[other] else { continue };
                let Some(next) = self.apply(&config, at, other) else { continue };
                if !seen.is_news(&next, &optional) {
                    continue;
                }
                match next.has(slot) {
                    true => after.push(next),
                    false => levels.entry(next.used(&optional)).or_default().push(next),
                }
            }
        }
        true
    }

    /// The slots of operations that need not take effect.
    fn optional(&self) -> [u64; SLOTS / 64] {
        let mut config = Config::default();
        for (slot, n) in self.slots.iter().enumerate() {
            if n.is_some_and(|n| !self.moves[n].must()) {
                config.set(slot);
            }
        }
        config.done
    }

    /// Slots of open operations that could take effect before the one in `slot`.
    fn choices(&self, config: &Config, slot: usize) -> Vec<usize> {
        let mut picked: Vec<usize> = Vec::new();
        for (other, n) in self.slots.iter().enumerate() {
            let Some(n) = *n else { continue };
            let m = &self.moves[n];
            let Some(produced) = m.produces else { continue };
            if other == slot || config.has(other) {
                continue;
            }
            if m.observes.is_none() && self.unseen(produced, config) == 0 {
                continue;
            }
            if m.observes.is_some_and(|value| value != config.state) {
                continue;
            }
            let same = |p: &&mut usize| {
                let other = self.slots[**p].map(|n| &self.moves[n]);
                other.is_some_and(|o| o.observes == m.observes && o.produces == m.produces)
            };
            match picked.iter_mut().find(same) {
                Some(twin) => {
                    if self.slots[*twin].is_some_and(|n| m.order() < self.moves[n].order()) {
                        *twin = other;
                    }
                }
                None => picked.push(other),
            }
        }
        picked
    }

    /// How many operations have still to observe a value, or may.
    fn unseen(&self, value: u32, config: &Config) -> usize {
        let known = &self.values[value as usize];
        let seen = known.observing.iter().filter(|slot| config.has(**slot)).count();
        (known.must + known.may).saturating_sub(seen)
    }

    /// An operation that changes the register takes effect; `None` if it cannot, or if a value
    /// that somebody must still observe would be gone for good.
    fn apply(&self, config: &Config, n: usize, slot: usize) -> Option<Config> {
        let m = &self.moves[n];
        let state = m.produces?;
        if m.observes.is_some_and(|value| value != config.state) {
            return None;
        }
        let mut next = *config;
        next.set(slot);
        if config.state != state && self.is_gone(config.state, &next) {
            return None;
        }
        if m.observes.is_none() {
            // Completed writes that nobody will see hide before this one.
            for (other, at) in self.slots.iter().enumerate() {
                let Some(w) = at.map(|at| &self.moves[at]) else { continue };
                let (Some(value), None) = (w.produces, w.observes) else { continue };
                if w.must() && !next.has(other) && self.unseen(value, config) == 0 {
                    next.set(other);
                }
            }
        }
        next.state = state;
        for reader in &self.values[state as usize].observing {
            if self.slots[*reader].is_some_and(|at| self.moves[at].produces.is_none()) {
                next.set(*reader);
            }
        }
        Some(next)
    }

    /// True if somebody must observe a value that nobody can produce any more.
    fn is_gone(&self, value: u32, config: &Config) -> bool {
        let known = &self.values[value as usize];
        let done = |slots: &[usize]| slots.iter().filter(|slot| config.has(**slot)).count();
        if known.producers > done(&known.producing) {
            return false;
        }
        let must = |slot: &&usize| self.slots[**slot].is_some_and(|n| self.moves[n].must());
        let seen = known.observing.iter().filter(must).filter(|slot| config.has(**slot)).count();
        known.must > seen
    }

    /// The operation is over: nothing can observe or produce through it any more.
    fn close(&mut self, n: usize) {
        let m = self.moves[n];
        self.vacate(n);
        if let Some(value) = m.produces {
            self.values[value as usize].producers -= 1;
        }
        if let Some(value) = m.observes {
            let known = &mut self.values[value as usize];
            *(if m.must() { &mut known.must } else { &mut known.may }) -= 1;
            for producer in self.producers_of(value) {
                self.give_up_useless(producer);
            }
        }
    }

    /// Takes an operation out of its slot.
    fn vacate(&mut self, n: usize) {
        let Some(slot) = self.moves[n].slot.take() else { return };
        self.slots[slot] = None;
        for config in &mut self.configs {
            config.clear(slot);
        }
        let m = self.moves[n];
        if let Some(value) = m.observes {
            self.values[value as usize].observing.retain(|s| *s != slot);
        }
        if let Some(value) = m.produces {
            self.values[value as usize].producing.retain(|s| *s != slot);
        }
    }

    /// Of two configurations that differ only in operations of unknown outcome, the one that has
    /// used fewer of them can do all that the other can.
    fn prefer_unused(&mut self) {
        if self.configs.len() < 2 {
            return;
        }
        let optional = self.optional();
        self.configs.sort_by_key(|config| config.used(&optional));
        let mut seen = Seen::default();
        self.configs.retain(|config| seen.is_news(config, &optional));
    }
}

/// Which configurations were met, by what is left when operations of unknown outcome are taken out.
#[derive(Default)]
struct Seen(BTreeMap<Config, Vec<[u64; SLOTS / 64]>>);

impl Seen {
    /// True unless one was met that does the same with no other operations of unknown outcome.
    fn is_news(&mut self, config: &Config, optional: &[u64; SLOTS / 64]) -> bool {
        let mut rest = *config;
        let mut used = config.done;
        for ((rest, used), optional) in rest.done.iter_mut().zip(&mut used).zip(optional) {
            *rest &= !optional;
            *used &= optional;
        }
        let known = self.0.entry(rest).or_default();
        let within = |less: &[u64; SLOTS / 64]| less.iter().zip(&used).all(|(l, u)| l & !u == 0);
        if known.iter().any(within) {
            return false;
        }
        known.push(used);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::NOTHING;

    const EFFORT: u64 = 1 << 20;

    fn op(action: Action, begun: usize, end: End) -> Operation {
        Operation { process: 0, key: 0, action, begun, end }
    }

    fn of(operations: Vec<Operation>) -> Outcome {
        let history = History { operations, ..History::new() };
        check(&history, EFFORT, &mut |_| {})
    }

    fn fails_at(outcome: &Outcome) -> Option<usize> {
        match outcome {
            Outcome::Fails(failure) => Some(failure.position),
            _ => None,
        }
    }

    const A: Value = Value(1);
    const B: Value = Value(2);

    #[test]
    fn reads_return_the_last_write_or_one_that_overlaps() {
        let (read, write) = (Action::Read, Action::Write);
        let fine = of(vec![
            op(write(A), 1, End::Ok(2)),
            op(write(B), 3, End::Ok(8)),
            op(read(A), 4, End::Ok(5)),
            op(read(B), 6, End::Ok(7)),
            op(read(B), 9, End::Ok(10)),
        ]);
        assert_eq!(fine, Outcome::Linearizable);
        let back = of(vec![
            op(write(A), 1, End::Ok(2)),
            op(write(B), 3, End::Ok(8)),
            op(read(B), 4, End::Ok(5)),
            op(read(A), 6, End::Ok(7)),
            op(read(B), 9, End::Ok(10)),
        ]);
        assert_eq!(fails_at(&back), Some(7), "a read after a read of the newer value");
        let Outcome::Fails(failure) = back else { panic!("it fails") };
        assert_eq!(failure.possible, [B]);
        assert_eq!(fails_at(&of(vec![op(read(A), 1, End::Ok(2))])), Some(2), "out of nowhere");
        assert_eq!(of(vec![op(read(NOTHING), 1, End::Ok(2))]), Outcome::Linearizable);
    }

    #[test]
    fn the_shortest_prefix_is_told_although_the_search_looks_ahead() {
        let (read, write) = (Action::Read, Action::Write);
        // A is overwritten at once; that nobody may read it later shows only at the read.
        let late = of(vec![
            op(write(A), 1, End::Ok(2)),
            op(write(B), 3, End::Ok(4)),
            op(read(B), 5, End::Ok(6)),
            op(read(A), 7, End::Ok(8)),
        ]);
        assert_eq!(fails_at(&late), Some(8));
    }

    #[test]
    fn what_is_unknown_may_have_happened_and_what_failed_has_not() {
        let (read, write) = (Action::Read, Action::Write);
        let unknown = |end| {
            of(vec![
                op(write(A), 1, End::Ok(2)),
                op(write(B), 3, end),
                op(read(A), 5, End::Ok(6)),
                op(read(B), 7, End::Ok(8)),
            ])
        };
        assert_eq!(unknown(End::Open), Outcome::Linearizable);
        assert_eq!(fails_at(&unknown(End::Fail(4))), Some(8));
        assert_eq!(fails_at(&unknown(End::Fail(9))), Some(9), "seen before it was said to fail");
        let twice = of(vec![
            op(write(A), 1, End::Open),
            op(read(A), 2, End::Ok(3)),
            op(write(B), 4, End::Ok(5)),
            op(read(A), 6, End::Ok(7)),
        ]);
        assert_eq!(fails_at(&twice), Some(7), "it takes effect once");
    }

    #[test]
    fn a_compare_and_set_needs_what_it_expects() {
        let cas = |expected, value| Action::Cas { expected, value };
        let race = |second| {
            of(vec![
                op(Action::Write(A), 1, End::Ok(2)),
                op(cas(A, B), 3, End::Ok(6)),
                op(cas(A, Value(3)), 4, second),
            ])
        };
        assert_eq!(race(End::Open), Outcome::Linearizable);
        assert_eq!(fails_at(&race(End::Ok(7))), Some(7), "both won");
    }

    #[test]
    fn keys_are_judged_one_by_one_and_the_earliest_failure_is_told() {
        let read =
            |key, value, at| Operation { key, ..op(Action::Read(value), at, End::Ok(at + 1)) };
        let both = of(vec![read(1, A, 1), read(2, A, 3)]);
        assert_eq!(fails_at(&both), Some(2));
        let swapped = of(vec![read(2, A, 1), read(1, A, 3)]);
        assert_eq!(fails_at(&swapped), Some(2));
    }

    #[test]
    fn a_search_without_effort_is_undecided() {
        let write = |at| op(Action::Write(A), at, End::Ok(at + 10));
        let history = History { operations: (1..5).map(write).collect(), ..History::new() };
        assert_eq!(check(&history, 0, &mut |_| {}), Outcome::Undecided);
    }
}

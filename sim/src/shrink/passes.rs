//! The passes of the shrinker.

use super::Shrinker;
use crate::choices::Stream;
use crate::tape::{Decision, Place, Value};
use holdfast_consensus::Micros;
use std::collections::BTreeSet;

/// Length of a slot of the nemesis and of a look, in which places stand for points in time.
const SLOT: Micros = 50_000;
/// Pauses below this are not worth shortening.
const PAUSE: Micros = 4 * SLOT;

impl Shrinker<'_> {
    /// Takes off everything of one kind at once: a stream, then a detail or a name in a stream.
    pub(super) fn drop_streams(&mut self) {
        for stream in Stream::ALL {
            self.without(|d| d.place.stream == *stream);
        }
        let kinds: BTreeSet<(Stream, String, String)> = self
            .best
            .tape
            .decisions
            .iter()
            .map(|d| (d.place.stream, d.place.detail.to_string(), d.name.to_string()))
            .collect();
        for (stream, detail, name) in &kinds {
            self.without(|d| d.place.stream == *stream && d.place.detail == *detail);
            self.without(|d| d.place.stream == *stream && d.name == *name);
        }
    }

    fn without(&mut self, gone: impl Fn(&Decision) -> bool) -> bool {
        let all = &self.best.tape.decisions;
        let left: Vec<Decision> = all.iter().filter(|d| !gone(d)).cloned().collect();
        left.len() < all.len() && self.attempt(left)
    }

    /// Takes off places, in chunks that become smaller, the latest first.
    pub(super) fn drop_places(&mut self) {
        let mut chunk = self.best.tape.places().len() / 2;
        while chunk > 0 && !self.ended {
            let mut end = self.best.tape.places().len();
            while end > 0 && !self.ended {
                let places = self.best.tape.places();
                end = end.min(places.len());
                let from = end.saturating_sub(chunk);
                let gone: BTreeSet<&Place> = places[from..end].iter().collect();
                self.without(|d| gone.contains(&d.place));
                end = from;
            }
            chunk /= 2;
        }
    }

    /// Takes off single decisions.
    pub(super) fn drop_decisions(&mut self) {
        let mut at = self.best.tape.decisions.len();
        while at > 0 && !self.ended {
            at -= 1;
            let mut left = self.best.tape.decisions.clone();
            if at < left.len() {
                left.remove(at);
                self.attempt(left);
            }
        }
    }

    /// Fewer nodes than there are. The nodes of a scenario are those that its program names.
    pub(super) fn fewer_nodes(&mut self) {
        if self.best.tape.play.is_some() {
            return;
        }
        for nodes in 1..self.best.size.nodes {
            let mut decisions = self.best.tape.decisions.clone();
            decisions.retain(|d| d.place.stream != Stream::Setup || d.name != "nodes");
            let place = Place::new(Stream::Setup, crate::choices::Actor::World, "", 0);
            let (name, value) = ("nodes".into(), Value::Number(nodes));
            decisions.insert(0, Decision { place, name, repeat: 0, calm: value.clone(), value });
            if self.attempt(decisions) {
                return;
            }
        }
    }

    /// Moves everything behind a pause to an earlier time, by all of it, then by half and so on.
    pub(super) fn shorter_pauses(&mut self) {
        let mut from = 0;
        while !self.ended {
            let times: BTreeSet<Micros> =
                self.best.tape.decisions.iter().filter_map(time).collect();
            let Some(&next) = times.range(from + 1..).next() else { return };
            // One slot stays between, so that no place moves onto another.
            let mut cut = (next - from).saturating_sub(SLOT) / SLOT * SLOT;
            while cut >= PAUSE && !self.ended {
                if self.earlier(next, cut) {
                    break;
                }
                cut = cut / 2 / SLOT * SLOT;
            }
            let moved = if cut >= PAUSE { cut } else { 0 };
            from = next - moved;
        }
    }

    fn earlier(&mut self, from: Micros, by: Micros) -> bool {
        let moved = |decision: &Decision| {
            let mut decision = decision.clone();
            if time(&decision).is_some_and(|at| at >= from) {
                match (&mut decision.value, decision.place.stream) {
                    (Value::Number(at), Stream::Op) if decision.name == "time" => *at -= by,
                    _ => decision.place.number -= u32::try_from(by / SLOT).unwrap_or(0),
                }
            }
            decision
        };
        let decisions = self.best.tape.decisions.iter().map(moved).collect();
        self.attempt(decisions)
    }

    /// Brings numbers nearer to the calm ones.
    pub(super) fn smaller_numbers(&mut self) {
        let mut at = 0;
        while at < self.best.tape.decisions.len() && !self.ended {
            for shift in [1, 4, 0] {
                let mut decisions = self.best.tape.decisions.clone();
                let Some(decision) = decisions.get_mut(at) else { return };
                let (Value::Number(value), Value::Number(calm)) =
                    (&mut decision.value, &decision.calm)
                else {
                    break;
                };
                let far = value.abs_diff(*calm);
                // Half of the way, a sixteenth of it left, or one step.
                let less = if shift == 0 { far - far.min(1) } else { far >> shift };
                *value = if *value > *calm { calm + less } else { calm - less };
                if far <= 1 {
                    break;
                }
                self.attempt(decisions);
            }
            at += 1;
        }
    }
}

/// The point in time that a decision stands for, if it does.
fn time(decision: &Decision) -> Option<Micros> {
    match (decision.place.stream, &decision.value) {
        (Stream::Op, Value::Number(at)) if decision.name == "time" => Some(*at),
        (Stream::Nemesis | Stream::Heal, _) => Some(u64::from(decision.place.number) * SLOT),
        _ => None,
    }
}

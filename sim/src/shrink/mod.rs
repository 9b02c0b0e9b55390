//! Shrinking: from a tape on which a property fails to a small one on which the same one does.
//!
//! In the manner of Hypothesis (MacIver and Donaldson, ECOOP 2020) the tape is shrunk and not the
//! run: decisions are taken off it, which makes them calm, first whole streams, then chunks of
//! places, ever smaller ones, then decision by decision; then nodes and clients become fewer; then
//! numbers smaller and pauses shorter. A step is kept only if the *same* property fails and what is
//! left is smaller by [`Size`]. Each kept step goes on from what its run recorded, so that
//! decisions which nobody asks for any more fall off by themselves.
//!
//! Guarantee: the same tape and the same number of runs give the same result. A caller that stops
//! early, for instance by a clock, gets the best so far.

mod passes;

use crate::broker::Mode;
use crate::broker::ledger::PROPERTY;
use crate::campaign::{Check, Run, Source, Watch, run_source};
use crate::check::Violation;
use crate::choices::Stream;
use crate::tape::{Decision, Tape, Value};
use holdfast_consensus::Micros;

/// How large a failing run is; the order of the fields is the order in which they count.
///
/// What a person must read are its *events*: the places on its tape that are not calm (a fault
/// with its details, a message with its fate, a slow job, a crash with what it left, the settings
/// as one) and the operations that clients began. Transitions of the world are what follows from
/// them, and are shown beside them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Places that are not calm, and operations.
    pub events: u64,
    /// Nodes of the cluster.
    pub nodes: u64,
    /// Decisions on the tape.
    pub decisions: u64,
    /// Virtual time, rounded to a hundredth of a second.
    pub centis: u64,
    /// The numbers on the tape, each by its distance from the calm one in bits.
    pub weight: u64,
    /// Transitions of the world.
    pub transitions: u64,
}

impl Size {
    /// The size of a run that kept its tape.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let of_clients = run.tape.count(Stream::Op) as u64;
        Self {
            events: run.tape.places().len() as u64 - of_clients + run.summary.operations,
            nodes: run.summary.nodes,
            decisions: run.tape.decisions.len() as u64,
            centis: run.summary.virtual_micros / 10_000,
            weight: run.tape.decisions.iter().map(weight).sum(),
            transitions: run.summary.events,
        }
    }
}

/// Bits between a decision and the calm one.
fn weight(decision: &Decision) -> u64 {
    match (&decision.value, &decision.calm) {
        (Value::Number(value), Value::Number(calm)) => {
            u64::from(u64::BITS - value.abs_diff(*calm).leading_zeros())
        }
        _ => 1,
    }
}

/// What to shrink, and how far.
pub struct Task<'a> {
    /// Where the failure comes from.
    pub source: Source,
    /// The property that must fail; `None` for whichever fails first.
    pub property: Option<String>,
    /// A further property of the caller's, checked after every event.
    pub check: Option<Check>,
    /// Most runs.
    pub runs: u64,
    /// Called after every run with their number and the best size; `false` ends the shrinking.
    pub go_on: &'a mut dyn FnMut(u64, Size) -> bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest tape that was found. It fails as `violation` says.
    pub tape: Tape,
    /// How it fails.
    pub violation: Violation,
    /// Its size.
    pub size: Size,
    /// The size before.
    pub from: Size,
    /// Runs that it took.
    pub runs: u64,
}

/// Why nothing was shrunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFailing {
    /// Every property held.
    #[error("every property holds: there is nothing to shrink")]
    Held,
    /// Another property failed.
    #[error("{0} fails, not the property that was asked for")]
    Other(String),
}

/// Shrinks.
///
/// # Errors
/// [`NotFailing`] if the property does not fail to begin with.
pub fn shrink(task: Task<'_>) -> Result<Shrunk, NotFailing> {
    let watch = Watch { tape: true, check: task.check, ..Watch::default() };
    let run = run_source(&task.source, watch);
    let Some(violation) = run.violation.clone() else { return Err(NotFailing::Held) };
    if task.property.as_ref().is_some_and(|wanted| *wanted != violation.property) {
        return Err(NotFailing::Other(violation.property.to_owned()));
    }
    let size = Size::of(&run);
    let guarded = is_kept(&run.tape);
    let best = Best { tape: run.tape, violation, size, end: run.summary.virtual_micros };
    let mut shrinker = Shrinker {
        best,
        check: task.check,
        guarded,
        runs: 1,
        most: task.runs,
        go_on: task.go_on,
        ended: false,
    };
    shrinker.exhaust();
    let Best { tape, violation, size: least, .. } = shrinker.best;
    Ok(Shrunk { tape, violation, size: least, from: size, runs: shrinker.runs })
}

/// The smallest failing run so far.
struct Best {
    tape: Tape,
    violation: Violation,
    size: Size,
    end: Micros,
}

struct Shrinker<'a> {
    best: Best,
    check: Option<Check>,
    /// What the guard prevents is shrunk to something that it prevents.
    guarded: bool,
    runs: u64,
    most: u64,
    go_on: &'a mut dyn FnMut(u64, Size) -> bool,
    ended: bool,
}

impl Shrinker<'_> {
    /// All passes in turn until none of them helps any more.
    fn exhaust(&mut self) {
        loop {
            let before = self.best.size;
            self.drop_streams();
            self.drop_places();
            self.drop_decisions();
            self.fewer_nodes();
            self.shorter_pauses();
            self.smaller_numbers();
            if self.ended || self.best.size == before {
                return;
            }
        }
    }

    /// Runs a candidate and keeps it if it fails in the same way and is smaller.
    fn attempt(&mut self, decisions: Vec<Decision>) -> bool {
        if self.ended {
            return false;
        }
        let (profile, play) = (self.best.tape.profile, self.best.tape.play);
        let source = Source::Tape(Tape { decisions, play, ..Tape::calm(profile) });
        // Who does not fail within a fair time after the best of them is not worth waiting for.
        let until = Some(self.best.end + self.best.end / 2 + 5_000_000);
        let watch = Watch { tape: true, check: self.check, until, ..Watch::default() };
        let run = run_source(&source, watch);
        self.runs += 1;
        let size = Size::of(&run);
        let kept = match run.violation {
            Some(violation)
                if same(&violation, &self.best.violation)
                    && size < self.best.size
                    && (!self.guarded || is_kept(&run.tape)) =>
            {
                let end = run.summary.virtual_micros;
                self.best = Best { tape: run.tape, violation, size, end };
                true
            }
            _ => false,
        };
        self.ended = self.runs >= self.most || !(self.go_on)(self.runs, self.best.size);
        kept
    }
}

/// True if a scenario without the guard keeps everything with it, by the same moves.
fn is_kept(tape: &Tape) -> bool {
    let unguarded = tape.play.filter(|play| play.guard != Mode::On);
    unguarded.is_some_and(|play| {
        let play = Some(play.guarded(Mode::On));
        let source = Source::Tape(Tape { play, ..tape.clone() });
        run_source(&source, Watch::default()).violation.is_none()
    })
}

/// The same property; panics only if they come from the same line of code, losses only if what is
/// lost was due for the same reason: a record that its owner holds and one that a child is owed are
/// lost by different acts.
fn same(a: &Violation, b: &Violation) -> bool {
    let place = |v: &Violation| {
        v.evidence.split_whitespace().find(|word| word.contains(".rs:")).map(str::to_owned)
    };
    let reason = |v: &Violation| v.evidence.replace(|c: char| c.is_ascii_digit(), "");
    a.property == b.property
        && (a.property != "panic" || place(a) == place(b))
        && (a.property != PROPERTY || reason(a) == reason(b))
}

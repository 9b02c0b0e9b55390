//! What must be true of a core at all times (*basic*) and from one step to the next (*delta*).
//! Cheap enough to run after every step of every test and simulation.

use crate::core::Core;
use crate::event::RoleKind;
use crate::types::{HardState, Index, LogId, Micros};
use std::fmt;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, a stable lower-case name.
    pub rule: &'static str,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.found)
    }
}

/// The watermarks of a core before a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Before {
    hard: HardState,
    commit: LogId,
    last: LogId,
    base: Index,
    role: RoleKind,
    next_seq: u64,
    done: u64,
    now: Micros,
}

impl Before {
    /// Takes the watermarks of a core.
    #[must_use]
    pub fn of(core: &Core) -> Self {
        Self {
            hard: core.hard(),
            commit: core.shared.commit_id(),
            last: core.last(),
            base: core.shared.log.base().index,
            role: core.role(),
            next_seq: core.shared.disk.next().0,
            done: core.shared.disk.done().0,
            now: core.shared.now,
        }
    }
}

struct Check(Vec<Violation>);

impl Check {
    fn that(&mut self, holds: bool, rule: &'static str, found: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { rule, found: found() });
        }
    }
}

/// Invariants of one state.
#[must_use]
pub fn basic(core: &Core) -> Vec<Violation> {
    let mut check = Check(Vec::new());
    let (base, last, commit) = (core.shared.log.base(), core.last(), core.commit());
    let hard = core.hard();
    check.that(base.index <= last.index && base.term <= last.term, "base-before-last", || {
        format!("base {base}, last {last}")
    });
    check.that(base.index <= commit && commit <= last.index, "commit-in-log", || {
        format!("base {base}, commit {commit}, last {last}")
    });
    check.that(core.durable().index <= last.index, "durable-in-log", || {
        format!("durable {}, last {last}", core.durable())
    });
    if core.shared.held {
        held(core, &mut check);
        return check.0;
    }
    check.that(last.term <= hard.term, "log-within-term", || {
        format!("last {last}, term {}", hard.term)
    });
    check.that(core.shared.disk.hard().term <= hard.term, "durable-term", || {
        format!("durable {:?}, memory {hard:?}", core.shared.disk.hard())
    });
    terms(core, &mut check);
    tail(core, &mut check);
    damage(core, &mut check);
    configurations(core, &mut check);
    pending(core, &mut check);
    role(core, &mut check);
    check.0
}

/// R5: of a held member neither its term nor its last entry may be known, so nothing is asked of
/// them; it takes part in nothing and changes nothing.
fn held(core: &Core, check: &mut Check) {
    let idle = core.role() == RoleKind::Follower && core.shared.disk.pending().is_empty();
    check.that(idle, "held-takes-no-part", || {
        format!("{:?}, writes {:?}", core.role(), core.shared.disk.pending())
    });
}

fn terms(core: &Core, check: &mut Check) {
    let log = &core.shared.log;
    let runs = log.terms();
    let rising = runs.windows(2).all(|w| w[0].term < w[1].term && w[0].index < w[1].index);
    check.that(rising, "terms-sorted", || format!("{runs:?}"));
    let first = log.base().index.next();
    let starts = match runs.first() {
        // Entries of unknown identity open no run (R15).
        Some(run) => {
            let unknown = (first.0..run.index.0).all(|index| log.is_unknown(Index(index)));
            unknown && run.index >= first && run.term >= log.base().term
        }
        None => log.last() == log.base(),
    };
    check.that(starts, "terms-cover-the-log", || format!("{runs:?}, base {}", log.base()));
    let ends = runs.last().is_none_or(|run| run.term == log.last().term);
    check.that(ends, "terms-end-at-last", || format!("{runs:?}, last {}", log.last()));
}

fn tail(core: &Core, check: &mut Check) {
    let log = &core.shared.log;
    let tail = log.tail();
    let ends = tail.last_entry().is_none_or(|e| e.id == log.last());
    check.that(ends, "tail-ends-at-last", || format!("{:?}", tail.last_entry().map(|e| e.id)));
    // What may not be durable must be in memory: nothing else could feed it to the applier, the
    // followers or a reopened log. A snapshot's base is not an entry.
    let needed = core.proved().index.max(log.base().index).next();
    check.that(log.cached_from() <= needed, "undurable-entries-cached", || {
        format!("cached from {}, durable {}", log.cached_from(), core.proved())
    });
}

/// R15: what a damaged entry forbids.
fn damage(core: &Core, check: &mut Check) {
    let (holes, log) = (core.holes(), &core.shared.log);
    let rising = holes.windows(2).all(|w| w[0].index < w[1].index);
    let within = holes.iter().all(|h| h.index > log.base().index && h.index <= core.last().index);
    check.that(rising && within, "holes-within-log", || format!("{holes:?}, {}", core.last()));
    check.that(log.id_at(core.last().index).is_some(), "end-of-log-known", || {
        format!("{holes:?}, last {}", core.last())
    });
    let Some(first) = log.first_hole() else { return };
    let stands = core.role() != RoleKind::Follower;
    check.that(!stands, "damaged-member-never-stands", || format!("{:?}, {first}", core.role()));
    check.that(core.durable().index < first, "damaged-entry-not-acknowledged", || {
        format!("durable {}, damaged {first}", core.durable())
    });
}

fn configurations(core: &Core, check: &mut Check) {
    let all = core.shared.log.memberships();
    let rising = all.windows(2).all(|w| w[0].0 < w[1].0);
    let within = all.last().is_none_or(|(index, _)| *index <= core.last().index);
    check.that(rising && within, "configurations-sorted", || format!("{all:?}"));
}

fn pending(core: &Core, check: &mut Check) {
    let disk = &core.shared.disk;
    let list = disk.pending();
    let rising = list.iter().zip(list.iter().skip(1)).all(|(a, b)| a.seq < b.seq);
    let above = list.front().is_none_or(|p| p.seq > disk.done());
    let below = list.back().is_none_or(|p| p.seq < disk.next());
    check.that(rising && above && below, "writes-in-order", || {
        format!("done {}, next {}, {list:?}", disk.done(), disk.next())
    });
    let within = list.iter().filter_map(|p| p.end).all(|end| end.index <= core.last().index);
    check.that(within, "writes-within-log", || format!("last {}, {list:?}", core.last()));
}

fn role(core: &Core, check: &mut Check) {
    let me = core.member();
    let kind = core.role();
    let leads = kind == RoleKind::Leader;
    check.that(leads == (core.leader() == Some(me)), "leader-knows-itself", || {
        format!("{kind:?}, leader {:?}", core.leader())
    });
    let stands = matches!(kind, RoleKind::Candidate | RoleKind::Leader);
    check.that(!stands || core.hard().voted_for == Some(me), "candidate-voted-for-itself", || {
        format!("{kind:?}, {:?}", core.hard())
    });
    check.that(!leads || core.shared.disk.hard() == core.hard(), "leader-durable-vote", || {
        format!("durable {:?}, memory {:?}", core.shared.disk.hard(), core.hard())
    });
    for found in core.peer_violations() {
        check.that(false, "peer-progress", || found);
    }
}

/// Invariants from one state to the next.
#[must_use]
pub fn delta(before: &Before, core: &Core) -> Vec<Violation> {
    let mut check = Check(Vec::new());
    let (old, new) = (before.hard, core.hard());
    check.that(new.term >= old.term, "term-never-falls", || format!("{old:?} to {new:?}"));
    let stable = new.term != old.term || old.voted_for.is_none() || old.voted_for == new.voted_for;
    check.that(stable, "one-vote-a-term", || format!("{old:?} to {new:?}"));
    check.that(core.commit() >= before.commit.index, "commit-never-falls", || {
        format!("{} to {}", before.commit, core.commit())
    });
    let kept = core.term_at(before.commit.index).is_none_or(|term| term == before.commit.term);
    check.that(kept, "committed-entry-stays", || {
        format!("{} became {:?}", before.commit, core.term_at(before.commit.index))
    });
    check.that(core.shared.log.base().index >= before.base, "base-never-falls", || {
        format!("{} to {}", before.base, core.shared.log.base())
    });
    let led = before.role == RoleKind::Leader && core.role() == RoleKind::Leader;
    let append_only = !led || new.term != old.term || {
        let same = core.term_at(before.last.index).is_none_or(|term| term == before.last.term);
        core.last().index >= before.last.index && same
    };
    check.that(append_only, "leader-append-only", || format!("{} to {}", before.last, core.last()));
    let disk = &core.shared.disk;
    check.that(
        disk.next().0 >= before.next_seq && disk.done().0 >= before.done,
        "sequence-never-falls",
        || format!("{} to {}, {} to {}", before.next_seq, disk.next(), before.done, disk.done()),
    );
    check.that(core.shared.now >= before.now, "time-never-falls", || {
        format!("{} to {}", before.now, core.shared.now)
    });
    check.0
}

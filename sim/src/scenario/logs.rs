//! Logs that differ: elections and repairs which a campaign seldom leaves to themselves for long
//! enough (BUGS B05, B07, B29). No broker is needed; somebody must lead, everybody must agree in the
//! end, and the properties of every run hold.

use super::focus::{put, write};
use super::stage::{MILLI, SECOND, Stage, off_plot};
use crate::check::{Verdict, Violation};
use holdfast_consensus::Micros;
use holdfast_consensus::job::Call;

/// How long an election or a repair may take.
const PATIENCE: Micros = 15 * SECOND;

/// A leader that nobody hears writes entries into its own log.
fn write_alone(stage: &mut Stage, node: usize, count: u64) -> Verdict {
    stage.world.isolate(node);
    for number in 0..count {
        let command = put(number).encode(None).map_err(|e| off_plot(e.to_string()))?;
        stage.world.call(node, Call::Propose { command }, SECOND)?;
    }
    stage.tell_of(node, format!("is cut off with {count} entries that nobody else has"));
    stage.world.run_for(50 * MILLI)?;
    stage.until("another leads", PATIENCE, move |world| world.leader().is_some_and(|l| l != node))
}

/// Demands that it comes true: no fault is left that explains why not.
fn demand(
    stage: &mut Stage,
    what: &str,
    done: impl FnMut(&crate::world::World) -> bool,
) -> Verdict {
    let limit = stage.world.now() + PATIENCE;
    match stage.world.run_until_true(done, limit)? {
        true => Ok(()),
        false => {
            let text = format!("{what}: not within {} s without any fault", PATIENCE / SECOND);
            Err(Violation::new("progress", text))
        }
    }
}

/// B05: of the two members that are there one has the longer log and the other the later term, with
/// entries that are committed. Only the second may win, and it must.
pub(super) fn longer_older_log(stage: &mut Stage) -> Verdict {
    const A: usize = 0;
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 3)?;
    write_alone(stage, A, 12)?;
    let leader = stage.world.leader().ok_or_else(|| off_plot("nobody leads"))?;
    let written = write(stage, leader, 2)?;
    stage.tell_of(leader, format!("leads, and has committed {written}"));
    for other in [1, 2] {
        stage.power_cut(other);
    }
    stage.world.rejoin(A);
    stage.world.start(leader)?;
    stage.tell("one of the two that committed it comes back, and meets the longer log");
    demand(stage, "somebody leads in a later term", |world| {
        let leader = world.leader().and_then(|leader| world.status(leader));
        leader.is_some_and(|status| status.hard.term > written.term)
    })?;
    stage.until_current(A)?;
    stage.finish(SECOND)
}

/// B29: a follower's log holds a long tail of a term that is lost, where the leader's holds other
/// terms. No snapshot helps, and nobody writes anything more.
pub(super) fn divergent_tail(stage: &mut Stage) -> Verdict {
    const A: usize = 0;
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 3)?;
    write_alone(stage, A, 30)?;
    let leader = stage.world.leader().ok_or_else(|| off_plot("nobody leads"))?;
    write(stage, leader, 3)?;
    let other = 3 - leader;
    stage.lead(other)?;
    stage.tell_of(other, "leads behind the entries of two more terms");
    stage.world.rejoin(A);
    demand(stage, "n1 agrees with the others", |world| {
        let applied = world.status(A).map(|status| status.applied.last.index);
        applied.is_some_and(|applied| applied >= world.committed_index())
    })?;
    stage.finish(SECOND)
}

/// B07: two members have the longer log and two the higher term, and the fifth, which led, is gone.
/// Neither pair can win before it learns from the other.
pub(super) fn two_cohorts(stage: &mut Stage) -> Verdict {
    const GONE: usize = 0;
    const LONG: [usize; 3] = [GONE, 1, 2];
    const HIGH: [usize; 2] = [3, 4];
    let term = |world: &crate::world::World, node: usize| {
        world.status(node).map_or(0, |status| status.hard.term.0)
    };
    stage.replace_nodes(&["n1", "n2", "n3", "n4", "n5"]);
    stage.open()?;
    stage.lead(GONE)?;
    write(stage, GONE, 3)?;
    stage.until_current(HIGH[0])?;
    let before = term(&stage.world, GONE);
    for high in HIGH {
        LONG.iter().for_each(|long| stage.world.cut(high, *long));
    }
    let to = stage.world.member(HIGH[0]);
    stage.world.call(GONE, Call::Transfer { to }, SECOND)?;
    stage.until("n4 and n5 are in a later term", SECOND, |world| {
        HIGH.iter().all(|high| term(world, *high) > before)
    })?;
    for high in HIGH {
        LONG.iter().for_each(|long| stage.world.cut(*long, high));
    }
    stage.tell("n4 stood for leader and reached n5 only: both are in a later term");
    write(stage, GONE, 2)?;
    stage.power_cut(GONE);
    stage.tell("n1 has written two entries more, which n2 and n3 hold, and is gone");
    for high in HIGH {
        for long in LONG {
            stage.world.mend(high, long);
            stage.world.mend(long, high);
        }
    }
    demand(stage, "somebody leads", |world| world.leader().is_some_and(|l| l != GONE))?;
    stage.finish(SECOND)
}

//! Time between the word and the deed (SCENARIOS 6): what a broker decided, or was permitted to do,
//! comes about when the world has changed.
//!
//! With the guard on the permit itself waits. What it permits cannot become wrong (an incarnation
//! that is gone never returns), or it is void once the store behind it was replaced.

use super::four::age;
use super::stage::{MILLI, SECOND, Stage, off_plot};
use super::variants::orders;
use crate::broker::layout;
use crate::broker::ledger::Place;
use crate::check::{Verdict, Violation};

const R: usize = 0;
const L: usize = 1;
const M: usize = 2;

/// A topic of R is deleted, and R has decided to remove its copy; its hands need so long for it.
fn decided(stage: &mut Stage, hands: u64) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let first = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 3)?;
    stage.world.slow_hands(R, hands);
    stage.delete(L, "orders")?;
    let seconds = hands / SECOND;
    stage.tell(format!("orders ({first}) is deleted; n1 needs {seconds} s to carry out an act"));
    stage.until("n1 has decided", 3 * SECOND, |world| world.hesitates(R))
}

/// The name stands for something else: orders is created anew, for R, which takes 20 records.
fn created_anew(stage: &mut Stage) -> Verdict {
    let second = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell(format!("orders is created again ({second}), and 20 records are acknowledged"));
    Ok(())
}

/// N6: the process stands still for a minute between the decision and the act.
pub(super) fn paused_permit(stage: &mut Stage) -> Verdict {
    decided(stage, SECOND)?;
    created_anew(stage)?;
    stage.world.pause(R);
    stage.tell_of(R, "stands still for a minute");
    stage.world.run_for(60 * SECOND)?;
    stage.world.resume(R);
    stage.tell_of(R, "goes on where it was");
    stage.until_current(R)?;
    stage.world.run_for(2 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N11: one look at all copies, and a long time until the last of them has its turn.
pub(super) fn long_sweep(stage: &mut Stage) -> Verdict {
    const OLD: [&str; 4] = ["first", "second", "third", "fourth"];
    stage.open()?;
    stage.lead(L)?;
    for name in OLD {
        stage.create(L, name, &[R])?;
    }
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    for name in OLD.iter().chain(&["orders"]) {
        stage.produce_all(R, name, 3)?;
    }
    stage.world.slow_hands(R, 2 * SECOND);
    for name in OLD {
        stage.delete(L, name)?;
    }
    stage.delete(L, "orders")?;
    stage.until_current(R)?;
    stage.world.run_for(1_100 * MILLI)?;
    stage.tell("five topics are deleted; n1 has looked once, and needs 2 s for each directory");
    created_anew(stage)?;
    stage.world.run_for(11 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N13: the topic is created anew through another node during the sweep. No gate of this node sees
/// that: records that a third node accepted reach it as the owner, and open the directory.
pub(super) fn created_elsewhere(stage: &mut Stage) -> Verdict {
    decided(stage, 3 * SECOND)?;
    let second = stage.create(M, "orders", &[R])?;
    stage.until_current(M)?;
    stage.produce_all(M, "orders", 20)?;
    stage.tell(format!("orders is created again ({second}) through n3, which answers 20 records"));
    stage.until("n1 has them", 2 * SECOND, |world| world.accepted_records(M) == 0)?;
    stage.tell("n3 has handed them to n1, the owner, and forgets them");
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// Generation of the store of R.
fn generation(stage: &Stage) -> Result<u64, Violation> {
    let held = stage.world.view(R).and_then(|view| view.held().ok());
    held.map(|held| held.generation).ok_or_else(|| off_plot("the store of n1 cannot be read"))
}

/// N5: a snapshot is installed between the decision and the act: the store is another one.
pub(super) fn installed_between(stage: &mut Stage) -> Verdict {
    stage.world.set_snapshots(6, 0);
    decided(stage, 6 * SECOND)?;
    let before = generation(stage)?;
    stage.world.isolate(R);
    let second = stage.create(L, "orders", &[R])?;
    for n in 0..8 {
        stage.create(L, &format!("other-{n}"), &[M])?;
    }
    stage.tell(format!("without n1, orders is created again ({second}), and the log is cut short"));
    stage.world.run_for(300 * MILLI)?;
    stage.world.rejoin(R);
    stage.until_current(R)?;
    if generation(stage)? == before {
        return Err(off_plot("n1 has installed no snapshot"));
    }
    stage.produce_all(R, "orders", 20)?;
    stage.tell("n1 has installed a snapshot, and acknowledges 20 records");
    stage.world.run_for(6 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// The copy of a move that is about to end lies on a node: by what that node knows, another one
/// owns the partition, which has reported as many records (it has them from a move itself).
pub(super) fn copied_to(stage: &mut Stage, to: usize, owner: usize) -> Result<Moving, Violation> {
    let place = orders(stage.create(L, "orders", &[L])?);
    stage.until_current(L)?;
    stage.produce_all(L, "orders", 20)?;
    stage.move_partition(L, &place, Some(L), owner)?;
    is_let_go(stage, L, &place)?;
    // Between two sweeps, which come every second.
    stage.world.run_for(100 * MILLI)?;
    let moving = stage.begin_move(L, &place, to)?;
    stage.until_current(to)?;
    let length = stage.world.copy_partition(&place, owner, to)?;
    Ok(Moving { place, moving, length, owner })
}

/// Waits until a node has let its copy of a partition go.
fn is_let_go(stage: &mut Stage, node: usize, place: &Place) -> Verdict {
    let place = place.clone();
    stage.until("a node lets its copy go", 10 * SECOND, move |world| {
        layout::is_there(&world.disk(node), &place).is_ok_and(|there| !there)
    })
}

/// A move under way.
pub(super) struct Moving {
    place: Place,
    moving: u64,
    length: u64,
    owner: usize,
}

impl Moving {
    /// The move ends: the new owner holds as many records as the old.
    pub(super) fn ends(&self, stage: &mut Stage, through: usize) -> Verdict {
        stage.complete_move(through, &self.place, self.moving, self.length, false)
    }

    /// Waits until the old owner has let its copy go: that of the new one is the only one.
    pub(super) fn is_let_go(&self, stage: &mut Stage) -> Verdict {
        is_let_go(stage, self.owner, &self.place)
    }
}

/// N10: a node is suspended for a minute. What it heard last seems to have been just now, unless
/// its clock counts the suspend.
pub(super) fn suspended(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let moving = copied_to(stage, R, M)?;
    stage.world.pause(R);
    stage.tell("n1 holds the copy of a move from n3 that is about to end, and is suspended");
    moving.ends(stage, L)?;
    moving.is_let_go(stage)?;
    stage.tell("the move has ended: n1 owns the partition, and n3 has let its copy go");
    stage.world.run_for(60 * SECOND)?;
    stage.tell_of(R, "goes on after a minute, with the state of before; its sweep is first");
    stage.world.resume(R);
    stage.world.sweep_now(R)?;
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N5, second half: a verdict was written down and carried out; after a crash the state is from
/// before it, and says the opposite.
pub(super) fn verdict_then_older(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let incarnation = stage.create(L, "orders", &[R])?;
    let place = orders(incarnation);
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    age(stage)?;
    stage.move_partition(L, &place, Some(R), M)?;
    is_let_go(stage, R, &place)?;
    stage.tell("n3 owns the partition with its 20 records, and n1 has let its copy go");
    stage.power_cut(R);
    super::four::meanwhile(stage)?;
    stage.start_unheard(R, M)?;
    stage.produce_all(R, "orders", 10)?;
    stage.tell("n1 is back with its state of before, takes itself for the owner, and 10 records");
    stage.world.run_for(2 * SECOND)?;
    stage.hear(R);
    stage.until_current(R)?;
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N12: a write has begun when the partition moves away, and ends behind that: its writer holds the
/// log open, and acknowledges what it writes wherever the file lies by then.
pub(super) fn open_handle(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let incarnation = stage.create(L, "orders", &[R])?;
    let place = orders(incarnation);
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.world.run_for(SECOND)?;
    stage.world.begin_write(R, &place)?;
    stage.tell("n1 has 20 records, and begins to write 10 more");
    stage.move_partition(L, &place, Some(R), M)?;
    stage.tell("n3 has copied the 20 records, and owns the partition");
    stage.world.run_for(2_500 * MILLI)?;
    stage.world.end_write(R, 10)?;
    stage.tell("the write of n1 ends; its 10 records are acknowledged");
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N31: peers tell each other what to purge, and one of them is late: the name means something else
/// by then.
pub(super) fn late_purge(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let first = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 3)?;
    stage.delete(L, "orders")?;
    stage.world.tell_purge(L, R, "orders", 2 * SECOND);
    stage.tell(format!("orders ({first}) is deleted, and n2 tells n1, which hears it late"));
    created_anew(stage)?;
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

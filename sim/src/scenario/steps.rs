//! Single steps of the guard, each in a schedule in which nothing else stands between the data and
//! its end (SCENARIOS 5, RULES IV): without the step that a scenario is about, it loses data.
//!
//! Steps behind which another step always stands have no scenario here. A claim by tombstone needs
//! no current replica and no leader; a claim by the leader's word is looked at again in a state that
//! has reached the answer: tests of `fsm` and `consensus` hold each of them.

use super::stage::{SECOND, Stage, off_plot};
use super::variants::orders;
use crate::check::{Verdict, Violation};
use holdfast_consensus::job::{Call, Lane};
use holdfast_consensus::message::Outcome;
use holdfast_fsm::guard::Claim;
use holdfast_fsm::guard::inquiry::Question;

const R: usize = 0;
const L: usize = 1;
const M: usize = 2;

/// The records of R's partition, durable.
fn opening(stage: &mut Stage, owner: usize) -> Result<u64, Violation> {
    stage.open()?;
    stage.lead(L)?;
    let incarnation = stage.create(L, "orders", &[owner])?;
    stage.until_current(owner)?;
    stage.produce_all(owner, "orders", 20)?;
    stage.world.run_for(SECOND)?;
    Ok(incarnation)
}

/// R33 and N21: the partition moved from n1 to n3, whose disk then died; somebody rescued the old
/// copy of n1 onto n2. By the metadata it is a copy of n1's disk that was moved away from.
pub(super) fn rescued_copy(stage: &mut Stage) -> Verdict {
    let incarnation = opening(stage, R)?;
    stage.power_cut(R);
    stage.move_partition(L, &orders(incarnation), Some(R), M)?;
    stage.tell("n1 is away; n3 has copied its partition, 20 records, and owns it");
    stage.world.run_for(SECOND)?;
    stage.power_cut(M);
    stage.world.lose_topics(M);
    stage.power_cut(L);
    stage.world.move_copies(R, L);
    stage.tell(
        "the disk of n3 is lost with its copy; somebody puts the old one of n1 among those of n2",
    );
    stage.world.start(L)?;
    stage.world.start(M)?;
    stage.world.run_until_serving()?;
    stage.world.run_for(5 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// R33 and N22: a forced move, and a regular one behind it. By its length the copy in force covers
/// that of the first owner, but it holds other records.
pub(super) fn forced_before(stage: &mut Stage) -> Verdict {
    let incarnation = opening(stage, R)?;
    stage.power_cut(R);
    stage.tell("n1 is away for long; its partition is given to n3 by force, without its records");
    stage.move_partition(L, &orders(incarnation), None, M)?;
    stage.until_current(M)?;
    stage.produce_all(M, "orders", 30)?;
    stage.move_partition(L, &orders(incarnation), Some(M), L)?;
    stage.tell("n3 takes 30 other records, and hands the partition on to n2 as it should be done");
    stage.world.start(R)?;
    stage.until_current(R)?;
    stage.world.run_for(5 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// R33: the old owner goes on taking records between the copy and the end of the move.
pub(super) fn grown_copy(stage: &mut Stage) -> Verdict {
    let incarnation = opening(stage, R)?;
    let place = orders(incarnation);
    let moving = stage.begin_move(L, &place, M)?;
    stage.until_current(M)?;
    let length = stage.world.copy_partition(&place, R, M)?;
    stage.produce_all(R, "orders", 10)?;
    stage.tell(format!("n3 has copied {length} records; n1, still the owner, takes 10 more"));
    stage.complete_move(L, &place, moving, length, false)?;
    stage.tell(format!("n3 owns the partition with the {length} records that it reported"));
    stage.world.run_for(5 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// R33 and N23: the copy of a move that is under way. Another node still owns the partition, with
/// as many records; the placement that the copy was made for has yet to come into force.
pub(super) fn copy_ahead(stage: &mut Stage) -> Verdict {
    let incarnation = opening(stage, M)?;
    let place = orders(incarnation);
    stage.move_partition(L, &place, Some(M), L)?;
    stage.world.run_for(4 * SECOND)?;
    let moving = stage.begin_move(L, &place, R)?;
    stage.until_current(R)?;
    let length = stage.world.copy_partition(&place, L, R)?;
    stage.tell(format!(
        "n2 owns the partition; n1 has copied its {length} records, and the move takes its time"
    ));
    stage.world.run_for(5 * SECOND)?;
    stage.complete_move(L, &place, moving, length, false)?;
    stage.tell("the move is completed: n1 owns the partition");
    stage.world.run_for(5 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// R31, R34: power is lost right after the first records of a new topic were acknowledged.
pub(super) fn fresh_copy(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 5)?;
    stage.tell("orders is created, and n1 has acknowledged its first 5 records");
    stage.power_cut(R);
    stage.world.run_for(SECOND)?;
    stage.world.start(R)?;
    stage.until_current(R)?;
    stage.finish(3 * SECOND)
}

/// N3 and 4: a leader that is asked while its state is still at the last checkpoint. It answers
/// from a state that covers everything that was committed when it was asked, or not at all.
pub(super) fn replaying_responder(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.no_more_checkpoints();
    stage.world.crash(M, false);
    stage.world.start(M)?;
    stage.world.run_until_serving()?;
    stage.lead(L)?;
    stage.create(L, "orders", &[R])?;
    for node in [R, M] {
        stage.until_current(node)?;
    }
    stage.power_cut(M);
    stage.world.start(M)?;
    stage.world.stall_lane(M, Lane::Apply);
    stage.until("n3 is there", 3 * SECOND, |world| world.is_connected(M, L))?;
    stage.world.run_for(SECOND)?;
    stage.lead_if_possible(M)?;
    stage.until("n3 leads", 5 * SECOND, |world| world.leader() == Some(M))?;
    stage.until("n1 knows it", 5 * SECOND, |world| {
        world.status(R).is_some_and(|status| status.leader == Some(world.member(M)))
    })?;
    stage.tell_of(M, "leads, and has yet to apply its log");
    ask_about_orders(stage, 1)?;
    stage.world.free_lane(M, Lane::Apply);
    stage.until_current(M)?;
    if !ask_about_orders(stage, 2)? {
        return Err(off_plot("the leader does not answer although it has applied its log"));
    }
    stage.finish(SECOND)
}

/// Asks the leader through R whether `orders` is gone; true if there was an answer.
fn ask_about_orders(stage: &mut Stage, nonce: u64) -> Result<bool, Violation> {
    let view = stage.world.view(R).ok_or_else(|| off_plot("n1 is down"))?;
    let topic = view.topic("orders").ok().and_then(|at| at.value);
    let topic = topic.ok_or_else(|| off_plot("n1 does not know orders"))?;
    let question = Question {
        cluster: topic.stamp.cluster,
        epoch: topic.stamp.epoch,
        asker: stage.world.member(R),
        nonce,
        claim: Claim::Gone(topic.stamp),
    };
    let question = question.encode().map_err(|e| off_plot(e.to_string()))?;
    let floor = stage.world.committed_index();
    match stage.world.ask(R, Call::Confirm { question }, 2 * SECOND)? {
        Some(Outcome::Confirmed(answer)) if answer.index < floor => Err(Violation::new(
            "reads",
            format!(
                "the leader answers a question by its state of {}, and {floor} was committed when it was asked",
                answer.index
            ),
        )),
        Some(Outcome::Confirmed(answer)) => {
            stage.tell(format!("the leader answers by its state of {}", answer.index));
            Ok(true)
        }
        _ => {
            stage.tell("the leader does not answer");
            Ok(false)
        }
    }
}

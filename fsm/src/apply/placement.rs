//! Who owns which partition. A placement is inserted once and then changed only by a move that
//! names it: nobody who looked at an older state can take a partition away (N30).

use super::{Scene, bury};
use crate::answer::Answer;
use crate::command::{AbortMove, AssignPartition, CompleteMove, PartitionRef, SetTarget};
use crate::records::{
    Assignment, ResourceKind, Stamp, Target, assignment_key, assignments_of, move_name,
};
use holdfast_consensus::fault::StoreFault;

pub(super) fn assign(scene: &mut Scene<'_, '_>, c: AssignPartition) -> Result<Answer, StoreFault> {
    let topic = match scene.topic(&c.to.topic, c.to.incarnation)? {
        Ok(topic) => topic,
        Err(refusal) => return Ok(refusal),
    };
    if c.to.partition >= topic.partitions {
        return Ok(Answer::NoSuchPartition { partitions: topic.partitions });
    }
    let key = assignment_key(&c.to.topic, c.to.partition);
    if let Some(row) = scene.rows.get::<Assignment>(&key)? {
        return Ok(Answer::AlreadyAssigned { placed: row.stamp.incarnation });
    }
    let stamp = new_move(scene, &c.to);
    let placed = stamp.incarnation;
    let row = Assignment {
        stamp,
        topic: topic.stamp,
        partition: c.to.partition,
        owner: c.owner,
        target: None,
        length: 0,
        forced_at: None,
    };
    scene.rows.put(&key, &row)?;
    Ok(Answer::PartitionAssigned { placed })
}

fn new_move(scene: &Scene<'_, '_>, of: &PartitionRef) -> Stamp {
    scene.stamp(ResourceKind::Move, move_name(&of.topic, of.partition))
}

pub(super) fn set_target(scene: &mut Scene<'_, '_>, c: SetTarget) -> Result<Answer, StoreFault> {
    let mut row = match placed(scene, &c.of)? {
        Ok(row) => row,
        Err(refusal) => return Ok(refusal),
    };
    if row.stamp.incarnation != c.placed {
        return Ok(Answer::WrongPlacement { current: row.stamp.incarnation });
    }
    if let Some(target) = &row.target {
        return Ok(Answer::MoveUnderWay { incarnation: target.stamp.incarnation });
    }
    if row.owner == c.target {
        return Ok(Answer::AlreadyOwner);
    }
    let stamp = new_move(scene, &c.of);
    let incarnation = stamp.incarnation;
    row.target = Some(Target { stamp, owner: c.target });
    scene.rows.put(&assignment_key(&c.of.topic, c.of.partition), &row)?;
    Ok(Answer::MoveStarted { incarnation })
}

pub(super) fn complete(scene: &mut Scene<'_, '_>, c: &CompleteMove) -> Result<Answer, StoreFault> {
    let (mut row, target) = match moving(scene, &c.of, c.incarnation)? {
        Ok(found) => found,
        Err(refusal) => return Ok(refusal),
    };
    row.stamp = target.stamp;
    row.owner = target.owner;
    row.length = c.length;
    if c.forced {
        row.forced_at = Some(c.incarnation);
    }
    scene.rows.put(&assignment_key(&c.of.topic, c.of.partition), &row)?;
    Ok(Answer::MoveCompleted { incarnation: c.incarnation })
}

/// Ends a move; its tombstone lets the target give up what it has copied.
pub(super) fn abort(scene: &mut Scene<'_, '_>, c: &AbortMove) -> Result<Answer, StoreFault> {
    let (row, target) = match moving(scene, &c.of, c.incarnation)? {
        Ok(found) => found,
        Err(refusal) => return Ok(refusal),
    };
    scene.rows.put(&assignment_key(&c.of.topic, c.of.partition), &row)?;
    bury(scene, target.stamp)?;
    Ok(Answer::MoveAborted { incarnation: c.incarnation })
}

/// Removes the placements of a deleted topic. Moves under way end with it. The placements leave no
/// tombstone of their own: the topic's covers every copy.
pub(super) fn forget(scene: &mut Scene<'_, '_>, topic: &str) -> Result<(), StoreFault> {
    for (key, row) in scene.rows.under::<Assignment>(&assignments_of(topic))? {
        scene.rows.remove::<Assignment>(&key)?;
        if let Some(target) = row.target {
            bury(scene, target.stamp)?;
        }
    }
    Ok(())
}

/// The placement of a partition, if its topic lives in the wanted incarnation.
fn placed(
    scene: &Scene<'_, '_>,
    of: &PartitionRef,
) -> Result<Result<Assignment, Answer>, StoreFault> {
    if let Err(refusal) = scene.topic(&of.topic, of.incarnation)? {
        return Ok(Err(refusal));
    }
    let row = scene.rows.get::<Assignment>(&assignment_key(&of.topic, of.partition))?;
    Ok(row.ok_or(Answer::NotFound))
}

/// The placement of a partition, and the wanted move taken out of it.
fn moving(
    scene: &Scene<'_, '_>,
    of: &PartitionRef,
    incarnation: u64,
) -> Result<Result<(Assignment, Target), Answer>, StoreFault> {
    let mut row = match placed(scene, of)? {
        Ok(row) => row,
        Err(refusal) => return Ok(Err(refusal)),
    };
    Ok(match row.target.take() {
        None => Err(Answer::NoMove { placed: row.stamp.incarnation }),
        Some(target) if target.stamp.incarnation != incarnation => {
            Err(Answer::MoveUnderWay { incarnation: target.stamp.incarnation })
        }
        Some(target) => Ok((row, target)),
    })
}

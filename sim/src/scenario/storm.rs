//! A storm: topics come and go, children are attached and detached, records are produced, and
//! nodes crash, hang and lose each other, as the seed says. Whatever happens, nothing that lives is
//! destroyed.

use super::stage::{MILLI, SECOND, Stage};
use crate::check::{Verdict, Violation};
use holdfast_consensus::Micros;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::command::{AssignPartition, DetachChild, PartitionRef};
use holdfast_fsm::{Answer, Command, CreateTopic, DeleteTopic};

const TOPICS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: u64 = 120;
/// How long an operator waits for an answer.
const PATIENCE: Micros = SECOND;

/// The program.
pub(super) fn storm(stage: &mut Stage) -> Verdict {
    stage.open()?;
    let nodes = stage.world.names().len() as u64;
    if stage.world.draw(0, 2) == 0 {
        stage.no_more_checkpoints();
    }
    for _ in 0..TOPICS.len() * 2 {
        create(stage, 0)?;
    }
    for _ in 0..STEPS {
        let node = usize::try_from(stage.world.draw(0, nodes)).unwrap_or(0);
        let pause = stage.world.draw(1, 200);
        match stage.world.draw(0, 24) {
            0..3 => create(stage, node)?,
            3..6 => change(stage, node)?,
            6..14 => {
                let topic = pick(stage);
                let records = stage.world.draw(1, 6);
                stage.produce(node, topic, records)?;
            }
            14..17 => trouble(stage, node)?,
            17 => cut(stage, node),
            _ => recover(stage, node)?,
        }
        stage.world.run_for(pause * MILLI)?;
    }
    stage.finish(8 * SECOND)
}

/// Proposes, and does not wait for long.
fn propose(stage: &mut Stage, node: usize, command: &Command) -> Result<Option<Answer>, Violation> {
    let command = command
        .encode(None)
        .map_err(|e| Violation::new("codec", format!("{command:?} does not encode: {e}")))?;
    match stage.world.ask(node, Call::Propose { command }, PATIENCE)? {
        Some(Outcome::Committed { result, .. }) => Ok(Answer::decode(&result).ok()),
        _ => Ok(None),
    }
}

fn pick(stage: &mut Stage) -> &'static str {
    TOPICS[usize::try_from(stage.world.draw(0, TOPICS.len() as u64)).unwrap_or(0)]
}

/// Creates a topic and assigns its partition. Refusals are part of the weather.
fn create(stage: &mut Stage, node: usize) -> Verdict {
    let (name, owner) = (pick(stage), stage.world.draw(0, 3));
    let create = Command::CreateTopic(CreateTopic {
        name: name.to_owned(),
        partitions: 1,
        retention_ms: None,
        created_at_ms: 0,
    });
    let Some(Answer::TopicCreated { incarnation }) = propose(stage, node, &create)? else {
        return Ok(());
    };
    let owner = usize::try_from(owner).unwrap_or(0) % stage.world.names().len();
    let owner = stage.owner(owner);
    let to = PartitionRef { topic: name.to_owned(), incarnation, partition: 0 };
    propose(stage, node, &Command::AssignPartition(AssignPartition { to, owner }))?;
    Ok(())
}

/// Deletes a topic, or attaches or detaches one.
fn change(stage: &mut Stage, node: usize) -> Verdict {
    let (name, other) = (pick(stage), pick(stage));
    let command = match stage.world.draw(0, 3) {
        0 => Command::DeleteTopic(DeleteTopic { name: name.to_owned(), incarnation: None }),
        1 => match stage.attachment(node, name, other, SECOND) {
            Some(command) => command,
            None => return Ok(()),
        },
        _ => Command::DetachChild(DetachChild { child: name.to_owned(), incarnation: None }),
    };
    propose(stage, node, &command)?;
    Ok(())
}

/// A node crashes or hangs; now and then a second one while the first is down.
fn trouble(stage: &mut Stage, node: usize) -> Verdict {
    let nodes = stage.world.names().len();
    let well = |n: usize| stage.world.is_running(n) && !stage.world.is_paused(n);
    let ill = (0..nodes).filter(|n| !well(*n)).count();
    if ill > 0 && stage.world.draw(0, 4) > 0 {
        return Ok(());
    }
    match stage.world.draw(0, 4) {
        0 => stage.power_cut(node),
        1 => stage.world.crash(node, true),
        2 => stage.world.crash(node, false),
        _ => stage.world.pause(node),
    }
    Ok(())
}

fn cut(stage: &mut Stage, node: usize) {
    let other = (node + 1) % stage.world.names().len();
    stage.world.cut(node, other);
    if stage.world.draw(0, 2) == 0 {
        stage.world.cut(other, node);
    }
}

fn recover(stage: &mut Stage, node: usize) -> Verdict {
    if !stage.world.is_running(node) {
        return stage.world.start(node);
    }
    stage.world.resume(node);
    let other = (node + 1) % stage.world.names().len();
    stage.world.mend(node, other);
    stage.world.mend(other, node);
    if stage.world.draw(0, 4) == 0
        && let Some(leader) = stage.world.leader()
    {
        let to = stage.world.member(node);
        stage.world.call(leader, Call::Transfer { to }, SECOND)?;
    }
    Ok(())
}

//! Which topic is fed from which. The attachment's incarnation is the epoch that cursors carry:
//! ordered, so that whoever is behind can see that it is (R36).

use super::{Scene, bury};
use crate::answer::Answer;
use crate::command::{AttachChild, DetachChild};
use crate::records::{Link, ResourceKind, TableId, link_key};
use holdfast_consensus::fault::StoreFault;

pub(super) fn attach(scene: &mut Scene<'_, '_>, c: AttachChild) -> Result<Answer, StoreFault> {
    let child = match scene.topic(&c.child, c.child_incarnation)? {
        Ok(topic) => topic,
        Err(refusal) => return Ok(refusal),
    };
    let parent = match scene.topic(&c.parent, c.parent_incarnation)? {
        Ok(topic) => topic,
        Err(refusal) => return Ok(refusal),
    };
    let key = link_key(&c.child);
    if let Some(link) = scene.rows.get::<Link>(&key)? {
        return Ok(Answer::AlreadyAttached { incarnation: link.stamp.incarnation });
    }
    if c.tails.len() as u64 != u64::from(parent.partitions) {
        return Ok(Answer::WrongTails { partitions: parent.partitions });
    }
    if feeds(scene, &c.child, &c.parent)? {
        return Ok(Answer::WouldFeedItself);
    }
    let stamp = scene.stamp(ResourceKind::Attachment, c.child);
    let incarnation = stamp.incarnation;
    let link = Link {
        stamp,
        child: child.stamp,
        parent: parent.stamp,
        delay_ms: c.delay_ms,
        tails: c.tails,
    };
    scene.rows.put(&key, &link)?;
    Ok(Answer::Attached { incarnation })
}

/// True if `topic` is `child`, or is fed from it, directly or through others. Links make no
/// circles, so that this ends.
fn feeds(scene: &Scene<'_, '_>, child: &str, topic: &str) -> Result<bool, StoreFault> {
    let mut at = topic.to_owned();
    while at != child {
        match scene.rows.get::<Link>(&link_key(&at))? {
            Some(link) => at = link.parent.name,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Ends an attachment; its tombstone lets go of the cursors that carry its epoch.
pub(super) fn detach(scene: &mut Scene<'_, '_>, c: &DetachChild) -> Result<Answer, StoreFault> {
    let key = link_key(&c.child);
    let Some(link) = scene.rows.get::<Link>(&key)? else { return Ok(Answer::NotFound) };
    let incarnation = link.stamp.incarnation;
    if c.incarnation.is_some_and(|wanted| wanted != incarnation) {
        return Ok(Answer::WrongIncarnation { current: incarnation });
    }
    scene.rows.remove::<Link>(&key)?;
    bury(scene, link.stamp)?;
    Ok(Answer::Detached { incarnation })
}

/// Ends the attachments of a deleted topic: its own, and those of the topics that it feeds.
pub(super) fn forget(scene: &mut Scene<'_, '_>, topic: &str) -> Result<(), StoreFault> {
    if scene.rows.count(TableId::Links) == 0 {
        return Ok(());
    }
    let mut ended = Vec::new();
    scene.rows.each::<Link>(|key, link| {
        if link.child.name == topic || link.parent.name == topic {
            ended.push((key.to_vec(), link.stamp));
        }
    })?;
    for (key, stamp) in ended {
        scene.rows.remove::<Link>(&key)?;
        bury(scene, stamp)?;
    }
    Ok(())
}

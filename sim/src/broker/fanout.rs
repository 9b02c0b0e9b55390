//! Fan-out: cursors that tail a partition of the parent for one child (SCENARIOS 2).

use super::engine::{Broker, Sight};
use super::layout;
use super::ledger::Place;
use super::meta::{self, Link};
use super::records;
use super::wants::{Act, Want};
use std::io;

/// A cursor that runs.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) link: Link,
    /// Next record of the parent's partition.
    pub(super) next: u64,
}

/// The content of a cursor's file: attachment and next record.
#[must_use]
pub(super) fn encode(attachment: u64, next: u64) -> Vec<u8> {
    format!("{attachment} {next}\n").into_bytes()
}

pub(super) fn decode(bytes: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (attachment, next) = text.trim_end().split_once(' ')?;
    Some((attachment.parse().ok()?, next.parse().ok()?))
}

fn parent_of(link: &Link, partition: u32) -> Place {
    Place::of(&link.parent, partition)
}

impl Broker {
    /// Makes what the node owns, starts the cursors of links that it sees and stops the others.
    pub(super) fn reconcile(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let Ok(owned) = meta::owned(sight.view, &self.owner) else { return Ok(()) };
        for place in &owned {
            self.ensure_partition(place, sight.view)?;
        }
        let Ok(links) = meta::links(sight.view) else { return Ok(()) };
        let mut wanted = Vec::new();
        for link in links {
            for place in &owned {
                if *place == Place::of(&link.parent, place.partition) {
                    wanted.push((link.clone(), place.partition));
                }
            }
        }
        let running: Vec<(String, u32)> = self.cursors.keys().cloned().collect();
        for key in running {
            let still = wanted.iter().any(|(link, partition)| {
                link.child.name == key.0
                    && *partition == key.1
                    && self.cursors.get(&key).is_some_and(|c| c.link.stamp == link.stamp)
            });
            if !still && let Some(cursor) = self.cursors.remove(&key) {
                let (link, partition) = (cursor.link, key.1);
                self.wants.push(Want::Say(format!(
                    "stops the cursor of {} (attachment {})",
                    link.child.name, link.stamp.incarnation
                )));
                self.consider(Act::Clean { link, partition }, sight)?;
            }
        }
        for (link, partition) in wanted {
            if !self.cursors.contains_key(&(link.child.name.clone(), partition)) {
                self.spawn(link, partition, sight)?;
            }
        }
        Ok(())
    }

    /// Starts a cursor where its file says, or has it anchored.
    fn spawn(&mut self, link: Link, partition: u32, sight: &Sight<'_>) -> io::Result<()> {
        let path = layout::cursor_of(&link, partition);
        let seen = records::content(&self.disk, &path)?;
        match seen.as_deref().map(decode) {
            Some(Some((attachment, next))) if attachment == link.stamp.incarnation => {
                self.wants.push(Want::Say(format!(
                    "resumes the cursor of {} at {next} (attachment {attachment})",
                    link.child.name
                )));
                self.cursors.insert((link.child.name.clone(), partition), Cursor { link, next });
                Ok(())
            }
            _ => self.consider(Act::Anchor { link, partition, seen }, sight),
        }
    }

    /// Anchors at the tail and overwrites the file, as brokers did.
    pub(super) fn anchor_at_tail(
        &mut self,
        link: &Link,
        partition: u32,
        sight: &Sight<'_>,
    ) -> io::Result<()> {
        let parent = parent_of(link, partition);
        if !self.ensure_partition(&parent, sight.view)? {
            return Ok(());
        }
        let tail = records::read(&self.disk, &layout::log_of(&parent))?.len() as u64;
        self.wants.push(Want::Say(format!(
            "anchors the cursor of {} at the tail, {tail} (attachment {})",
            link.child.name, link.stamp.incarnation
        )));
        let path = layout::cursor_of(link, partition);
        records::replace(&self.disk, &path, &encode(link.stamp.incarnation, tail))?;
        self.run_from(link, partition, tail);
        Ok(())
    }

    pub(super) fn run_from(&mut self, link: &Link, partition: u32, next: u64) {
        let cursor = Cursor { link: link.clone(), next };
        self.cursors.insert((link.child.name.clone(), partition), cursor);
    }

    /// Moves what has waited long enough to the children.
    pub(super) fn feed(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let keys: Vec<(String, u32)> = self.cursors.keys().cloned().collect();
        for key in keys {
            let Some(cursor) = self.cursors.get(&key).cloned() else { continue };
            let parent = parent_of(&cursor.link, key.1);
            let due: Vec<records::Record> = records::read(&self.disk, &layout::log_of(&parent))?
                .into_iter()
                .skip(usize::try_from(cursor.next).unwrap_or(usize::MAX))
                .take_while(|record| record.time + cursor.link.delay_ms * 1000 <= sight.now)
                .collect();
            if due.is_empty() {
                continue;
            }
            let child = Place::of(&cursor.link.child, key.1);
            let mut fed = 0;
            for record in &due {
                if !self.append(&child, *record, sight)? {
                    break;
                }
                fed += 1;
            }
            if fed == 0 {
                continue;
            }
            let next = cursor.next + fed;
            let path = layout::cursor_of(&cursor.link, key.1);
            records::replace(&self.disk, &path, &encode(cursor.link.stamp.incarnation, next))?;
            if let Some(cursor) = self.cursors.get_mut(&key) {
                cursor.next = next;
            }
        }
        Ok(())
    }
}

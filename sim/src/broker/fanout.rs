//! Fan-out: cursors that tail a partition of the parent for one child (SCENARIOS 2).

use super::Mode;
use super::engine::{Broker, Sight};
use super::layout::{self, Copy};
use super::ledger::Place;
use super::meta::{self, Link};
use super::records::{self, Record};
use super::wants::{Act, Seen, Want};
use std::io;

/// A cursor that runs.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) link: Link,
    /// The copy of the parent.
    copy: Copy,
    /// Next record of the parent's partition.
    next: u64,
}

/// The content of an offset file: attachment and next record.
fn encode(attachment: u64, next: u64) -> Vec<u8> {
    format!("{attachment} {next}\n").into_bytes()
}

fn decode(bytes: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (attachment, next) = text.trim_end().split_once(' ')?;
    Some((attachment.parse().ok()?, next.parse().ok()?))
}

impl Seen {
    /// Attachment and next record.
    fn position(&self) -> Option<(u64, u64)> {
        match self {
            Self::Offset(bytes) => decode(bytes),
            Self::Cursor(seen) => Some((seen.cursor.attachment.incarnation, seen.cursor.next)),
            Self::Nothing | Self::Unreadable(_) => None,
        }
    }
}

impl Broker {
    /// Makes what the node owns, starts the cursors of links that it sees and stops the others.
    pub(super) fn reconcile(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let Ok(owned) = meta::owned(sight.view, &self.owner) else { return Ok(()) };
        let mut copies = Vec::new();
        for place in &owned {
            copies.extend(self.ensure_copy(place, sight.view)?);
        }
        let Ok(links) = meta::links(sight.view) else { return Ok(()) };
        let mut wanted = Vec::new();
        for link in links {
            for copy in &copies {
                if copy.place == Place::of(&link.parent, copy.place.partition) {
                    wanted.push((link.clone(), copy.clone()));
                }
            }
        }
        let running: Vec<(String, u32)> = self.cursors.keys().cloned().collect();
        for key in running {
            let still = wanted.iter().any(|(link, copy)| {
                link.child.name == key.0
                    && copy.place.partition == key.1
                    && self.cursors.get(&key).is_some_and(|c| c.link.stamp == link.stamp)
            });
            if !still && let Some(Cursor { link, copy, .. }) = self.cursors.remove(&key) {
                self.wants.push(Want::Say(format!(
                    "stops the cursor of {} (attachment {})",
                    link.child.name, link.stamp.incarnation
                )));
                self.consider(Act::Clean { link: Box::new(link), copy }, sight)?;
            }
        }
        for (link, copy) in wanted {
            if !self.cursors.contains_key(&(link.child.name.clone(), copy.place.partition)) {
                self.spawn(link, copy, sight)?;
            }
        }
        Ok(())
    }

    /// Starts a cursor where its file says, or has it anchored.
    fn spawn(&mut self, link: Link, copy: Copy, sight: &Sight<'_>) -> io::Result<()> {
        let seen = match self.mode {
            Mode::On => self.cursor_in(&copy, &link)?,
            _ => match records::content(&self.disk, &layout::offset_file(&copy.dir, &link))? {
                Some(bytes) => Seen::Offset(bytes),
                None => Seen::Nothing,
            },
        };
        match seen.position() {
            Some((attachment, next)) if attachment == link.stamp.incarnation => {
                self.wants.push(Want::Say(format!(
                    "resumes the cursor of {} at {next} (attachment {attachment})",
                    link.child.name
                )));
                self.run_from(&link, &copy, next);
                Ok(())
            }
            _ => {
                let (link, seen) = (Box::new(link), Box::new(seen));
                self.consider(Act::Anchor { link, copy, seen }, sight)
            }
        }
    }

    /// Anchors at the tail and overwrites the file, as brokers did.
    pub(super) fn anchor_at_tail(&mut self, link: &Link, copy: &Copy) -> io::Result<()> {
        let tail = records::read(&self.disk, &layout::log_of(&copy.dir))?.len() as u64;
        self.wants.push(Want::Say(format!(
            "anchors the cursor of {} at the tail, {tail} (attachment {})",
            link.child.name, link.stamp.incarnation
        )));
        let path = layout::offset_file(&copy.dir, link);
        records::replace(&self.disk, &path, &encode(link.stamp.incarnation, tail))?;
        self.run_from(link, copy, tail);
        Ok(())
    }

    pub(super) fn run_from(&mut self, link: &Link, copy: &Copy, next: u64) {
        let key = (link.child.name.clone(), copy.place.partition);
        let cursor = Cursor { link: link.clone(), copy: copy.clone(), next };
        self.cursors.insert(key, cursor);
    }

    /// Moves what has waited long enough to the children.
    pub(super) fn feed(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let keys: Vec<(String, u32)> = self.cursors.keys().cloned().collect();
        for key in keys {
            let Some(cursor) = self.cursors.get(&key).cloned() else { continue };
            let due: Vec<Record> = records::read(&self.disk, &layout::log_of(&cursor.copy.dir))?
                .into_iter()
                .skip(usize::try_from(cursor.next).unwrap_or(usize::MAX))
                .take_while(|record| record.time + cursor.link.delay_ms * 1000 <= sight.now)
                .collect();
            let child = Place::of(&cursor.link.child, key.1);
            let mut fed = 0;
            for record in due {
                if !self.hand_on(&child, record, sight)? {
                    break;
                }
                fed += 1;
            }
            if fed > 0 {
                self.move_on(&key, &cursor, cursor.next + fed)?;
            }
        }
        Ok(())
    }

    /// Writes down how far a cursor has come. One whose file is another's stops.
    fn move_on(&mut self, key: &(String, u32), cursor: &Cursor, next: u64) -> io::Result<()> {
        let (link, copy) = (&cursor.link, &cursor.copy);
        let own = match self.mode {
            Mode::On => self.advance_cursor(copy, link, next)?,
            _ => {
                let path = layout::offset_file(&copy.dir, link);
                records::replace(&self.disk, &path, &encode(link.stamp.incarnation, next))?;
                true
            }
        };
        match (own, self.cursors.get_mut(key)) {
            (true, Some(cursor)) => cursor.next = next,
            _ => {
                self.cursors.remove(key);
            }
        }
        Ok(())
    }
}

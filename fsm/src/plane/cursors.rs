//! Cursors of children in the copies of their parent: advanced by their own attachment, replaced
//! or dropped only with a permit (SCENARIOS 2).

use super::layout::cursor_file;
use super::seal::{self, Sealed};
use super::trash::Reason;
use super::{Place, Plane, disk, spent};
use crate::guard::{Claim, Keep, Permit};
use crate::records::{CopyStamp, Stamp};
use crate::view::View;
use holdfast_log::disk::Disk;
use serde::{Deserialize, Serialize};

/// How far a child has come in one partition of its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The attachment; its incarnation is the cursor's epoch.
    pub attachment: Stamp,
    /// The parent: offsets of another incarnation mean nothing in this one (N24).
    pub parent: Stamp,
    /// Next record to hand to the child.
    pub next: u64,
}

impl Sealed for Cursor {
    const MAGIC: [u8; 8] = *b"HFCURSOR";
    const WHAT: &'static str = "cursor";
}

/// A cursor as it was read, to be compared before it is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCursor {
    /// What it says.
    pub cursor: Cursor,
    bytes: Vec<u8>,
}

impl<D: Disk> Plane<D> {
    /// Reads the cursor of a child in a copy of its parent; `None` only if there is no file.
    ///
    /// # Errors
    /// [`Keep`] if it cannot be read, or is not a cursor: it is no absence (N15).
    pub fn cursor(&self, copy: &CopyStamp, child: &Stamp) -> Result<Option<SeenCursor>, Keep> {
        let path = cursor_file(&Place::of(copy).dir(), child);
        let Some(bytes) = seal::read(&self.disk, &path).map_err(disk)? else { return Ok(None) };
        let cursor = Cursor::open(&bytes).map_err(Keep::BadStamp)?;
        Ok(Some(SeenCursor { cursor, bytes }))
    }

    /// Moves a cursor on. Only the attachment that the file names may, and only forwards.
    ///
    /// # Errors
    /// [`Keep`]: the file is as it was.
    pub fn advance_cursor(&self, copy: &CopyStamp, child: &Stamp, to: &Cursor) -> Result<(), Keep> {
        self.locked(&copy.topic.name, || {
            of_this_parent(copy, to)?;
            let seen = self.cursor(copy, child)?.ok_or(Keep::Changed)?.cursor;
            if seen.attachment != to.attachment || seen.parent != to.parent || seen.next > to.next {
                return Err(Keep::Changed);
            }
            self.put_cursor(copy, child, to)
        })
    }

    /// Anchors a cursor: where there is none, or over one of an older attachment, whose content
    /// goes to the trash.
    ///
    /// # Errors
    /// [`Keep`]: the file is as it was.
    pub fn replace_cursor(
        &self,
        permit: Permit,
        view: &View,
        copy: &CopyStamp,
        child: &Stamp,
        seen: Option<&SeenCursor>,
        to: &Cursor,
    ) -> Result<(), Keep> {
        let Claim::Current { attachment, file } = permit.claim() else {
            return Err(Keep::WrongPermit);
        };
        let permitted = *attachment == to.attachment
            && file.as_ref() == seen.map(|seen| &seen.cursor.attachment);
        if !permitted {
            return Err(Keep::WrongPermit);
        }
        self.locked(&copy.topic.name, || {
            of_this_parent(copy, to)?;
            self.same_stamp(&Place::of(copy).dir(), copy)?;
            self.unchanged(copy, child, seen)?;
            permit.still_stands(view)?;
            if let Some(seen) = seen {
                self.note(&Reason::of(&permit, 1, seen.bytes.clone()))?;
            }
            self.put_cursor(copy, child, to)
        })?;
        spent(permit);
        Ok(())
    }

    /// Drops the cursor of an attachment that is gone. Only the file that names it.
    ///
    /// # Errors
    /// [`Keep`]: the file is as it was.
    pub fn drop_cursor(
        &self,
        permit: Permit,
        view: &View,
        copy: &CopyStamp,
        child: &Stamp,
    ) -> Result<(), Keep> {
        let Claim::Gone(attachment) = permit.claim().clone() else {
            return Err(Keep::WrongPermit);
        };
        self.locked(&copy.topic.name, || {
            self.same_stamp(&Place::of(copy).dir(), copy)?;
            let seen = self.cursor(copy, child)?.ok_or(Keep::Changed)?;
            if seen.cursor.attachment != attachment {
                return Err(Keep::WrongPermit);
            }
            permit.still_stands(view)?;
            self.note(&Reason::of(&permit, 1, seen.bytes))?;
            let dir = Place::of(copy).dir();
            self.disk.unlink(&cursor_file(&dir, child)).map_err(disk)?;
            self.disk.sync_dir(&dir).map_err(disk)
        })?;
        spent(permit);
        Ok(())
    }

    /// The file is byte for byte what was read before the permit was asked for.
    fn unchanged(
        &self,
        copy: &CopyStamp,
        child: &Stamp,
        seen: Option<&SeenCursor>,
    ) -> Result<(), Keep> {
        let now = self.cursor(copy, child)?;
        if now.as_ref() == seen { Ok(()) } else { Err(Keep::Changed) }
    }

    fn put_cursor(&self, copy: &CopyStamp, child: &Stamp, to: &Cursor) -> Result<(), Keep> {
        let bytes = to.seal().map_err(disk)?;
        let dir = Place::of(copy).dir();
        self.replace(&dir, &cursor_file(&dir, child), &bytes).map_err(disk)
    }
}

fn of_this_parent(copy: &CopyStamp, to: &Cursor) -> Result<(), Keep> {
    if to.parent == copy.topic {
        return Ok(());
    }
    Err(Keep::BadStamp("the cursor counts in another incarnation of its parent".to_owned()))
}

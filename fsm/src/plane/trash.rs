//! The trash: what was let go, why, and how it comes back or goes for good.

use super::layout::{TMP_DIR, TOPICS_DIR, TRASH_DIR, note_name, note_number, reason_of};
use super::seal::{self, Sealed};
use super::{Place, Plane, PlaneError, disk, spent};
use crate::guard::{Claim, Keep, Permit, Verdict, local};
use crate::records::CopyStamp;
use crate::view::View;
use holdfast_consensus::Micros;
use holdfast_log::disk::Disk;
use serde::{Deserialize, Serialize};
use std::sync::PoisonError;

/// Why something lies in the trash: the content of its reason file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The claim that was granted; for the content of a replaced cursor, that its attachment is
    /// gone.
    pub claim: Claim,
    /// What granted it, in words.
    pub proof: String,
    /// How many things: copies, cursors or records.
    pub count: u64,
    /// The content of what was replaced or discarded; empty for a copy, which lies beside.
    pub content: Vec<u8>,
}

impl Sealed for Reason {
    const MAGIC: [u8; 8] = *b"HFREASON";
    const WHAT: &'static str = "reason file";
}

impl Reason {
    pub(super) fn of(permit: &Permit, count: u64, content: Vec<u8>) -> Self {
        let claim = match permit.claim() {
            Claim::Current { file: Some(file), .. } => Claim::Gone(file.clone()),
            claim => claim.clone(),
        };
        Self { claim, proof: permit.proof().to_string(), count, content }
    }
}

/// An entry of the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trashed {
    /// Its name in the trash.
    pub name: String,
    /// The copy, if it is one.
    pub copy: Option<Result<CopyStamp, Keep>>,
    /// Why it is there; else why that cannot be read.
    pub reason: Result<Reason, Keep>,
}

impl<D: Disk> Plane<D> {
    /// Everything in the trash.
    ///
    /// # Errors
    /// [`PlaneError::Disk`].
    pub fn trashed(&self) -> Result<Vec<Trashed>, PlaneError> {
        let mut all = Vec::new();
        for name in self.disk.list(TRASH_DIR)? {
            if note_number(&name).is_some() {
                let reason = self.reason(&name);
                all.push(Trashed { name, copy: None, reason });
            } else if reason_of(&name).is_none() {
                let place = Place::named(name.clone());
                let copy = Some(self.stamp_in(&place.trash_dir()));
                let reason = self.reason(&place.reason_name());
                all.push(Trashed { name, copy, reason });
            }
        }
        Ok(all)
    }

    fn reason(&self, name: &str) -> Result<Reason, Keep> {
        let path = format!("{TRASH_DIR}/{name}");
        match seal::read(&self.disk, &path).map_err(disk)? {
            Some(bytes) => Reason::open(&bytes).map_err(Keep::BadStamp),
            None => Err(Keep::BadStamp("its reason is missing".to_owned())),
        }
    }

    /// Puts a copy back whose stamp is live again (R29). Destroys nothing, and needs no permit.
    ///
    /// # Errors
    /// [`Keep`]: it stays in the trash.
    pub fn put_back(&self, copy: &CopyStamp, view: &View) -> Result<Place, Keep> {
        let place = Place::of(copy);
        self.locked(&copy.topic.name, || {
            self.same_stamp(&place.trash_dir(), copy)?;
            live_again(copy, view)?;
            if seal::exists(&self.disk, &place.dir()).map_err(disk)? {
                return Err(Keep::Occupied);
            }
            self.disk.rename(&place.trash_dir(), &place.dir()).map_err(disk)?;
            self.disk.sync_dir(TOPICS_DIR).map_err(disk)?;
            self.disk.sync_dir(TRASH_DIR).map_err(disk)?;
            self.remove_reason(&place)?;
            self.forget(&place.to_string());
            Ok(())
        })?;
        Ok(place)
    }

    /// Removes a copy from the trash for good: proved once more, and only when this process has
    /// seen it there for `delay` (R34).
    ///
    /// # Errors
    /// [`Keep`]: it stays in the trash.
    pub fn reap(
        &self,
        permit: Permit,
        view: &View,
        now: Micros,
        delay: Micros,
    ) -> Result<Place, Keep> {
        let copy = permit.claim().copy().cloned().ok_or(Keep::WrongPermit)?;
        let place = Place::of(&copy);
        self.locked(&copy.topic.name, || {
            self.same_stamp(&place.trash_dir(), &copy)?;
            permit.still_stands(view)?;
            self.old_enough(&place.to_string(), now, delay)?;
            let tmp = format!("{TMP_DIR}/{}", self.number());
            self.disk.rename(&place.trash_dir(), &tmp).map_err(disk)?;
            self.disk.sync_dir(TRASH_DIR).map_err(disk)?;
            self.disk.sync_dir(TMP_DIR).map_err(disk)?;
            self.forget(&place.to_string());
            seal::remove_all(&self.disk, &tmp).map_err(disk)?;
            self.disk.remove_dir(&tmp).map_err(disk)?;
            self.remove_reason(&place)
        })?;
        spent(permit);
        Ok(place)
    }

    /// Removes a note from the trash for good, as [`Plane::reap`].
    ///
    /// # Errors
    /// [`Keep`]: it stays in the trash.
    pub fn reap_note(
        &self,
        permit: Permit,
        name: &str,
        view: &View,
        now: Micros,
        delay: Micros,
    ) -> Result<(), Keep> {
        note_number(name).ok_or(Keep::WrongPermit)?;
        if self.reason(name)?.claim != *permit.claim() {
            return Err(Keep::WrongPermit);
        }
        permit.still_stands(view)?;
        self.old_enough(name, now, delay)?;
        self.disk.unlink(&format!("{TRASH_DIR}/{name}")).map_err(disk)?;
        self.disk.sync_dir(TRASH_DIR).map_err(disk)?;
        self.forget(name);
        spent(permit);
        Ok(())
    }

    /// Writes a note about what is about to be replaced or discarded, durable before it returns
    /// (N29).
    pub(super) fn note(&self, reason: &Reason) -> Result<(), Keep> {
        let bytes = reason.seal().map_err(disk)?;
        let path = format!("{TRASH_DIR}/{}", note_name(self.number()));
        self.replace(TRASH_DIR, &path, &bytes).map_err(disk)
    }

    /// A clock that starts with the process: a restart gives everything its whole delay again.
    fn old_enough(&self, name: &str, now: Micros, delay: Micros) -> Result<(), Keep> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *seen.entry(name.to_owned()).or_insert(now);
        let age = now.saturating_sub(since);
        if age >= delay { Ok(()) } else { Err(Keep::TooYoung { age, delay }) }
    }

    fn forget(&self, name: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn remove_reason(&self, place: &Place) -> Result<(), Keep> {
        let path = format!("{TRASH_DIR}/{}", place.reason_name());
        if seal::exists(&self.disk, &path).map_err(disk)? {
            self.disk.unlink(&path).map_err(disk)?;
            self.disk.sync_dir(TRASH_DIR).map_err(disk)?;
        }
        Ok(())
    }

    /// Removes the reasons of what is not in the trash (a crash between the two), and goes on
    /// counting behind the last note.
    pub(super) fn tidy_trash(&self) -> Result<(), PlaneError> {
        let names = self.disk.list(TRASH_DIR)?;
        for name in &names {
            if let Some(place) = reason_of(name)
                && !names.contains(&place.to_string())
            {
                self.disk.unlink(&format!("{TRASH_DIR}/{name}"))?;
            }
        }
        let last = names.iter().filter_map(|name| note_number(name)).max().unwrap_or(0);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = (*next).max(last);
        Ok(())
    }
}

/// Exactly this copy is what the state wants here again.
fn live_again(copy: &CopyStamp, view: &View) -> Result<(), Keep> {
    let claim = Claim::CopyGone(copy.clone());
    let evidence = view.evidence(&claim).map_err(|e| Keep::Unreadable(e.to_string()))?;
    match local::judge(&claim, &evidence)? {
        Verdict::Live { .. } => Ok(()),
        _ => Err(Keep::NotAttached { incarnation: copy.placed.incarnation }),
    }
}

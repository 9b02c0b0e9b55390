//! Copies of partitions: made, found, written, and let go.

use super::layout::{TMP_DIR, TOPICS_DIR, TRASH_DIR, stamp_file};
use super::seal::{self, Sealed};
use super::trash::Reason;
use super::{Lease, Place, Plane, PlaneError, disk, spent};
use crate::guard::{Claim, Guard, Keep, Permit, Standing};
use crate::records::CopyStamp;
use crate::view::View;
use holdfast_log::disk::Disk;

impl Sealed for CopyStamp {
    const MAGIC: [u8; 8] = *b"HFCOPYST";
    const WHAT: &'static str = "copy stamp";
}

/// A directory among the copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it lies.
    pub place: Place,
    /// What it is; else why it is quarantined.
    pub stamp: Result<CopyStamp, Keep>,
}

/// What a pass over the copies came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Copies that went to the trash.
    pub trashed: Vec<Place>,
    /// Copies that stay, and why.
    pub kept: Vec<(Place, Keep)>,
}

impl<D: Disk> Plane<D> {
    /// Makes the directory of a copy, with its stamp, durable before its first record (R34). One
    /// that is there already is fine.
    ///
    /// # Errors
    /// [`PlaneError`].
    pub fn create(&self, copy: &CopyStamp) -> Result<Place, PlaneError> {
        if copy.volume != self.volume.volume || copy.cluster() != self.volume.cluster {
            return Err(PlaneError::Foreign(format!(
                "a copy of cluster {} on volume {} is not made on volume {} of cluster {}",
                copy.cluster(),
                copy.volume,
                self.volume.volume,
                self.volume.cluster,
            )));
        }
        let place = Place::of(copy);
        self.locked(&copy.topic.name, || self.create_locked(copy, &place))?;
        Ok(place)
    }

    fn create_locked(&self, copy: &CopyStamp, place: &Place) -> Result<(), PlaneError> {
        if seal::exists(&self.disk, &place.dir())? {
            return self
                .same_stamp(&place.dir(), copy)
                .map_err(|keep| PlaneError::Occupied { path: place.dir(), why: keep.to_string() });
        }
        if seal::exists(&self.disk, &place.trash_dir())? {
            return Err(PlaneError::InTrash(place.clone()));
        }
        let tmp = place.tmp_dir();
        if seal::exists(&self.disk, &tmp)? {
            // An attempt that failed: it never held a record.
            seal::remove_all(&self.disk, &tmp)?;
            self.disk.remove_dir(&tmp)?;
        }
        self.disk.make_dir(&tmp)?;
        seal::write_new(&self.disk, &stamp_file(&tmp), &copy.seal()?)?;
        self.disk.sync_dir(&tmp)?;
        self.disk.rename(&tmp, &place.dir())?;
        self.disk.sync_dir(TOPICS_DIR)?;
        self.disk.sync_dir(TMP_DIR)?;
        Ok(())
    }

    /// Every directory among the copies. A hint: what is destroyed is checked again (N11).
    ///
    /// # Errors
    /// [`PlaneError::Disk`].
    pub fn list(&self) -> Result<Vec<Found>, PlaneError> {
        let names = self.disk.list(TOPICS_DIR)?.into_iter();
        Ok(names
            .map(|name| {
                let place = Place::named(name);
                let stamp = self.stamp_in(&place.dir()).and_then(|copy| in_place(copy, &place));
                Found { place, stamp }
            })
            .collect())
    }

    /// Leave to write into a copy.
    ///
    /// # Errors
    /// [`PlaneError`].
    pub fn lease(&self, copy: &CopyStamp) -> Result<Lease, PlaneError> {
        let place = Place::of(copy);
        self.locked(&copy.topic.name, || {
            if !seal::exists(&self.disk, &place.dir())? {
                return Err(PlaneError::Missing(place.clone()));
            }
            self.same_stamp(&place.dir(), copy).map_err(|keep| PlaneError::Occupied {
                path: place.dir(),
                why: keep.to_string(),
            })?;
            self.seats.lease(place.clone())
        })
    }

    /// The stamp in a directory; whatever is wrong with it is a reason to keep (R34).
    pub(super) fn stamp_in(&self, dir: &str) -> Result<CopyStamp, Keep> {
        match seal::read(&self.disk, &stamp_file(dir)) {
            Ok(Some(bytes)) => CopyStamp::open(&bytes).map_err(Keep::BadStamp),
            Ok(None) => Err(Keep::BadStamp("it has none".to_owned())),
            Err(e) => Err(Keep::BadStamp(format!("it cannot be read: {e}"))),
        }
    }

    /// Reads the stamp again: the directory must hold exactly what is meant.
    pub(super) fn same_stamp(&self, dir: &str, copy: &CopyStamp) -> Result<(), Keep> {
        let found = self.stamp_in(dir)?;
        if found.volume != self.volume.volume {
            return Err(Keep::OtherVolume { found: found.volume, mine: self.volume.volume });
        }
        if found == *copy { Ok(()) } else { Err(Keep::StampChanged) }
    }

    /// Lets a copy go whose topic was deleted, or whose move was given up.
    ///
    /// # Errors
    /// [`Keep`]: the copy stays as it is.
    pub fn trash(&self, permit: Permit, view: &View) -> Result<Place, Keep> {
        let Claim::CopyGone(copy) = permit.claim().clone() else { return Err(Keep::WrongPermit) };
        self.let_go(permit, &copy, view, || Ok(()))
    }

    /// Lets a copy go that the partition moved away from. `length` measures the copy, in records,
    /// once its writers are closed: it must not have grown since the permit was asked for.
    ///
    /// # Errors
    /// [`Keep`]: the copy stays as it is.
    pub fn trash_moved(
        &self,
        permit: Permit,
        view: &View,
        length: impl FnOnce() -> Result<u64, Keep>,
    ) -> Result<Place, Keep> {
        let Claim::MovedAway { copy, length: permitted } = permit.claim().clone() else {
            return Err(Keep::WrongPermit);
        };
        self.let_go(permit, &copy, view, || {
            if length()? <= permitted { Ok(()) } else { Err(Keep::Changed) }
        })
    }

    fn let_go(
        &self,
        permit: Permit,
        copy: &CopyStamp,
        view: &View,
        last_look: impl FnOnce() -> Result<(), Keep>,
    ) -> Result<Place, Keep> {
        let place = Place::of(copy);
        self.locked(&copy.topic.name, || {
            self.same_stamp(&place.dir(), copy)?;
            permit.still_stands(view)?;
            // Stays closed while somebody is inside: the next pass finds it empty.
            self.seats.close(&place)?;
            let moved = last_look().and_then(|()| self.move_to_trash(&place, &permit));
            match (&moved, seal::exists(&self.disk, &place.dir())) {
                (Err(_), Ok(true)) => self.seats.open(&place),
                (_, Ok(false)) => self.seats.forget(&place),
                // Whether it is still there is not known: nobody writes.
                _ => {}
            }
            moved
        })?;
        spent(permit);
        Ok(place)
    }

    /// The reason first: whatever lies in the trash can be explained.
    fn move_to_trash(&self, place: &Place, permit: &Permit) -> Result<(), Keep> {
        let reason = Reason::of(permit, 1, Vec::new()).seal().map_err(disk)?;
        let path = format!("{TRASH_DIR}/{}", place.reason_name());
        self.replace(TRASH_DIR, &path, &reason).map_err(disk)?;
        self.disk.rename(&place.dir(), &place.trash_dir()).map_err(disk)?;
        self.disk.sync_dir(TOPICS_DIR).map_err(disk)?;
        self.disk.sync_dir(TRASH_DIR).map_err(disk)
    }

    /// One pass over all copies by the first line: what is proved gone goes to the trash, each
    /// copy proved for itself (N11).
    ///
    /// # Errors
    /// [`PlaneError::Disk`] if the copies cannot be listed.
    pub fn sweep(
        &self,
        guard: Guard,
        view: &View,
        standing: &Standing,
    ) -> Result<Sweep, PlaneError> {
        let mut sweep = Sweep::default();
        for Found { place, stamp } in self.list()? {
            let gone = stamp
                .and_then(|copy| guard.prove(Claim::CopyGone(copy), view, standing))
                .and_then(|permit| self.trash(permit, view));
            match gone {
                Ok(place) => sweep.trashed.push(place),
                Err(keep) => sweep.kept.push((place, keep)),
            }
        }
        Ok(sweep)
    }
}

/// A directory under a name that is not its own was put there by somebody else.
fn in_place(copy: CopyStamp, place: &Place) -> Result<CopyStamp, Keep> {
    if Place::of(&copy) == *place {
        return Ok(copy);
    }
    Err(Keep::BadStamp(format!("it belongs to {}", Place::of(&copy))))
}

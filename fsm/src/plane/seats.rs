//! Who writes into which copy: a copy is let go only when nobody is inside, and nobody enters
//! afterwards (N12). Otherwise a writer goes on acknowledging into a directory that is gone.

use super::{Place, PlaneError};
use crate::guard::Keep;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One copy's writers.
#[derive(Debug, Default)]
struct State {
    /// Writers inside now.
    entered: u32,
    /// Nobody may enter any more.
    closed: bool,
}

#[derive(Debug, Default)]
struct Seat(Mutex<State>);

impl Seat {
    fn state(&self) -> MutexGuard<'_, State> {
        // Two plain values: a panic elsewhere leaves them as they are.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seats of the copies that somebody leased.
#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Mutex<BTreeMap<Place, Arc<Seat>>>,
}

impl Seats {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Place, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self, place: &Place) -> Arc<Seat> {
        Arc::clone(self.all().entry(place.clone()).or_default())
    }

    pub(super) fn lease(&self, place: Place) -> Result<Lease, PlaneError> {
        let seat = self.seat(&place);
        if seat.state().closed {
            return Err(PlaneError::Closed(place));
        }
        Ok(Lease { seat, place })
    }

    /// Closes a copy for writers. Whoever is inside finishes first: then it must be tried again.
    pub(super) fn close(&self, place: &Place) -> Result<(), Keep> {
        let seat = self.seat(place);
        let mut state = seat.state();
        state.closed = true;
        if state.entered > 0 { Err(Keep::InUse) } else { Ok(()) }
    }

    /// Opens a copy again that was not let go after all.
    pub(super) fn open(&self, place: &Place) {
        self.seat(place).state().closed = false;
    }

    /// Forgets a copy that is not there any more. Leases of it stay closed for ever.
    pub(super) fn forget(&self, place: &Place) {
        self.all().remove(place);
    }
}

/// Leave to write into a copy, until it is let go.
#[derive(Clone, Debug)]
pub struct Lease {
    seat: Arc<Seat>,
    place: Place,
}

impl Lease {
    /// The copy.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Begins a write: the copy stays where it is until the value drops. Hold it for one write and
    /// its acknowledgement, never longer.
    ///
    /// # Errors
    /// [`PlaneError::Closed`] if the copy is being, or was, let go.
    pub fn enter(&self) -> Result<Entered, PlaneError> {
        let mut state = self.seat.state();
        if state.closed {
            return Err(PlaneError::Closed(self.place.clone()));
        }
        state.entered += 1;
        Ok(Entered { seat: Arc::clone(&self.seat) })
    }
}

/// A write under way.
#[derive(Debug)]
#[must_use = "the copy may be let go once this drops"]
pub struct Entered {
    seat: Arc<Seat>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = self.seat.state();
        state.entered = state.entered.saturating_sub(1);
    }
}

//! The store's library answers some damaged pages with an error and others with a panic. Neither
//! may take the node down: what is damaged is named, set aside and rebuilt.
//!
//! Guarantees: a panic inside the library ends the one call and closes the store for good (its
//! gate is sealed, so that nothing the library left half done reaches the disk). A panic in our
//! own code goes on upwards: it is a broken invariant, and stops the node. So each call of the
//! library is contained by itself, and never a function of ours around it. Assumes: panics unwind.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// True on a thread whose present panic is one of the store's library over a damaged page: it is
/// caught, and becomes a fault with its text. A panic hook that stops the process asks this first.
#[must_use]
pub fn panic_is_contained() -> bool {
    INSIDE.get() > 0
}

/// Runs a call of the library; the text of its panic if it panicked. The caller must not use what
/// the call worked on again but to drop it.
pub(crate) fn contained<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    INSIDE.set(INSIDE.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(act));
    INSIDE.set(INSIDE.get() - 1);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        text.unwrap_or("a page makes no sense").to_owned()
    })
}

/// A value of the library whose drop is contained as well: after a panic its locks are poisoned,
/// and dropping it may panic again.
#[derive(Debug)]
pub(crate) struct Contained<T>(Option<T>);

const TAKEN: &str = "there until it is dropped or taken, and either ends the wrapper";

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect(TAKEN)
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            // The fault that led here was already told; a second one adds nothing.
            contained(|| drop(value)).ok();
        }
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(TAKEN)
    }
}

impl<T> DerefMut for Contained<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(TAKEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A value of the library after a panic: dropping it panics as well.
    struct Torn<'a>(&'a Mutex<Vec<bool>>);

    impl Drop for Torn<'_> {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(panic_is_contained());
            panic!("a poisoned lock");
        }
    }

    #[test]
    fn a_panic_becomes_its_text_and_is_known_as_contained_while_it_lasts() {
        assert_eq!(contained(|| 7), Ok(7));
        let text = contained::<u8>(|| panic!("page {} is none", 9));
        assert_eq!(text, Err("page 9 is none".to_owned()));
        assert!(contained(panic_is_contained).unwrap());
        assert!(!panic_is_contained(), "not any more");
    }

    #[test]
    fn dropping_what_a_panic_left_behind_panics_nobody() {
        let seen = Mutex::new(Vec::new());
        drop(Contained::new(Torn(&seen)));
        let both = contained(|| {
            let _torn = Contained::new(Torn(&seen));
            panic!("the first");
        });
        assert_eq!(both, Err::<(), _>("the first".to_owned()));
        assert_eq!(seen.into_inner().unwrap(), [true, true]);
    }
}

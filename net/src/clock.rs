//! The clock and the randomness of the real world. Nothing else in the workspace reads either.

use holdfast_consensus::Micros;
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds of `CLOCK_BOOTTIME`: never goes back and counts suspend, so that a paused machine
/// cannot believe in an old lease or an old contact.
#[must_use]
pub fn now() -> Micros {
    let t = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1_000
}

/// Milliseconds since 1970 by the wall clock: only ever stamped into commands for people to read,
/// never compared.
#[must_use]
pub fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Fills `into` with random bytes from the system.
///
/// # Errors
/// What the system says.
pub fn fill_random(into: &mut [u8]) -> std::io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        done += rustix::rand::getrandom(&mut into[done..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

/// 64 random bits from the system.
///
/// # Errors
/// What the system says.
pub fn random_u64() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

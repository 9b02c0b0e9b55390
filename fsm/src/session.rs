//! Client sessions: exactly-once commands, and their expiry by log time (R26).
//!
//! A session answers a retry of its last command with the first answer and executes nothing. One
//! that is unknown, closed or expired answers [`Answer::SessionExpired`] and executes nothing
//! either: executing "just this once" is how a retry is applied twice. Time is log time, which no
//! wall clock can push ahead; expiry is decided by the entries alone, on every replica alike.

use crate::answer::Answer;
use crate::command::SessionRef;
use crate::records::{self, Session, TableId};
use crate::rows::Rows;
use crate::rules::Rule;
use bytes::Bytes;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::{Entry, Micros};

/// A session expires when it was not used for this long, in microseconds of log time (24 hours).
pub const SESSION_TTL: Micros = 24 * 3_600_000_000;
/// Most sessions at a time. Registering one more drops the longest unused sixteenth.
pub const SESSIONS_MAX: u64 = 16_384;
/// Expired rows are removed when log time passes a multiple of this, in microseconds (one hour):
/// a function of log times alone, so that no replica needs a timer or a memory of the last sweep.
const SWEEP_EVERY: Micros = 3_600_000_000;

/// What becomes of a command that names a session.
pub(crate) enum Admission {
    /// It is answered and must not be executed.
    Answered(Bytes),
    /// It is new: execute and record it.
    Execute(Session),
}

fn expired(session: &Session, now: Micros) -> bool {
    now.saturating_sub(session.used) > SESSION_TTL
}

/// Decides whether a command of a session is executed. Keeps: no command is executed twice.
pub(crate) fn admit(
    rows: &mut Rows<'_>,
    by: SessionRef,
    now: Micros,
) -> Result<Admission, StoreFault> {
    let answered = |answer: Answer| Ok(Admission::Answered(answer.encode()));
    if by.sequence == 0 {
        return answered(Answer::Invalid(Rule::Sequence));
    }
    let key = records::number_key(TableId::Sessions, by.client);
    let Some(mut session) = rows.get::<Session>(&key)? else {
        return answered(Answer::SessionExpired);
    };
    if expired(&session, now) {
        rows.remove::<Session>(&key)?;
        return answered(Answer::SessionExpired);
    }
    if by.sequence > session.sequence {
        return Ok(Admission::Execute(session));
    }
    let (last, answer) = (session.sequence, session.answer.clone());
    session.used = now;
    rows.put(&key, &session)?;
    if by.sequence < last {
        return answered(Answer::StaleSequence { last });
    }
    Ok(Admission::Answered(answer))
}

/// Keeps the answer of an executed command for its retries, unless the command closed the session
/// itself.
pub(crate) fn record(
    rows: &mut Rows<'_>,
    mut session: Session,
    by: SessionRef,
    entry: &Entry,
    answer: Bytes,
) -> Result<(), StoreFault> {
    let key = records::number_key(TableId::Sessions, by.client);
    if rows.get::<Session>(&key)?.is_none() {
        return Ok(());
    }
    session.sequence = by.sequence;
    session.index = entry.id.index.0;
    session.used = entry.time;
    session.answer = answer;
    rows.put(&key, &session)
}

/// Registers a session under the index of its entry, which no other session can have.
pub(crate) fn register(rows: &mut Rows<'_>, entry: &Entry) -> Result<Answer, StoreFault> {
    if rows.count(TableId::Sessions) >= SESSIONS_MAX {
        drop_longest_unused(rows)?;
    }
    let client = entry.id.index.0;
    let session = Session { sequence: 0, index: client, used: entry.time, answer: Bytes::new() };
    rows.put(&records::number_key(TableId::Sessions, client), &session)?;
    Ok(Answer::SessionRegistered { client })
}

/// Closes a session.
pub(crate) fn close(rows: &mut Rows<'_>, client: u64) -> Result<Answer, StoreFault> {
    let existed = rows.remove::<Session>(&records::number_key(TableId::Sessions, client))?;
    Ok(if existed { Answer::SessionClosed } else { Answer::NotFound })
}

/// Removes expired sessions when log time passes a full hour.
pub(crate) fn sweep(rows: &mut Rows<'_>, before: Micros, now: Micros) -> Result<(), StoreFault> {
    if before / SWEEP_EVERY == now / SWEEP_EVERY || rows.count(TableId::Sessions) == 0 {
        return Ok(());
    }
    let mut gone = Vec::new();
    rows.each::<Session>(|key, session| {
        if expired(&session, now) {
            gone.push(key.to_vec());
        }
    })?;
    for key in gone {
        rows.remove::<Session>(&key)?;
    }
    Ok(())
}

/// Removes the sixteenth of the sessions that was unused for longest (ties by number). A whole
/// sixteenth, so that the scan is paid once for many registrations.
fn drop_longest_unused(rows: &mut Rows<'_>) -> Result<(), StoreFault> {
    let mut all = Vec::new();
    rows.each::<Session>(|key, session| all.push((session.used, key.to_vec())))?;
    all.sort_unstable();
    let drop = (all.len() / 16).max(1);
    for (_, key) in all.into_iter().take(drop) {
        rows.remove::<Session>(&key)?;
    }
    Ok(())
}

//! The part of the suite for [`LogStore`] that damages durable entries (R15). Left out where the
//! factory cannot damage anything.

use super::log_store::{batch, commands, founded, hard, make_spares, persist, read_all};
use super::samples::label;
use super::{LogFactory, Verdict, ensure, ensure_eq, named, said};
use crate::damage::Hole;
use crate::fault::LogFault;
use crate::traits::{LogReader, LogStore};
use crate::types::{Body, Entry, Index, LogId, Recovered};

/// Runs every case on damage.
pub(super) fn log_damage<F: LogFactory>(factory: &mut F) -> Verdict {
    for kept in [true, false] {
        let name = if kept { "known" } else { "unknown" };
        named(&format!("a hole, {name}"), hole(factory, kept))?;
        named(&format!("repair, {name}"), repair(factory, kept))?;
        named(&format!("holes that are closed, {name}"), closed(factory, kept))?;
    }
    Ok(())
}

/// A log of entries 1..=9 with damage at 5; `None` if the factory cannot damage anything.
fn damaged<F: LogFactory>(
    factory: &mut F,
    kept: bool,
) -> Result<Option<(Recovered, F::Log)>, String> {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    let rest = batch(2, None, [commands(1, 2, 4), commands(2, 5, 9)].concat(), Some(hard(2, 1)));
    persist(&mut log, &[founded(1), rest])?;
    // What follows makes everything above certainly durable in the eyes of a later start.
    persist(&mut log, &[batch(3, None, vec![], Some(hard(3, 0)))])?;
    let before = log.recovered();
    let Some(mut log) = factory.damage_entry(log, Index(5), kept)? else { return Ok(None) };
    make_spares(&mut log)?;
    Ok(Some((before, log)))
}

fn original(index: u64) -> Entry {
    commands(2, index, index).remove(0)
}

fn expected_hole(kept: bool) -> Result<Hole, String> {
    let identity = said("identity", original(5).identity())?;
    Ok(Hole { index: Index(5), known: kept.then_some(identity) })
}

fn is_damaged_at(result: Result<crate::Entries, LogFault>, index: u64) -> bool {
    matches!(result, Err(LogFault::Damaged { first, last, .. })
        if first == Index(index) && last == Index(index))
}

fn hole<F: LogFactory>(factory: &mut F, kept: bool) -> Verdict {
    let Some((before, mut log)) = damaged(factory, kept)? else { return Ok(()) };
    for round in ["at once", "at the next open"] {
        let found = log.recovered();
        ensure_eq!(found.holes, vec![expected_hole(kept)?], "the hole is named {round}");
        ensure_eq!(found.held, None, "what is proved all the same is not held {round}");
        ensure_eq!(found.last, before.last, "the last entry is proved all the same {round}");
        ensure_eq!(found.hard, before.hard, "the hard state is proved all the same {round}");
        ensure_eq!(found.term_at(Index(6)), before.term_at(Index(6)), "terms are known {round}");
        let reader = log.reader();
        ensure!(
            is_damaged_at(reader.read(Index(5), Index(7), 1 << 20), 5),
            "a read that begins at the hole names it, and nothing else"
        );
        let piece = said("a read up to the hole", reader.read(Index(3), Index(9), 1 << 20))?;
        ensure_eq!(piece.last(), Some(LogId::new(1, 4)), "a read stops before the hole {round}");
        ensure_eq!(read_all(&log, 6, 9)?, commands(2, 6, 9), "the rest is readable {round}");
        ensure_eq!(
            reader.holes(Index(5), Index(5)),
            vec![expected_hole(kept)?],
            "a reader knows what is known of the hole"
        );
        log = factory.crash(log)?;
    }
    make_spares(&mut log)?;
    persist(&mut log, &[batch(7, None, commands(3, 10, 12), Some(hard(3, 2)))])?;
    log = factory.crash(log)?;
    let found = log.recovered();
    ensure_eq!(read_all(&log, 6, 12)?.len(), 7, "writing goes on behind a hole");
    ensure_eq!(found.holes, vec![expected_hole(kept)?], "writing behind a hole does not hide it");
    ensure_eq!(found.hard, hard(3, 2), "a hard state is durable behind a hole");
    Ok(())
}

fn repair<F: LogFactory>(factory: &mut F, kept: bool) -> Verdict {
    let Some((_, mut log)) = damaged(factory, kept)? else { return Ok(()) };
    let forged = Entry { id: LogId::new(3, 5), ..original(5) };
    let refused = log.repair(&[forged]);
    ensure!(
        matches!(refused, Err(LogFault::Refused(_))),
        "an entry of a term that cannot stand there is refused: {refused:?}"
    );
    if kept {
        let other = Entry { body: Body::Blank, ..original(5) };
        let refused = log.repair(&[other]);
        ensure!(
            matches!(refused, Err(LogFault::Refused(_))),
            "another entry than the damaged one is refused: {refused:?}"
        );
    }
    ensure_eq!(log.recovered().holes.len(), 1, "a refused repair changes nothing");
    let other = Entry { body: Body::Blank, ..original(6) };
    let filled = said("repair", log.repair(&[original(4 + 3), other, original(5)]))?;
    let whole = vec![Index(5), Index(7)];
    ensure_eq!(filled, whole, "the hole is filled, what stands there is told, another is skipped");
    make_spares(&mut log)?;
    for round in ["at once", "at the next open"] {
        let found = log.recovered();
        ensure_eq!(found.holes, vec![], "no hole is left {round}");
        ensure_eq!(found.terms, vec![LogId::new(1, 1), LogId::new(2, 5)], "terms, {round}");
        let want = [commands(1, 2, 4), commands(2, 5, 9)].concat();
        ensure_eq!(read_all(&log, 2, 9)?, want, "everything is readable {round}");
        log = factory.crash(log)?;
    }
    make_spares(&mut log)?;
    let again = said("repair without a hole", log.repair(&[original(5)]))?;
    ensure_eq!(again, vec![Index(5)], "what stands there already is whole");
    persist(&mut log, &[batch(9, None, commands(3, 10, 12), None)])?;
    log = factory.crash(log)?;
    ensure_eq!(read_all(&log, 10, 12)?, commands(3, 10, 12), "writing goes on behind a repair");
    Ok(())
}

fn closed<F: LogFactory>(factory: &mut F, kept: bool) -> Verdict {
    let Some((_, mut log)) = damaged(factory, kept)? else { return Ok(()) };
    persist(&mut log, &[batch(7, Some(5), commands(3, 5, 6), None)])?;
    log = factory.crash(log)?;
    ensure_eq!(log.recovered().holes, vec![], "a truncation closes what it cuts");
    ensure_eq!(read_all(&log, 5, 6)?, commands(3, 5, 6), "the replacement is readable");
    let Some((before, mut log)) = damaged(factory, kept)? else { return Ok(()) };
    let last = said("reset", log.reset(&label(LogId::new(2, 5))))?;
    ensure_eq!(last, before.last, "a base at the hole keeps the suffix behind it");
    make_spares(&mut log)?;
    log = factory.crash(log)?;
    ensure_eq!(log.recovered().holes, vec![], "a base closes what it covers");
    ensure_eq!(read_all(&log, 6, 9)?, commands(2, 6, 9), "the suffix is readable");
    Ok(())
}

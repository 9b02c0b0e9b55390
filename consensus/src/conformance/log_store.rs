//! The suite for [`LogStore`] and its reader and spares.

use super::log_damage;
use super::samples::{command, entry, label, membership, run, time_at};
use super::{LogFactory, Verdict, ensure, ensure_eq, named, said};
use crate::entries::Entries;
use crate::fault::LogFault;
use crate::io::Persist;
use crate::traits::{LogReader, LogStore, SpareWork};
use crate::types::{Body, Entry, HardState, Index, LogId, MemberId, Recovered, Seq, Term};

/// Runs every case for a log.
///
/// # Errors
/// The first broken sentence of the contract.
pub fn log_store<F: LogFactory>(factory: &mut F) -> Verdict {
    named("fresh log", fresh(factory))?;
    named("persist and recover", persist_and_recover(factory))?;
    named("order within a batch", order_within_a_batch(factory))?;
    named("truncation", truncation(factory))?;
    named("reader", reader(factory))?;
    named("watermark", watermark(factory))?;
    named("spares", spares(factory))?;
    named("compaction", compaction(factory))?;
    named("reset to an empty log", reset_empty(factory))?;
    named("reset with a matching suffix", reset_with_suffix(factory))?;
    named("reset over a conflict", reset_over_conflict(factory))?;
    named("reopen", reopen(factory))?;
    named("failed persist", failed_persist(factory))?;
    log_damage::log_damage(factory)
}

pub(super) fn hard(term: u64, vote: u64) -> HardState {
    HardState { term: Term(term), voted_for: (vote > 0).then_some(MemberId(vote)) }
}

pub(super) fn batch(
    seq: u64,
    cut: Option<u64>,
    entries: Vec<Entry>,
    hard: Option<HardState>,
) -> Persist {
    Persist { seq: Seq(seq), truncate_from: cut.map(Index), append: run(entries), hard }
}

pub(super) fn commands(term: u64, from: u64, to: u64) -> Vec<Entry> {
    (from..=to).map(|index| command(term, index, 100)).collect()
}

pub(super) fn founded(seq: u64) -> Persist {
    let first = entry(1, 1, Body::Membership(membership(3).into()));
    batch(seq, None, vec![first], Some(hard(1, 1)))
}

/// Prepares every spare that the log wants.
pub(super) fn make_spares<L: LogStore>(log: &mut L) -> Verdict {
    while let Some(mut spare) = log.spare() {
        while !said("a step of a spare", spare.step())? {}
        said("add_spare", log.add_spare(spare))?;
    }
    Ok(())
}

pub(super) fn persist<L: LogStore>(log: &mut L, batches: &[Persist]) -> Verdict {
    let through = said("persist", log.persist(batches))?;
    let last = batches.last().map_or(Seq(0), |b| b.seq);
    ensure_eq!(through, last, "persist returns the highest sequence number");
    make_spares(log)
}

pub(super) fn read_all<L: LogStore>(log: &L, from: u64, to: u64) -> Result<Vec<Entry>, String> {
    let (reader, mut from, mut found) = (log.reader(), Index(from), Vec::new());
    while from <= Index(to) {
        let piece = said("read", reader.read(from, Index(to), 1 << 20))?;
        let last = piece.last().ok_or("read returns at least one entry")?;
        found.extend(piece.iter().cloned());
        from = last.index.next();
    }
    Ok(found)
}

fn same_contents(before: &Recovered, after: &Recovered) -> Verdict {
    ensure_eq!(after.hard, before.hard, "the hard state survives");
    ensure_eq!(after.base, before.base, "the base survives");
    ensure_eq!(after.first, before.first, "the first index survives");
    ensure_eq!(after.last, before.last, "the last entry survives");
    ensure_eq!(after.time, before.time, "the log time survives");
    ensure_eq!(after.terms, before.terms, "the runs of terms survive");
    ensure_eq!(after.memberships, before.memberships, "the configurations survive");
    Ok(())
}

fn fresh<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let found = log.recovered();
    ensure_eq!(found.first, Index(1), "an empty log begins at 1");
    ensure_eq!(found.base, LogId::default(), "an empty log has base zero");
    ensure_eq!(found.last, LogId::default(), "an empty log ends at its base");
    ensure_eq!(found.hard, HardState::default(), "an empty log has no term and no vote");
    ensure!(found.terms.is_empty(), "an empty log has no runs of terms");
    ensure!(found.memberships.is_empty(), "an empty log has no configuration");
    ensure!(found.snapshot.is_none(), "an empty log has no snapshot");
    ensure_eq!(found.commit, Index(0), "an empty log knows no commit index");
    ensure!(found.boot > 0, "the first start has a boot number above zero");
    let log = factory.restart(log)?;
    let again = log.recovered().boot;
    ensure!(again > found.boot, "a restart raises the boot number");
    let log = factory.crash(log)?;
    ensure!(log.recovered().boot > again, "a start behind a crash raises the boot number");
    Ok(())
}

fn persist_and_recover<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    let joint = entry(3, 6, Body::Membership(membership(2).into()));
    let tail = vec![joint, entry(3, 7, Body::Blank)];
    persist(&mut log, &[founded(1), batch(2, None, commands(1, 2, 3), None)])?;
    persist(&mut log, &[batch(3, None, commands(2, 4, 5), Some(hard(2, 0)))])?;
    persist(&mut log, &[batch(5, None, tail.clone(), Some(hard(3, 2)))])?;
    log = factory.crash(log)?;
    let found = log.recovered();
    ensure_eq!(found.hard, hard(3, 2), "the last hard state is recovered");
    ensure_eq!((found.first, found.last), (Index(1), LogId::new(3, 7)), "the range is recovered");
    ensure_eq!(found.time, time_at(7), "the log time is that of the last entry");
    let runs = vec![LogId::new(1, 1), LogId::new(2, 4), LogId::new(3, 6)];
    ensure_eq!(found.terms, runs, "every run of terms is recovered by its first entry");
    let configurations = vec![(Index(1), membership(3)), (Index(6), membership(2))];
    ensure_eq!(found.memberships, configurations, "every configuration is recovered, oldest first");
    ensure_eq!(read_all(&log, 6, 7)?, tail, "entries come back as they were written");
    ensure_eq!(read_all(&log, 4, 5)?, commands(2, 4, 5), "entries come back as they were written");
    // A batch with a hard state alone counts like any other.
    persist(&mut log, &[batch(6, None, vec![], Some(hard(4, 3)))])?;
    log = factory.restart(log)?;
    ensure_eq!(log.recovered().hard, hard(4, 3), "a hard state without entries is durable");
    same_contents(&Recovered { hard: hard(4, 3), ..found }, &log.recovered())
}

fn order_within_a_batch<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    // One call: the second batch cuts what the first one appended, the third follows it.
    let batches = [
        batch(1, None, commands(1, 1, 5), Some(hard(1, 1))),
        batch(2, Some(3), commands(2, 3, 4), Some(hard(2, 2))),
        batch(3, None, commands(2, 5, 6), None),
    ];
    persist(&mut log, &batches)?;
    let want = [commands(1, 1, 2), commands(2, 3, 6)].concat();
    ensure_eq!(read_all(&log, 1, 6)?, want, "truncate, append, hard state, batch after batch");
    let log = factory.crash(log)?;
    ensure_eq!(read_all(&log, 1, 6)?, want, "the same order holds in recovery");
    ensure_eq!(log.recovered().hard, hard(2, 2), "the newest hard state stands");
    Ok(())
}

fn truncation<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    let change = entry(2, 5, Body::Membership(membership(2).into()));
    persist(&mut log, &[founded(1), batch(2, None, commands(1, 2, 4), None)])?;
    persist(&mut log, &[batch(3, None, vec![change], Some(hard(2, 0)))])?;
    persist(&mut log, &[batch(4, Some(4), vec![], Some(hard(3, 0)))])?;
    let check = |log: &F::Log| {
        let found = log.recovered();
        ensure_eq!(found.last, LogId::new(1, 3), "a truncation cuts the end");
        ensure_eq!(found.terms, [LogId::new(1, 1)], "cut runs of terms are gone");
        ensure_eq!(found.memberships, [(Index(1), membership(3))], "cut configurations are gone");
        ensure_eq!(found.time, time_at(3), "the log time is that of the entry that is last now");
        ensure!(log.reader().read(Index(4), Index(4), 1 << 20).is_err(), "cut entries are gone");
        Ok(())
    };
    log = factory.crash(log)?;
    check(&log)?;
    log = factory.restart(log)?;
    check(&log)?;
    persist(&mut log, &[batch(5, None, commands(3, 4, 6), None)])?;
    log = factory.crash(log)?;
    ensure_eq!(read_all(&log, 4, 6)?, commands(3, 4, 6), "what follows a truncation stands");
    Ok(())
}

fn reader<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    let reader = log.reader();
    let none = reader.read(Index(1), Index(1), 1 << 20);
    ensure!(matches!(none, Err(LogFault::Refused(_))), "entries that are not durable are refused");
    persist(&mut log, &[batch(1, None, commands(1, 1, 20), Some(hard(1, 1)))])?;
    let piece = said("an older reader", reader.read(Index(3), Index(9), 1 << 20))?;
    ensure_eq!(
        piece,
        run(commands(1, 3, 9)),
        "a reader sees what became durable after it was made"
    );
    let weight = run(commands(1, 1, 1)).weight();
    let piece = said("read", reader.read(Index(3), Index(9), 2 * weight))?;
    ensure_eq!(piece, run(commands(1, 3, 4)), "a read stops at the weight that was asked for");
    let piece = said("read", reader.read(Index(3), Index(9), 1))?;
    ensure_eq!(piece, run(commands(1, 3, 3)), "a read returns at least one entry");
    let beyond = reader.read(Index(20), Index(21), 1 << 20);
    ensure!(matches!(beyond, Err(LogFault::Refused(_))), "a read beyond the end is refused");
    persist(&mut log, &[batch(2, Some(10), commands(2, 10, 12), Some(hard(2, 1)))])?;
    let piece = said("read", reader.read(Index(9), Index(12), 1 << 20))?;
    let want: Entries = run([commands(1, 9, 9), commands(2, 10, 12)].concat());
    ensure_eq!(piece, want, "a reader follows a truncation");
    let gone = reader.read(Index(13), Index(13), 1 << 20);
    ensure!(matches!(gone, Err(LogFault::Refused(_))), "a cut entry is not readable");
    Ok(())
}

fn watermark<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    persist(&mut log, &[batch(1, None, commands(1, 1, 8), Some(hard(1, 1)))])?;
    said("watermark", log.watermark(Index(5)))?;
    persist(&mut log, &[batch(2, None, commands(1, 9, 9), None)])?;
    log = factory.crash(log)?;
    ensure_eq!(log.recovered().commit, Index(5), "a watermark is durable with the next batch");
    said("watermark", log.watermark(Index(8)))?;
    said("second watermark", log.watermark(Index(8)))?;
    log = factory.crash(log)?;
    ensure_eq!(log.recovered().commit, Index(8), "a second watermark makes the first one durable");
    ensure_eq!(log.recovered().last, LogId::new(1, 9), "a watermark changes no entry");
    Ok(())
}

fn spares<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    if let Some(mut spare) = log.spare() {
        ensure!(log.spare().is_none(), "a spare that is being made is not wanted again");
        let mut steps = 0;
        while !said("a step of a spare", spare.step())? {
            steps += 1;
            ensure!(steps < 1_000_000, "a spare is complete after a bounded number of steps");
        }
        said("add_spare", log.add_spare(spare))?;
    }
    make_spares(&mut log)?;
    ensure!(!log.low(), "a log with a spare is not low");
    Ok(())
}

/// A log of some hundred entries of 4 KiB, written so that segments roll.
fn long<F: LogFactory>(factory: &mut F) -> Result<F::Log, String> {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    persist(&mut log, &[founded(1)])?;
    for step in 0..40 {
        let from = 2 + step * 5;
        let entries = (from..from + 5).map(|i| command(1 + i / 50, i, 4096)).collect();
        persist(&mut log, &[batch(2 + step, None, entries, Some(hard(1 + (from + 4) / 50, 0)))])?;
    }
    Ok(log)
}

fn compaction<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = long(factory)?;
    let before = log.recovered();
    let first = said("compact", log.compact(Index(0)))?;
    ensure_eq!(first, Index(1), "a compaction through nothing gives up nothing");
    let reader = log.reader();
    let first = said("compact", log.compact(Index(150)))?;
    ensure!(first <= Index(151), "a compaction never passes its bound: first is now {first}");
    let found = log.recovered();
    ensure_eq!(found.first, first, "recovered() says what compact() returned");
    ensure_eq!(found.last, before.last, "a compaction leaves the end alone");
    ensure_eq!(found.base.index, first.prev(), "the base is the entry before the first");
    if first > Index(2) {
        ensure_eq!(found.base.term, Term(1 + first.prev().0 / 50), "the base has its entry's term");
        let configurations = vec![(Index(1), membership(3))];
        ensure_eq!(found.memberships, configurations, "the configuration in force is kept");
        let gone = reader.read(first.prev(), first, 1 << 20);
        ensure_eq!(
            gone,
            Err(LogFault::Compacted { first }),
            "compacted entries are reported as such"
        );
    }
    let kept = read_all(&log, first.0, before.last.index.0)?;
    ensure_eq!(kept.first().map(|e| e.id.index), Some(first), "what is held is readable");
    ensure_eq!(
        found.terms.first().map(|run| run.index),
        Some(first),
        "the first run begins at first"
    );
    let log = factory.crash(log)?;
    same_contents(&found, &log.recovered())
}

fn reset_empty<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    persist(&mut log, &[founded(1), batch(2, None, commands(1, 2, 6), Some(hard(4, 2)))])?;
    let meta = label(LogId::new(3, 500));
    let last = said("reset", log.reset(&meta))?;
    ensure_eq!(last, meta.last, "a log without the entry starts empty behind the snapshot");
    make_spares(&mut log)?;
    let check = |log: &F::Log| {
        let found = log.recovered();
        ensure_eq!(found.base, meta.last, "the base is where the snapshot ends");
        ensure_eq!(found.first, Index(501), "the log begins behind the snapshot");
        ensure_eq!(found.last, meta.last, "the log is empty");
        ensure_eq!(found.hard, hard(4, 2), "a reset keeps term and vote");
        ensure_eq!(found.time, meta.time, "the log time is the snapshot's");
        let configurations = vec![(meta.membership_index, meta.membership.clone())];
        ensure_eq!(found.memberships, configurations, "the configuration is the snapshot's");
        let gone = log.reader().read(Index(3), Index(4), 1 << 20);
        ensure!(matches!(gone, Err(LogFault::Compacted { .. })), "older entries are gone");
        Ok(())
    };
    check(&log)?;
    log = factory.crash(log)?;
    check(&log)?;
    ensure_eq!(said("a repeated reset", log.reset(&meta))?, meta.last, "a reset may be redone");
    check(&log)?;
    persist(&mut log, &[batch(3, None, commands(4, 501, 503), None)])?;
    log = factory.crash(log)?;
    ensure_eq!(read_all(&log, 501, 503)?, commands(4, 501, 503), "entries follow the base");
    Ok(())
}

fn reset_with_suffix<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    persist(&mut log, &[founded(1), batch(2, None, commands(1, 2, 20), None)])?;
    let meta = label(LogId::new(1, 12));
    let last = said("reset", log.reset(&meta))?;
    ensure_eq!(last, LogId::new(1, 20), "the suffix behind a matching entry is kept");
    make_spares(&mut log)?;
    log = factory.crash(log)?;
    let found = log.recovered();
    ensure_eq!((found.base, found.last), (meta.last, last), "base and suffix are durable");
    ensure_eq!(read_all(&log, 13, 20)?, commands(1, 13, 20), "the suffix is readable");
    ensure_eq!(found.time, time_at(20), "the log time is that of the last entry");
    ensure_eq!(said("a repeated reset", log.reset(&meta))?, last, "a reset may be redone");
    make_spares(&mut log)?;
    persist(&mut log, &[batch(3, None, commands(1, 21, 22), None)])?;
    ensure_eq!(read_all(&log, 13, 22)?, commands(1, 13, 22), "the suffix can be appended to");
    Ok(())
}

fn reset_over_conflict<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    persist(&mut log, &[founded(1), batch(2, None, commands(1, 2, 20), Some(hard(2, 0)))])?;
    let meta = label(LogId::new(2, 12));
    let last = said("reset", log.reset(&meta))?;
    ensure_eq!(last, meta.last, "a suffix behind a conflicting entry is cut");
    make_spares(&mut log)?;
    log = factory.crash(log)?;
    ensure_eq!(log.recovered().last, meta.last, "the cut is durable");
    persist(&mut log, &[batch(3, None, commands(2, 13, 14), None)])?;
    log = factory.crash(log)?;
    ensure_eq!(read_all(&log, 13, 14)?, commands(2, 13, 14), "nothing of the old suffix returns");
    ensure_eq!(log.recovered().last, LogId::new(2, 14), "nothing of the old suffix returns");
    Ok(())
}

fn reopen<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    persist(&mut log, &[founded(1), batch(2, None, commands(1, 2, 9), Some(hard(2, 1)))])?;
    let (before, reader) = (log.recovered(), log.reader());
    let after = said("reopen", log.reopen())?;
    same_contents(&before, &after)?;
    make_spares(&mut log)?;
    let piece = said("a reader older than a reopen", reader.read(Index(2), Index(9), 1 << 20))?;
    ensure_eq!(piece, run(commands(1, 2, 9)), "readers outlive a reopen");
    persist(&mut log, &[batch(7, None, commands(2, 10, 11), None)])?;
    let log = factory.crash(log)?;
    ensure_eq!(
        read_all(&log, 2, 11)?,
        [commands(1, 2, 9), commands(2, 10, 11)].concat(),
        "writing goes on after a reopen"
    );
    Ok(())
}

fn failed_persist<F: LogFactory>(factory: &mut F) -> Verdict {
    let mut log = factory.create()?;
    make_spares(&mut log)?;
    persist(&mut log, &[founded(1), batch(2, None, commands(1, 2, 9), Some(hard(2, 1)))])?;
    if !factory.fail_next_persist(&log) {
        return Ok(());
    }
    let failed = batch(3, None, commands(2, 10, 11), Some(hard(3, 3)));
    ensure!(log.persist(std::slice::from_ref(&failed)).is_err(), "a persist that fails says so");
    let next = batch(4, None, commands(2, 12, 12), None);
    let refused = log.persist(&[next]);
    ensure!(refused.is_err(), "a poisoned log accepts nothing, whatever the disk says now");
    let found = said("reopen", log.reopen())?;
    ensure!(found.last.index >= Index(9), "what was durable before a failure stays");
    ensure!(found.last.index <= Index(11), "what was never written does not appear");
    ensure!(
        [hard(2, 1), hard(3, 3)].contains(&found.hard),
        "the hard state is an old or a new one"
    );
    make_spares(&mut log)?;
    let again = batch(5, Some(10), commands(3, 10, 12), Some(hard(3, 3)));
    persist(&mut log, &[again])?;
    let log = factory.crash(log)?;
    ensure_eq!(read_all(&log, 10, 12)?, commands(3, 10, 12), "writing goes on after a reopen");
    Ok(())
}

//! The suite for [`StateMachine`], its images and restores.

use super::samples::{entry, history, membership, run, term_in_history, time_at};
use super::{MachineFactory, Verdict, ensure, ensure_eq, named, said};
use crate::entries::Entries;
use crate::fault::StoreFault;
use crate::traits::{Applied, SNAPSHOT_CHUNK_MAX, SnapshotSink, SnapshotSource, StateMachine};
use crate::types::{Body, Index, LogId, SnapshotMeta};
use bytes::Bytes;

/// Runs every case for a state machine.
///
/// # Errors
/// The first broken sentence of the contract.
pub fn state_machine<F: MachineFactory>(factory: &mut F) -> Verdict {
    named("fresh machine", fresh(factory))?;
    named("replies", replies(factory))?;
    named("replay", replay(factory))?;
    named("gap", gap(factory))?;
    named("refusals", refusals(factory))?;
    named("unknown type", unknown_type(factory))?;
    named("determinism", determinism(factory))?;
    named("checkpoint", checkpoint(factory))?;
    named("pin", pin(factory))?;
    named("install", install(factory))?;
    named("install of an older snapshot", install_older(factory))?;
    named("install of damaged content", install_damaged(factory))
}

type Replies = Vec<(Index, Bytes)>;

fn entries<F: MachineFactory>(factory: &F, last: u64) -> Entries {
    history(&|n| factory.command(n), last)
}

fn feed<M: StateMachine>(machine: &mut M, all: &Entries, by: usize) -> Result<Replies, String> {
    let (mut replies, mut left) = (Vec::new(), all.clone());
    while let Some(last) = left.take(by).last() {
        said("apply", machine.apply(&left.take(by), &mut replies))?;
        left = if left.len() > by { left.starting_at(last.index.next()) } else { Entries::empty() };
    }
    Ok(replies)
}

fn at<M: StateMachine>(machine: &M, index: u64) -> Verdict {
    let want = LogId { term: term_in_history(index), index: Index(index) };
    ensure_eq!(machine.applied().last, want, "applied() names the last entry");
    Ok(())
}

fn fresh<F: MachineFactory>(factory: &mut F) -> Verdict {
    let applied = factory.create()?.applied();
    ensure_eq!(applied.last, LogId::default(), "an empty machine has applied nothing");
    ensure_eq!(applied.durable, LogId::default(), "an empty machine holds nothing durably");
    ensure_eq!(applied.skipped, 0, "an empty machine has skipped nothing");
    Ok(())
}

fn replies<F: MachineFactory>(factory: &mut F) -> Verdict {
    let mut machine = factory.create()?;
    let blank = entry(1, 3, Body::Blank);
    let all = run(vec![
        entry(1, 1, Body::Membership(membership(3).into())),
        entry(1, 2, Body::Command(factory.command(2))),
        blank,
        entry(1, 4, Body::Command(factory.command(4))),
    ]);
    let mut replies = Vec::new();
    let applied = said("apply", machine.apply(&all, &mut replies))?;
    let indexes: Vec<_> = replies.iter().map(|(index, _)| *index).collect();
    ensure_eq!(indexes, [Index(2), Index(4)], "each command is answered once, and nothing else");
    ensure_eq!(applied, machine.applied(), "apply returns what applied() says");
    ensure_eq!(applied.last, LogId::new(1, 4), "configurations and blanks move the index");
    Ok(())
}

fn replay<F: MachineFactory>(factory: &mut F) -> Verdict {
    let mut machine = factory.create()?;
    let all = entries(factory, 40);
    feed(&mut machine, &all.take(20), 20)?;
    let before = machine.applied();
    let again = feed(&mut machine, &all.take(20), 7)?;
    let after = machine.applied();
    ensure!(again.is_empty(), "an entry that is already applied is not answered again");
    ensure_eq!(after.skipped, before.skipped + 20, "skipped entries are counted");
    ensure_eq!((after.last, after.digest), (before.last, before.digest), "replay changes nothing");
    let replies = feed(&mut machine, &all, 40)?;
    ensure_eq!(
        replies.first().map(|r| r.0),
        Some(Index(21)),
        "an overlapping batch goes on behind"
    );
    at(&machine, 40)?;
    let mut twin = factory.create()?;
    feed(&mut twin, &all, 40)?;
    ensure_eq!(machine.applied().digest, twin.applied().digest, "replay applies nothing twice");
    Ok(())
}

fn gap<F: MachineFactory>(factory: &mut F) -> Verdict {
    let mut machine = factory.create()?;
    let all = entries(factory, 20);
    feed(&mut machine, &all.take(10), 10)?;
    let before = machine.applied();
    let refused = machine.apply(&all.starting_at(Index(12)), &mut Vec::new());
    ensure!(matches!(refused, Err(StoreFault::Untrusted(_))), "a gap is refused as untrusted");
    ensure_eq!(machine.applied().last, before.last, "a refused batch has no effect");
    Ok(())
}

fn refusals<F: MachineFactory>(factory: &mut F) -> Verdict {
    let mut machine = factory.create()?;
    feed(&mut machine, &entries(factory, 5), 5)?;
    let mut torn = factory.command(6).to_vec();
    torn.truncate(2);
    torn.extend([0xff; 5]);
    let more = run(vec![
        entry(1, 6, Body::Command(factory.refused())),
        entry(1, 7, Body::Command(torn.into())),
    ]);
    let mut replies = Vec::new();
    let applied =
        said("a refused command is a reply, no error", machine.apply(&more, &mut replies))?;
    ensure_eq!(applied.last, LogId::new(1, 7), "refused commands move the index");
    ensure_eq!(replies.len(), 2, "a refused and an undecodable command are answered");
    Ok(())
}

fn unknown_type<F: MachineFactory>(factory: &mut F) -> Verdict {
    let mut machine = factory.create()?;
    feed(&mut machine, &entries(factory, 5), 5)?;
    let before = machine.applied();
    let more = run(vec![
        entry(1, 6, Body::Command(factory.command(6))),
        entry(1, 7, Body::Command(factory.unknown())),
    ]);
    let refused = machine.apply(&more, &mut Vec::new());
    let Err(StoreFault::UnknownType { at, .. }) = refused else {
        return Err(format!("an unknown type stops the batch, but: {refused:?}"));
    };
    ensure_eq!(at, Index(7), "the fault names the entry");
    let after = machine.applied();
    let same = (after.last, after.digest) == (before.last, before.digest);
    ensure!(same, "nothing of a batch with an unknown type takes effect");
    Ok(())
}

fn determinism<F: MachineFactory>(factory: &mut F) -> Verdict {
    let all = entries(factory, 60);
    let mut digests = Vec::new();
    let mut answers = Vec::new();
    for by in [1, 7, 60] {
        let mut machine = factory.create()?;
        answers.push(feed(&mut machine, &all, by)?);
        digests.push(machine.applied().digest);
    }
    ensure!(digests.windows(2).all(|d| d[0] == d[1]), "batching does not show in the digest");
    ensure!(answers.windows(2).all(|a| a[0] == a[1]), "batching does not show in the replies");
    let mut machine = factory.create()?;
    feed(&mut machine, &all.take(59), 59)?;
    ensure!(machine.applied().digest != digests[0], "a change of the state shows in the digest");
    Ok(())
}

fn checkpoint<F: MachineFactory>(factory: &mut F) -> Verdict {
    let all = entries(factory, 60);
    let mut machine = factory.create()?;
    feed(&mut machine, &all.take(30), 30)?;
    let applied = said("checkpoint", machine.checkpoint())?;
    ensure_eq!(applied.durable, applied.last, "a checkpoint makes everything durable");
    let early = applied;
    feed(&mut machine, &all, 60)?;
    let full = machine.applied();
    ensure_eq!(full.durable, early.last, "an apply alone makes nothing durable");
    let again = |machine: &mut F::Machine, how: &str| {
        let found: Applied = machine.applied();
        ensure!(found.last >= early.last, "what was checkpointed survives {how}");
        ensure_eq!(found.durable, found.last, "what {how} leaves is durable");
        feed(machine, &all, 9)?;
        let (digest, last) = (machine.applied().digest, machine.applied().last);
        ensure_eq!((digest, last), (full.digest, full.last), "feeding again after {how} converges");
        Ok(())
    };
    said("reopen", machine.reopen())?;
    again(&mut machine, "a reopen")?;
    let mut machine = factory.crash(machine)?;
    again(&mut machine, "a crash")
}

fn drain<I: SnapshotSource>(mut image: I) -> Result<Vec<Bytes>, String> {
    let mut chunks = Vec::new();
    while let Some(chunk) = said("next_chunk", image.next_chunk())? {
        let fits = !chunk.is_empty() && chunk.len() <= SNAPSHOT_CHUNK_MAX;
        ensure!(fits, "a chunk of {} bytes is empty or too large", chunk.len());
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn pin<F: MachineFactory>(factory: &mut F) -> Verdict {
    let all = entries(factory, 60);
    let mut machine = factory.create()?;
    feed(&mut machine, &all.take(40), 40)?;
    let applied = machine.applied();
    let (meta, image) = said("pin", machine.pin())?;
    ensure_eq!(meta.last, applied.last, "the label names the last applied entry");
    ensure_eq!(meta.digest, applied.digest, "the label holds the digest at that entry");
    ensure_eq!(meta.time, time_at(40), "the label holds the log time of that entry");
    ensure_eq!(meta.membership, membership(3), "the label holds the configuration in force there");
    ensure_eq!(meta.membership_index, Index(1), "the label names the configuration's entry");
    ensure_eq!(meta.bytes, 0, "the length is not known before publication");
    feed(&mut machine, &all, 60)?;
    let content = drain(image)?.concat();

    let mut twin = factory.create()?;
    feed(&mut twin, &all.take(40), 3)?;
    let (label, image) = said("pin", twin.pin())?;
    ensure_eq!(label, meta, "equal states have equal labels");
    let same = drain(image)?.concat() == content;
    ensure!(same, "equal states have equal images, byte for byte, whatever is applied meanwhile");
    let (later, image) = said("pin", machine.pin())?;
    ensure_eq!(later.last.index, Index(60), "a second pin sees what was applied since");
    ensure!(drain(image)?.concat() != content, "different states have different images");
    Ok(())
}

/// A snapshot of a machine that has applied `last` entries.
fn snapshot<F: MachineFactory>(
    factory: &mut F,
    last: u64,
) -> Result<(SnapshotMeta, Vec<Bytes>), String> {
    let all = entries(factory, last);
    let mut machine = factory.create()?;
    feed(&mut machine, &all, 13)?;
    let (mut meta, image) = said("pin", machine.pin())?;
    let chunks = drain(image)?;
    meta.bytes = chunks.iter().map(|c| c.len() as u64).sum();
    Ok((meta, chunks))
}

fn restore<M: StateMachine>(
    machine: &mut M,
    meta: &SnapshotMeta,
    chunks: &[Bytes],
) -> Result<M::Restore, String> {
    let mut sink = said("restore", machine.restore(meta))?;
    for chunk in chunks {
        said("put_chunk", sink.put_chunk(sink.offset(), chunk))?;
    }
    Ok(sink)
}

fn install<F: MachineFactory>(factory: &mut F) -> Verdict {
    let all = entries(factory, 60);
    let (meta, chunks) = snapshot(factory, 40)?;
    let mut machine = factory.create()?;
    feed(&mut machine, &all.take(10), 10)?;
    let sink = restore(&mut machine, &meta, &chunks)?;
    at(&machine, 10)?;
    let applied = said("adopt", machine.adopt(sink))?;
    ensure_eq!(applied.last, meta.last, "an adopted state stands where its label says");
    ensure_eq!(applied.digest, meta.digest, "an adopted state has its label's digest");
    ensure_eq!(applied.durable, meta.last, "an adopted state is durable");
    let mut machine = factory.crash(machine)?;
    at(&machine, 40)?;
    let (label, image) = said("pin", machine.pin())?;
    ensure_eq!(label, SnapshotMeta { bytes: 0, ..meta }, "the label survives an install");
    ensure_eq!(drain(image)?.concat(), chunks.concat(), "the image survives an install");
    feed(&mut machine, &all, 60)?;
    let mut twin = factory.create()?;
    feed(&mut twin, &all, 60)?;
    ensure_eq!(
        machine.applied().digest,
        twin.applied().digest,
        "applying goes on behind an install"
    );
    Ok(())
}

fn install_older<F: MachineFactory>(factory: &mut F) -> Verdict {
    let (meta, chunks) = snapshot(factory, 20)?;
    let mut machine = factory.create()?;
    feed(&mut machine, &entries(factory, 40), 40)?;
    let before = machine.applied();
    let sink = restore(&mut machine, &meta, &chunks)?;
    let after = said("an older snapshot is no error", machine.adopt(sink))?;
    let same = (after.last, after.digest) == (before.last, before.digest);
    ensure!(same, "an older snapshot is ignored");
    Ok(())
}

fn install_damaged<F: MachineFactory>(factory: &mut F) -> Verdict {
    let (meta, chunks) = snapshot(factory, 40)?;
    let mut machine = factory.create()?;
    feed(&mut machine, &entries(factory, 10), 10)?;
    let before = machine.applied();
    let mut sink = said("restore", machine.restore(&meta))?;
    ensure!(sink.put_chunk(1, b"x").is_err(), "a chunk at the wrong offset is refused");
    drop(sink);
    let whole = chunks.concat();
    let mut short = whole.clone();
    short.truncate(whole.len() / 2);
    let wrong = SnapshotMeta { digest: meta.digest ^ 1, ..meta.clone() };
    for (what, label, content) in [("a short", &meta, short), ("a wrongly labelled", &wrong, whole)]
    {
        let mut sink = said("restore", machine.restore(label))?;
        // Either step may notice; both leave the live state alone.
        let piece = content.len().clamp(1, SNAPSHOT_CHUNK_MAX);
        let fed = content.chunks(piece).try_for_each(|c| sink.put_chunk(sink.offset(), c));
        let noticed = fed.is_err() || machine.adopt(sink).is_err();
        ensure!(noticed, "{what} content is refused");
        let after = machine.applied();
        let same = (after.last, after.digest) == (before.last, before.digest);
        ensure!(same, "{what} content leaves the live state alone");
    }
    let sink = restore(&mut machine, &meta, &chunks)?;
    said("a good snapshot behind a bad one", machine.adopt(sink))?;
    at(&machine, 40)
}

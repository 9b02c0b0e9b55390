//! The suite for [`SnapshotStore`], its writer and its reader.

use super::samples::label;
use super::{LogFactory, Verdict, ensure, ensure_eq, named, said};
use crate::traits::{LogStore, SnapshotSink, SnapshotSource, SnapshotStore};
use crate::types::{LogId, SnapshotMeta};

/// Runs every case for the snapshot files of a log.
///
/// # Errors
/// The first broken sentence of the contract.
pub fn snapshot_store<F: LogFactory>(factory: &mut F) -> Verdict {
    named("publish and read", publish_and_read(factory))?;
    named("resume", resume(factory))?;
    named("wrong offset", wrong_offset(factory))?;
    named("two are kept", two_are_kept(factory))?;
    named("unpublished", unpublished(factory))?;
    named("announced length", announced_length(factory))?;
    named("damage", damage(factory))
}

fn chunks(seed: u8) -> Vec<Vec<u8>> {
    (0..5_u8).map(|n| vec![seed.wrapping_add(n); 1000 + usize::from(n) * 37]).collect()
}

fn content(seed: u8) -> Vec<u8> {
    chunks(seed).concat()
}

fn fill<W: SnapshotSink>(writer: &mut W, seed: u8, limit: usize) -> Verdict {
    let mut at = 0;
    for chunk in chunks(seed).into_iter().take(limit) {
        if at >= writer.offset() {
            ensure_eq!(writer.offset(), at, "a writer resumes at a chunk boundary");
            said("put_chunk", writer.put_chunk(at, &chunk))?;
        }
        at += chunk.len() as u64;
    }
    ensure_eq!(writer.offset(), at, "offset() is where the next chunk goes");
    Ok(())
}

fn publish<S: SnapshotStore>(store: &S, last: LogId, seed: u8) -> Result<SnapshotMeta, String> {
    let mut writer = said("create", store.create(&label(last)))?;
    fill(&mut writer, seed, usize::MAX)?;
    said("publish", store.publish(writer))
}

fn read<S: SnapshotStore>(store: &S, meta: &SnapshotMeta, offset: u64) -> Result<Vec<u8>, String> {
    let mut reader = said("open", store.open(meta, offset))?;
    let mut found = Vec::new();
    while let Some(chunk) = said("next_chunk", reader.next_chunk())? {
        if chunk.is_empty() || chunk.len() > crate::traits::SNAPSHOT_CHUNK_MAX {
            return Err(format!("a chunk has {} bytes", chunk.len()));
        }
        found.extend_from_slice(&chunk);
    }
    Ok(found)
}

fn publish_and_read<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let store = log.snapshots();
    ensure_eq!(store.newest(), None, "there is no snapshot at first");
    let meta = publish(&store, LogId::new(2, 40), 1)?;
    let want = SnapshotMeta { bytes: content(1).len() as u64, ..label(LogId::new(2, 40)) };
    ensure_eq!(meta, want, "publish returns the label with its length");
    ensure_eq!(store.newest(), Some(meta.clone()), "what was published is the newest");
    ensure_eq!(read(&store, &meta, 0)?, content(1), "the content is read as it was written");
    let boundary = chunks(1)[0].len() as u64;
    let rest = chunks(1)[1..].concat();
    ensure_eq!(read(&store, &meta, boundary)?, rest, "reading can begin at a chunk boundary");
    let stranger = label(LogId::new(2, 41));
    ensure!(store.open(&stranger, 0).is_err(), "an unknown label is refused");
    let log = factory.crash(log)?;
    let store = log.snapshots();
    ensure_eq!(store.newest(), Some(meta.clone()), "a published snapshot survives a crash");
    ensure_eq!(log.recovered().snapshot, Some(meta.clone()), "recovery reports it");
    ensure_eq!(read(&store, &meta, 0)?, content(1), "its content survives a crash");
    Ok(())
}

fn resume<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let store = log.snapshots();
    let meta = label(LogId::new(1, 30));
    let mut writer = said("create", store.create(&meta))?;
    ensure_eq!(writer.offset(), 0, "a fresh snapshot begins at 0");
    fill(&mut writer, 5, 3)?;
    drop(writer);
    let mut writer = said("create", store.create(&meta))?;
    ensure!(writer.offset() > 0, "a partial file of an equal label is resumed");
    fill(&mut writer, 5, usize::MAX)?;
    let published = said("publish", store.publish(writer))?;
    ensure_eq!(read(&store, &published, 0)?, content(5), "a resumed snapshot is whole");

    let mut writer = said("create", store.create(&label(LogId::new(1, 50))))?;
    fill(&mut writer, 6, 2)?;
    drop(writer);
    let writer = said("create", store.create(&label(LogId::new(1, 51))))?;
    ensure_eq!(writer.offset(), 0, "a partial file of another label is not resumed");
    Ok(())
}

fn wrong_offset<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let store = log.snapshots();
    let mut writer = said("create", store.create(&label(LogId::new(1, 9))))?;
    fill(&mut writer, 9, 1)?;
    let at = writer.offset();
    ensure!(writer.put_chunk(at + 1, b"gap").is_err(), "a chunk behind a gap is refused");
    ensure!(writer.put_chunk(0, b"again").is_err(), "a chunk that is there already is refused");
    ensure_eq!(writer.offset(), at, "a refused chunk changes nothing");
    fill(&mut writer, 9, usize::MAX)?;
    let meta = said("publish", store.publish(writer))?;
    ensure_eq!(read(&store, &meta, 0)?, content(9), "a refused chunk leaves no trace");
    Ok(())
}

fn two_are_kept<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let store = log.snapshots();
    let first = publish(&store, LogId::new(1, 10), 1)?;
    let second = publish(&store, LogId::new(1, 20), 2)?;
    let reader = said("open", store.open(&first, 0))?;
    let third = publish(&store, LogId::new(2, 30), 3)?;
    drop(reader);
    ensure_eq!(store.newest(), Some(third.clone()), "the newest is the one that reaches furthest");
    ensure!(store.open(&first, 0).is_err(), "all but the newest two are removed");
    ensure_eq!(read(&store, &second, 0)?, content(2), "the newest two are kept");
    let log = factory.restart(log)?;
    ensure_eq!(log.snapshots().newest(), Some(third.clone()), "the newest is found at open");
    ensure_eq!(read(&log.snapshots(), &second, 0)?, content(2), "both are found at open");
    Ok(())
}

fn unpublished<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let store = log.snapshots();
    let meta = publish(&store, LogId::new(1, 10), 1)?;
    let mut writer = said("create", store.create(&label(LogId::new(1, 20))))?;
    fill(&mut writer, 2, usize::MAX)?;
    ensure_eq!(store.newest(), Some(meta.clone()), "a snapshot counts once it is published");
    drop(writer);
    let log = factory.crash(log)?;
    ensure_eq!(
        log.snapshots().newest(),
        Some(meta),
        "a partial file is never taken for a snapshot"
    );
    Ok(())
}

fn announced_length<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let store = log.snapshots();
    let whole = content(4).len() as u64;
    let meta = SnapshotMeta { bytes: whole, ..label(LogId::new(1, 10)) };
    let mut writer = said("create", store.create(&meta))?;
    fill(&mut writer, 4, 3)?;
    ensure!(store.publish(writer).is_err(), "a received snapshot that is too short is refused");
    ensure_eq!(store.newest(), None, "a refused snapshot is not published");
    let mut writer = said("create", store.create(&meta))?;
    fill(&mut writer, 4, usize::MAX)?;
    let published = said("publish", store.publish(writer))?;
    ensure_eq!(published, meta, "a received snapshot keeps its label");
    Ok(())
}

fn damage<F: LogFactory>(factory: &mut F) -> Verdict {
    let log = factory.create()?;
    let store = log.snapshots();
    let older = publish(&store, LogId::new(1, 10), 1)?;
    let newer = publish(&store, LogId::new(1, 20), 2)?;
    if !factory.damage_newest_snapshot(&log) {
        return Ok(());
    }
    let log = factory.restart(log)?;
    let store = log.snapshots();
    ensure_eq!(store.newest(), Some(older.clone()), "a damaged snapshot is not the newest");
    let opened = read(&store, &newer, 0);
    ensure!(opened.is_err(), "a damaged snapshot cannot be read to its end");
    ensure_eq!(read(&store, &older, 0)?, content(1), "the older one still serves");
    Ok(())
}

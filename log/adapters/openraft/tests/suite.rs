//! openraft's own storage suite on real files, and what it does not ask: that everything is there
//! after opening again, and after a power cut.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod machine;

use holdfast_consensus::MemberId;
use holdfast_log::mem_disk::LoseAll;
use holdfast_log::{Disk, LogOptions, MemDisk, Owner, RealDisk};
use holdfast_openraft::{HoldfastLog, OpenError};
use machine::Machine;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader, StorageError, Vote};
use std::io::Cursor;
use tempfile::TempDir;

openraft::declare_raft_types!(
    /// Commands are numbers.
    pub Types:
        D = u64,
        R = (),
        NodeId = u64,
        Node = (),
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = openraft::TokioRuntime,
);

const OPTIONS: LogOptions = LogOptions { segment_bytes: 64 << 10 };

fn open<D: Disk>(disk: &D) -> Result<HoldfastLog<Types, D>, OpenError> {
    let owner = Owner { member: MemberId(1), ..Owner::default() };
    HoldfastLog::open(disk.clone(), owner, OPTIONS)
}

/// As [`open`], once the last holder has let go of the directory: a thread that still prepares a spare
/// does so a moment after its log was dropped.
async fn reopen<D: Disk>(disk: &D) -> Result<HoldfastLog<Types, D>, OpenError> {
    for _ in 0..1000 {
        match open(disk) {
            Err(OpenError::Disk(why)) if why.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            opened => return opened,
        }
    }
    open(disk)
}

struct Builder;

impl StoreBuilder<Types, HoldfastLog<Types>, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, HoldfastLog<Types>, Machine), StorageError<u64>> {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::create(dir.path()).unwrap();
        Ok((dir, open(&disk).unwrap(), Machine::default()))
    }
}

#[test]
fn openraft_s_own_suite_passes() {
    Suite::test_all(Builder).unwrap();
}

fn id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, 3), index)
}

fn entry(term: u64, index: u64) -> Entry<Types> {
    Entry { log_id: id(term, index), payload: EntryPayload::Normal(term * 1000 + index) }
}

/// What openraft can ask of a log.
type Told = (Option<LogId<u64>>, Option<LogId<u64>>, Option<Vote<u64>>, Vec<(LogId<u64>, u64)>);

async fn told<D: Disk>(log: &mut HoldfastLog<Types, D>) -> Told {
    let state = log.get_log_state().await.unwrap();
    let vote = log.read_vote().await.unwrap();
    let entries = log.try_get_log_entries(..).await.unwrap().into_iter();
    let number = |entry: Entry<Types>| match entry.payload {
        EntryPayload::Normal(number) => (entry.log_id, number),
        other => panic!("{other:?}"),
    };
    (state.last_purged_log_id, state.last_log_id, vote, entries.map(number).collect())
}

/// Everything is there again after the power went away behind each step: the log in memory loses
/// whatever was not synced, and what it told before must be what it tells after.
#[tokio::test]
async fn every_acknowledged_step_survives_a_power_cut() {
    let mut disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    for step in 0..9 {
        match step {
            0 => log.save_vote(&Vote::new(1, 3)).await.unwrap(),
            1 => log.blocking_append((0..8).map(|at| entry(1, at))).await.unwrap(),
            2 => log.truncate(id(1, 5)).await.unwrap(),
            3 => log.save_vote(&Vote::new_committed(2, 1)).await.unwrap(),
            4 => log.blocking_append((5..9).map(|at| entry(2, at))).await.unwrap(),
            5 => log.purge(id(1, 3)).await.unwrap(),
            6 => log.purge(id(2, 8)).await.unwrap(),
            7 => log.purge(id(2, 30)).await.unwrap(),
            _ => log.blocking_append((31..34).map(|at| entry(2, at))).await.unwrap(),
        }
        let before = told(&mut log).await;
        drop(log);
        disk = disk.crash(&mut LoseAll);
        log = open(&disk).unwrap();
        assert_eq!(told(&mut log).await, before, "step {step}");
    }
    let (purged, last, vote, entries) = told(&mut log).await;
    assert_eq!((purged, last), (Some(id(2, 30)), Some(id(2, 33))));
    assert_eq!(vote, Some(Vote::new_committed(2, 1)));
    let want: Vec<_> = (31..34).map(|at| (id(2, at), 2000 + at)).collect();
    assert_eq!(entries, want);
}

#[tokio::test]
async fn the_committed_id_comes_back_as_far_as_it_was_synced() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    log.blocking_append((0..4).map(|at| entry(1, at))).await.unwrap();
    log.save_committed(Some(id(1, 2))).await.unwrap();
    assert_eq!(log.read_committed().await.unwrap(), Some(id(1, 2)));
    // The next sync takes it along.
    log.blocking_append([entry(1, 4)]).await.unwrap();
    drop(log);
    let mut log = open(&disk.crash(&mut LoseAll)).unwrap();
    assert_eq!(log.read_committed().await.unwrap(), Some(id(1, 2)));
}

#[tokio::test]
async fn a_long_log_crosses_segments_and_gives_purged_ones_up() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::create(dir.path()).unwrap();
    let mut log = open(&disk).unwrap();
    let segments = || {
        let names = disk.list("log").unwrap();
        names.iter().filter(|name| name.contains('-')).count()
    };
    for at in 0..60 {
        log.blocking_append((at * 50..(at + 1) * 50).map(|at| entry(1, at))).await.unwrap();
    }
    let before = segments();
    assert!(before > 3, "{before}");
    log.purge(id(1, 2900)).await.unwrap();
    assert!(segments() < before);
    let rest = log.try_get_log_entries(2890..2910).await.unwrap();
    assert_eq!(rest.first().map(|entry| entry.log_id), Some(id(1, 2901)));
    assert_eq!(rest.len(), 9);
}

#[tokio::test]
async fn a_second_process_and_a_lost_vote_are_refused() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Disk(_))), "it is locked");
    log.blocking_append([entry(1, 0)]).await.unwrap();
    drop(log);
    disk.unlink("openraft").unwrap();
    let Err(OpenError::Refused(why)) = reopen(&disk).await else { panic!("the vote is gone") };
    assert!(why.contains("the file `openraft` beside it is gone"), "{why}");
}

#[tokio::test]
async fn a_damaged_file_of_the_vote_is_an_error_and_no_missing_vote() {
    use holdfast_log::{DiskFile, Mode};
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    log.save_vote(&Vote::new(5, 3)).await.unwrap();
    drop(log);
    let file = disk.open("openraft", Mode::Write).unwrap();
    let mut byte = [0];
    file.read_at(6, &mut byte).unwrap();
    file.write_at(6, &[byte[0] ^ 1]).unwrap();
    let Err(OpenError::Disk(why)) = reopen(&disk).await else { panic!("the vote is damaged") };
    assert!(why.to_string().contains("checksum"), "{why}");
}

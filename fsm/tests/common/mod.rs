//! What the tests of the store share: entries, scripts, and stores on a disk in memory.
#![allow(dead_code, reason = "each test file uses its own part")]

use bytes::Bytes;
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::traits::{Contact, SnapshotSink, SnapshotSource, StateMachine};
use holdfast_consensus::{
    Body, ClusterId, Entries, Entry, Index, LogId, MemberId, Membership, SnapshotMeta, Term,
};
use holdfast_fsm::command::{
    AbortMove, AssignPartition, AttachChild, CompleteMove, CreateTopic, DeleteTopic, DetachChild,
    PartitionRef, PutMember, SetTarget,
};
use holdfast_fsm::guard::Standing;
use holdfast_fsm::records::{Owner, VolumeId};
use holdfast_fsm::{Answer, Command, Metastore, Restore, SessionRef, StoreOptions, View, WalkStep};
use holdfast_log::MemDisk;

pub(crate) const CLUSTER: ClusterId = ClusterId(0x00c1_0000_0000_0000_0000_0000_0000_0001);

pub(crate) fn options() -> StoreOptions {
    StoreOptions::small(CLUSTER, 1)
}

pub(crate) fn open(disk: &MemDisk) -> Metastore<MemDisk> {
    Metastore::open(disk.clone(), options()).expect("the store opens")
}

pub(crate) fn fresh() -> Metastore<MemDisk> {
    open(&MemDisk::new())
}

/// An entry of term 1 at `index`, at log time `index` milliseconds.
pub(crate) fn entry(index: u64, body: Body) -> Entry {
    Entry { id: LogId::new(1, index), time: index * 1000, body }
}

pub(crate) fn command(index: u64, session: Option<SessionRef>, command: &Command) -> Entry {
    entry(index, Body::Command(command.encode(session).expect("a command encodes")))
}

pub(crate) fn session(client: u64, sequence: u64) -> Option<SessionRef> {
    Some(SessionRef { client, sequence })
}

pub(crate) fn put(key: &str, value: &str) -> Command {
    Command::KvPut { key: bytes(key), value: bytes(value) }
}

pub(crate) fn create(name: &str) -> Command {
    Command::CreateTopic(CreateTopic {
        name: name.to_owned(),
        partitions: 3,
        retention_ms: None,
        created_at_ms: 1_700_000_000_000,
    })
}

pub(crate) fn delete(name: &str, incarnation: Option<u64>) -> Command {
    Command::DeleteTopic(DeleteTopic { name: name.to_owned(), incarnation })
}

pub(crate) fn member(id: u64) -> Command {
    Command::PutMember(PutMember {
        member: MemberId(id),
        name: format!("n{id}"),
        http: format!("http://127.0.0.1:{id}"),
        build: "0.1.0".to_owned(),
        newest_type: 1012,
    })
}

pub(crate) fn owner(n: u64) -> Owner {
    Owner { node: format!("n{n}"), volume: VolumeId(u128::from(n)) }
}

pub(crate) fn part(topic: &str, incarnation: u64, partition: u32) -> PartitionRef {
    PartitionRef { topic: topic.to_owned(), incarnation, partition }
}

pub(crate) fn assign(to: PartitionRef, n: u64) -> Command {
    Command::AssignPartition(AssignPartition { to, owner: owner(n) })
}

pub(crate) fn set_target(of: PartitionRef, placed: u64, n: u64) -> Command {
    Command::SetTarget(SetTarget { of, placed, target: owner(n) })
}

pub(crate) fn complete(of: PartitionRef, incarnation: u64, length: u64, forced: bool) -> Command {
    Command::CompleteMove(CompleteMove { of, incarnation, length, forced })
}

pub(crate) fn abort(of: PartitionRef, incarnation: u64) -> Command {
    Command::AbortMove(AbortMove { of, incarnation })
}

pub(crate) fn attach(child: (&str, u64), parent: (&str, u64), tails: &[u64]) -> Command {
    Command::AttachChild(AttachChild {
        child: child.0.to_owned(),
        child_incarnation: child.1,
        parent: parent.0.to_owned(),
        parent_incarnation: parent.1,
        delay_ms: 60_000,
        tails: tails.to_vec(),
    })
}

pub(crate) fn detach(child: &str, incarnation: Option<u64>) -> Command {
    Command::DetachChild(DetachChild { child: child.to_owned(), incarnation })
}

/// A replica with nothing against it: leader 1 of term 1 was heard just now.
pub(crate) fn standing(view: &View) -> Standing {
    let held = view.held().expect("read");
    Standing {
        member: MemberId(1),
        cluster: held.cluster,
        volume: VolumeId(1),
        state_epoch: held.state_epoch,
        now: 10_000_000,
        contact: Some(Contact {
            leader: MemberId(1),
            term: Term(1),
            commit: held.last.index,
            own_term: true,
            at: 10_000_000,
        }),
        stopped: false,
        shutting_down: false,
        held: false,
        dispute: false,
    }
}

pub(crate) fn walk(view: &View) {
    let mut walk = view.walk().expect("a walk begins");
    while walk.step(2).expect("the store is right") == WalkStep::More {}
}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn run(entries: Vec<Entry>) -> Entries {
    Entries::new(entries).expect("entries are contiguous")
}

/// Applies one command and returns its answer.
pub(crate) fn apply_one(
    machine: &mut Metastore<MemDisk>,
    session: Option<SessionRef>,
    what: &Command,
) -> Answer {
    let index = machine.applied().last.index.0 + 1;
    apply_entry(machine, command(index, session, what))
}

pub(crate) fn apply_entry(machine: &mut Metastore<MemDisk>, entry: Entry) -> Answer {
    let mut replies = Vec::new();
    let index = entry.id.index;
    machine.apply(&run(vec![entry]), &mut replies).expect("the entry applies");
    assert_eq!(replies.len(), 1, "one answer");
    assert_eq!(replies[0].0, index);
    Answer::decode(&replies[0].1).expect("the answer decodes")
}

/// Feeds everything in batches of `by`.
pub(crate) fn feed(
    machine: &mut Metastore<MemDisk>,
    all: &Entries,
    by: usize,
) -> Vec<(Index, Bytes)> {
    let mut replies = Vec::new();
    let mut left = all.clone();
    while !left.is_empty() {
        let batch = left.take(by);
        machine.apply(&batch, &mut replies).expect("the batch applies");
        left = left.starting_at(batch.last().expect("not empty").index.next());
        if batch.last() == all.last() {
            break;
        }
    }
    replies
}

/// A history that uses every command, good and bad, with sessions, retries, configurations and
/// blanks. Commands that are not idempotent (compare-and-set chains) are among them.
pub(crate) fn script(seed: u64, last: u64) -> Entries {
    let mut rng = SplitMix64::new(seed);
    let mut entries = vec![entry(1, Body::Membership(voters(3).into()))];
    let mut sessions: Vec<(u64, u64)> = Vec::new();
    for index in 2..=last {
        let body = match rng.between(0, 20) {
            0 => Body::Blank,
            1 => Body::Membership(voters(3 + rng.between(0, 2)).into()),
            2 => Body::Command(Bytes::from_static(&[1, 0, 0, 0xff])),
            _ => Body::Command(drawn(&mut rng, &mut sessions, index)),
        };
        entries.push(entry(index, body));
    }
    run(entries)
}

fn drawn(rng: &mut SplitMix64, sessions: &mut Vec<(u64, u64)>, index: u64) -> Bytes {
    let name = format!("topic-{}", rng.between(0, 8));
    let key = bytes(&format!("key-{}", rng.between(0, 12)));
    let value = Bytes::from(vec![b'v'; usize::try_from(rng.between(0, 300)).expect("small")]);
    let near = index.saturating_sub(rng.between(1, 12));
    let what = match rng.between(0, 18) {
        12 => assign(part(&name, near, 1), rng.between(1, 4)),
        13 => set_target(part(&name, near, 1), near, rng.between(1, 4)),
        14 => complete(part(&name, near, 1), near, 5, rng.chance(300)),
        15 => abort(part(&name, near, 1), near),
        16 => attach((&name, near), ("topic-0", near), &[1, 2, 3]),
        17 => detach(&name, None),
        0 | 1 => create(&name),
        2 => delete(&name, None),
        3 => delete(&name, Some(rng.between(1, index))),
        4 => member(rng.between(1, 6)),
        5 => Command::RegisterSession,
        6 => create("not a name"),
        7 => Command::KvDelete { key },
        8 => Command::KvCas { key, expected: None, value },
        9 => Command::CloseSession { client: rng.between(1, index) },
        _ => Command::KvPut { key, value },
    };
    if what == Command::RegisterSession {
        sessions.push((index, 0));
        return what.encode(None).expect("a command encodes");
    }
    let pick = usize::try_from(rng.next_u64() % 7).expect("small");
    let by = sessions.get_mut(pick).map(|(client, sequence)| {
        // One in four is a retry of the last command, or an older one.
        *sequence += u64::from(!rng.chance(250));
        SessionRef { client: *client, sequence: *sequence }
    });
    what.encode(by).expect("a command encodes")
}

pub(crate) fn voters(count: u64) -> Membership {
    Membership::of_voters((1..=count).map(|n| (MemberId(n), format!("n{n}"))))
}

/// The label and the content of a snapshot.
pub(crate) fn snapshot(machine: &mut Metastore<MemDisk>) -> (SnapshotMeta, Vec<Bytes>) {
    let (meta, mut image) = machine.pin().expect("the state can be pinned");
    let mut chunks = Vec::new();
    while let Some(chunk) = image.next_chunk().expect("the image streams") {
        chunks.push(chunk);
    }
    (meta, chunks)
}

pub(crate) fn restore(
    machine: &mut Metastore<MemDisk>,
    meta: &SnapshotMeta,
    chunks: &[Bytes],
) -> Restore {
    let mut sink = machine.restore(meta).expect("a restore begins");
    for chunk in chunks {
        sink.put_chunk(sink.offset(), chunk).expect("a good chunk is taken");
    }
    sink
}

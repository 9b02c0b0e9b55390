//! The bytes of every stored and sent type, pinned. A difference here is a break of the format:
//! never change a line, only add some.
#![forbid(unsafe_code)]

mod common;

use bytes::Bytes;
use common::*;
use holdfast_consensus::traits::StateMachine;
use holdfast_consensus::{Body, Index, LogId, MemberId};
use holdfast_fsm::command::decode;
use holdfast_fsm::header::Header;
use holdfast_fsm::records::*;
use holdfast_fsm::{Answer, Command, CreateTopic, Current, Rule};
use std::fmt::Write;

const GOLDEN: &str = include_str!("golden.txt");

fn commands() -> Vec<(&'static str, Command)> {
    let limited = CreateTopic {
        name: "orders".to_owned(),
        partitions: 12,
        retention_ms: Some(86_400_000),
        created_at_ms: 1_700_000_000_123,
    };
    let cas = |expected| Command::KvCas { key: bytes("key"), expected, value: bytes("new") };
    vec![
        ("create-topic", create("orders")),
        ("create-topic-retention", Command::CreateTopic(limited)),
        ("delete-topic", delete("orders", None)),
        ("delete-topic-incarnation", delete("orders", Some(258))),
        ("put-member", member(0x0102)),
        ("register-session", Command::RegisterSession),
        ("close-session", Command::CloseSession { client: 258 }),
        ("kv-put", put("key", "value")),
        ("kv-cas-absent", cas(None)),
        ("kv-cas-value", cas(Some(bytes("old")))),
        ("kv-delete", Command::KvDelete { key: bytes("key") }),
        ("assign-partition", assign(part("orders", 258, 3), 7)),
        ("attach-child", attach(("retry", 259), ("orders", 258), &[5, 6])),
        ("detach-child", detach("retry", None)),
        ("detach-child-incarnation", detach("retry", Some(260))),
        ("set-target", set_target(part("orders", 258, 3), 261, 8)),
        ("complete-move", complete(part("orders", 258, 3), 262, 4000, false)),
        ("complete-move-forced", complete(part("orders", 258, 3), 262, 0, true)),
        ("abort-move", abort(part("orders", 258, 3), 262)),
    ]
}

fn answers() -> Vec<(&'static str, Answer)> {
    let missed = |current| Answer::CasMissed { current };
    vec![
        ("topic-created", Answer::TopicCreated { incarnation: 258 }),
        ("topic-exists", Answer::TopicExists { incarnation: 258 }),
        ("topic-deleted", Answer::TopicDeleted { incarnation: 258 }),
        ("not-found", Answer::NotFound),
        ("wrong-incarnation", Answer::WrongIncarnation { current: 258 }),
        ("invalid-topic-name", Answer::Invalid(Rule::TopicName)),
        ("invalid-topic-partitions", Answer::Invalid(Rule::TopicPartitions)),
        ("invalid-topic-retention", Answer::Invalid(Rule::TopicRetention)),
        ("invalid-kv-key", Answer::Invalid(Rule::KvKey)),
        ("invalid-kv-value", Answer::Invalid(Rule::KvValue)),
        ("invalid-member", Answer::Invalid(Rule::Member)),
        ("invalid-sequence", Answer::Invalid(Rule::Sequence)),
        ("undecodable", Answer::Undecodable),
        ("member-stored", Answer::MemberStored),
        ("session-registered", Answer::SessionRegistered { client: 258 }),
        ("session-closed", Answer::SessionClosed),
        ("session-expired", Answer::SessionExpired),
        ("stale-sequence", Answer::StaleSequence { last: 258 }),
        ("kv-stored", Answer::KvStored),
        ("kv-deleted", Answer::KvDeleted),
        ("cas-missed-absent", missed(Current::Absent)),
        ("cas-missed-value", missed(Current::Value(bytes("old")))),
        ("cas-missed-large", missed(Current::Large { bytes: 65_536 })),
        ("invalid-owner", Answer::Invalid(Rule::Owner)),
        ("invalid-tails", Answer::Invalid(Rule::Tails)),
        ("partition-assigned", Answer::PartitionAssigned { placed: 258 }),
        ("already-assigned", Answer::AlreadyAssigned { placed: 258 }),
        ("no-such-partition", Answer::NoSuchPartition { partitions: 3 }),
        ("wrong-placement", Answer::WrongPlacement { current: 258 }),
        ("already-owner", Answer::AlreadyOwner),
        ("move-started", Answer::MoveStarted { incarnation: 258 }),
        ("move-under-way", Answer::MoveUnderWay { incarnation: 258 }),
        ("no-move", Answer::NoMove { placed: 258 }),
        ("move-completed", Answer::MoveCompleted { incarnation: 258 }),
        ("move-aborted", Answer::MoveAborted { incarnation: 258 }),
        ("attached", Answer::Attached { incarnation: 258 }),
        ("already-attached", Answer::AlreadyAttached { incarnation: 258 }),
        ("wrong-tails", Answer::WrongTails { partitions: 3 }),
        ("would-feed-itself", Answer::WouldFeedItself),
        ("detached", Answer::Detached { incarnation: 258 }),
    ]
}

fn stamp() -> Stamp {
    Stamp {
        cluster: CLUSTER,
        epoch: 3,
        group: 2,
        kind: ResourceKind::Topic,
        name: "orders".to_owned(),
        incarnation: 258,
    }
}

fn placed() -> Assignment {
    let stamp = |incarnation| Stamp {
        kind: ResourceKind::Move,
        name: move_name("orders", 3),
        incarnation,
        ..stamp()
    };
    Assignment {
        stamp: stamp(261),
        topic: self::stamp(),
        partition: 3,
        owner: owner(7),
        target: Some(Target { stamp: stamp(262), owner: owner(8) }),
        length: 4000,
        forced_at: Some(260),
    }
}

fn linked() -> Link {
    let child = Stamp { name: "retry".to_owned(), incarnation: 259, ..stamp() };
    Link {
        stamp: Stamp { kind: ResourceKind::Attachment, incarnation: 263, ..child.clone() },
        child,
        parent: stamp(),
        delay_ms: 60_000,
        tails: vec![5, 6],
    }
}

fn records() -> Vec<(&'static str, Vec<u8>)> {
    let topic = Topic {
        stamp: stamp(),
        partitions: 12,
        retention_ms: Some(86_400_000),
        created_at_ms: 1_700_000_000_123,
    };
    let tombstone = Tombstone { stamp: stamp(), epoch: 4, deleted_at: 259, time: 5000 };
    let member = Member {
        member: MemberId(0x0102),
        name: "n1".to_owned(),
        http: "http://127.0.0.1:7600".to_owned(),
        build: "0.1.0".to_owned(),
        newest_type: 1012,
        updated: 7,
    };
    let answer = Answer::KvStored.encode();
    let session = Session { sequence: 9, index: 258, used: 5000, answer };
    let value = KvValue { modified: 258, value: Bytes::from_static(b"value") };
    let header = Header {
        cluster: CLUSTER,
        epoch: 1,
        state_epoch: 3,
        group: 2,
        last: LogId::new(5, 258),
        time: 6000,
        membership: voters(2),
        membership_index: Index(1),
        digest: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        newest_type: 1012,
        counts: Counts([1, 2, 3, 4, 5, 6, 7]),
    };
    vec![
        ("topic", topic.encode()),
        ("tombstone", tombstone.encode()),
        ("tombstone-key", tombstone_key(&stamp())),
        ("member", member.encode()),
        ("member-key", number_key(TableId::Members, 0x0102)),
        ("session", session.encode()),
        ("kv-value", value.encode()),
        ("kv-key", key(TableId::Kv, b"key")),
        ("assignment", placed().encode()),
        ("assignment-key", assignment_key("orders", 3)),
        ("link", linked().encode()),
        ("link-key", link_key("retry")),
        ("attachment-tombstone-key", tombstone_key(&linked().stamp)),
        ("move-tombstone-key", tombstone_key(&placed().stamp)),
        ("store-header", header.encode()),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}

/// A small state with a row in every table, as a stream.
fn stream() -> Vec<u8> {
    let mut machine = fresh();
    machine
        .apply(&run(vec![entry(1, Body::Membership(voters(2).into()))]), &mut Vec::new())
        .expect("applies");
    apply_one(&mut machine, None, &Command::RegisterSession);
    apply_one(&mut machine, session(2, 1), &create("a"));
    apply_one(&mut machine, None, &delete("a", None));
    apply_one(&mut machine, None, &create("b"));
    apply_one(&mut machine, None, &member(1));
    apply_one(&mut machine, None, &put("key", "value"));
    apply_one(&mut machine, None, &assign(part("b", 5, 1), 1));
    apply_one(&mut machine, None, &create("c"));
    apply_one(&mut machine, None, &attach(("c", 9), ("b", 5), &[0, 0, 0]));
    snapshot(&mut machine).1.concat()
}

fn everything() -> String {
    let mut text = String::new();
    let mut line = |kind: &str, name: &str, bytes: &[u8]| {
        writeln!(text, "{kind} {name} {}", hex(bytes)).expect("writing to a string");
    };
    for (name, command) in commands() {
        line("command", name, &command.encode(None).expect("encodes"));
    }
    let by = session(258, 9);
    line("command", "kv-put-in-session", &put("key", "value").encode(by).expect("encodes"));
    for (name, answer) in answers() {
        line("answer", name, &answer.encode());
    }
    for (name, record) in records() {
        line("record", name, &record);
    }
    line("stream", "snapshot", &stream());
    text
}

#[test]
fn every_encoding_is_the_one_that_was_frozen() {
    let all = everything();
    for (have, want) in all.lines().zip(GOLDEN.lines()) {
        assert_eq!(have, want, "all of it:\n{all}");
    }
    assert_eq!(all.lines().count(), GOLDEN.lines().count(), "all of it:\n{all}");
}

#[test]
fn commands_answers_and_the_header_read_back_as_they_were_written() {
    for (name, command) in commands() {
        let bytes = command.encode(session(7, 8)).unwrap();
        assert_eq!(decode(&bytes).unwrap(), (session(7, 8), command.clone()), "{name}");
        assert_eq!(decode(&command.encode(None).unwrap()).unwrap(), (None, command), "{name}");
        let trailing = [&bytes[..], b"x"].concat();
        assert!(decode(&trailing).is_err(), "{name}: every byte must be consumed");
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "{name}: cut at {cut}");
        }
    }
    for (name, answer) in answers() {
        assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer, "{name}");
    }
    let header = Header { membership: voters(3), ..Header::default() };
    let bytes = header.encode();
    assert_eq!(Header::decode(&bytes).unwrap(), header);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(Header::decode(&flipped).is_err(), "a flipped byte at {at}");
    }
}

#[test]
fn a_newer_header_is_refused_with_both_versions_named() {
    let mut newer = Header::default().encode();
    newer[4] = 3;
    let text = Header::decode(&newer).unwrap_err().to_string();
    assert!(text.contains("format 3") && text.contains("up to 2"), "{text}");
    newer[4] = 1;
    let text = Header::decode(&newer).unwrap_err().to_string();
    assert!(text.contains("format 1") && text.contains("reads format 2"), "{text}");
    let newer = Header { newest_type: 1013, ..Header::default() };
    let text = Header::decode(&newer.encode()).unwrap_err().to_string();
    assert!(text.contains("1013") && text.contains("1012"), "{text}");
}

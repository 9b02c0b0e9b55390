//! Snapshots: the same state gives the same bytes, and nothing but a whole, matching stream is
//! ever installed.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::{SNAPSHOT_CHUNK_MAX, SnapshotSink, SnapshotSource, StateMachine};
use holdfast_consensus::{ClusterId, Index, SnapshotMeta};
use holdfast_fsm::snapshot::{Parser, Part};
use holdfast_fsm::{Answer, Command};
use proptest::prelude::*;

#[test]
fn replicas_that_batched_differently_stream_the_same_bytes() {
    let all = script(11, 300);
    let streams: Vec<_> = [1, 7, 300]
        .into_iter()
        .map(|by| {
            let mut machine = fresh();
            feed(&mut machine, &all, by);
            if by == 7 {
                machine.checkpoint().unwrap();
                machine.reopen().unwrap();
            }
            snapshot(&mut machine)
        })
        .collect();
    assert_eq!(streams[0], streams[1]);
    assert_eq!(streams[0], streams[2]);
    assert!(streams[0].1.len() >= 3, "header, records, footer");
}

#[test]
fn sessions_and_tombstones_travel_so_that_a_retry_is_still_answered() {
    let mut source = fresh();
    apply_one(&mut source, None, &Command::RegisterSession);
    let first = apply_one(&mut source, session(1, 1), &create("a"));
    let stamp = source.view().topic("a").unwrap().value.unwrap().stamp;
    apply_one(&mut source, None, &delete("a", None));
    let (meta, chunks) = snapshot(&mut source);
    let mut target = fresh();
    let sink = restore(&mut target, &meta, &chunks);
    target.adopt(sink).unwrap();
    assert!(target.view().tombstone(&stamp).unwrap().value.is_some());
    assert_eq!(apply_one(&mut target, session(1, 1), &create("a")), first);
    assert!(target.view().topic("a").unwrap().value.is_none(), "nothing was executed");
    let next = apply_one(&mut target, session(1, 2), &create("a"));
    assert_eq!(next, Answer::TopicCreated { incarnation: 5 });
}

#[test]
fn a_large_state_streams_in_chunks_that_may_be_cut_anywhere() {
    let mut source = fresh();
    for n in 0..60u8 {
        let value = vec![n; 65_536].into();
        apply_one(&mut source, None, &Command::KvPut { key: bytes(&format!("k{n:03}")), value });
    }
    let (meta, chunks) = snapshot(&mut source);
    assert!(chunks.len() > 20);
    assert!(chunks.iter().all(|c| c.len() <= SNAPSHOT_CHUNK_MAX));
    let whole = chunks.concat();
    for piece in [777, 100_000] {
        let mut target = fresh();
        let mut sink = target.restore(&meta).unwrap();
        for part in whole.chunks(piece) {
            sink.put_chunk(sink.offset(), part).unwrap();
        }
        assert_eq!(sink.offset(), whole.len() as u64);
        let applied = target.adopt(sink).unwrap();
        assert_eq!((applied.last, applied.digest), (meta.last, meta.digest));
        let value = target.view().kv_get(b"k059").unwrap().value.unwrap().value;
        assert_eq!(value, vec![59u8; 65_536]);
    }
}

#[test]
fn a_pinned_image_is_of_its_moment_and_ends_when_the_store_is_replaced() {
    let all = script(12, 100);
    let mut machine = fresh();
    machine.apply(&all.take(60), &mut Vec::new()).unwrap();
    let want = snapshot(&mut machine);
    let (meta, mut image) = machine.pin().unwrap();
    machine.apply(&all, &mut Vec::new()).unwrap();
    assert_eq!(meta.last.index, Index(60));
    let mut chunks = Vec::new();
    while let Some(chunk) = image.next_chunk().unwrap() {
        chunks.push(chunk);
    }
    assert_eq!((meta, chunks), want);
    let (_, mut image) = machine.pin().unwrap();
    machine.reopen().unwrap();
    let mut ended = Ok(());
    while ended.is_ok() {
        match image.next_chunk() {
            Ok(Some(_)) => {}
            // What redb still holds in memory may be served to the end: it is of one moment.
            Ok(None) => break,
            Err(fault) => ended = Err(fault),
        }
    }
    assert!(matches!(ended, Ok(()) | Err(StoreFault::Poisoned { .. })), "{ended:?}");
    assert_eq!(machine.applied().last.index, Index(0), "nothing was checkpointed");
}

#[test]
fn every_flipped_byte_and_every_cut_leaves_the_live_store_alone() {
    let all = script(13, 60);
    let mut source = fresh();
    feed(&mut source, &all.take(40), 40);
    let (meta, chunks) = snapshot(&mut source);
    let whole = chunks.concat();
    let mut machine = fresh();
    feed(&mut machine, &all.take(10), 10);
    let before = machine.applied();
    let mut tried = 0;
    let mut attempt = |bytes: &[u8], what: &str| {
        let mut sink = machine.restore(&meta).unwrap();
        let fed = sink.put_chunk(0, bytes);
        let adopted = fed.and_then(|()| machine.adopt(sink));
        assert!(matches!(adopted, Err(StoreFault::Snapshot(_))), "{what}: {adopted:?}");
        assert_eq!(machine.applied(), before, "{what}");
        tried += 1;
    };
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        attempt(&flipped, &format!("flipped {at}"));
        attempt(&whole[..at], &format!("cut at {at}"));
    }
    attempt(&[whole.as_slice(), b"x"].concat(), "one byte too many");
    assert!(tried > 80);
    machine.apply(&all, &mut Vec::new()).unwrap();
    machine.view().verify_digest().unwrap();
}

#[test]
fn a_snapshot_of_another_cluster_or_a_newer_build_is_not_begun() {
    let mut source = fresh();
    apply_one(&mut source, None, &create("a"));
    let (meta, _) = snapshot(&mut source);
    let mut machine = fresh();
    let other = SnapshotMeta { cluster: ClusterId(9), ..meta.clone() };
    assert!(matches!(machine.restore(&other).err(), Some(StoreFault::Snapshot(_))));
    let newer = SnapshotMeta { newest_type: 4000, ..meta };
    let at = Index(1);
    let fault = machine.restore(&newer).err();
    assert_eq!(fault, Some(StoreFault::UnknownType { at, kind: 4000 }));
}

#[test]
fn a_label_that_differs_from_the_content_in_any_field_is_refused() {
    let mut source = fresh();
    feed(&mut source, &script(14, 20), 20);
    let (meta, chunks) = snapshot(&mut source);
    let m = || meta.clone();
    let wrong = [
        SnapshotMeta { last: holdfast_consensus::LogId::new(1, 21), ..m() },
        SnapshotMeta { time: meta.time + 1, ..m() },
        SnapshotMeta { membership: voters(1), ..m() },
        SnapshotMeta { membership_index: Index(99), ..m() },
        SnapshotMeta { digest: meta.digest ^ 1, ..m() },
        SnapshotMeta { newest_type: 1, ..m() },
    ];
    for label in wrong {
        let mut machine = fresh();
        let mut sink = machine.restore(&label).unwrap();
        let fed = sink.put_chunk(0, &chunks.concat());
        let text = fed.expect_err("refused").to_string();
        assert!(text.contains("differ"), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes_never_break_the_parser(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        cut in 0usize..400,
    ) {
        let mut parser = Parser::default();
        parser.feed(&noise[..cut.min(noise.len())]);
        let mut result = parser.next_part();
        parser.feed(&noise[cut.min(noise.len())..]);
        while let Ok(Some(_)) = result {
            result = parser.next_part();
        }
        prop_assert!(!parser.is_complete());
    }

    #[test]
    fn a_mutated_stream_is_refused_or_incomplete(at in any::<prop::sample::Index>(), with in 1u8..) {
        let mut source = fresh();
        feed(&mut source, &script(15, 40), 40);
        let mut whole = snapshot(&mut source).1.concat();
        let at = at.index(whole.len());
        whole[at] ^= with;
        let mut parser = Parser::default();
        parser.feed(&whole);
        let mut footer = false;
        loop {
            match parser.next_part() {
                Ok(Some(Part::Footer { .. })) => footer = true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        prop_assert!(!footer, "a flipped byte at {} went unnoticed", at);
    }

    #[test]
    fn the_digest_kept_incrementally_equals_a_full_recomputation(seed in any::<u64>(), by in 1usize..40) {
        let all = script(seed, 150);
        let mut machine = fresh();
        let mut done = 0;
        while done < all.len() {
            done += by;
            machine.apply(&all.take(done), &mut Vec::new()).unwrap();
            machine.view().verify_digest().unwrap();
        }
        let mut twin = fresh();
        feed(&mut twin, &all, 1 + by / 2);
        prop_assert_eq!(machine.applied().digest, twin.applied().digest);
        prop_assert_eq!(machine.header(), twin.header());
    }
}

//! The committed corpora: each holds at least the real encodings that its generator makes now, and
//! every file in it passes its target. `UPDATE=1 cargo test -p holdfast-fuzz` writes the seeds.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

fn replay(target: &str, seeds: Vec<(String, Vec<u8>)>, check: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    for (name, bytes) in &seeds {
        let path = dir.join(name);
        if std::env::var_os("UPDATE").is_some() {
            fs::create_dir_all(&dir).expect("the corpus directory can be made");
            fs::write(&path, bytes).expect("the corpus is writable");
        }
        let stored = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(stored == *bytes, "{}: no longer what is encoded today", path.display());
    }
    let mut files = 0;
    for entry in fs::read_dir(&dir).expect("the corpus is a directory") {
        let path = entry.expect("the corpus stays while it is read").path();
        check(&fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        files += 1;
    }
    assert!(files >= seeds.len() && files > 0, "{target}: {files} files");
}

#[test]
fn the_frame_corpus_holds_real_frames_and_passes() {
    replay("frame", holdfast_fuzz::frame::seeds(), holdfast_fuzz::frame::check);
}

#[test]
fn the_recovery_corpus_holds_real_logs_and_passes() {
    replay("recovery", holdfast_fuzz::recovery::seeds(), holdfast_fuzz::recovery::check);
}

#[test]
fn the_record_corpus_holds_real_records_and_passes() {
    replay("record", holdfast_fuzz::record::seeds(), holdfast_fuzz::record::check);
}

#[test]
fn the_header_corpus_holds_real_headers_and_passes() {
    replay("header", holdfast_fuzz::header::seeds(), holdfast_fuzz::header::check);
}

#[test]
fn the_dump_corpus_holds_real_logs_and_passes() {
    replay("dump", holdfast_fuzz::dump::seeds(), holdfast_fuzz::dump::check);
}

#[test]
fn every_seed_of_the_frame_target_decodes() {
    use holdfast_consensus::wire;
    for (name, seed) in holdfast_fuzz::frame::seeds() {
        let (header, body) = seed.split_first_chunk().expect("a header");
        assert!(wire::decode_frame(header, body).is_ok(), "{name} does not reach the decoder");
    }
}

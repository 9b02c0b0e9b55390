use super::*;
use crate::disk::DiskFile;
use crate::mem_disk::{KeepAll, LoseAll, MemDisk, RandomLoss};
use holdfast_consensus::Index;
use holdfast_consensus::traits::LogReader;

fn options(name: &str, member: u64) -> HomeOptions {
    let log = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };
    HomeOptions { name: name.into(), fresh_member: MemberId(member), log }
}

fn open(disk: &MemDisk) -> Result<Home<MemDisk>, HomeError> {
    Home::open(disk.clone(), &options("a", 7))
}

fn three() -> Membership {
    Membership::of_voters([7, 8, 9].map(|id| (MemberId(id), format!("n{id}"))))
}

fn refusal(result: Result<Home<MemDisk>, HomeError>) -> String {
    match result.err().expect("must be refused") {
        HomeError::Refused(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fresh_directory_keeps_its_first_member_id_for_ever() {
    let disk = MemDisk::new();
    let home = open(&disk).unwrap();
    assert_eq!(home.identity().member, MemberId(7));
    assert!(!home.is_formed());
    // R7: what was presented once is presented again, although the caller offers another id.
    let disk = disk.crash(&mut LoseAll);
    let home = Home::open(disk, &options("a", 99)).unwrap();
    assert_eq!(home.identity().member, MemberId(7));
    assert_eq!(home.identity().state, IdentityState::Empty);
}

#[test]
fn founding_writes_the_first_configuration_and_the_marker() {
    let disk = MemDisk::new();
    let mut home = open(&disk).unwrap();
    home.found(ClusterId(5), 6, three()).unwrap();
    assert!(home.is_formed());
    assert!(disk.files().contains_key("formed"));
    assert!(home.found(ClusterId(5), 6, three()).is_err(), "only once");
    assert!(home.adopt(ClusterId(5), 6).is_err(), "only once");
    drop(home);
    let (_lock, identity, log) = open(&disk.crash(&mut LoseAll)).unwrap().into_parts();
    assert_eq!((identity.cluster, identity.epoch), (ClusterId(5), 6));
    let found = log.recovered();
    assert_eq!((found.last, found.hard.term), (LogId::new(1, 1), Term(1)));
    assert_eq!(found.memberships, [(Index(1), three())]);
    let first = log.reader().read(Index(1), Index(1), 1).unwrap();
    assert_eq!(first.as_slice()[0].body, Body::Membership(three().into()));
}

#[test]
fn adopting_forms_without_an_entry() {
    let disk = MemDisk::new();
    open(&disk).unwrap().adopt(ClusterId(5), 6).unwrap();
    let home = open(&disk.crash(&mut LoseAll)).unwrap();
    assert!(home.is_formed());
    assert_eq!(home.identity().cluster, ClusterId(5));
}

#[test]
fn a_crash_anywhere_in_the_first_start_or_the_founding_is_gone_on_from() {
    for fuse in 0..40 {
        for choice in 0..4 {
            let disk = MemDisk::new();
            disk.set_fuse(Some(fuse));
            let mut presented = None;
            if let Ok(mut home) = open(&disk) {
                presented = Some(home.identity().member);
                if home.found(ClusterId(5), 6, three()).is_err() {
                    assert!(disk.is_blown());
                }
            }
            let disk = match choice {
                0 => disk.crash(&mut LoseAll),
                1 => disk.crash(&mut KeepAll),
                _ => disk.crash(&mut RandomLoss::new(fuse * 4 + choice)),
            };
            let home = Home::open(disk.clone(), &options("a", 55));
            let mut home = home.unwrap_or_else(|e| panic!("fuse {fuse} choice {choice}: {e}"));
            if let Some(member) = presented {
                assert_eq!(home.identity().member, member, "fuse {fuse} choice {choice}");
            }
            let empty = home.log().recovered().last == LogId::default();
            match home.identity().state {
                IdentityState::Empty => assert!(empty),
                IdentityState::Formed => assert!(!empty && disk.files().contains_key("formed")),
                IdentityState::Founding { .. } => panic!("an open completes a founding"),
            }
        }
    }
}

#[test]
fn a_second_process_is_refused_while_the_first_lives() {
    let disk = MemDisk::new();
    let home = open(&disk).unwrap();
    let second = open(&disk).err().expect("locked");
    assert_eq!(second, HomeError::Locked { path: "lock".into() });
    drop(home);
    assert!(open(&disk).is_ok());
}

#[test]
fn another_name_is_refused_and_both_are_named() {
    let disk = MemDisk::new();
    drop(open(&disk).unwrap());
    let before = disk.files();
    let text = refusal(Home::open(disk.clone(), &options("b", 7)));
    assert!(text.contains("`a`") && text.contains("`b`"), "{text}");
    assert_eq!(disk.files(), before);
}

#[test]
fn a_lost_log_is_refused_and_never_replaced() {
    let disk = MemDisk::new();
    drop(open(&disk).unwrap());
    let mut files = disk.files();
    files.retain(|path, _| !path.starts_with("log/"));
    let disk = MemDisk::from_files(files.clone());
    let text = refusal(open(&disk));
    assert!(
        text.contains("gone")
            && text.contains("put back the data directory")
            && text.contains("cannot replace"),
        "{text}"
    );
    assert_eq!(disk.files(), files);
}

#[test]
fn a_log_of_another_member_is_refused() {
    let (one, other) = (MemDisk::new(), MemDisk::new());
    drop(open(&one).unwrap());
    drop(Home::open(other.clone(), &options("a", 8)).unwrap());
    let mut files = one.files();
    files.retain(|path, _| !path.starts_with("log/"));
    files.extend(other.files().into_iter().filter(|(path, _)| path.starts_with("log/")));
    let disk = MemDisk::from_files(files.clone());
    let text = refusal(open(&disk));
    assert!(text.contains(&MemberId(7).to_string()), "{text}");
    assert!(text.contains(&MemberId(8).to_string()), "{text}");
    assert_eq!(disk.files(), files);
}

#[test]
fn a_lost_identity_beside_a_log_with_entries_is_refused() {
    let disk = MemDisk::new();
    open(&disk).unwrap().found(ClusterId(5), 6, three()).unwrap();
    disk.unlink("identity").unwrap();
    let before = disk.files();
    let text = refusal(open(&disk));
    assert!(text.contains("identity file is gone"), "{text}");
    assert_eq!(disk.files(), before, "nothing was changed, as it says");
}

#[test]
fn a_newer_identity_or_log_is_refused_untouched_with_both_versions() {
    let disk = MemDisk::new();
    drop(open(&disk).unwrap());
    let segment = disk.files().into_keys().find(|p| p.starts_with("log/0")).unwrap();
    // The header of a segment stands twice.
    for (path, places, newer, ours) in
        [("identity".to_owned(), vec![8], 2, 1), (segment, vec![8, 4096 + 8], 3, 2)]
    {
        let disk = MemDisk::from_files(disk.files());
        let file = disk.open(&path, Mode::Write).unwrap();
        places.iter().for_each(|place| file.write_at(*place, &[newer]).unwrap());
        let before = disk.files();
        let text = open(&disk).err().expect("refused").to_string();
        let (theirs, ours) = (format!("format {newer}"), format!("reads {ours}"));
        assert!(text.contains(&theirs) && text.contains(&ours), "{text}");
        assert_eq!(disk.files(), before);
    }
}

/// A formed directory whose newest entry is damaged; with `everything` also the blocks that say
/// what it was.
fn damaged(everything: bool) -> MemDisk {
    let disk = MemDisk::new();
    open(&disk).unwrap().found(ClusterId(5), 6, three()).unwrap();
    drop(open(&disk).unwrap());
    let all: Vec<_> = crate::inspect::records(&disk).unwrap().map(Result::unwrap).collect();
    let entry = all.iter().rfind(|r| r.kind == "entry").unwrap();
    disk.flip_bit(&entry.file, entry.offset + 40, 0).unwrap();
    if everything {
        let newest = disk.files().into_keys().rfind(|p| p.starts_with("log/0")).unwrap();
        // Both copies of the newest header: nothing tells where its records belong.
        for at in [8, 4096 + 8] {
            disk.flip_bit(&newest, at + 40, 1).unwrap();
        }
    }
    disk
}

#[test]
fn a_directory_with_a_damaged_entry_is_opened_and_names_it() {
    let disk = damaged(false);
    let mut home = open(&disk).unwrap();
    let found = home.log().recovered();
    assert_eq!((found.held, found.last), (None, LogId::new(1, 1)));
    assert_eq!(found.holes.iter().map(|h| h.index.0).collect::<Vec<_>>(), [1]);
    assert!(home.is_formed());
}

#[test]
fn a_held_directory_is_opened_and_not_a_byte_of_it_changes() {
    let disk = damaged(true);
    let before = disk.files();
    let mut home = open(&disk).unwrap();
    let found = home.log().recovered();
    assert!(found.held.is_some() && home.is_formed());
    let append = Entries::default();
    let write = Persist { seq: Seq(1), truncate_from: None, append, hard: None };
    assert!(matches!(home.log().persist(&[write]), Err(LogFault::Held { .. })));
    assert!(matches!(home.log().watermark(Index(1)), Err(LogFault::Held { .. })));
    drop(home);
    assert_eq!(disk.files(), before);
}

#[test]
fn a_founder_whose_first_entry_is_damaged_before_anybody_has_it_writes_it_again() {
    let disk = damaged(false);
    let mut identity = Identity::read(&disk).unwrap().expect("there");
    identity.state = IdentityState::Founding { membership: three() };
    identity.write(&disk).unwrap();
    let mut home = open(&disk).unwrap();
    let found = home.log().recovered();
    assert!(found.holes.is_empty() && home.is_formed());
    assert_eq!(found.memberships, [(Index(1), three())]);
}

#[test]
fn a_held_directory_that_belongs_to_no_cluster_is_refused() {
    let disk = damaged(true);
    let mut identity = Identity::read(&disk).unwrap().expect("there");
    identity.state = IdentityState::Founding { membership: three() };
    identity.write(&disk).unwrap();
    let before = disk.files();
    let fault = open(&disk).err().expect("must be refused");
    assert!(matches!(fault, HomeError::Log(LogFault::Held { .. })), "{fault}");
    assert_eq!(disk.files(), before);
}

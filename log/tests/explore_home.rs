//! Every crash of a directory that is opened, founds a cluster or joins one, and of the recovery
//! from it: the member that was presented is presented again (R1, R7), a founding is completed or
//! has not begun, and a directory is never refused because the power failed.

use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{ClusterId, LogId, MemberId, Membership};
use holdfast_log::mem_disk::Reach;
use holdfast_log::{Home, HomeOptions, IdentityState, LogOptions, MemDisk};
use std::collections::BTreeSet;

const REACH: Reach = Reach { bound: 2048, samples: 32, draws: 1, seed: 3 };
const CLUSTER: ClusterId = ClusterId(5);
const EPOCH: u64 = 6;

/// What is done to a directory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Deed {
    Open,
    Found,
    Adopt,
}

/// What may be found.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// No member was presented yet.
    Anybody,
    /// Member 7, in no cluster.
    Alone,
    AloneOrFounded,
    Founded,
    AloneOrAdopted,
    Adopted,
}

fn open(disk: &MemDisk, fresh: u64) -> Result<Home<MemDisk>, String> {
    let log = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };
    let options = HomeOptions { name: "a".into(), fresh_member: MemberId(fresh), log };
    Home::open(disk.clone(), &options).map_err(|e| e.to_string())
}

fn voters() -> Membership {
    Membership::of_voters([7, 8].map(|id| (MemberId(id), format!("n{id}"))))
}

/// Opens the directory as a process would that drew another id, and judges what it finds.
fn judge(disk: &MemDisk, claim: Claim) -> Result<(), String> {
    let mut home = open(disk, 99)?;
    let identity = home.identity().clone();
    let found = home.log().recovered();
    let member = identity.member.0;
    let alone = identity.state == IdentityState::Empty && found.last == LogId::default();
    let formed = identity.state == IdentityState::Formed
        && (identity.cluster, identity.epoch) == (CLUSTER, EPOCH)
        && disk.files().contains_key("formed");
    let founded = formed
        && found.last == LogId::new(1, 1)
        && found.memberships.last().is_some_and(|(_, m)| *m == voters());
    let adopted = formed && found.last == LogId::default();
    let holds = match claim {
        Claim::Anybody => (member == 7 || member == 99) && alone,
        Claim::Alone => member == 7 && alone,
        Claim::AloneOrFounded => member == 7 && (alone || founded),
        Claim::Founded => member == 7 && founded,
        Claim::AloneOrAdopted => member == 7 && (alone || adopted),
        Claim::Adopted => member == 7 && adopted,
    };
    if holds { Ok(()) } else { Err(format!("{claim:?}: {identity:?}, last {}", found.last)) }
}

/// Carries out the deeds, cuts the power at every moment, and in every recovery again. Returns the
/// number of distinct images.
fn explore(deeds: &[(Deed, Claim, Claim)]) -> Result<usize, String> {
    let disk = MemDisk::new();
    disk.watch();
    let (mut moments, mut home) = (Vec::new(), None);
    for (deed, during, after) in deeds {
        match deed {
            Deed::Open => home = Some(open(&disk, 7)?),
            Deed::Found => {
                let home = home.as_mut().ok_or("not open")?;
                home.found(CLUSTER, EPOCH, voters()).map_err(|e| e.to_string())?;
            }
            Deed::Adopt => {
                let home = home.as_mut().ok_or("not open")?;
                home.adopt(CLUSTER, EPOCH).map_err(|e| e.to_string())?;
            }
        }
        moments.extend(disk.take_points().into_iter().map(|point| (point, *during)));
        moments.push((disk.point(), *after));
    }
    let mut seen: BTreeSet<(u64, Claim, bool)> = BTreeSet::new();
    let mut inner = Vec::new();
    for (point, claim) in &moments {
        point.outcomes(&REACH, &mut |outcome| {
            if !seen.insert((outcome.hash, *claim, false)) {
                return Ok(());
            }
            let disk = outcome.disk();
            disk.watch();
            judge(&disk, *claim)
                .map_err(|why| format!("before {}: {why}{outcome}", point.next()))?;
            inner.extend(disk.take_points().into_iter().map(|point| (point, *claim)));
            Ok(())
        })?;
    }
    for (point, claim) in &inner {
        point.outcomes(&Reach { draws: 0, ..REACH }, &mut |outcome| {
            if !seen.insert((outcome.hash, *claim, true)) {
                return Ok(());
            }
            judge(&outcome.disk(), *claim)
                .map_err(|why| format!("in a recovery, before {}: {why}{outcome}", point.next()))
        })?;
    }
    Ok(seen.len())
}

const OPEN: (Deed, Claim, Claim) = (Deed::Open, Claim::Anybody, Claim::Alone);

#[test]
fn a_member_that_was_presented_is_presented_again_after_every_crash() {
    let images = explore(&[OPEN]).unwrap_or_else(|why| panic!("{why}"));
    assert!(images > 200, "{images} images");
}

#[test]
fn a_founding_is_completed_or_has_not_begun_after_every_crash() {
    let deeds = [OPEN, (Deed::Found, Claim::AloneOrFounded, Claim::Founded)];
    let images = explore(&deeds).unwrap_or_else(|why| panic!("{why}"));
    assert!(images > 400, "{images} images");
}

#[test]
fn an_adoption_has_happened_or_not_after_every_crash() {
    let deeds = [OPEN, (Deed::Adopt, Claim::AloneOrAdopted, Claim::Adopted)];
    let images = explore(&deeds).unwrap_or_else(|why| panic!("{why}"));
    assert!(images > 400, "{images} images");
}

#[test]
fn claims_that_are_false_are_refuted() {
    for deeds in [
        [(Deed::Open, Claim::Alone, Claim::Alone)].as_slice(),
        &[OPEN, (Deed::Found, Claim::Founded, Claim::Founded)],
        &[OPEN, (Deed::Found, Claim::Alone, Claim::Founded)],
        &[OPEN, (Deed::Adopt, Claim::AloneOrAdopted, Claim::Alone)],
    ] {
        assert!(explore(deeds).is_err(), "{deeds:?}");
    }
}

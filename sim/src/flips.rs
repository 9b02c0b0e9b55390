//! One flipped bit at every byte of a small log of several segments, on one member of a cluster of
//! three: no acknowledged entry may be lost, and no wrong one served (R9, R14, R15).
//!
//! The cluster is made once. For each flip its disks are copied, one bit of the victim's log is
//! another, everybody starts, and must come to hold and serve everything that was acknowledged; the
//! victim may be held instead, or refuse, and then changes not a byte. Injected: nothing but the
//! flip; other campaigns mix it with everything else.

use crate::check::{Verdict, Violation};
use crate::profile::Setup;
use crate::trace::Trace;
use crate::world::World;
use crate::world::script::{DiskImage, Part, Script};
use crate::{campaign, check::state_machine};
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_consensus::{Entry, Index, MemberId, Micros};
use holdfast_fsm::Command;
use holdfast_log::LogOptions;
use std::collections::BTreeMap;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// The member whose log is damaged.
const VICTIM: usize = 0;
/// Somebody else, who answers.
const WITNESS: usize = 1;
const SECOND: Micros = 1_000_000;
/// How long the members may take to repair one another and to agree.
const PATIENCE: Micros = 30 * SECOND;

/// How a flip ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Recovery proved everything all the same.
    Harmless,
    /// Entries were damaged, and came back from others.
    Repaired,
    /// The victim proves too little: it is held, and nothing of it changed.
    Held,
    /// The victim does not start, and nothing of it changed.
    Refused,
}

/// The cluster before any flip.
pub struct Bench {
    seed: u64,
    disks: Vec<DiskImage>,
    members: Vec<MemberId>,
    /// Every entry, committed on all members.
    truth: Vec<Entry>,
    /// Every acknowledged write.
    acked: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The victim's log files with their lengths, in order.
    files: Vec<(String, u64)>,
}

fn setup() -> Setup {
    Setup { segment_bytes: LogOptions::SEGMENT_MIN, ..Setup::quiet(NAMES.len()) }
}

fn broken(property: &'static str, what: impl Into<String>) -> Violation {
    Violation::new(property, what)
}

impl Bench {
    /// Makes the cluster: several segments, two leaders, a tail that was cut, everything proved
    /// durable and then a kill of all.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn new(seed: u64) -> Result<Self, Violation> {
        let mut script = World::scripted(seed, &NAMES, setup(), Trace::default());
        script.start_all();
        script.run_until_serving()?;
        let mut acked = BTreeMap::new();
        for n in 0..10 {
            write(&mut script, WITNESS, n, &mut acked)?;
        }
        lead(&mut script, VICTIM)?;
        // Entries that only the victim has, to be cut when it comes back.
        script.isolate(VICTIM);
        for n in 100..103 {
            let command = encoded(&put(n).0)?;
            script.call(VICTIM, Call::Propose { command }, SECOND / 2)?;
        }
        let other = |world: &World| world.leader().is_some_and(|leader| leader != VICTIM);
        if !script.run_until_true(other, script.now() + PATIENCE)? {
            return Err(broken("plot", "nobody else comes to lead"));
        }
        for n in 10..18 {
            write(&mut script, WITNESS, n, &mut acked)?;
        }
        script.rejoin(VICTIM);
        for n in 18..22 {
            write(&mut script, VICTIM, n, &mut acked)?;
        }
        script.run_until_serving()?;
        script.run_for(3 * SECOND)?;
        let truth = script.entries(WITNESS)?;
        let members = (0..NAMES.len()).map(|node| script.member(node)).collect();
        for node in 0..NAMES.len() {
            script.crash(node, false);
        }
        let disks: Vec<DiskImage> = (0..NAMES.len()).map(|node| script.image(node)).collect();
        let files = script.disk(VICTIM).files();
        let in_log = files.into_iter().filter(|(path, _)| path.starts_with("log/"));
        let files = in_log.map(|(path, bytes)| (path, bytes.len() as u64)).collect();
        campaign::discard(script);
        Ok(Self { seed, disks, members, truth, acked, files })
    }

    /// Bytes of the victim's log: one flip for each.
    #[must_use]
    pub fn places(&self) -> u64 {
        self.files.iter().map(|(_, len)| len).sum()
    }

    /// Files of the victim's log.
    #[must_use]
    pub fn files(&self) -> &[(String, u64)] {
        &self.files
    }

    /// Entries of the log, and acknowledged writes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.truth.len(), self.acked.len())
    }

    /// File and offset of a place.
    #[must_use]
    pub fn place(&self, mut number: u64) -> Option<(&str, u64)> {
        for (path, len) in &self.files {
            match number.checked_sub(*len) {
                None => return Some((path, number)),
                Some(rest) => number = rest,
            }
        }
        None
    }

    /// Flips a bit of one byte and runs the cluster until everybody has everything again.
    ///
    /// # Errors
    /// The property that did not hold. A panic is a violation of the property `panic`.
    pub fn flip(&self, number: u64) -> Result<Ending, Violation> {
        let mut ending = Ending::Harmless;
        let judged = campaign::judge(|| {
            ending = self.judge(number)?;
            Ok(())
        });
        match judged {
            None => Ok(ending),
            Some(mut violation) => {
                let place = self.place(number);
                violation.evidence = format!("flip {number} ({place:?}): {}", violation.evidence);
                Err(violation)
            }
        }
    }

    fn judge(&self, number: u64) -> Result<Ending, Violation> {
        let place = self.place(number);
        let (path, offset) = place.ok_or_else(|| broken("plot", "there is no such byte"))?;
        let bit = u8::try_from(number % 8).unwrap_or(0);
        let mut script = World::scripted(self.seed, &NAMES, setup(), Trace::default());
        for (node, disk) in self.disks.iter().enumerate() {
            script.restore(node, disk, Part::Whole);
        }
        script.remember(&self.members, &self.truth)?;
        script.flip(VICTIM, path, offset, bit)?;
        let damaged = script.image(VICTIM);
        script.keep_down(VICTIM);
        for node in 0..NAMES.len() {
            script.start(node)?;
        }
        let status = script.status(VICTIM);
        let ending = match &status {
            None => Ending::Refused,
            Some(status) if status.held.is_some() => Ending::Held,
            Some(status) if status.damaged.is_some() => Ending::Repaired,
            Some(_) => Ending::Harmless,
        };
        self.converge(&mut script)?;
        let apart = matches!(ending, Ending::Held | Ending::Refused);
        for node in (0..NAMES.len()).filter(|node| *node != VICTIM || !apart) {
            self.compare(&script, node)?;
        }
        if apart {
            script.crash(VICTIM, false);
            if script.image(VICTIM) != damaged {
                return Err(broken(
                    "untouched",
                    "a member that proves too little changed its disk",
                ));
            }
        } else if ending == Ending::Repaired {
            // What came back is on the disk.
            script.crash(VICTIM, true);
            script.start(VICTIM)?;
            if script.status(VICTIM).is_none_or(|s| s.damaged.is_some() || s.held.is_some()) {
                return Err(broken("repaired", "what was given back is damaged at the next start"));
            }
            self.converge(&mut script)?;
            self.compare(&script, VICTIM)?;
        }
        campaign::discard(script);
        Ok(ending)
    }

    /// Runs until everybody who is not held serves, has nothing damaged, and has applied everything.
    fn converge(&self, script: &mut Script) -> Verdict {
        let all = Index(self.truth.len() as u64);
        let done = |world: &World| {
            let agrees = |node: usize| match world.status(node) {
                None => node == VICTIM,
                Some(s) if s.held.is_some() => node == VICTIM,
                Some(s) => {
                    let applied = s.applied.last.index;
                    s.not_ready.is_none() && applied >= all && applied == s.last.index
                }
            };
            world.leader().is_some() && (0..NAMES.len()).all(agrees)
        };
        match script.run_until_true(done, script.now() + PATIENCE)? {
            true => Ok(()),
            false => Err(broken("progress", format!("they do not agree: {}", script.who_stands()))),
        }
    }

    /// Holds log and state of a member against what was acknowledged.
    fn compare(&self, script: &Script, node: usize) -> Verdict {
        let name = NAMES[node];
        let entries = script.entries(node)?;
        for (n, want) in self.truth.iter().enumerate() {
            if entries.get(n) != Some(want) {
                let found = entries.get(n);
                let what = format!("{name} serves {found:?} where {} was acknowledged", want.id);
                return Err(broken("durability", what));
            }
        }
        let view = script.view(node).ok_or_else(|| broken("plot", format!("{name} is down")))?;
        for (key, value) in &self.acked {
            let row = view.kv_get(key).map_err(|e| broken("durability", e.to_string()))?.value;
            if row.as_ref().map(|row| row.value.as_ref()) != Some(value.as_slice()) {
                let what = format!("{name} has lost {}", String::from_utf8_lossy(key));
                return Err(broken("durability", what));
            }
        }
        let digest = view.verify_digest();
        digest.map(drop).map_err(|e| broken(state_machine::PROPERTY, e.to_string()))
    }
}

/// A write of some hundred bytes, with its key and value.
fn put(n: u64) -> (Command, Vec<u8>, Vec<u8>) {
    let key = format!("k{n}").into_bytes();
    let value = format!("{n:->160}").into_bytes();
    (Command::KvPut { key: key.clone().into(), value: value.clone().into() }, key, value)
}

fn encoded(command: &Command) -> Result<bytes::Bytes, Violation> {
    command.encode(None).map_err(|e| broken("codec", e.to_string()))
}

fn write(
    script: &mut Script,
    node: usize,
    n: u64,
    acked: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> Verdict {
    let (command, key, value) = put(n);
    // A change of leaders may come between: the write is tried again, and its value is the same.
    for _ in 0..20 {
        if let Some(Outcome::Committed { .. }) = script.propose(node, &command)? {
            acked.insert(key, value);
            return Ok(());
        }
        script.run_for(SECOND / 4)?;
    }
    Err(broken("plot", format!("write {n} is never acknowledged")))
}

fn lead(script: &mut Script, node: usize) -> Verdict {
    for _ in 0..40 {
        match script.leader() {
            Some(leader) if leader == node => return Ok(()),
            Some(leader) => {
                let to = script.member(node);
                script.ask(leader, Call::Transfer { to }, SECOND)?;
            }
            None => {}
        }
        script.run_for(SECOND / 10)?;
    }
    Err(broken("plot", format!("{} does not come to lead", NAMES[node])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every so many bytes: the whole is `holdfast-sim flip-every-byte`.
    const STRIDE: u64 = 257;

    #[test]
    fn no_flipped_bit_loses_or_falsifies_anything() {
        let bench = Bench::new(1).expect("the cluster");
        assert!(bench.files().iter().filter(|(path, _)| path.starts_with("log/0")).count() >= 3);
        let mut endings = BTreeMap::new();
        for number in (0..bench.places()).step_by(usize::try_from(STRIDE).unwrap_or(1)) {
            let ending = bench.flip(number).unwrap_or_else(|violation| panic!("{violation}"));
            *endings.entry(ending).or_insert(0) += 1;
        }
        assert!(endings.contains_key(&Ending::Harmless), "{endings:?}");
        assert!(endings.contains_key(&Ending::Repaired), "{endings:?}");
    }

    #[test]
    fn a_lost_or_wrong_entry_is_seen() {
        let mut bench = Bench::new(1).expect("the cluster");
        let place = bench.places() - 1;
        assert_eq!(bench.flip(place), Ok(Ending::Harmless));
        let key = bench.acked.keys().next().cloned().expect("acknowledged");
        let value = bench.acked.insert(key.clone(), b"another".to_vec()).expect("there");
        assert_eq!(bench.flip(place).map_err(|v| v.property), Err("durability"));
        bench.acked.insert(key, value);
        let last = bench.truth.last_mut().expect("an entry");
        last.time += 1;
        assert_eq!(bench.flip(place).map_err(|v| v.property), Err("log-matching"));
    }
}

//! Rot: bits of a log change although they were synced.
//!
//! Injected: flips of a few bits below the position that the log proves durable (R9), in records,
//! side index, headers and padding, while the process is down; each start reads every byte and finds
//! what it is about. Never injected: rot of what is not proved yet (within a second of the last write
//! it counts as the loss of the member, R10), of bytes that this very process has verified (R17), and
//! rot on more members at a time than may fail (fewer than half): until the log of one is whole again
//! or for ever, if it is held, the others of a majority keep theirs. A cluster must survive this
//! without losing or making up anything (R15); only progress may have to wait for whoever has the one
//! whole copy.

use super::World;
use crate::check::{Verdict, Violation};
use crate::choices::Stream;
use crate::faults::Fault;
use crate::trace::What;
use holdfast_consensus::Recovered;
use holdfast_log::{MemDisk, inspect};
use std::cmp::Ordering;

/// Most bits that change at once.
const BITS_MAX: u64 = 6;
/// How close together.
const NEAR: u64 = 6000;
/// Bytes of a segment's header that say something, about.
const HEADER: u64 = 120;
/// How far behind the first the second copy of a header lies.
const COPY: u64 = 4096;

/// The files of a log with the length up to which each is proved durable by what is synced. What a
/// killed process wrote and did not sync proves nothing of the disk: a watermark waits for its sync
/// for up to a second, and rot of the newest batch within that second is the loss of the member (R10).
/// Nothing if the log cannot be read, by an earlier flip. A file that the process gave up just before
/// it was killed is still named by what is synced, and has no bytes that could rot.
fn proved(disk: &MemDisk) -> Vec<(String, u64)> {
    let Ok(report) = inspect::verify(&disk.synced(&["log/", "snap/"])) else { return Vec::new() };
    let (segment, offset) = report.durable;
    let proved = |s: &inspect::SegmentInfo| match s.segment.cmp(&segment) {
        Ordering::Less => s.end,
        Ordering::Equal => offset,
        Ordering::Greater => 0,
    };
    let left = disk.files();
    let there = report.segments.iter().filter(|s| s.state != "missing");
    let there = there.filter(|s| left.contains_key(&s.file));
    there.map(|s| (s.file.clone(), proved(s))).collect()
}

impl World {
    /// The process of a node ends, and some bits of its log are others when it comes back.
    pub(super) fn rot(&mut self, node: usize, power: bool) -> Verdict {
        let others = self.nodes.iter().enumerate().filter(|(n, other)| *n != node && other.sick);
        let most = (self.nodes.len() - 1) / 2;
        // Before there is a cluster nothing is anybody's promise.
        if others.count() >= most || self.committed().0 == 0 {
            return Ok(());
        }
        if self.nodes[node].is_running() {
            self.crash(node, power);
        }
        let places = proved(&self.nodes[node].disk);
        let all: u64 = places.iter().map(|(_, len)| len).sum();
        for at in self.rotten(all, &places) {
            let bit = u8::try_from(self.choices.bits(Stream::Disk) % 8).unwrap_or(0);
            let mut at = at;
            for (file, len) in &places {
                if at < *len {
                    self.flip(node, file, at, bit)?;
                    break;
                }
                at -= len;
            }
        }
        Ok(())
    }

    /// Which bytes, counted over all proved places: anywhere, close together (a record and what the
    /// side index says of it), or the same byte of both headers of a segment, which leaves a member
    /// held if it is the newest.
    fn rotten(&mut self, all: u64, places: &[(String, u64)]) -> Vec<u64> {
        if all == 0 {
            return Vec::new();
        }
        let bits = self.choices.between(Stream::Disk, 1, BITS_MAX + 1);
        let mode = self.choices.between("rot-mode", 0, 12);
        if mode == 0 && !places.is_empty() {
            let segment = self.choices.pick("rot-segment", places.len());
            let start: u64 = places[..segment].iter().map(|(_, len)| len).sum();
            let at = start + self.choices.between("rot-header", 0, HEADER);
            return vec![at, at + COPY];
        }
        let near = mode < 7;
        let first = self.choices.between(Stream::Disk, 0, all);
        let mut hit = vec![first];
        for _ in 1..bits {
            hit.push(match near {
                true => first + self.choices.between("rot-near", 0, NEAR),
                false => self.choices.between(Stream::Disk, 0, all),
            });
        }
        // Close to the end there may be nothing proved any more.
        hit.retain(|at| *at < all);
        hit
    }

    /// A bit of what a disk had synced is another from now on.
    pub(super) fn flip(&mut self, node: usize, path: &str, offset: u64, bit: u8) -> Verdict {
        let n = &mut self.nodes[node];
        n.disk.flip_bit(path, offset, bit).map_err(|e| {
            Violation::new("plot", format!("{} {path} offset {offset}: {e}", n.name))
        })?;
        (n.damaged, n.sick) = (true, true);
        self.faults.count(Fault::Rotten);
        let text = format!("bit {bit} of byte {offset} of {path} is another");
        self.note(Some(node), || What::fault("rot", text));
        Ok(())
    }

    /// Nobody but the injector damages what was synced: what recovery calls damaged without that
    /// was lost by the product itself.
    pub(super) fn expects_damage(&mut self, node: usize, recovered: &Recovered) -> Verdict {
        let n = &mut self.nodes[node];
        let sound = recovered.holes.is_empty() && recovered.held.is_none();
        n.sick = !sound;
        if !sound && !n.damaged {
            let what = match &recovered.held {
                Some(why) => format!("{} is held: {why}", n.name),
                None => format!("{} has lost entries: {:?}", n.name, recovered.holes),
            };
            return Err(Violation::new("undamaged", format!("{what}; nobody damaged its disk")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Setup;
    use crate::trace::Trace;
    use holdfast_fsm::Command;
    use holdfast_log::disk::Disk;

    /// Seed 731383 of the default profile: a process was killed between the unlink of a segment and
    /// the sync of the directory, and rot was to strike the file that only the synced image had.
    #[test]
    fn a_file_that_was_given_up_before_the_kill_does_not_rot() {
        let mut script = World::scripted(1, &["n1"], Setup::quiet(1), Trace::default());
        script.start_all();
        script.run_until_serving().expect("a single member serves");
        script.run_for(2_000_000).expect("what is written is synced");
        let disk = script.disk(0);
        let (file, len) = proved(&disk).pop().expect("a segment");
        assert!(len > 0, "something of it is proved");
        disk.unlink(&file).expect("there");
        assert!(proved(&disk).iter().all(|(other, _)| *other != file));
    }

    /// Seed 353 of the default profile: a process was killed between the writing of a watermark and
    /// its sync, and rot struck what only that watermark proved.
    #[test]
    fn what_only_an_unsynced_watermark_proves_does_not_rot() {
        let mut script = World::scripted(1, &["n1"], Setup::quiet(1), Trace::default());
        script.start_all();
        script.run_until_serving().expect("a single member serves");
        let mut seen = false;
        for n in 0..20_u64 {
            let key = n.to_le_bytes().to_vec().into();
            let put = Command::KvPut { key, value: vec![7; 100].into() };
            script.propose(0, &put).expect("it is committed");
            // A watermark is written after 50 ms of idleness, and synced after a second (R10).
            script.run_for(100_000).expect("time passes");
            let disk = script.disk(0);
            let written = inspect::verify(&disk).expect("a log").durable;
            let synced = inspect::verify(&disk.synced(&["log/", "snap/"])).expect("a log").durable;
            let places = proved(&disk);
            let last = places.iter().rfind(|(_, len)| *len > 0).expect("something is proved");
            assert_eq!(last.1, synced.1, "as far as the disk proves, no further");
            seen |= synced < written;
        }
        assert!(seen, "no watermark was ever written and not synced");
    }
}

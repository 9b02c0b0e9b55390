//! The scrub of every log (R17): each node verifies its sealed segments again, a piece at a time,
//! while everything else goes on; what it finds goes to the replica as damage that a read meets.
//!
//! Checked: it finds nothing on a disk that nobody damaged, whatever is written, cut, compacted and
//! used again beside it.

use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::trace::What;
use holdfast_consensus::job::ReplicaInput;

/// Bytes of a log that one step verifies.
const STEP: u64 = 32 << 10;

impl World {
    /// The next step of a node's scrub, if there is to be one.
    pub(super) fn plan_scrub(&mut self, node: usize) {
        if self.setup.scrub > 0 {
            let life = self.nodes[node].life;
            self.queue.push(self.now + self.setup.scrub, Event::Scrub { node, life });
        }
    }

    pub(super) fn scrub(&mut self, node: usize, life: u64) -> Verdict {
        if !self.lives(node, life) {
            return Ok(());
        }
        if self.nodes[node].paused {
            self.held[node].push(Event::Scrub { node, life });
            return Ok(());
        }
        self.plan_scrub(node);
        let n = &mut self.nodes[node];
        // A disk that is gone reads nothing; its process dies at its next operation.
        if n.disk.is_blown() {
            return Ok(());
        }
        let (name, damaged) = (n.name.clone(), n.damaged);
        let Some(process) = n.process_mut() else { return Ok(()) };
        for finding in process.scrub.step(STEP).found {
            let what = format!("{} offset {}: {}", finding.file, finding.offset, finding.why);
            if !damaged {
                let why = format!("{name}: {what}; nobody damaged its disk");
                return Err(Violation::new("undamaged", why));
            }
            if finding.news {
                self.note(Some(node), || What::fault("scrub", what));
            }
            if let Some(fault) = finding.fault() {
                self.step(node, ReplicaInput::Damaged(fault))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Setup;
    use crate::trace::Trace;
    use crate::world::script::Script;
    use holdfast_fsm::Command;
    use holdfast_log::inspect;

    /// A node with a full segment, which is scrubbed.
    fn scrubbed() -> Script {
        let setup = Setup { segment_bytes: 32 << 10, ..Setup::quiet(1) };
        let mut script = World::scripted(1, &["n1"], setup, Trace::default());
        script.start_all();
        script.run_until_serving().expect("a single member serves");
        for n in 0..20_u64 {
            let key = n.to_le_bytes().to_vec().into();
            let put = Command::KvPut { key, value: vec![7; 100].into() };
            script.propose(0, &put).expect("it is committed");
        }
        script.scrub_every(10_000);
        script
    }

    #[test]
    fn a_sound_disk_passes_whatever_is_written_beside() {
        let mut script = scrubbed();
        for n in 0..40_u64 {
            let put =
                Command::KvPut { key: vec![1].into(), value: n.to_le_bytes().to_vec().into() };
            script.propose(0, &put).expect("it is committed");
        }
        script.run_for(5_000_000).expect("nothing is found");
    }

    #[test]
    fn what_nobody_damaged_is_a_violation() {
        let mut script = scrubbed();
        let disk = script.disk(0);
        let report = inspect::verify(&disk).expect("a log");
        assert!(report.segments.len() > 1, "one of them is full");
        // Behind the back of the world.
        disk.flip_bit(&report.segments[0].file, 8192 + 50, 3).expect("there");
        let found = script.run_for(5_000_000).expect_err("it is found");
        assert_eq!(found.property, "undamaged", "{found}");
    }
}

//! Clusters that begin again on disks of an older world (SCENARIOS N18, N19), and a second process
//! on a directory that is in use (N20).
//!
//! The checkers of a run hold everybody to what was committed. Where an operator puts a whole
//! cluster back to an earlier moment, or lets its nodes form a new one, that is broken by design:
//! they begin again as well, and know of the past what the restored disks hold. The ledger of
//! acknowledged records goes on: no metadata excuse what was acknowledged before.

use super::script::{DiskImage, Part, Script};
use crate::check::{Verdict, Violation};
use crate::choices::Actor;
use crate::node::{self, Node};
use holdfast_consensus::{Entry, MemberId};

/// All nodes of a cluster as a backup holds them.
#[derive(Clone, Debug, Default)]
pub struct Past {
    disks: Vec<DiskImage>,
    members: Vec<MemberId>,
    committed: Vec<Entry>,
}

impl Script {
    /// A backup of all nodes at one moment, whose log is read from one of them.
    ///
    /// # Errors
    /// If that node is down, or an entry cannot be read.
    pub fn backup(&self, reader: usize) -> Result<Past, Violation> {
        let committed = self.committed_index();
        let mut entries = self.entries(reader)?;
        entries.retain(|entry| entry.id.index <= committed);
        let nodes = 0..self.names().len();
        Ok(Past {
            disks: nodes.clone().map(|node| self.image(node)).collect(),
            members: nodes.map(|node| self.member(node)).collect(),
            committed: entries,
        })
    }

    /// Every node loses its power, and gets log and store of a backup in the place of its own; a
    /// backup of nothing leaves it with none. Data planes and accepted records stay as they are.
    /// The nodes stay down until they are started.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn put_back(&mut self, past: &Past) -> Verdict {
        if !self.acts(Actor::World, "put-back") {
            return Ok(());
        }
        let none = DiskImage::default();
        for node in 0..self.names().len() {
            self.crash_losing_all(node);
            self.begin_again(node);
            let image = past.disks.get(node).unwrap_or(&none);
            for part in [Part::Raft, Part::Store] {
                self.restore(node, image, part);
            }
        }
        let world = &mut self.world;
        world.stand_firm();
        world.suite = Default::default();
        world.progress = Default::default();
        world.liveness = Default::default();
        world.members.clear();
        self.remember(&past.members, &past.committed)
    }

    /// The node is as if it had never run, but for its disk, its clock and the count of its lives.
    fn begin_again(&mut self, node: usize) {
        let n = &mut self.world.nodes[node];
        let fresh = Node::new(n.name.clone(), n.clock);
        let old = std::mem::replace(n, fresh);
        n.disk = old.disk;
        n.life = old.life;
        n.kept_down = true;
    }

    /// Somebody starts a second process on the disk of a node whose first one runs or hangs.
    ///
    /// # Errors
    /// The property `one-process` if it comes up.
    pub fn start_beside(&mut self, node: usize) -> Verdict {
        if !self.acts(Actor::Node(node), "start-beside") || !self.is_running(node) {
            return Ok(());
        }
        let world = &self.world;
        let fresh = MemberId(1 + node as u64);
        let n = &world.nodes[node];
        match node::open(n, &world.setup, &world.names, fresh, 0, world.now) {
            Err(why) if !why.contains("another process uses the data directory") => {
                Err(Violation::new("plot", format!("the second start failed otherwise: {why}")))
            }
            Err(why) => {
                self.tell(
                    Some(node),
                    &format!("is started a second time, which is refused: {why}"),
                );
                Ok(())
            }
            Ok(_) => {
                let name = &n.name;
                let evidence = format!("two processes run on the directory of {name}");
                Err(Violation::new("one-process", evidence))
            }
        }
    }
}

//! Data planes that change their place, as operators and storage make it happen: the volume of one
//! node on another, a rescued copy, an empty disk (SCENARIOS N21; RULES R33).

use super::script::Script;
use crate::broker::layout;
use crate::choices::Actor;
use std::collections::BTreeMap;

impl Script {
    /// Puts the data plane of one node that is down into the place of another's: its volume is
    /// mounted there. The first is left without.
    pub fn move_topics(&mut self, from: usize, to: usize) {
        if !self.acts(Actor::Link(from, to), "move-topics") {
            return;
        }
        let is_data = |path: &String| layout::is_data(path);
        let mut files = self.world.nodes[from].disk.files();
        let moved: BTreeMap<_, _> = files.extract_if(.., |path, _| is_data(path)).collect();
        self.world.nodes[from].disk = self.world.nodes[from].disk.with_files(files);
        let mut files = self.world.nodes[to].disk.files();
        files.retain(|path, _| !is_data(path));
        files.extend(moved);
        self.world.nodes[to].disk = self.world.nodes[to].disk.with_files(files);
    }

    /// As [`Script::move_topics`], but only the copies themselves: what says whose volume it is
    /// stays behind, and the copies lie among those of the other node.
    pub fn move_copies(&mut self, from: usize, to: usize) {
        if !self.acts(Actor::Link(from, to), "move-copies") {
            return;
        }
        let mut files = self.world.nodes[from].disk.files();
        let moved: BTreeMap<_, _> = files.extract_if(.., |path, _| layout::is_copy(path)).collect();
        self.world.nodes[from].disk = self.world.nodes[from].disk.with_files(files);
        let mut files = self.world.nodes[to].disk.files();
        files.extend(moved);
        self.world.nodes[to].disk = self.world.nodes[to].disk.with_files(files);
    }

    /// The data plane of a node that is down is lost: an empty disk takes its place.
    pub fn lose_topics(&mut self, node: usize) {
        if !self.acts(Actor::Node(node), "lose-topics") {
            return;
        }
        let mut files = self.world.nodes[node].disk.files();
        files.retain(|path, _| !layout::is_data(path));
        self.world.nodes[node].disk = self.world.nodes[node].disk.with_files(files);
    }
}

//! A canonical hash of a core, for exhaustive search: equal states hash equal, whatever the time
//! and the generator. Writes count by their distance from the last confirmed one, because nothing
//! but their order matters: two ways to one state that differ in how many writes they took meet.

use super::Core;
use super::role::Role;
use crate::types::Seq;
use std::hash::{Hash, Hasher};

/// FNV-1a over 128 bits, byte order fixed, so that every machine agrees.
struct Fnv(u128);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        u64::try_from(self.0 & u128::from(u64::MAX)).expect("masked to 64 bits")
    }

    fn write(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_u128(&mut self, value: u128) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write(&(value as i64).to_le_bytes());
    }
}

impl Core {
    /// A canonical hash of the state without absolute time, absolute numbers of writes and
    /// generator, for exhaustive search. Of time it tells only what has been set: who searches
    /// with it lets a clock move on its own member's wakes alone.
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        let mut h = Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        self.hash_shared(&mut h);
        self.hash_disk(&mut h);
        self.hash_role(&mut h);
        h.0
    }

    fn hash_shared(&self, h: &mut Fnv) {
        let s = &self.shared;
        (s.config.member, s.hard(), self.ahead(s.hard_seq()), s.commit(), s.leader).hash(h);
        (s.heard.is_some(), s.low, s.starved, s.stopped, s.announce).hash(h);
        s.contact.map(|c| (c.leader, c.term, c.commit, c.own_term)).hash(h);
        (&s.expecting, s.fetches, s.transfers).hash(h);
        for (seq, promise) in s.outbox.held() {
            (self.ahead(*seq), promise).hash(h);
        }
        (s.log.base(), s.log.last(), s.log.terms(), s.log.memberships()).hash(h);
        s.log.snapshot().hash(h);
        (s.log.holes(), s.held).hash(h);
        s.repair.hash_shape(h);
        for entry in s.log.tail().iter() {
            (entry.id, &entry.body).hash(h);
        }
    }

    fn hash_disk(&self, h: &mut Fnv) {
        let d = &self.shared.disk;
        (self.ahead(d.next()), d.durable(), d.hard(), d.poisoned(), d.capped()).hash(h);
        d.reset().map(|(seq, meta)| (self.ahead(*seq), meta)).hash(h);
        for pending in d.pending() {
            (self.ahead(pending.seq), pending.end, pending.hard).hash(h);
        }
    }

    /// How many writes before this one are not confirmed; zero if it is.
    fn ahead(&self, seq: Seq) -> u64 {
        seq.0.saturating_sub(self.shared.disk.done().0)
    }

    fn hash_role(&self, h: &mut Fnv) {
        self.role.kind().hash(h);
        match &self.role {
            Role::Follower(_) => {}
            Role::PreCandidate(role) => role.answers.hash(h),
            Role::Candidate(role) => {
                (&role.answers, role.deadline.is_some(), role.transfer).hash(h);
            }
            Role::Leader(leader) => {
                (leader.term_start, leader.round, leader.uncommitted()).hash(h);
                (leader.transfer.as_ref().map(|t| t.to), leader.room_again > 0).hash(h);
                for (member, p) in &leader.peers {
                    (member, p.matched, p.next, p.feed, p.flight(), p.answered_round).hash(h);
                    p.search_state().hash(h);
                }
                leader.reads.newest_broadcast().hash(h);
                for read in leader.reads.shape() {
                    read.hash(h);
                }
            }
        }
    }
}

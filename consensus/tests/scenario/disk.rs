//! What a node's disk holds for certain.

use holdfast_consensus::entries::Entries;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::types::*;

/// A write that was handed out.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Persist(Persist),
    Reset { seq: Seq, meta: SnapshotMeta, last: LogId },
}

impl Write {
    pub(crate) fn seq(&self) -> Seq {
        match self {
            Self::Persist(persist) => persist.seq,
            Self::Reset { seq, .. } => *seq,
        }
    }
}

/// Stable storage.
#[derive(Clone, Debug)]
pub(crate) struct Stable {
    pub(crate) hard: HardState,
    pub(crate) base: LogId,
    base_time: Micros,
    base_membership: Option<(Index, Membership)>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) snapshot: Option<SnapshotMeta>,
    /// Commit index stored with the last watermark.
    pub(crate) floor: Index,
}

impl Stable {
    /// A log whose first entry is the configuration, as founding leaves it.
    pub(crate) fn founded(membership: &Membership) -> Self {
        let id = LogId::new(0, 1);
        let body = Body::Membership(membership.clone().into());
        Self {
            hard: HardState::default(),
            base: LogId::default(),
            base_time: 0,
            base_membership: None,
            entries: vec![Entry { id, time: 0, body }],
            snapshot: None,
            floor: Index(0),
        }
    }

    pub(crate) fn last(&self) -> LogId {
        self.entries.last().map_or(self.base, |e| e.id)
    }

    fn id_at(&self, index: Index) -> Option<LogId> {
        if index == self.base.index {
            return Some(self.base);
        }
        self.entries.iter().find(|e| e.id.index == index).map(|e| e.id)
    }

    /// True if the entry is on this disk, in the log or in what its base or snapshot covers.
    pub(crate) fn holds(&self, id: LogId) -> bool {
        let covered = self.snapshot.as_ref().is_some_and(|s| s.last.index >= id.index);
        id.index < self.base.index || covered || self.id_at(id.index) == Some(id)
    }

    pub(crate) fn carry_out(&mut self, write: &Write) {
        match write {
            Write::Persist(persist) => {
                if let Some(from) = persist.truncate_from {
                    assert!(from > self.base.index, "cut below the base");
                    self.entries.retain(|e| e.id.index < from);
                }
                for entry in &persist.append {
                    assert_eq!(entry.id.index, self.last().index.next(), "no gaps on disk");
                    self.entries.push(entry.clone());
                }
                if let Some(hard) = persist.hard {
                    assert!(hard.term >= self.hard.term, "terms never fall on disk");
                    self.hard = hard;
                }
            }
            Write::Reset { meta, last, .. } => {
                self.reset(meta);
                assert_eq!(self.last(), *last, "core and log agree on the suffix");
            }
        }
    }

    fn reset(&mut self, meta: &SnapshotMeta) {
        if meta.last.index <= self.base.index {
            return;
        }
        if self.id_at(meta.last.index) == Some(meta.last) {
            self.entries.retain(|e| e.id.index > meta.last.index);
        } else {
            self.entries.clear();
        }
        self.base = meta.last;
        self.base_time = meta.time;
        self.base_membership = Some((meta.membership_index, meta.membership.clone()));
    }

    pub(crate) fn publish(&mut self, meta: &SnapshotMeta) {
        if self.snapshot.as_ref().is_none_or(|s| s.last.index < meta.last.index) {
            self.snapshot = Some(meta.clone());
        }
    }

    pub(crate) fn compact(&mut self, first: Index) {
        let Some(base) = self.id_at(first.prev()).filter(|b| b.index > self.base.index) else {
            return;
        };
        self.base_membership = self.memberships().into_iter().rfind(|(i, _)| *i <= base.index);
        let time = self.entries.iter().find(|e| e.id == base).map(|e| e.time);
        self.base_time = time.unwrap_or(self.base_time);
        self.entries.retain(|e| e.id.index > base.index);
        self.base = base;
    }

    fn memberships(&self) -> Vec<(Index, Membership)> {
        let mut all: Vec<_> = self.base_membership.clone().into_iter().collect();
        all.extend(self.entries.iter().filter_map(|e| match &e.body {
            Body::Membership(m) => Some((e.id.index, m.as_ref().clone())),
            _ => None,
        }));
        all
    }

    /// The label of a snapshot at an entry that is held.
    pub(crate) fn label(&self, last: LogId) -> SnapshotMeta {
        let (membership_index, membership) = self
            .memberships()
            .into_iter()
            .rfind(|(index, _)| *index <= last.index)
            .expect("a founded log has a configuration");
        let time = self.entries.iter().find(|e| e.id == last).map_or(self.base_time, |e| e.time);
        SnapshotMeta { last, time, membership, membership_index, bytes: 100, ..Default::default() }
    }

    pub(crate) fn read(
        &self,
        from: Index,
        to: Index,
        max_bytes: usize,
    ) -> Result<Entries, LogFault> {
        if from <= self.base.index {
            return Err(LogFault::Compacted { first: self.base.index.next() });
        }
        let wanted = |e: &&Entry| e.id.index >= from && e.id.index <= to;
        let entries: Vec<_> = self.entries.iter().filter(wanted).cloned().collect();
        if entries.is_empty() {
            return Err(LogFault::Refused("not durable".into()));
        }
        Ok(Entries::new(entries).expect("stable entries are ordered").within(max_bytes))
    }

    /// What a start proves, with the base of a newer published snapshot put in first.
    pub(crate) fn recover(&mut self) -> Recovered {
        if let Some(meta) = self.snapshot.clone()
            && self.id_at(meta.last.index) != Some(meta.last)
        {
            self.reset(&meta);
        }
        let mut terms: Vec<LogId> = Vec::new();
        for entry in &self.entries {
            if terms.last().is_none_or(|t| t.term != entry.id.term) {
                terms.push(entry.id);
            }
        }
        Recovered {
            hard: self.hard,
            first: self.base.index.next(),
            base: self.base,
            last: self.last(),
            time: self.entries.last().map_or(self.base_time, |e| e.time),
            terms,
            memberships: self.memberships(),
            snapshot: self.snapshot.clone(),
            commit: self.floor,
            boot: 1,
            holes: Vec::new(),
            held: None,
        }
    }
}

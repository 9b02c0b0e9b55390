//! The search: every sequence, every moment of its last step, every outcome, each recovered once.

use super::content::Content;
use super::steps::{Allowed, Life, Moments, OPTIONS, OWNER, Step};
use super::{Bounds, Report, Start, Violation};
use crate::disk::Disk;
use crate::log::Log;
use crate::mem_disk::{Coverage, CrashPoint, KeepAll, LoseAll, MemDisk, Outcome, Reach};
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{Body, Entries, Entry, HardState, Index, LogId, Seq, Term};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What became of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// Digest of the content that its recovery reported.
    found: u64,
    /// Digests of every content that a recovery of it, cut short or not, can end in.
    pub(super) reached: Vec<u64>,
    /// Lowest number of a start among them.
    pub(super) boot: u64,
    /// Highest commit index among them.
    pub(super) commit: Index,
    /// How deep crashes inside its recovery were followed.
    depth: u32,
}

pub(super) struct Search<'o, D: Disk> {
    over: &'o dyn Fn(MemDisk) -> D,
    bounds: Bounds,
    pub(super) report: Report,
    seen: BTreeMap<u64, Rc<Judged>>,
}

impl<'o, D: Disk> Search<'o, D> {
    pub(super) fn new(over: &'o dyn Fn(MemDisk) -> D, bounds: Bounds) -> Self {
        Self { over, bounds, report: Report::default(), seen: BTreeMap::new() }
    }

    /// Every sequence of every start, short ones first.
    pub(super) fn run(&mut self) -> Result<(), Box<Violation>> {
        for length in 0..=self.bounds.ops {
            for start in Start::ALL {
                let mut sequence = Vec::new();
                self.sequences(start, length, &mut sequence)?;
            }
        }
        Ok(())
    }

    fn sequences(
        &mut self,
        start: Start,
        left: u32,
        sequence: &mut Vec<Step>,
    ) -> Result<(), Box<Violation>> {
        if left == 0 {
            return self.sequence(start, sequence);
        }
        for step in Step::ALL {
            sequence.push(step);
            self.sequences(start, left - 1, sequence)?;
            sequence.pop();
        }
        Ok(())
    }

    /// One sequence: the moments of all but its last step belong to shorter ones.
    fn sequence(&mut self, start: Start, sequence: &[Step]) -> Result<(), Box<Violation>> {
        let moments =
            self.live(start, sequence).map_err(|why| violation(start, sequence, "", why))?;
        let Some(moments) = moments else { return Ok(()) };
        self.report.sequences += 1;
        let depth =
            if sequence.len() <= self.bounds.inside as usize { self.bounds.depth } else { 0 };
        for (point, allowed) in &moments {
            self.report.points += 1;
            self.moment(point, allowed, depth)
                .map_err(|why| violation(start, sequence, point.next(), why))?;
        }
        Ok(())
    }

    /// The moments of the last step; `None` if a step has no meaning where it stands.
    fn live(&self, start: Start, sequence: &[Step]) -> Result<Option<Moments>, String> {
        let mut life = Life::new(self.over);
        if sequence.is_empty() {
            life.watch();
        }
        life.open()?;
        for step in start.steps() {
            if !life.act(*step)? {
                return Err(format!("{step:?} has no meaning in a start"));
            }
        }
        for (n, step) in sequence.iter().enumerate() {
            if n + 1 == sequence.len() {
                life.watch();
            }
            if !life.act(*step)? {
                return Ok(None);
            }
        }
        Ok(Some(life.moments()))
    }

    /// Every outcome of a moment must be allowed.
    fn moment(
        &mut self,
        point: &CrashPoint,
        allowed: &Rc<Allowed>,
        depth: u32,
    ) -> Result<(), String> {
        let reach = self.reach(self.bounds.draws);
        let coverage = point.outcomes(&reach, &mut |outcome| {
            self.report.outcomes += 1;
            let judged = self.judge(outcome, depth)?;
            let checked = allowed.check(&judged);
            checked.map_err(|why| self.explain(outcome, allowed, &why, &judged))
        })?;
        match coverage {
            Coverage::Whole => self.report.whole += 1,
            Coverage::Subsets => self.report.subsets += 1,
            Coverage::Sampled => self.report.sampled += 1,
        }
        Ok(())
    }

    fn reach(&self, draws: usize) -> Reach {
        Reach { bound: self.bounds.outcomes, samples: 64, draws, seed: self.bounds.seed }
    }

    /// Recovers an image, if no equal one was, and follows crashes inside that recovery.
    fn judge(&mut self, outcome: &Outcome<'_>, depth: u32) -> Result<Rc<Judged>, String> {
        if let Some(known) = self.seen.get(&outcome.hash)
            && known.depth >= depth
        {
            return Ok(Rc::clone(known));
        }
        let disk = outcome.disk();
        if depth > 0 {
            disk.watch();
        }
        self.report.images += u64::from(!self.seen.contains_key(&outcome.hash));
        self.report.recoveries += 1;
        let log = Log::open((self.over)(disk.clone()), OWNER, OPTIONS)
            .map_err(|e| format!("the log does not open: {e}"))?;
        let content = Content::of(&log)?;
        let (found, recovered) = (content.digest(), log.recovered());
        if log.owner().member != OWNER.member {
            return Err(format!("the log says that it belongs to member {}", log.owner().member));
        }
        let mut judged = Judged {
            found,
            reached: vec![found],
            boot: recovered.boot,
            commit: recovered.commit,
            depth,
        };
        if depth > 0 {
            self.inside(&disk, &mut judged)?;
            self.go_on(&disk, log, content)?;
        }
        let judged = Rc::new(judged);
        self.seen.insert(outcome.hash, Rc::clone(&judged));
        Ok(judged)
    }

    /// Crashes inside the recovery that just ended on this disk, and right behind it.
    fn inside(&mut self, disk: &MemDisk, judged: &mut Judged) -> Result<(), String> {
        let reach = self.reach(0);
        for point in disk.take_points() {
            self.report.inner_points += 1;
            point.outcomes(&reach, &mut |outcome| {
                self.report.outcomes += 1;
                let inner = self.judge(outcome, judged.depth - 1).map_err(|why| {
                    format!("after a crash inside the recovery, before {}: {why}", point.next())
                })?;
                judged.boot = judged.boot.min(inner.boot);
                judged.commit = judged.commit.max(inner.commit);
                for digest in &inner.reached {
                    if !judged.reached.contains(digest) {
                        judged.reached.push(*digest);
                    }
                }
                Ok(())
            })?;
        }
        // What a recovery has reported stays.
        disk.point().outcomes(&reach, &mut |outcome| {
            self.report.outcomes += 1;
            let inner = self.judge(outcome, judged.depth - 1)?;
            if inner.reached.iter().all(|digest| *digest == judged.found) {
                return Ok(());
            }
            Err("a recovery reported a content, and the next one found another".to_owned())
        })?;
        Ok(())
    }

    /// A recovered log takes another entry, and that one too is found by the next recovery,
    /// whatever stood behind the cut (BUGS B34).
    fn go_on(
        &mut self,
        disk: &MemDisk,
        mut log: Log<D>,
        mut content: Content,
    ) -> Result<(), String> {
        let hard = HardState {
            term: Term(content.hard.term.0.max(content.last().term.0) + 1),
            voted_for: None,
        };
        let id = LogId { term: hard.term, index: content.last().index.next() };
        let time = log.recovered().time + 1;
        let append = Entries::new(vec![Entry { id, time, body: Body::Blank }]).unwrap_or_default();
        let batch = Persist { seq: Seq(1), truncate_from: None, append, hard: Some(hard) };
        log.persist(std::slice::from_ref(&batch))
            .map_err(|e| format!("a recovered log does not go on: {e}"))?;
        content.apply(&batch);
        drop(log);
        let point = disk.point();
        for after in [point.whole(&mut LoseAll), point.whole(&mut KeepAll)] {
            self.report.recoveries += 1;
            let log = Log::open((self.over)(after), OWNER, OPTIONS)
                .map_err(|e| format!("second opening: {e}"))?;
            let found = Content::of(&log)?;
            if found.digest() != content.digest() {
                return Err(format!("went on after a recovery to {content}\nand found {found}"));
            }
        }
        Ok(())
    }

    /// A violation in words: the image is recovered once more.
    fn explain(
        &self,
        outcome: &Outcome<'_>,
        allowed: &Allowed,
        why: &str,
        judged: &Judged,
    ) -> String {
        let found =
            Log::open((self.over)(outcome.disk()), OWNER, OPTIONS).map_err(|e| e.to_string());
        let found = found.and_then(|log| Content::of(&log)).map_or_else(|e| e, |c| c.to_string());
        let mut lines = vec![format!("{why}\nfound   {found}")];
        if judged.reached.len() > 1 {
            lines.push(format!(
                "and {} others by a crash inside the recovery",
                judged.reached.len() - 1
            ));
        }
        lines.extend(allowed.contents.iter().map(|content| format!("allowed {content}")));
        lines.push(format!("the image: {outcome}"));
        lines.join("\n")
    }
}

fn violation(start: Start, sequence: &[Step], next: &str, what: String) -> Box<Violation> {
    Box::new(Violation { start, sequence: sequence.to_vec(), next: next.to_owned(), what })
}

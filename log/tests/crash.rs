//! Crashes at every disk operation of short histories, with every kind of loss, and again behind
//! the recovery: what was acknowledged is there, nothing is invented, term and vote are right.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::traits::{LogReader, LogStore, SpareWork};
use holdfast_consensus::{
    Body, Entries, Entry, HardState, Index, LogId, MemberId, Membership, Seq, SnapshotMeta, Term,
};
use holdfast_log::mem_disk::{KeepAll, LoseAll, Op, PowerLoss, RandomLoss};
use holdfast_log::{Log, LogOptions, MemDisk, Owner};

const OPTIONS: LogOptions = LogOptions { segment_bytes: 32 << 10 };

fn open(disk: &MemDisk) -> Result<Log<MemDisk>, LogFault> {
    Log::open(disk.clone(), Owner { member: MemberId(7), ..Owner::default() }, OPTIONS)
}

/// What the log should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    hard: HardState,
    base: LogId,
    entries: Vec<Entry>,
}

impl Model {
    fn empty() -> Self {
        Self { hard: HardState::default(), base: LogId::default(), entries: Vec::new() }
    }

    fn last(&self) -> LogId {
        self.entries.last().map_or(self.base, |e| e.id)
    }

    fn keep_below(&mut self, from: Index) {
        self.entries.retain(|e| e.id.index < from);
    }

    fn drop_through(&mut self, through: Index) {
        if let Some(id) = self.entries.iter().map(|e| e.id).rfind(|id| id.index <= through) {
            self.base = id;
        }
        self.entries.retain(|e| e.id.index > through);
    }

    fn reset(&mut self, meta: &SnapshotMeta) {
        if meta.last.index <= self.base.index {
            return;
        }
        if self.entries.iter().any(|e| e.id == meta.last) {
            self.drop_through(meta.last.index);
        } else {
            self.entries.clear();
        }
        self.base = meta.last;
    }

    fn of(log: &Log<MemDisk>) -> Self {
        let found = log.recovered();
        let mut entries = Vec::new();
        let mut from = found.first;
        while from <= found.last.index {
            let piece = log.reader().read(from, found.last.index, 4000).expect("entries read back");
            entries.extend(piece.iter().cloned());
            from = piece.last().expect("at least one").index.next();
        }
        assert_eq!(found.first, found.base.index.next());
        let model = Self { hard: found.hard, base: found.base, entries };
        assert_eq!(model.last(), found.last, "recovered() and the reader agree");
        let mut terms: Vec<LogId> = Vec::new();
        for id in model.entries.iter().map(|e| e.id) {
            if terms.last().is_none_or(|run| run.term != id.term) {
                terms.push(id);
            }
        }
        assert_eq!(found.terms, terms, "runs of terms");
        model
    }
}

/// Something to do to a log.
#[derive(Clone, Debug)]
enum Step {
    Persist(Vec<Persist>),
    Watermark(Index),
    Spares,
    Compact(Index),
    Reset(Box<SnapshotMeta>),
}

/// Writes histories.
struct Author {
    rng: SplitMix64,
    seq: u64,
    nonce: u64,
    commit: u64,
}

impl Author {
    fn new(seed: u64) -> Self {
        Self { rng: SplitMix64::new(seed), seq: 0, nonce: seed << 32, commit: 0 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn entry(&mut self, term: u64, index: u64) -> Entry {
        self.nonce += 1;
        let body = match self.below(8) {
            0 => Body::Blank,
            1 => {
                let names = (1..=1 + self.below(3)).map(|n| (MemberId(n), format!("n{n}")));
                Body::Membership(Membership::of_voters(names).into())
            }
            _ => {
                let len = [8, 100, 3000, 9000][usize::try_from(self.below(4)).unwrap()];
                let mut payload = vec![self.nonce.to_le_bytes()[0]; len];
                payload[..8].copy_from_slice(&self.nonce.to_le_bytes());
                Body::Command(Bytes::from(payload))
            }
        };
        Entry { id: LogId::new(term, index), time: index * 10, body }
    }

    fn batch(&mut self, model: &Model) -> Persist {
        self.seq += 1;
        let (mut term, last) = (model.hard.term.0.max(1), model.last().index.0);
        let mut hard = None;
        let floor = self.commit.max(model.base.index.0);
        let mut cut = None;
        if last > floor && self.below(4) == 0 {
            cut = Some(floor + 1 + self.below(last - floor));
        }
        if cut.is_some() || self.below(3) == 0 || model.hard.term == Term(0) {
            term += 1;
            let vote = (self.below(2) == 0).then_some(MemberId(1 + self.below(3)));
            hard = Some(HardState { term: Term(term), voted_for: vote });
        }
        let first = cut.unwrap_or(last + 1);
        let count = self.below(5);
        let append = (first..first + count).map(|i| self.entry(term, i)).collect();
        let append = Entries::new(append).expect("in order");
        Persist { seq: Seq(self.seq), truncate_from: cut.map(Index), append, hard }
    }

    fn step(&mut self, model: &Model) -> Step {
        let (base, last) = (model.base.index.0, model.last().index.0);
        match self.below(10) {
            0 => Step::Spares,
            1 | 2 => {
                self.commit = self.commit.max(base + self.below(last - base + 1));
                Step::Watermark(Index(self.commit))
            }
            3 if self.commit > base => {
                Step::Compact(Index(base + self.below(self.commit - base) + 1))
            }
            4 if self.below(3) == 0 => {
                let at = self.commit.max(base) + 1 + self.below(6);
                let known = model.entries.iter().find(|e| e.id.index.0 == at).map(|e| e.id);
                let id = known.filter(|_| self.below(2) == 0);
                let id = id.unwrap_or(LogId::new(model.hard.term.0.max(1), at));
                self.commit = at;
                Step::Reset(Box::new(SnapshotMeta {
                    last: id,
                    time: at * 10,
                    ..Default::default()
                }))
            }
            _ => {
                let mut after = model.clone();
                let batches = (0..=self.below(2)).map(|_| {
                    let batch = self.batch(&after);
                    apply(&mut after, &batch);
                    batch
                });
                Step::Persist(batches.collect())
            }
        }
    }
}

fn apply(model: &mut Model, batch: &Persist) {
    if let Some(from) = batch.truncate_from {
        model.keep_below(from);
    }
    model.entries.extend(batch.append.iter().cloned());
    model.hard = batch.hard.unwrap_or(model.hard);
}

/// Does one step; the model follows only if it was acknowledged.
fn act(log: &mut Log<MemDisk>, step: &Step, model: &mut Model) -> Result<(), LogFault> {
    match step {
        Step::Persist(batches) => {
            log.persist(batches)?;
            batches.iter().for_each(|b| apply(model, b));
        }
        Step::Watermark(commit) => log.watermark(*commit)?,
        Step::Spares => {
            while let Some(mut spare) = log.spare() {
                while !spare.step()? {}
                log.add_spare(spare)?;
            }
        }
        Step::Compact(through) => {
            let first = log.compact(*through)?;
            assert!(first.prev() <= *through || first == model.base.index.next());
            model.drop_through(first.prev());
        }
        Step::Reset(meta) => {
            let last = log.reset(meta)?;
            model.reset(meta);
            assert_eq!(last, model.last());
        }
    }
    Ok(())
}

/// Every state that may be found if `step` was cut short on top of `model`.
fn outcomes(model: &Model, step: Option<&Step>) -> Vec<Model> {
    let mut all = vec![model.clone()];
    match step {
        Some(Step::Persist(batches)) => {
            let hard = batches.iter().rev().find_map(|b| b.hard).unwrap_or(model.hard);
            let mut now = Model { hard, ..model.clone() };
            all.push(now.clone());
            for batch in batches {
                let whole = batch.truncate_from.is_some();
                if let Some(from) = batch.truncate_from {
                    now.keep_below(from);
                }
                for entry in &batch.append {
                    now.entries.push(entry.clone());
                    if !whole {
                        all.push(now.clone());
                    }
                }
                all.push(now.clone());
            }
        }
        Some(Step::Compact(through)) => {
            for index in model.base.index.0..=through.0 {
                let mut now = model.clone();
                now.drop_through(Index(index));
                all.push(now);
            }
        }
        Some(Step::Reset(meta)) => {
            let mut now = model.clone();
            now.reset(meta);
            all.push(now);
        }
        _ => {}
    }
    all
}

fn describe(model: &Model) -> String {
    let ids: Vec<String> = model.entries.iter().map(|e| e.id.to_string()).collect();
    format!("{:?} base {} [{}]", model.hard, model.base, ids.join(" "))
}

/// Checks an opened log against the possible outcomes.
fn check(log: &Log<MemDisk>, allowed: &[Model], boot: &mut u64, what: &str) -> Model {
    let found = Model::of(log);
    assert!(
        allowed.contains(&found),
        "{what}: found {}\nallowed {}",
        describe(&found),
        allowed.iter().map(describe).collect::<Vec<_>>().join("\n        ")
    );
    assert!(log.recovered().boot > *boot, "{what}: the boot number rises");
    *boot = log.recovered().boot;
    found
}

/// Opens the log and checks it.
fn recover(disk: &MemDisk, allowed: &[Model], boot: &mut u64, what: &str) -> (Log<MemDisk>, Model) {
    let log = open(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = check(&log, allowed, boot, what);
    (log, found)
}

fn loss(choice: u64, seed: u64) -> Box<dyn PowerLoss> {
    match choice % 6 {
        0 => Box::new(LoseAll),
        1 => Box::new(KeepAll),
        _ => Box::new(RandomLoss::new(seed)),
    }
}

/// One life: opens, does `steps` steps or stops where the fuse blows, be it in the open itself,
/// then loses power. Returns the disk that is left and what may be on it.
fn life(
    disk: &MemDisk,
    author: &mut Author,
    allowed: &[Model],
    boot: &mut u64,
    (steps, fuse): (u64, Option<u64>),
    loss: &mut dyn PowerLoss,
    what: &str,
) -> (MemDisk, Vec<Model>) {
    disk.set_fuse(fuse);
    let mut log = match open(disk) {
        Ok(log) => log,
        Err(fault) => {
            assert!(
                disk.is_blown(),
                "{what}: only the fuse may keep the log from opening: {fault}"
            );
            return (disk.crash(loss), allowed.to_vec());
        }
    };
    if disk.is_blown() {
        // The last operation of the open was the last of all: nothing can be read any more.
        return (disk.crash(loss), allowed.to_vec());
    }
    let mut model = check(&log, allowed, boot, what);
    author.commit = author.commit.min(model.last().index.0).max(model.base.index.0);
    let mut pending = None;
    for _ in 0..steps {
        let step = author.step(&model);
        if let Err(fault) = act(&mut log, &step, &mut model) {
            assert!(disk.is_blown(), "{what}: {step:?}: {fault}");
            pending = Some(step);
            break;
        }
    }
    (disk.crash(loss), outcomes(&model, pending.as_ref()))
}

/// Four lives behind each other: the first is cut at operation `fuse`, the others somewhere in or
/// behind their recovery.
fn explore(seed: u64, fuse: u64, choice: u64) {
    let what = format!("seed {seed} fuse {fuse} loss {choice}");
    let (mut author, mut boot) = (Author::new(seed), 0);
    let (mut disk, mut allowed) = (MemDisk::new(), vec![Model::empty()]);
    let mut cut = fuse;
    for round in 0..4 {
        let mut loss = loss(choice + round, seed ^ (fuse << 16) ^ (choice + round));
        let life =
            life(&disk, &mut author, &allowed, &mut boot, (12, Some(cut)), loss.as_mut(), &what);
        (disk, allowed) = life;
        cut = author.below(40);
    }
    recover(&disk, &allowed, &mut boot, &what);
}

#[test]
fn a_crash_at_any_operation_with_any_loss_keeps_what_was_acknowledged() {
    for seed in 0..24 {
        for fuse in 0..80 {
            for choice in 0..4 {
                explore(seed, fuse, choice);
            }
        }
    }
}

#[test]
fn long_histories_in_many_lives_keep_what_was_acknowledged() {
    for seed in 1000..1060 {
        let (mut author, mut boot) = (Author::new(seed), 0);
        let (mut disk, mut allowed) = (MemDisk::new(), vec![Model::empty()]);
        for round in 0..12 {
            let mut loss = loss(author.below(6), seed ^ round);
            let what = format!("seed {seed} round {round}");
            let fuse = (author.below(3) > 0).then(|| author.below(80));
            (disk, allowed) =
                life(&disk, &mut author, &allowed, &mut boot, (25, fuse), loss.as_mut(), &what);
        }
        recover(&disk, &allowed, &mut boot, &format!("seed {seed} end"));
    }
}

#[test]
fn after_a_failed_operation_the_log_reopens_at_exactly_what_it_acknowledged() {
    for seed in 0..120 {
        let (mut author, mut boot) = (Author::new(seed), 0);
        let disk = MemDisk::new();
        let (mut log, mut model) = recover(&disk, &[Model::empty()], &mut boot, "new");
        for round in 0..30 {
            let what = format!("seed {seed} round {round}");
            let op = [Op::Sync, Op::Write, Op::Rename, Op::SyncDir, Op::Create, Op::Unlink]
                [usize::try_from(author.below(6)).unwrap()];
            if author.below(3) == 0 {
                disk.fail_next(op, "log/");
            }
            let step = author.step(&model);
            let old = model.clone();
            if let Err(fault) = act(&mut log, &step, &mut model) {
                disk.clear_failures();
                assert!(matches!(fault, LogFault::Poisoned { .. }), "{what}: {fault}");
                if !matches!(step, Step::Spares) {
                    assert!(log.watermark(Index(0)).is_err(), "{what}: poisoned until reopened");
                }
                log.reopen().unwrap_or_else(|e| panic!("{what}: {op:?} {step:?}: {e}"));
                model = Model::of(&log);
                // R12: this process never counts what it did not acknowledge.
                let allowed = match &step {
                    Step::Compact(_) => outcomes(&old, Some(&step)),
                    _ => vec![old],
                };
                assert!(allowed.contains(&model), "{what}: {op:?} {step:?} {}", describe(&model));
                author.commit = author.commit.min(model.last().index.0).max(model.base.index.0);
            }
            disk.clear_failures();
            assert_eq!(Model::of(&log), model, "{what}");
        }
        let disk = disk.crash(&mut RandomLoss::new(seed));
        recover(&disk, &[model], &mut boot, &format!("seed {seed} end"));
    }
}

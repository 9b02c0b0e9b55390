//! Damage on purpose, to a directory of a member that does not run: what a failing disk does, done
//! where somebody wants to watch what follows (`holdfast log verify`, the start of the node).
//!
//! Injected: flipped bits, ranges that read as zeros, files cut short, files lost. Never injected:
//! bytes that verify, since no disk makes a checksum. A member must survive all of it without
//! serving a wrong entry (RULES R9 to R18); with enough whole copies elsewhere it gets back what it
//! lost (R15).
//!
//! First everything is looked up and described ([`plan`]), then done ([`Step::carry_out`]): nothing
//! is changed if any part of the wish cannot be met.

use holdfast_consensus::fault::LogFault;
use holdfast_consensus::rng::SplitMix64;
use holdfast_log::inspect::{self, RecordInfo};
use holdfast_log::{Disk, DiskFile, Mode};
use std::fmt;
use std::io;

/// Bytes that are written at a time where a range becomes zeros.
const CHUNK: u64 = 64 << 10;

/// What somebody wants to see damaged. Files are relative to the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// One bit of a file.
    Flip {
        /// The file.
        file: String,
        /// Offset of the byte.
        offset: u64,
        /// The bit, 0 to 7.
        bit: u8,
    },
    /// A range of a file reads as zeros, as sectors that were never written do.
    Zero {
        /// The file.
        file: String,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A file ends early.
    Cut {
        /// The file.
        file: String,
        /// Its length from now on, in bytes.
        len: u64,
    },
    /// A file is lost.
    Lose {
        /// The file.
        file: String,
    },
    /// One bit of the newest record that holds this entry of the log, drawn from the seed.
    Entry {
        /// Index of the entry.
        index: u64,
    },
    /// So many bits of verifying records of the log, each of another record, drawn from the seed.
    Random {
        /// How many.
        bits: usize,
    },
}

/// Why nothing was damaged.
#[derive(Debug, thiserror::Error)]
pub enum DamageError {
    /// The disk does not do what it is asked to.
    #[error("{file}: {why}")]
    Disk {
        /// The file.
        file: String,
        /// What the system says.
        why: io::Error,
    },
    /// The log cannot be read to find its records.
    #[error("the log cannot be read: {0}")]
    Log(#[from] LogFault),
    /// There is nothing like that.
    #[error("{0}")]
    Nothing(String),
}

/// A change that can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The file.
    pub file: String,
    /// What is done to it.
    pub change: Change,
    /// The record that it hits, if it is one of the log.
    pub hits: Option<String>,
}

/// What is done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A bit of the byte at this offset is flipped.
    Flip(u64, u8),
    /// From this offset on, so many bytes become zeros.
    Zero(u64, u64),
    /// It is cut to this length, from that one.
    Cut(u64, u64),
    /// It is removed.
    Lose,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        match self.change {
            Change::Flip(offset, bit) => {
                write!(f, "{file}: bit {bit} of byte {offset} is flipped")?
            }
            Change::Zero(offset, len) => {
                write!(f, "{file}: {len} bytes from {offset} on become zeros")?;
            }
            Change::Cut(len, from) => write!(f, "{file}: is cut from {from} bytes to {len}")?,
            Change::Lose => write!(f, "{file}: is removed")?,
        }
        self.hits.as_ref().map_or(Ok(()), |hits| write!(f, " ({hits})"))
    }
}

/// Looks up what is wished for. The same directory, wishes and seed give the same steps.
///
/// # Errors
/// [`DamageError`] for the first wish that cannot be met; nothing is changed in any case.
pub fn plan<D: Disk>(disk: &D, wishes: &[Wish], seed: u64) -> Result<Vec<Step>, DamageError> {
    let mut rng = SplitMix64::new(seed);
    let records = Records::of(disk)?;
    let mut steps = Vec::new();
    for wish in wishes {
        match wish {
            Wish::Flip { file, offset, bit } => {
                within(disk, file, *offset, 1)?;
                let change = Change::Flip(*offset, bit % 8);
                steps.push(Step { hits: records.at(file, *offset), file: file.clone(), change });
            }
            Wish::Zero { file, offset, len } => {
                within(disk, file, *offset, *len)?;
                let change = Change::Zero(*offset, *len);
                steps.push(Step { hits: records.at(file, *offset), file: file.clone(), change });
            }
            Wish::Cut { file, len } => {
                let from = length(disk, file)?;
                if *len >= from {
                    let why = format!("{file} has {from} bytes: cut it to fewer, not to {len}");
                    return Err(DamageError::Nothing(why));
                }
                let change = Change::Cut(*len, from);
                steps.push(Step { hits: records.at(file, *len), file: file.clone(), change });
            }
            Wish::Lose { file } => {
                length(disk, file)?;
                steps.push(Step { file: file.clone(), change: Change::Lose, hits: None });
            }
            Wish::Entry { index } => steps.push(records.entry(*index, &mut rng)?),
            Wish::Random { bits } => steps.extend(records.random(*bits, &mut rng)?),
        }
    }
    Ok(steps)
}

fn disk_says(file: &str, why: io::Error) -> DamageError {
    DamageError::Disk { file: file.to_owned(), why }
}

fn length<D: Disk>(disk: &D, file: &str) -> Result<u64, DamageError> {
    let opened = disk.open(file, Mode::Read).and_then(|opened| opened.len());
    opened.map_err(|why| disk_says(file, why))
}

fn within<D: Disk>(disk: &D, file: &str, offset: u64, len: u64) -> Result<(), DamageError> {
    let bytes = length(disk, file)?;
    match offset.checked_add(len) {
        Some(end) if len > 0 && end <= bytes => Ok(()),
        _ => Err(DamageError::Nothing(format!(
            "{file} has {bytes} bytes: there are no {len} of them at {offset}"
        ))),
    }
}

/// The records of the log that verify.
struct Records(Vec<RecordInfo>);

impl Records {
    fn of<D: Disk>(disk: &D) -> Result<Self, DamageError> {
        let all: Result<Vec<RecordInfo>, LogFault> = inspect::records(disk)?.collect();
        Ok(Self(all?.into_iter().filter(|record| record.ok && record.len > 0).collect()))
    }

    /// What stands at a place.
    fn at(&self, file: &str, offset: u64) -> Option<String> {
        let here = |r: &&RecordInfo| {
            r.file == file && r.offset <= offset && offset < r.offset.saturating_add(r.len)
        };
        // A batch holds its entries: the narrowest record says most.
        self.0.iter().filter(here).min_by_key(|record| record.len).map(described)
    }

    fn entry(&self, index: u64, rng: &mut SplitMix64) -> Result<Step, DamageError> {
        let holds = |r: &&RecordInfo| matches!(r.kind, "entry" | "repair") && r.index.0 == index;
        let record = self.0.iter().rfind(holds).ok_or_else(|| {
            let of = |r: &RecordInfo| (r.kind == "entry").then_some(r.index.0);
            let (first, last) =
                (self.0.iter().filter_map(of).min(), self.0.iter().filter_map(of).max());
            DamageError::Nothing(match (first, last) {
                (Some(first), Some(last)) => {
                    format!("the log holds no entry {index}: it holds {first} to {last}")
                }
                _ => format!("the log holds no entry {index}, nor any other"),
            })
        })?;
        Ok(flip_of(record, rng))
    }

    fn random(&self, bits: usize, rng: &mut SplitMix64) -> Result<Vec<Step>, DamageError> {
        let mut left: Vec<&RecordInfo> = self.0.iter().filter(|r| r.kind != "batch").collect();
        if bits > left.len() {
            let why = format!("the log has {} records: fewer than {bits}", left.len());
            return Err(DamageError::Nothing(why));
        }
        let mut steps = Vec::new();
        for _ in 0..bits {
            let at = usize::try_from(rng.between(0, left.len() as u64)).unwrap_or(0);
            steps.push(flip_of(left.swap_remove(at), rng));
        }
        Ok(steps)
    }
}

fn described(record: &RecordInfo) -> String {
    match record.index.0 {
        0 => record.kind.to_owned(),
        index => format!("{} {}.{index}", record.kind, record.term),
    }
}

fn flip_of(record: &RecordInfo, rng: &mut SplitMix64) -> Step {
    let offset = record.offset + rng.between(0, record.len);
    let bit = u8::try_from(rng.between(0, 8)).unwrap_or(0);
    let hits = Some(described(record));
    Step { file: record.file.clone(), change: Change::Flip(offset, bit), hits }
}

impl Step {
    /// Makes the change, durably.
    ///
    /// # Errors
    /// [`DamageError::Disk`].
    pub fn carry_out<D: Disk>(&self, disk: &D) -> Result<(), DamageError> {
        self.change(disk).map_err(|why| disk_says(&self.file, why))
    }

    fn change<D: Disk>(&self, disk: &D) -> io::Result<()> {
        if self.change == Change::Lose {
            disk.unlink(&self.file)?;
            let dir = self.file.rsplit_once('/').map_or("", |(dir, _)| dir);
            return disk.sync_dir(dir);
        }
        let file = disk.open(&self.file, Mode::Write)?;
        match self.change {
            Change::Flip(offset, bit) => {
                let mut byte = [0];
                file.read_at(offset, &mut byte)?;
                byte[0] ^= 1 << bit;
                file.write_at(offset, &byte)?;
            }
            Change::Zero(offset, len) => {
                let zeros = vec![0; usize::try_from(len.min(CHUNK)).unwrap_or(0)];
                let mut done = 0;
                while done < len {
                    let now = usize::try_from((len - done).min(CHUNK)).unwrap_or(0);
                    file.write_at(offset + done, &zeros[..now])?;
                    done += now as u64;
                }
            }
            Change::Cut(len, _) => file.set_len(len)?,
            Change::Lose => {}
        }
        file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Setup;
    use crate::trace::Trace;
    use crate::world::World;
    use holdfast_fsm::{Command, CreateTopic};
    use holdfast_log::MemDisk;

    /// The disk of a single member that holds a few topics and does not run.
    fn member() -> MemDisk {
        let mut world = World::scripted(1, &["n1"], Setup::quiet(1), Trace::default());
        world.start_all();
        world.run_until_serving().expect("a single member serves");
        for n in 0..8 {
            let create = Command::CreateTopic(CreateTopic {
                name: format!("topic-{n}"),
                partitions: 1,
                retention_ms: None,
                created_at_ms: 0,
            });
            world.propose(0, &create).expect("it is committed");
        }
        world.run_for(3_000_000).expect("the watermark becomes durable");
        world.crash(0, false);
        world.disk(0).with_files(world.disk(0).files())
    }

    fn steps(disk: &MemDisk, wish: Wish) -> Vec<Step> {
        plan(disk, &[wish], 7).expect("it can be met")
    }

    #[test]
    fn a_damaged_entry_is_the_one_that_is_found_damaged() {
        let disk = member();
        assert!(inspect::verify(&disk).expect("it can be read").healthy());
        let all = steps(&disk, Wish::Entry { index: 4 });
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].to_string().contains(".4)"), "{}", all[0]);
        all[0].carry_out(&disk).expect("the disk does as it is told");
        let report = inspect::verify(&disk).expect("it can be read");
        assert!(report.damage.iter().all(|damage| damage.file == all[0].file), "{report:?}");
        let holes: Vec<u64> = report.holes.iter().map(|hole| hole.index.0).collect();
        assert_eq!(holes, [4], "{report:?}");
        all[0].carry_out(&disk).expect("the disk does as it is told");
        assert!(inspect::verify(&disk).expect("it can be read").healthy(), "twice is never");
    }

    #[test]
    fn every_kind_of_damage_is_done_as_it_was_described() {
        let disk = member();
        let file = inspect::verify(&disk).expect("it can be read").segments[0].file.clone();
        let before = disk.files()[&file].clone();
        let zero = Wish::Zero {
            file: file.clone(),
            offset: 100,
            len: 70_000.min(before.len() as u64 - 100),
        };
        let one = steps(&disk, zero);
        one[0].carry_out(&disk).expect("the disk does as it is told");
        let after = disk.files()[&file].clone();
        assert_eq!(after.len(), before.len());
        assert_eq!(after[..100], before[..100]);
        assert!(after[100..(100 + 70_000).min(before.len())].iter().all(|byte| *byte == 0));
        steps(&disk, Wish::Cut { file: file.clone(), len: 64 })[0].carry_out(&disk).expect("done");
        assert_eq!(disk.files()[&file], before[..64]);
        let flip = Wish::Flip { file: file.clone(), offset: 3, bit: 5 };
        steps(&disk, flip)[0].carry_out(&disk).expect("done");
        assert_eq!(disk.files()[&file][3], before[3] ^ 0b10_0000);
        steps(&disk, Wish::Lose { file: file.clone() })[0].carry_out(&disk).expect("done");
        assert!(!disk.files().contains_key(&file));
    }

    #[test]
    fn random_damage_is_the_same_for_a_seed_and_hits_as_many_records() {
        let disk = member();
        let wish = [Wish::Random { bits: 3 }];
        let one = plan(&disk, &wish, 1).expect("it can be met");
        assert_eq!(one, plan(&disk, &wish, 1).expect("it can be met"));
        assert_ne!(one, plan(&disk, &wish, 2).expect("it can be met"));
        let hit: std::collections::BTreeSet<_> = one.iter().map(|step| &step.hits).collect();
        assert_eq!(hit.len(), 3, "{one:?}");
        for step in &one {
            step.carry_out(&disk).expect("the disk does as it is told");
        }
        assert!(!inspect::verify(&disk).expect("it can be read").healthy());
    }

    #[test]
    fn what_is_not_there_is_named_and_nothing_is_changed() {
        let disk = member();
        let file = inspect::verify(&disk).expect("it can be read").segments[0].file.clone();
        let bytes = disk.files()[&file].len() as u64;
        let refused =
            |wish: Wish| plan(&disk, &[wish], 0).expect_err("it cannot be met").to_string();
        assert!(refused(Wish::Entry { index: 999 }).contains("no entry 999: it holds 1 to"));
        assert!(refused(Wish::Random { bits: 1_000_000 }).contains("fewer than 1000000"));
        assert!(refused(Wish::Cut { file: file.clone(), len: bytes }).contains("to fewer"));
        let offset = u64::MAX;
        assert!(
            refused(Wish::Zero { file: file.clone(), offset, len: 2 }).contains("there are no 2")
        );
        assert!(refused(Wish::Flip { file, offset: bytes, bit: 0 }).contains("there are no 1"));
        assert!(refused(Wish::Lose { file: "log/none".into() }).starts_with("log/none"));
        assert!(inspect::verify(&disk).expect("it can be read").healthy());
    }
}

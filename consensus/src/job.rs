//! Work that the replica driver hands to its world, lane by lane.
//!
//! A job is a value. At most one job per lane is out; what arrives meanwhile is merged into the
//! next one, so that group commit is decided in shared code. The real node runs a job on the
//! lane's thread, the simulator at the job's virtual end; nothing of it is visible before its
//! [`Done`] is handed back. To a world a job is opaque: `lane`, `kind`, `run`.

use crate::damage::Hole;
use crate::entries::Entries;
use crate::event::Event;
use crate::fault::{LogFault, StopReason, StoreFault};
use crate::io::Persist;
use crate::message::{Message, Outcome, SendLane};
use crate::traits::{
    Applied, LogReader, LogStore, SnapshotSink, SnapshotSource, SnapshotStore, SpareWork,
    StateMachine,
};
use crate::types::{
    Body, Entry, FetchId, Index, LogId, MemberId, Micros, Recovered, Seq, SnapshotMeta, Ticket,
};
use bytes::Bytes;

/// A lane runs at most one job at a time. Lanes are per purpose and per peer, so that a slow one
/// holds up no other.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Everything that writes the log.
    Log,
    /// Everything that writes the store.
    Apply,
    /// Reads of older entries for one peer.
    Fetch(MemberId),
    /// Prepares the next segment.
    Spare,
    /// Builds a snapshot file.
    Build,
    /// Reads a snapshot file for one peer.
    Ship(MemberId),
    /// Writes a received snapshot file, and restores a store from one.
    Receive,
    /// Answers questions from the state.
    Answer,
    /// Reads entries that other members have lost to damage.
    Repair,
}

/// Writer of a log's snapshots.
pub type SnapWriter<L> = <<L as LogStore>::Snapshots as SnapshotStore>::Writer;
/// Reader of a log's snapshots.
pub type SnapReader<L> = <<L as LogStore>::Snapshots as SnapshotStore>::Reader;

/// A piece of work. Only [`Job::Log`] needs the log and only [`Job::Apply`] the state machine.
pub enum Job<L: LogStore, M: StateMachine> {
    /// For the owner of the log.
    Log(LogJob<L>),
    /// For the owner of the state machine.
    Apply(ApplyJob<L, M>),
    /// Owns all it needs; one bounded step.
    Side(Lane, SideJob<L, M>),
}

impl<L: LogStore, M: StateMachine> Job<L, M> {
    /// The lane it runs on.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Log(_) => Lane::Log,
            Self::Apply(_) => Lane::Apply,
            Self::Side(lane, _) => *lane,
        }
    }

    /// A stable lower-case word for traces and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Log(job) => job.kind(),
            Self::Apply(job) => job.kind(),
            Self::Side(_, job) => job.kind(),
        }
    }
}

/// Work on the log.
pub enum LogJob<L: LogStore> {
    /// Make these batches durable with one sync.
    Persist(Vec<Persist>),
    /// Take a finished spare.
    AddSpare(L::Spare),
    /// Give up whole segments at or below this index.
    Compact {
        /// Last index that is not needed.
        through: Index,
    },
    /// Store the durable position and commit index.
    Watermark {
        /// Commit index.
        commit: Index,
    },
    /// Put a base where a snapshot ends (R25).
    Reset {
        /// Label of the snapshot.
        to: SnapshotMeta,
    },
    /// Put these entries in the place of damaged ones (R15).
    Repair(Vec<Entry>),
    /// Open the log again (R12).
    Reopen,
}

impl<L: LogStore> LogJob<L> {
    /// A stable lower-case word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Persist(_) => "persist",
            Self::AddSpare(_) => "add-spare",
            Self::Compact { .. } => "compact",
            Self::Watermark { .. } => "watermark",
            Self::Reset { .. } => "reset",
            Self::Repair(_) => "repair",
            Self::Reopen => "reopen-log",
        }
    }

    /// Carries it out.
    ///
    /// # Errors
    /// What the log says.
    pub fn run(self, log: &mut L) -> Result<LogDone<L>, LogFault> {
        let mut again = None;
        let result = match self {
            Self::Persist(batches) => match log.persist(&batches) {
                Err(LogFault::Full { detail }) => {
                    again = Some(Self::Persist(batches));
                    LogResult::NoSpace { detail, log: Box::new(log.recovered()) }
                }
                through => LogResult::Persisted { through: through? },
            },
            Self::AddSpare(spare) => {
                log.add_spare(spare)?;
                LogResult::SpareAdded
            }
            Self::Compact { through } => LogResult::Compacted { first: log.compact(through)? },
            Self::Watermark { commit } => {
                log.watermark(commit)?;
                LogResult::Watermarked
            }
            Self::Reset { to } => match log.reset(&to) {
                Err(LogFault::Full { detail }) => {
                    again = Some(Self::Reset { to });
                    LogResult::NoSpace { detail, log: Box::new(log.recovered()) }
                }
                last => LogResult::Reset { last: last? },
            },
            Self::Repair(entries) => match log.repair(&entries) {
                Err(LogFault::Full { detail }) => {
                    again = Some(Self::Repair(entries));
                    LogResult::NoSpace { detail, log: Box::new(log.recovered()) }
                }
                filled => LogResult::Repaired { filled: filled? },
            },
            Self::Reopen => LogResult::Reopened(Box::new(log.reopen()?)),
        };
        Ok(LogDone { result, again, spare: log.spare(), low: log.low(), room: log.has_room() })
    }
}

/// What a log job achieved, and what the log wants next.
pub struct LogDone<L: LogStore> {
    /// What was done.
    pub result: LogResult,
    /// The job itself, given back untouched if there was no space for it.
    pub again: Option<LogJob<L>>,
    /// A spare that the log wants prepared.
    pub spare: Option<L::Spare>,
    /// True while the log could not roll to another segment.
    pub low: bool,
    /// False while it would refuse even a small command.
    pub room: bool,
}

/// What a log job achieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogResult {
    /// Durable up to here.
    Persisted {
        /// Highest sequence number.
        through: Seq,
    },
    /// The spare was taken.
    SpareAdded,
    /// Segments were given up.
    Compacted {
        /// First index still held.
        first: Index,
    },
    /// The watermark was written.
    Watermarked,
    /// The base is durable.
    Reset {
        /// Last entry of the log now.
        last: LogId,
    },
    /// Damaged entries were replaced durably.
    Repaired {
        /// Their indexes.
        filled: Vec<Index>,
    },
    /// There was no space, and nothing was written: the job may be tried again (R45).
    NoSpace {
        /// What was to be written, and where.
        detail: String,
        /// The log as it is on disk.
        log: Box<Recovered>,
    },
    /// The log is open again.
    Reopened(Box<Recovered>),
}

/// Work on the state machine.
pub enum ApplyJob<L: LogStore, M: StateMachine> {
    /// Apply from `from` on, up to `to`, in one transaction: as far as the log reader goes in one
    /// read, or, if the first entry is cached, what is cached.
    Entries {
        /// First index.
        from: Index,
        /// Last index.
        to: Index,
        /// A suffix of `from..=to`; entries that may not be durable yet are always in it.
        cached: Entries,
        /// For what is not cached.
        reader: L::Reader,
        /// Report the commands that were handed to the machine ([`ApplyDone::commands`]).
        report: bool,
    },
    /// Make the store durable (R22).
    Checkpoint,
    /// Pin an image for a snapshot.
    Pin,
    /// Begin a second store beside the live one, for this snapshot.
    Restore {
        /// Its label.
        meta: SnapshotMeta,
    },
    /// Swap in a restored store (R25).
    Adopt(M::Restore),
    /// Open the store again (R21).
    Reopen,
    /// Try to get space while the machine is low (R45).
    MakeRoom,
}

/// Most weight that one apply job reads from the log.
const APPLY_READ_BYTES: usize = 4 << 20;

impl<L: LogStore, M: StateMachine> ApplyJob<L, M> {
    /// A stable lower-case word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Entries { .. } => "apply",
            Self::Checkpoint => "checkpoint",
            Self::Pin => "pin",
            Self::Restore { .. } => "restore",
            Self::Adopt(_) => "adopt",
            Self::Reopen => "reopen-store",
            Self::MakeRoom => "make-room",
        }
    }

    /// Carries it out.
    ///
    /// # Errors
    /// What the state machine or the log reader says.
    pub fn run(self, machine: &mut M) -> Result<ApplyDone<M>, StoreFault> {
        let mut replies = Vec::new();
        let mut commands = Vec::new();
        let mut pinned = None;
        let mut restore = None;
        let applied = match self {
            Self::Entries { from, to, cached, reader, report } => {
                // One piece, so one transaction: a fault later on loses no reply of an earlier
                // piece, and the driver hands out the next one.
                let cached_from = cached.first().map_or(to.next(), |id| id.index);
                let piece = if from >= cached_from {
                    cached.starting_at(from)
                } else {
                    reader.read(from, to.min(cached_from.prev()), APPLY_READ_BYTES)?
                };
                let applied = machine.apply(&piece, &mut replies)?;
                if report {
                    commands.extend(piece.iter().filter_map(command_of));
                }
                applied
            }
            Self::Checkpoint => machine.checkpoint()?,
            Self::Pin => {
                pinned = Some(machine.pin()?);
                machine.applied()
            }
            Self::Restore { meta } => {
                restore = Some(machine.restore(&meta)?);
                machine.applied()
            }
            Self::Adopt(restored) => machine.adopt(restored)?,
            Self::Reopen => machine.reopen()?,
            Self::MakeRoom => {
                machine.make_room();
                machine.applied()
            }
        };
        Ok(ApplyDone { applied, replies, commands, pinned, restore, low: machine.low() })
    }
}

fn command_of(entry: &Entry) -> Option<(LogId, Bytes)> {
    match &entry.body {
        Body::Command(bytes) => Some((entry.id, bytes.clone())),
        Body::Blank | Body::Membership(_) => None,
    }
}

/// What an apply job achieved.
pub struct ApplyDone<M: StateMachine> {
    /// How far the machine has come.
    pub applied: Applied,
    /// Answers of newly applied commands.
    pub replies: Vec<(Index, Bytes)>,
    /// The commands that were handed over, if the job was to report them.
    pub commands: Vec<(LogId, Bytes)>,
    /// A pinned image with its label.
    pub pinned: Option<(SnapshotMeta, M::Image)>,
    /// A second store to fill.
    pub restore: Option<M::Restore>,
    /// True while the machine may soon find no space.
    pub low: bool,
}

/// Work that owns all it needs.
pub enum SideJob<L: LogStore, M: StateMachine> {
    /// Read older entries.
    Fetch {
        /// Names the request.
        fetch: FetchId,
        /// Where to read.
        reader: L::Reader,
        /// First index.
        from: Index,
        /// Last index.
        to: Index,
        /// Weight to stop after.
        max_bytes: usize,
    },
    /// Prepare a segment a little further.
    Spare(L::Spare),
    /// Begin a snapshot file.
    BuildBegin {
        /// Its label.
        meta: SnapshotMeta,
        /// The content.
        image: M::Image,
        /// Where.
        snapshots: L::Snapshots,
    },
    /// Write the next chunk of a snapshot file, or publish it.
    Build {
        /// The content.
        image: M::Image,
        /// Offset of the image's next chunk: below the writer's in a resumed file.
        at: u64,
        /// The file.
        writer: SnapWriter<L>,
        /// Where.
        snapshots: L::Snapshots,
    },
    /// Open a snapshot for shipping.
    ShipBegin {
        /// Its label.
        meta: SnapshotMeta,
        /// Where to begin.
        offset: u64,
        /// Where.
        snapshots: L::Snapshots,
    },
    /// Read the next chunk for shipping.
    Ship {
        /// The file.
        reader: SnapReader<L>,
        /// Offset of the next chunk.
        offset: u64,
    },
    /// Open the file that a snapshot is received into.
    ReceiveBegin {
        /// Its label.
        meta: SnapshotMeta,
        /// Where.
        snapshots: L::Snapshots,
    },
    /// Write a received chunk.
    Receive {
        /// The file.
        writer: SnapWriter<L>,
        /// Offset of the chunk.
        offset: u64,
        /// The chunk.
        chunk: Bytes,
    },
    /// Verify and publish a received snapshot.
    Publish {
        /// The file.
        writer: SnapWriter<L>,
        /// Where.
        snapshots: L::Snapshots,
    },
    /// Open a published snapshot for restoring.
    RestoreBegin {
        /// Its label.
        meta: SnapshotMeta,
        /// Where.
        snapshots: L::Snapshots,
        /// The store to fill.
        sink: M::Restore,
    },
    /// Copy the next chunk into the second store.
    Restore {
        /// The file.
        reader: SnapReader<L>,
        /// The store to fill.
        sink: M::Restore,
    },
    /// Read entries that another member has lost to damage (R15).
    Repair {
        /// Where to read.
        reader: L::Reader,
        /// What is wanted; without an identity, whatever stands there.
        wants: Vec<Hole>,
        /// Stop after this weight (but return at least one entry, if any).
        max_bytes: usize,
    },
    /// Answer questions about the state; the leader has proved itself for each of them.
    Answer {
        /// Where to read.
        view: M::View,
        /// The questions, each with the name of its waiter.
        questions: Vec<(u64, Bytes)>,
    },
}

/// What one step of a side job achieved; what has to go on comes back in it.
pub enum SideDone<L: LogStore, M: StateMachine> {
    /// Entries were read.
    Fetched {
        /// Names the request.
        fetch: FetchId,
        /// The entries.
        entries: Result<Entries, LogFault>,
    },
    /// The spare: `true` if complete.
    Spare(L::Spare, bool),
    /// The job goes on with another step.
    More(SideJob<L, M>),
    /// A snapshot was published.
    Published(SnapshotMeta),
    /// A chunk for shipping (`None` at the end), with the reader and the next offset.
    Chunk(SnapReader<L>, u64, Option<Bytes>),
    /// The receiving file is ready for the chunk at its offset.
    Receiving(SnapWriter<L>),
    /// The second store is complete.
    Restored(M::Restore),
    /// What was found of the entries that another member wants.
    Repair {
        /// Entries of the wanted identities, ascending.
        entries: Vec<Entry>,
        /// Entries that turned out to be damaged here too.
        damaged: Vec<Hole>,
    },
    /// Questions were answered: the answers with the index that each was read at, or `None` for
    /// "unknown".
    Answered(Vec<(u64, Option<(Index, Bytes)>)>),
    /// The step failed.
    Failed(StoreFault),
}

impl<L: LogStore, M: StateMachine> SideJob<L, M> {
    /// A stable lower-case word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Fetch { .. } => "fetch",
            Self::Spare(_) => "spare",
            Self::BuildBegin { .. } | Self::Build { .. } => "build",
            Self::ShipBegin { .. } | Self::Ship { .. } => "ship",
            Self::ReceiveBegin { .. } | Self::Receive { .. } => "receive",
            Self::Publish { .. } => "publish",
            Self::RestoreBegin { .. } | Self::Restore { .. } => "restore-copy",
            Self::Repair { .. } => "repair-read",
            Self::Answer { .. } => "answer",
        }
    }

    /// Carries out one bounded step.
    pub fn run(self) -> SideDone<L, M> {
        self.step().unwrap_or_else(SideDone::Failed)
    }

    fn step(self) -> Result<SideDone<L, M>, StoreFault> {
        Ok(match self {
            Self::Fetch { fetch, reader, from, to, max_bytes } => {
                SideDone::Fetched { fetch, entries: reader.read(from, to, max_bytes) }
            }
            Self::Spare(mut spare) => {
                let complete = spare.step()?;
                SideDone::Spare(spare, complete)
            }
            Self::BuildBegin { meta, image, snapshots } => {
                let writer = snapshots.create(&meta)?;
                SideDone::More(Self::Build { image, at: 0, writer, snapshots })
            }
            Self::Build { mut image, at, mut writer, snapshots } => match image.next_chunk()? {
                Some(chunk) => {
                    // Equal labels mean equal images, so what a resumed file holds is skipped.
                    let held = usize::try_from(writer.offset().saturating_sub(at));
                    let news = chunk.get(held.unwrap_or(usize::MAX)..).unwrap_or_default();
                    if !news.is_empty() {
                        writer.put_chunk(writer.offset(), news)?;
                    }
                    let at = at + chunk.len() as u64;
                    SideDone::More(Self::Build { image, at, writer, snapshots })
                }
                None => SideDone::Published(snapshots.publish(writer)?),
            },
            Self::ShipBegin { meta, offset, snapshots } => {
                let reader = snapshots.open(&meta, offset)?;
                SideDone::More(Self::Ship { reader, offset })
            }
            Self::Ship { mut reader, offset } => {
                let chunk = reader.next_chunk()?;
                let next = offset + chunk.as_ref().map_or(0, |c| c.len() as u64);
                SideDone::Chunk(reader, next, chunk)
            }
            Self::ReceiveBegin { meta, snapshots } => SideDone::Receiving(snapshots.create(&meta)?),
            Self::Receive { mut writer, offset, chunk } => {
                writer.put_chunk(offset, &chunk)?;
                SideDone::Receiving(writer)
            }
            Self::Publish { writer, snapshots } => SideDone::Published(snapshots.publish(writer)?),
            Self::RestoreBegin { meta, snapshots, sink } => {
                let reader = snapshots.open(&meta, 0)?;
                SideDone::More(Self::Restore { reader, sink })
            }
            Self::Restore { mut reader, mut sink } => match reader.next_chunk()? {
                Some(chunk) => {
                    sink.put_chunk(sink.offset(), &chunk)?;
                    SideDone::More(Self::Restore { reader, sink })
                }
                None => SideDone::Restored(sink),
            },
            Self::Repair { reader, wants, max_bytes } => {
                let (entries, damaged) = read_wanted(&reader, &wants, max_bytes);
                SideDone::Repair { entries, damaged }
            }
            Self::Answer { view, questions } => {
                let answer = |(id, question)| (id, M::confirm(&view, &question));
                SideDone::Answered(questions.into_iter().map(answer).collect())
            }
        })
    }
}

/// Reads what another member wants, and tells what cannot be read here.
fn read_wanted<R: LogReader>(
    reader: &R,
    wants: &[Hole],
    max_bytes: usize,
) -> (Vec<Entry>, Vec<Hole>) {
    let (mut entries, mut damaged, mut weight) = (Vec::new(), Vec::new(), 0usize);
    for want in wants {
        let read = match reader.read(want.index, want.index, usize::MAX) {
            Ok(read) => read,
            Err(LogFault::Damaged { first, last, .. }) => {
                damaged.extend(reader.holes(first, last));
                continue;
            }
            Err(_) => continue,
        };
        let Some(entry) = read.as_slice().first() else { continue };
        let other = want.known.is_some_and(|known| entry.identity() != Ok(known));
        weight = weight.saturating_add(entry.weight());
        if other || (weight > max_bytes && !entries.is_empty()) {
            continue;
        }
        entries.push(entry.clone());
    }
    (entries, damaged)
}

/// A finished job, handed back to the replica.
pub enum Done<L: LogStore, M: StateMachine> {
    /// A log job.
    Log(Result<LogDone<L>, LogFault>),
    /// An apply job.
    Apply(Result<ApplyDone<M>, StoreFault>),
    /// A side job.
    Side(Lane, SideDone<L, M>),
}

/// A call by a client of this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Append a command, here or (forwarded) at the leader; answered once it is applied locally.
    Propose {
        /// Entry type and payload.
        command: Bytes,
    },
    /// As [`Call::Propose`], for a command whose bytes occur nowhere else: the caller has stamped
    /// it with a request id of its own. Then the replica can tell from the entries it applies
    /// what became of a command that it passed on to a leader which fell silent, and passes it on
    /// again once it cannot be in any log any more: the call survives the leader's death without
    /// waiting for its deadline, and still takes effect at most once.
    ProposeUnique {
        /// Entry type and payload, unique.
        command: Bytes,
    },
    /// Confirmed leadership now, and this replica has applied everything committed before the
    /// call. Answered with [`Outcome::Ready`] of age 0. Never writes to the log.
    Barrier,
    /// Hand leadership to a voter; refused at once ([`Refusal::NotVoter`]) for any other member.
    ///
    /// [`Refusal::NotVoter`]: crate::fault::Refusal::NotVoter
    Transfer {
        /// The voter.
        to: MemberId,
    },
    /// A question about the replicated state that only a proven leader may answer
    /// ([`Confirmation`]), whoever is asked. Answered with [`Outcome::Confirmed`] once this
    /// replica has applied at least the index of the answer; every other outcome means "unknown".
    /// Never writes to the log.
    ///
    /// [`Confirmation`]: crate::message::Confirmation
    Confirm {
        /// At most [`CONFIRM_QUESTION_MAX`] bytes, else [`Refusal::TooLarge`].
        ///
        /// [`CONFIRM_QUESTION_MAX`]: crate::message::CONFIRM_QUESTION_MAX
        /// [`Refusal::TooLarge`]: crate::fault::Refusal::TooLarge
        question: Bytes,
    },
}

/// Something the replica learns.
pub enum ReplicaInput<L: LogStore, M: StateMachine> {
    /// Its deadline has passed.
    Wake,
    /// A message from a peer.
    Message {
        /// The sender.
        from: MemberId,
        /// The message.
        message: Message,
    },
    /// A peer's host refused a reconnect after a reset.
    PeerReset(MemberId),
    /// A verification beside the replica met entries of its log that are damaged
    /// ([`LogFault::Damaged`]; other faults say nothing here). It goes the way of damage that the
    /// replica's own reads meet; what is known already is no news.
    Damaged(LogFault),
    /// A client's call.
    Call {
        /// Names the call; never reused.
        ticket: Ticket,
        /// The call.
        call: Call,
        /// Give up at this time.
        deadline: Micros,
    },
    /// A finished job.
    Done(Done<L, M>),
}

/// Something the world must do for the replica. Any order, any delay.
pub enum ReplicaEffect<L: LogStore, M: StateMachine> {
    /// Send a message.
    Send {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: Message,
        /// How it may queue.
        lane: SendLane,
    },
    /// Run a job on its lane.
    Run(Job<L, M>),
    /// Answer a call.
    Answer {
        /// The call.
        ticket: Ticket,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Something to observe.
    Observe(Event),
    /// Stop: no further input will be accepted. The process reports the reason and exits.
    Stop(StopReason),
}

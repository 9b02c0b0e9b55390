//! The trace: every transition of a run as a typed value, if somebody wants to look.
//!
//! Guarantees: a trace that is off builds nothing and allocates nothing; one that is on changes
//! nothing in the run (`sim/tests/campaign.rs` compares the hashes). Times are microseconds of
//! virtual time. [`text`] writes a recording as aligned lines, [`html`] as a page that
//! draws it, [`svg`] as a still picture for a document (DESIGN section 10).

pub mod html;
pub mod svg;
pub mod text;
mod words;

use crate::check::Violation;
use crate::node::{Node, State};
use holdfast_consensus::event::{Event, RoleKind};
use holdfast_consensus::job::Lane;
use holdfast_consensus::message::Message;
use holdfast_consensus::{Index, LogId, MemberId, Micros, Term};

pub use words::{call, outcome, read};

/// Name of a copy of a message: links where it was sent to where it arrived. Unique in a run; zero
/// while the trace is off.
pub type Copy = u64;

/// What became of a message when it was sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// On its way, in order.
    Underway,
    /// On its way, held back so that later ones overtake it.
    Held,
    /// A second copy of the message sent just before.
    Again,
    /// Lost by chance.
    Dropped,
    /// Lost to a cut.
    Cut,
    /// Lost because nobody is connected.
    Unconnected,
}

impl Fate {
    /// The word in texts and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Underway => "",
            Self::Held => "held back",
            Self::Again => "duplicate",
            Self::Dropped => "lost",
            Self::Cut => "lost: cut",
            Self::Unconnected => "lost: no connection",
        }
    }

    /// True if it never arrives.
    #[must_use]
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Dropped | Self::Cut | Self::Unconnected)
    }
}

/// What the guard decided.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It asks somebody.
    Asks,
    /// It keeps the data.
    Keeps,
    /// It permits their destruction.
    Permits,
    /// Data were destroyed (with a permit, or with the guard off).
    Destroys,
}

impl Decision {
    /// The word in texts and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asks => "asks",
            Self::Keeps => "keeps",
            Self::Permits => "permits",
            Self::Destroys => "destroys",
        }
    }
}

/// A transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A sentence of whoever directs the run: what happens and why.
    Story(String),
    /// The guard, or whoever destroys without one.
    Guard(Decision, String),
    /// A message was sent.
    Sent {
        /// This copy.
        copy: Copy,
        /// Number of the receiving node.
        to: usize,
        /// Kind of the message.
        kind: &'static str,
        /// Its content.
        text: String,
        /// What becomes of it.
        fate: Fate,
    },
    /// A message arrived and was handed in.
    Arrived {
        /// This copy.
        copy: Copy,
        /// Number of the sending node.
        from: usize,
        /// Kind of the message.
        kind: &'static str,
        /// Its content.
        text: String,
    },
    /// A message reached a machine whose process is another, or none.
    Missed {
        /// This copy.
        copy: Copy,
        /// Number of the sending node, if it is known.
        from: usize,
        /// Kind of the message.
        kind: &'static str,
    },
    /// Something inside the replica: role, commit, snapshot and so on.
    Inside {
        /// Name of the event.
        kind: &'static str,
        /// What happened.
        text: String,
    },
    /// The deadline of a replica passed.
    Timer,
    /// A job went out to its lane.
    JobBegan {
        /// The lane.
        lane: String,
        /// The job.
        kind: &'static str,
    },
    /// A job came back.
    JobEnded {
        /// The lane.
        lane: String,
        /// The job.
        kind: &'static str,
    },
    /// A process starts, runs, forms a cluster, connects or refuses to start.
    Life {
        /// Name of the step.
        kind: &'static str,
        /// What happened.
        text: String,
    },
    /// A fault strikes, or is planned.
    Fault {
        /// Its name.
        kind: &'static str,
        /// What it does.
        text: String,
        /// When it ends, if that is known.
        until: Option<Micros>,
    },
    /// A fault ends.
    Relief {
        /// Name of the fault.
        kind: &'static str,
        /// What goes on.
        text: String,
    },
    /// Links are cut. Cuts of one link add up.
    Cut {
        /// From which nodes to which.
        links: Vec<(usize, usize)>,
    },
    /// One cut less on each of these links.
    Uncut {
        /// From which nodes to which.
        links: Vec<(usize, usize)>,
    },
    /// A client calls a node.
    Called {
        /// Number of the client; `None` if the director of the run calls.
        client: Option<usize>,
        /// Names the call.
        ticket: u64,
        /// Kind of the call.
        kind: &'static str,
        /// What is asked for.
        text: String,
    },
    /// A node answers.
    Answered {
        /// Names the call.
        ticket: u64,
        /// `committed`, `ready`, `refused`, `unknown` and so on.
        kind: &'static str,
        /// The answer.
        text: String,
    },
    /// A client does not wait any longer.
    GaveUp {
        /// Number of the client.
        client: usize,
        /// Names the call.
        ticket: u64,
    },
    /// A local read.
    Read {
        /// Key and value.
        text: String,
    },
    /// A property did not hold.
    Violated {
        /// The property.
        property: &'static str,
        /// What was seen.
        evidence: String,
    },
}

impl From<String> for What {
    fn from(text: String) -> Self {
        Self::Story(text)
    }
}

impl What {
    /// A fault without a known end.
    pub fn fault(kind: &'static str, text: impl Into<String>) -> Self {
        Self::Fault { kind, text: text.into(), until: None }
    }

    /// A step in the life of a process.
    pub fn life(kind: &'static str, text: impl Into<String>) -> Self {
        Self::Life { kind, text: text.into() }
    }

    /// The kind, for filters: kind of the message, event, job, fault or call.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Story(_) => "story",
            Self::Guard(decision, _) => decision.as_str(),
            Self::Sent { kind, .. }
            | Self::Arrived { kind, .. }
            | Self::Missed { kind, .. }
            | Self::Inside { kind, .. }
            | Self::JobBegan { kind, .. }
            | Self::JobEnded { kind, .. }
            | Self::Life { kind, .. }
            | Self::Fault { kind, .. }
            | Self::Relief { kind, .. }
            | Self::Called { kind, .. }
            | Self::Answered { kind, .. } => kind,
            Self::Timer => "timer",
            Self::Cut { .. } | Self::Uncut { .. } => "cut",
            Self::GaveUp { .. } => "gave-up",
            Self::Read { .. } => "read",
            Self::Violated { property, .. } => property,
        }
    }
}

/// Where a replica stood after a transition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Role.
    pub role: RoleKind,
    /// Term, in memory.
    pub term: Term,
    /// Commit index.
    pub commit: Index,
    /// Last entry that its state machine holds.
    pub applied: Index,
    /// Last entry known durable.
    pub durable: LogId,
    /// Last entry.
    pub last: LogId,
}

/// How a node stood after a transition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No process.
    Down,
    /// A process that waits for a cluster.
    Forming,
    /// A replica.
    Up(Position),
}

impl Standing {
    fn of(node: &Node) -> Self {
        match &node.state {
            State::Down => Self::Down,
            State::Forming(_) => Self::Forming,
            State::Up(process) => {
                let status = process.replica.status(0);
                Self::Up(Position {
                    role: status.role,
                    term: status.hard.term,
                    commit: status.commit,
                    applied: status.applied.last.index,
                    durable: status.durable,
                    last: status.last,
                })
            }
        }
    }
}

/// One transition: when, where, what, and how things stood after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// When.
    pub at: Micros,
    /// Number of the node, from zero; `None` if it concerns them all.
    pub node: Option<usize>,
    /// What.
    pub what: What,
    /// How the node stood after it.
    pub after: Option<Standing>,
}

/// Everything that was recorded of a run.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What the page is called, for instance `seed 7`.
    pub title: String,
    /// What a reader wants to know of the run, as names and values.
    pub facts: Vec<(String, String)>,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// The transitions, in the order in which they happened.
    pub items: Vec<Item>,
    members: Vec<(MemberId, usize)>,
    /// The item that handed an input in, until the step it caused is over.
    open: Option<usize>,
    copies: Copy,
}

impl Recording {
    /// The violation it ends with.
    #[must_use]
    pub fn violation(&self) -> Option<(&'static str, &str)> {
        self.items.iter().rev().find_map(|item| match &item.what {
            What::Violated { property, evidence } => Some((*property, evidence.as_str())),
            _ => None,
        })
    }

    /// Name of a node.
    #[must_use]
    pub fn name(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("?", String::as_str)
    }

    /// Adds how the run ended.
    pub fn conclude(&mut self, violation: Option<&Violation>) {
        if let Some(violation) = violation {
            let at = self.items.last().map_or(0, |item| item.at);
            let (property, evidence) = (violation.property, violation.evidence.clone());
            let what = What::Violated { property, evidence };
            self.items.push(Item { at, node: None, what, after: None });
        }
    }

    fn push(&mut self, at: Micros, node: Option<(usize, &Node)>, what: What) {
        let opens = matches!(
            what,
            What::Arrived { .. } | What::Timer | What::JobEnded { .. } | What::Called { .. }
        );
        self.open = opens.then_some(self.items.len());
        let after = node.map(|(_, node)| Standing::of(node));
        self.items.push(Item { at, node: node.map(|(number, _)| number), what, after });
    }

    /// Name of a member, if one of the nodes has it.
    fn who(&self, member: MemberId) -> String {
        let found = self.members.iter().rev().find(|(known, _)| *known == member);
        found.map_or_else(|| member.to_string(), |(_, node)| self.name(*node).to_owned())
    }
}

/// A recording, or nothing.
#[derive(Debug, Default)]
pub struct Trace(Option<Box<Recording>>);

impl Trace {
    /// A trace that records.
    #[must_use]
    pub fn on() -> Self {
        Self(Some(Box::default()))
    }

    /// True if it records.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// What was recorded; empty if it is off. It records nothing more.
    pub fn take(&mut self) -> Recording {
        self.0.take().map(|recording| *recording).unwrap_or_default()
    }

    /// Names the nodes.
    pub fn begin(&mut self, nodes: &[String]) {
        if let Some(recording) = &mut self.0 {
            recording.nodes = nodes.to_vec();
        }
    }

    /// A node has a member id.
    pub fn member(&mut self, member: MemberId, node: usize) {
        if let Some(recording) = &mut self.0 {
            recording.members.push((member, node));
        }
    }

    /// Adds a transition, if it is on.
    pub fn add<W: Into<What>>(
        &mut self,
        now: Micros,
        node: Option<(usize, &Node)>,
        what: impl FnOnce() -> W,
    ) {
        if let Some(recording) = &mut self.0 {
            recording.push(now, node, what().into());
        }
    }

    /// Adds an event of a replica, if it is on.
    pub fn inside(&mut self, now: Micros, node: (usize, &Node), event: &Event) {
        if let Some(recording) = &mut self.0 {
            let (kind, text) = words::event(event, &|member| recording.who(member));
            recording.push_within(now, node, What::Inside { kind, text });
        }
    }

    /// Adds a job that goes out (or comes back), if it is on.
    pub fn job(
        &mut self,
        now: Micros,
        node: (usize, &Node),
        lane: Lane,
        kind: &'static str,
        begins: bool,
    ) {
        let Some(recording) = &mut self.0 else { return };
        let lane = match lane {
            Lane::Fetch(peer) => format!("fetch for {}", recording.who(peer)),
            Lane::Ship(peer) => format!("ship to {}", recording.who(peer)),
            other => format!("{other:?}").to_lowercase(),
        };
        if begins {
            recording.push_within(now, node, What::JobBegan { lane, kind });
        } else {
            recording.push(now, Some(node), What::JobEnded { lane, kind });
        }
    }

    /// Adds a message that is sent, if it is on; the name of the copy links it to its arrival.
    pub fn sent(
        &mut self,
        now: Micros,
        node: (usize, &Node),
        to: usize,
        message: &Message,
        fate: Fate,
    ) -> Copy {
        let Some(recording) = &mut self.0 else { return 0 };
        recording.copies += 1;
        let copy = recording.copies;
        let (kind, text) = words::message(message);
        recording.push_within(now, node, What::Sent { copy, to, kind, text, fate });
        copy
    }

    /// Adds a message that arrives, if it is on.
    pub fn arrived(
        &mut self,
        now: Micros,
        node: (usize, &Node),
        from: MemberId,
        copy: Copy,
        message: &Message,
    ) {
        if let Some(recording) = &mut self.0 {
            let (kind, text) = words::message(message);
            let from = recording.number(from);
            recording.push(now, Some(node), What::Arrived { copy, from, kind, text });
        }
    }

    /// Adds a message that finds nobody, if it is on.
    pub fn missed(
        &mut self,
        now: Micros,
        node: (usize, &Node),
        from: MemberId,
        copy: Copy,
        message: &Message,
    ) {
        if let Some(recording) = &mut self.0 {
            let (kind, _) = words::message(message);
            let from = recording.number(from);
            recording.push(now, Some(node), What::Missed { copy, from, kind });
        }
    }

    /// The step of a replica is over: the input that caused it shows the state after it.
    pub fn settle(&mut self, node: (usize, &Node)) {
        if let Some(recording) = &mut self.0
            && let Some(open) = recording.open.take()
            && let Some(item) = recording.items.get_mut(open)
            && item.node == Some(node.0)
        {
            item.after = Some(Standing::of(node.1));
        }
    }
}

impl Recording {
    /// As [`Recording::push`], for what a step brings about: the input stays open.
    fn push_within(&mut self, at: Micros, node: (usize, &Node), what: What) {
        let open = self.open;
        self.push(at, Some(node), what);
        self.open = open;
    }

    fn number(&self, member: MemberId) -> usize {
        let found = self.members.iter().rev().find(|(known, _)| *known == member);
        found.map_or(usize::MAX, |(_, node)| *node)
    }
}

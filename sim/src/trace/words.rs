//! The words of a trace: messages, events, calls and answers in the terms of the paper.
//!
//! A log id is written as term and index (`t2.i5`), an empty one as `none`. What has no words of
//! its own is written as the code names it.

use super::What;
use holdfast_consensus::event::Event;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::{Confirmation, Conflict, Message, Outcome};
use holdfast_consensus::{Body, Entries, Index, LogId, MemberId};
use holdfast_fsm::command::decode;
use holdfast_fsm::{Answer, Command, SessionRef};
use std::fmt::{Debug, Display};

/// Longest text of a value or of something without words of its own.
const TEXT_MAX: usize = 160;
/// Entries of a message that are written out.
const ENTRIES_MAX: usize = 4;

/// Kind and content of a message.
pub(super) fn message(message: &Message) -> (&'static str, String) {
    match message {
        Message::Vote { term, pre, last, transfer } => {
            let kind = if *pre { "PreVote" } else { "Vote" };
            let asked = if *transfer { ", asked by the leader" } else { "" };
            (kind, format!("for {term}, my log ends at {}{asked}", id(*last)))
        }
        Message::VoteReply { term, pre, asked, granted } => {
            let kind = if *pre { "PreVoteReply" } else { "VoteReply" };
            let verdict = if *granted { "granted" } else { "refused" };
            (kind, format!("{verdict} for {asked}, my term {term}"))
        }
        Message::TimeoutNow { term, last, .. } => {
            ("TimeoutNow", format!("stand at once in {term} with {}", id(*last)))
        }
        Message::Append { term, round, prev, commit, commit_own_term, entries } => {
            let kind = if entries.is_empty() { "Heartbeat" } else { "Append" };
            let own = if *commit_own_term { "" } else { " (none of my term)" };
            let what =
                if entries.is_empty() { String::new() } else { format!(" {}", list(entries)) };
            (kind, format!("{term} #{round} after {}, commit {commit}{own}{what}", id(*prev)))
        }
        Message::AppendReply { term, round, result, low, .. } => {
            let low = if *low { ", no room for more" } else { "" };
            let what = match result {
                Ok(durable) => format!("durable through {}", id(*durable)),
                Err(conflict) => unmatched(*conflict),
            };
            ("AppendReply", format!("{term} #{round} {what}{low}"))
        }
        Message::SnapshotOffer { term, transfer, meta } => {
            ("SnapshotOffer", format!("{term} {transfer}, ends at {}", id(meta.last)))
        }
        Message::SnapshotChunk { transfer, offset, bytes, .. } => {
            ("SnapshotChunk", format!("{transfer} at {offset}, {} bytes", bytes.len()))
        }
        Message::SnapshotAck { transfer, next, state, .. } => {
            ("SnapshotAck", format!("{transfer} {state:?}, next {next}"))
        }
        Message::Forward { ticket, command: bytes, .. } => {
            ("Forward", format!("{ticket} {}", command(bytes)))
        }
        Message::ForwardReply { ticket, outcome: o } => {
            ("ForwardReply", format!("{ticket} {}", outcome(o).1))
        }
        Message::ReadIndex { ticket, .. } => ("ReadIndex", ticket.to_string()),
        Message::ReadIndexReply { ticket, result } => {
            let what = match result {
                Ok(index) => format!("wait for {index}"),
                Err(why) => why.to_string(),
            };
            ("ReadIndexReply", format!("{ticket} {what}"))
        }
        Message::Confirm { ticket, question, .. } => {
            ("Confirm", format!("{ticket} a question of {} bytes", question.len()))
        }
        Message::ConfirmReply { ticket, result } => {
            let what = match result {
                Ok(said) => confirmed(said),
                Err(why) => why.to_string(),
            };
            ("ConfirmReply", format!("{ticket} {what}"))
        }
        Message::Repair { ask, wants } => ("Repair", listed(*ask, wants, |want| want.index)),
        Message::RepairReply { ask, entries } => ("RepairReply", listed(*ask, entries, |e| e.id)),
    }
}

/// Kind and content of an event.
pub(super) fn event(event: &Event, who: &dyn Fn(MemberId) -> String) -> (&'static str, String) {
    match event {
        Event::Role { role, term } => ("role", format!("is {} in {term}", role.as_str())),
        Event::Leader { leader: Some(leader), term } => {
            ("leader", format!("follows {} in {term}", who(*leader)))
        }
        Event::Leader { leader: None, term } => ("leader", format!("knows no leader in {term}")),
        Event::VoteGranted { to, term } => ("vote", format!("votes for {} in {term}", who(*to))),
        Event::SteppedDown { term, why } => {
            ("step-down", format!("gives up leading {term}: {}", why.as_str()))
        }
        Event::WaitingForQuorum { missing, since } => {
            let names: Vec<String> = missing.iter().map(|m| who(*m)).collect();
            let millis = since / 1_000;
            ("no-quorum", format!("waits for {} since {millis} ms", names.join(", ")))
        }
        Event::Committed { through } => ("commit", format!("commits through {}", id(*through))),
        Event::Durable { through } => ("durable", format!("is durable through {}", id(*through))),
        Event::Truncated { from, last, .. } => ("truncate", format!("cuts {from} to {last}")),
        Event::Membership { at } => ("membership", format!("configuration of {at} in force")),
        Event::Applied { through, digest, skipped } => {
            let again = if *skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
            let what = format!("has applied {}, digest {:08x}{again}", id(*through), digest >> 96);
            ("applied", what)
        }
        Event::Checkpointed { through } => ("checkpoint", format!("store durable at {through}")),
        Event::SnapshotTaken { last, bytes } => {
            ("snapshot", format!("snapshot through {}, {bytes} bytes", id(*last)))
        }
        Event::SnapshotFailed { why } => ("snapshot", format!("no snapshot: {why}")),
        Event::TransferBegan { transfer, peer, sending } => {
            let way = if *sending { "to" } else { "from" };
            ("transfer", format!("snapshot {transfer} {way} {} begins", who(*peer)))
        }
        Event::TransferEnded { transfer, peer, ok } => {
            let how = if *ok { "arrived" } else { "failed" };
            ("transfer", format!("snapshot {transfer} with {} {how}", who(*peer)))
        }
        Event::Installed { last } => ("install", format!("installs a snapshot of {}", id(*last))),
        Event::Compacted { first } => ("compact", format!("log now begins at {first}")),
        Event::Damaged { first, last, count } => {
            ("damaged", format!("{count} entries, {first} to {last}, do not verify"))
        }
        Event::Repaired { count, left } => {
            ("repaired", format!("{count} entries are back, {left} are damaged"))
        }
        Event::LogReopened { fault } => ("log-reopened", fault.clone()),
        Event::StoreReopened { fault, applied } => {
            ("store-reopened", format!("back at {applied}: {fault}"))
        }
        Event::Headroom { low } => {
            ("headroom", if *low { "no room for a segment" } else { "room again" }.to_owned())
        }
        Event::Dropped { reason } => ("dropped", (*reason).to_owned()),
        Event::Mark(mark) => ("mark", (*mark).to_owned()),
    }
}

/// Kind and content of a client's call.
#[must_use]
pub fn call(call: &Call) -> (&'static str, String) {
    match call {
        Call::Propose { command: bytes } => ("propose", command(bytes)),
        Call::ProposeUnique { command: bytes } => ("propose-unique", command(bytes)),
        Call::Barrier => ("barrier", "a linearizable read".to_owned()),
        Call::Confirm { question } => {
            ("confirm", format!("a question of {} bytes to a proven leader", question.len()))
        }
        Call::Transfer { to } => ("transfer", format!("leadership to {to}")),
    }
}

/// A local read.
#[must_use]
pub fn read(key: &[u8], value: Option<&[u8]>, applied: Index) -> What {
    let value = value.map_or_else(|| "nothing".to_owned(), plain);
    What::Read { text: format!("{}={value} at {applied}", plain(key)) }
}

/// Kind and content of an outcome.
#[must_use]
pub fn outcome(outcome: &Outcome) -> (&'static str, String) {
    match outcome {
        Outcome::Committed { at, result } => {
            let answer = Answer::decode(result).map_or_else(|e| e.to_string(), |a| short(&a));
            ("committed", format!("committed at {}: {answer}", id(*at)))
        }
        Outcome::Ready { applied, age: 0 } => ("ready", format!("ready at {applied}")),
        Outcome::Ready { applied, age } => ("ready", format!("ready at {applied}, {age} us old")),
        Outcome::Confirmed(said) => ("confirmed", confirmed(said)),
        Outcome::NotCommitted(why) => ("refused", format!("not committed: {why}")),
        Outcome::Unknown(why) => ("unknown", format!("unknown: {why}")),
    }
}

fn unmatched(conflict: Conflict) -> String {
    format!(
        "conflict after {}: I end at {}, my term there is {}, it begins at {}",
        id(conflict.prev),
        conflict.last,
        conflict.term.map_or_else(|| "unknown".to_owned(), |term| term.to_string()),
        conflict.first_of_term
    )
}

/// What a request or a reply of the repair is about.
fn listed<T, N: Display>(ask: u64, all: &[T], name: impl Fn(&T) -> N) -> String {
    let all: Vec<String> = all.iter().map(|one| name(one).to_string()).collect();
    format!("{ask}: {}", all.join(" "))
}

fn confirmed(said: &Confirmation) -> String {
    let bytes = said.answer.len();
    format!("an answer of {bytes} bytes, proven in {} at {}", said.term, said.index)
}

fn id(id: LogId) -> String {
    if id == LogId::default() { "none".to_owned() } else { id.to_string() }
}

fn list(entries: &Entries) -> String {
    let all = entries.as_slice();
    let shown = all.iter().take(ENTRIES_MAX).map(|entry| match &entry.body {
        Body::Command(bytes) => format!("{} {}", entry.id, command(bytes)),
        other => format!("{} {}", entry.id, short(other)),
    });
    let mut parts: Vec<String> = shown.collect();
    if let (true, Some(last)) = (all.len() > ENTRIES_MAX, all.last()) {
        parts.push(format!("and {} more to {}", all.len() - ENTRIES_MAX, last.id));
    }
    format!("[{}]", parts.join("; "))
}

/// A command of the metastore in words.
fn command(bytes: &[u8]) -> String {
    let (by, command) = match decode(bytes) {
        Ok(decoded) => decoded,
        Err(fault) => return format!("{} bytes ({fault})", bytes.len()),
    };
    let by = by.map_or_else(String::new, |SessionRef { client, sequence }| {
        format!(" (session {client} #{sequence})")
    });
    let what = match &command {
        Command::KvPut { key, value } => format!("put {}={}", plain(key), plain(value)),
        Command::KvCas { key, expected, value } => {
            let expected = expected.as_ref().map_or_else(|| "nothing".to_owned(), |v| plain(v));
            format!("cas {} {expected}->{}", plain(key), plain(value))
        }
        Command::KvDelete { key } => format!("delete {}", plain(key)),
        Command::CreateTopic(c) => format!("create topic {}", c.name),
        Command::DeleteTopic(c) => {
            let which = c.incarnation.map_or_else(String::new, |i| format!(" (incarnation {i})"));
            format!("delete topic {}{which}", c.name)
        }
        Command::RegisterSession => "register a session".to_owned(),
        other => short(other),
    };
    format!("{what}{by}")
}

/// Bytes as text, without the padding of values.
fn plain(bytes: &[u8]) -> String {
    let text: String =
        bytes.iter().take(48).map(|b| char::from(*b).escape_default().to_string()).collect();
    text.trim_end_matches('.').to_owned()
}

fn short(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(TEXT_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use holdfast_consensus::Term;

    #[test]
    fn a_message_is_told_in_the_words_of_the_paper() {
        let last = LogId { term: Term(2), index: Index(5) };
        let vote = Message::Vote { term: Term(3), pre: false, last, transfer: false };
        assert_eq!(message(&vote), ("Vote", "for t3, my log ends at t2.i5".to_owned()));
        let round = 7;
        let beat = Message::Append {
            term: Term(3),
            round,
            prev: LogId::default(),
            commit: Index(0),
            commit_own_term: true,
            entries: Entries::empty(),
        };
        assert_eq!(message(&beat), ("Heartbeat", "t3 #7 after none, commit i0".to_owned()));
    }

    #[test]
    fn a_command_shows_its_key_and_its_value_without_padding() {
        let (key, value) = (Bytes::from("k1"), Bytes::from("c0-3-........"));
        let put = Command::KvPut { key, value };
        let by = Some(SessionRef { client: 4, sequence: 9 });
        let bytes = put.encode(by).expect("a small command encodes");
        assert_eq!(command(&bytes), "put k1=c0-3- (session 4 #9)");
        assert!(command(b"x").contains("1 bytes"), "what does not decode is said to be so");
    }

    #[test]
    fn long_texts_end_in_dots() {
        let text = short(&"x".repeat(1_000));
        assert!(text.ends_with("...") && text.len() < 200, "{text}");
    }
}

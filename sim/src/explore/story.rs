//! The way to a violation, as a person would tell it: one line for each step.

use super::catalog::{Catalog, kind, parts};
use super::ghost::show;
use super::{Found, MEMBER, Search};
use crate::check::Violation;
use holdfast_consensus::LogId;
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::message::Message;

impl Search<'_> {
    /// A violation at the end of the path to state `id` and one more move.
    pub(super) fn found(&self, violation: Violation, id: u32, last: u32) -> Box<Found> {
        let mut moves = vec![last];
        let mut at = id as usize;
        while at != 0 {
            let (parent, by) = self.parents[at];
            moves.push(by);
            at = parent as usize;
        }
        moves.reverse();
        Box::new(Found { violation, path: self.tell_path(&moves) })
    }

    /// Takes the steps again and says what each does.
    fn tell_path(&self, moves: &[u32]) -> Vec<String> {
        let mut locals: Vec<_> = (0..self.nodes)
            .map(|n| self.catalog.local(u32::try_from(n).unwrap_or(0)).clone())
            .collect();
        let mut lines = Vec::new();
        for (n, by) in moves.iter().enumerate() {
            let (kind, argument) = parts(*by);
            let about_message = matches!(kind, kind::DELIVER | kind::REPEAT | kind::LOSE);
            let (member, argument) = if about_message {
                let to = self.catalog.message(argument).to.0;
                (usize::try_from(to).unwrap_or(1) - 1, argument)
            } else {
                ((argument >> MEMBER) as usize, argument & ((1 << MEMBER) - 1))
            };
            let what = tell_move(&self.catalog, kind, argument, member);
            lines.push(format!("{:>3}  {what}", n + 1));
            if kind == kind::LOSE {
                continue;
            }
            let input = if kind == kind::REPEAT { kind::DELIVER } else { kind };
            let happening = self.catalog.happening(super::code(input, argument));
            let local = &mut locals[member];
            match local.happen(&happening) {
                Ok(deeds) => {
                    let sends = deeds.sends.iter().map(|(to, message)| {
                        format!("       sends n{} {}", to.0, tell_message(message))
                    });
                    lines.extend(sends);
                    if let Some(through) = deeds.commit {
                        lines.push(format!("       commits to {through}"));
                    }
                    lines.push(format!("       {}", tell_local(local)));
                }
                Err(violation) => lines.push(format!("       {violation}")),
            }
        }
        lines
    }
}

fn tell_local(local: &super::local::Local) -> String {
    let hard = local.core.hard();
    let log: Vec<String> = local.mirror.log.iter().map(|e| show(super::catalog::cell(e))).collect();
    let voted = hard.voted_for.map_or_else(|| "nobody".to_owned(), |m| format!("n{}", m.0));
    let role = match local.core.role() {
        RoleKind::Follower => "follows",
        RoleKind::PreCandidate => "asks around",
        RoleKind::Candidate => "stands",
        RoleKind::Leader => "leads",
    };
    format!(
        "is: n{} {role} in {}, voted for {voted}; log [{}], of that durable {}, {} writes under way; commit {}",
        local.core.member().0,
        hard.term,
        log.join(", "),
        local.image.log.len(),
        local.queue.len(),
        local.core.commit(),
    )
}

fn tell_move(catalog: &Catalog, kind: u32, argument: u32, member: usize) -> String {
    let me = format!("n{}", member + 1);
    let about = |what: &str| {
        let sent = catalog.message(argument);
        format!("{me} {what} n{}'s {}", sent.from.0, tell_message(&sent.message))
    };
    match kind {
        kind::DELIVER => about("receives"),
        kind::REPEAT => about("receives, not for the last time,"),
        kind::LOSE => about("will never see"),
        kind::TIME_OUT => format!("{me} hears nothing until its time is over"),
        kind::BEAT => format!("{me} is due to send heartbeats"),
        kind::SILENCE => format!("{me} leads and hears nobody for two election timeouts"),
        kind::PROPOSE => format!("{me} is given command {argument}"),
        kind::PERSIST => format!("{me}: its oldest write becomes durable"),
        kind::CRASH => {
            format!("{me} dies after {argument} of its writes became durable, and starts again")
        }
        kind::FAIL => format!("{me}: its oldest write fails, and its log is opened again"),
        _ => format!("{me} is asked for read {argument}"),
    }
}

fn tell_message(message: &Message) -> String {
    match message {
        Message::Vote { term, pre, last, .. } => {
            let what = if *pre { "question whether it could win" } else { "request for votes in" };
            format!("{what} {term} (log ends at {last})")
        }
        Message::VoteReply { asked, granted, pre, term } => {
            let what = if *granted { "yes" } else { "no" };
            let kind = if *pre { "pre-vote" } else { "vote" };
            format!("{what} to the {kind} for {asked} (says {term})")
        }
        Message::Append { term, round, prev, commit, entries, .. } => {
            let ids: Vec<String> = entries.iter().map(|e| e.id.to_string()).collect();
            format!(
                "append of {term}, round {round}: [{}] after {prev}, commit {commit}",
                ids.join(", ")
            )
        }
        Message::AppendReply { term, round, result, .. } => match result {
            Ok(id) => format!("acknowledgement of {} in {term}, round {round}", held(*id)),
            Err(conflict) => {
                format!("rejection of {} in {term}, round {round}", held(conflict.prev))
            }
        },
        other => format!("{other:?}"),
    }
}

fn held(id: LogId) -> String {
    if id == LogId::default() { "nothing".to_owned() } else { id.to_string() }
}

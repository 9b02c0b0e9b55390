//! What an entry of the log says: in words for people, in fields for programs. One place for every
//! tool that shows entries. Both say the same; only the words are cut where they grow long.

use holdfast_consensus::{Body, Entry, MemberId, Membership};
use holdfast_fsm::command::{self, Command, PartitionRef};
use holdfast_fsm::records::Owner;
use serde_json::{Value, json};

/// Characters of a decoded entry that people are shown.
const TEXT_MAX: usize = 240;

/// `blank`, `command` or `configuration`.
pub(super) const fn entry_kind(entry: &Entry) -> &'static str {
    match entry.body {
        Body::Blank => "blank",
        Body::Command(_) => "command",
        Body::Membership(_) => "configuration",
    }
}

/// What an entry says, for people: one line, with control characters escaped.
pub(super) fn entry_text(entry: &Entry) -> String {
    let text = match &entry.body {
        Body::Blank => "the first entry of a term".to_owned(),
        Body::Membership(membership) => members_text(membership),
        Body::Command(bytes) => match command::decode(bytes) {
            Ok((None, command)) => command_text(&command),
            Ok((Some(of), command)) => {
                let text = command_text(&command);
                format!("{text} (session {} number {})", of.client, of.sequence)
            }
            Err(e) => format!("{} bytes that this build does not decode: {e}", bytes.len()),
        },
    };
    match text.char_indices().nth(TEXT_MAX) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

/// The same as an object, with nothing cut: `kind`, and of a command `command`, `type`, `session`
/// and what it carries. Ids are hexadecimal strings. Bytes are a string where they are UTF-8, and
/// `{"hex": ...}` where they are not.
pub(super) fn entry_json(entry: &Entry) -> Value {
    let mut value = match &entry.body {
        Body::Blank => json!({}),
        Body::Membership(membership) => members_json(membership),
        Body::Command(bytes) => match command::decode(bytes) {
            Ok((session, command)) => {
                let mut value = fields(&command);
                value["command"] = json!(word(&command));
                value["type"] = json!(command.kind());
                value["session"] = json!(session);
                value
            }
            Err(e) => json!({ "undecodable": e.to_string(), "bytes": bytes.len() }),
        },
    };
    value["kind"] = json!(entry_kind(entry));
    value
}

fn members_text(membership: &Membership) -> String {
    let names = |ids: &[MemberId]| {
        let names: Vec<_> = ids.iter().map(|id| membership.name_of(*id)).collect();
        names.join(", ")
    };
    let mut text = format!("voters {}", names(&membership.voters));
    for (what, ids) in [("outgoing", &membership.outgoing), ("learners", &membership.learners)] {
        if !ids.is_empty() {
            text = format!("{text}; {what} {}", names(ids));
        }
    }
    text
}

fn members_json(membership: &Membership) -> Value {
    let all = |ids: &[MemberId]| -> Vec<Value> {
        let one =
            |id: &MemberId| json!({ "member": id.to_string(), "name": membership.names.get(id) });
        ids.iter().map(one).collect()
    };
    json!({
        "voters": all(&membership.voters),
        "outgoing": all(&membership.outgoing),
        "learners": all(&membership.learners),
    })
}

/// The name of a command; never changes for a type.
const fn word(command: &Command) -> &'static str {
    match command {
        Command::CreateTopic(_) => "create_topic",
        Command::DeleteTopic(_) => "delete_topic",
        Command::PutMember(_) => "put_member",
        Command::RegisterSession => "register_session",
        Command::CloseSession { .. } => "close_session",
        Command::KvPut { .. } => "kv_put",
        Command::KvCas { .. } => "kv_cas",
        Command::KvDelete { .. } => "kv_delete",
        Command::AssignPartition(_) => "assign_partition",
        Command::AttachChild(_) => "attach_child",
        Command::DetachChild(_) => "detach_child",
        Command::SetTarget(_) => "set_target",
        Command::CompleteMove(_) => "complete_move",
        Command::AbortMove(_) => "abort_move",
    }
}

fn fields(command: &Command) -> Value {
    match command {
        Command::CreateTopic(c) => json!({
            "name": c.name, "partitions": c.partitions, "retention_ms": c.retention_ms,
            "created_at_ms": c.created_at_ms,
        }),
        Command::DeleteTopic(c) => json!({ "name": c.name, "incarnation": c.incarnation }),
        Command::PutMember(c) => json!({
            "member": c.member.to_string(), "name": c.name, "http": c.http, "build": c.build,
            "newest_type": c.newest_type,
        }),
        Command::RegisterSession => json!({}),
        Command::CloseSession { client } => json!({ "client": client }),
        Command::KvPut { key, value } => json!({ "key": bytes(key), "value": bytes(value) }),
        Command::KvCas { key, expected, value } => json!({
            "key": bytes(key), "expected": expected.as_deref().map(bytes), "value": bytes(value),
        }),
        Command::KvDelete { key } => json!({ "key": bytes(key) }),
        Command::AssignPartition(c) => json!({ "of": partition(&c.to), "owner": owner(&c.owner) }),
        Command::AttachChild(c) => json!({
            "child": c.child, "child_incarnation": c.child_incarnation, "parent": c.parent,
            "parent_incarnation": c.parent_incarnation, "delay_ms": c.delay_ms, "tails": c.tails,
        }),
        Command::DetachChild(c) => json!({ "child": c.child, "incarnation": c.incarnation }),
        Command::SetTarget(c) => json!({
            "of": partition(&c.of), "placed": c.placed, "target": owner(&c.target),
        }),
        Command::CompleteMove(c) => json!({
            "of": partition(&c.of), "move": c.incarnation, "length": c.length, "forced": c.forced,
        }),
        Command::AbortMove(c) => json!({ "of": partition(&c.of), "move": c.incarnation }),
    }
}

fn partition(of: &PartitionRef) -> Value {
    json!({ "topic": of.topic, "incarnation": of.incarnation, "partition": of.partition })
}

fn owner(owner: &Owner) -> Value {
    json!({ "node": owner.node, "volume": owner.volume.to_string() })
}

fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

/// A command in words. Names and values are quoted, so that nothing in them is taken for words.
fn command_text(command: &Command) -> String {
    let only = |incarnation: Option<u64>| {
        incarnation.map_or_else(String::new, |i| format!(", only incarnation {i}"))
    };
    match command {
        Command::CreateTopic(c) => {
            let kept = c.retention_ms.map_or("for ever".to_owned(), |ms| format!("for {ms} ms"));
            format!("topic create {:?}, partitions {}, kept {kept}", c.name, c.partitions)
        }
        Command::DeleteTopic(c) => format!("topic delete {:?}{}", c.name, only(c.incarnation)),
        Command::PutMember(c) => format!(
            "member {} is {:?} at {:?}, build {:?}, knows types up to {}",
            c.member, c.name, c.http, c.build, c.newest_type
        ),
        Command::RegisterSession => "session register".to_owned(),
        Command::CloseSession { client } => format!("session close {client}"),
        Command::KvPut { key, value } => format!("kv put {} = {}", quoted(key), quoted(value)),
        Command::KvCas { key, expected, value } => {
            let old = expected.as_deref().map_or("absent".to_owned(), quoted);
            format!("kv cas {} from {old} to {}", quoted(key), quoted(value))
        }
        Command::KvDelete { key } => format!("kv delete {}", quoted(key)),
        Command::AssignPartition(c) => {
            format!("partition assign {} to {:?}", part(&c.to), c.owner.node)
        }
        Command::AttachChild(c) => format!(
            "topic attach {:?} of incarnation {} to {:?} of incarnation {}, delay {} ms, tails {:?}",
            c.child, c.child_incarnation, c.parent, c.parent_incarnation, c.delay_ms, c.tails
        ),
        Command::DetachChild(c) => format!("topic detach {:?}{}", c.child, only(c.incarnation)),
        Command::SetTarget(c) => {
            format!("move begin {} from placement {} to {:?}", part(&c.of), c.placed, c.target.node)
        }
        Command::CompleteMove(c) => {
            let forced = if c.forced { ", forced" } else { "" };
            let (of, length) = (part(&c.of), c.length);
            format!("move complete {of}, move {}, {length} records{forced}", c.incarnation)
        }
        Command::AbortMove(c) => format!("move abort {}, move {}", part(&c.of), c.incarnation),
    }
}

fn part(of: &PartitionRef) -> String {
    format!("{:?} partition {} of incarnation {}", of.topic, of.partition, of.incarnation)
}

/// Bytes as text where they are some, escaped; never more of them than are shown.
fn quoted(bytes: &[u8]) -> String {
    let (shown, more) = match bytes.split_at_checked(TEXT_MAX) {
        Some((shown, rest)) if !rest.is_empty() => (shown, "..."),
        _ => (bytes, ""),
    };
    format!("\"{}{more}\"", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use holdfast_consensus::LogId;
    use holdfast_fsm::{CreateTopic, SessionRef};

    fn entry(body: Body) -> Entry {
        Entry { id: LogId::new(2, 7), time: 5, body }
    }

    fn command(command: &Command, session: Option<SessionRef>) -> Entry {
        entry(Body::Command(command.encode(session).unwrap()))
    }

    #[test]
    fn a_topic_is_told_in_words_and_in_fields() {
        let name = "orders".to_owned();
        let create =
            CreateTopic { name, partitions: 3, retention_ms: Some(60_000), created_at_ms: 9 };
        let session = Some(SessionRef { client: 4, sequence: 1 });
        let entry = command(&Command::CreateTopic(create), session);
        assert_eq!(
            entry_text(&entry),
            "topic create \"orders\", partitions 3, kept for 60000 ms (session 4 number 1)"
        );
        assert_eq!(
            entry_json(&entry),
            json!({
                "kind": "command", "command": "create_topic", "type": 1, "name": "orders",
                "partitions": 3, "retention_ms": 60_000, "created_at_ms": 9,
                "session": { "client": 4, "sequence": 1 },
            })
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_told_all_the_same() {
        let key = Bytes::from_static(b"a\"\nb");
        let value = Bytes::from(vec![0xff; 1000]);
        let entry = command(&Command::KvPut { key, value }, None);
        let text = entry_text(&entry);
        assert!(text.starts_with(r#"kv put "a\"\nb" = "\xff\xff"#), "{text}");
        assert!(text.ends_with("...") && text.len() == TEXT_MAX + 3, "{text}");
        let fields = entry_json(&entry);
        assert_eq!(fields["key"], "a\"\nb");
        assert_eq!(fields["value"]["hex"].as_str().unwrap().len(), 2000, "nothing is cut");
    }

    #[test]
    fn what_this_build_does_not_know_is_said_to_be_so() {
        let entry = entry(Body::Command(Bytes::from_static(&[0xff, 0xff, 0])));
        assert!(entry_text(&entry).contains("does not decode"), "{}", entry_text(&entry));
        let fields = entry_json(&entry);
        assert!(fields["undecodable"].is_string() && fields["bytes"] == 3, "{fields}");
        assert_eq!(fields["kind"], "command");
    }

    #[test]
    fn a_configuration_names_its_members_and_their_parts() {
        let mut membership =
            Membership::of_voters([(MemberId(1), "n1".to_owned()), (MemberId(2), "n2".to_owned())]);
        membership.learners.push(MemberId(3));
        let entry = entry(Body::Membership(membership.into()));
        assert_eq!(entry_text(&entry), "voters n1, n2; learners 0000000000000003");
        let fields = entry_json(&entry);
        assert_eq!(fields["voters"][1]["name"], "n2");
        assert_eq!(fields["learners"][0], json!({ "member": "0000000000000003", "name": null }));
    }
}

//! What each entry does to the state. Reads nothing but the entry and the state, so that every
//! replica computes the same records, answers and digest.

mod links;
mod placement;

use crate::answer::{Answer, CURRENT_VALUE_MAX, Current};
use crate::command::{Command, CreateTopic, DeleteTopic, Envelope, EnvelopeFault, PutMember};
use crate::header::Header;
use crate::records::{self, KvValue, Member, ResourceKind, Stamp, TableId, Tombstone, Topic};
use crate::rows::Rows;
use crate::session;
use bytes::Bytes;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::{Body, Entry};

/// Applies one entry and moves the header to it, whatever the entry is and whether it is refused
/// or not: an entry that did not move the index would be applied again (R24, BUGS B60).
pub(crate) fn entry(
    rows: &mut Rows<'_>,
    header: &mut Header,
    entry: &Entry,
) -> Result<Option<Bytes>, StoreFault> {
    session::sweep(rows, header.time, entry.time)?;
    let answer = match &entry.body {
        Body::Blank => None,
        Body::Membership(membership) => {
            header.membership = membership.as_ref().clone();
            header.membership_index = entry.id.index;
            None
        }
        Body::Command(bytes) => Some(command(rows, header, entry, bytes)?),
    };
    header.last = entry.id;
    header.time = entry.time;
    Ok(answer)
}

fn command(
    rows: &mut Rows<'_>,
    header: &mut Header,
    entry: &Entry,
    bytes: &[u8],
) -> Result<Bytes, StoreFault> {
    let envelope = match Envelope::open(bytes) {
        Ok(envelope) => envelope,
        Err(EnvelopeFault::Malformed) => return Ok(Answer::Undecodable.encode()),
        Err(EnvelopeFault::Unknown { kind }) => {
            return Err(StoreFault::UnknownType { at: entry.id.index, kind });
        }
    };
    header.newest_type = header.newest_type.max(envelope.kind);
    let Some(by) = envelope.session else {
        return Ok(execute(rows, header, entry, &envelope)?.encode());
    };
    let admitted = match session::admit(rows, by, entry.time)? {
        session::Admission::Answered(answer) => return Ok(answer),
        session::Admission::Execute(admitted) => admitted,
    };
    let answer = execute(rows, header, entry, &envelope)?.encode();
    session::record(rows, admitted, by, entry, answer.clone())?;
    Ok(answer)
}

fn execute(
    rows: &mut Rows<'_>,
    header: &Header,
    entry: &Entry,
    envelope: &Envelope<'_>,
) -> Result<Answer, StoreFault> {
    let Ok(command) = envelope.command() else { return Ok(Answer::Undecodable) };
    if let Err(rule) = command.validate() {
        return Ok(Answer::Invalid(rule));
    }
    let index = entry.id.index.0;
    match command {
        Command::CreateTopic(c) => create_topic(rows, header, index, c),
        Command::DeleteTopic(c) => delete_topic(&mut Scene { rows, header, entry }, &c),
        Command::AssignPartition(c) => placement::assign(&mut Scene { rows, header, entry }, c),
        Command::SetTarget(c) => placement::set_target(&mut Scene { rows, header, entry }, c),
        Command::CompleteMove(c) => placement::complete(&mut Scene { rows, header, entry }, &c),
        Command::AbortMove(c) => placement::abort(&mut Scene { rows, header, entry }, &c),
        Command::AttachChild(c) => links::attach(&mut Scene { rows, header, entry }, c),
        Command::DetachChild(c) => links::detach(&mut Scene { rows, header, entry }, &c),
        Command::PutMember(c) => put_member(rows, index, c),
        Command::RegisterSession => session::register(rows, entry),
        Command::CloseSession { client } => session::close(rows, client),
        Command::KvPut { key, value } => {
            put_value(rows, &records::key(TableId::Kv, &key), index, value)?;
            Ok(Answer::KvStored)
        }
        Command::KvCas { key, expected, value } => {
            let key = records::key(TableId::Kv, &key);
            let current = rows.get::<KvValue>(&key)?.map(|row| row.value);
            if current != expected {
                return Ok(Answer::CasMissed { current: describe(current) });
            }
            put_value(rows, &key, index, value)?;
            Ok(Answer::KvStored)
        }
        Command::KvDelete { key } => {
            let existed = rows.remove::<KvValue>(&records::key(TableId::Kv, &key))?;
            Ok(if existed { Answer::KvDeleted } else { Answer::NotFound })
        }
    }
}

fn create_topic(
    rows: &mut Rows<'_>,
    header: &Header,
    index: u64,
    c: CreateTopic,
) -> Result<Answer, StoreFault> {
    let key = records::key(TableId::Topics, c.name.as_bytes());
    if let Some(live) = rows.get::<Topic>(&key)? {
        return Ok(Answer::TopicExists { incarnation: live.stamp.incarnation });
    }
    let stamp = Stamp {
        cluster: header.cluster,
        epoch: header.state_epoch,
        group: header.group,
        kind: ResourceKind::Topic,
        name: c.name,
        incarnation: index,
    };
    let topic = Topic {
        stamp,
        partitions: c.partitions,
        retention_ms: c.retention_ms,
        created_at_ms: c.created_at_ms,
    };
    rows.put(&key, &topic)?;
    Ok(Answer::TopicCreated { incarnation: index })
}

/// What an entry changes, and what it is: together, for the commands of the data plane.
struct Scene<'a, 'txn> {
    rows: &'a mut Rows<'txn>,
    header: &'a Header,
    entry: &'a Entry,
}

impl Scene<'_, '_> {
    /// A stamp of what this entry creates. An entry carries one command and creates or deletes one
    /// thing of a kind and name, so that its index names it (R31).
    fn stamp(&self, kind: ResourceKind, name: String) -> Stamp {
        Stamp {
            cluster: self.header.cluster,
            epoch: self.header.state_epoch,
            group: self.header.group,
            kind,
            name,
            incarnation: self.entry.id.index.0,
        }
    }

    /// A live topic of the wanted incarnation, or the answer that refuses.
    fn topic(&self, name: &str, incarnation: u64) -> Result<Result<Topic, Answer>, StoreFault> {
        let found = self.rows.get::<Topic>(&records::key(TableId::Topics, name.as_bytes()))?;
        Ok(match found {
            None => Err(Answer::NotFound),
            Some(live) if live.stamp.incarnation != incarnation => {
                Err(Answer::WrongIncarnation { current: live.stamp.incarnation })
            }
            Some(live) => Ok(live),
        })
    }
}

/// Writes the tombstone of what this entry deletes: the only local proof that anything of this
/// incarnation may be destroyed (R29).
fn bury(scene: &mut Scene<'_, '_>, stamp: Stamp) -> Result<(), StoreFault> {
    let tombstone = Tombstone {
        epoch: scene.header.state_epoch,
        deleted_at: scene.entry.id.index.0,
        time: scene.entry.time,
        stamp,
    };
    scene.rows.put(&records::tombstone_key(&tombstone.stamp), &tombstone)
}

/// Deletes a topic with its placements and attachments, and writes their tombstones, in the same
/// transaction.
fn delete_topic(scene: &mut Scene<'_, '_>, c: &DeleteTopic) -> Result<Answer, StoreFault> {
    let key = records::key(TableId::Topics, c.name.as_bytes());
    let Some(live) = scene.rows.get::<Topic>(&key)? else { return Ok(Answer::NotFound) };
    let incarnation = live.stamp.incarnation;
    if c.incarnation.is_some_and(|wanted| wanted != incarnation) {
        return Ok(Answer::WrongIncarnation { current: incarnation });
    }
    scene.rows.remove::<Topic>(&key)?;
    bury(scene, live.stamp)?;
    placement::forget(scene, &c.name)?;
    links::forget(scene, &c.name)?;
    Ok(Answer::TopicDeleted { incarnation })
}

fn put_member(rows: &mut Rows<'_>, index: u64, c: PutMember) -> Result<Answer, StoreFault> {
    let member = Member {
        member: c.member,
        name: c.name,
        http: c.http,
        build: c.build,
        newest_type: c.newest_type,
        updated: index,
    };
    rows.put(&records::number_key(TableId::Members, member.member.0), &member)?;
    Ok(Answer::MemberStored)
}

fn put_value(rows: &mut Rows<'_>, key: &[u8], index: u64, value: Bytes) -> Result<(), StoreFault> {
    rows.put(key, &KvValue { modified: index, value })
}

fn describe(current: Option<Bytes>) -> Current {
    match current {
        None => Current::Absent,
        Some(value) if value.len() <= CURRENT_VALUE_MAX => Current::Value(value),
        Some(value) => Current::Large { bytes: value.len() as u64 },
    }
}

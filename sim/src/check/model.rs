//! The reference state machine: what the metastore must answer and hold, in the simplest form.
//! It is fed the committed log of the run and knows every past value of every key.

use super::placement::Placements;
use bytes::Bytes;
use holdfast_consensus::{Body, Entry, Index};
use holdfast_fsm::answer::CURRENT_VALUE_MAX;
use holdfast_fsm::command::{self, Envelope};
use holdfast_fsm::{Answer, Command, Current, SessionRef};
use std::collections::BTreeMap;

/// Values by the index from which on they hold.
type Versions = Vec<(u64, Option<Bytes>)>;

/// The state after some prefix of the committed log.
#[derive(Debug, Default)]
pub struct Model {
    applied: u64,
    kv: BTreeMap<Bytes, Versions>,
    topics: BTreeMap<String, u64>,
    placements: Placements,
    sessions: BTreeMap<u64, (u64, Answer)>,
    answers: BTreeMap<u64, Answer>,
    /// Index at which each command of a session was executed.
    executed: BTreeMap<SessionRef, u64>,
    /// Where each request id stands.
    requests: BTreeMap<u128, u64>,
    twice: Option<(u64, u64)>,
}

impl Model {
    /// Last applied index.
    #[must_use]
    pub const fn applied(&self) -> Index {
        Index(self.applied)
    }

    /// Takes the next committed entry.
    pub fn apply(&mut self, entry: &Entry) {
        self.applied = entry.id.index.0;
        let Body::Command(bytes) = &entry.body else { return };
        if let Ok(Envelope { request: Some(request), .. }) = Envelope::open(bytes)
            && let Some(before) = self.requests.insert(request, self.applied)
        {
            self.twice = Some((before, self.applied));
        }
        let answer = match command::decode(bytes) {
            Ok((session, command)) => self.admit(session, command),
            Err(_) => Answer::Undecodable,
        };
        self.answers.insert(self.applied, answer);
    }

    fn admit(&mut self, session: Option<SessionRef>, command: Command) -> Answer {
        let Some(by) = session else { return self.execute(command) };
        match self.sessions.get(&by.client) {
            None => return Answer::SessionExpired,
            Some((last, answer)) if *last == by.sequence => return answer.clone(),
            Some((last, _)) if *last > by.sequence => return Answer::StaleSequence { last: *last },
            Some(_) => {}
        }
        let answer = self.execute(command);
        self.sessions.insert(by.client, (by.sequence, answer.clone()));
        self.executed.insert(by, self.applied);
        answer
    }

    fn execute(&mut self, command: Command) -> Answer {
        let index = self.applied;
        match command {
            Command::RegisterSession => {
                self.sessions.insert(index, (0, Answer::NotFound));
                Answer::SessionRegistered { client: index }
            }
            Command::CreateTopic(c) => match self.topics.get(&c.name) {
                Some(incarnation) => Answer::TopicExists { incarnation: *incarnation },
                None => {
                    self.placements.created(&c, index);
                    self.topics.insert(c.name, index);
                    Answer::TopicCreated { incarnation: index }
                }
            },
            Command::DeleteTopic(c) => match self.topics.get(&c.name).copied() {
                None => Answer::NotFound,
                Some(current) if c.incarnation.is_some_and(|wanted| wanted != current) => {
                    Answer::WrongIncarnation { current }
                }
                Some(incarnation) => {
                    self.topics.remove(&c.name);
                    self.placements.deleted(&c.name);
                    Answer::TopicDeleted { incarnation }
                }
            },
            Command::KvPut { key, value } => {
                self.kv.entry(key).or_default().push((index, Some(value)));
                Answer::KvStored
            }
            Command::KvCas { key, expected, value } => {
                let current = self.value_at(&key, Index(index)).cloned();
                if current == expected {
                    self.kv.entry(key).or_default().push((index, Some(value)));
                    return Answer::KvStored;
                }
                Answer::CasMissed {
                    current: match current {
                        None => Current::Absent,
                        Some(v) if v.len() > CURRENT_VALUE_MAX => {
                            Current::Large { bytes: v.len() as u64 }
                        }
                        Some(v) => Current::Value(v),
                    },
                }
            }
            Command::KvDelete { key } => {
                let existed = self.value_at(&key, Index(index)).is_some();
                self.kv.entry(key).or_default().push((index, None));
                if existed { Answer::KvDeleted } else { Answer::NotFound }
            }
            Command::AssignPartition(c) => either(self.placements.assign(c, index)),
            Command::SetTarget(c) => either(self.placements.set_target(c, index)),
            Command::CompleteMove(c) => either(self.placements.complete(&c)),
            Command::AbortMove(c) => either(self.placements.abort(&c)),
            Command::AttachChild(c) => either(self.placements.attach(c, index)),
            Command::DetachChild(c) => either(self.placements.detach(&c)),
            // The workload sends neither.
            Command::PutMember(_) | Command::CloseSession { .. } => Answer::Undecodable,
        }
    }

    /// The places of a request id that was committed twice, if there is one.
    #[must_use]
    pub const fn twice(&self) -> Option<(u64, u64)> {
        self.twice
    }

    /// What a key held once everything up to `applied` was applied.
    #[must_use]
    pub fn value_at(&self, key: &[u8], applied: Index) -> Option<&Bytes> {
        let versions = self.kv.get(key)?;
        let after = versions.partition_point(|(index, _)| *index <= applied.0);
        versions[..after].last()?.1.as_ref()
    }

    /// What the entry at an index was answered with.
    #[must_use]
    pub fn answer_at(&self, index: Index) -> Option<&Answer> {
        self.answers.get(&index.0)
    }

    /// Where a command of a session was executed.
    #[must_use]
    pub fn executed_at(&self, by: SessionRef) -> Option<Index> {
        self.executed.get(&by).copied().map(Index)
    }

    /// Live keys with their values.
    pub fn live(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.kv.iter().filter_map(|(key, versions)| Some((key, versions.last()?.1.as_ref()?)))
    }

    /// Who owns what, and what feeds what.
    #[must_use]
    pub const fn placements(&self) -> &Placements {
        &self.placements
    }

    /// Live topics with their incarnations.
    #[must_use]
    pub const fn topics(&self) -> &BTreeMap<String, u64> {
        &self.topics
    }
}

/// A refusal is an answer like any other.
fn either(answer: Result<Answer, Answer>) -> Answer {
    answer.unwrap_or_else(|refusal| refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::LogId;

    fn apply(model: &mut Model, session: Option<(u64, u64)>, command: &Command) -> Answer {
        let by = session.map(|(client, sequence)| SessionRef { client, sequence });
        let body = Body::Command(command.encode(by).expect("encodes"));
        let index = model.applied + 1;
        model.apply(&Entry { id: LogId::new(1, index), time: 0, body });
        model.answer_at(Index(index)).expect("answered").clone()
    }

    #[test]
    fn the_model_executes_a_command_of_a_session_once_and_keeps_past_values() {
        let mut model = Model::default();
        assert_eq!(
            apply(&mut model, None, &Command::RegisterSession),
            Answer::SessionRegistered { client: 1 }
        );
        let put = |v: &'static str| Command::KvPut { key: "k".into(), value: v.into() };
        assert_eq!(apply(&mut model, Some((1, 1)), &put("a")), Answer::KvStored);
        assert_eq!(apply(&mut model, None, &put("b")), Answer::KvStored);
        assert_eq!(apply(&mut model, Some((1, 1)), &put("a")), Answer::KvStored);
        assert_eq!(model.value_at(b"k", Index(4)), Some(&"b".into()), "the retry did nothing");
        assert_eq!(model.value_at(b"k", Index(2)), Some(&"a".into()));
        assert_eq!(model.value_at(b"k", Index(1)), None);
        assert_eq!(apply(&mut model, Some((9, 1)), &put("c")), Answer::SessionExpired);
        let by = SessionRef { client: 1, sequence: 1 };
        assert_eq!(model.executed_at(by), Some(Index(2)));
        let unique = put("d").encode_unique(None, 77).expect("encodes");
        for index in [6, 7] {
            assert_eq!(model.twice(), None);
            let body = Body::Command(unique.clone());
            model.apply(&Entry { id: LogId::new(1, index), time: 0, body });
        }
        assert_eq!(model.twice(), Some((6, 7)));
    }
}

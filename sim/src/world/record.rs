//! What clients saw, taken down as a history of registers: keys only, since topics are no registers.

use super::World;
use super::clients::{Seen, Work};
use crate::history::{Action, NOTHING};
use bytes::Bytes;
use holdfast_fsm::{Answer, Command, Current};

/// The process that a client is in the history.
pub(super) fn process_of(client: usize) -> u32 {
    u32::try_from(client).unwrap_or(u32::MAX)
}

impl World {
    /// A client sends its work: a write begins with its first attempt, since all go under one
    /// session and sequence; a read begins anew with each.
    pub(super) fn record_attempt(&mut self, client: usize) {
        let Some(work) = self.clients.work_mut(client) else { return };
        let Some(key) = work.key.clone() else { return };
        if std::mem::replace(&mut work.recorded, true) && work.write.is_some() {
            return;
        }
        let write = work.write.clone();
        let recorder = &mut self.suite.recorder;
        let action = match write {
            None => Action::Read(NOTHING),
            Some(Command::KvPut { value, .. }) => Action::Write(recorder.value(Some(&value))),
            Some(Command::KvDelete { .. }) => Action::Write(NOTHING),
            Some(Command::KvCas { expected, value, .. }) => Action::Cas {
                expected: recorder.value(expected.as_deref()),
                value: recorder.value(Some(&value)),
            },
            Some(_) => return,
        };
        recorder.begin(process_of(client), &key, action);
    }

    /// A read behind a barrier was answered.
    pub(super) fn record_read(&mut self, client: usize, seen: Seen) {
        let recorder = &mut self.suite.recorder;
        match seen {
            Seen::Refused => recorder.fail(process_of(client)),
            Seen::Value(value) => {
                let value = recorder.value(value.as_deref());
                recorder.ok(process_of(client), Some(Action::Read(value)));
            }
        }
    }

    /// A write was answered: a compare-and-set that missed, and a deletion of nothing, are reads.
    pub(super) fn record_answer(&mut self, client: usize, work: &Work, answer: Option<&Answer>) {
        if !work.recorded {
            return;
        }
        let recorder = &mut self.suite.recorder;
        let process = process_of(client);
        let mut saw = |value: Option<&Bytes>| {
            Some(Action::Read(recorder.value(value.map(|bytes| bytes.as_ref()))))
        };
        let action = match answer {
            Some(Answer::KvStored | Answer::KvDeleted) => None,
            Some(Answer::NotFound | Answer::CasMissed { current: Current::Absent }) => saw(None),
            Some(Answer::CasMissed { current: Current::Value(value) }) => saw(Some(value)),
            // It took no effect, and what it saw is not told.
            _ => return recorder.fail(process),
        };
        recorder.ok(process, action);
    }
}

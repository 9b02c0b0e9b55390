//! The smallest state machine that openraft's suite accepts: it remembers what was applied last.

use crate::Types;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    AnyError, Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, SnapshotMeta,
    StorageError, StorageIOError, StoredMembership,
};
use serde::{Deserialize, Serialize};
use std::io::Cursor;
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct State {
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, ()>,
    sum: u64,
}

/// A snapshot: its label and its bytes.
type Taken = (SnapshotMeta<u64, ()>, Vec<u8>);

/// In memory alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    state: State,
    /// Shared with those that build it.
    snapshot: Arc<Mutex<Option<Taken>>>,
}

impl Machine {
    fn meta(&self) -> SnapshotMeta<u64, ()> {
        let last = self.state.applied.map_or(0, |id| id.index);
        SnapshotMeta {
            last_log_id: self.state.applied,
            last_membership: self.state.membership.clone(),
            snapshot_id: format!("snapshot-{last}"),
        }
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError<u64>> {
        let bytes = bincode::serde::encode_to_vec(&self.state, bincode::config::standard());
        let bytes = bytes.map_err(|e| StorageIOError::write_snapshot(None, AnyError::new(&e)))?;
        *self.snapshot.lock().unwrap() = Some((self.meta(), bytes.clone()));
        Ok(Snapshot { meta: self.meta(), snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, ()>), StorageError<u64>> {
        Ok((self.state.applied, self.state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError<u64>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut answers = Vec::new();
        for entry in entries {
            self.state.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(number) => self.state.sum += number,
                EntryPayload::Membership(membership) => {
                    self.state.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            answers.push(());
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<Cursor<Vec<u8>>>, StorageError<u64>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, ()>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError<u64>> {
        let bytes = snapshot.into_inner();
        let read = bincode::serde::decode_from_slice(&bytes, bincode::config::standard());
        let read = read.map_err(|e| StorageIOError::read_snapshot(None, AnyError::new(&e)))?;
        let (mut state, _): (State, _) = read;
        (state.applied, state.membership) = (meta.last_log_id, meta.last_membership.clone());
        self.state = state;
        *self.snapshot.lock().unwrap() = Some((meta.clone(), bytes));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError<u64>> {
        let snapshot = self.snapshot.lock().unwrap().clone();
        Ok(snapshot.map(|(meta, bytes)| Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) }))
    }
}

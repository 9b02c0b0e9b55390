//! The one map of records inside a write transaction, with digest and counts kept as it changes.

use crate::backend::Gate;
use crate::contain::Contained;
use crate::digest::record_hash;
use crate::header::{HEADER_KEY, Header};
use crate::records::{Counts, Record, TableId};
use holdfast_consensus::fault::StoreFault;
use redb::{AccessGuard, ReadableTable, StorageError, TableDefinition, WriteTransaction};

/// The one map: every record of every table, and the header.
pub(crate) const ROWS: TableDefinition<'static, &'static [u8], &'static [u8]> =
    TableDefinition::new("rows");

/// The map, open for writing.
pub(crate) struct Rows<'txn> {
    table: Contained<redb::Table<'txn, &'static [u8], &'static [u8]>>,
    gate: &'txn Gate,
    /// Sum of the hashes of all records. Invariant: equals a full recomputation.
    digest: u128,
    /// Invariant: equals a full recount.
    counts: Counts,
}

impl<'txn> Rows<'txn> {
    pub(crate) fn open(
        txn: &'txn WriteTransaction,
        gate: &'txn Gate,
        header: &Header,
    ) -> Result<Self, StoreFault> {
        let table = gate.run("open the store's map", || txn.open_table(ROWS))?;
        Ok(Self {
            table: Contained::new(table),
            gate,
            digest: header.digest,
            counts: header.counts,
        })
    }

    /// Reads a record.
    pub(crate) fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>, StoreFault> {
        debug_assert_eq!(key.first(), Some(&(R::TABLE as u8)));
        let found = self.gate.run("read a record", || self.table.get(key))?;
        found.map(|guard| seen(self.gate, &Contained::new(guard), decode)).transpose()
    }

    /// Writes a record.
    pub(crate) fn put<R: Record>(&mut self, key: &[u8], record: &R) -> Result<(), StoreFault> {
        debug_assert_eq!(key.first(), Some(&(R::TABLE as u8)));
        self.put_raw(R::TABLE, key, &record.encode())
    }

    /// Writes an encoded record under its full key.
    pub(crate) fn put_raw(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreFault> {
        let gate = self.gate;
        let old = gate.run("write a record", || {
            let old = self.table.insert(key, value)?;
            Ok::<_, StorageError>(old.map(|old| record_hash(table as u8, &key[1..], old.value())))
        })?;
        match old {
            Some(hash) => self.digest = self.digest.wrapping_sub(hash),
            None => self.counts.0[table.position()] += 1,
        }
        self.digest = self.digest.wrapping_add(record_hash(table as u8, &key[1..], value));
        Ok(())
    }

    /// Removes a record; true if there was one.
    pub(crate) fn remove<R: Record>(&mut self, key: &[u8]) -> Result<bool, StoreFault> {
        debug_assert_eq!(key.first(), Some(&(R::TABLE as u8)));
        let gate = self.gate;
        let old = gate.run("remove a record", || {
            let old = self.table.remove(key)?;
            Ok::<_, StorageError>(
                old.map(|old| record_hash(R::TABLE as u8, &key[1..], old.value())),
            )
        })?;
        let Some(hash) = old else { return Ok(false) };
        self.digest = self.digest.wrapping_sub(hash);
        self.counts.0[R::TABLE.position()] -= 1;
        Ok(true)
    }

    /// Calls `visit` with the key and value of every record of one table, in key order.
    pub(crate) fn each<R: Record>(
        &self,
        mut visit: impl FnMut(&[u8], R),
    ) -> Result<(), StoreFault> {
        let bounds = [R::TABLE as u8, R::TABLE as u8 + 1];
        let range = self
            .gate
            .run("scan a table", || self.table.range::<&[u8]>(&bounds[..1]..&bounds[1..]))?;
        scan(self.gate, range, |key, value| {
            visit(key, decode(value)?);
            Ok(Walk::On)
        })
    }

    /// Every record whose full key begins with `prefix`, in key order.
    pub(crate) fn under<R: Record>(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, R)>, StoreFault> {
        debug_assert_eq!(prefix.first(), Some(&(R::TABLE as u8)));
        let range = self.gate.run("scan a table", || self.table.range::<&[u8]>(prefix..))?;
        let mut found = Vec::new();
        scan(self.gate, range, |key, value| {
            if !key.starts_with(prefix) {
                return Ok(Walk::Stop);
            }
            found.push((key.to_vec(), decode(value)?));
            Ok(Walk::On)
        })?;
        Ok(found)
    }

    /// Rows of a table.
    pub(crate) fn count(&self, table: TableId) -> u64 {
        self.counts.of(table)
    }

    /// Brings the header up to date with what was written, and writes it.
    pub(crate) fn finish(mut self, header: &mut Header) -> Result<(), StoreFault> {
        header.digest = self.digest;
        header.counts = self.counts;
        let bytes = header.encode();
        self.gate.run("write the header", || {
            self.table.insert(HEADER_KEY.as_slice(), bytes.as_slice()).map(drop)
        })
    }
}

/// What a scan does next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    On,
    Stop,
}

/// Bytes inside a page of the map.
pub(crate) type Slot<'a> = AccessGuard<'a, &'static [u8]>;

/// Visits the rows of a range until `visit` says stop.
pub(crate) fn scan(
    gate: &Gate,
    range: redb::Range<'_, &'static [u8], &'static [u8]>,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<Walk, StoreFault>,
) -> Result<(), StoreFault> {
    let mut range = Contained::new(range);
    while let Some(row) = gate.run("scan the map", || range.next().transpose())? {
        let row = Contained::new(row);
        let bytes = || Ok::<_, StorageError>((row.0.value(), row.1.value()));
        let (key, value) = gate.run("scan the map", bytes)?;
        if visit(key, value)? == Walk::Stop {
            break;
        }
    }
    Ok(())
}

/// What `take` makes of the bytes of a slot: only reaching them is redb's part.
pub(crate) fn seen<T>(
    gate: &Gate,
    slot: &Slot<'_>,
    take: impl FnOnce(&[u8]) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    take(gate.run("read a record", || Ok::<_, StorageError>(slot.value()))?)
}

/// Decodes a stored record. One that does not decode was not written by us: the store is wrong.
pub(crate) fn decode<R: Record>(bytes: &[u8]) -> Result<R, StoreFault> {
    R::decode(bytes).map_err(|e| StoreFault::Untrusted(e.to_string()))
}

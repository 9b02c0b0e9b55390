//! The one map of records inside a write transaction, with digest and counts kept as it changes.

use crate::backend::Gate;
use crate::digest::record_hash;
use crate::header::{HEADER_KEY, Header};
use crate::records::{Counts, Record, TableId};
use holdfast_consensus::fault::StoreFault;
use redb::{ReadableTable, TableDefinition, WriteTransaction};

/// The one map: every record of every table, and the header.
pub(crate) const ROWS: TableDefinition<'static, &'static [u8], &'static [u8]> =
    TableDefinition::new("rows");

/// The map, open for writing.
pub(crate) struct Rows<'txn> {
    table: redb::Table<'txn, &'static [u8], &'static [u8]>,
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
        let table = txn.open_table(ROWS).map_err(|e| gate.fault("open the store's map", e))?;
        Ok(Self { table, gate, digest: header.digest, counts: header.counts })
    }

    /// Reads a record.
    pub(crate) fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>, StoreFault> {
        debug_assert_eq!(key.first(), Some(&(R::TABLE as u8)));
        let found = self.table.get(key).map_err(|e| self.gate.fault("read a record", e))?;
        found.map(|guard| decode(guard.value())).transpose()
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
        let old = self.table.insert(key, value).map_err(|e| gate.fault("write a record", e))?;
        match old {
            Some(guard) => {
                let hash = record_hash(table as u8, &key[1..], guard.value());
                self.digest = self.digest.wrapping_sub(hash);
            }
            None => self.counts.0[table.position()] += 1,
        }
        self.digest = self.digest.wrapping_add(record_hash(table as u8, &key[1..], value));
        Ok(())
    }

    /// Removes a record; true if there was one.
    pub(crate) fn remove<R: Record>(&mut self, key: &[u8]) -> Result<bool, StoreFault> {
        debug_assert_eq!(key.first(), Some(&(R::TABLE as u8)));
        let gate = self.gate;
        let old = self.table.remove(key).map_err(|e| gate.fault("remove a record", e))?;
        let Some(guard) = old else { return Ok(false) };
        let hash = record_hash(R::TABLE as u8, &key[1..], guard.value());
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
            .table
            .range::<&[u8]>(&bounds[..1]..&bounds[1..])
            .map_err(|e| self.gate.fault("scan a table", e))?;
        for row in range {
            let (key, value) = row.map_err(|e| self.gate.fault("scan a table", e))?;
            visit(key.value(), decode(value.value())?);
        }
        Ok(())
    }

    /// Every record whose full key begins with `prefix`, in key order.
    pub(crate) fn under<R: Record>(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, R)>, StoreFault> {
        debug_assert_eq!(prefix.first(), Some(&(R::TABLE as u8)));
        let range =
            self.table.range::<&[u8]>(prefix..).map_err(|e| self.gate.fault("scan a table", e))?;
        let mut found = Vec::new();
        for row in range {
            let (key, value) = row.map_err(|e| self.gate.fault("scan a table", e))?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push((key.value().to_vec(), decode(value.value())?));
        }
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
        self.table
            .insert(HEADER_KEY.as_slice(), bytes.as_slice())
            .map_err(|e| self.gate.fault("write the header", e))?;
        Ok(())
    }
}

/// Decodes a stored record. One that does not decode was not written by us: the store is wrong.
pub(crate) fn decode<R: Record>(bytes: &[u8]) -> Result<R, StoreFault> {
    R::decode(bytes).map_err(|e| StoreFault::Untrusted(e.to_string()))
}

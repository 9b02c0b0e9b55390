//! Writers: records that come in with a move, and a write that takes its time, with the log held
//! open (SCENARIOS N12).

use super::engine::{Broker, Sight};
use super::layout;
use super::ledger::Place;
use super::records::{self, RECORD, Record};
use super::wants::Want;
use holdfast_fsm::plane::Entered;
use holdfast_log::disk::{Disk, DiskFile, Mode};
use holdfast_log::mem_disk::MemFile;
use std::io;

/// A write that has begun: the log is open, and nothing is written yet.
pub(super) struct Writer {
    place: Place,
    file: MemFile,
    /// Records before it.
    held: u64,
    /// The seat in the copy, which keeps it where it is; brokers had nothing of the kind.
    _seat: Option<Entered>,
}

impl Broker {
    /// The owner of a partition begins a write; `false` if the partition cannot be made here.
    ///
    /// # Errors
    /// What the disk says, or that the copy is closed for writing.
    pub fn begin_write(&mut self, place: &Place, sight: &Sight<'_>) -> io::Result<bool> {
        let Some(copy) = self.ensure_copy(place, sight.view)? else { return Ok(false) };
        let seat = match self.mode {
            super::Mode::On => Some(self.guard.enter(&copy)?),
            _ => None,
        };
        let file = self.disk.open(&layout::log_of(&copy.dir), Mode::Write)?;
        let held = records::parse(&records::whole(&file)?).len() as u64;
        self.writer = Some(Writer { place: place.clone(), file, held, _seat: seat });
        Ok(true)
    }

    /// The write ends: the records are synced, whatever became of the file, and acknowledged.
    ///
    /// # Errors
    /// What the disk says: then none was acknowledged.
    pub fn end_write(&mut self, all: &[Record]) -> io::Result<()> {
        let Some(Writer { place, file, held, _seat }) = self.writer.take() else { return Ok(()) };
        let bytes: Vec<u8> = all.iter().flat_map(|record| record.encode()).collect();
        file.write_at(held * RECORD as u64, &bytes)?;
        file.sync()?;
        for record in all {
            let (place, record, how) = (place.clone(), *record, "appended by its owner");
            self.wants.push(Want::Appended { place: place.clone(), record });
            self.wants.push(Want::Acknowledged { place, record, how });
        }
        Ok(())
    }

    /// Takes records of a partition that is to move here.
    ///
    /// # Errors
    /// What the disk says.
    pub fn receive(
        &mut self,
        place: &Place,
        records: &[Record],
        sight: &Sight<'_>,
    ) -> io::Result<()> {
        let Some(copy) = self.ensure_copy(place, sight.view)? else {
            return Err(io::Error::other("the partition is not known here"));
        };
        let path = layout::log_of(&copy.dir);
        let held = records::read(&self.disk, &path)?;
        let fresh: Vec<Record> =
            records.iter().filter(|record| !held.contains(record)).copied().collect();
        records::append(&self.disk, &path, &fresh).map(|_| ())
    }
}

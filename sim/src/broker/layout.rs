//! Where the broker's own files lie: beside the stamp in the copies that the data plane of the
//! product makes (`holdfast_fsm::plane`).
//!
//! A copy holds `whose` (topic, incarnation and partition in words, for the oracle, which reads a
//! disk with nobody running), `log`, and, without the guard, the offset files of cursors as brokers
//! kept them. What removes things here is what brokers did; nothing in the product can do it.

use super::ledger::Place;
use super::meta::Link;
use super::records::{self, Record};
use holdfast_fsm::plane::DATA_DIR;
use holdfast_log::disk::Disk;
use holdfast_log::mem_disk::MemDisk;
use std::io;

/// A copy of a partition that lies in its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Copy {
    /// What it is a copy of.
    pub place: Place,
    /// Its directory.
    pub dir: String,
}

/// The directory of the live copies.
fn root() -> String {
    format!("{DATA_DIR}/topics")
}

/// True for a file of the data plane.
#[must_use]
pub fn is_data(path: &str) -> bool {
    path.strip_prefix(DATA_DIR).is_some_and(|rest| rest.starts_with('/'))
}

/// True for a file of a live copy.
#[must_use]
pub fn is_copy(path: &str) -> bool {
    path.strip_prefix(&root()).is_some_and(|rest| rest.starts_with('/'))
}

/// The log of a copy.
#[must_use]
pub fn log_of(dir: &str) -> String {
    format!("{dir}/log")
}

/// The file that says whose a copy is.
#[must_use]
pub fn whose_file(dir: &str) -> String {
    format!("{dir}/whose")
}

/// The offset file of a cursor as brokers kept it, in a copy of the parent.
#[must_use]
pub fn offset_file(dir: &str, link: &Link) -> String {
    format!("{dir}/fanout-{}.offset", link.child.name)
}

/// The content of the file that says whose a copy is.
#[must_use]
pub fn whose(place: &Place) -> Vec<u8> {
    format!("{} {} {}\n", place.topic, place.incarnation, place.partition).into_bytes()
}

fn named(bytes: &[u8]) -> Option<Place> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.trim_end().split(' ');
    let topic = parts.next()?.to_owned();
    let incarnation = parts.next()?.parse().ok()?;
    Some(Place { topic, incarnation, partition: parts.next()?.parse().ok()? })
}

/// Every copy that lies in its place.
///
/// # Errors
/// What the disk says.
pub fn copies(disk: &MemDisk) -> io::Result<Vec<Copy>> {
    let mut found = Vec::new();
    let names = match disk.list(&root()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    for name in names {
        let dir = format!("{}/{name}", root());
        let content = records::content(disk, &whose_file(&dir))?;
        if let Some(place) = content.as_deref().and_then(named) {
            found.push(Copy { place, dir });
        }
    }
    Ok(found)
}

/// The records of every copy that lies in its place.
///
/// # Errors
/// What the disk says.
pub fn partition_logs(disk: &MemDisk) -> io::Result<Vec<(Place, Vec<Record>)>> {
    let copies = copies(disk)?.into_iter();
    copies.map(|copy| Ok((copy.place, records::read(disk, &log_of(&copy.dir))?))).collect()
}

/// True if a copy of this lies in its place.
///
/// # Errors
/// What the disk says.
pub fn is_there(disk: &MemDisk, place: &Place) -> io::Result<bool> {
    Ok(copies(disk)?.iter().any(|copy| copy.place == *place))
}

/// Removes the files of a directory, and the directory: recursive removal as brokers did it.
///
/// # Errors
/// What the disk says.
pub fn remove(disk: &MemDisk, dir: &str) -> io::Result<()> {
    let names = match disk.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for name in names {
        remove_file(disk, &format!("{dir}/{name}"))?;
    }
    disk.remove_dir(dir)?;
    disk.sync_dir(&root())
}

/// Removes whatever lies under the name of a topic, as brokers did that knew no incarnations.
///
/// # Errors
/// What the disk says.
pub fn remove_by_name(disk: &MemDisk, topic: &str) -> io::Result<()> {
    for copy in copies(disk)?.into_iter().filter(|copy| copy.place.topic == topic) {
        remove(disk, &copy.dir)?;
    }
    Ok(())
}

/// Removes every copy of a partition, as brokers did that told no placements apart.
///
/// # Errors
/// What the disk says.
pub fn remove_place(disk: &MemDisk, place: &Place) -> io::Result<()> {
    for copy in copies(disk)?.into_iter().filter(|copy| copy.place == *place) {
        remove(disk, &copy.dir)?;
    }
    Ok(())
}

/// Removes a file; one that is not there is fine.
///
/// # Errors
/// What the disk says.
pub fn remove_file(disk: &MemDisk, path: &str) -> io::Result<()> {
    match disk.unlink(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Puts a copy with records on a disk; its directory.
    pub(in super::super) fn put(disk: &MemDisk, place: &Place, records: &[Record]) -> String {
        let dir = format!("{}/{}-{}", root(), place.incarnation, place.topic);
        for dir in [DATA_DIR, &root(), &dir] {
            disk.make_dir(dir).expect("made");
        }
        records::replace(disk, &whose_file(&dir), &whose(place)).expect("written");
        records::append(disk, &log_of(&dir), records).expect("appended");
        dir
    }

    #[test]
    fn a_copy_is_found_until_it_is_removed() {
        let disk = MemDisk::new();
        let place = Place { topic: "orders".into(), incarnation: 7, partition: 2 };
        let dir = put(&disk, &place, &[Record { id: 1, time: 2 }]);
        assert!(is_there(&disk, &place).expect("listed"));
        assert!(is_data(&log_of(&dir)) && !is_data("database/log"));
        assert!(is_copy(&log_of(&dir)) && !is_copy("data/volume"));
        let logs = partition_logs(&disk).expect("read");
        assert_eq!(logs, [(place.clone(), vec![Record { id: 1, time: 2 }])]);
        remove_by_name(&disk, "other").expect("nothing");
        assert!(is_there(&disk, &place).expect("listed"));
        remove_by_name(&disk, "orders").expect("removed");
        assert!(!is_there(&disk, &place).expect("listed"));
    }
}

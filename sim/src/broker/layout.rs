//! Where the broker's files lie.

use super::ledger::Place;
use super::meta::Link;
use super::records::{self, Record};
use holdfast_log::disk::Disk;
use holdfast_log::mem_disk::MemDisk;
use std::io;

const ROOT: &str = "topics";

/// The directory of a partition.
#[must_use]
pub fn dir_of(place: &Place) -> String {
    format!("{ROOT}/{}/{}/p{:05}", place.topic, place.incarnation, place.partition)
}

/// True for a file of the data plane.
#[must_use]
pub fn is_data(path: &str) -> bool {
    path.starts_with("topics/")
}

/// The log of a partition.
#[must_use]
pub fn log_of(place: &Place) -> String {
    format!("{}/log", dir_of(place))
}

/// The file of a cursor: it lies with the partition of the parent's incarnation, so that no other
/// incarnation can take it for its own.
#[must_use]
pub fn cursor_of(link: &Link, partition: u32) -> String {
    let parent = Place::of(&link.parent, partition);
    format!("{}/fanout-{}.offset", dir_of(&parent), link.child.name)
}

/// Removes the files of a directory: recursive removal as brokers did it.
///
/// # Errors
/// What the disk says.
pub fn remove(disk: &MemDisk, dir: &str) -> io::Result<()> {
    for name in list(disk, dir)? {
        let path = format!("{dir}/{name}");
        match disk.is_dir(&path)? {
            true => remove(disk, &path)?,
            false => remove_file(disk, &path)?,
        }
    }
    match disk.remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes whatever lies under the name of a topic, as brokers did that knew no incarnations.
///
/// # Errors
/// What the disk says.
pub fn remove_by_name(disk: &MemDisk, topic: &str) -> io::Result<()> {
    for place in places(disk)?.into_iter().filter(|place| place.topic == topic) {
        remove(disk, &dir_of(&place))?;
    }
    Ok(())
}

/// True if there is such a directory.
///
/// # Errors
/// What the disk says.
pub fn is_there(disk: &MemDisk, dir: &str) -> io::Result<bool> {
    match disk.is_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other,
    }
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

fn list(disk: &MemDisk, dir: &str) -> io::Result<Vec<String>> {
    match disk.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// Every partition that has a directory.
///
/// # Errors
/// What the disk says.
pub fn places(disk: &MemDisk) -> io::Result<Vec<Place>> {
    let mut found = Vec::new();
    for topic in list(disk, ROOT)? {
        for incarnation in list(disk, &format!("{ROOT}/{topic}"))? {
            for partition in list(disk, &format!("{ROOT}/{topic}/{incarnation}"))? {
                let numbers = (incarnation.parse(), partition.trim_start_matches('p').parse());
                if let (Ok(incarnation), Ok(partition)) = numbers {
                    found.push(Place { topic: topic.clone(), incarnation, partition });
                }
            }
        }
    }
    Ok(found)
}

/// The records of every partition that lies in its place.
///
/// # Errors
/// What the disk says.
pub fn partition_logs(disk: &MemDisk) -> io::Result<Vec<(Place, Vec<Record>)>> {
    let places = places(disk)?;
    places
        .into_iter()
        .map(|place| {
            let records = records::read(disk, &log_of(&place))?;
            Ok((place, records))
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Puts a partition with records on a disk.
    pub(in super::super) fn put(disk: &MemDisk, place: &Place, records: &[Record]) {
        for dir in [
            ROOT.to_owned(),
            format!("{ROOT}/{}", place.topic),
            format!("{ROOT}/{}/{}", place.topic, place.incarnation),
            dir_of(place),
        ] {
            disk.make_dir(&dir).expect("made");
        }
        records::append(disk, &log_of(place), records).expect("appended");
    }

    #[test]
    fn a_partition_that_was_put_is_found() {
        let disk = MemDisk::new();
        let place = Place { topic: "orders".into(), incarnation: 7, partition: 2 };
        put(&disk, &place, &[Record { id: 1, time: 2 }]);
        assert_eq!(places(&disk).expect("listed"), std::slice::from_ref(&place));
        let logs = partition_logs(&disk).expect("read");
        assert_eq!(logs, [(place, vec![Record { id: 1, time: 2 }])]);
    }
}

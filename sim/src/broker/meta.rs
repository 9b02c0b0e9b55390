//! What the broker reads of the metadata, from the local store of its node.

use super::ledger::Place;
use holdfast_fsm::View;
pub use holdfast_fsm::records::Link;
use holdfast_fsm::records::Owner;
use holdfast_fsm::view::{LIST_MAX, ReadError};

/// The incarnation of a topic.
///
/// # Errors
/// [`ReadError`]: not the same as absence.
pub fn topic(view: &View, name: &str) -> Result<Option<u64>, ReadError> {
    Ok(view.topic(name)?.value.map(|topic| topic.stamp.incarnation))
}

/// Name of the node that owns a partition.
///
/// # Errors
/// [`ReadError`].
pub fn owner(view: &View, place: &Place) -> Result<Option<String>, ReadError> {
    let row = view.assignment(&place.topic, place.partition)?.value;
    let mine = row.filter(|row| row.topic.incarnation == place.incarnation);
    Ok(mine.map(|row| row.owner.node))
}

/// The partitions of live topics that a node owns.
///
/// # Errors
/// [`ReadError`].
pub fn owned(view: &View, owner: &Owner) -> Result<Vec<Place>, ReadError> {
    let rows = view.assignments_of(owner, None, LIST_MAX)?.value;
    let mine = rows.into_iter().filter(|row| row.owner == *owner);
    Ok(mine.map(|row| Place::of(&row.topic, row.partition)).collect())
}

/// Every link.
///
/// # Errors
/// [`ReadError`].
pub fn links(view: &View) -> Result<Vec<Link>, ReadError> {
    Ok(view.links(None, LIST_MAX)?.value)
}

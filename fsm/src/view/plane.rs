//! Reads for the data plane: who owns what, and which topic is fed from which.

use super::{At, LIST_MAX, ReadError, View, list};
use crate::records::{
    self, Assignment, Link, Owner, Stamp, TableId, assignment_key, assignments_of, link_key,
};
use crate::rows::Walk;

impl View {
    /// Who owns a partition of a topic.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn assignment(
        &self,
        topic: &str,
        partition: u32,
    ) -> Result<At<Option<Assignment>>, ReadError> {
        self.read(|reader, _| reader.get(&assignment_key(topic, partition)))
    }

    /// Placements of a topic in the order of its partitions, from behind `after`, at most `limit`
    /// (and [`LIST_MAX`]).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn assignments(
        &self,
        topic: &str,
        after: Option<u32>,
        limit: usize,
    ) -> Result<At<Vec<Assignment>>, ReadError> {
        self.read(|reader, _| {
            let after = after.map(|partition| assignment_key(topic, partition).split_off(1));
            let prefix = assignments_of(topic).split_off(1);
            let rows = list::<Assignment>(reader, &prefix, after.as_deref(), limit)?;
            Ok(rows.into_iter().map(|(_, row)| row).collect())
        })
    }

    /// Placements and targets of one owner in the order of topic and partition, from behind
    /// `after`, at most `limit` (and [`LIST_MAX`]). Looks at every placement.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn assignments_of(
        &self,
        owner: &Owner,
        after: Option<(&str, u32)>,
        limit: usize,
    ) -> Result<At<Vec<Assignment>>, ReadError> {
        self.read(|reader, _| {
            let begin = records::key(TableId::Assignments, &[]);
            let from = after.map_or(begin, |(topic, partition)| assignment_key(topic, partition));
            let behind = after.is_some();
            let mut found = Vec::new();
            reader.walk(&from, |key, value| {
                let mine = key.first() == Some(&(TableId::Assignments as u8));
                if !mine || found.len() >= limit.min(LIST_MAX) {
                    return Ok(Walk::Stop);
                }
                if behind && key == from {
                    return Ok(Walk::On);
                }
                let row: Assignment = crate::rows::decode(value)?;
                let target = row.target.as_ref().is_some_and(|target| target.owner == *owner);
                if row.owner == *owner || target {
                    found.push(row);
                }
                Ok(Walk::On)
            })?;
            Ok(found)
        })
    }

    /// What feeds a child topic.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn link(&self, child: &str) -> Result<At<Option<Link>>, ReadError> {
        self.read(|reader, _| reader.get(&link_key(child)))
    }

    /// Links in the order of their children, from behind `after`, at most `limit` (and
    /// [`LIST_MAX`]).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn links(&self, after: Option<&str>, limit: usize) -> Result<At<Vec<Link>>, ReadError> {
        self.read(|reader, _| {
            let rows = list::<Link>(reader, &[], after.map(str::as_bytes), limit)?;
            Ok(rows.into_iter().map(|(_, link)| link).collect())
        })
    }

    /// The links of the children that exactly this parent feeds, in the order of the children, at
    /// most [`LIST_MAX`]. Looks at every link.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn children(&self, parent: &Stamp) -> Result<At<Vec<Link>>, ReadError> {
        self.read(|reader, _| {
            let mut found = Vec::new();
            reader.walk(&records::key(TableId::Links, &[]), |key, value| {
                let mine = key.first() == Some(&(TableId::Links as u8));
                if !mine || found.len() >= LIST_MAX {
                    return Ok(Walk::Stop);
                }
                let link: Link = crate::rows::decode(value)?;
                if link.parent == *parent {
                    found.push(link);
                }
                Ok(Walk::On)
            })?;
            Ok(found)
        })
    }
}

//! The limits that a command must keep, each with the sentence that a client reads.
//!
//! The API checks them before it proposes, and every replica checks them again when it applies:
//! an entry that breaks one is a result, not an error, and moves the applied index like any other.

use crate::records::{Owner, VolumeId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest topic name, in bytes.
pub const TOPIC_NAME_MAX: usize = 249;
/// Most partitions of a topic.
pub const PARTITIONS_MAX: u32 = 100_000;
/// Longest key of the `kv` table, in bytes.
pub const KV_KEY_MAX: usize = 256;
/// Largest value of the `kv` table, in bytes.
pub const KV_VALUE_MAX: usize = 64 << 10;
/// Longest node name, in bytes.
pub const MEMBER_NAME_MAX: usize = 255;
/// Longest address or build of a member, in bytes.
pub const MEMBER_TEXT_MAX: usize = 512;

/// A rule that a command broke. Stored with session results: the order is frozen, and new rules
/// come last. The sentences are not stored and may be improved.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error, Serialize, Deserialize,
)]
pub enum Rule {
    /// The name of a topic.
    #[error(
        "a topic name has 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-', and is neither \".\" nor \"..\""
    )]
    TopicName,
    /// The partitions of a topic.
    #[error("a topic has 1 to 100000 partitions")]
    TopicPartitions,
    /// The retention of a topic.
    #[error("retention is at least 1 millisecond; leave it out to keep everything")]
    TopicRetention,
    /// A key of the `kv` table.
    #[error("a key has 1 to 256 bytes")]
    KvKey,
    /// A value of the `kv` table.
    #[error("a value has at most 65536 bytes")]
    KvValue,
    /// The record of a member.
    #[error(
        "a member has an id that is not zero, a name of 1 to 255 bytes, and at most 512 bytes each of address and build"
    )]
    Member,
    /// The sequence number of a session.
    #[error("sequence numbers of a session start at 1")]
    Sequence,
    /// The owner of a partition.
    #[error("an owner has a node name of 1 to 255 bytes and a volume id that is not zero")]
    Owner,
    /// The tails of an attachment.
    #[error("an attachment has one tail for each partition of its parent, at most 100000")]
    Tails,
}

/// Checks the name of a topic.
///
/// # Errors
/// [`Rule::TopicName`].
pub fn topic_name(name: &str) -> Result<(), Rule> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let long_enough = !name.is_empty() && name.len() <= TOPIC_NAME_MAX;
    (long_enough && name != "." && name != ".." && name.bytes().all(legal))
        .then_some(())
        .ok_or(Rule::TopicName)
}

/// Checks the number of partitions of a topic.
///
/// # Errors
/// [`Rule::TopicPartitions`].
pub fn partitions(count: u32) -> Result<(), Rule> {
    (1..=PARTITIONS_MAX).contains(&count).then_some(()).ok_or(Rule::TopicPartitions)
}

/// Checks the retention of a topic, in milliseconds.
///
/// # Errors
/// [`Rule::TopicRetention`].
pub fn retention(milliseconds: Option<u64>) -> Result<(), Rule> {
    (milliseconds != Some(0)).then_some(()).ok_or(Rule::TopicRetention)
}

/// Checks the owner of a partition.
///
/// # Errors
/// [`Rule::Owner`].
pub fn owner(owner: &Owner) -> Result<(), Rule> {
    let named = (1..=MEMBER_NAME_MAX).contains(&owner.node.len());
    (named && owner.volume != VolumeId(0)).then_some(()).ok_or(Rule::Owner)
}

/// Checks the tails of an attachment; how many there must be is known only when it is applied.
///
/// # Errors
/// [`Rule::Tails`].
pub fn tails(tails: &[u64]) -> Result<(), Rule> {
    (tails.len() as u64 <= u64::from(PARTITIONS_MAX)).then_some(()).ok_or(Rule::Tails)
}

/// Checks a key of the `kv` table.
///
/// # Errors
/// [`Rule::KvKey`].
pub fn kv_key(key: &[u8]) -> Result<(), Rule> {
    (1..=KV_KEY_MAX).contains(&key.len()).then_some(()).ok_or(Rule::KvKey)
}

/// Checks a value of the `kv` table.
///
/// # Errors
/// [`Rule::KvValue`].
pub fn kv_value(value: &[u8]) -> Result<(), Rule> {
    (value.len() <= KV_VALUE_MAX).then_some(()).ok_or(Rule::KvValue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_are_legal_exactly_by_the_rule() {
        let longest = "n".repeat(249);
        for good in ["a", "orders", "a.b_c-D9", "...", "-", longest.as_str()] {
            assert_eq!(topic_name(good), Ok(()), "{good}");
        }
        let too_long = "n".repeat(250);
        for bad in ["", ".", "..", "a b", "a/b", "\u{e4}", "a\0", too_long.as_str()] {
            assert_eq!(topic_name(bad), Err(Rule::TopicName), "{bad}");
        }
    }

    #[test]
    fn the_numbers_in_the_sentences_are_the_limits() {
        assert!(Rule::TopicName.to_string().contains(&TOPIC_NAME_MAX.to_string()));
        assert!(Rule::TopicPartitions.to_string().contains(&PARTITIONS_MAX.to_string()));
        assert!(Rule::KvKey.to_string().contains(&KV_KEY_MAX.to_string()));
        assert!(Rule::KvValue.to_string().contains(&KV_VALUE_MAX.to_string()));
        assert!(Rule::Member.to_string().contains(&MEMBER_NAME_MAX.to_string()));
        assert!(Rule::Owner.to_string().contains(&MEMBER_NAME_MAX.to_string()));
        assert!(Rule::Tails.to_string().contains(&PARTITIONS_MAX.to_string()));
        assert!(Rule::Member.to_string().contains(&MEMBER_TEXT_MAX.to_string()));
    }

    #[test]
    fn limits_hold_at_their_edges() {
        assert!(partitions(0).is_err() && partitions(1).is_ok());
        assert!(partitions(PARTITIONS_MAX).is_ok() && partitions(PARTITIONS_MAX + 1).is_err());
        assert!(
            retention(Some(0)).is_err() && retention(Some(1)).is_ok() && retention(None).is_ok()
        );
        assert!(kv_key(b"").is_err() && kv_key(&[0; KV_KEY_MAX]).is_ok());
        assert!(kv_key(&[0; KV_KEY_MAX + 1]).is_err());
        assert!(kv_value(b"").is_ok() && kv_value(&vec![0; KV_VALUE_MAX]).is_ok());
        assert!(kv_value(&vec![0; KV_VALUE_MAX + 1]).is_err());
    }
}

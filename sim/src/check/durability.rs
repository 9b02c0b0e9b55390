//! Durability: after everything was healed and every node restarted from its disk alone, every
//! replica holds exactly the state that the committed log yields, and with it every acknowledged
//! write.

use super::model::Model;
use super::{Verdict, Violation};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Name of the property.
pub const PROPERTY: &str = "durability";

/// What a replica holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Keys and values.
    pub kv: BTreeMap<Bytes, Bytes>,
    /// Topics and incarnations.
    pub topics: BTreeMap<String, u64>,
}

/// Compares a replica with the committed state.
///
/// # Errors
/// The first difference.
pub fn check(who: &str, held: &Held, model: &Model) -> Verdict {
    let expected: BTreeMap<Bytes, Bytes> =
        model.live().map(|(k, v)| (k.clone(), v.clone())).collect();
    let differs = |what: String| Err(Violation::new(PROPERTY, format!("{who}: {what}")));
    for (key, value) in &expected {
        if held.kv.get(key) != Some(value) {
            let found = held.kv.get(key);
            return differs(format!("{key:?} must hold {value:?} and holds {found:?}"));
        }
    }
    if let Some(key) = held.kv.keys().find(|key| !expected.contains_key(*key)) {
        return differs(format!("{key:?} is there and must not be"));
    }
    if held.topics != *model.topics() {
        return differs(format!("topics are {:?}, must be {:?}", held.topics, model.topics()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::{Body, Entry, LogId};
    use holdfast_fsm::Command;

    #[test]
    fn missing_stale_and_surplus_values_are_seen() {
        let mut model = Model::default();
        for (index, value) in [(1, "old"), (2, "new")] {
            let put = Command::KvPut { key: "k".into(), value: value.into() };
            let body = Body::Command(put.encode(None).expect("encodes"));
            model.apply(&Entry { id: LogId::new(1, index), time: 0, body });
        }
        let held = |pairs: &[(&'static str, &'static str)]| Held {
            kv: pairs.iter().map(|(k, v)| (Bytes::from(*k), Bytes::from(*v))).collect(),
            topics: BTreeMap::new(),
        };
        assert_eq!(check("n1", &held(&[("k", "new")]), &model), Ok(()));
        assert!(check("n1", &held(&[]), &model).is_err(), "lost");
        assert!(check("n1", &held(&[("k", "old")]), &model).is_err(), "stale");
        assert!(check("n1", &held(&[("k", "new"), ("x", "y")]), &model).is_err(), "surplus");
        let mut topics = held(&[("k", "new")]);
        topics.topics.insert("t".into(), 1);
        assert!(check("n1", &topics, &model).is_err(), "a topic out of nowhere");
    }
}

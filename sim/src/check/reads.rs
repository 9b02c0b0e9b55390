//! Reads: a local read equals the committed state at the applied index it names; after a write was
//! acknowledged through a node, that node shows it; after a barrier, a node shows everything that
//! was acknowledged to anybody before the barrier began (dissertation 6.4; R40).

use super::model::Model;
use super::{Verdict, Violation};
use bytes::Bytes;
use holdfast_consensus::Index;

/// Name of the property.
pub const PROPERTY: &str = "reads";

/// A value was read on a node whose state was at `applied`; the reader may rely on everything up
/// to `floor`.
///
/// # Errors
/// If the state is older than the floor, or the value differs from the committed state there.
pub fn check(
    who: &str,
    key: &[u8],
    value: Option<&Bytes>,
    applied: Index,
    floor: Index,
    model: &Model,
) -> Verdict {
    if applied < floor {
        return Err(Violation::new(
            PROPERTY,
            format!("{who} reads at {applied}, although {floor} was acknowledged to the reader"),
        ));
    }
    if applied > model.applied() {
        return Err(Violation::new(
            PROPERTY,
            format!("{who} reads at {applied}, but only {} is committed", model.applied()),
        ));
    }
    let expected = model.value_at(key, applied);
    if expected != value {
        return Err(Violation::new(
            PROPERTY,
            format!(
                "{who} reads {:?} under {:?} at {applied}; committed is {expected:?}",
                value,
                String::from_utf8_lossy(key)
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::{Body, Entry, LogId};
    use holdfast_fsm::Command;

    #[test]
    fn stale_and_wrong_reads_are_seen() {
        let mut model = Model::default();
        let put = Command::KvPut { key: "k".into(), value: "v".into() };
        let body = Body::Command(put.encode(None).expect("encodes"));
        model.apply(&Entry { id: LogId::new(1, 1), time: 0, body });
        let v = Bytes::from_static(b"v");
        let check =
            |value, applied, floor| check("n1", b"k", value, Index(applied), Index(floor), &model);
        assert_eq!(check(Some(&v), 1, 1), Ok(()));
        assert_eq!(check(None, 0, 0), Ok(()));
        assert!(check(None, 0, 1).is_err(), "older than what the reader was told");
        assert!(check(None, 1, 1).is_err(), "the write is missing");
        assert!(check(Some(&v), 2, 1).is_err(), "ahead of everything committed");
    }
}

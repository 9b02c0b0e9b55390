//! What repeated measurements say: least, median, greatest.

use serde::Serialize;

/// Least, median and greatest of some measurements.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The least.
    pub(crate) min: f64,
    /// The one in the middle; of an even number, the lower of the two.
    pub(crate) median: f64,
    /// The greatest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one measurement; zeros of none.
    pub(crate) fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let middle = all.len().saturating_sub(1) / 2;
        let at = |n: usize| all.get(n).copied().unwrap_or_default();
        Self { min: at(0), median: at(middle), max: at(all.len().saturating_sub(1)) }
    }
}

/// A rate as people read it: three digits and a unit.
pub(crate) fn short(rate: f64) -> String {
    match rate {
        r if r >= 1e7 => format!("{:.1} M", r / 1e6),
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e4 => format!("{:.1} k", r / 1e3),
        r if r >= 1e3 => format!("{:.2} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_measurements() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]).median, 1.0);
        assert_eq!(Spread::of(vec![]).max, 0.0);
    }

    #[test]
    fn rates_are_short() {
        let shown: Vec<_> = [7.0, 1234.0, 12_345.0, 1_234_567.0, 12_345_678.0].map(short).into();
        assert_eq!(shown, ["7", "1.23 k", "12.3 k", "1.23 M", "12.3 M"]);
    }
}

//! Medians, spreads and ratios of medians.

/// Median and quartiles of a set of measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The first quartile.
    pub low: f64,
    /// The third quartile.
    pub high: f64,
}

impl Spread {
    /// `None` if there are no values.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Spread {
            median: quantile(&sorted, 0.5),
            low: quantile(&sorted, 0.25),
            high: quantile(&sorted, 0.75),
        })
    }

    /// The interquartile range.
    pub fn iqr(&self) -> f64 {
        self.high - self.low
    }
}

/// Linear interpolation between the two nearest ranks of a sorted slice.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = at.ceil() as usize;
    if sorted[below] == sorted[above] {
        return sorted[below]; // also if both are infinite
    }
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

/// The median of `a` divided by that of `b`; `None` if it is undefined.
pub fn ratio_of_medians(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (Spread::of(a)?.median, Spread::of(b)?.median);
    (b > 0.0).then(|| a / b)
}

/// The value that this share of the measurements does not exceed: `0.99` for
/// the 99th percentile. `None` if there are no values.
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| quantile(&sorted, share))
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one has all.
/// R. Jain, D. Chiu and W. Hawe, DEC-TR-301, 1984. `None` if all shares are 0.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The largest share divided by the smallest.
pub fn most_to_least(shares: &[f64]) -> Option<f64> {
    let most = shares.iter().copied().max_by(f64::total_cmp)?;
    let least = shares.iter().copied().min_by(f64::total_cmp)?;
    (least > 0.0).then(|| most / least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_none() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(ratio_of_medians(&[], &[1.0]), None);
        assert_eq!(ratio_of_medians(&[1.0], &[0.0]), None);
    }

    #[test]
    fn one_measurement_has_no_spread() {
        let s = Spread::of(&[3.0]).unwrap();
        assert_eq!((s.median, s.iqr()), (3.0, 0.0));
    }

    #[test]
    fn the_order_does_not_matter() {
        let s = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((s.low, s.median, s.high), (2.0, 3.0, 4.0));
        assert_eq!(s.iqr(), 2.0);
    }

    #[test]
    fn an_even_number_is_interpolated() {
        let s = Spread::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((s.low, s.median, s.high), (1.75, 2.5, 3.25));
    }

    #[test]
    fn an_outlier_does_not_change_the_ratio() {
        assert_eq!(
            ratio_of_medians(&[2.0, 2.0, 90.0], &[1.0, 1.0, 1.0]),
            Some(2.0)
        );
    }

    #[test]
    fn percentiles() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(99.0));
        assert_eq!(percentile(&values, 0.5), Some(50.0));
        assert_eq!(percentile(&[4.0], 0.99), Some(4.0));
        assert_eq!(percentile(&[], 0.5), None);
        let endless = [f64::INFINITY; 2];
        assert_eq!(percentile(&endless, 0.5), Some(f64::INFINITY));
    }

    #[test]
    fn jains_index_has_its_published_values() {
        assert_eq!(jain(&[1.0; 256]), Some(1.0));
        // If k of n have equal shares and the others none, it is k/n.
        assert_eq!(jain(&[5.0, 5.0, 0.0, 0.0, 0.0]), Some(0.4));
        assert_eq!(jain(&[0.0, 7.0, 0.0, 0.0]), Some(0.25));
        // Independent of the scale.
        let (a, b) = (jain(&[1.0, 2.0, 3.0]), jain(&[8.0, 16.0, 24.0]));
        assert_eq!(a, b);
        assert_eq!(a, Some(36.0 / 42.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn the_largest_share_is_divided_by_the_smallest() {
        assert_eq!(most_to_least(&[2.0, 8.0, 4.0]), Some(4.0));
        assert_eq!(most_to_least(&[0.0, 8.0]), None);
        assert_eq!(most_to_least(&[]), None);
    }
}

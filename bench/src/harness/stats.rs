//! Medians, spreads and ratios of medians.

/// Median and quartiles of a set of measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half of the measurements are below.
    pub median: f64,
    /// A quarter of them is below.
    pub low: f64,
    /// A quarter of them is above.
    pub high: f64,
}

impl Spread {
    /// `None` of nothing.
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
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

/// How many times `b`'s median is in `a`'s; `None` where there is no telling.
pub fn ratio_of_medians(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (Spread::of(a)?.median, Spread::of(b)?.median);
    (b > 0.0).then(|| a / b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_there_is_nothing_to_say() {
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
    fn one_wild_measurement_does_not_move_the_ratio() {
        assert_eq!(
            ratio_of_medians(&[2.0, 2.0, 90.0], &[1.0, 1.0, 1.0]),
            Some(2.0)
        );
    }
}

//! The rates that `+` and `-` step through: 1, 2 and 5 times each power of ten, in bytes,
//! KiB, MiB and so on, as rates are printed.

/// Returns the rates in ascending order, from 1 byte to 500 TiB a second.
fn steps() -> impl DoubleEndedIterator<Item = u64> {
    (0..5).flat_map(|unit| {
        [1, 2, 5, 10, 20, 50, 100, 200, 500].map(|count: u64| count << (10 * unit))
    })
}

/// Returns the next higher rate. `None`: there is none.
pub fn above(rate: u64) -> Option<u64> {
    steps().find(|step| *step > rate)
}

/// Returns the next lower rate, at least one byte a second.
pub fn below(rate: u64) -> u64 {
    steps().rfind(|step| *step < rate).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_both_ways() {
        assert_eq!(above(1 << 20), Some(2 << 20));
        assert_eq!(below(1 << 20), 500 << 10);
        assert_eq!(above(1_000_000), Some(1 << 20));
        assert_eq!(below(1_000_000), 500 << 10);
        assert_eq!(below(1), 1);
        assert_eq!(above(u64::MAX), None);
        assert_eq!(above(below(5 << 30)), Some(5 << 30));
    }
}

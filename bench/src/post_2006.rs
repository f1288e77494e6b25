//! The figures of the post of 2006, "splice/vmsplice performance test results": a file of
//! 16 GiB over a 10 Gb/s link, with blocks of 64 KiB and a TCP window of 1 MiB.

/// The size of the buffer, the mapping or the splice, and of a mapped extent.
pub const BLOCK: usize = 64 << 10;

/// The MTU of the link.
pub const MTU: u32 = 9000;

/// The sources of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// `/dev/zero`.
    Zero,
    /// A file that does not fit in the sender's memory.
    File,
}

/// The sinks of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// `/dev/null`.
    Null,
    /// A file that does not fit in the receiver's memory.
    File,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The way of sending: A, B or C.
    pub sends: char,
    /// The source.
    pub from: From,
    /// The way of receiving: 1, 2 or 3.
    pub receives: char,
    /// The sink.
    pub to: To,
    /// The rate in MB/s.
    pub rate: f64,
}

/// All measurements, in the order of the post.
pub const ROWS: [Row; 7] = [
    row('A', From::Zero, '1', To::Null, 857.0),
    row('A', From::File, '1', To::Null, 472.0),
    row('B', From::File, '1', To::Null, 366.0),
    row('C', From::File, '1', To::Null, 854.0),
    row('A', From::Zero, '1', To::File, 375.0),
    row('A', From::Zero, '2', To::File, 150.0),
    row('A', From::Zero, '3', To::File, 286.0),
];

const fn row(sends: char, from: From, receives: char, to: To, rate: f64) -> Row {
    Row {
        sends,
        from,
        receives,
        to,
        rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_units_of_a_row_agree() {
        let gigabits = [6.86, 3.77, 2.93, 6.83, 3.00, 1.20, 2.29];
        for (row, printed) in ROWS.iter().zip(gigabits) {
            let computed = row.rate * 8.0 / 1000.0;
            assert!((computed - printed).abs() < 0.01, "{row:?}");
        }
    }

    #[test]
    fn splice_sends_fastest_and_read_write_receives_fastest() {
        let fastest = |those: &[Row]| {
            let best = those.iter().max_by(|a, b| a.rate.total_cmp(&b.rate));
            best.map(|row| (row.sends, row.receives))
        };
        assert_eq!(fastest(&ROWS[1..4]), Some(('C', '1')));
        assert_eq!(fastest(&ROWS[4..]), Some(('A', '1')));
    }
}

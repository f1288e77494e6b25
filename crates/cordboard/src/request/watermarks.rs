//! The flow control of Fall and Pasquale (1993): finished writes start reads,
//! as long as both sides are below their marks.

/// How many blocks of a transfer may be in flight, on a path that keeps several
/// (direct).
///
/// "If the number of pending reads and the number of pending writes drop below
/// pre-specified watermarks (currently 3 and 5, respectively), the write
/// handler will issue up to a pre-specified number (currently 5) of additional
/// reads" (Fall and Pasquale 1993, Flow Control). So up to `reads - 1 + burst`
/// reads can be in flight. The memory for blocks (8 MiB per transfer, 64 MiB
/// per process) limits both sides together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Watermarks {
    /// No more reads are started while this many are pending.
    pub reads: u32,
    /// No more reads are started while this many writes are pending.
    pub writes: u32,
    /// The most reads started at a time.
    pub burst: u32,
}

impl Default for Watermarks {
    /// 3, 5 and 5.
    fn default() -> Watermarks {
        Watermarks {
            reads: 3,
            writes: 5,
            burst: 5,
        }
    }
}

impl Watermarks {
    /// Returns how many reads to start. Marks of 0 would stop the transfer, so
    /// one block at a time is always allowed.
    pub(crate) fn reads_to_start(&self, reads: u32, writes: u32) -> u32 {
        if reads == 0 && writes == 0 {
            self.burst.max(1)
        } else if reads < self.reads && writes < self.writes {
            self.burst
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_must_be_below_their_marks() {
        let marks = Watermarks::default();
        assert_eq!(marks.reads_to_start(0, 0), 5);
        assert_eq!(marks.reads_to_start(2, 4), 5);
        assert_eq!(marks.reads_to_start(3, 0), 0);
        assert_eq!(marks.reads_to_start(0, 5), 0);
    }

    #[test]
    fn no_setting_stands_still() {
        let none = Watermarks {
            reads: 0,
            writes: 0,
            burst: 0,
        };
        assert_eq!(none.reads_to_start(0, 0), 1);
        assert_eq!(none.reads_to_start(1, 0), 0);
    }
}

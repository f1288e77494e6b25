//! Determines whose turn it is, by round-robin: every source has one turn in a round.

use super::inlet::Gave;

/// The order of turns.
#[derive(Debug)]
pub(super) struct Order {
    count: usize,
    /// The source whose turn begins or continues.
    next: usize,
    /// The number of sources that have had their turn in this round.
    asked: usize,
    /// A source has used up its turn.
    more: bool,
}

/// The end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// The channel is full.
    Full,
    /// A source has used up its turn and may have more bytes.
    More,
    /// All sources are silent or have ended.
    Silent,
}

impl Order {
    pub(super) fn new(count: usize) -> Order {
        Order {
            count,
            next: 0,
            asked: 0,
            more: false,
        }
    }

    /// Returns the source whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.next
    }

    /// Returns all sources, beginning with the one whose turn it is.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> + use<> {
        let (next, count) = (self.next, self.count);
        (0..count).map(move |n| (next + n) % count)
    }

    /// Passes the turn on, according to the result of the last one. Returns the end of the
    /// round, after which the caller polls silent sources, or waits.
    pub(super) fn pass(&mut self, gave: Gave) -> Option<Round> {
        match gave {
            // The turn continues.
            Gave::Full => return Some(Round::Full),
            Gave::All => self.more = true,
            Gave::Less => {}
        }
        self.next = (self.next + 1) % self.count;
        self.asked += 1;
        if self.asked < self.count {
            return None;
        }
        self.asked = 0;
        Some(match std::mem::take(&mut self.more) {
            true => Round::More,
            false => Round::Silent,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives from a backlog, as a source does.
    fn give(backlog: &mut u64, left: &mut u64, room: &mut u64) -> (u64, Gave) {
        let n = (*backlog).min(*left).min(*room);
        (*backlog, *left, *room) = (*backlog - n, *left - n, *room - n);
        let gave = match (*left, *backlog) {
            (0, _) => Gave::All,
            (_, 0) => Gave::Less,
            _ => Gave::Full,
        };
        (n, gave)
    }

    proptest! {
        /// Between two turns of one source, each other source has at most one turn, and
        /// exactly one if it always has bytes. No bytes are left at the end.
        #[test]
        fn no_source_waits_for_more_than_one_turn_of_each_other(
            mut backlogs in prop::collection::vec(0..50u64, 1..7),
            arrivals in prop::collection::vec((0..7usize, 0..30u64), 0..30),
            rooms in prop::collection::vec(1..40u64, 1..30),
            turn in 1..12u64,
        ) {
            let count = backlogs.len();
            let mut order = Order::new(count);
            let mut left = turn;
            // The turns of each source since the last one of each other.
            let mut since = vec![vec![0u32; count]; count];
            let mut arrivals = arrivals.into_iter();
            let mut rooms = rooms.into_iter().cycle();
            let mut room = rooms.next().unwrap();
            let mut silent = 0;
            while silent < 2 {
                let at = order.turn();
                let (_, gave) = give(&mut backlogs[at], &mut left, &mut room);
                if gave != Gave::Full {
                    for other in (0..count).filter(|other| *other != at) {
                        prop_assert!(since[other][at] <= 1, "{at} before {other}");
                        since[other][at] += 1;
                        since[at][other] = 0;
                    }
                    left = turn;
                }
                match order.pass(gave) {
                    Some(Round::Full) => room += rooms.next().unwrap(),
                    Some(Round::Silent) => silent += 1,
                    Some(Round::More) => silent = 0,
                    None => {}
                }
                if let Some((source, bytes)) = arrivals.next() {
                    backlogs[source % count] += bytes;
                    silent = 0;
                }
                prop_assert_eq!(order.all().count(), count);
                prop_assert_eq!(order.all().next(), Some(order.turn()));
            }
            prop_assert!(backlogs.iter().all(|backlog| *backlog == 0));
        }
    }
}

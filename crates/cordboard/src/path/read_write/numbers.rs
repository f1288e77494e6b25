//! Event counters: numbers of eight bytes, one per call.

use std::os::fd::BorrowedFd;

use rustix::io::ReadWriteFlags;

use crate::errno::Errno;

/// Bytes that an event counter returns and accepts per call: one number. More
/// is truncated before Linux 6.9 and EINVAL since.
pub(super) const NUMBER: usize = 8;
/// Numbers per step.
pub(super) const NUMBERS: usize = 64;
/// The largest number of reads that may pass before the next try, if tries find
/// no second number.
const SELDOM: u32 = 64;

/// Reads the numbers that a counter has after the first, without blocking.
///
/// Only a counter in semaphore mode has more (`eventfd(2)`, `EFD_SEMAPHORE`),
/// and no call reports the mode. So a second read is tried, and less often
/// after failures.
#[derive(Debug, Default)]
pub(super) struct CounterReader {
    /// Reads to let pass before the next try, and how many it was last time.
    pass: u32,
    last: u32,
}

impl CounterReader {
    /// Fills `into` with the whole numbers available at once. eventfd supports
    /// `RWF_NOWAIT` since Linux 5.8; without it, nothing more is read this way.
    /// The next read returns any error.
    pub(super) fn read(&mut self, fd: BorrowedFd<'_>, into: &mut [u8]) -> usize {
        if self.pass > 0 {
            self.pass -= 1;
            return 0;
        }
        let mut done = 0;
        for number in into.chunks_exact_mut(NUMBER).take(NUMBERS - 1) {
            let mut parts = [std::io::IoSliceMut::new(number)];
            // Offset -1: at the current position.
            match rustix::io::preadv2(fd, &mut parts, u64::MAX, ReadWriteFlags::NOWAIT) {
                Ok(NUMBER) => done += NUMBER,
                _ => break,
            }
        }
        self.last = if done > 0 {
            0
        } else {
            (self.last * 2 + 1).min(SELDOM)
        };
        self.pass = self.last;
        done
    }
}

/// Writes numbers to an event counter, one per call.
pub(super) fn write(sink: BorrowedFd<'_>, bytes: &[u8], at_most: usize) -> Result<usize, Errno> {
    let mut done = 0;
    for number in bytes.chunks(NUMBER).take(at_most) {
        match rustix::io::write(sink, number) {
            Ok(n) => done += n,
            // The next call returns it again.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn a_semaphore_gives_all_its_numbers_and_a_counter_is_asked_seldom() {
        let test = "a_semaphore_gives_all_its_numbers_and_a_counter_is_asked_seldom";
        if testkit::needs::missing(test, &[testkit::needs::Need::Eventfd]) {
            return;
        }
        let semaphore = eventfd(5, EventfdFlags::SEMAPHORE).unwrap();
        let mut into = [0u8; 64];
        let mut more = CounterReader::default();
        assert_eq!(more.read(semaphore.as_fd(), &mut into), 40);
        assert_eq!(into[32..40], 1u64.to_ne_bytes());
        // Empty, and blocking: it does not wait.
        assert_eq!(more.read(semaphore.as_fd(), &mut into), 0);
        rustix::io::write(&semaphore, &7u64.to_ne_bytes()).unwrap();
        assert_eq!(more.read(semaphore.as_fd(), &mut into), 0, "let pass");
        assert_eq!(more.read(semaphore.as_fd(), &mut into), 56);
    }
}

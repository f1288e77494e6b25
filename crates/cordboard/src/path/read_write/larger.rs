//! Limits the memory of buffers that are larger than usual. A transfer tries them, or an
//! earlier one has found that they are faster.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::{Buffer, PerProcess};

/// Bytes beyond the usual sizes, for all transfers of one process. A buffer stays in use while
/// the sink is full, and a server has thousands of transfers.
const PROCESS: usize = 64 << 20;

/// Bytes in use. A child of `fork(2)` does not learn what its parent releases.
static USED: PerProcess<AtomicUsize> = PerProcess::new();

/// The bytes by which a buffer is larger than usual, released on drop.
#[derive(Debug)]
pub(super) struct Larger {
    bytes: usize,
    used: &'static AtomicUsize,
}

impl Larger {
    /// Returns the length of a buffer for which `length` is wanted: half of that, or a quarter
    /// and so on, down to the usual length, if other transfers use up the memory.
    pub(super) fn take(length: usize, usual: usize) -> (usize, Option<Larger>) {
        let Ok(used) = USED.get(|_| Ok::<_, Infallible>(AtomicUsize::new(0)));
        let mut most = length;
        while most > usual {
            let bytes = most - usual;
            let update = |sum: usize| Some(sum + bytes).filter(|sum| *sum <= PROCESS);
            let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
            if taken.is_ok() {
                return (most, Some(Larger { bytes, used }));
            }
            most /= 2;
        }
        (length.min(usual), None)
    }

    /// Returns a buffer that is larger than this empty one and has `length` bytes at most, or
    /// this one if there is no memory. `share`: that of the present buffer, or of the new one.
    pub(super) fn grow(
        buffer: Buffer,
        length: usize,
        usual: usize,
        share: &mut Option<Larger>,
    ) -> Buffer {
        let (length, larger) = Larger::take(length, usual);
        if length > buffer.len()
            && let Ok(grown) = Buffer::with_capacity(length)
        {
            *share = larger;
            return grown;
        }
        buffer
    }
}

impl Drop for Larger {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::super::{FIRST, FULL_READS, LARGEST, ReadWrite};
    use super::*;
    use crate::path::step::Step;
    use crate::{Request, Transfer};

    fn transfer<'a>(source: &'a impl AsFd, sink: &'a impl AsFd) -> Transfer<'a> {
        Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap()
    }

    /// Takes a step, and discards the bytes. Returns the length of the buffer.
    fn step(path: &mut ReadWrite, transfer: &mut Transfer<'_>) -> Option<usize> {
        transfer.flow.source.ready.marked = true;
        path.step(&mut transfer.flow);
        path.forget();
        path.buffer.as_ref().map(|buffer| buffer.len())
    }

    fn used() -> usize {
        let Ok(used) = USED.get(|_| Ok::<_, Infallible>(AtomicUsize::new(0)));
        used.load(Ordering::Relaxed)
    }

    /// In a child, whose memory no other test uses.
    #[test]
    fn larger_buffers_are_limited_in_sum() {
        const MIB: usize = 1 << 20;
        assert!(testkit::child::in_a_child(|| {
            let take = |length| Larger::take(length, FIRST);
            assert!(matches!(take(FIRST / 2), (length, None) if length == FIRST / 2));
            let all: Vec<_> =
                std::iter::from_fn(|| Some(take(MIB)).filter(|one| one.1.is_some())).collect();
            let beyond: usize = all.iter().map(|(length, _)| length - FIRST).sum();
            assert!(beyond <= PROCESS && PROCESS - beyond < FIRST, "{beyond}");
            assert!(all[..64].iter().all(|(length, _)| *length == MIB));
            assert!(matches!(take(MIB), (FIRST, None)));
            let source = std::fs::File::open("/dev/zero").unwrap();
            let (sink, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut transfer = transfer(&source, &sink);
            let mut path = ReadWrite::start(&mut transfer.flow).unwrap();
            path.set_piece(MIB);
            assert_eq!(step(&mut path, &mut transfer), Some(FIRST));
            // The size that was wanted is kept.
            path.rest();
            drop(all);
            assert_eq!(step(&mut path, &mut transfer), Some(MIB));
            path.rest();
            used() == 0
        }));
    }

    /// A buffer that grows because reads fill it has a share of the memory, too.
    #[test]
    fn a_buffer_that_grows_is_limited_as_well() {
        assert!(testkit::child::in_a_child(|| {
            let (source, mut feed) = std::os::unix::net::UnixStream::pair().unwrap();
            let sink = tempfile::tempfile().unwrap();
            let mut transfer = transfer(&source, &sink);
            let mut path = ReadWrite::start(&mut transfer.flow).unwrap();
            let mut grown = || {
                feed.write_all(b"data").unwrap();
                path.full_reads = FULL_READS;
                step(&mut path, &mut transfer)
            };
            let all = Larger::take(PROCESS + FIRST, FIRST);
            assert_eq!(all.0, PROCESS + FIRST);
            assert_eq!(grown(), Some(FIRST));
            drop(all);
            assert_eq!(grown(), Some(LARGEST));
            assert_eq!(used(), LARGEST - FIRST);
            drop(path);
            used() == 0
        }));
    }
}

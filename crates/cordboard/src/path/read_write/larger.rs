//! Limits the memory of buffers that are larger than usual. A transfer tries them, or an
//! earlier one has found that they are faster.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::PerProcess;

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
}

impl Drop for Larger {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::{FIRST, ReadWrite};
    use super::*;
    use crate::path::step::Step;
    use crate::{Request, Transfer};

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
            let request = Request::default();
            let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let mut path = ReadWrite::start(&mut transfer.flow).unwrap();
            let mut length = || {
                path.set_piece(MIB);
                transfer.flow.source.ready.marked = true;
                path.step(&mut transfer.flow);
                let length = path.buffer.as_ref().map(|buffer| buffer.len());
                path.forget();
                length
            };
            assert_eq!(length(), Some(FIRST));
            drop(all);
            assert_eq!(length(), Some(MIB));
            path.rest();
            let used = USED.get(|_| Ok::<_, Infallible>(AtomicUsize::new(0)));
            used.unwrap().load(Ordering::Relaxed) == 0
        }));
    }
}

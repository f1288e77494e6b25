//! Keeps a thread on one processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Keeps the calling thread, and those that it starts, on its present processor. The loopback
/// device queues datagrams for each processor: those of a thread that moves to another one may
/// overtake earlier ones, if `ksoftirqd` is to deliver them. A byte in the wrong place was found
/// once, on Linux 5.10.
#[derive(Debug)]
pub struct OneProcessor(Option<CpuSet>);

impl OneProcessor {
    /// Does nothing if a filter refuses it.
    #[must_use]
    pub fn stay() -> OneProcessor {
        let before = sched_getaffinity(None).ok();
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        let stays = sched_setaffinity(None, &one).is_ok();
        OneProcessor(before.filter(|_| stays))
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_its_scope() {
        let before = sched_getaffinity(None).unwrap();
        let stays = OneProcessor::stay();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(stays);
        let after = sched_getaffinity(None).unwrap();
        assert_eq!(after.count(), before.count());
    }
}

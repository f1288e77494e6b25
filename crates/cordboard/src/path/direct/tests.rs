//! Blocks in flight are waited for, whatever fails.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::path::step::Step;
use crate::sys::WakeFd;
use crate::{DataPath, Request, Switches, Transfer, Watermarks};
use testkit::refuse::{SEEK, apart, refuse};

const BLOCK: usize = 4096;
const BLOCKS: usize = 32;

/// Executes a block each time that it is waited for, or that `asked` is set, and none
/// before.
struct Slow {
    asked: Arc<AtomicBool>,
    files: [File; 2],
    queue: std::collections::VecDeque<Block>,
    in_flight: Arc<AtomicU32>,
    retired: Arc<AtomicU32>,
    event: WakeFd,
}

impl BlockEngine for Slow {
    fn submit(&mut self, block: Block) -> Result<(), ()> {
        self.queue.push_back(block);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn reap(&mut self, wait: bool, completed: &mut Vec<(usize, Outcome)>) -> Result<(), Errno> {
        if let Some(mut block) = self
            .queue
            .pop_front_if(|_| wait || self.asked.load(Ordering::Relaxed))
        {
            let [source, sink] = &self.files;
            rustix::io::pread(source, &mut block.memory[..], block.from).unwrap();
            rustix::io::pwrite(sink, &block.memory, block.to).unwrap();
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            completed.push((block.slot, Outcome::Written));
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn retire(&mut self) {
        self.retired.fetch_add(1, Ordering::Relaxed);
    }
}

/// A position cannot be moved while blocks are in flight: each of them is waited for
/// all the same, also if an engine winds down first, and is counted once the position
/// can be moved again.
#[test]
fn blocks_are_waited_for_though_they_cannot_be_counted() {
    let _dog = testkit::watchdog::watch("blocks_are_waited_for_though_they_cannot_be_counted");
    for (by_engine, again) in [(false, false), (false, true), (true, false), (true, true)] {
        let data: Vec<u8> = (0..BLOCK * BLOCKS).map(|i| (i / 7) as u8).collect();
        let (mut source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        source.write_all(&data).unwrap();
        rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
        let request = Request {
            switches: Some(Switches::only(&[DataPath::Direct])),
            direct: crate::Direct::Always,
            source_unshared: true,
            sink_unshared: true,
            block: std::num::NonZeroUsize::new(BLOCK),
            watermarks: Some(Watermarks {
                reads: BLOCKS as u32,
                writes: BLOCKS as u32,
                ..Watermarks::default()
            }),
            ..Request::default()
        };
        let Ok(mut transfer) = Transfer::new(source.as_fd(), sink.as_fd(), request) else {
            return testkit::skip::report("direct", "no direct I/O here");
        };
        let flow = &mut transfer.flow;
        flow.set_may_sleep(true);
        let Ok(mut direct) = Direct::start(flow) else {
            return testkit::skip::report("direct", "no direct I/O here");
        };
        let (in_flight, retired): (Arc<AtomicU32>, Arc<AtomicU32>) = Default::default();
        let asked = Arc::<AtomicBool>::default();
        direct.ring = Box::new(Slow {
            asked: Arc::clone(&asked),
            files: [source.try_clone().unwrap(), sink.try_clone().unwrap()],
            queue: Default::default(),
            in_flight: Arc::clone(&in_flight),
            retired: Arc::clone(&retired),
            event: WakeFd::new().unwrap(),
        });
        let left = || in_flight.load(Ordering::Relaxed);
        assert_eq!(direct.step(flow), Verdict::Moved(BLOCK as u64));
        let failed = Verdict::Failed(Side::Source, Errno::EIO);
        let end = |direct: &mut Direct, flow: &mut Flow<'_>| {
            asked.store(by_engine, Ordering::Relaxed);
            while by_engine && direct.wind_down(flow) == Verdict::Pending {}
            let waited = if by_engine { left() } else { 0 };
            (direct.quiesce(flow), waited)
        };
        let (under_way, ended) = apart(|| {
            refuse(&[SEEK], libc::EIO);
            assert_eq!(direct.step(flow), failed);
            let under_way = left() as usize;
            (under_way, (!again).then(|| end(&mut direct, flow)))
        });
        assert!(under_way >= 2, "{under_way}");
        let (ended, waited) = ended.unwrap_or_else(|| end(&mut direct, flow));
        // An engine does not block in the call.
        let home = (waited, left(), retired.load(Ordering::Relaxed));
        assert_eq!(home, (0, 0, 1), "{by_engine} {again}");
        let mut got = vec![0; data.len()];
        // One before the failure, and one at it.
        let counted = if again { 2 + under_way } else { 1 } * BLOCK;
        assert_eq!(ended, if again { Verdict::Ended } else { failed });
        assert_eq!(
            (flow.read(), flow.written()),
            (counted as u64, counted as u64)
        );
        let there = rustix::io::pread(&sink, &mut got, 0).unwrap();
        assert!(there >= counted && got[..counted] == data[..counted]);
        assert_eq!(rustix::fs::tell(&sink), Ok(counted as u64));
        assert_eq!(rustix::fs::tell(&source), Ok(counted as u64));
    }
}

/// The host has closed the descriptors during a few copies: later copies get the memory that
/// threads have used for blocks.
#[test]
fn the_memory_of_a_copy_that_is_gone_is_available_again() {
    let source = tempfile::tempfile().unwrap();
    source.set_len(4 * LARGEST_ARENA as u64).unwrap();
    let sink = tempfile::tempfile().unwrap();
    let start = || {
        let request = Request {
            switches: Some(Switches::only(&[DataPath::Direct])),
            direct: crate::Direct::Always,
            source_unshared: true,
            sink_unshared: true,
            ..Request::default()
        };
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).ok()?;
        transfer.flow.options.backend = crate::request::Backend::Epoll;
        Direct::start(&mut transfer.flow).ok()
    };
    assert!(testkit::child::in_a_child(|| {
        let Some(first) = start() else {
            testkit::skip::report("direct", "no direct I/O here");
            return true;
        };
        Box::new(first).drop_without_close();
        (0..16).all(|_| {
            let next = start();
            next.map(|direct| Box::new(direct).drop_without_close())
                .is_some()
        })
    }));
}

//! The number of blocks in flight, and their executor.

use std::os::fd::AsFd;

use super::{audit, direct};
use crate::common::{
    Grows, MIB, file_with, has_blocks_in_flight, has_rings, pattern, run, watchdog,
};
use cordboard::{Control, Observer, Progress, Request, Schedule, Transfer, Watermarks, start};

/// The most bytes pending at a time, and the open descriptors of the process.
#[derive(Default)]
struct Seen {
    reads: u32,
    writes: u32,
    pending: u32,
    ring: bool,
}

impl Observer for &mut Seen {
    fn progress(&mut self, progress: &Progress) {
        self.reads = self.reads.max(progress.pending_reads);
        self.writes = self.writes.max(progress.pending_writes);
        let pending = progress.pending_reads + progress.pending_writes;
        self.pending = self.pending.max(pending);
        let held = progress.read.checked_sub(progress.written);
        assert_eq!(Some(progress.in_transit()), held, "{progress:?}");
        if !self.ring {
            let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            self.ring = open
                .filter_map(|entry| std::fs::read_link(entry.path()).ok())
                .any(|link| link.as_os_str() == "anon_inode:[io_uring]");
        }
    }
}

fn watched(request: Request) -> Seen {
    let data = pattern(20 * MIB);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let control = Control::new().unwrap();
    let mut seen = Seen::default();
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let report = transfer.control(&control).observe(&mut seen).run().report;
    assert_eq!(report.written, data.len() as u64, "{report:?}");
    audit(&report, &source, &sink, &data);
    seen
}

#[test]
fn the_engine_that_was_asked_for_is_the_one() {
    let _dog = watchdog("the_engine_that_was_asked_for_is_the_one");
    if !has_blocks_in_flight() {
        return;
    }
    let seen = watched(direct());
    let by_ring = crate::engine() == "io_uring" && has_rings();
    assert_eq!(seen.ring, by_ring);
    assert!(seen.reads > 1, "several blocks in flight: {}", seen.reads);
}

/// A grant for the last bytes of its first size would be shorter than a block.
#[test]
fn a_file_that_grows_is_moved_at_a_rate() {
    let _dog = watchdog("a_file_that_grows_is_moved_at_a_rate");
    // At the lower rate, a piece of 10 ms is shorter than a block as well.
    for (rate, length) in [(100 << 20, 4 * MIB), (400_000, 20_000)] {
        let data = pattern(2 * length + 17);
        let (source, sink) = (
            file_with(&data[..length + 17]),
            tempfile::tempfile().unwrap(),
        );
        let control = Control::new().unwrap();
        control.set_schedule(Schedule::rate(rate));
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), direct()).unwrap();
        let grows = Grows(&source, Some(&data[length + 17..]));
        let report = transfer.control(&control).observe(grows).run().report;
        assert_eq!(report.written, data.len() as u64, "{report:?}");
        audit(&report, &source, &sink, &data);
    }
}

/// A block counts as read and as written once it is in the sink, so both counts
/// always agree, also if another thread reads them.
#[test]
fn the_figures_agree_at_every_look() {
    let _dog = watchdog("the_figures_agree_at_every_look");
    let data = pattern(20 * MIB);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let running = start(&source, &sink, direct()).unwrap();
    let look = || {
        let mut before = 0;
        loop {
            let status = running.status();
            let held = status.read.checked_sub(status.written);
            assert_eq!(Some(status.in_transit()), held, "{status:?}");
            assert!(status.written >= before, "{status:?}");
            before = status.written;
            if status.ended {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let looks = [(); 2].map(|()| scope.spawn(look));
        for look in looks {
            look.join().unwrap();
        }
    });
    let report = running.wait().report;
    assert_eq!(
        (report.read, report.written),
        (data.len() as u64, data.len() as u64)
    );
    audit(&report, &source, &sink, &data);
}

#[test]
fn watermarks_bound_what_is_pending() {
    let _dog = watchdog("watermarks_bound_what_is_pending");
    if !has_blocks_in_flight() {
        return;
    }
    let marks = |reads, writes, burst| Watermarks {
        reads,
        writes,
        burst,
    };
    for (marks, most) in [
        (Watermarks::default(), 7),
        (marks(1, 1, 1), 1),
        (marks(2, 8, 2), 3),
        (marks(0, 0, 0), 1),
    ] {
        let seen = watched(Request {
            watermarks: Some(marks),
            block: std::num::NonZeroUsize::new(256 << 10),
            ..direct()
        });
        assert!(
            (1..=most).contains(&seen.reads),
            "{marks:?}: {}",
            seen.reads
        );
    }
}

/// The bytes in flight of one transfer are bounded, whatever the request.
#[test]
fn memory_is_bounded() {
    let all = Watermarks {
        reads: u32::MAX,
        writes: u32::MAX,
        burst: u32::MAX,
    };
    for block in [1, 4096, 100_000, 2 * MIB, 64 * MIB] {
        let request = Request {
            watermarks: Some(all),
            block: std::num::NonZeroUsize::new(block),
            ..direct()
        };
        if block < 4096 {
            let (source, sink) = (file_with(&pattern(9000)), tempfile::tempfile().unwrap());
            let report = run(&source, &sink, request).report;
            assert_eq!(report.written, 0, "less than direct I/O takes: {report:?}");
            continue;
        }
        let seen = watched(request);
        let whole = block.min(4 * MIB) / 4096 * 4096;
        let (blocks, bytes) = (seen.pending, seen.pending as usize * whole);
        // A thread frees the memory of a block before it reports it, so some blocks
        // count as pending without memory.
        assert!(blocks <= 32 && bytes <= 16 * MIB, "{blocks} of {whole}");
    }
}

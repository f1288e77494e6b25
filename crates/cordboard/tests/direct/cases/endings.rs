//! Every way to end early: the counted bytes are in the sink.

use std::os::fd::AsFd;

use super::{audit, direct, whole};
use crate::common::mount::Mount;
use crate::common::{self, Cancelling, MIB, file_with, meanwhile, pattern, run, watchdog};
use cordboard::DataPath::{Direct, ReadWrite};
use cordboard::{Control, Ended, Errno, Observer, Progress, Request, Side, Switches, Transfer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn cancelled_at_any_moment() {
    const BLOCK: usize = 64 << 10;
    let _dog = watchdog("cancelled_at_any_moment");
    let data = pattern(24 * MIB + 321);
    let source = file_with(&data);
    for at in [0, 1, MIB, 5 * MIB, 11 * MIB, 24 * MIB, 24 * MIB + 1] {
        for (sleeping, fixed) in [(false, false), (true, false), (false, true), (true, true)] {
            rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
            let sink = tempfile::tempfile().unwrap();
            let mut control = Control::new().unwrap();
            if sleeping {
                // With this option, steps may wait in the kernel.
                control = control.interrupting();
            }
            // The largest block that the path chooses.
            let block = if fixed { BLOCK } else { 4 * MIB };
            let request = Request {
                block: std::num::NonZeroUsize::new(BLOCK).filter(|_| fixed),
                ..direct()
            };
            let mut cancel = Cancelling::at(at as u64, &control, block as u64);
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let report = transfer.control(&control).observe(&mut cancel).run().report;
            cancel.check(&report);
            assert!(report.written >= at as u64, "{at}: {report:?}");
            audit(&report, &source, &sink, &data);
        }
    }
}

/// On an engine, whose thread for direct copies takes all steps, with several
/// transfers at once.
#[test]
fn on_an_engine_to_the_end_and_cancelled() {
    let _dog = watchdog("on_an_engine_to_the_end_and_cancelled");
    let data = pattern(12 * MIB + 5);
    let files = || (file_with(&data), tempfile::tempfile().unwrap());
    let pairs: Vec<_> = (0..4).map(|_| files()).collect();
    let start = |(source, sink): &(_, _)| cordboard::start(source, sink, direct()).unwrap();
    let running: Vec<_> = pairs.iter().map(start).collect();
    for (running, (source, sink)) in running.into_iter().zip(&pairs) {
        let report = running.wait().report;
        assert_eq!(
            (report.ended, &report.path[..]),
            (Ended::Eof, &[Direct][..])
        );
        audit(&report, source, sink, &data);
    }
    for _ in 0..20 {
        let pair = files();
        let running = start(&pair);
        while running.status().written == 0 && !running.status().ended {
            std::thread::yield_now();
        }
        running.cancel();
        let report = running.wait().report;
        assert!(matches!(report.ended, Ended::Cancelled | Ended::Eof));
        audit(&report, &pair.0, &pair.1, &data);
    }
}

/// Cancelled before the start, and dropped without a run.
#[test]
fn never_begun() {
    let (source, sink) = (file_with(&pattern(MIB)), tempfile::tempfile().unwrap());
    let control = Control::new().unwrap();
    control.cancel();
    let report = common::with_control(&source, &sink, direct(), &control).report;
    assert_eq!((report.ended, report.written), (Ended::Cancelled, 0));
    drop(Transfer::new(source.as_fd(), sink.as_fd(), direct()).unwrap());
    audit(&report, &source, &sink, &[]);
}

#[test]
fn a_source_that_is_truncated_meanwhile() {
    let _dog = watchdog("a_source_that_is_truncated_meanwhile");
    let data = pattern(24 * MIB);
    for keep in [10 * MIB + 1234, 3 * MIB, 0] {
        let in_time = (0..20).any(|_| ends_at_the_cut(&data, keep));
        assert!(in_time, "{keep}: all blocks were read before the cut");
    }
}

/// Truncates the source after its first block has been written. Returns false if the write of this
/// block took so long that all others were read before.
fn ends_at_the_cut(data: &[u8], keep: usize) -> bool {
    let (source, sink) = (file_with(data), tempfile::tempfile().unwrap());
    let mut cut = meanwhile(|| source.set_len(keep as u64).unwrap());
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), direct()).unwrap();
    let report = transfer.observe(&mut cut).run().report;
    audit(&report, &source, &sink, data);
    if (report.ended, report.read) == (Ended::Eof, data.len() as u64) {
        return false;
    }
    assert_eq!(
        (report.ended, report.failed, report.errno),
        (Ended::Error, Some(Side::Source), Some(Errno::ENODATA)),
        "{report:?}"
    );
    // Blocks behind the cut are no longer in the source, but in the sink.
    assert!(report.written >= keep as u64, "{keep}: {report:?}");
    true
}

#[test]
fn a_source_that_grows_meanwhile() {
    let _dog = watchdog("a_source_that_grows_meanwhile");
    let data = pattern(20 * MIB + 777);
    let first = 12 * MIB + 100;
    let (source, sink) = (file_with(&data[..first]), tempfile::tempfile().unwrap());
    let mut grow = meanwhile(|| {
        use std::os::unix::fs::FileExt;
        source.write_all_at(&data[first..], first as u64).unwrap();
    });
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), direct()).unwrap();
    let report = transfer.observe(&mut grow).run().report;
    assert_eq!(
        (report.ended, &report.path[..]),
        (Ended::Eof, &[Direct][..])
    );
    assert!(report.written >= first as u64, "{report:?}");
    audit(&report, &source, &sink, &data);
}

/// By less than a block of the device, from a size that is whole blocks.
#[test]
fn a_source_that_grows_by_a_part_of_a_block_meanwhile() {
    let _dog = watchdog("a_source_that_grows_by_a_part_of_a_block_meanwhile");
    let data = pattern(8 * MIB + 100);
    let copies_all = |_| {
        let (source, sink) = (file_with(&data[..8 * MIB]), tempfile::tempfile().unwrap());
        let mut grow = meanwhile(|| {
            use std::os::unix::fs::FileExt;
            source.write_all_at(&data[8 * MIB..], 8 << 20).unwrap();
        });
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), direct()).unwrap();
        let report = transfer.observe(&mut grow).run().report;
        let ended = (report.ended, &report.path[..]);
        assert_eq!(ended, (Ended::Eof, &[Direct][..]), "{report:?}");
        audit(&report, &source, &sink, &data);
        report.written == data.len() as u64
    };
    // The source may be read to its end before the first bytes count as written.
    assert!((0..20).any(copies_all));
}

/// Calls a function with the number of bytes written.
struct Each<F>(F);

impl<F: FnMut(usize)> Observer for Each<F> {
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress.written as usize);
    }
}

/// The source grows, and another process writes at the sink's position while the new
/// bytes are copied.
#[test]
fn what_a_source_grows_by_is_not_written_over_what_others_write() {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    let _dog = watchdog("what_a_source_grows_by_is_not_written_over_what_others_write");
    let (first, all) = (12 * MIB, 20 * MIB);
    let source = file_with(&vec![1; first]);
    let sink = tempfile::tempfile().unwrap();
    let (mut grown, mut theirs) = (false, false);
    let others = Each(|written| {
        if !std::mem::replace(&mut grown, true) {
            source
                .write_all_at(&vec![1; all - first], first as u64)
                .unwrap();
        }
        if (first + 1..all).contains(&written) && !std::mem::replace(&mut theirs, true) {
            (&sink).write_all(&vec![9; MIB]).unwrap();
        }
    });
    // Twelve blocks in flight are 3 MiB: progress is reported before the end is read.
    let request = Request {
        block: std::num::NonZeroUsize::new(MIB / 4),
        watermarks: Some(cordboard::Watermarks::default()),
        ..direct()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let report = transfer.observe(others).run().report;
    assert_eq!((report.ended, report.written), (Ended::Eof, all as u64));
    assert!(theirs, "{report:?}");
    let found = common::content(&sink);
    let count = |byte| found.iter().filter(|b| **b == byte).count();
    assert_eq!([0, 1, 9].map(count), [0, all, MIB], "{report:?}");
}

/// The sink was extended for blocks. Another process moves its position back after
/// some blocks, or after the last. The counted bytes are not cut off.
#[test]
fn what_was_written_is_not_cut_off_where_others_seek_back() {
    use std::io::Seek;
    let _dog = watchdog("what_was_written_is_not_cut_off_where_others_seek_back");
    let (whole, odd) = (24 * MIB, 24 * MIB + 55);
    let before_another = Request {
        direct: cordboard::Direct::Always,
        ..common::only(&[Direct, ReadWrite])
    };
    let rounds = [
        (0, whole, whole, direct()),
        (0, whole, 8 * MIB, direct()),
        (MIB, whole, whole, direct()),
        // The next path finds the end.
        (0, odd, odd, before_another),
    ];
    for (from, all, until, request) in rounds {
        let data = pattern(all);
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        rustix::fs::seek(&sink, rustix::fs::SeekFrom::Start(from as u64)).unwrap();
        let (control, mut sought) = (Control::new().unwrap(), false);
        let others = Each(|written| {
            if written >= until && !std::mem::replace(&mut sought, true) {
                (&sink).rewind().unwrap();
                if until < all {
                    control.cancel();
                }
            }
        });
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.control(&control).observe(others).run().report;
        assert!(sought && report.errno.is_none(), "{report:?}");
        let written = report.written as usize;
        assert!(written >= until && report.path == [Direct], "{report:?}");
        let found = common::content(&sink);
        assert_eq!(found.len(), from + written, "{report:?}");
        assert!(found[from..] == data[..written], "{report:?}");
    }
}

/// Bytes are written exactly up to the limit, as by write(2), whichever blocks were
/// in flight behind the limit.
#[test]
fn a_file_size_limit_is_found_at_its_byte() {
    let _dog = watchdog("a_file_size_limit_is_found_at_its_byte");
    if !common::alone!() {
        return;
    }
    let data = pattern(16 * MIB);
    for most in [0, 100, 4096, 5 * MIB, 5 * MIB + 100, 9 * MIB + 4095] {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let before = getrlimit(Resource::Fsize);
        let current = Some(most as u64);
        setrlimit(Resource::Fsize, Rlimit { current, ..before }).unwrap();
        let report = run(&source, &sink, direct()).report;
        setrlimit(Resource::Fsize, before).unwrap();
        assert_eq!(
            (report.failed, report.errno, report.written),
            (Some(Side::Sink), Some(Errno::EFBIG), most as u64),
            "{report:?}"
        );
        audit(&report, &source, &sink, &data);
    }
}

/// Blocks that were reserved behind the limit are released when the sink is closed.
#[test]
fn a_file_size_limit_leaves_no_blocks_behind_it() {
    let _dog = watchdog("a_file_size_limit_leaves_no_blocks_behind_it");
    if !common::alone!() {
        return;
    }
    let data = pattern(40 * MIB);
    for (kind, size) in [("ext4", 64 << 20), ("xfs", 320 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        let (source, sink) = (file_with(&data), mount.file("sink"));
        let before = getrlimit(Resource::Fsize);
        let current = Some(5 * MIB as u64);
        setrlimit(Resource::Fsize, Rlimit { current, ..before }).unwrap();
        let report = run(&source, &sink, direct()).report;
        setrlimit(Resource::Fsize, before).unwrap();
        assert_eq!(report.errno, Some(Errno::EFBIG), "{kind}: {report:?}");
        drop(sink);
        let found = rustix::fs::stat(mount.dir.path().join("at/sink")).unwrap();
        assert_eq!(found.st_size, 5 * MIB as i64, "{kind}");
        assert!(found.st_blocks * 512 <= 6 * MIB as i64, "{kind}: {found:?}");
    }
}

/// No space left, with several blocks in flight: the counts are exact, and once there
/// is space, another transfer goes on from there.
#[test]
fn a_full_file_system() {
    let _dog = watchdog("a_full_file_system");
    let data = pattern(30 * MIB + 55);
    for (kind, size) in [("ext4", 64 << 20), ("xfs", 320 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        let ballast = mount.file("ballast");
        let room = rustix::fs::fstatvfs(&ballast).unwrap();
        let free = (room.f_bavail * room.f_bsize) as usize;
        let most = free.saturating_sub(17 * MIB);
        rustix::fs::fallocate(
            &ballast,
            rustix::fs::FallocateFlags::empty(),
            0,
            most.max(1) as u64,
        )
        .unwrap();
        let (source, sink) = (file_with(&data), mount.file("sink"));
        let report = run(&source, &sink, direct()).report;
        assert_eq!(
            (report.ended, report.failed, report.errno),
            (Ended::Error, Some(Side::Sink), Some(Errno::ENOSPC)),
            "{kind}: {report:?}"
        );
        assert!(report.written > MIB as u64, "{kind}: {report:?}");
        audit(&report, &source, &sink, &data);
        ballast.set_len(0).unwrap();
        let rest = run(&source, &sink, direct()).report;
        assert_eq!(rest.ended, Ended::Eof, "{kind}: {rest:?}");
        assert_eq!(report.written + rest.written, data.len() as u64, "{kind}");
        assert!(common::content(&sink) == data, "{kind}");
    }
}

/// `O_APPEND` is set on the sink during the transfer: the rest is appended behind the
/// blocks, without a gap.
#[test]
fn append_set_meanwhile_hands_over_without_a_gap() {
    let data = pattern(12 * MIB + 99);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let mut append = meanwhile(|| {
        let flags = rustix::fs::fcntl_getfl(&sink).unwrap();
        rustix::fs::fcntl_setfl(&sink, flags | rustix::fs::OFlags::APPEND).unwrap();
    });
    let request = Request {
        switches: Some(Switches::only(&[Direct, ReadWrite])),
        direct: cordboard::Direct::Always,
        ..direct()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let report = transfer.observe(&mut append).run().report;
    assert_eq!(report.path, [Direct, ReadWrite], "{report:?}");
    assert_eq!(report.ended, Ended::Eof);
    audit(&report, &source, &sink, &data);
}

/// `O_APPEND` is set before each of the calls in turn. The tail goes through the page
/// cache, and the sink has its final length by then.
#[test]
fn append_set_at_any_moment_puts_no_byte_elsewhere() {
    let _dog = watchdog("append_set_at_any_moment_puts_no_byte_elsewhere");
    let data = pattern(300_001);
    let calls = [
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_pwritev2,
        libc::SYS_fcntl,
    ];
    let request = Request {
        switches: Some(Switches::only(&[Direct, ReadWrite])),
        direct: cordboard::Direct::Always,
        ..direct()
    };
    for moment in 0.. {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request.clone()).unwrap();
        let (mut report, mut before) = (None, 0);
        let body = || report = Some(transfer.run().report);
        let append = || {
            if before == moment {
                rustix::fs::fcntl_setfl(&sink, rustix::fs::OFlags::APPEND).unwrap();
            }
            before += 1;
        };
        let Some(count) = testkit::midst::at_each(&calls, body, append) else {
            return testkit::skip::report("O_APPEND", "calls of another thread cannot be held");
        };
        let report = report.unwrap();
        let found = common::content(&sink);
        // Without RWF_NOAPPEND one of these moments fails.
        if testkit::needs::Need::NoAppend.is_met() {
            assert!(found == data, "{moment}: {report:?}");
        }
        assert_eq!((report.ended, report.written), (Ended::Eof, 300_001));
        if count <= moment {
            break;
        }
    }
}

#[test]
fn synced_and_asked_for_a_second_time() {
    let data = pattern(2 * MIB);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let sync = Request {
        sync: true,
        ..direct()
    };
    whole(&source, &sink, &data, sync.clone());
    let again = run(&source, &sink, sync).report;
    assert_eq!((again.ended, again.written), (Ended::Eof, 0), "{again:?}");
}

#[test]
fn nothing_is_left_open() {
    let _dog = watchdog("nothing_is_left_open");
    if !common::alone!() {
        return;
    }
    let data = pattern(2 * MIB + 1);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let before = common::descriptors();
    for _ in 0..50 {
        for fd in [&source, &sink] {
            rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(0)).unwrap();
        }
        assert_eq!(
            run(&source, &sink, direct()).report.written,
            data.len() as u64
        );
    }
    assert_eq!(common::descriptors(), before);
}

/// From some call on, `fstat(2)` fails, the source is truncated, and the path
/// declines. The sink's length does not exceed the count, or the transfer has failed.
#[test]
fn a_length_that_is_not_told_leaves_no_longer_sink_in_silence() {
    let _dog = watchdog("a_length_that_is_not_told_leaves_no_longer_sink_in_silence");
    // No thread of the library is running, and new ones inherit the filter.
    if !common::alone!() {
        return;
    }
    let data = pattern(6 * MIB + 321);
    let calls = [libc::SYS_fstat, libc::SYS_newfstatat];
    let mut told = 0;
    for nth in 0.. {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let mut truncate = meanwhile(|| source.set_len(4 * MIB as u64).unwrap());
        let request = Request {
            switches: Some(Switches::only(&[Direct, ReadWrite])),
            direct: cordboard::Direct::Always,
            ..direct()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let transfer = transfer.observe(&mut truncate);
        let mut report = None;
        let body = || report = Some(transfer.run().report);
        let refused = |count| (count >= nth).then_some(libc::EIO);
        let Some(count) = testkit::midst::refusing(&calls, body, refused) else {
            return testkit::skip::report("EIO", "calls of another thread cannot be held");
        };
        let report = report.unwrap();
        let what = format!("{nth} of {count}: {report:?}");
        let found = common::content(&sink);
        let written = report.written as usize;
        assert!(found[..written] == data[..written], "{what}");
        // The transfer may have moved everything before that.
        if report
            .declined
            .iter()
            .any(|declined| declined.path == Direct)
        {
            told += usize::from(report.errno == Some(Errno::EIO));
        }
        if report.errno != Some(Errno::EIO) {
            assert_eq!(found.len(), written, "{what}");
        }
        if count <= nth {
            break;
        }
    }
    assert!(told > 0, "no refused fstat(2) was reported");
}

//! The limits of a process: open files, memory, and the capacity of all pipes of its
//! user.

mod slots;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use crate::common::{self, any, content, file_with, only, pattern, run, watchdog};
use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::stage::{Fault, Finished, Passed, Transform};
use cordboard::{Control, Ended, Errno, Request, Side, Stage, Stranded, Transfer};
use rustix::process::{Resource, Rlimit, setrlimit};
use testkit::needs::Need;

#[test]
fn no_descriptor_left_for_a_pipe() {
    let _dog = watchdog("no_descriptor_left_for_a_pipe");
    if !common::alone!() {
        return;
    }
    let data = pattern(1 << 20);
    let file = file_with(&data);
    let (socket, mut feed) = UnixStream::pair().unwrap();
    let feeder = {
        let data = data.clone();
        std::thread::spawn(move || feed.write_all(&data).unwrap())
    };
    let sink = tempfile::tempfile().unwrap();
    let (second, mut peer) = common::tcp_pair();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let before = rustix::process::getrlimit(Resource::Nofile);
    let limit = Rlimit {
        // Every new descriptor is refused, open ones stay.
        current: Some(3),
        ..before
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(std::io::pipe().is_err());
    let through = run(&socket, &sink, any()).report;
    let received = std::thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        got
    });
    let forced = run(&file, &second, only(&[Splice, ReadWrite])).report;
    drop(second);
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
    let drain = std::thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        got
    });
    let piped = run(&file, &writer, any()).report;
    drop(writer);
    setrlimit(Resource::Nofile, before).unwrap();
    for report in [&through, &forced] {
        assert_eq!(report.path, [ReadWrite], "{report:?}");
        let why = report.declined.iter().find(|d| d.path == Splice).unwrap();
        assert_eq!(why.why.to_string(), "EMFILE", "{report:?}");
    }
    assert_eq!(
        (piped.ended, &piped.path[..]),
        (Ended::Eof, &common::carried_by(&[Splice, ReadWrite])[..]),
        "{piped:?}"
    );
    feeder.join().unwrap();
    assert!(content(&sink) == data && received.join().unwrap() == data);
    assert!(drain.join().unwrap() == data);
}

/// `RLIMIT_NOFILE` is 0, as in sandboxes: open descriptors can be used, but `poll(2)`
/// accepts none.
#[test]
fn no_descriptor_may_be_waited_for() {
    let _dog = watchdog("no_descriptor_may_be_waited_for");
    if !common::alone!() {
        return;
    }
    let data = pattern(1 << 20);
    for cancelled in [false, true] {
        let (source, feed) = std::io::pipe().unwrap();
        let mut feed = Some(feed);
        let (mut reader, sink) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        let before = rustix::process::getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: Some(0),
            ..before
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                // The transfer waits for both sides, one after the other.
                for piece in data.chunks(100_000) {
                    feed.as_ref().unwrap().write_all(piece).unwrap();
                    let mut got = vec![0; piece.len()];
                    reader.read_exact(&mut got).unwrap();
                    assert!(got == piece);
                }
                if cancelled {
                    control.cancel();
                } else {
                    feed = None;
                }
            });
            common::with_control(&source, &sink, any(), &control).report
        });
        setrlimit(Resource::Nofile, before).unwrap();
        let ended = [Ended::Eof, Ended::Cancelled][usize::from(cancelled)];
        assert_eq!((report.ended, report.errno), (ended, None), "{report:?}");
        assert_eq!(report.written, data.len() as u64);
    }
}

/// Limits the address space of this process to its present size plus `bytes`, and
/// allocates what the allocator has left, in pieces of `piece` bytes. Frees a few
/// pieces of 4 KiB, apart from each other, for other allocations.
fn no_more_memory(bytes: u64, piece: usize) -> (Rlimit, Vec<Vec<u8>>) {
    let pages = common::settled_pages();
    let mut hoard = Vec::with_capacity(1 << 16);
    let small: Vec<Vec<u8>> = (0..32).map(|_| Vec::with_capacity(4096)).collect();
    let before = rustix::process::getrlimit(Resource::As);
    let now = pages * rustix::param::page_size() as u64;
    let limit = Rlimit {
        current: Some(now + bytes),
        ..before
    };
    setrlimit(Resource::As, limit).unwrap();
    let mut size = if piece == 0 { 0 } else { 32 << 20 };
    while size >= piece && size > 0 {
        let mut more = Vec::new();
        match more.try_reserve_exact(size) {
            Ok(()) => hoard.push(more),
            Err(_) => size /= 2,
        }
    }
    hoard.extend(small.into_iter().step_by(2));
    (before, hoard)
}

/// Without memory for a large buffer a small one is used.
#[test]
fn hardly_any_memory_for_a_buffer() {
    let _dog = watchdog("hardly_any_memory_for_a_buffer");
    if !common::alone!() {
        return;
    }
    let data = pattern(1 << 20);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let (before, _) = no_more_memory(48 << 10, 0);
    let report = run(&source, &sink, only(&[ReadWrite])).report;
    setrlimit(Resource::As, before).unwrap();
    assert_eq!(
        (report.ended, report.written, &report.path[..]),
        (Ended::Eof, 1 << 20, &[ReadWrite][..]),
        "{report:?}"
    );
    assert!(content(&sink) == data);
}

/// A transfer that measures tries calls of up to 1 MiB. Without memory for such a buffer, a
/// smaller one is used.
#[test]
fn hardly_any_memory_for_another_size() {
    let _dog = watchdog("hardly_any_memory_for_another_size");
    if !common::alone!() {
        return;
    }
    let data = pattern(8 << 20);
    let (source, (sink, mut peer)) = (file_with(&data), UnixStream::pair().unwrap());
    let reader = std::thread::spawn(move || {
        let (mut bytes, mut count) = ([0; 4096], 0);
        while let n @ 1.. = peer.read(&mut bytes).unwrap() {
            count += n;
        }
        count
    });
    let request = Request {
        tune: Some(cordboard::Tune::EachStep),
        ..only(&[Splice, ReadWrite])
    };
    let (before, _) = no_more_memory(300 << 10, 0);
    let report = run(&source, &sink, request).report;
    setrlimit(Resource::As, before).unwrap();
    drop(sink);
    assert_eq!(
        (report.ended, report.errno),
        (Ended::Eof, None),
        "{report:?}"
    );
    assert!(report.path.contains(&ReadWrite), "{report:?}");
    assert_eq!(reader.join().unwrap(), 8 << 20);
}

/// Bytes that were read and cannot be written are handed back even if no memory is
/// available for them.
#[test]
fn no_memory_for_what_is_handed_back() {
    let _dog = watchdog("no_memory_for_what_is_handed_back");
    if !common::alone!() {
        return;
    }
    let data = pattern(200_000);
    let (source, mut feed) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&feed, 1 << 18).unwrap();
    feed.write_all(&data).unwrap();
    let (reader, sink) = std::io::pipe().unwrap();
    // A pipe is larger where pages are.
    rustix::pipe::fcntl_setpipe_size(&sink, 1 << 16).unwrap();
    let control = Control::new().unwrap();
    let limits = std::sync::Mutex::new(None);
    let mut reader = Some(reader);
    let outcome = Transfer::new(source.as_fd(), sink.as_fd(), only(&[ReadWrite]))
        .unwrap()
        .control(&control)
        .observe(common::meanwhile(|| {
            drop(reader.take());
            *limits.lock().unwrap() = Some(no_more_memory(0, 8 << 10));
        }))
        .run();
    let (before, hoard) = limits.into_inner().unwrap().unwrap();
    setrlimit(Resource::As, before).unwrap();
    drop(hoard);
    let report = &outcome.report;
    assert_eq!(
        (report.failed, report.errno),
        (Some(Side::Sink), Some(Errno::EPIPE))
    );
    assert_eq!((report.read, report.written), (131_072, 65_536));
    assert!(matches!(outcome.stranded, Some(Stranded::Pipe(_))));
    assert!(common::handed_back(outcome.stranded) == data[65_536..131_072]);
}

/// Makes this many bytes at the end of the source.
struct Expands(usize);

impl Transform for Expands {
    fn name(&self) -> &'static str {
        "expands"
    }

    fn transform(&mut self, input: &[u8], _: &mut [u8]) -> Result<Passed, Fault> {
        Ok(Passed {
            taken: input.len(),
            made: 0,
        })
    }

    fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault> {
        let made = self.0.min(output.len());
        output[..made].fill(7);
        self.0 -= made;
        Ok(Finished {
            made,
            done: self.0 == 0,
        })
    }
}

/// The output of a stage does not fit into the memory. The bytes up to there are handed back.
#[test]
fn no_memory_for_the_output_of_a_stage_that_is_handed_back() {
    let _dog = watchdog("no_memory_for_the_output_of_a_stage_that_is_handed_back");
    if !common::alone!() {
        return;
    }
    const LENGTH: usize = 64 << 20;
    let source = file_with(b"");
    let (mut reader, sink) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
    let transfer = transfer
        .stage(Stage::transforming(Expands(LENGTH)))
        .unwrap();
    let transfer = transfer
        .control(&control)
        .observe(common::meanwhile(|| control.cancel()));
    let (before, _) = no_more_memory(16 << 20, 0);
    let outcome = transfer.run();
    setrlimit(Resource::As, before).unwrap();
    drop(sink);
    let report = &outcome.report;
    assert_eq!(
        (report.ended, report.failed, report.errno),
        (Ended::Error, None, Some(Errno::ENOMEM)),
        "{report:?}"
    );
    let stranded = common::handed_back(outcome.stranded);
    assert_eq!(stranded.len() as u64, report.stranded);
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    got.extend(stranded);
    assert!(got.len() < LENGTH && got.iter().all(|byte| *byte == 7));
}

/// Beyond the user's limit every new pipe has one or two pages, and growing it is
/// refused. Transfers are then slower, but correct.
#[test]
fn a_users_share_of_pipes_is_used_up() {
    let _dog = watchdog("a_users_share_of_pipes_is_used_up");
    if !common::is_root() {
        testkit::skip::here("only root can change its user");
        return;
    }
    // The pipes that the test makes have 16 pages each.
    if !(1..16 * 4000).contains(&soft_pages()) {
        return testkit::skip::here("fs.pipe-user-pages-soft does not limit so few pipes");
    }
    if !common::alone!() {
        return;
    }
    let data = pattern(1 << 20);
    let file = file_with(&data);
    let limit = Rlimit {
        current: Some(20_000),
        maximum: Some(20_000),
    };
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        return testkit::skip::here(format!("20000 descriptors are refused: {error}"));
    }
    // SAFETY: takes an integer; applies to all threads of this process.
    if unsafe { libc::setuid(65_534) } != 0 {
        let error = std::io::Error::last_os_error();
        return testkit::skip::here(format!("user 65534 is not known here: {error}"));
    }
    let mut all = Vec::new();
    while all.len() < 4000 {
        let pipe = std::io::pipe().unwrap();
        let capacity = rustix::pipe::fcntl_getpipe_size(&pipe.1).unwrap();
        all.push(pipe);
        if capacity < default_size() {
            break;
        }
    }
    assert!(all.len() < 4000, "no limit on pipes here");
    let grown = rustix::pipe::fcntl_setpipe_size(&all[0].1, 1 << 20);
    assert_eq!(grown, Err(rustix::io::Errno::PERM));
    for _ in 0..20 {
        let (a, mut b) = UnixStream::pair().unwrap();
        let got = std::thread::spawn(move || {
            let mut got = Vec::new();
            b.read_to_end(&mut got).unwrap();
            got
        });
        let request = Request {
            source_offset: Some(0),
            ..only(&common::carried_by(&[Splice, ReadWrite]))
        };
        let report = run(&file, &a, request).report;
        drop(a);
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
        assert!(got.join().unwrap() == data);
    }
    // A pipe that holds more than its old capacity cannot shrink (`EBUSY`) and stays.
    let (reader, writer) = &all[1];
    let report = std::thread::scope(|scope| {
        let got = scope.spawn(|| {
            let mut got = vec![0; 1 << 20];
            (&*reader).read_exact(&mut got).unwrap();
            got
        });
        let report = run(&file, writer, any()).report;
        assert!(got.join().unwrap() == data);
        report
    });
    assert_eq!(report.written, 1 << 20);
}

/// The limit `fs.pipe-user-pages-soft`; 0 is none.
fn soft_pages() -> usize {
    let soft = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    soft.trim().parse().unwrap()
}

/// The capacity of a pipe that was not resized: 16 slots of a page.
fn default_size() -> usize {
    16 * rustix::param::page_size()
}

/// Returns the capacity of these pipes above the default.
fn above(pipes: &[(std::io::PipeReader, std::io::PipeWriter)]) -> usize {
    let size = |pipe| rustix::pipe::fcntl_getpipe_size(pipe).unwrap();
    let above = pipes.iter().map(|(_, sink)| size(sink) - default_size());
    above.sum()
}

/// Fills a pipe without a reader from a file: on the caller's thread, or on an
/// engine.
fn fill(sink: &std::io::PipeWriter, by_engine: bool) {
    let source = file_with(&pattern(900 << 10));
    let request = Request {
        idle: Some(std::time::Duration::from_millis(1)),
        source_offset: Some(0),
        ..only(&[Splice])
    };
    let report = match by_engine {
        true => {
            cordboard::start(&source, sink, request)
                .unwrap()
                .wait()
                .report
        }
        false => run(&source, sink, request).report,
    };
    assert!(
        matches!(report.ended, Ended::Eof | Ended::Idle),
        "{report:?}"
    );
    assert_eq!(report.path, [Splice], "{report:?}");
}

/// A caller's pipe that is full cannot shrink (`EBUSY`). All such pipes stay within
/// the budget together, and give it back once they are read.
#[test]
fn pipes_that_stay_full_stay_within_the_budget() {
    let _dog = watchdog("pipes_that_stay_full_stay_within_the_budget");
    if testkit::needs::missing(
        "pipes_that_stay_full_stay_within_the_budget",
        &[Need::Splice],
    ) {
        return;
    }
    if !common::alone!() {
        return;
    }
    let budget = match soft_pages() {
        0 => 256 << 20,
        pages => pages * rustix::param::page_size() / 2,
    };
    let count = 2 * budget / (1 << 20) + 20;
    let mut pipes: Vec<_> = (0..count).map(|_| std::io::pipe().unwrap()).collect();
    for (n, (_, sink)) in pipes.iter().enumerate() {
        fill(sink, n % 2 == 1);
    }
    let (left, full) = (above(&pipes), budget - (1 << 20));
    assert!((full..=budget).contains(&left), "{left} of {budget}");
    // Once they are read to the end, they shrink when other pipes need their share.
    // There are as many other pipes: for fewer, the share of the first few would
    // suffice.
    for (reader, _) in &mut pipes {
        let there = rustix::io::ioctl_fionread(&*reader).unwrap();
        std::io::copy(&mut reader.take(there), &mut std::io::sink()).unwrap();
    }
    let more: Vec<_> = (0..count).map(|_| std::io::pipe().unwrap()).collect();
    for n in 0.. {
        let (reader, sink) = &more[n % count];
        fill(sink, n % 2 == 1);
        let there = rustix::io::ioctl_fionread(reader).unwrap();
        std::io::copy(&mut reader.take(there), &mut std::io::sink()).unwrap();
        let now = above(&pipes);
        assert!(now + above(&more) <= budget, "{now} of {budget}");
        if now == 0 {
            return;
        }
        std::thread::yield_now();
    }
}

/// A pipe that is filled and read repeatedly counts only once, and is small at the
/// end.
#[test]
fn a_pipe_that_stayed_full_is_taken_over_by_its_next_transfer() {
    let _dog = watchdog("a_pipe_that_stayed_full_is_taken_over_by_its_next_transfer");
    if testkit::needs::missing(
        "a_pipe_that_stayed_full_is_taken_over_by_its_next_transfer",
        &[Need::Splice],
    ) {
        return;
    }
    if !common::alone!() {
        return;
    }
    let mut pipe = [std::io::pipe().unwrap()];
    for n in 0..100 {
        fill(&pipe[0].1, n % 2 == 1);
        assert!(above(&pipe) > 0, "the pipe is not larger than before");
        let (reader, _) = &mut pipe[0];
        let there = rustix::io::ioctl_fionread(&*reader).unwrap();
        assert_eq!(there, 900 << 10, "the {n}th");
        std::io::copy(&mut reader.take(there), &mut std::io::sink()).unwrap();
    }
    // The pipe is then as small as its content allows.
    let source = file_with(&pattern(129 << 10));
    run(&source, &pipe[0].1, only(&[Splice]));
    assert_eq!(above(&pipe), default_size().max(256 << 10) - default_size());
}

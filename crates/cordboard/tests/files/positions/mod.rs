//! Positions that several transfers use at once: they share each open description,
//! as the commands of a shell script share a redirection. `read(2)` and `write(2)`
//! lock a position; every path must do so.

mod aligned;
mod claims;
mod holes;
mod midway;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Barrier;

use crate::common::{self, any_and_each, forcible, only, pattern, watchdog};
use cordboard::DataPath::{self, CopyFileRange, Direct, ReadWrite, Sendfile, Splice};
use cordboard::{Ended, Errno, Observer, Progress, Request, Size, Transfer};

/// Transfers that run at once.
const MANY: usize = 3;
/// Bytes of each.
const EACH: usize = 2 << 20;
/// Without locking, most rounds fail.
const ROUNDS: usize = 6;

fn moved(source: impl AsFd, sink: impl AsFd, request: Request) -> (u64, Vec<DataPath>) {
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let report = transfer.run().report;
    assert!(
        matches!(report.ended, Ended::Eof | Ended::Size),
        "{report:?}"
    );
    assert_eq!(report.read, report.written, "{report:?}");
    (report.written, report.path)
}

/// Runs these at the same time.
fn at_once<T: Send>(each: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (barrier, each) = (&Barrier::new(MANY), &each);
    std::thread::scope(|scope| {
        let start = |n| {
            scope.spawn(move || {
                barrier.wait();
                each(n)
            })
        };
        let threads: Vec<_> = (0..MANY).map(start).collect();
        (threads.into_iter().map(|thread| thread.join().unwrap())).collect()
    })
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Counts each byte value.
fn counts(bytes: &[u8]) -> [usize; 256] {
    let mut counts = [0; 256];
    bytes.iter().for_each(|b| counts[usize::from(*b)] += 1);
    counts
}

/// Makes a pipe that gives `EACH` bytes of this value, in uneven pieces.
fn feed(byte: u8) -> (OwnedFd, std::thread::JoinHandle<()>) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let feeder = std::thread::spawn(move || {
        let (mut writer, bytes) = (File::from(writer), vec![byte; EACH]);
        bytes
            .chunks(7919)
            .for_each(|part| writer.write_all(part).unwrap());
    });
    (reader, feeder)
}

#[test]
fn pipes_into_one_file() {
    let _watchdog = watchdog("pipes_into_one_file");
    for request in any_and_each(&[Splice, ReadWrite]) {
        for _ in 0..ROUNDS {
            let sink = tempfile::tempfile().unwrap();
            at_once(|n| {
                let (source, feeder) = feed(n as u8 + 1);
                let sink = sink.try_clone().unwrap();
                assert_eq!(moved(&source, &sink, request.clone()).0, EACH as u64);
                feeder.join().unwrap();
            });
            let found = counts(&bytes_of(&sink));
            assert_eq!(found[..=MANY], [[0].as_slice(), &[EACH; MANY]].concat());
            let end = (&sink).stream_position().unwrap();
            assert_eq!(end, (MANY * EACH) as u64);
        }
    }
}

#[test]
fn files_into_one_file() {
    let _watchdog = watchdog("files_into_one_file");
    let paths = [CopyFileRange, Sendfile, Splice, Direct, ReadWrite];
    for request in any_and_each(&paths) {
        for block in [None, std::num::NonZeroUsize::new(100_000)] {
            into_one(&Request {
                block,
                ..request.clone()
            });
        }
    }
}

fn into_one(request: &Request) {
    for _ in 0..ROUNDS {
        let sink = tempfile::tempfile().unwrap();
        at_once(|n| {
            let mut source = tempfile::tempfile().unwrap();
            source.write_all(&vec![n as u8 + 1; EACH]).unwrap();
            source.rewind().unwrap();
            let sink = sink.try_clone().unwrap();
            assert_eq!(moved(&source, &sink, request.clone()).0, EACH as u64);
            assert_eq!(source.stream_position().unwrap(), EACH as u64);
        });
        let found = counts(&bytes_of(&sink));
        assert_eq!(
            found[..=MANY],
            [[0].as_slice(), &[EACH; MANY]].concat(),
            "{request:?}"
        );
    }
}

#[test]
fn one_file_into_pipes_and_files() {
    let _watchdog = watchdog("one_file_into_pipes_and_files");
    let data = pattern(MANY * EACH + 12_345);
    for request in any_and_each(&[CopyFileRange, Sendfile, Splice, ReadWrite]) {
        for to_pipe in [false, true] {
            let refused = [CopyFileRange, Sendfile];
            let forced = |path| only(&[path]).switches == request.switches;
            if to_pipe && refused.into_iter().any(forced) {
                continue;
            }
            for _ in 0..ROUNDS {
                let mut source = tempfile::tempfile().unwrap();
                source.write_all(&data).unwrap();
                source.rewind().unwrap();
                let parts = at_once(|_| {
                    let source = source.try_clone().unwrap();
                    taken(&source, to_pipe, request.clone())
                });
                let all = parts.concat();
                assert_eq!(all.len(), data.len(), "{request:?}");
                assert_eq!(counts(&all), counts(&data), "{request:?}");
                let end = source.stream_position().unwrap();
                assert_eq!(end, data.len() as u64);
            }
        }
    }
}

/// Returns what a transfer reads from this file, into a pipe or a file of its own.
fn taken(source: &File, to_pipe: bool, request: Request) -> Vec<u8> {
    if !to_pipe {
        let sink = tempfile::tempfile().unwrap();
        moved(source, &sink, request);
        return bytes_of(&sink);
    }
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    std::thread::scope(|scope| {
        let all = scope.spawn(move || {
            let mut all = Vec::new();
            File::from(reader).read_to_end(&mut all).unwrap();
            all
        });
        moved(source, &writer, request);
        drop(writer);
        all.join().unwrap()
    })
}

/// The position is behind the moved bytes, also if the source gives fewer bytes than
/// its size.
#[test]
fn what_is_not_moved_is_given_back() {
    let data = pattern(1 << 20);
    for request in any_and_each(&[CopyFileRange, Sendfile, Splice, ReadWrite]) {
        let (mut source, mut sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        source.write_all(&data).unwrap();
        source.seek(SeekFrom::Start(1000)).unwrap();
        sink.seek(SeekFrom::Start(500)).unwrap();
        let size = Size::Bytes(200_000);
        let (n, path) = moved(
            &source,
            &sink,
            Request {
                size,
                ..request.clone()
            },
        );
        assert_eq!(n, 200_000);
        assert_eq!(source.stream_position().unwrap(), 201_000, "{path:?}");
        assert_eq!(sink.stream_position().unwrap(), 200_500, "{path:?}");
        // The file was truncated after its size was read.
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        source.set_len(300_000).unwrap();
        let report = transfer.run().report;
        assert_eq!(report.read, 99_000, "{report:?}");
        assert_eq!(source.stream_position().unwrap(), 300_000, "{report:?}");
        assert_eq!(sink.stream_position().unwrap(), 299_500, "{report:?}");
        assert_eq!(bytes_of(&sink)[500..], data[1000..300_000]);
    }
}

/// If the sink cannot be opened again, `sendfile(2)` writes at its position, which
/// the previous path has moved.
#[test]
fn a_range_that_another_path_has_claimed_is_given_back() {
    use testkit::refuse::{OPEN, apart, refuse};
    let paths = [CopyFileRange, Sendfile];
    if forcible(&paths).len() < paths.len() {
        return;
    }
    let data = pattern(300_000);
    let (source, mut sink) = (common::file_with(&data), tempfile::tempfile().unwrap());
    let report = apart(|| {
        refuse(&[libc::SYS_copy_file_range], libc::EXDEV);
        refuse(OPEN, libc::EPERM);
        common::run(&source, &sink, only(&paths)).report
    });
    assert_eq!(report.path, [Sendfile], "{report:?}");
    assert_eq!(bytes_of(&sink), data, "{report:?}");
    assert_eq!(sink.stream_position().unwrap(), report.written);
}

/// Extends a file each time that all of it has been read.
struct Growing<'a> {
    file: &'a File,
    data: &'a [u8],
}

impl Observer for Growing<'_> {
    fn progress(&mut self, progress: &Progress) {
        let (length, all) = (self.file.metadata().unwrap().len(), self.data.len() as u64);
        if progress.read == length && length < all {
            let more = &self.data[length as usize..][..1000];
            self.file.write_all_at(more, length).unwrap();
        }
    }
}

/// The check for the source's end finds more bytes: both positions are moved past
/// them too.
#[test]
fn what_comes_at_the_end_moves_both_positions() {
    let data = pattern(6000);
    for request in any_and_each(&[CopyFileRange, Sendfile, Splice, ReadWrite]) {
        let (source, sink) = (
            common::file_with(&data[..1000]),
            tempfile::tempfile().unwrap(),
        );
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request.clone()).unwrap();
        let growing = Growing {
            file: &source,
            data: &data,
        };
        let report = transfer.observe(growing).run().report;
        let written = report.written;
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
        if request.switches == only(&[Sendfile]).switches {
            assert_eq!(written, 6000, "{report:?}");
        }
        assert_eq!(common::position(&source), written, "{report:?}");
        assert_eq!(common::position(&sink), written, "{report:?}");
        assert_eq!(bytes_of(&sink), data[..written as usize], "{report:?}");
    }
}

/// The sink's reader closes after others have read on from the source. The transfer
/// does not rewind the source over its unwritten bytes, since the others would then
/// read their own bytes again.
#[test]
fn what_others_have_read_behind_is_not_read_again() {
    let _watchdog = watchdog("what_others_have_read_behind_is_not_read_again");
    let data = pattern(4 << 20);
    // The claim of a refused call is given back.
    let refused = any_and_each(&[Splice, ReadWrite]).into_iter().take(1);
    let all = any_and_each(&[Splice, ReadWrite]);
    let all = all.into_iter().map(|request| (request, false));
    for (request, is_refused) in all.chain(refused.map(|request| (request, true))) {
        let source = common::file_with(&data);
        let (mut reader, sink) = std::io::pipe()
            .map(|(r, s)| (Some(File::from(OwnedFd::from(r))), s))
            .unwrap();
        let mut all = Vec::new();
        let mut leave = common::meanwhile(|| {
            let reader = reader.take().unwrap();
            let there = rustix::io::ioctl_fionread(&reader).unwrap();
            (&reader).take(there).read_to_end(&mut all).unwrap();
            (&source).take(1000).read_to_end(&mut all).unwrap();
        });
        // With an idle limit, each call moves no more than the pipe accepts.
        let request = Request {
            idle: Some(std::time::Duration::from_secs(1000)),
            ..request
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let outcome = testkit::refuse::apart(|| {
            if is_refused {
                testkit::refuse::refuse(&[libc::SYS_splice], libc::ENOSYS);
            }
            transfer.observe(&mut leave).run()
        });
        let report = outcome.report;
        assert_eq!(report.errno, Some(Errno::EPIPE), "{report:?}");
        assert_eq!(report.read, report.written + report.stranded, "{report:?}");
        all.extend(common::handed_back(outcome.stranded));
        (&source).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), data.len(), "{report:?}");
        assert!(counts(&all) == counts(&data), "{report:?}");
    }
}

/// Another reader takes the bytes of a pipe first: the transfer has claimed no range
/// of the sink while it waits for more.
#[test]
fn who_waits_for_a_pipe_has_claimed_nothing() {
    let _watchdog = watchdog("who_waits_for_a_pipe_has_claimed_nothing");
    if forcible(&[Splice]).is_empty() || !common::has_local_files() {
        return;
    }
    let (source, feed) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&feed, &[1; 5000]).unwrap();
    let (sink, mut feed) = (tempfile::tempfile().unwrap(), Some(File::from(feed)));
    let (mut report, mut taken) = (None, false);
    let body = || report = Some(common::run(&source, &sink, only(&[Splice])).report);
    let others = || {
        if !taken {
            assert_eq!(common::position(&sink), 5000, "claimed");
            assert_eq!(rustix::io::read(&source, &mut [0; 8192]), Ok(5000));
            taken = true;
        } else if let Some(mut feed) = feed.take() {
            // The transfer waits for more.
            (&sink).write_all(&[9; 100]).unwrap();
            feed.write_all(&[2; 3000]).unwrap();
        }
    };
    let calls = [&[libc::SYS_splice], testkit::refuse::PPOLL].concat();
    if testkit::midst::at_each(&calls, body, others).is_none() {
        return testkit::skip::report("claims", "calls of another thread cannot be held");
    }
    let report = report.unwrap();
    assert_eq!((report.ended, report.written), (Ended::Eof, 3000));
    let expected = [[9; 100].as_slice(), &[2; 3000]].concat();
    assert!(bytes_of(&sink) == expected, "{report:?}");
}

/// Bytes that appear at the source's end get their own range of the sink too.
#[test]
fn what_comes_at_the_end_is_not_written_over_what_others_write() {
    let name = "what_comes_at_the_end_is_not_written_over_what_others_write";
    if forcible(&[Sendfile]).is_empty() {
        return;
    }
    let data = [1; 3000];
    let (source, sink) = (
        common::file_with(&data[..1000]),
        tempfile::tempfile().unwrap(),
    );
    let growing = Growing {
        file: &source,
        data: &data,
    };
    let mut report = None;
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[Sendfile])).unwrap();
    let body = || report = Some(transfer.observe(growing).run().report);
    let mut calls = 0;
    let others = || {
        calls += 1;
        if calls == 2 {
            (&sink).write_all(&[9; 4096]).unwrap();
        }
    };
    if testkit::midst::at_each(&[libc::SYS_sendfile], body, others).is_none() {
        return testkit::skip::report(name, "calls of another thread cannot be held");
    }
    let report = report.unwrap();
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 3000),
        "{report:?}"
    );
    let found = bytes_of(&sink);
    assert_eq!(found.len(), 3000 + 4096, "{report:?}");
    assert_eq!(
        (counts(&found)[1], counts(&found)[9]),
        (3000, 4096),
        "{report:?}"
    );
}

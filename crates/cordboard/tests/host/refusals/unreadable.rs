//! A pipe with bytes in it that cannot be read: a page of a file, spliced there, that
//! is no longer valid (`page_cache_pipe_buf_confirm`, fs/splice.c). The bytes before
//! it are moved, and nothing is lost.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};

use cordboard::{DataPath, Ended, Errno, Request, Side, Stage, Transfer};
use rustix::pipe::{PipeFlags, pipe_with};
use testkit::midst::refusing;

use crate::common::{content, handed_back, only, pattern, read_packets, watchdog};

/// The sink of the bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum To {
    File,
    Stage,
    /// A file with `O_APPEND`, which refuses pages, so that the private pipe is read.
    Appending,
}

/// Packets of this length: a read ends with each.
const PACKET: usize = 1000;

#[test]
fn what_cannot_be_read_is_handed_back() {
    let name = "what_cannot_be_read_is_handed_back";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let data = pattern(10 * PACKET);
    for to in [To::File, To::Stage, To::Appending] {
        for readable in [0, 1, 3] {
            let what = format!("{to:?} {readable}");
            let (source, feed) = pipe_with(PipeFlags::DIRECT).unwrap();
            for packet in data.chunks(PACKET) {
                assert_eq!(rustix::io::write(&feed, packet), Ok(PACKET));
            }
            drop(feed);
            let file = tempfile::tempfile().unwrap();
            let sink: OwnedFd = file.try_clone().unwrap().into();
            let request = Request {
                block: NonZeroUsize::new(4 * PACKET),
                ..only(&[DataPath::Splice, DataPath::ReadWrite][usize::from(to != To::Appending)..])
            };
            let mut outcome = None;
            let body = || {
                let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
                if to == To::Stage {
                    transfer = transfer.stage(Stage::count()).unwrap();
                }
                if to == To::Appending {
                    refuse_pages(&sink);
                }
                outcome = Some(transfer.run());
            };
            let refuse = |count| (count >= readable).then_some(libc::EIO);
            if refusing(&[libc::SYS_read], body, refuse).is_none() {
                return testkit::skip::report(name, "no seccomp_unotify(2) here");
            }
            let outcome = outcome.unwrap();
            let report = outcome.report;
            let failed = (report.ended, report.failed, report.errno);
            let expected = (Ended::Error, Some(Side::Source), Some(Errno::EIO));
            assert_eq!(failed, expected, "{what}: {report:?}");
            assert_eq!(
                report.read,
                report.written + report.stranded,
                "{what}: {report:?}"
            );
            let (read, written) = (report.read as usize, report.written as usize);
            assert_eq!(written, readable * PACKET, "{what}: {report:?}");
            assert!(read > written, "{what}: {report:?}");
            assert!(
                handed_back(outcome.stranded) == data[written..read],
                "{what}"
            );
            assert!(content(&file) == data[..written], "{what}");
            assert!(read_packets(source) == data[read..], "{what}");
        }
    }
}

/// Sets `O_APPEND` on the sink.
fn refuse_pages(sink: &OwnedFd) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    fcntl_setfl(sink, fcntl_getfl(sink).unwrap() | OFlags::APPEND).unwrap();
}

/// `splice(2)` returns 0 before a page that is not valid. No path follows that reads it.
#[test]
fn a_page_that_cannot_be_spliced_is_no_end() {
    let _dog = watchdog("a_page_that_cannot_be_spliced_is_no_end");
    for path in crate::common::forcible(&[DataPath::Splice]) {
        let (source, feed) = rustix::pipe::pipe().unwrap();
        assert_eq!(rustix::io::write(&feed, b"abc"), Ok(3));
        drop(feed);
        let sink = tempfile::tempfile().unwrap();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
        let report = testkit::refuse::apart(|| {
            testkit::refuse::refuse(&[libc::SYS_splice], 0);
            transfer.run().report
        });
        let failure = (report.ended, report.failed, report.errno);
        let expected = (Ended::Error, Some(Side::Source), Some(Errno::ENODATA));
        assert_eq!(failure, expected, "{report:?}");
        assert_eq!(rustix::io::read(&source, &mut [0; 8]), Ok(3));
    }
}

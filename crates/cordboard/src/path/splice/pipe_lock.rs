//! Pairs for which one call of `splice(2)` would block while it holds the lock
//! of the caller's pipe.
//!
//! `splice(2)` calls the sink with the source pipe locked (`splice_to_socket`
//! and `iter_file_splice_write`, fs/splice.c), and a source that is not a pipe
//! with the sink pipe locked (`splice_file_to_pipe`). As long as the sink or the
//! source blocks, every other call on the pipe blocks too, in any process, and
//! no signal interrupts it. So a private pipe is used in between: from pipe to
//! pipe nothing blocks with a lock held (`ipipe_prep`, `opipe_prep`).

use crate::endpoint::{Facts, Filesystem};
use crate::path::flow::Flow;

/// Whether one end is the caller's pipe, and a call on the other may block.
pub(super) fn waits_with_pipe_locked(source: &Facts, sink: &Facts) -> bool {
    match (source.kind.is_pipe(), sink.kind.is_pipe()) {
        (true, false) => waits(sink),
        // A stream socket is polled first, and a call takes what is available.
        (false, true) => waits(source) && !source.kind.is_stream_socket(),
        _ => false,
    }
}

/// Whether the source is a channel of the library, and a write to the sink may wait for its
/// device, or for the lock of its inode (`generic_file_write_iter`, mm/filemap.c). The
/// thread at the other end of the channel also serves other sinks, or the source.
pub(super) fn waits_with_channel_locked(flow: &Flow<'_>) -> bool {
    let is_channel = flow.is_out_of_a_channel() && flow.source.kind().is_pipe();
    is_channel && flow.sink.kind().is_cached()
}

/// Whether a call on this end may block. `O_NONBLOCK` prevents it for a socket
/// or a device; nothing does for a file whose server does not answer. A local
/// file waits for its device at most.
fn waits(end: &Facts) -> bool {
    match end.kind.is_cached() {
        true => end.may_be_on(Filesystem::is_foreign),
        false => (end.can_block() || end.waits_for_entropy) && !end.nonblocking,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::endpoint::Kind;
    use crate::request::{DataPath, Request, Switches};
    use crate::sys;
    use crate::transfer::Transfer;

    #[test]
    fn what_may_wait_is_kept_apart_from_the_callers_pipe() {
        let on = |magic| Facts {
            filesystem: Some(Filesystem(magic)),
            ..Facts::plain(Kind::File)
        };
        let overlay = |may_be_served| Facts {
            may_be_served,
            ..on(0x794c_7630)
        };
        let device = Facts {
            memory: false,
            ..Facts::plain(Kind::CharDevice)
        };
        let random = Facts {
            waits_for_entropy: true,
            ..Facts::plain(Kind::CharDevice)
        };
        // With it as the sink, and as the source.
        let ends = [
            (Facts::plain(Kind::UnixStream), [true, false]),
            (Facts::plain(Kind::Tcp), [true, false]),
            (Facts::plain(Kind::StreamSocket), [true, false]),
            (device, [true, true]),
            (Facts::plain(Kind::CharDevice), [false, false]),
            (random, [true, true]),
            (Facts::plain(Kind::Memfd), [false, false]),
            (Facts::plain(Kind::BlockDevice), [false, false]),
            (on(0xEF53), [false, false]),
            (on(0x65735546), [true, true]),
            (on(0xdead_beef), [true, true]),
            (overlay(false), [false, false]),
            (overlay(true), [true, true]),
            // On an unknown file system.
            (Facts::plain(Kind::File), [true, true]),
        ];
        for pipe in [Kind::Pipe, Kind::Fifo].map(Facts::plain) {
            for (end, expected) in ends {
                let found = [
                    waits_with_pipe_locked(&pipe, &end),
                    waits_with_pipe_locked(&end, &pipe),
                ];
                assert_eq!(found, expected, "{end:?}");
                let nonblocking = Facts {
                    nonblocking: true,
                    ..end
                };
                let file = end.kind == Kind::File;
                assert_eq!(
                    waits_with_pipe_locked(&pipe, &nonblocking),
                    file && expected[0]
                );
                assert!(!waits_with_pipe_locked(&end, &end));
            }
            assert!(!waits_with_pipe_locked(&pipe, &pipe));
        }
    }

    /// The thread at the other end of a channel must not wait for a file.
    #[test]
    fn a_channel_is_empty_before_its_bytes_are_written_to_a_file() {
        const NAME: &str = "a_channel_is_empty_before_its_bytes_are_written_to_a_file";
        if testkit::needs::missing(NAME, &[testkit::needs::Need::Splice]) {
            return;
        }
        let data = [7; 40_000];
        for is_channel in [true, false] {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(&data).unwrap();
            drop(writer);
            let sink = testkit::file::file_with(b"");
            let request = Request {
                switches: Some(Switches::only(&[DataPath::Splice])),
                ..Request::default()
            };
            let transfer = Transfer::new(reader.as_fd(), sink.as_fd(), request).unwrap();
            let transfer = match is_channel {
                true => transfer.out_of_a_channel(),
                false => transfer,
            };
            let (mut outcome, mut apart) = (None, false);
            let calls = testkit::midst::at_each(
                &[libc::SYS_splice],
                || outcome = Some(transfer.run()),
                || {
                    let is_empty = sys::unsent(reader.as_fd()) == Ok(0);
                    apart |= is_empty && sink.metadata().unwrap().len() == 0;
                },
            );
            if calls.is_none() {
                return testkit::skip::report(NAME, "no seccomp_unotify(2) here");
            }
            assert_eq!(outcome.unwrap().report.written, data.len() as u64);
            assert_eq!(apart, is_channel);
        }
    }
}

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

/// Whether one end is the caller's pipe, and a call on the other may block.
pub(super) fn waits_with_pipe_locked(source: &Facts, sink: &Facts) -> bool {
    match (source.kind.is_pipe(), sink.kind.is_pipe()) {
        (true, false) => waits(sink),
        // A stream socket is polled first, and a call takes what is available.
        (false, true) => waits(source) && !source.kind.is_stream_socket(),
        _ => false,
    }
}

/// Whether a call on this end may block. `O_NONBLOCK` prevents it for a socket
/// or a device; nothing does for a file whose server does not answer. A local
/// file waits for its device at most.
fn waits(end: &Facts) -> bool {
    match end.kind.is_cached() {
        true => end.may_be_on(Filesystem::is_foreign),
        false => end.can_block() && !end.nonblocking,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Kind;

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
        // With it as the sink, and as the source.
        let ends = [
            (Facts::plain(Kind::UnixStream), [true, false]),
            (Facts::plain(Kind::Tcp), [true, false]),
            (Facts::plain(Kind::StreamSocket), [true, false]),
            (device, [true, true]),
            (Facts::plain(Kind::CharDevice), [false, false]),
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
}

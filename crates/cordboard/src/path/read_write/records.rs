//! How bytes that were read become messages.

use super::SinkWriter;
use super::numbers::NUMBER;
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::Joins;
use crate::path::datagram::UDP_PAYLOAD;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;

/// The longest line of a terminal (`N_TTY_BUF_SIZE`, drivers/tty/n_tty.c).
const LINE: usize = 4096;
/// The length of a `struct signalfd_siginfo`.
const SIGNAL: usize = 128;
/// The length of a `struct inotify_event` without its name, and the place of the name's length.
const EVENT: usize = 16;
const NAME_LENGTH: std::ops::Range<usize> = 12..16;

/// Returns how many of the bytes of one read become a message, if a stream is cut into messages
/// of `size` bytes. Unless the caller has chosen the size (`blocks`), a record and a line of a
/// terminal are not cut. For several sinks, records make messages no longer than a network
/// carries.
pub(super) fn first_message(flow: &Flow<'_>, bytes: &[u8], size: usize, blocks: bool) -> usize {
    let size = match flow.options.joins {
        Joins::Nothing => UDP_PAYLOAD,
        _ => size,
    };
    match flow.source.kind() {
        _ if blocks => size,
        kind if kind.is_record() => whole_records(kind, bytes, size),
        kind if kind.is_datagram() || flow.reads_stay() => usize::MAX,
        Kind::Tty if is_line(bytes) => size.max(LINE),
        _ => size,
    }
}

/// Whether this read of a terminal is one whole line. In non-canonical mode (`termios(3)`) a read
/// returns a part of a stream: several lines, or a part of one.
fn is_line(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.is_some_and(|end| end + 1 == bytes.len())
}

/// Sends a message. A line that is too long for the sink is cut like a stream, into messages of
/// `size` bytes.
pub(super) fn send(
    flow: &mut Flow<'_>,
    writer: &mut SinkWriter,
    bytes: &[u8],
    size: usize,
) -> Result<Option<usize>, Verdict> {
    let mut send = |flow: &mut Flow<'_>, bytes: &[u8]| {
        flow.send_or_drop(bytes.len(), |flow| writer.write(flow, bytes))
    };
    let is_long_line = flow.source.kind() == Kind::Tty && bytes.len() > size;
    match send(flow, bytes) {
        Err(Verdict::Failed(Side::Sink, Errno::EMSGSIZE)) if is_long_line => {
            send(flow, &bytes[..size])
        }
        sent => sent,
    }
}

/// Returns the length of the records at the start of `bytes` that `size` bytes have room for, and
/// at least that of the first one.
fn whole_records(kind: Kind, bytes: &[u8], size: usize) -> usize {
    let mut whole = 0;
    while whole < bytes.len() {
        let rest = &bytes[whole..];
        let next = length_of_first(kind, rest).min(rest.len());
        if whole > 0 && whole + next > size {
            break;
        }
        whole += next;
    }
    whole
}

/// Returns the length of the record at the start of `bytes`.
fn length_of_first(kind: Kind, bytes: &[u8]) -> usize {
    match kind {
        Kind::Signalfd => SIGNAL,
        Kind::Inotify => {
            let name = bytes.get(NAME_LENGTH).and_then(|name| name.try_into().ok());
            let name = name.map_or(0, |name| u32::from_ne_bytes(name) as usize);
            name.saturating_add(EVENT)
        }
        _ => NUMBER,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::num::NonZeroUsize;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixDatagram;

    use rustix::fs::inotify;
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    use testkit::{Source, SourceKind, Spec};

    use super::*;
    use crate::endpoint::Facts;
    use crate::report::Ended;
    use crate::{DataPath, Request, Switches, Transfer};

    #[test]
    fn no_record_is_cut() {
        let event = |name: u32| {
            let mut event = vec![7; EVENT + name as usize];
            event[NAME_LENGTH].copy_from_slice(&name.to_ne_bytes());
            event
        };
        let events = [event(0), event(32), event(16), event(256)].concat();
        let ends = |size| {
            let mut ends = vec![0];
            while let Some(end) = ends.last().filter(|end| **end < events.len()) {
                ends.push(end + whole_records(Kind::Inotify, &events[*end..], size));
            }
            ends
        };
        assert_eq!(ends(usize::MAX), [0, 368]);
        assert_eq!(ends(367), [0, 96, 368]);
        assert_eq!(ends(95), [0, 64, 96, 368]);
        // One that is longer than the size goes alone.
        assert_eq!(ends(1), [0, 16, 64, 96, 368]);
        for (kind, size, whole) in [
            (Kind::Signalfd, 1472, 1408),
            (Kind::Signalfd, 100, 128),
            (Kind::Timerfd, 20, 16),
        ] {
            assert_eq!(whole_records(kind, &[0; 12_800], size), whole);
        }
        // The sink has taken a part of the first event.
        assert_eq!(whole_records(Kind::Inotify, &[255; 40], 1472), 40);
        assert_eq!(whole_records(Kind::Inotify, &[255; 3], 1472), 3);
    }

    /// Moves `size` bytes to a socket whose datagrams have up to 1472 bytes. Returns their lengths.
    fn datagrams(source: &OwnedFd, size: u64, block: Option<NonZeroUsize>) -> Vec<usize> {
        datagrams_of(source, None, size, block)
    }

    /// As [`datagrams`], of a source that stands for one of another kind.
    fn datagrams_of(
        source: &OwnedFd,
        kind: Option<Kind>,
        size: u64,
        block: Option<NonZeroUsize>,
    ) -> Vec<usize> {
        let (sink, reader) = UnixDatagram::pair().unwrap();
        let request = Request {
            size: size.into(),
            block,
            switches: Some(Switches::only(&[DataPath::ReadWrite])),
            ..Request::default()
        };
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let source = &mut transfer.flow.source;
        source.set_endpoint(source.endpoint().with_facts(Facts {
            kind: kind.unwrap_or(source.kind()),
            ..*source.facts()
        }));
        let sink = &mut transfer.flow.sink;
        sink.set_endpoint(sink.endpoint().with_facts(Facts {
            kind: Kind::DatagramSocket,
            ..*sink.facts()
        }));
        let report = transfer.run().report;
        assert_eq!((report.ended, report.written), (Ended::Size, size));
        reader.set_nonblocking(true).unwrap();
        let mut into = vec![0; 1 << 16];
        std::iter::from_fn(|| reader.recv(&mut into).ok()).collect()
    }

    #[test]
    fn records_and_lines_are_datagrams() {
        let dir = tempfile::tempdir().unwrap();
        // Each event has 16 bytes and a name that is padded to 32.
        let events = |round: u8| {
            let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
            inotify::add_watch(&events, dir.path(), inotify::WatchFlags::CREATE).unwrap();
            for number in 10..50 {
                let name = format!("{round} name of 21 bytes {number}");
                File::create(dir.path().join(name)).unwrap();
            }
            events
        };
        assert_eq!(datagrams(&events(1), 40 * 48, None), [1440, 480]);
        let block = NonZeroUsize::new(1000);
        assert_eq!(datagrams(&events(2), 40 * 48, block), [1000, 920]);
        // A device, two reads of which are longer than the block.
        let device = Some(Kind::CharDevice);
        let joined = datagrams_of(&events(3), device, 40 * 48, block);
        assert_eq!(joined, [1000, 920]);
        assert_eq!(datagrams_of(&events(4), device, 40 * 48, None), [40 * 48]);

        let signals = Source::make(SourceKind::Signalfd, &Spec::verify(12 * 128)).unwrap();
        assert_eq!(datagrams(&signals.fd, 12 * 128, None), [11 * 128, 128]);

        let line = [&[b'x'; 1999][..], b"\n"].concat();
        let (master, terminal) = pty();
        assert_eq!(rustix::io::write(&master, &line), Ok(2000));
        assert_eq!(datagrams(&terminal, 2000, None), [2000]);
        assert_eq!(rustix::io::write(&master, &line), Ok(2000));
        assert_eq!(datagrams(&terminal, 2000, block), [1000, 1000]);
    }

    /// A read of several lines, or of a part of one.
    #[test]
    fn a_terminal_that_is_not_read_by_lines_is_a_stream() {
        let line = [&[b'x'; 499][..], b"\n"].concat();
        for bytes in [line.repeat(4), vec![b'x'; 2000]] {
            let (master, terminal) = pty();
            let mut modes = tcgetattr(&terminal).unwrap();
            modes.make_raw();
            tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
            assert_eq!(rustix::io::write(&master, &bytes), Ok(2000));
            // A thread of the kernel passes them on.
            while crate::sys::unsent(terminal.as_fd()) != Ok(2000) {
                std::thread::yield_now();
            }
            assert_eq!(datagrams(&terminal, 2000, None), [1472, 528]);
        }
    }

    #[test]
    fn a_line_that_is_too_long_for_the_sink_is_cut() {
        const NAME: &str = "a_line_that_is_too_long_for_the_sink_is_cut";
        if cfg!(target_arch = "x86") {
            return testkit::skip::report(NAME, "all calls on sockets are one here, socketcall(2)");
        }
        let line = [&[b'x'; 3999][..], b"\n"].concat();
        let (master, terminal) = pty();
        assert_eq!(rustix::io::write(&master, &line), Ok(4000));
        let datagrams = testkit::refuse::apart(|| {
            for length in [4000, 4000 - 1472] {
                testkit::refuse::refuse_where(libc::SYS_sendto, 2, length, libc::EMSGSIZE);
            }
            datagrams(&terminal, 4000, None)
        });
        assert_eq!(datagrams, [1472, 1472, 1056]);
    }

    /// Opens a pseudoterminal that is read by lines: (master, slave).
    fn pty() -> (OwnedFd, OwnedFd) {
        use rustix::fs::{Mode, OFlags};
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        (master, terminal)
    }
}

//! Reads into a buffer, as shared by all buffered paths.

use std::os::fd::BorrowedFd;

use rustix::io::ReadWriteFlags;
use rustix::net::RecvFlags;

use super::socket;
use crate::endpoint::{Kind, has_hung_up, is_pty_master};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::pipe::{PacketReader, ReadMode};
use crate::sys::{self, poll_now};

/// Bytes of a pseudo-file that are gathered for one write …
const GATHERED: usize = 64 << 10;
/// … and for a pipe, so that its reader works meanwhile: a quarter of the default
/// capacity.
const GATHERED_FOR_A_PIPE: usize = 16 << 10;

/// Reads more of a pseudo-file after a first read of `first` bytes. Returns how
/// many bytes, and whether the end was reached. Reads nothing from any other
/// source.
///
/// A pseudo-file returns at most a page per read (`kernfs_fop_read_iter`,
/// fs/kernfs/file.c), and a write of each page would cost as much again. A
/// pseudo-file that reports its size never blocks a reader, unlike /proc/kmsg or
/// trace_pipe. An error is left to the next read.
pub(in crate::path) fn pages(flow: &mut Flow<'_>, first: usize, into: &mut [u8]) -> (usize, bool) {
    if first == 0 || flow.source.kind() != Kind::Pseudo {
        return (0, first == 0);
    }
    let enough = if flow.sink.kind().is_pipe() {
        GATHERED_FOR_A_PIPE
    } else {
        GATHERED
    };
    let mut done = 0;
    while first + done < enough && flow.is_before_its_size() {
        let length = flow.want(into.len() - done);
        if length == 0 {
            break;
        }
        match read_at_cursor(flow, &mut into[done..][..length]) {
            Ok(0) => return (done, true),
            Ok(n) => {
                flow.took(n as u64);
                done += n;
            }
            Err(_) => break,
        }
    }
    (done, false)
}

/// One read at the source's cursor. `packet_reader`: for reading from a pipe.
pub(in crate::path) fn read(
    flow: &mut Flow<'_>,
    into: &mut [u8],
    packet_reader: &mut PacketReader,
) -> Result<usize, Errno> {
    let fd = flow.source.fd();
    if flow.source.kind().is_socket() {
        return socket::receive(flow, into, RecvFlags::empty(), flow.source.ready.may_sleep);
    }
    if flow.source.kind().is_pipe() {
        let (source, sink) = (flow.source.facts(), flow.sink.facts());
        let way = ReadMode {
            may_wait: flow.mode.may_sleep() || source.nonblocking,
            is_whole: sink.kind.is_datagram() || sink.is_packet_pipe() || sink.has_pieces(),
            is_unasked: flow.source.ready.is_unasked(),
            is_named: source.kind == Kind::Fifo,
        };
        if let Some(unreadable) = &flow.unreadable {
            return Err(unreadable.errno);
        }
        let done = packet_reader.read(fd, into, way);
        if let Some(unreadable) = packet_reader.unreadable() {
            flow.took_unreadable(unreadable);
        }
        return done;
    }
    match read_at_cursor(flow, into) {
        Err(Errno::EIO) => end_of_pty(flow),
        // A read that is blocked when its terminal hangs up gets EIO (`n_tty_read`,
        // drivers/tty/n_tty.c), and a later one 0 (`hung_up_tty_read`,
        // drivers/tty/tty_io.c). Typed input may be lost: that is not the end.
        Ok(0) if flow.source.kind() == Kind::Tty && has_hung_up(fd) => Err(Errno::EIO),
        done => {
            flow.eio_before = false;
            done
        }
    }
}

/// Interprets `EIO` of a source. The master of a pseudoterminal returns it once its
/// last slave is closed and all that was written there is read: that is the end, and
/// `poll(2)` reports a hang-up as well.
///
/// The first `EIO` is no evidence (`EINTR`: read again). `n_tty_read`
/// (drivers/tty/n_tty.c) looks for bytes first and for the closed slave after that, so
/// a slave that writes and closes in between is an `EIO` with bytes that are still to be
/// read. Without a hang-up, the slave has been opened again since; if the next read is
/// `EIO` too, it is an error. If `select(2)` reports a hang-up or bytes, without telling
/// which, a second `EIO` is the end.
pub(in crate::path) fn end_of_pty(flow: &mut Flow<'_>) -> Result<usize, Errno> {
    let fd = flow.source.fd();
    if !is_pty_master(fd) {
        return Err(Errno::EIO);
    }
    if !std::mem::replace(&mut flow.eio_before, true) {
        return Err(Errno::EINTR);
    }
    match is_hung_up(fd) {
        Some(false) => Err(Errno::EIO),
        Some(true) | None => Ok(0),
    }
}

/// `None`: it is hung up, or has bytes.
fn is_hung_up(fd: BorrowedFd<'_>) -> Option<bool> {
    use rustix::event::PollFlags;
    // If a seccomp filter refuses the query, EIO of a master is taken for a
    // hang-up.
    poll_now(fd, PollFlags::IN).map_or(Some(true), |shown| shown.shows(PollFlags::HUP))
}

/// Reads at the source's cursor and advances it. A source whose readiness `poll(2)` does not
/// report is read with `RWF_NOWAIT` if the thread must not sleep.
pub(in crate::path) fn read_at_cursor(
    flow: &mut Flow<'_>,
    into: &mut [u8],
) -> Result<usize, Errno> {
    let fd = flow.source.fd();
    let n = match flow.source.cursor.place() {
        Some(offset) => sys::pread(fd, into, offset)?,
        None if flow.source.facts().polls_error && !flow.mode.may_sleep() => {
            let mut parts = [std::io::IoSliceMut::new(into)];
            // Offset -1: at the current position.
            rustix::io::preadv2(fd, &mut parts, u64::MAX, ReadWriteFlags::NOWAIT)?
        }
        None => rustix::io::read(fd, into)?,
    };
    flow.source.cursor.advance(n as u64);
    Ok(n)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::{Request, Transfer};

    fn first_and_more(name: &str) -> Option<(usize, (usize, bool))> {
        let source = std::fs::File::open(name).ok()?;
        let (_reader, sink) = std::io::pipe().unwrap();
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
        let mut into = vec![0; 2 * GATHERED];
        let first = read_at_cursor(&mut transfer.flow, &mut into).unwrap();
        transfer.flow.took(first as u64);
        Some((first, pages(&mut transfer.flow, first, &mut into[first..])))
    }

    #[test]
    fn pages_are_gathered_where_the_file_says_how_long_it_is() {
        if let Some((first, more)) = first_and_more("/sys/kernel/btf/vmlinux") {
            assert_eq!((first + more.0, more.1), (GATHERED_FOR_A_PIPE, false));
        }
        // Reports 4096, and has less.
        let (first, more) = first_and_more("/sys/kernel/profiling")
            .or_else(|| first_and_more("/sys/class/net/lo/uevent"))
            .unwrap_or((1, (0, true)));
        assert!(first > 0);
        assert_eq!(more, (0, true));
    }

    /// `EIO` of a master that shows no hang-up.
    #[test]
    fn a_pseudoterminal_that_was_opened_again_is_read_once_more() {
        use rustix::pty::{OpenptFlags, openpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let sink = tempfile::tempfile().unwrap();
        let request = Request::default;
        let mut transfer = Transfer::new(master.as_fd(), sink.as_fd(), request()).unwrap();
        assert_eq!(end_of_pty(&mut transfer.flow), Err(Errno::EINTR));
        assert_eq!(end_of_pty(&mut transfer.flow), Err(Errno::EIO));
        let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), request()).unwrap();
        assert_eq!(end_of_pty(&mut transfer.flow), Err(Errno::EIO));
    }

    #[test]
    fn a_file_that_does_not_say_is_not_read_again() {
        let (first, more) = first_and_more("/proc/self/status").unwrap();
        assert!(first > 0);
        assert_eq!(more, (0, false));
    }

    /// A signal that is pending during the query means nothing.
    #[test]
    fn a_signal_is_no_hang_up() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).and_then(|()| unlockpt(&master)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = std::fs::File::open(name.to_str().unwrap()).unwrap();
        let mut slave = Some(slave);
        for expected in [false, true] {
            let mut hung_up = None;
            let body = || hung_up = Some(is_hung_up(master.as_fd()));
            let signal = |count| (count == 0).then_some(libc::EINTR);
            if testkit::midst::refusing(testkit::refuse::PPOLL, body, signal).is_none() {
                return testkit::skip::report("stream", "calls of another thread cannot be held");
            }
            assert_eq!(hung_up, Some(Some(expected)));
            drop(slave.take());
        }
    }
}

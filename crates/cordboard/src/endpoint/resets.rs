//! Errors of connections, each of which the kernel reports only once.
//!
//! The first call on a dead connection, in either direction, returns its error
//! (`sock_error`, include/net/sock.h). The next read returns 0, as after a regular end.
//! If one transfer writes to a socket and another reads from it, the writer may get the
//! error, and the reader would take the reset for a clean end. So the writer records
//! the error, and a reader whose read returns 0 looks the error up.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, Weak};

use rustix::event::PollFlags;
use rustix::net::sockopt;

use super::borrowed::Endpoint;
use super::file_id::FileId;
use super::kind::Kind;
use crate::errno::Errno;
use crate::map::Map;
use crate::sys::{Lock, PerProcess, shows_now, tcp_is_closed};

/// The maximum number of recorded errors.
const REMEMBERED: usize = 1024;

/// The records of one process; a child of `fork(2)` starts with none.
#[derive(Default)]
struct Table {
    /// Sockets that transfers write to.
    writers: Lock<Map<FileId, Weak<Writer>>>,
    /// Errors reported to a call other than the reader's, the oldest first.
    noted: Lock<VecDeque<(Name, Errno)>>,
}

/// A socket's identity and its cookie, which no later socket has (`SO_COOKIE`, since
/// Linux 4.12; 0 without it).
type Name = (FileId, u64);

fn table() -> &'static Table {
    static TABLE: PerProcess<Table> = PerProcess::new();
    let Ok(table) = TABLE.get(|_| Ok::<_, Infallible>(Table::default()));
    table
}

/// Locks a part of this process's table. A signal handler may have forked since the
/// table was found; the child has another.
fn lock<T>(part: impl Fn(&'static Table) -> &'static Lock<T>) -> MutexGuard<'static, T> {
    loop {
        if let Some(held) = part(table()).lock() {
            return held;
        }
    }
}

fn name(fd: BorrowedFd<'_>, id: FileId) -> Name {
    (id, sockopt::socket_cookie(fd).unwrap_or(0))
}

/// A socket with a connection that transfers of this process write to.
#[derive(Debug)]
pub(crate) struct Writer {
    id: FileId,
    /// Calls in progress.
    calls: AtomicU32,
    /// The last call may have written less than requested; another call follows at
    /// once.
    less: AtomicBool,
}

impl Writer {
    /// Returns the one writer for all transfers that write to this socket. `None` for
    /// anything but a socket with a connection.
    pub(crate) fn of(sink: &Endpoint<'_>) -> Option<Arc<Writer>> {
        let id = connection(sink)?;
        let mut writers = lock(|table| &table.writers);
        if let Some(writer) = writers.get(&id).and_then(Weak::upgrade) {
            return Some(writer);
        }
        let writer = Arc::new(Writer {
            id,
            calls: AtomicU32::new(0),
            less: AtomicBool::new(false),
        });
        writers.insert(id, Arc::downgrade(&writer));
        Some(writer)
    }

    /// Makes a call that writes `bytes` bytes, or as many messages, and returns how many were
    /// written; `None`: an unknown number. Records the error of the call before a reader can
    /// see that no call is in progress.
    ///
    /// `splice(2)`, `sendfile(2)` and `sendmmsg(2)` send several times. If one of these sends
    /// fails after another has succeeded, they drop the error (`splice_to_socket`,
    /// fs/splice.c; `__sys_sendmmsg`, net/socket.c), and the next call returns `EPIPE`.
    pub(crate) fn call<E: Copy + Into<Errno>>(
        &self,
        sink: &Endpoint<'_>,
        bytes: Option<usize>,
        call: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let done = call();
        let tcp = sink.kind() == Kind::Tcp;
        match done {
            Ok(n) => {
                let less = bytes.is_none_or(|bytes| n < bytes);
                self.less.store(tcp && less, Ordering::SeqCst);
                // The call may have received the error and dropped it for a count:
                // `sock_alloc_send_pskb` (net/core/sock.c) clears it, and
                // `unix_stream_sendmsg` (net/unix/af_unix.c) then returns the bytes
                // sent before. A peer that reads all bytes and closes between the
                // call and this check is taken for a reset, too: the next write fails
                // with EPIPE in any case.
                if less && bytes.is_some() && !tcp && hung_up(sink.fd()) {
                    note(sink, Errno::ECONNRESET);
                }
            }
            Err(error) => {
                let errno = error.into();
                // This process has not shut down the connection, so it had an error.
                let kept = errno == Errno::EPIPE && self.less.load(Ordering::SeqCst);
                if kept && tcp_is_closed(sink.fd()) == Some(true) {
                    note(sink, Errno::ECONNRESET);
                } else {
                    note(sink, errno);
                }
                self.less.store(false, Ordering::SeqCst);
            }
        }
        self.calls.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// Whether a call may be receiving an error at this moment, or be followed by one
    /// that will.
    fn is_busy(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0 || self.less.load(Ordering::SeqCst)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut writers = lock(|table| &table.writers);
        if (writers.get(&self.id)).is_some_and(|writer| writer.strong_count() == 0) {
            writers.remove(&self.id);
        }
    }
}

/// Whether both directions are shut down, so that no call blocks any more. `false` also
/// if a filter refuses the query: a false error is worse than a missed one.
fn hung_up(fd: BorrowedFd<'_>) -> bool {
    shows_now(fd, PollFlags::HUP)
}

/// Returns the identity of a socket that has a connection: a stream, or sequenced packets.
fn connection(end: &Endpoint<'_>) -> Option<FileId> {
    let facts = end.facts();
    let connected =
        facts.kind.is_stream_socket() || facts.kind == Kind::UnixSeqpacket || facts.zero_ends;
    facts.id.filter(|_| connected)
}

/// Returns whether a call has failed with an error of the connection itself, which the kernel
/// clears once reported. Other errors, such as `ENOMEM`, are those of the call.
///
/// | errno | counts | evidence |
/// |---|---|---|
/// | `ECONNRESET`, `ECONNABORTED`, `ETIMEDOUT`, `ENETDOWN` | yes | `tcp_reset`, net/ipv4/tcp_input.c; `tcp_abort`, net/ipv4/tcp.c; `tcp_write_err`, net/ipv4/tcp_timer.c |
/// | `EHOSTUNREACH`, `ENETUNREACH`, `EHOSTDOWN` | yes | `icmp_err_convert`, net/ipv4/icmp.c; `icmpv6_err_convert`, net/ipv6/icmp.c |
/// | `ECONNREFUSED`, `EPROTO`, `ENOPROTOOPT`, `ENONET` | yes, except of a UNIX socket: `ECONNREFUSED` of a peer that closes regularly, before Linux 6.2 | the same; `unix_dgram_sendmsg`, net/unix/af_unix.c |
/// | `EACCES`, `EOPNOTSUPP`, `EINVAL` | if TCP is closed: otherwise a filter may refuse the call, or a path may not fit | the ICMP tables; `inet_sk_rebuild_header`, net/ipv4/af_inet.c |
/// | any, if TCP is not closed | no: with `IP_RECVERR` the kernel reports errors that the connection survives | `tcp_v4_err`, net/ipv4/tcp_ipv4.c |
fn is_of_the_connection(end: &Endpoint<'_>, errno: Errno) -> bool {
    let is_unix = matches!(end.kind(), Kind::UnixStream | Kind::UnixSeqpacket);
    // Assumed if the state of the connection is unknown.
    let assumed = match errno {
        Errno::ECONNRESET
        | Errno::ECONNABORTED
        | Errno::ETIMEDOUT
        | Errno::EHOSTUNREACH
        | Errno::ENETUNREACH
        | Errno::ENETDOWN
        | Errno::EHOSTDOWN => true,
        Errno::ECONNREFUSED | Errno::EPROTO | Errno::ENOPROTOOPT | Errno::ENONET => !is_unix,
        Errno::EACCES | Errno::EOPNOTSUPP | Errno::EINVAL => false,
        _ => return false,
    };
    match end.kind() {
        Kind::Tcp => tcp_is_closed(end.fd()).unwrap_or(assumed),
        _ => assumed,
    }
}

/// Records the error of a call on a socket.
pub(crate) fn note(end: &Endpoint<'_>, errno: Errno) {
    let Some(id) = connection(end) else {
        return;
    };
    if !is_of_the_connection(end, errno) {
        return;
    }
    let name = name(end.fd(), id);
    let mut noted = lock(|table| &table.noted);
    noted.retain(|(other, _)| *other != name);
    if noted.len() == REMEMBERED {
        noted.pop_front();
    }
    noted.push_back((name, errno));
}

/// Why a read from a socket returned 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer has ended the stream.
    Clean,
    /// The connection failed with this error.
    Died(Errno),
    /// The connection has failed, and a call of this process may be receiving the error
    /// at this moment: the caller looks it up again.
    Unknown,
}

/// Returns why a read from this source returned 0.
pub(crate) fn end_of(source: &Endpoint<'_>) -> End {
    let Some(id) = connection(source) else {
        return End::Clean;
    };
    // `is_busy` first, then the lookup: a call that has returned has recorded its
    // error.
    let writer = lock(|table| &table.writers)
        .get(&id)
        .and_then(Weak::upgrade);
    let busy = writer.is_some_and(|writer| writer.is_busy());
    match noted(source.fd(), id) {
        Some(errno) => End::Died(errno),
        None if busy && hung_up(source.fd()) => End::Unknown,
        None => End::Clean,
    }
}

fn noted(fd: BorrowedFd<'_>, id: FileId) -> Option<Errno> {
    let noted = lock(|table| &table.noted);
    if noted.iter().all(|((other, _), _)| *other != id) {
        return None;
    }
    let name = name(fd, id);
    let found = noted.iter().find(|(other, _)| *other == name);
    found.map(|(_, errno)| *errno)
}

/// Prepares for a new transfer: removes records of an earlier connection of a socket
/// that was connected again.
pub(crate) fn begin(end: &Endpoint<'_>) {
    let Some(id) = end.facts().id.filter(|_| end.kind() == Kind::Tcp) else {
        return;
    };
    let mut noted = lock(|table| &table.noted);
    if noted.iter().any(|((other, _), _)| *other == id)
        && rustix::net::getpeername(end.fd()).is_ok()
    {
        noted.retain(|((other, _), _)| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// With `IP_RECVERR` a call reports that a host is unreachable, while the
    /// connection continues.
    #[test]
    fn what_a_connection_survives_is_not_its_end() {
        let (near, far) = pair();
        let end = Endpoint::probe(near.as_fd()).unwrap();
        note(&end, Errno::EHOSTUNREACH);
        drop(far);
        assert_eq!(end_of(&end), End::Clean);
    }

    #[test]
    fn what_a_connection_dies_of_is_its_end() {
        let (near, far) = pair();
        let end = Endpoint::probe(near.as_fd()).unwrap();
        sockopt::set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
        drop(far);
        let told = rustix::io::read(&near, &mut [0; 1]).unwrap_err();
        note(&end, told.into());
        assert_eq!(end_of(&end), End::Died(Errno::ECONNRESET));
    }

    /// A dead connection reports any errno of the tables of ICMP.
    #[test]
    fn errors_of_icmp_are_the_end_of_a_closed_connection_only() {
        let (near, far) = pair();
        let end = Endpoint::probe(near.as_fd()).unwrap();
        let errnos = [
            Errno::ECONNREFUSED,
            Errno::EACCES,
            Errno::EPROTO,
            Errno::ENOPROTOOPT,
            Errno::ENONET,
            Errno::EOPNOTSUPP,
        ];
        for errno in errnos {
            note(&end, errno);
            assert_eq!(end_of(&end), End::Clean, "{errno}");
        }
        sockopt::set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
        drop(far);
        rustix::io::read(&near, &mut [0; 1]).unwrap_err();
        for errno in [Errno::EAGAIN, Errno::EPIPE, Errno::ENOMEM] {
            note(&end, errno);
            assert_eq!(end_of(&end), End::Clean, "{errno}");
        }
        for errno in errnos {
            note(&end, errno);
            assert_eq!(end_of(&end), End::Died(errno));
        }
    }
}

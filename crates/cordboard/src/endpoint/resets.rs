//! Errors of connections, which the kernel tells once.
//!
//! Whoever calls first is told what a connection has died of (`sock_error`,
//! include/net/sock.h), in whichever direction; the next read gives 0, as if
//! the peer had ended. Where one transfer writes to a socket and another reads
//! it, the writer may be told, and the reader would take a reset for a clean
//! end. So whoever is told notes it, and whoever reads 0 asks what was noted.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::{Endpoint, FileId, Kind};
use crate::errno::Errno;
use crate::sys::{PerProcess, tcp_is_closed};

/// Connections that are remembered after they have died.
const REMEMBERED: usize = 1024;

/// What is known to one process; a child after `fork(2)` begins anew.
#[derive(Default)]
struct Table {
    /// Sockets that transfers write to.
    writers: Mutex<HashMap<FileId, Weak<Writer>>>,
    /// What others than the reader were told, the oldest first.
    noted: Mutex<VecDeque<(Name, Errno)>>,
}

/// A socket's identity and its cookie, which no later socket has (`SO_COOKIE`,
/// since Linux 4.12; 0 where there is none).
type Name = (FileId, u64);

fn table() -> &'static Table {
    static TABLE: PerProcess<Table> = PerProcess::new();
    let Ok(table) = TABLE.get(|_| Ok::<_, Infallible>(Table::default()));
    table
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(fd: BorrowedFd<'_>, id: FileId) -> Name {
    (id, sockopt::socket_cookie(fd).unwrap_or(0))
}

/// A stream socket that transfers of this process write to.
#[derive(Debug)]
pub(crate) struct Writer {
    id: FileId,
    /// Calls under way.
    calls: AtomicU32,
    /// The last one has written less than there was to write, perhaps; another
    /// follows at once.
    less: AtomicBool,
}

impl Writer {
    /// The same for all transfers that write to one socket. `None` of anything
    /// that is no stream socket.
    pub(crate) fn of(sink: &Endpoint<'_>) -> Option<Arc<Writer>> {
        let id = sink.facts().id.filter(|_| sink.kind().is_stream_socket())?;
        let mut writers = lock(&table().writers);
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

    /// A call that writes so many bytes, or `None`: as many as there are. What
    /// it is told is noted before anybody finds that no call is under way.
    ///
    /// `splice(2)` and `sendfile(2)` send several times, and where they have sent
    /// something they keep the error to themselves (`splice_to_socket`,
    /// fs/splice.c), so that the next call is told of the end alone.
    pub(crate) fn call(
        &self,
        sink: &Endpoint<'_>,
        bytes: Option<usize>,
        waits: bool,
        call: impl FnOnce() -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let done = call();
        let tcp = sink.kind() == Kind::Tcp;
        match done {
            Ok(n) => {
                let less = bytes.is_none_or(|bytes| n < bytes);
                self.less.store(tcp && less, Ordering::SeqCst);
                // One that waits stops early for nothing else but a signal. What
                // a UNIX socket's peer did not read of what kept us waiting makes
                // its end a reset.
                if waits && less && bytes.is_some() && !tcp && hung_up(sink.fd()) {
                    note(sink, Errno::ECONNRESET);
                }
            }
            Err(errno) => {
                // Nobody of ours has ended it: there was an error.
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

    /// A call may be told of an error at this moment, or be followed by one.
    fn is_busy(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0 || self.less.load(Ordering::SeqCst)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut writers = lock(&table().writers);
        if (writers.get(&self.id)).is_some_and(|writer| writer.strong_count() == 0) {
            writers.remove(&self.id);
        }
    }
}

/// Both directions are shut down: no call on it waits any more.
fn hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::empty())];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
        && fds[0].revents().contains(PollFlags::HUP)
}

/// Whether it is what a connection dies of, and was taken off it by being told.
fn is_of_the_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ECONNRESET
            | Errno::ECONNABORTED
            | Errno::ETIMEDOUT
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::ENETDOWN
            | Errno::EHOSTDOWN
    )
}

/// Notes what a call on a socket was told.
pub(crate) fn note(end: &Endpoint<'_>, errno: Errno) {
    let Some(id) = end.facts().id.filter(|_| end.kind().is_stream_socket()) else {
        return;
    };
    if !is_of_the_connection(errno) {
        return;
    }
    // Whoever asked for it (`IP_RECVERR`) hears of what a connection gets over
    // (`tcp_v4_err`, net/ipv4/tcp_ipv4.c).
    if end.kind() == Kind::Tcp && tcp_is_closed(end.fd()) == Some(false) {
        return;
    }
    let name = name(end.fd(), id);
    let mut noted = lock(&table().noted);
    noted.retain(|(other, _)| *other != name);
    if noted.len() == REMEMBERED {
        noted.pop_front();
    }
    noted.push_back((name, errno));
}

/// What a socket that gives 0 stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer's end.
    Clean,
    /// The connection died of this.
    Died(Errno),
    /// It has died, and a call of this process may be told of what at this
    /// moment: to be asked again.
    Unknown,
}

/// What a source that gives 0 stands at.
pub(crate) fn end_of(source: &Endpoint<'_>) -> End {
    let Some(id) = source
        .facts()
        .id
        .filter(|_| source.kind().is_stream_socket())
    else {
        return End::Clean;
    };
    // In this order: what a call that has ended was told is noted.
    let writer = lock(&table().writers).get(&id).and_then(Weak::upgrade);
    let busy = writer.is_some_and(|writer| writer.is_busy());
    match noted(source.fd(), id) {
        Some(errno) => End::Died(errno),
        None if busy && hung_up(source.fd()) => End::Unknown,
        None => End::Clean,
    }
}

fn noted(fd: BorrowedFd<'_>, id: FileId) -> Option<Errno> {
    let noted = lock(&table().noted);
    if noted.iter().all(|((other, _), _)| *other != id) {
        return None;
    }
    let name = name(fd, id);
    let found = noted.iter().find(|(other, _)| *other == name);
    found.map(|(_, errno)| *errno)
}

/// A transfer begins: what was noted of a socket that is connected again is not
/// of this connection.
pub(crate) fn begin(end: &Endpoint<'_>) {
    let Some(id) = end.facts().id.filter(|_| end.kind() == Kind::Tcp) else {
        return;
    };
    let mut noted = lock(&table().noted);
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

    /// Who asked for it (`IP_RECVERR`) is told that a host cannot be reached,
    /// and the connection goes on, to an end of its own.
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
}

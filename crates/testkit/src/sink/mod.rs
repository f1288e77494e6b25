//! Sinks of every kind.

mod collect;
mod collected;
mod files;
mod kind;

use crate::spec::Spec;
use crate::wire;
use collect::Collector;
pub use collected::Collected;
pub use kind::SinkKind;
use rustix::fs::{Mode, OFlags};
use rustix::net::SocketType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A sink, with what reads or keeps the bytes written to it.
#[derive(Debug)]
pub struct Sink {
    /// The descriptor to write to.
    pub fd: OwnedFd,
    /// Its kind.
    pub kind: SinkKind,
    /// The position before the first write, if it has one.
    pub start: Option<u64>,
    collector: Collector,
}

impl Sink {
    /// Makes a sink of this kind.
    ///
    /// # Errors
    ///
    /// Those of the system calls.
    pub fn make(kind: SinkKind, spec: &Spec) -> io::Result<Sink> {
        use SinkKind as K;
        let (fd, start, collector) = match kind {
            K::File | K::Tmpfs | K::Memfd | K::Append | K::Direct | K::Block => {
                files::make(kind, spec)?
            }
            K::Null => (open("/dev/null")?, None, Collector::Nothing),
            K::Zero => (open("/dev/zero")?, None, Collector::Nothing),
            K::Full => (open("/dev/full")?, None, Collector::Nothing),
            K::Eventfd => {
                use rustix::event::{EventfdFlags, eventfd};
                let fd = eventfd(0, EventfdFlags::CLOEXEC)?;
                let counter = fd.try_clone()?;
                (fd, None, Collector::count(counter)?)
            }
            _ => {
                let (fd, far) = stream(kind)?;
                (fd, None, Collector::spawn(far, kind, spec)?)
            }
        };
        wire::set_nonblocking(&fd, spec.nonblocking)?;
        Ok(Sink {
            fd,
            kind,
            start,
            collector,
        })
    }

    /// Closes the descriptor and returns what arrived. `written` is the number of
    /// bytes accepted, for sinks without an end of their own.
    ///
    /// # Errors
    ///
    /// Those of the system calls that read it back.
    pub fn finish(self, written: u64) -> io::Result<Collected> {
        // A terminal whose slave is closed discards what its master has not
        // read yet (`n_tty_read`, drivers/tty/n_tty.c, gives EIO with a byte
        // still in the flip buffer).
        let open = (self.kind == SinkKind::Tty).then_some(self.fd);
        let collected = self.collector.finish(written);
        drop(open);
        collected
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// (the end to write to, the end to read from).
fn stream(kind: SinkKind) -> io::Result<(OwnedFd, OwnedFd)> {
    use SinkKind as K;
    let swap = |(read, write)| (write, read);
    Ok(match kind {
        K::Tty => wire::pty()?,
        K::Pipe | K::PacketPipe => swap(wire::pipe(kind == K::PacketPipe)?),
        K::Fifo => swap(wire::fifo()?),
        K::Tcp => wire::tcp()?,
        K::Udp => wire::udp()?,
        K::UnixStream => wire::unix(SocketType::STREAM)?,
        K::UnixDatagram => wire::unix(SocketType::DGRAM)?,
        _ => wire::unix(SocketType::SEQPACKET)?,
    })
}

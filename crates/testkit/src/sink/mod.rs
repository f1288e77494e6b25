//! Sinks of every kind.

mod collect;
mod files;
mod kind;

use crate::expect::Expect;
use crate::spec::Spec;
use crate::wire;
use collect::Collector;
pub use kind::SinkKind;
use rustix::fs::{Mode, OFlags};
use rustix::net::SocketType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What arrived at a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collected {
    /// These bytes; with the sizes of the messages they came in, for kinds
    /// that keep boundaries.
    Bytes(Vec<u8>, Option<Vec<usize>>),
    /// This many bytes, which were not kept.
    Count(u64),
    /// Numbers with this sum.
    Sum(u128),
    /// Nobody can know.
    Unknown,
}

/// A sink, with somebody taking away what is written to it.
#[derive(Debug)]
pub struct Sink {
    /// What to write to.
    pub fd: OwnedFd,
    /// Which kind.
    pub kind: SinkKind,
    /// The position before anything is written, where there is one.
    pub start: Option<u64>,
    collector: Collector,
}

impl Sink {
    /// A sink of this kind.
    ///
    /// # Errors
    ///
    /// Those of the calls that make it.
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

    /// Closes the descriptor and tells what arrived. `written`: what was
    /// accepted, where the sink itself cannot tell the end.
    ///
    /// # Errors
    ///
    /// Those of the calls that read it back.
    pub fn finish(self, written: u64) -> io::Result<Collected> {
        // A terminal whose slave is closed throws away what its master has not
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

impl Collected {
    /// Whether the first `length` bytes of what was expected have arrived,
    /// and nothing else.
    ///
    /// # Errors
    ///
    /// In words, what is wrong.
    pub fn check(&self, expect: &Expect, length: u64) -> Result<(), String> {
        match self {
            Collected::Unknown => Ok(()),
            Collected::Count(n) if *n == length => Ok(()),
            Collected::Count(n) => Err(format!("{n} bytes arrived, {length} were written")),
            Collected::Sum(sum) => match expect.sum(length) {
                Some(wanted) if wanted != *sum => {
                    Err(format!("numbers add up to {sum}, not {wanted}"))
                }
                _ => Ok(()),
            },
            Collected::Bytes(bytes, _) if bytes.len() as u64 != length => {
                let found = bytes.len();
                Err(format!("{found} bytes arrived, {length} were written"))
            }
            Collected::Bytes(bytes, _) => expect.check(bytes),
        }
    }

    /// The sizes of the messages that arrived, for kinds that keep boundaries.
    pub fn messages(&self) -> Option<&[usize]> {
        match self {
            Collected::Bytes(_, messages) => messages.as_deref(),
            _ => None,
        }
    }
}

fn open(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// (the end to write to, the end it comes out of).
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

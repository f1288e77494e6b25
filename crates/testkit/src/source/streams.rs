//! Sources that a thread feeds at the other end.

use super::fed::{Ask, Rest, Source};
use super::kind::SourceKind;
use crate::expect::Expect;
use crate::model;
use crate::spec::{Pace, Spec};
use crate::{pattern, wire};
use rustix::io::Errno;
use rustix::net::SocketType;
use std::io;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

pub(super) fn make(kind: SourceKind, spec: &Spec) -> io::Result<Source> {
    use SourceKind as K;
    let (fd, far) = match kind {
        K::Tty => wire::pty()?,
        K::Pipe | K::PacketPipe => wire::pipe(kind == K::PacketPipe)?,
        K::Fifo => wire::fifo()?,
        K::Tcp => wire::tcp()?,
        K::Udp => wire::udp()?,
        K::UnixStream => wire::unix(SocketType::STREAM)?,
        K::UnixDatagram => wire::unix(SocketType::DGRAM)?,
        _ => wire::unix(SocketType::SEQPACKET)?,
    };
    let most = match kind {
        // PIPE_BUF: a longer write would make several packets.
        K::PacketPipe => Some(4096),
        K::Udp | K::UnixDatagram | K::UnixSeqpacket => Some(8000),
        _ => None,
    };
    let messages = most.map(|most| messages(spec.size, most));
    // A terminal could be hung up, but that drops what is not read yet.
    let endless = matches!(kind, K::Tty | K::Udp | K::UnixDatagram);
    let ask = if endless {
        Ask::Bytes(spec.size)
    } else {
        Ask::Eof
    };
    let expect = match spec.pace {
        Pace::Verify => Expect::Pattern(spec.size),
        Pace::Throughput => Expect::Any(spec.size),
    };
    let mut rest = Rest::default();
    let spec = *spec;
    let sizes = messages.clone();
    if kind == K::Udp {
        // The receive buffer holds all of it: nothing is lost on the way, and no
        // thread competes for the processor.
        feed(&far, kind, &spec, sizes.as_deref());
        rest.keep = Some(Box::new(far));
    } else if spec.size == 0 {
        rest.keep = endless.then(|| Box::new(far) as _);
    } else {
        if kind == K::Tty {
            // A write to a master does not fail after the slave is closed; it never
            // returns.
            wire::set_nonblocking(&far, true)?;
        }
        if endless {
            rest.keep = Some(Box::new(far.try_clone()?));
        }
        rest.feeder = Some(std::thread::spawn(move || {
            feed(&far, kind, &spec, sizes.as_deref());
        }));
    }
    Ok(Source {
        fd,
        kind,
        ask,
        expect,
        messages,
        _rest: rest,
    })
}

/// Writes all of it. Ends early, without an error, once the reader is gone.
fn feed(far: &OwnedFd, kind: SourceKind, spec: &Spec, messages: Option<&[usize]>) {
    let mut done = 0;
    if let Some(messages) = messages {
        for length in messages {
            let message = pattern::bytes(done, *length);
            if model::write(far.as_fd(), &message).is_err() {
                return;
            }
            done += *length as u64;
        }
        return;
    }
    let mut step = 0u64;
    while done < spec.size {
        let left = usize::try_from(spec.size - done).unwrap_or(usize::MAX);
        let wrote = match spec.pace {
            Pace::Verify => {
                step += 1;
                // Uneven, and now and then a single byte.
                let length = 1 + usize::try_from(step * 7919 % 30_011).unwrap_or(0);
                let piece = pattern::piece(done);
                let length = length.min(left).min(piece.len());
                rustix::io::write(far, &piece[..length])
            }
            Pace::Throughput => cheap(far, kind, left),
        };
        let wrote = match wrote {
            Err(Errno::AGAIN) if wire::is_hung_up_once_ready(far) => return,
            Err(Errno::AGAIN) => continue,
            other => other,
        };
        match wrote {
            Ok(n) => done += n as u64,
            Err(_) => return,
        }
    }
}

/// Sends up to `left` bytes at the lowest cost.
fn cheap(far: &OwnedFd, kind: SourceKind, left: usize) -> rustix::io::Result<usize> {
    static PAGES: OnceLock<Vec<u8>> = OnceLock::new();
    let pages = PAGES.get_or_init(|| vec![0x5a; 1 << 20]);
    let pages = &pages[..left.min(pages.len())];
    match kind {
        SourceKind::Pipe | SourceKind::Fifo => {
            // SAFETY: the pages are static and never written again, so the pipe may
            // refer to them without a limit in time.
            unsafe {
                rustix::pipe::vmsplice(
                    far,
                    &[rustix::pipe::IoSliceRaw::from_slice(pages)],
                    rustix::pipe::SpliceFlags::empty(),
                )
            }
        }
        _ => rustix::io::writev(far, &[IoSlice::new(pages)]),
    }
}

/// Uneven sizes up to `most` that add up to `total`.
fn messages(total: u64, most: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut left = usize::try_from(total).unwrap_or(usize::MAX);
    while left > 0 {
        let size = most / 8 + sizes.len() * 2503 % (most - most / 8);
        let size = size.clamp(1, left);
        sizes.push(size);
        left -= size;
    }
    sizes
}

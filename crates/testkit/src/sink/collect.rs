//! Reading what was written, at the other end or back from the file.

use super::collected::Collected;
use super::kind::SinkKind;
use crate::expect::u64_at;
use crate::loopdev::LoopDevice;
use crate::spec::Spec;
use crate::wire;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Each byte of a device before the first write, up to a limit that tests stay
/// below.
pub(super) const WIPED: u8 = 0xee;

/// The place where the bytes that arrived can be read.
#[derive(Debug)]
pub(super) enum Collector {
    /// Nowhere.
    Nothing,
    /// In the file, after its former content.
    File(OwnedFd, &'static [u8]),
    /// On the device.
    Device(Option<OwnedFd>, LoopDevice),
    /// In a thread that reads the other end.
    Thread(Threaded),
}

/// A thread that reads the other end. Dropping this joins it.
#[derive(Debug)]
pub(super) struct Threaded {
    handle: Option<JoinHandle<io::Result<Collected>>>,
    total: Total,
}

impl Threaded {
    fn spawn(
        work: impl FnOnce(Total) -> io::Result<Collected> + Send + 'static,
    ) -> io::Result<Collector> {
        let total = Total::new()?;
        let theirs = total.clone();
        let handle = Some(std::thread::spawn(move || work(theirs)));
        Ok(Collector::Thread(Threaded { handle, total }))
    }

    fn finish(&mut self, written: u64) -> io::Result<Collected> {
        self.total.set(written);
        match self.handle.take().map(JoinHandle::join) {
            Some(Ok(collected)) => collected,
            Some(Err(_)) => Err(io::Error::other("the collector panicked")),
            None => Ok(Collected::Unknown),
        }
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        let _ = self.finish(0);
    }
}

/// The number of bytes that a collector waits for if its descriptor has no end. It is
/// set once it is known.
#[derive(Debug, Clone)]
pub(super) struct Total {
    bytes: Arc<AtomicU64>,
    /// A pipe, because tests run with `eventfd2(2)` refused, but not `pipe2(2)`.
    wake: Arc<(OwnedFd, OwnedFd)>,
}

impl Total {
    fn new() -> io::Result<Total> {
        use rustix::pipe::{PipeFlags, pipe_with};
        Ok(Total {
            bytes: Arc::new(AtomicU64::new(u64::MAX)),
            wake: Arc::new(pipe_with(PipeFlags::CLOEXEC)?),
        })
    }

    fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
        let _ = rustix::io::write(&self.wake.1, &[0]);
    }

    fn get(&self) -> Option<u64> {
        match self.bytes.load(Ordering::Acquire) {
            u64::MAX => None,
            bytes => Some(bytes),
        }
    }

    /// Waits until there are bytes to read or the total becomes known. Returns
    /// `false` if the total is known and no bytes come for a while.
    fn wait(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        // Longer than a datagram takes through the loopback interface. Only the
        // loss of one makes the test wait as long.
        let lost = Timespec {
            tv_sec: 2,
            tv_nsec: 0,
        };
        let known = self.get().is_some();
        let mut fds = [
            PollFd::from_borrowed_fd(fd, PollFlags::IN),
            PollFd::new(&self.wake.0, PollFlags::IN),
        ];
        let fds = if known { &mut fds[..1] } else { &mut fds[..] };
        match poll(fds, known.then_some(&lost)) {
            Ok(0) => Ok(false),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Collector {
    pub(super) fn file(back: OwnedFd, before: &'static [u8]) -> Collector {
        Collector::File(back, before)
    }

    pub(super) fn device(back: Option<OwnedFd>, device: LoopDevice) -> Collector {
        Collector::Device(back, device)
    }

    /// Reads a stream to its end, or messages until all have arrived.
    pub(super) fn spawn(far: OwnedFd, kind: SinkKind, spec: &Spec) -> io::Result<Collector> {
        let keep = spec.keeps();
        Threaded::spawn(move |total| match kind {
            SinkKind::Udp | SinkKind::UnixDatagram | SinkKind::Tty => {
                endless(&far, kind, keep, &total)
            }
            _ if keep => to_the_end(&far, kind),
            _ => discard(&far, kind),
        })
    }

    /// Adds up an event counter.
    pub(super) fn count(counter: OwnedFd) -> io::Result<Collector> {
        Threaded::spawn(move |total| sum(&counter, &total))
    }

    pub(super) fn finish(self, written: u64) -> io::Result<Collected> {
        match self {
            Collector::Nothing => Ok(Collected::Unknown),
            Collector::File(back, before) => {
                let all = read_back(&back, u64::MAX)?;
                match all.strip_prefix(before) {
                    Some(added) => Ok(Collected::Bytes(added.to_vec(), None)),
                    None => Err(io::Error::other("the former content is gone")),
                }
            }
            Collector::Device(None, _) => Ok(Collected::Unknown),
            Collector::Device(Some(back), _device) => {
                // One byte more, which must be unchanged.
                let mut bytes = read_back(&back, written + 1)?;
                match bytes.pop() {
                    Some(WIPED) => Ok(Collected::Bytes(bytes, None)),
                    _ => Err(io::Error::other("bytes past the end were overwritten")),
                }
            }
            Collector::Thread(mut thread) => thread.finish(written),
        }
    }
}

fn read_back(fd: &OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut block = vec![0; 1 << 20];
    while (bytes.len() as u64) < most {
        let left = usize::try_from(most - bytes.len() as u64).unwrap_or(usize::MAX);
        let want = left.min(block.len());
        let got = rustix::io::pread(fd, &mut block[..want], bytes.len() as u64)?;
        if got == 0 {
            break;
        }
        bytes.extend_from_slice(&block[..got]);
    }
    Ok(bytes)
}

/// `read(2)`, with 0 for every form of the end of a stream.
fn read(fd: &OwnedFd, block: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(fd, &mut *block) {
            Err(Errno::INTR) => {}
            // The slave of a pseudo-terminal is closed.
            Err(Errno::IO) => return Ok(0),
            other => return Ok(other?),
        }
    }
}

fn to_the_end(fd: &OwnedFd, kind: SinkKind) -> io::Result<Collected> {
    let mut block = vec![0; 256 << 10];
    let mut bytes = Vec::new();
    let mut messages = kind.keeps_messages().then(Vec::new);
    loop {
        let got = read(fd, &mut block)?;
        if got == 0 {
            return Ok(Collected::Bytes(bytes, messages));
        }
        bytes.extend_from_slice(&block[..got]);
        if let Some(messages) = &mut messages {
            messages.push(got);
        }
    }
}

/// Counts bytes, without copying them if the kernel supports that.
fn discard(fd: &OwnedFd, kind: SinkKind) -> io::Result<Collected> {
    use rustix::net::RecvFlags;
    let mut block = vec![0; 1 << 20];
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    let splices = crate::needs::Need::Splice.is_met();
    let mut count = 0;
    loop {
        let got = match kind {
            // The kernel drops them in the socket.
            SinkKind::Tcp => rustix::net::recv(fd, &mut block[..], RecvFlags::TRUNC)?.1,
            SinkKind::Pipe | SinkKind::Fifo if splices => {
                let flags = rustix::pipe::SpliceFlags::empty();
                rustix::pipe::splice(fd, None, &null, None, 1 << 20, flags)?
            }
            _ => read(fd, &mut block)?,
        };
        if got == 0 {
            return Ok(Collected::Count(count));
        }
        count += got as u64;
    }
}

/// Reads until all that was written has arrived.
fn endless(fd: &OwnedFd, kind: SinkKind, keep: bool, total: &Total) -> io::Result<Collected> {
    wire::set_nonblocking(fd, true)?;
    let mut block = vec![0; 256 << 10];
    let (mut bytes, mut messages, mut count) = (Vec::new(), Vec::new(), 0);
    loop {
        match rustix::io::read(fd, &mut block) {
            Ok(got) => {
                count += got as u64;
                if keep {
                    bytes.extend_from_slice(&block[..got]);
                    messages.push(got);
                }
            }
            Err(Errno::AGAIN) => {
                if total.get().is_some_and(|total| count >= total) || !total.wait(fd.as_fd())? {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            // The slave is closed.
            Err(Errno::IO) => break,
            // The other end is closed. What it sent is still queued.
            Err(Errno::CONNREFUSED | Errno::CONNRESET) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(if keep {
        Collected::Bytes(bytes, kind.keeps_messages().then_some(messages))
    } else {
        Collected::Count(count)
    })
}

fn sum(counter: &OwnedFd, total: &Total) -> io::Result<Collected> {
    let mut sum = 0;
    loop {
        // Read before the poll: poll(2) inspects the counter first, and what is added
        // between its two inspections is left in the counter.
        let is_all = total.get().is_some();
        let mut fds = [
            PollFd::new(counter, PollFlags::IN),
            PollFd::new(&total.wake.0, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !fds[0].revents().is_empty() {
            let mut number = [0; 8];
            // The only reader, so this does not block.
            rustix::io::read(counter, &mut number)?;
            sum += u128::from(u64_at(&number, 0));
        } else if is_all {
            return Ok(Collected::Sum(sum));
        }
    }
}

//! Connected pairs: (the end that is tested, the end that serves it).

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Room for everything that a test sends before anything is received.
const UDP_BUFFER: usize = 512 << 20;

/// Sets or clears `O_NONBLOCK`.
pub(crate) fn set_nonblocking(fd: impl AsFd, nonblocking: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(&fd)?;
    flags.set(OFlags::NONBLOCK, nonblocking);
    Ok(rustix::fs::fcntl_setfl(&fd, flags)?)
}

pub(crate) fn unix(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

pub(crate) fn tcp() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = crate::tcp::loopback()?;
    Ok((near.into(), far.into()))
}

/// Two UDP sockets connected to each other, with receive buffers that hold all
/// that a test sends, so that the loopback interface drops nothing.
pub(crate) fn udp() -> io::Result<(OwnedFd, OwnedFd)> {
    let near = UdpSocket::bind("127.0.0.1:0")?;
    let far = UdpSocket::bind("127.0.0.1:0")?;
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    for socket in [&near, &far] {
        if sockopt::set_socket_recv_buffer_size_force(socket, UDP_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(socket, UDP_BUFFER)?;
        }
    }
    Ok((near.into(), far.into()))
}

/// (read end, write end).
pub(crate) fn pipe(packets: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let mode = if packets {
        PipeFlags::DIRECT
    } else {
        PipeFlags::empty()
    };
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC | mode)?)
}

/// A named pipe whose name is already removed: (read end, write end).
pub(crate) fn fifo() -> io::Result<(OwnedFd, OwnedFd)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR)?;
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    let read = rustix::fs::open(&path, flags | OFlags::RDONLY, Mode::empty())?;
    let write = rustix::fs::open(&path, flags | OFlags::WRONLY, Mode::empty())?;
    set_nonblocking(&read, false)?;
    set_nonblocking(&write, false)?;
    Ok((read, write))
}

/// A pseudo-terminal without line discipline: (slave, master).
pub(crate) fn pty() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
    let mut modes = tcgetattr(&slave)?;
    modes.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &modes)?;
    Ok((slave, master))
}

/// The tmpfs of every Linux system.
pub(crate) const TMPFS: &str = "/dev/shm";

/// Returns why there is no tmpfs, if so.
pub(crate) fn no_tmpfs() -> Option<String> {
    let there = rustix::fs::statfs(TMPFS).is_ok_and(|fs| fs.f_type as u64 == 0x0102_1994);
    (!there).then(|| format!("no tmpfs on {TMPFS}"))
}

/// Returns why no file in the temporary directory can be opened with `O_DIRECT`, if so:
/// tmpfs refuses it before Linux 6.6.
pub(crate) fn no_direct() -> Option<String> {
    let open = || {
        let (_, path) = named_file(&temp_dir())?;
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        io::Result::Ok(rustix::fs::open(&*path, flags, Mode::empty())?)
    };
    let error = open().err()?;
    Some(format!("no O_DIRECT in the temporary directory: {error}"))
}

/// The directory of files on a real file system.
pub(crate) fn temp_dir() -> PathBuf {
    std::env::temp_dir()
}

/// An empty file: its descriptor, and its name, which is removed on drop.
pub(crate) fn named_file(dir: &Path) -> io::Result<(OwnedFd, tempfile::TempPath)> {
    let (file, path) = tempfile::NamedTempFile::new_in(dir)?.into_parts();
    Ok((file.into(), path))
}

/// Waits until the descriptor can be written to or has no reader. Returns true for the
/// second.
pub(crate) fn is_hung_up_once_ready(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
    while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
    fds[0].revents().contains(PollFlags::HUP)
}

//! What a test requires of the kernel. It is tried, so that a filter that refuses a
//! call counts like a kernel that lacks it.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// A requirement that some kernels lack or a container's filter refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `splice(2)`, since Linux 2.6.17.
    Splice,
    /// `vmsplice(2)` out of a pipe, since Linux 2.6.23.
    Vmsplice,
    /// `sendfile(2)`, to any descriptor since Linux 2.6.33.
    Sendfile,
    /// `copy_file_range(2)`, since Linux 4.5; used since 5.3.
    CopyFileRange,
    /// `io_uring_setup(2)` with the features that direct I/O needs, since Linux 5.13.
    IoUring,
    /// `RWF_NOWAIT` on pipes, since Linux 6.4.
    NowaitPipes,
    /// `RWF_NOAPPEND`, since Linux 6.9, in the temporary directory.
    NoAppend,
    /// `cachestat(2)`, since Linux 6.5.
    Cachestat,
    /// `eventfd2(2)`, since Linux 2.6.27.
    Eventfd,
    /// Landlock with moves between directories, since Linux 5.19.
    Landlock,
    /// `statx(2)`, since Linux 4.11.
    Statx,
    /// `close_range(2)`, since Linux 5.9.
    CloseRange,
    /// `splice(2)` from and to `/dev/zero`, which Linux 5.10 to 6.6 do not have.
    ZeroPages,
    /// Datagrams that stay joined on the loopback device (`UDP_GRO`), since Linux
    /// 5.11.
    JoinedDatagrams,
    /// Sockets that return a digest (`AF_ALG`), since Linux 2.6.38.
    HashSockets,
    /// UNIX sockets that accept no descriptors (`SO_PASSRIGHTS`), since Linux 6.16.
    PassRights,
    /// SCTP over the loopback device.
    Sctp,
    /// Sequenced packets of VSOCK over its loopback transport, since Linux 5.14.
    Vsock,
    /// ICMP sockets, and a network namespace for them.
    Ping,
    /// A mount namespace, and mounts in it: `CAP_SYS_ADMIN`, which root lacks in most
    /// containers.
    Mounts,
}

impl Need {
    /// The reason of a skip.
    pub const fn words(self) -> &'static str {
        match self {
            Need::Splice => "no splice(2) here",
            Need::Vmsplice => "no vmsplice(2) here",
            Need::Sendfile => "no sendfile(2) here",
            Need::CopyFileRange => "no copy_file_range(2) here (since Linux 5.3)",
            Need::IoUring => "no io_uring here (since Linux 5.13)",
            Need::NowaitPipes => "no RWF_NOWAIT on pipes here (since Linux 6.4)",
            Need::NoAppend => "no RWF_NOAPPEND here (since Linux 6.9; not overlayfs)",
            Need::Cachestat => "no cachestat(2) here (since Linux 6.5)",
            Need::Eventfd => "no eventfd2(2) here",
            Need::Landlock => "no Landlock with moves between directories here (since Linux 5.19)",
            Need::Statx => "no statx(2) here",
            Need::CloseRange => "no close_range(2) here (since Linux 5.9)",
            Need::ZeroPages => "no splice(2) from and to /dev/zero here (since Linux 6.7)",
            Need::JoinedDatagrams => {
                "the loopback device joins no datagrams here (since Linux 5.11)"
            }
            Need::HashSockets => "no AF_ALG with SHA-256 here",
            Need::PassRights => "no SO_PASSRIGHTS here (since Linux 6.16)",
            Need::Sctp => "no SCTP here",
            Need::Vsock => "no VSOCK loopback with sequenced packets here (since Linux 5.14)",
            Need::Ping => "ICMP sockets in a network namespace need root",
            Need::Mounts => "mounting needs root and CAP_SYS_ADMIN",
        }
    }

    /// Tries the feature on the calling thread, or on one that it starts.
    pub fn is_met(self) -> bool {
        let tried = match self {
            Need::Splice => splice(),
            Need::Vmsplice => vmsplice(),
            Need::Sendfile => sendfile(),
            Need::CopyFileRange => copy_file_range(),
            Need::IoUring => io_uring(),
            Need::NowaitPipes => nowait_pipes(),
            Need::NoAppend => no_append(),
            Need::Cachestat => cachestat(),
            Need::Landlock => landlock(),
            Need::Statx => statx(),
            Need::CloseRange => close_range(),
            Need::ZeroPages => zero_pages(),
            Need::JoinedDatagrams => joined_datagrams(),
            Need::HashSockets => made(crate::sockets::sha256()),
            Need::PassRights => pass_rights(),
            Need::Sctp => made(crate::sockets::sctp()),
            Need::Vsock => made(crate::sockets::vsock()),
            Need::Ping => made(crate::sockets::ping()),
            Need::Mounts => mounts(),
            Need::Eventfd => {
                rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map(drop)
            }
        };
        tried.is_ok()
    }

    /// Returns the reason of a skip if the feature is missing.
    pub fn unmet(self) -> Option<String> {
        (!self.is_met()).then(|| self.words().to_owned())
    }
}

/// Returns true if one of these is missing, and reports the test as skipped.
pub fn missing(test: &str, needs: &[Need]) -> bool {
    let missing = needs.iter().find(|need| !need.is_met());
    if let Some(need) = missing {
        crate::skip::report(test, need.words());
    }
    missing.is_some()
}

fn file() -> Result<std::fs::File, Errno> {
    use std::io::Write;
    let mut file = tempfile::tempfile().map_err(|error| {
        error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)
    })?;
    file.write_all(b"x").map_err(|_| Errno::IO)?;
    Ok(file)
}

fn splice() -> Result<(), Errno> {
    let (file, (_reader, writer)) = (file()?, rustix::pipe::pipe()?);
    let flags = rustix::pipe::SpliceFlags::empty();
    rustix::pipe::splice(&file, Some(&mut 0), &writer, None, 1, flags).map(drop)
}

fn statx() -> Result<(), Errno> {
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    rustix::fs::statx(file()?, c"", flags, rustix::fs::StatxFlags::BASIC_STATS).map(drop)
}

fn made<T>(done: std::io::Result<T>) -> Result<(), Errno> {
    made_of(done).map(drop)
}

fn made_of<T>(done: std::io::Result<T>) -> Result<T, Errno> {
    done.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Mounts a file system in memory, in a namespace that ends with its thread.
fn mounts() -> Result<(), Errno> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    crate::refuse::apart(|| {
        if !crate::child::own_mounts() {
            return Err(Errno::PERM);
        }
        // Otherwise the mount could appear in the namespace of the other threads.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)?;
        let at = std::env::temp_dir();
        mount("none", &at, "tmpfs", MountFlags::empty(), None)
    })
}

/// Asks for the version of Landlock, which has moves between directories since the second one.
fn landlock() -> Result<(), Errno> {
    const LANDLOCK_CREATE_RULESET_VERSION: usize = 1;
    let arguments = [0, 0, LANDLOCK_CREATE_RULESET_VERSION, 0, 0];
    match call(crate::refuse::LANDLOCK_CREATE_RULESET, arguments)? {
        ..2 => Err(Errno::OPNOTSUPP),
        _ => Ok(()),
    }
}

/// Closes the range of the highest number only, which no process can have.
fn close_range() -> Result<(), Errno> {
    let highest = u32::MAX as usize;
    call(libc::SYS_close_range, [highest, highest, 0, 0, 0]).map(drop)
}

fn vmsplice() -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let (reader, writer) = rustix::pipe::pipe()?;
    rustix::io::write(&writer, b"x")?;
    let mut byte = [0u8];
    let room = [byte.as_mut_ptr() as usize, 1];
    let fd = reader.as_raw_fd() as usize;
    let flags = libc::SPLICE_F_NONBLOCK as usize;
    let vector = room.as_ptr() as usize;
    call(libc::SYS_vmsplice, [fd, vector, 1, flags, 0]).map(drop)
}

fn zero_pages() -> Result<(), Errno> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let zero = rustix::fs::open("/dev/zero", flags, rustix::fs::Mode::empty())?;
    let (reader, writer) = rustix::pipe::pipe()?;
    let flags = rustix::pipe::SpliceFlags::NONBLOCK;
    rustix::pipe::splice(&zero, None, &writer, None, 1, flags)?;
    rustix::pipe::splice(&reader, None, &zero, None, 1, flags).map(drop)
}

/// Sends three bytes in datagrams of two.
fn joined_datagrams() -> Result<(), Errno> {
    let socket = || std::net::UdpSocket::bind("127.0.0.1:0").map_err(|_| Errno::ADDRNOTAVAIL);
    let (near, far) = (socket()?, socket()?);
    let there = far.local_addr().map_err(|_| Errno::ADDRNOTAVAIL)?;
    near.connect(there).map_err(|_| Errno::CONNREFUSED)?;
    let set = |socket: &std::net::UdpSocket, name, value: i32| {
        use std::os::fd::AsRawFd;
        let fd = socket.as_raw_fd() as usize;
        let (level, value) = (libc::SOL_UDP as usize, &raw const value as usize);
        let arguments = [fd, level, name as usize, value, size_of::<i32>()];
        call(libc::SYS_setsockopt, arguments).map(drop)
    };
    set(&far, libc::UDP_GRO, 1)?;
    set(&near, libc::UDP_SEGMENT, 2)?;
    near.send(b"abc").map_err(|_| Errno::IO)?;
    match far.recv(&mut [0; 8]) {
        Ok(3) => Ok(()),
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn pass_rights() -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    const SO_PASSRIGHTS: usize = 83;
    let (socket, _other) = made_of(std::os::unix::net::UnixStream::pair())?;
    let (fd, value) = (socket.as_raw_fd() as usize, 0i32);
    let (level, at) = (libc::SOL_SOCKET as usize, &raw const value as usize);
    let arguments = [fd, level, SO_PASSRIGHTS, at, size_of::<i32>()];
    call(libc::SYS_setsockopt, arguments).map(drop)
}

fn sendfile() -> Result<(), Errno> {
    let (file, (_reader, writer)) = (file()?, rustix::pipe::pipe()?);
    rustix::fs::sendfile(&writer, &file, Some(&mut 0), 1).map(drop)
}

fn copy_file_range() -> Result<(), Errno> {
    let (from, to) = (file()?, file()?);
    rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 1).map(drop)
}

/// Requires resource tags (`IORING_FEAT_RSRC_TAGS`).
fn io_uring() -> Result<(), Errno> {
    const FEATURES: usize = 5;
    const RSRC_TAGS: u32 = 1 << 10;
    // struct io_uring_params.
    let mut parameters = [0u32; 30];
    let ring = call(
        libc::SYS_io_uring_setup,
        [1, parameters.as_mut_ptr() as usize, 0, 0, 0],
    )?;
    close(ring);
    match parameters[FEATURES] & RSRC_TAGS {
        0 => Err(Errno::NOSYS),
        _ => Ok(()),
    }
}

fn nowait_pipes() -> Result<(), Errno> {
    let (reader, _writer) = rustix::pipe::pipe()?;
    let mut byte = [0];
    let mut into = [std::io::IoSliceMut::new(&mut byte)];
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    match rustix::io::preadv2(&reader, &mut into, u64::MAX, flags) {
        Err(Errno::AGAIN) => Ok(()),
        other => other.map(drop),
    }
}

/// Writes over the only byte of a file: overlayfs takes the flag and appends.
fn no_append() -> Result<(), Errno> {
    let file = file()?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
    let flags = rustix::io::ReadWriteFlags::from_bits_retain(0x20);
    let byte = [std::io::IoSlice::new(b"x")];
    rustix::io::pwritev2(&file, &byte, 0, flags)?;
    match rustix::fs::fstat(&file)?.st_size {
        1 => Ok(()),
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn cachestat() -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let file = file()?;
    let (range, mut found) = ([0u64, 0], [0u64; 5]);
    let pointers = [range.as_ptr() as usize, found.as_mut_ptr() as usize];
    let fd = file.as_fd().as_raw_fd() as usize;
    call(
        crate::refuse::CACHESTAT,
        [fd, pointers[0], pointers[1], 0, 0],
    )
    .map(drop)
}

/// Makes a call that has no safe wrapper. The caller owns the memory of its arguments.
fn call(number: libc::c_long, arguments: [usize; 5]) -> Result<usize, Errno> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: each caller passes valid arguments, in memory that outlives the
    // call.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e) };
    match returned {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        value => Ok(value as usize),
    }
}

fn close(fd: usize) {
    use std::os::fd::FromRawFd;
    // SAFETY: the kernel has just made it, and nothing else owns it.
    drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd as i32) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_filter_refuses_is_missing() {
        for (need, call) in [
            (Need::Splice, libc::SYS_splice),
            (Need::Vmsplice, libc::SYS_vmsplice),
            (Need::Sendfile, libc::SYS_sendfile),
            (Need::CopyFileRange, libc::SYS_copy_file_range),
            (Need::IoUring, libc::SYS_io_uring_setup),
            (Need::NowaitPipes, libc::SYS_preadv2),
            (Need::NoAppend, libc::SYS_pwritev2),
            (Need::Cachestat, crate::refuse::CACHESTAT),
            (Need::Eventfd, libc::SYS_eventfd2),
            (Need::Landlock, crate::refuse::LANDLOCK_CREATE_RULESET),
            (Need::Statx, libc::SYS_statx),
            (Need::CloseRange, libc::SYS_close_range),
            (Need::ZeroPages, libc::SYS_splice),
            (Need::JoinedDatagrams, libc::SYS_setsockopt),
            (Need::HashSockets, libc::SYS_socket),
            (Need::PassRights, libc::SYS_setsockopt),
            (Need::Sctp, libc::SYS_socket),
            (Need::Vsock, libc::SYS_socket),
            (Need::Ping, libc::SYS_socket),
            (Need::Mounts, libc::SYS_unshare),
            (Need::Mounts, libc::SYS_mount),
        ] {
            for errno in [libc::EPERM, libc::ENOSYS] {
                crate::refuse::apart(|| {
                    crate::refuse::refuse(&[call], errno);
                    assert!(!need.is_met(), "{need:?}");
                });
            }
        }
    }

    /// Every kernel on which this is built has these calls.
    #[test]
    fn what_nothing_refuses_is_there() {
        for need in [Need::Splice, Need::Vmsplice, Need::Sendfile, Need::Eventfd] {
            assert!(need.is_met() || missing("what_nothing_refuses_is_there", &[need]));
        }
    }
}

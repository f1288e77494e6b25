//! Opening an endpoint.

use std::os::fd::OwnedFd;
use std::path::Path;

use cordboard::{Errno, Side};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::net::SocketType;

use super::listening::{Listening, Shared};
use super::name::Name;
use super::opened::{Existing, Opened, StreamKind};
use super::sockets::{Operand, net, unix};
use super::standard;
use crate::inherited::{inherited, was_closed};
use crate::interruptible::interruptible;
use crate::problem::{Action, Problem};
use crate::signals::retry;

/// Opens a path of any type. A signal to stop ends the wait for a FIFO.
pub fn open_path(path: &Path, flags: OFlags, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    interruptible(|| rustix::fs::open(path, flags, Mode::empty()))?
        .map_err(|errno| standard::open_problem(path, operand.shown, operand.side, errno))
}

/// Looks up the host of an endpoint, so that opening it does not.
pub fn look_up(name: &Name, operand: Operand<'_>) -> Result<(), Problem> {
    match name {
        Name::Tcp(host) | Name::TcpListen(host) | Name::Udp(host) | Name::UdpListen(host) => {
            net::resolve(host, operand).map(drop)
        }
        _ => Ok(()),
    }
}

/// Opens the source.
pub fn source(name: &Name, shown: &str) -> Result<Opened, Problem> {
    source_sharing(name, shown, &mut Shared::default())
}

/// As [`source`]. Other endpoints may use its listener.
pub fn source_sharing(name: &Name, shown: &str, shared: &mut Shared) -> Result<Opened, Problem> {
    let operand = Operand {
        shown,
        side: Side::Source,
    };
    match name {
        Name::Path(path) => {
            let fd = open_path(path, OFlags::RDONLY, operand)?;
            Ok(Opened::owned(fd, shown))
        }
        Name::UnixDgram(path) => {
            let (fd, file) = unix::bind(path, SocketType::DGRAM, operand)?;
            let mut opened = Opened::owned(fd, shown);
            opened.socket_file = file;
            Ok(opened)
        }
        other => open_either(other, operand, shared),
    }
}

/// Returns the operand of a sink. Refuses one that is known to have no offsets, if existing bytes
/// are to be kept.
pub fn sink_operand<'a>(
    name: &Name,
    shown: &'a str,
    existing: Existing,
) -> Result<Operand<'a>, Problem> {
    let side = Side::Sink;
    let operand = Operand { shown, side };
    if existing == Existing::Keep {
        check_has_offsets(name, operand)?;
    }
    Ok(operand)
}

/// Opens the sink. An existing file keeps its contents for now.
pub fn sink(name: &Name, shown: &str, existing: Existing) -> Result<Opened, Problem> {
    sink_sharing(name, shown, existing, &mut Shared::default())
}

/// As [`sink`]. Other endpoints may use its listener.
pub fn sink_sharing(
    name: &Name,
    shown: &str,
    existing: Existing,
    shared: &mut Shared,
) -> Result<Opened, Problem> {
    let operand = sink_operand(name, shown, existing)?;
    match name {
        Name::Path(path) => sink_path(path, operand, existing),
        Name::UnixDgram(path) => {
            let fd = unix::connect(path, SocketType::DGRAM, operand)?;
            Ok(Opened::owned(fd, shown))
        }
        other => {
            let opened = open_either(other, operand, shared)?;
            if existing == Existing::Append {
                check_open_for_append(&opened, other, operand)?;
            }
            Ok(opened)
        }
    }
}

/// Refuses an endpoint that is known to have no offsets before it is connected to, or
/// waited for. The library refuses the others.
pub fn check_has_offsets(name: &Name, operand: Operand<'_>) -> Result<(), Problem> {
    let what = match name {
        Name::Path(_) if fifo_path(name).is_some() => "a FIFO",
        Name::Path(_) | Name::Standard | Name::Fd(_) => return Ok(()),
        _ => "a socket",
    };
    Err(cannot_seek(operand, what))
}

/// Refuses a sink of a kind that has no offsets.
pub fn without_offsets(shown: &str, what: &str) -> Problem {
    let side = Side::Sink;
    cannot_seek(Operand { shown, side }, what)
}

fn cannot_seek(operand: Operand<'_>, what: &str) -> Problem {
    Problem {
        text: format!("is {what}, which cannot seek (ESPIPE)"),
        ..operand.problem(rustix::io::Errno::SPIPE, Action::Open)
    }
}

/// Opens one of several sources. A FIFO is opened without waiting for its writer: it is a
/// source without bytes until it has one.
pub fn source_of_several(name: &Name, shown: &str) -> Result<Opened, Problem> {
    let operand = Operand {
        shown,
        side: Side::Source,
    };
    let Some(path) = fifo_path(name) else {
        return source(name, shown);
    };
    let fd = open_path(path, OFlags::RDONLY | OFlags::NONBLOCK, operand)?;
    wait_in_calls(&fd, operand)?;
    Ok(Opened::owned(fd, shown))
}

/// Opens one of several sinks, as [`sink`]. `None`: it is a FIFO, and has no reader yet.
pub fn sink_of_several(
    name: &Name,
    shown: &str,
    existing: Existing,
) -> Result<Option<Opened>, Problem> {
    let operand = Operand {
        shown,
        side: Side::Sink,
    };
    let Some(path) = fifo_path(name) else {
        return sink(name, shown, existing).map(Some);
    };
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = match interruptible(|| rustix::fs::open(path, flags | PROTECTED, NEW_FILE))? {
        Ok(fd) => fd,
        // There is no reader (fifo(7)).
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(standard::open_problem(path, shown, Side::Sink, errno)),
    };
    let stat = cordboard::fstat(&fd).map_err(|errno| operand.problem(errno, Action::Open))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        // It was replaced meanwhile.
        return sink(name, shown, existing).map(Some);
    }
    wait_in_calls(&fd, operand)?;
    Ok(Some(Opened::owned(fd, shown)))
}

/// Returns the path of a FIFO.
fn fifo_path(name: &Name) -> Option<&Path> {
    let Name::Path(path) = name else {
        return None;
    };
    let stat = retry(|| rustix::fs::stat(path)).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Fifo).then_some(path)
}

/// Removes `O_NONBLOCK`, which was needed for opening only.
fn wait_in_calls(fd: &OwnedFd, operand: Operand<'_>) -> Result<(), Problem> {
    let done = rustix::io::ioctl_fionbio(fd, false);
    done.map_err(|errno| operand.problem(errno, Action::Open))
}

/// Refuses a block device to append to: Linux would write from the position,
/// which is the first byte, and not behind what the device holds.
pub fn check_appendable(stat: &Stat, shown: &str) -> Result<(), Problem> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(());
    }
    let text = "is a block device, which cannot be appended to";
    let problem = Problem::refused(shown, Side::Sink, Errno::EINVAL, text);
    Err(problem.help("nothing was written: without --append, it is written from its first byte"))
}

/// Refuses an inherited file that is not open for appending: it would be
/// overwritten from its position, despite `--append`.
fn check_open_for_append(
    opened: &Opened,
    name: &Name,
    operand: Operand<'_>,
) -> Result<(), Problem> {
    let look = |errno| operand.problem(errno, Action::Open);
    let stat = cordboard::fstat(opened).map_err(look)?;
    let flags = rustix::fs::fcntl_getfl(opened).map_err(look)?;
    check_appendable(&stat, &opened.shown)?;
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !file || flags.contains(OFlags::APPEND) {
        return Ok(());
    }
    let number = match name {
        Name::Fd(number) => number.to_string(),
        _ => String::new(),
    };
    let text = "is not open for appending (EINVAL)";
    let problem = Problem::refused(&opened.shown, Side::Sink, Errno::EINVAL, text);
    Err(problem.help(format!("use {number}>>FILE in the shell")))
}

/// Has the kernel refuse a file or a FIFO of another user in a directory with the sticky bit
/// (`fs.protected_regular` and `fs.protected_fifos`, sysctl/fs.rst;
/// `may_create_in_sticky`, fs/namei.c). It checks only opens that may create a file.
const PROTECTED: OFlags = OFlags::CREATE;

/// The mode of a new file.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);

fn sink_path(path: &Path, operand: Operand<'_>, existing: Existing) -> Result<Opened, Problem> {
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    if existing == Existing::Append {
        flags |= OFlags::APPEND;
    }
    let exclusive = flags | OFlags::CREATE | OFlags::EXCL;
    match interruptible(|| rustix::fs::open(path, exclusive, NEW_FILE))? {
        Ok(fd) => {
            let mut opened = Opened::owned(fd, operand.shown);
            opened.created = Some(path.to_owned());
            return Ok(opened);
        }
        Err(rustix::io::Errno::EXIST) => {}
        // open(2) with O_CREAT fails so for any name that ends in a slash.
        Err(errno @ rustix::io::Errno::ISDIR) => {
            return Err(match retry(|| rustix::fs::stat(path)) {
                Ok(_) => operand.problem(errno, Action::Open),
                Err(found) => Problem::no_directory(operand.shown, found)
                    .unwrap_or_else(|| operand.problem(found, Action::Open)),
            });
        }
        Err(errno) => return Err(operand.problem(errno, Action::Open)),
    }
    // The target of a dangling symlink is created.
    let fd = interruptible(|| rustix::fs::open(path, flags | PROTECTED, NEW_FILE))?;
    let fd =
        fd.map_err(|errno| standard::open_problem(path, operand.shown, operand.side, errno))?;
    let stat = cordboard::fstat(&fd).map_err(|errno| operand.problem(errno, Action::Open))?;
    if existing == Existing::Append {
        check_appendable(&stat, operand.shown)?;
    }
    let mut opened = Opened::owned(fd, operand.shown);
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    opened.replace = existing == Existing::Replace && file;
    opened.seems_empty = stat.st_size == 0;
    // Another process may have created it: it is not removed.
    opened.may_be_new = (file && opened.seems_empty).then(|| path.to_owned());
    Ok(opened)
}

/// Opens endpoints that are the same for a source and a sink.
fn open_either(name: &Name, operand: Operand<'_>, shared: &mut Shared) -> Result<Opened, Problem> {
    if let Some(listening) = Listening::begin(name, operand, shared)? {
        return listening.accept(name, operand, shared);
    }
    let (fd, stream) = match name {
        Name::Standard => return standard_stream(operand),
        Name::Fd(number) => {
            return match inherited(*number) {
                Ok(fd) => Ok(Opened::inherited(fd, operand.shown)),
                Err(errno @ rustix::io::Errno::BADF) => {
                    let help = format!(
                        "open it in the shell, for example with {number}<FILE or {number}>FILE"
                    );
                    Err(operand.problem(errno, Action::Open).help(help))
                }
                Err(errno) => Err(operand.problem(errno, Action::Open)),
            };
        }
        Name::Tcp(host) => (
            net::connect(host, SocketType::STREAM, operand)?,
            Some(StreamKind::Tcp),
        ),
        Name::Udp(host) => (net::connect(host, SocketType::DGRAM, operand)?, None),
        Name::UdpListen(host) => (net::datagrams(host, operand)?, None),
        Name::Unix(path) => (
            unix::connect(path, SocketType::STREAM, operand)?,
            Some(StreamKind::Unix),
        ),
        Name::UnixSeqpacket(path) => {
            let fd = unix::connect(path, SocketType::SEQPACKET, operand)?;
            (fd, Some(StreamKind::Unix))
        }
        Name::Path(_) | Name::UnixDgram(_) => unreachable!("opened by side"),
        Name::TcpListen(_) | Name::UnixListen(_) | Name::UnixSeqpacketListen(_) => {
            unreachable!("its peer was waited for")
        }
    };
    Ok(match (stream, operand.side) {
        (Some(stream), Side::Sink) => Opened::connection(fd, operand.shown, stream),
        _ => Opened::owned(fd, operand.shown),
    })
}

fn standard_stream(operand: Operand<'_>) -> Result<Opened, Problem> {
    let (fd, number, shown) = match operand.side {
        Side::Source => (rustix::stdio::stdin(), 0, "standard input"),
        Side::Sink => (rustix::stdio::stdout(), 1, "standard output"),
    };
    if was_closed(number) {
        let closed = Problem::call(shown, operand.side, Errno::EBADF, Action::Open);
        return Err(closed.help("it was closed by the program that started this command"));
    }
    Ok(Opened::inherited(fd, shown))
}

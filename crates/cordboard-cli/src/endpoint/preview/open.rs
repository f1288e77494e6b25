//! What can be opened in an endpoint's place without any effect: nothing is
//! created, truncated, connected or waited for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cordboard::endpoint::Facts;
use cordboard::{Endpoint, Errno, Side};
use rustix::fs::{AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags};
use rustix::net::SocketType;

use super::device;
use crate::endpoint::name::{Host, Name};
use crate::endpoint::open;
use crate::endpoint::opened::{Existing, Opened};
use crate::endpoint::sockets::{Operand, net, unix_socket};
use crate::endpoint::standard;
use crate::files::directory_of;
use crate::problem::{Action, Problem};

/// A descriptor in an endpoint's place, and how it differs.
pub struct Preview {
    fd: Fd,
    /// The empty file that the transfer would find, if the endpoint would be
    /// truncated.
    emptied: Option<Emptied>,
    /// How it differs from the endpoint.
    pub note: &'static str,
    /// The transfer creates the endpoint: this is an empty file without a name.
    pub to_be_created: bool,
    /// The name for messages.
    pub shown: String,
    /// It is inherited: its flags are worth reporting.
    pub given: bool,
    side: Side,
    /// It is a device of this number, which was not opened.
    unopened: Option<u64>,
}

enum Emptied {
    /// An empty file of the same file system.
    Like(OwnedFd),
    /// The endpoint, taken for empty, if no file can be made there.
    Itself,
}

enum Fd {
    Ours(OwnedFd),
    Opened(Opened),
}

impl Preview {
    /// A descriptor of the endpoint, or of what stands for it.
    pub fn itself(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Fd::Ours(fd) => fd.as_fd(),
            Fd::Opened(opened) => opened.as_fd(),
        }
    }

    /// The endpoint before the transfer.
    pub fn endpoint(&self) -> Result<Endpoint<'_>, Problem> {
        self.probe(self.itself())
    }

    /// The endpoint as the transfer would find it.
    pub fn found(&self) -> Result<Endpoint<'_>, Problem> {
        match &self.emptied {
            None => self.endpoint(),
            Some(Emptied::Like(fd)) => self.probe(fd.as_fd()),
            Some(Emptied::Itself) => {
                let endpoint = self.endpoint()?;
                let mut facts: Facts = *endpoint.facts();
                (facts.size, facts.allocated) = (Some(0), Some(0));
                Ok(endpoint.with_facts(facts))
            }
        }
    }

    fn probe<'a>(&self, fd: BorrowedFd<'a>) -> Result<Endpoint<'a>, Problem> {
        let endpoint = Endpoint::probe(fd).map_err(|errno| {
            Problem::refused(self.shown.as_str(), self.side, errno, errno.to_string())
        })?;
        let Some(number) = self.unopened else {
            return Ok(endpoint);
        };
        let mut facts: Facts = *endpoint.facts();
        device::complete(&mut facts, number, self.side);
        Ok(endpoint.with_facts(facts))
    }

    /// Whether a descriptor of the endpoint, or of what stands for it, is open for reading or
    /// writing: it is not a device that was left alone.
    pub fn is_open(&self) -> bool {
        self.unopened.is_none()
    }

    /// Whether it is a file that would be truncated.
    pub fn is_replaced(&self) -> bool {
        self.emptied.is_some()
    }
}

/// The place of an empty file on a file system without unnamed files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EmptyFile {
    /// In the directory of the sink. Its name is removed at once.
    Named,
    /// In memory: no process that watches the directory is woken.
    InMemory,
}

/// Opens something in the place of an endpoint.
pub fn preview(
    name: &Name,
    shown: &str,
    side: Side,
    (existing, empty): (Existing, EmptyFile),
) -> Result<Preview, Problem> {
    let operand = Operand { shown, side };
    let failed = |errno: rustix::io::Errno| operand.problem(errno, Action::Open);
    let socket = |fd: Result<OwnedFd, rustix::io::Errno>| {
        Ok::<_, Problem>((fd.map_err(failed)?, "not connected yet"))
    };
    let unix_socket = |kind| socket(unix_socket::socket(kind));
    let (fd, note) = match name {
        Name::Standard | Name::Fd(_) => {
            let opened = match side {
                Side::Source => open::source(name, shown)?,
                Side::Sink => open::sink(name, shown, existing)?,
            };
            return Ok(Preview {
                shown: opened.shown.clone(),
                fd: Fd::Opened(opened),
                emptied: None,
                note: "",
                to_be_created: false,
                given: true,
                side,
                unopened: None,
            });
        }
        Name::Path(path) => return by_path(path, operand, (existing, empty)),
        Name::Tcp(host) | Name::TcpListen(host) => {
            socket(net::socket(family(host, operand)?, SocketType::STREAM))?
        }
        Name::Udp(host) | Name::UdpListen(host) => {
            socket(net::socket(family(host, operand)?, SocketType::DGRAM))?
        }
        Name::Unix(_) | Name::UnixListen(_) => unix_socket(SocketType::STREAM)?,
        Name::UnixDgram(_) => unix_socket(SocketType::DGRAM)?,
        Name::UnixSeqpacket(_) | Name::UnixSeqpacketListen(_) => {
            unix_socket(SocketType::SEQPACKET)?
        }
    };
    Ok(Preview {
        fd: Fd::Ours(fd),
        emptied: None,
        note,
        to_be_created: false,
        shown: shown.to_owned(),
        given: false,
        side,
        unopened: None,
    })
}

/// Returns an address of the host's family.
fn family(host: &Host, operand: Operand<'_>) -> Result<SocketAddr, Problem> {
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    Ok(net::resolve(host, operand)?.first().copied().unwrap_or(any))
}

fn by_path(
    path: &Path,
    operand: Operand<'_>,
    (existing, empty): (Existing, EmptyFile),
) -> Result<Preview, Problem> {
    let append = existing == Existing::Append;
    let failed = |errno: rustix::io::Errno| operand.problem(errno, Action::Open);
    let with = |fd, emptied, note| Preview {
        fd: Fd::Ours(fd),
        emptied,
        note,
        to_be_created: false,
        shown: operand.shown.to_owned(),
        given: false,
        side: operand.side,
        unopened: None,
    };
    let stat = match rustix::fs::stat(path) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) if operand.side == Side::Sink => {
            // open(2) with O_CREAT creates no file of a name that ends in a slash.
            if path.as_os_str().as_bytes().ends_with(b"/") {
                let missing = Problem::no_directory(operand.shown, rustix::io::Errno::NOENT);
                return Err(missing.unwrap_or_else(|| failed(rustix::io::Errno::NOENT)));
            }
            let file = unnamed_file(path, operand, (append, empty))?;
            return Ok(Preview {
                to_be_created: true,
                ..with(file, None, "to be created")
            });
        }
        Err(errno) => return Err(failed(errno)),
    };
    if append && operand.side == Side::Sink {
        open::check_appendable(&stat, operand.shown)?;
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
        // Opening it would wake a process at the other end.
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
        let end = if operand.side == Side::Source {
            reader
        } else {
            writer
        };
        return Ok(with(end, None, "a FIFO, described as a pipe"));
    }
    if device::opening_does_something(&stat) {
        let fd = device::name_only(path, operand.side).map_err(failed)?;
        return Ok(Preview {
            unopened: Some(stat.st_rdev),
            ..with(fd, None, "not opened by explain")
        });
    }
    let mut flags = match operand.side {
        Side::Source => OFlags::RDONLY,
        Side::Sink => OFlags::WRONLY,
    };
    if append && operand.side == Side::Sink {
        flags |= OFlags::APPEND;
    }
    let fd = rustix::fs::open(
        path,
        flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .map_err(|errno| standard::open_problem(path, operand.shown, operand.side, errno))?;
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if operand.side == Side::Sink && file && stat.st_size > 0 {
        match existing {
            Existing::Replace => {
                // The file may be writable in a directory that is not.
                let emptied = unnamed_file(path, operand, (false, empty));
                let emptied = emptied.map_or(Emptied::Itself, Emptied::Like);
                return Ok(with(fd, Some(emptied), "its contents to be replaced"));
            }
            Existing::Keep => return Ok(with(fd, None, "to be written in place")),
            Existing::Append => {}
        }
    }
    Ok(with(fd, None, ""))
}

/// The number of symlinks that the kernel follows (`MAXSYMLINKS`, include/linux/namei.h).
const MOST_SYMLINKS: usize = 40;

/// Resolves the symlinks of a path whose last component may not exist.
pub fn resolve_symlinks(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let mut path = path.to_owned();
    for _ in 0..MOST_SYMLINKS {
        match (path.parent(), path.read_link()) {
            (Some(parent), Ok(target)) => path = parent.join(target),
            _ => break,
        }
    }
    path
}

/// Makes an unnamed file on the file system of the sink.
fn unnamed_file(
    path: &Path,
    operand: Operand<'_>,
    (append, empty): (bool, EmptyFile),
) -> Result<OwnedFd, Problem> {
    let path = &resolve_symlinks(path);
    let directory = directory_of(path);
    let mode = Mode::from_raw_mode(0o600);
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if append {
        flags |= OFlags::APPEND;
    }
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR)
            if empty == EmptyFile::InMemory =>
        {
            let file = rustix::fs::memfd_create(c"empty", MemfdFlags::CLOEXEC);
            file.and_then(|file| {
                rustix::fs::fcntl_setfl(&file, flags & OFlags::APPEND)?;
                Ok(file)
            })
        }
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            let name = directory.join(format!(".cordboard-explain-{}", std::process::id()));
            let fd = rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL, mode);
            if fd.is_ok() {
                let _ = rustix::fs::unlinkat(CWD, &name, AtFlags::empty());
            }
            fd
        }
        done => done,
    }
    .map_err(|errno| {
        let shown = directory.to_string_lossy();
        let text = format!(
            "{} creating a temporary file in this directory",
            Errno::from(errno)
        );
        Problem::refused(shown, operand.side, errno.into(), text)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_new_file_is_found_behind_several_symlinks() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        symlink("a/second", at("first")).unwrap();
        symlink("../third", at("a/second")).unwrap();
        symlink(at("b/new"), at("third")).unwrap();
        assert_eq!(resolve_symlinks(&at("first")), at("b/new"));
        std::fs::write(at("b/new"), b"").unwrap();
        let real = at("b/new").canonicalize().unwrap();
        assert_eq!(resolve_symlinks(&at("first")), real);
        // A loop.
        symlink("loop", at("loop")).unwrap();
        assert_eq!(resolve_symlinks(&at("loop")), at("loop"));
    }
}

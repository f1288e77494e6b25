//! What can be opened in an endpoint's place without any effect: nothing is
//! created, truncated, connected or waited for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cordboard::endpoint::{Facts, FileId, Filesystem};
use cordboard::{Endpoint, Errno, Kind, Request, Side};
use rustix::fs::{Access, FileType, Mode, OFlags};
use rustix::net::SocketType;

use super::device;
use crate::endpoint::name::{Host, Name};
use crate::endpoint::open;
use crate::endpoint::opened::{Existing, Opened, check_sparse, refuse_sparse};
use crate::endpoint::sockets::{Operand, net, unix_socket};
use crate::endpoint::standard;
use crate::files::{Id, check_access, directory_of, filesystem_of, id};
use crate::problem::{Action, Problem};

/// A descriptor in an endpoint's place, and how it differs.
pub struct Preview {
    fd: Fd,
    /// It is a file that would be truncated.
    emptied: bool,
    /// How it differs from the endpoint.
    pub note: &'static str,
    /// The transfer creates the endpoint: this is an empty file without a name.
    pub to_be_created: bool,
    /// The name for messages.
    pub shown: String,
    /// It is inherited: its flags are worth reporting.
    pub given: bool,
    side: Side,
    unopened: Option<Unopened>,
    /// The file that a file in memory stands for.
    stands_for: Option<Id>,
    /// The place of a new file that a file in memory stands for.
    place: Option<Directory>,
}

/// What is known of a file that would be made in a directory.
#[derive(Clone, Copy)]
struct Directory {
    device: u64,
    filesystem: Option<Filesystem>,
}

/// What was not opened as the transfer opens it: the descriptor is an `O_PATH` descriptor, or that
/// of a reader.
#[derive(Clone, Copy)]
enum Unopened {
    /// A device of this number.
    Device(u64),
    /// A file to write to. A program may watch for the end of its writers (`IN_CLOSE_WRITE`).
    File { append: bool },
}

enum Fd {
    Ours(OwnedFd),
    Opened(Opened),
}

impl Preview {
    fn new(fd: Fd, operand: Operand<'_>, note: &'static str) -> Preview {
        Preview {
            fd,
            emptied: false,
            note,
            to_be_created: false,
            shown: operand.shown.to_owned(),
            given: false,
            side: operand.side,
            unopened: None,
            stands_for: None,
            place: None,
        }
    }

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
        let endpoint = self.endpoint()?;
        if !self.emptied {
            return Ok(endpoint);
        }
        let mut facts: Facts = *endpoint.facts();
        (facts.size, facts.allocated) = (Some(0), Some(0));
        Ok(endpoint.with_facts(facts))
    }

    /// The file that it is, or stands for, if it has one.
    pub fn id(&self) -> Option<Id> {
        self.stands_for
            .or_else(|| cordboard::fstat(self.itself()).ok().as_ref().map(id))
    }

    /// Whether a file in memory stands for an existing one.
    pub fn is_stand_in(&self) -> bool {
        self.stands_for.is_some()
    }

    /// Refuses `--sparse always` for a file that would be open for appending.
    pub fn check_sparse(&self, request: &Request) -> Result<(), Problem> {
        match self.unopened {
            Some(Unopened::File { append: true }) => refuse_sparse(&self.shown, request),
            Some(_) => Ok(()),
            None => check_sparse(self.itself(), &self.shown, request),
        }
    }

    fn probe<'a>(&self, fd: BorrowedFd<'a>) -> Result<Endpoint<'a>, Problem> {
        let endpoint = Endpoint::probe(fd).map_err(|errno| {
            Problem::refused(self.shown.as_str(), self.side, errno, errno.to_string())
        })?;
        let mut facts: Facts = *endpoint.facts();
        if let Some(place) = self.place {
            facts.kind = match place.filesystem {
                Some(filesystem) if filesystem.is_pseudo() => Kind::Pseudo,
                _ => Kind::File,
            };
            facts.filesystem = place.filesystem;
            facts.id = facts.id.map(|id| FileId {
                device: place.device,
                ..id
            });
        }
        match self.unopened {
            None => {}
            Some(Unopened::Device(number)) => device::complete(&mut facts, number, self.side),
            Some(Unopened::File { append }) => {
                (facts.readable, facts.writable) = (false, true);
                (facts.append, facts.unpaged) = (append, false);
                facts.position = Some(0);
            }
        }
        Ok(endpoint.with_facts(facts))
    }

    /// Whether a descriptor of the endpoint, or of what stands for it, is open for reading or
    /// writing.
    pub fn is_open(&self) -> bool {
        self.unopened.is_none()
    }

    /// Whether it is a file that would be truncated.
    pub fn is_replaced(&self) -> bool {
        self.emptied
    }
}

/// What stands for a sink that is a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StandIn {
    /// What describes it best: the file if it exists, not open for writing, else an unnamed file
    /// in its directory, or one in memory.
    Described,
    /// A file in memory: no process that watches the file or its directory is woken.
    InMemory,
    /// The file itself, if it exists; else a file in memory.
    Opened,
}

/// Opens something in the place of an endpoint.
pub fn preview(
    name: &Name,
    shown: &str,
    side: Side,
    (existing, stand_in): (Existing, StandIn),
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
                given: true,
                ..Preview::new(Fd::Opened(opened), operand, "")
            });
        }
        Name::Path(path) => return by_path(path, operand, (existing, stand_in)),
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
    Ok(Preview::new(Fd::Ours(fd), operand, note))
}

/// Returns an address of the host's family.
fn family(host: &Host, operand: Operand<'_>) -> Result<SocketAddr, Problem> {
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    Ok(net::resolve(host, operand)?.first().copied().unwrap_or(any))
}

fn by_path(
    path: &Path,
    operand: Operand<'_>,
    (existing, stand_in): (Existing, StandIn),
) -> Result<Preview, Problem> {
    let append = existing == Existing::Append;
    let failed = |errno: rustix::io::Errno| operand.problem(errno, Action::Open);
    let with = |fd, note| Preview::new(Fd::Ours(fd), operand, note);
    let stat = match rustix::fs::stat(path) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) if operand.side == Side::Sink => {
            // open(2) with O_CREAT creates no file of a name that ends in a slash.
            if path.as_os_str().as_bytes().ends_with(b"/") {
                let missing = Problem::no_directory(operand.shown, rustix::io::Errno::NOENT);
                return Err(missing.unwrap_or_else(|| failed(rustix::io::Errno::NOENT)));
            }
            let (file, place) = match stand_in {
                StandIn::Described => unnamed_file(path, operand, append)?,
                // A filter may refuse files in memory.
                StandIn::InMemory | StandIn::Opened => match file_in_memory(append) {
                    Ok(file) => (file, None),
                    Err(_) => unnamed_file(path, operand, append)?,
                },
            };
            return Ok(Preview {
                to_be_created: true,
                place,
                ..with(file, "to be created")
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
        return Ok(with(end, "a FIFO, described as a pipe"));
    }
    if device::opening_does_something(&stat) {
        let fd = device::name_only(path, operand.side).map_err(failed)?;
        return Ok(Preview {
            unopened: Some(Unopened::Device(stat.st_rdev)),
            ..with(fd, "not opened by explain")
        });
    }
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let emptied = existing == Existing::Replace && file && stat.st_size > 0;
    if operand.side == Side::Sink && file {
        let note = match existing {
            Existing::Replace if emptied => "its contents to be replaced",
            Existing::Keep if stat.st_size > 0 => "to be written in place",
            _ => "",
        };
        match stand_in {
            StandIn::Described => {
                check_access(path, Access::WRITE_OK).map_err(failed)?;
                let fd = name_only(path, stat.st_size > 0).map_err(failed)?;
                return Ok(Preview {
                    unopened: Some(Unopened::File { append }),
                    emptied,
                    ..with(fd, note)
                });
            }
            // A filter may refuse files in memory. Only a pseudo file itself shows what it refuses.
            StandIn::InMemory if !filesystem_of(path).is_some_and(Filesystem::is_pseudo) => {
                if let Ok(fd) = file_in_memory(append) {
                    return Ok(Preview {
                        stands_for: Some(id(&stat)),
                        ..with(fd, note)
                    });
                }
            }
            StandIn::InMemory | StandIn::Opened => {}
        }
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
    Ok(with(fd, ""))
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

/// Opens a file for reading, which shows how much of it is cached, or without any access.
fn name_only(path: &Path, has_contents: bool) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let reading = has_contents.then(|| rustix::fs::open(path, flags, Mode::empty()));
    match reading {
        Some(Ok(fd)) => Ok(fd),
        _ => rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
    }
}

/// Makes an empty file in memory.
fn file_in_memory(append: bool) -> Result<OwnedFd, rustix::io::Errno> {
    let file = cordboard::memory_file(c"empty")?;
    if append {
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    }
    Ok(file)
}

/// Makes an unnamed file on the file system of the sink, or one in memory if the file system has no
/// unnamed files: a named one would be visible.
fn unnamed_file(
    path: &Path,
    operand: Operand<'_>,
    append: bool,
) -> Result<(OwnedFd, Option<Directory>), Problem> {
    let path = &resolve_symlinks(path);
    let directory = directory_of(path);
    let mode = Mode::from_raw_mode(0o600);
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if append {
        flags |= OFlags::APPEND;
    }
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            let known = rustix::fs::stat(directory).map(|stat| Directory {
                device: stat.st_dev,
                filesystem: filesystem_of(directory),
            });
            known.and_then(|known| Ok((file_in_memory(append)?, Some(known))))
        }
        done => done.map(|file| (file, None)),
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

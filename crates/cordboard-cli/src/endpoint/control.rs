//! The control socket of a command: listening, and connecting to it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use cordboard::{Errno, Side};
use rustix::net::{SocketType, sockopt};

use super::sockets::Operand;
use super::sockets::unix::{self, SocketFile};
use crate::problem::Problem;

/// The longest wait for an answer of a command.
const PATIENCE: Duration = Duration::from_secs(10);

/// Refuses an empty name of a control socket, which the kernel accepts: it would bind an
/// abstract name that was not given, or connect to it.
pub fn check_control_name(name: &OsStr) -> Result<(), Problem> {
    match name.as_bytes() {
        b"" | b"@" => {
            let problem = Problem::usage("", "the name of the control socket is empty");
            Err(problem.help("use the path of a socket, or @NAME for an abstract name"))
        }
        _ => Ok(()),
    }
}

/// Listens at a path, or at the abstract name `@NAME`. The file of a socket that is
/// closed is replaced.
pub fn control_socket(path: &Path) -> Result<(OwnedFd, Option<SocketFile>), Problem> {
    check_control_name(path.as_os_str())?;
    let shown = path.to_string_lossy();
    let operand = Operand {
        shown: &shown,
        side: Side::Source,
    };
    let doing = "listening as the control socket";
    let bound = unix::bind(path, SocketType::STREAM, operand);
    let (listener, file) = bound.map_err(|problem| unsided(problem, doing))?;
    match rustix::net::listen(&listener, 16) {
        Ok(()) => Ok((listener, file)),
        Err(errno) => Err(unsided(
            operand.problem(errno, crate::problem::Action::Listen),
            doing,
        )),
    }
}

/// Connects to the control socket of a command. This and each call on the connection wait for
/// at most ten seconds.
pub fn control_connection(name: &OsStr) -> Result<OwnedFd, Problem> {
    connection_within(name, PATIENCE)
}

fn connection_within(name: &OsStr, most: Duration) -> Result<OwnedFd, Problem> {
    check_control_name(name)?;
    let shown = name.to_string_lossy();
    let operand = Operand {
        shown: &shown,
        side: Side::Sink,
    };
    let connected = unix::connect_within(Path::new(name), SocketType::STREAM, operand, most);
    let socket = connected.map_err(|problem| {
        let problem = unsided(problem, "connecting to the control socket");
        match problem.errno {
            Some(Errno::ENOENT | Errno::ECONNREFUSED) => {
                problem.help("no command has it open: see --control of splice, copy and cat")
            }
            Some(Errno::EAGAIN) => {
                let text = format!("no answer for {} seconds", most.as_secs());
                Problem::unsided(problem.operand, Errno::ETIMEDOUT, text)
                    .help("check that the command is not stopped: too many connections wait")
            }
            _ => problem,
        }
    })?;
    let failed = |errno: rustix::io::Errno| {
        let errno = Errno::from(errno);
        Problem::unsided(name.to_string_lossy(), errno, format!("{errno} steering"))
    };
    rustix::io::ioctl_fionbio(&socket, false).map_err(failed)?;
    for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE)).map_err(failed)?;
    }
    Ok(socket)
}

/// Connects to the control socket of a command without waiting. `EAGAIN`: too many
/// connections wait there.
pub fn connect_at_once(name: &OsStr) -> Result<OwnedFd, Errno> {
    let socket = super::sockets::unix_socket::socket(SocketType::STREAM)?;
    unix::connect_at_once(&socket, Path::new(name))?;
    Ok(socket)
}

/// The same problem, of neither side.
fn unsided(problem: Problem, doing: &str) -> Problem {
    match problem.errno {
        // With a text of its own.
        _ if problem.hint.is_some() && problem.text.starts_with("exists") => Problem {
            side: None,
            ..problem
        },
        Some(errno) => Problem::unsided(problem.operand, errno, format!("{errno} {doing}")),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As that of a process that is stopped.
    #[test]
    fn a_full_queue_of_connections_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (listener, _file) = control_socket(&path).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect_at_once(path.as_os_str()) {
                Ok(connection) => waiting.push(connection),
                Err(errno) => break errno,
            }
        };
        assert_eq!((full, waiting.len()), (Errno::EAGAIN, 17));
        let problem = connection_within(path.as_os_str(), Duration::ZERO).unwrap_err();
        assert_eq!(problem.errno, Some(Errno::ETIMEDOUT));
        assert!(problem.to_string().contains("no answer"), "{problem}");
        drop(listener);
    }

    #[test]
    fn a_path_of_any_length_is_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        // Bound by a shorter name.
        let link = folder.path().join("l");
        std::os::unix::fs::symlink(&deep, &link).unwrap();
        let (listener, _file) = control_socket(&link.join("s")).unwrap();
        connect_at_once(deep.join("s").as_os_str()).unwrap();
        drop(listener);
        let gone = connect_at_once(deep.join("s").as_os_str());
        assert_eq!(gone.unwrap_err(), Errno::ECONNREFUSED);
        let none = connect_at_once(deep.join("t").as_os_str());
        assert_eq!(none.unwrap_err(), Errno::ENOENT);
    }
}

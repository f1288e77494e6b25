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
use crate::problem::{Action, Problem};

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
    unix::listen(path, SocketType::STREAM, 16, operand).map_err(not_listening)
}

fn not_listening(problem: Problem) -> Problem {
    let problem = unsided(problem, Action::Listen);
    match problem.errno {
        Some(Errno::EACCES) => problem.help("write permission is required for its directory"),
        // mknod(2): a file system without sockets. unlink(2): a sticky directory.
        Some(Errno::EPERM) => {
            problem.help("its directory, its file system or a security policy does not permit it")
        }
        _ => problem,
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
    let socket = connected.map_err(|problem| not_connected(problem, most))?;
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

fn not_connected(problem: Problem, most: Duration) -> Problem {
    let problem = unsided(problem, Action::Connect);
    match problem.errno {
        Some(Errno::ENOENT | Errno::ECONNREFUSED) => {
            problem.help("no command has it open: see --control of splice, copy and cat")
        }
        Some(Errno::EACCES) => problem.help("only its user and root can steer the command"),
        Some(Errno::EPERM) => problem.help("a security policy forbids it"),
        Some(Errno::EPROTOTYPE) => problem.help("it has another type: it is no control socket"),
        Some(Errno::EAGAIN) => {
            let text = format!("no answer for {} seconds", most.as_secs());
            Problem::unsided(problem.operand, Errno::ETIMEDOUT, text)
                .help("check that the command is not stopped: too many connections wait")
        }
        _ => problem,
    }
}

/// Connects to the control socket of a command without waiting. `EAGAIN`: too many
/// connections wait there.
pub fn connect_at_once(name: &OsStr) -> Result<OwnedFd, Errno> {
    let socket = super::sockets::unix_socket::socket(SocketType::STREAM)?;
    unix::connect_at_once(&socket, Path::new(name))?;
    Ok(socket)
}

/// The same problem, of neither side. Only the text of a failed call names a side.
fn unsided(mut problem: Problem, action: Action) -> Problem {
    if let Some(side) = problem.side.take()
        && let Some(errno) = problem.text.strip_suffix(&format!(" {action} the {side}"))
    {
        problem.text = format!("{errno} {action} the control socket");
    }
    problem
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
    fn a_problem_with_a_text_of_its_own_keeps_it() {
        let refused = Problem::refused("s", Side::Source, Errno::EADDRINUSE, "was replaced");
        let problem = unsided(refused.help("look there"), Action::Listen);
        assert_eq!((&*problem.text, problem.side), ("was replaced", None));
        assert_eq!(problem.hint.as_deref(), Some("look there"));
        let failed = Problem::call("s", Side::Source, Errno::EROFS, Action::Listen);
        let problem = unsided(failed, Action::Listen);
        let text = format!("{} listening as the control socket", Errno::EROFS);
        assert_eq!((problem.text, problem.side), (text, None));
    }

    /// A control socket has no port, no broadcast address and no firewall.
    #[test]
    fn the_hints_are_those_of_a_control_socket() {
        let hint = |action, errno| {
            let problem = Problem::call("s", Side::Source, errno, action);
            let problem = match action {
                Action::Listen => not_listening(problem),
                _ => not_connected(problem, PATIENCE),
            };
            problem.hint.unwrap_or_default()
        };
        for errno in [Errno::EACCES, Errno::EPERM] {
            for action in [Action::Listen, Action::Connect] {
                let hint = hint(action, errno);
                assert!(!hint.is_empty() && hint.len() < 90, "{hint}");
                for other in ["port", "broadcast", "firewall"] {
                    assert!(!hint.contains(other), "{hint}");
                }
            }
        }
        for errno in [Errno::EROFS, Errno::ENOSPC, Errno::EDQUOT] {
            assert!(!hint(Action::Listen, errno).is_empty(), "{errno}");
        }
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

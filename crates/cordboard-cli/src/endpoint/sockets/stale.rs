//! Binding a socket to a path where the file of a closed socket may exist.
//!
//! A datagram socket finds out whether a socket is still bound to the file. Its
//! connect(2) reaches no listener: it fails with `EPROTOTYPE` if the socket has
//! another type, whether it listens or not, succeeds if it is a datagram socket
//! too, and fails with `ECONNREFUSED` if there is none (`unix_find_bsd`, before
//! Linux 5.17 `unix_find_other`, and `unix_dgram_connect`, net/unix/af_unix.c).
//! A connection of the same type would be accepted by the listener.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use cordboard::Errno as Named;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType};

use super::operand::Operand;
use super::unix_socket::socket;
use crate::files::{Removal, directory_of, id, remove};
use crate::interruptible::pause;
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals::Interrupted;

/// Each attempt fails only if another process has bound a socket to the name,
/// and closed it, since the last.
const TRIES: usize = 16;

/// How long the file of a socket may exist before the socket is bound to it.
const BINDING: Duration = Duration::from_millis(100);

/// The number of attempts to lock the directory, and the time between two.
const LOCKS: usize = 200;
const BETWEEN: Duration = Duration::from_millis(5);

/// Binds a socket. A file that no socket is bound to any more is removed
/// before.
pub fn bind(
    ours: &OwnedFd,
    path: &Path,
    address: &SocketAddrUnix,
    operand: Operand<'_>,
) -> Result<(), Problem> {
    let problem = |errno| operand.problem(errno, Action::Listen);
    let _lock = lock(path)?;
    for _ in 0..TRIES {
        match rustix::net::bind(ours, address) {
            Err(Errno::ADDRINUSE) => {}
            done => return done.map_err(problem),
        }
        // While it is open, no other file gets its inode.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            file => file.map_err(problem)?,
        };
        let stat = cordboard::fstat(&file).map_err(problem)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            let text = "exists and is not a socket";
            return Err(
                Problem::refused(operand.shown, operand.side, Named::EADDRINUSE, text)
                    .help("choose another path, or remove it"),
            );
        }
        // bind(2) creates the file before it registers the socket for its
        // inode, with the directory locked (`unix_bind_bsd`, since Linux 5.14).
        // This call waits for the lock: the other bind(2) has ended then.
        match rustix::net::bind(ours, address) {
            Err(Errno::ADDRINUSE) => {}
            done => return done.map_err(problem),
        }
        // Before Linux 5.14, bind(2) unlocks the directory before it registers the socket
        // (`unix_bind`, net/unix/af_unix.c): only the age of the file shows that it has ended.
        let mut is_unused = is_stale(&file, &stat, address).map_err(problem)?;
        if is_unused && let Some(left) = may_be_binding(changed(&stat), SystemTime::now()) {
            pause(left)?;
            is_unused = is_stale(&file, &stat, address).map_err(problem)?;
        }
        if !is_unused {
            return Err(problem(Errno::ADDRINUSE));
        }
        match remove(CWD, path, id(&stat)) {
            (Removal::Removed | Removal::Another | Removal::Used | Removal::Unsure(_), _) => {}
            (Removal::Failed(errno), _) => return Err(problem(errno)),
            (Removal::Displaced, private) => {
                let private = private.unwrap_or_default();
                let directory = path.parent().unwrap_or(Path::new(""));
                let text = format!(
                    "was replaced twice: the first replacement is now named {}",
                    directory.join(private).display()
                );
                let errno = Named::EADDRINUSE;
                return Err(Problem::refused(operand.shown, operand.side, errno, text));
            }
        }
    }
    Err(problem(Errno::ADDRINUSE))
}

/// Locks the directory against other processes of this command, so that none of them finds a
/// file whose socket is just being bound: a process may be delayed within bind(2) for longer than
/// [`BINDING`]. `None`: it cannot be opened, or another program holds the lock.
fn lock(path: &Path) -> Result<Option<OwnedFd>, Interrupted> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(directory_of(path), flags, Mode::empty()) else {
        return Ok(None);
    };
    for _ in 0..LOCKS {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(directory)),
            Err(Errno::WOULDBLOCK) => pause(BETWEEN)?,
            Err(Errno::INTR) => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Whether no socket is bound to this file. No socket will be bound to it
/// later: bind(2) creates a new file each time.
fn is_stale(file: &OwnedFd, stat: &Stat, address: &SocketAddrUnix) -> Result<bool, Errno> {
    let probe = socket(SocketType::DGRAM)?;
    // Connects to this file, whatever has its name meanwhile; without procfs,
    // to the file of that name. [`remove`] does not remove another file.
    let very = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let is_it = rustix::fs::stat(&very).is_ok_and(|there| id(&there) == id(stat));
    let connected = match SocketAddrUnix::new(&very) {
        Ok(very) if is_it => rustix::net::connect(&probe, &very),
        _ => rustix::net::connect(&probe, address),
    };
    Ok(connected == Err(Errno::CONNREFUSED))
}

/// Returns how long a bind(2) that created a file may still take. A file that is newer than
/// the clock counts as old.
fn may_be_binding(created: SystemTime, now: SystemTime) -> Option<Duration> {
    let age = now.duration_since(created).ok()?;
    BINDING.checked_sub(age).filter(|left| !left.is_zero())
}

/// Returns the time of the last change of the file's state.
fn changed(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or(0);
    let nanos = u32::try_from(stat.st_ctime_nsec).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_file_may_be_that_of_a_bind_that_has_not_ended() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        assert_eq!(may_be_binding(at(1000), at(1000)), Some(BINDING));
        let left = Some(Duration::from_millis(70));
        assert_eq!(may_be_binding(at(1000), at(1030)), left);
        assert_eq!(may_be_binding(at(1000), at(1100)), None);
        assert_eq!(may_be_binding(at(1000), at(900_000)), None);
        assert_eq!(may_be_binding(at(1000), at(999)), None);
    }
}

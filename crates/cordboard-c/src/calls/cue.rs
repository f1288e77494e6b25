//! Control descriptors: `cord_cue`.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use cordboard::cue::{Command, Commands, Cue, Record};
use cordboard::{Ended, Errno};
use libc::ssize_t;

use super::splice::lend_both;
use crate::error::Error;
use crate::guard::guard;
use crate::sys;

/// cord_cue - a control descriptor for transfers from one descriptor to another
///
/// Returns a descriptor to which commands are written and from which records
/// are read. Nothing moves before a command says so. A command is one or more
/// 32-bit little-endian words: `uint32_t go[] = {CORD_CUE_WRITE, 4096000};`
/// followed by write(2) transfers 4096000 bytes from `src` to `dst`.
/// docs/cue-protocol.md describes all commands and records.
///
/// The call duplicates both descriptors. The control descriptor is a socket
/// with FD_CLOEXEC. It can be polled, duplicated, and passed to another
/// process. Once all copies of it are closed, the library carries out the
/// transfers that end by themselves, those with a size and those from a file,
/// and cancels the others. A process that exits ends all of them.
///
/// If `dst` is a control descriptor of this process, bytes that are transferred
/// to it are commands, and its records go back to `src`, a socket.
///
/// # Returns
///
/// A descriptor, or -1 and errno.
///
/// # Errors
///
/// * EBADF: a descriptor is not open.
/// * EMFILE, ENFILE, ENOMEM, EAGAIN: no descriptor, memory or thread is
///   available.
#[unsafe(no_mangle)]
pub extern "C" fn cord_cue(src: c_int, dst: c_int) -> c_int {
    guard(-1, || {
        let (source, sink) = lend_both(src, dst)?;
        let cue = Cue::new(source, sink)?;
        Ok(OwnedFd::from(cue).into_raw_fd())
    })
}

/// cord_cue_write - write commands, and wait until their transfers have ended
///
/// As write(2) to a control descriptor that this process has made, but returns
/// once each transfer that the commands start has ended, as in the cue()
/// paper. It reads the records up to then, and drops them. No other thread may
/// read from the descriptor meanwhile. To any other descriptor it is write(2).
///
/// # Returns
///
/// `count`, or -1 and errno. What follows a transfer that has failed is not
/// written.
///
/// # Errors
///
/// * The errno of a transfer that has failed; ECANCELED: it was cancelled.
/// * EINVAL: a command is incomplete, or is none. EPERM: a limit forbids it.
/// * EPIPE: the library has ended the service of the descriptor.
/// * Those of write(2), if it is not a control descriptor.
///
/// # Safety
///
/// `commands` is valid for reads of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_cue_write(
    cue: c_int,
    commands: *const c_void,
    count: usize,
) -> ssize_t {
    guard(-1, || {
        let fd = sys::lend(cue)?;
        // SAFETY: as the caller promises.
        let bytes = unsafe { sys::bytes(commands, count)? };
        match Cue::is_control(fd) {
            true => carry_out(fd, bytes)?,
            false => return Ok(write(fd, bytes)?),
        }
        Ok(isize::try_from(count).unwrap_or(isize::MAX))
    })
}

fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<isize, Errno> {
    let written = rustix::io::write(fd, bytes)?;
    Ok(isize::try_from(written).unwrap_or(isize::MAX))
}

fn carry_out(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Error> {
    let mut cue = Cue::from(fd.try_clone_to_owned().map_err(errno_of)?);
    let (mut commands, mut left) = (Commands::default(), bytes);
    while !left.is_empty() {
        left = &left[commands.push(left)..];
        while let Some(command) = commands.next() {
            let command = command.map_err(|_| Errno::EINVAL)?;
            let starts = matches!(command, Command::Write(_) | Command::WriteToEnd);
            let number = if starts { next_number(&mut cue)? } else { 0 };
            cue.send(command)?;
            if starts {
                wait(&mut cue, command, number)?;
            }
        }
    }
    match commands.is_incomplete() {
        true => Err(Errno::EINVAL.into()),
        false => Ok(()),
    }
}

/// Returns the number of the next transfer, behind all that run and wait. 0: a limit
/// forbids to ask.
fn next_number(cue: &mut Cue) -> Result<u32, Errno> {
    cue.send(Command::Status)?;
    loop {
        match receive(cue)? {
            Some(Record::Status(status)) => return Ok(status.transfer + status.queued + 1),
            Some(Record::Refused { word, .. }) if word as u16 == Command::Status.code() => {
                return Ok(0);
            }
            Some(_) => {}
            None => return Err(Errno::EPIPE),
        }
    }
}

/// Reads records up to the end of the transfer that this command has started.
fn wait(cue: &mut Cue, command: Command, number: u32) -> Result<(), Error> {
    loop {
        match receive(cue)? {
            Some(Record::Done(done)) if done.transfer >= number => {
                return match (done.ended, done.errno) {
                    (Ended::Error, errno) => Err(errno.unwrap_or(Errno::EIO).into()),
                    (Ended::Cancelled, _) => Err(Errno::ECANCELED.into()),
                    _ => Ok(()),
                };
            }
            Some(Record::Refused { word, errno }) if word as u16 == command.code() => {
                return Err(errno.into());
            }
            Some(_) => {}
            None => return Err(Errno::EPIPE.into()),
        }
    }
}

/// Waits for a record, even if the descriptor has O_NONBLOCK.
fn receive(cue: &mut Cue) -> Result<Option<Record>, Errno> {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        match cue.receive() {
            Err(Errno::EAGAIN) => {
                let fd = cue.as_fd();
                let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
                match poll(&mut fds, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            done => return done,
        }
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

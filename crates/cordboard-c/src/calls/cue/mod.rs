//! Control descriptors: `cord_cue`.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};

use cordboard::cue::{Command, Commands, Cue, Done, Record, Status, send_at_once};
use cordboard::{Ended, Errno, Origin, duplicate};
use libc::ssize_t;
use rustix::event::PollFlags;

use super::splice::lend_both;
use crate::checked_fd::CheckedFd;
use crate::error::Error;
use crate::guard::{guard, guard_origin};
use crate::record_reader::RecordReader;
use crate::sys;

/// cord_cue - a control descriptor for transfers from one descriptor to another
///
/// Returns a descriptor to which commands are written and from which records
/// are read. No byte moves before a command starts a transfer. A command is one
/// or more 32-bit little-endian words: `uint32_t go[] = {CORD_CUE_WRITE,
/// 4096000};` followed by write(2) transfers 4096000 bytes from `src` to `dst`.
/// docs/cue-protocol.md describes all commands and records.
/// CORD_RECORD_* are the codes of records.
///
/// The call duplicates both descriptors. The control descriptor is a socket
/// with FD_CLOEXEC. It can be polled, duplicated, and passed to another
/// process. Once all copies of it are closed, the library carries out the
/// transfers that end by themselves: those with a size, those from a file or a
/// block device, and those of a link. It cancels all others, and all transfers
/// if they are paused. A process that exits ends all of them.
///
/// If `dst` is a control descriptor of this process, bytes that are transferred
/// to it are commands, and its records for them go back to `src`, a socket. The
/// commands and the records of the owner of `dst` are separate from these.
///
/// # Returns
///
/// A descriptor, or -1 and errno.
///
/// # Errors
///
/// * EBADF: a descriptor is not open, or the calling thread has its own
///   descriptor table (unshare(2) with CLONE_FILES).
/// * ECHILD: this is a child that a signal handler has forked during the call,
///   which continues in the parent.
/// * EINVAL: an environment variable of the library has an unknown value. It is
///   read here, for all transfers.
/// * EMFILE, ENFILE, ENOMEM, EAGAIN: no descriptor, memory or thread is
///   available.
/// * EPERM, ENOSYS, or another errno of a seccomp filter: it refuses
///   socketpair(2) or epoll_pwait(2).
#[unsafe(no_mangle)]
pub extern "C" fn cord_cue(src: c_int, dst: c_int) -> c_int {
    guard_origin(-1, |origin| {
        let (source, sink) = lend_both(src, dst)?;
        let cue = Cue::new_in(origin, source, sink)?;
        Ok(OwnedFd::from(cue).into_raw_fd())
    })
}

/// cord_cue_write - write commands, and wait until their transfers have ended
///
/// As write(2) to a control descriptor that this process has made, but returns
/// once each transfer that the commands start has ended, as in the cue()
/// paper. It reads the records up to then, and drops them. The records that
/// follow stay in the descriptor, also those of commands that another thread
/// has written meanwhile. No other thread may read from the descriptor
/// meanwhile. For any other descriptor, and for a control descriptor whose
/// service ended before the call, it is write(2), which raises SIGPIPE if the
/// peer of a socket has closed.
/// While 32 transfers of other threads wait, the call also waits until one of
/// them has started.
/// A signal does not interrupt the call: it continues after the handler.
/// If a limit forbids CORD_CUE_STATUS while other transfers run or wait, the
/// call returns once the first of these transfers has ended.
///
/// # Returns
///
/// `count`, or -1 and errno. What follows a transfer that has failed is not
/// written. No transfer follows a command that was refused.
///
/// # Errors
///
/// * The errno of a transfer that has failed; ECANCELED: it was cancelled.
/// * EINVAL: a command is incomplete, or is none, or its value is not valid.
///   EPERM: a limit forbids it.
/// * EPIPE: the library has ended the service of the descriptor, or accepts no
///   more commands. Or the program has closed the descriptors of the library
///   during the call (close_range(2)).
/// * EFAULT: `commands` is NULL and `count` is not 0.
/// * EBADF: `cue` is not open. Or a signal handler has forked during the call,
///   and this is the child: the call continues in the parent.
/// * EMFILE, ENFILE: no descriptor is available. No command was written.
/// * EPERM, ENOSYS, or another errno of a seccomp filter: it refuses both
///   sendto(2) and sendmsg(2), or both recvfrom(2) and recvmsg(2).
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
    let origin = Origin::here();
    guard(-1, || {
        let fd = sys::lend(cue)?;
        // SAFETY: as the caller promises.
        let bytes = unsafe { sys::bytes(commands, count)? };
        match Cue::is_control(fd) {
            true => carry_out(fd, bytes, origin)?,
            false => {
                let written = rustix::io::write(fd, bytes).map_err(Errno::from)?;
                return Ok(isize::try_from(written).unwrap_or(isize::MAX));
            }
        }
        Ok(isize::try_from(count).unwrap_or(isize::MAX))
    })
}

fn carry_out(fd: BorrowedFd<'_>, bytes: &[u8], origin: Origin) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    let socket = CheckedFd::of_program(duplicate(fd)?);
    let mut exchange = Exchange {
        cue: RecordReader::of(socket, origin),
        unsent: Vec::new(),
        marks: VecDeque::new(),
        is_answer: false,
        refused: None,
        awaited: None,
    };
    // Records that were not read concern earlier commands.
    exchange.send(&[], &[Mark::End])?;
    exchange.synchronize()?;
    let (mut commands, mut left) = (Commands::default(), bytes);
    while !left.is_empty() {
        left = &left[commands.push(left)..];
        while let Some(command) = commands.next() {
            let Ok(command) = command else {
                exchange.confirm()?;
                return Err(Errno::EINVAL.into());
            };
            exchange.carry_out(command)?;
        }
    }
    exchange.confirm()?;
    match commands.is_incomplete() {
        true => Err(Errno::EINVAL.into()),
        false => Ok(()),
    }
}

/// Commands that start no transfer are sent together, up to this number of bytes.
const TOGETHER: usize = 4096;

/// A command that is refused ([`Command::MARK`]), before and behind the commands of one message.
/// The answers to these are between the two refusals. Other answers are those to commands of other
/// threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Begin,
    End,
}

/// The commands of one call, and the records that answer them.
struct Exchange {
    cue: RecordReader,
    /// Commands that are sent together.
    unsent: Vec<u8>,
    /// The marks that were sent and are not refused yet.
    marks: VecDeque<Mark>,
    /// The next record may answer a command of this call.
    is_answer: bool,
    /// The first refusal of a command of this call.
    refused: Option<Errno>,
    /// The awaited transfer.
    awaited: Option<Awaited>,
}

/// A transfer whose end is awaited.
struct Awaited {
    number: Number,
    done: Option<Done>,
}

/// The number of a transfer.
#[derive(Default)]
enum Number {
    /// The status is not here yet.
    #[default]
    Unknown,
    /// This one or a later one: a link may have commanded transfers in between.
    From(u32),
    /// A limit forbids to ask for the status.
    Any,
    /// It has started.
    Known(u32),
}

impl Number {
    fn may_be(&self, number: u32) -> bool {
        match *self {
            Number::Unknown => false,
            // Numbers wrap.
            Number::From(first) => number.wrapping_sub(first) < u32::MAX / 2,
            Number::Any => true,
            Number::Known(known) => number == known,
        }
    }
}

impl Awaited {
    /// Takes the status from just before the command that starts the transfer.
    fn status(&mut self, status: &Status) {
        if matches!(self.number, Number::Unknown) {
            self.number = Number::From(status.commanded.wrapping_add(1));
        }
    }

    /// Takes the number of a transfer that has started. Transfers of one side start in the order
    /// of their numbers, and those of links are reported to the link. So the awaited transfer is
    /// the first one whose number may be its own.
    fn started(&mut self, number: u32) {
        if self.number.may_be(number) {
            self.number = Number::Known(number);
        }
    }

    /// Takes the end of a transfer. If none has started, it is the first one whose number may be
    /// that of the awaited transfer: a cancellation ends the waiting transfers in their order, but
    /// may do so before it ends the running one.
    fn end(&mut self, done: Done) {
        if self.number.may_be(done.transfer) {
            self.done = Some(done);
        }
    }
}

impl Exchange {
    /// Sends a command. Returns once the transfer that it starts has ended.
    fn carry_out(&mut self, command: Command) -> Result<(), Error> {
        if !matches!(command, Command::Write(_) | Command::WriteToEnd) {
            command.encode(&mut self.unsent);
            if self.unsent.len() >= TOGETHER {
                self.flush()?;
            }
            return Ok(());
        }
        // The commands before may have been refused: nothing then starts.
        self.confirm()?;
        // One message, so that no command of another thread comes between the status and the
        // transfer.
        Command::Status.encode(&mut self.unsent);
        command.encode(&mut self.unsent);
        self.awaited = Some(Awaited {
            number: Number::Unknown,
            done: None,
        });
        self.flush()?;
        self.synchronize()?;
        self.check()?;
        loop {
            let done = self
                .awaited
                .as_mut()
                .and_then(|awaited| awaited.done.take());
            if let Some(done) = done {
                self.awaited = None;
                return match (done.ended, done.errno) {
                    (Ended::Error, errno) => Err(errno.unwrap_or(Errno::EIO).into()),
                    (Ended::Cancelled, _) => Err(Errno::ECANCELED.into()),
                    _ => Ok(()),
                };
            }
            self.receive()?;
        }
    }

    /// Waits until all commands are carried out. Fails if one was refused.
    fn confirm(&mut self) -> Result<(), Errno> {
        self.flush()?;
        self.synchronize()?;
        self.check()
    }

    /// Waits until all commands that were sent are carried out or refused.
    fn synchronize(&mut self) -> Result<(), Errno> {
        while !self.marks.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Errno> {
        self.refused.map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let commands = std::mem::take(&mut self.unsent);
        match commands.is_empty() {
            true => Ok(()),
            false => self.send(&commands, &[Mark::Begin, Mark::End]),
        }
    }

    /// Sends commands between marks, and reads the records that arrive while the socket is full: no
    /// command is carried out while records wait.
    fn send(&mut self, commands: &[u8], marks: &[Mark]) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        for mark in marks {
            if *mark == Mark::End {
                bytes.extend_from_slice(commands);
            }
            bytes.extend_from_slice(&Command::MARK.to_le_bytes());
        }
        self.marks.extend(marks);
        let mut left = &bytes[..];
        while !left.is_empty() {
            let fd = self.cue.fd()?;
            match send_at_once(fd, left) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let ready = self.cue.wait_for(PollFlags::IN | PollFlags::OUT)?;
                    if ready.contains(PollFlags::IN) {
                        self.receive()?;
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Waits for a record, even if the descriptor has O_NONBLOCK.
    fn receive(&mut self) -> Result<(), Errno> {
        match self.cue.receive()? {
            Record::Refused {
                word: Command::MARK,
                ..
            } => self.is_answer = self.marks.pop_front() == Some(Mark::Begin),
            // The answer, or a report of progress: no transfer was added between the two.
            Record::Status(status) if self.is_answer => {
                if let Some(awaited) = &mut self.awaited {
                    awaited.status(&status);
                }
            }
            Record::Refused { word, errno } if self.is_answer => match &mut self.awaited {
                Some(awaited) if word as u16 == Command::Status.code() => {
                    awaited.number = Number::Any;
                }
                _ => _ = self.refused.get_or_insert(errno),
            },
            Record::Started(number) => {
                if let Some(awaited) = &mut self.awaited {
                    awaited.started(number);
                }
            }
            Record::Done(done) => {
                if let Some(awaited) = &mut self.awaited {
                    awaited.end(done);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

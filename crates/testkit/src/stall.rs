//! A child one of whose system calls stalls, as on a server that does not answer. A
//! filter hands the call to this process (`seccomp_unotify(2)`, since Linux 5.0), which
//! leaves it unanswered. As in a wait for such a server, only a fatal signal ends it
//! (since Linux 5.19).

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::owned::{Owned, Start};

/// `struct seccomp_notif`: id, thread and flags, number and architecture,
/// instruction, six arguments (linux/seccomp.h).
type Notice = [u64; 10];
/// `struct seccomp_notif_resp`: id, value, error and flags.
type Answer = [u64; 3];

const NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const NOTIF_SEND: libc::c_ulong = 0xc018_2101;
/// The answer that has the kernel make the call: `SECCOMP_USER_NOTIF_FLAG_CONTINUE`,
/// in the upper half of a word with the error 0.
const CONTINUE: u64 = u64::from_ne_bytes(if cfg!(target_endian = "little") {
    [0, 0, 0, 0, 1, 0, 0, 0]
} else {
    [0, 0, 0, 0, 0, 0, 0, 1]
});
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` and `_WAIT_KILLABLE_RECV`.
const FLAGS: libc::c_ulong = 1 << 3 | 1 << 5;
const SET_MODE_FILTER: libc::c_uint = 1;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;

/// Returns why calls cannot be held here, as the reason of a skip.
pub fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "no SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV here (since Linux 5.19)".into()
        }
        _ => format!("no call can be held: {error}"),
    }
}

/// The calls that are filtered, and which argument of each is the path.
const CALLS: [(libc::c_long, Option<usize>, Call); 7] = [
    (libc::SYS_openat, Some(1), Call::Open),
    (libc::SYS_statx, Some(1), Call::Stat),
    #[cfg(target_pointer_width = "64")]
    (libc::SYS_newfstatat, Some(1), Call::Stat),
    #[cfg(not(target_pointer_width = "64"))]
    (libc::SYS_fstatat64, Some(1), Call::Stat),
    // Newer architectures do not have it.
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    (libc::SYS_open, Some(0), Call::Open),
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
    (libc::SYS_openat, Some(1), Call::Open),
    (libc::SYS_renameat2, Some(1), Call::Rename),
    #[cfg(not(target_arch = "x86"))]
    (libc::SYS_listen, None, Call::Listen),
    #[cfg(target_arch = "x86")]
    (libc::SYS_socketcall, None, Call::Listen),
    (libc::SYS_rt_sigaction, None, Call::Handle),
];
/// The number of `listen(2)` among the calls of `socketcall(2)` on x86
/// (linux/net.h).
const SOCKETCALL_LISTEN: u64 = 4;

/// A kind of call that can stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `openat(2)`.
    Open,
    /// `fstatat(2)`, `statx(2)`.
    Stat,
    /// `renameat2(2)`; its path is the old name.
    Rename,
    /// `listen(2)`, whose path is empty.
    Listen,
    /// `sigaction(2)`; the path is the signal's number.
    Handle,
}

/// A child with a call that stalls, or will.
#[derive(Debug)]
pub struct Stall {
    listener: Arc<OwnedFd>,
    held: Receiver<u64>,
}

impl Stall {
    /// Starts a command. Its first call for which `holds` returns true stalls.
    ///
    /// # Errors
    ///
    /// The command cannot be started, or the kernel cannot do this.
    pub fn spawn(
        command: &mut Command,
        holds: impl Fn(Call, &OsStr) -> bool + Send + 'static,
    ) -> io::Result<(Owned, Stall)> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // SAFETY: what runs between fork and exec makes bare system calls, and
        // allocates nothing.
        unsafe { command.pre_exec(move || filter(theirs.as_fd())) };
        let child = command.try_start()?;
        let listener = Arc::new(received(&ours)?);
        let (send, held) = channel();
        let serving = Arc::clone(&listener);
        std::thread::spawn(move || serve(&serving, &send, &holds));
        Ok((child, Stall { listener, held }))
    }

    /// Waits until the call stalls.
    ///
    /// # Panics
    ///
    /// If the child ends without the call, or does not make it for too long.
    pub fn reached(&self) -> Held<'_> {
        let id = self.held.recv_timeout(crate::watchdog::patience());
        Held {
            listener: self.listener.as_fd(),
            id: id.expect("the call was not made"),
        }
    }
}

/// A call that stalls. If this is dropped, it stalls until its process is killed.
#[derive(Debug)]
pub struct Held<'a> {
    listener: BorrowedFd<'a>,
    id: u64,
}

impl Held<'_> {
    /// Lets the kernel make the call.
    pub fn release(self) {
        go_on(self.listener, self.id);
    }

    /// Fails the call with this errno. The next call like it is made.
    pub fn fail(self, errno: i32) {
        let mut error = [0; 8];
        error[..4].copy_from_slice(&(-errno).to_ne_bytes());
        answer(self.listener, [self.id, 0, u64::from_ne_bytes(error)]);
    }
}

/// Lets the kernel make each call but one.
fn serve(listener: &OwnedFd, held: &Sender<u64>, holds: &dyn Fn(Call, &OsStr) -> bool) {
    let mut holding = false;
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            // All processes with the filter have ended.
            Ok(_) if !fds[0].revents().contains(PollFlags::IN) => return,
            Ok(_) => {}
        }
        let mut notice: Notice = [0; 10];
        // SAFETY: the kernel writes one seccomp_notif, which the words hold.
        let got = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV as _, &raw mut notice) };
        if got != 0 {
            // The process was killed meanwhile.
            continue;
        }
        let [thread, _] = halves(notice[1]);
        let [number, _] = halves(notice[2]);
        let made = CALLS
            .iter()
            .find(|call| call.0 == libc::c_long::from(number));
        let is_it = |&(_, argument, call): &(libc::c_long, Option<usize>, Call)| {
            if cfg!(target_arch = "x86") && call == Call::Listen && notice[4] != SOCKETCALL_LISTEN {
                return false;
            }
            let path = match (argument, call) {
                (Some(at), _) => text(thread, notice[4 + at]),
                (None, Call::Handle) => halves(notice[4])[LOW].to_string().into_bytes(),
                (None, _) => Vec::new(),
            };
            holds(call, OsStr::from_bytes(&path))
        };
        if !holding && made.is_some_and(is_it) {
            holding = true;
            let _ = held.send(notice[0]);
        } else {
            go_on(listener.as_fd(), notice[0]);
        }
    }
}

fn go_on(listener: BorrowedFd<'_>, id: u64) {
    answer(listener, [id, 0, CONTINUE]);
}

fn answer(listener: BorrowedFd<'_>, answer: Answer) {
    // SAFETY: the kernel reads one seccomp_notif_resp, which the words are. ENOENT
    // means that the process has ended, and is ignored.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND as _, &raw const answer) };
}

/// Which of the [`halves`] of an argument holds an integer.
const LOW: usize = if cfg!(target_endian = "little") { 0 } else { 1 };

/// The two integers in a word.
fn halves(word: u64) -> [i32; 2] {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |b| i32::from_ne_bytes(*b))
    };
    [half(0), half(4)]
}

/// A string in another process.
fn text(thread: i32, address: u64) -> Vec<u8> {
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    let memory = std::fs::File::open(format!("/proc/{thread}/mem"));
    let read = memory.and_then(|memory| memory.read_at(&mut bytes, address));
    bytes.truncate(read.unwrap_or(0));
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    bytes
}

/// Installs the filter in the child and sends its listener to the parent, which
/// decides on the filtered calls from then on.
fn filter(parent: BorrowedFd<'_>) -> io::Result<()> {
    let line = |code: u32, to: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: to,
        jf: 0,
        k,
    };
    const LENGTH: usize = CALLS.len() + 3;
    let mut lines = [line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0); LENGTH];
    for (number, (call, ..)) in CALLS.iter().enumerate() {
        let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        // A match jumps to the last line.
        lines[1 + number] = line(code, (CALLS.len() - number) as u8, *call as u32);
    }
    lines[LENGTH - 2] = line(libc::BPF_RET | libc::BPF_K, 0, RET_ALLOW);
    lines[LENGTH - 1] = line(libc::BPF_RET | libc::BPF_K, 0, RET_USER_NOTIF);
    let program = libc::sock_fprog {
        len: lines.len() as u16,
        filter: lines.as_mut_ptr(),
    };
    // SAFETY: takes integers; without it a filter needs root.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: reads a program that is valid for the length of the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            FLAGS,
            &raw const program,
        )
    };
    let listener = match i32::try_from(listener) {
        Ok(number) if number >= 0 => number,
        _ => return Err(io::Error::last_os_error()),
    };
    // SAFETY: the kernel has just made it, and nothing else owns it.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let fds = [listener.as_fd()];
    message.push(SendAncillaryMessage::ScmRights(&fds));
    let data = [IoSlice::new(b"x")];
    rustix::net::sendmsg(parent, &data, &mut message, SendFlags::empty())?;
    Ok(())
}

/// Receives the listener from the child.
fn received(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut data, &mut message, RecvFlags::CMSG_CLOEXEC)?;
    let mut found = message.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    found.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

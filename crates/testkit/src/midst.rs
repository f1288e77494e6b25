//! System calls of a thread that are held (`seccomp_unotify(2)`, since Linux 5.5)
//! while another thread runs a function.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use rustix::event::{PollFd, PollFlags, poll};

const SET_MODE_FILTER: libc::c_uint = 1;
const NEW_LISTENER: libc::c_ulong = 1 << 3;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
/// The lower half of the second argument in `struct seccomp_data`.
const SECOND_ARGUMENT: u32 = 24 + if cfg!(target_endian = "little") { 0 } else { 4 };
/// `FUTEX_CMD_MASK`, of the operations below 128.
const FUTEX_OPERATION: u32 = 0x7f;
const NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const NOTIF_SEND: libc::c_ulong = 0xc018_2101;

/// Runs `body` on a thread of its own, and `meanwhile` on this thread at each of these
/// calls that `body` makes. Returns the number of calls, or `None`, with neither run,
/// if the kernel cannot hold calls.
pub fn at_each(
    calls: &[libc::c_long],
    body: impl FnOnce() + Send,
    mut meanwhile: impl FnMut(),
) -> Option<usize> {
    refusing(calls, body, |_| {
        meanwhile();
        None
    })
}

/// Runs `body` on a thread of its own, and fails each of these calls that it makes with
/// the errno that `errno` returns for the number of calls before it. For `None` the
/// kernel makes the call. Of the calls of `futex(2)`, only those that wait are held.
/// Returns the same as [`at_each`].
pub fn refusing(
    calls: &[libc::c_long],
    body: impl FnOnce() + Send,
    mut errno: impl FnMut(usize) -> Option<i32>,
) -> Option<usize> {
    let (send, listener) = channel();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (done, ended) = std::io::pipe().expect("a pipe");
            if hand_over(calls, &send, done.into()) {
                body();
            }
            drop(ended);
        });
        let (listener, done) = first(&listener)?;
        let mut count = 0;
        let mut decided = None;
        loop {
            let mut fds = [
                PollFd::new(&listener, PollFlags::IN),
                PollFd::new(&done, PollFlags::IN),
            ];
            if let Err(errno) = poll(&mut fds, None) {
                assert_eq!(errno, rustix::io::Errno::INTR);
                continue;
            }
            if fds[0].revents().contains(PollFlags::IN) {
                if let Some(id) = received(&listener) {
                    let refused = *decided.get_or_insert_with(|| errno(count));
                    if answer(&listener, id, refused) {
                        count += 1;
                        decided = None;
                    }
                }
            } else if !fds[1].revents().is_empty() {
                break;
            }
        }
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
        Some(count)
    })
}

/// Receives the first value, by polling: waking a thread that sleeps takes a system
/// call of the sender, which may be held by then.
fn first<T>(comes: &Receiver<T>) -> Option<T> {
    loop {
        match comes.try_recv() {
            Ok(come) => return Some(come),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
}

/// Hands this thread's calls to the owner of the listener.
fn hand_over(calls: &[libc::c_long], to: &Sender<(OwnedFd, OwnedFd)>, done: OwnedFd) -> bool {
    let line = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let returns = libc::BPF_RET | libc::BPF_K;
    let mut lines = vec![line(load, 0, 0, 0)];
    for call in calls {
        let operation = match *call {
            // A call that wakes is not held: if it failed, another thread would sleep forever.
            libc::SYS_futex => vec![
                line(load, 0, 0, SECOND_ARGUMENT),
                line(
                    libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
                    0,
                    0,
                    FUTEX_OPERATION,
                ),
                line(equal, 2, 0, libc::FUTEX_WAIT as u32),
                line(equal, 1, 0, libc::FUTEX_WAIT_BITSET as u32),
                line(returns, 0, 0, RET_ALLOW),
            ],
            _ => Vec::new(),
        };
        let length = operation.len() as u8 + 1;
        lines.push(line(equal, 0, length, *call as u32));
        lines.extend(operation);
        lines.push(line(returns, 0, 0, RET_USER_NOTIF));
    }
    lines.push(line(returns, 0, 0, RET_ALLOW));
    let filter = libc::sock_fprog {
        len: lines.len() as u16,
        filter: lines.as_mut_ptr(),
    };
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program outlives the call, which copies it.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            NEW_LISTENER,
            &raw const filter,
        )
    };
    if listener < 0 {
        return false;
    }
    // SAFETY: the kernel has just made it, and nothing else owns it.
    let listener = unsafe { OwnedFd::from_raw_fd(listener as i32) };
    to.send((listener, done)).is_ok()
}

fn received(listener: &OwnedFd) -> Option<u64> {
    // struct seccomp_notif: its id first.
    let mut notice = [0u64; 10];
    let listener = listener.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one seccomp_notif, which the words hold.
    let got = unsafe { libc::ioctl(listener, NOTIF_RECV as _, &raw mut notice) };
    (got == 0).then_some(notice[0])
}

/// Fails the call with this errno; for `None` the kernel makes it. Returns `false` if
/// the call was interrupted meanwhile, as by a completion of a ring, and is made
/// again.
fn answer(listener: &OwnedFd, id: u64, refused: Option<i32>) -> bool {
    const CONTINUE: u32 = 1;
    // struct seccomp_notif_resp: id, value, error, flags.
    let (error, flags) = refused.map_or((0, CONTINUE), |errno| (-errno, 0));
    let (error, flags) = (u64::from(error as u32), u64::from(flags));
    let last = if cfg!(target_endian = "little") {
        flags << 32 | error
    } else {
        error << 32 | flags
    };
    let answer: [u64; 3] = [id, 0, last];
    let listener = listener.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one seccomp_notif_resp, which the words are.
    let sent = unsafe { libc::ioctl(listener, NOTIF_SEND as _, &raw const answer) };
    let error = std::io::Error::last_os_error();
    let interrupted = error.raw_os_error() == Some(libc::ENOENT);
    assert!(sent == 0 || interrupted, "{error}");
    sent == 0
}

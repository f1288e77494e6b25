//! The calls without a safe wrapper elsewhere. This room and `entry.rs` are the
//! only ones of the command with `unsafe`, each block with its SAFETY line.

mod lease;
mod loop_device;

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub use lease::WriteLease;
pub use loop_device::backing_file;

/// A signal handler. It may use only atomics, the functions of this module that
/// are async-signal-safe, and system calls.
pub type Handler = extern "C" fn(libc::c_int);

/// A handler that gets the origin of the signal (`SA_SIGINFO`).
pub type OriginHandler = extern "C" fn(libc::c_int, &libc::siginfo_t, *mut libc::c_void);

/// Sends SIGALRM after `first`, and then every `interval`; zero: never. Returns
/// the interval so far. Async-signal-safe.
pub fn set_timer(first: Duration, interval: Duration) -> Duration {
    let timeval = |time: Duration| libc::timeval {
        tv_sec: time.as_secs() as _,
        tv_usec: time.subsec_micros() as _,
    };
    let timer = libc::itimerval {
        it_interval: timeval(interval),
        it_value: timeval(first),
    };
    let mut before = timer;
    // SAFETY: setitimer(2) reads one itimerval and writes another, which are
    // valid; it is a bare system call and so fit for a signal handler.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, &raw mut before) };
    duration(before.it_interval)
}

/// Returns the time until the timer sends SIGALRM; zero: it does not.
pub fn timer_left() -> Duration {
    let mut timer = MaybeUninit::<libc::itimerval>::zeroed();
    // SAFETY: getitimer(2) writes one itimerval, which is valid for it.
    unsafe { libc::getitimer(libc::ITIMER_REAL, timer.as_mut_ptr()) };
    // SAFETY: all zeros is a valid itimerval, and the call has filled it in.
    duration(unsafe { timer.assume_init() }.it_value)
}

fn duration(time: libc::timeval) -> Duration {
    let micros = u32::try_from(time.tv_usec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), micros * 1000)
}

/// Returns the time of the monotonic clock. Async-signal-safe, unlike rustix's:
/// its first call reads the auxiliary vector, and allocates for that if
/// `prctl(PR_GET_AUXV)` is missing (before Linux 6.4) or refused.
pub fn now() -> Duration {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: clock_gettime(2) writes one timespec, which is valid for it; POSIX
    // has it among what a signal handler may call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr()) };
    // SAFETY: all zeros is a valid timespec, and the call has filled it in.
    let now = unsafe { now.assume_init() };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Returns a limit of the process; `u64::MAX` for none. `None` if a filter
/// refuses the question.
fn limit(resource: Resource) -> Option<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: getrlimit(2) writes one rlimit, which is valid for it.
    let done = unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) };
    // SAFETY: all zeros is a valid rlimit, and the call has filled it in.
    let limit = unsafe { limit.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "its width is the architecture's")]
    (done == 0).then_some(match limit.rlim_cur {
        libc::RLIM_INFINITY => u64::MAX,
        limit => limit as u64,
    })
}

/// Returns the limit of descriptor numbers: `RLIMIT_NOFILE`. `None` if a filter
/// refuses the question.
pub fn most_descriptors() -> Option<u64> {
    limit(libc::RLIMIT_NOFILE)
}

/// Returns the bytes of address space that the process may still map:
/// `RLIMIT_AS`, or `RLIMIT_DATA`, which counts writable private memory (since
/// Linux 4.7), less what it has (`/proc/self/statm` in `proc_pid_statm(5)`).
/// `None`: no limit.
pub fn addresses_left() -> Option<u64> {
    let limited = |limit: Option<u64>| limit.filter(|limit| *limit != u64::MAX);
    let limits = [
        limited(limit(libc::RLIMIT_AS)),
        limited(limit(libc::RLIMIT_DATA)),
    ];
    if limits == [None; 2] {
        return None;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let has = addresses_and_data(&statm);
    let left = |(limit, has): (Option<u64>, u64)| Some(limit?.saturating_sub(has));
    limits.into_iter().zip(has).filter_map(left).min()
}

/// Returns the first field of `/proc/self/statm`, and the sixth, in bytes; 0 if
/// they cannot be parsed.
fn addresses_and_data(statm: &str) -> [u64; 2] {
    let page = rustix::param::page_size() as u64;
    let fields: Vec<&str> = statm.split_ascii_whitespace().collect();
    [0, 5].map(|field| {
        let pages = fields.get(field).and_then(|pages| pages.parse().ok());
        pages.unwrap_or(0u64).saturating_mul(page)
    })
}

/// Has the C library use one heap for all threads. The GNU library gives each
/// thread its own, of 64 MiB of addresses (`HEAP_MAX_SIZE`, malloc/arena.c).
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes integers; no other thread of ours runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Whether a signal is ignored.
pub fn ignores(signal: libc::c_int) -> bool {
    disposition(signal) == libc::SIG_IGN
}

/// Whether a signal has its default action, as one that does not exist has.
pub fn is_by_default(signal: libc::c_int) -> bool {
    disposition(signal) == libc::SIG_DFL
}

fn disposition(signal: libc::c_int) -> libc::sighandler_t {
    let mut action = no_action();
    // SAFETY: reads the present action into a valid sigaction.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    action.sa_sigaction
}

/// Whether this thread has a signal blocked.
pub fn blocks(signal: libc::c_int) -> bool {
    let mut set = set_of(&[]);
    // SAFETY: fills in the set, which is valid for writing.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) };
    // SAFETY: reads a set that is filled in.
    unsafe { libc::sigismember(&raw const set, signal) == 1 }
}

/// Ignores a signal. Async-signal-safe.
pub fn ignore(signal: libc::c_int) {
    let mut action = no_action();
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: the action is valid; sigaction(2) is fit for a signal handler.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

/// Ends or stops this process by the default action of the signal. Returns if
/// that action does neither, or once the process continues. Async-signal-safe.
pub fn raise_by_default(signal: libc::c_int) {
    let action = no_action();
    // SAFETY: the action is valid: the default one.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    unblock(&[signal]);
    // SAFETY: takes an integer.
    unsafe { libc::raise(signal) };
}

/// Sets a handler, which runs with all signals blocked. The system call that it
/// interrupts is not restarted.
pub fn handle(signal: libc::c_int, handler: Handler) {
    install(signal, handler as libc::sighandler_t, 0);
}

/// Has a signal handled, unless it is ignored. A signal that was ignored at the
/// start stays ignored: `nohup`, and shells without job control for background
/// jobs, intend that.
pub fn handle_unless_ignored(signal: libc::c_int, handler: Handler) {
    if !ignores(signal) {
        handle(signal, handler);
    }
}

/// [`handle`] with a handler that gets the origin of the signal.
pub fn handle_with_origin(signal: libc::c_int, handler: OriginHandler) {
    install(signal, handler as libc::sighandler_t, libc::SA_SIGINFO);
}

fn install(signal: libc::c_int, handler: libc::sighandler_t, flags: libc::c_int) {
    let mut action = no_action();
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: fills in a signal set that is valid for writing.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the action is valid; what a handler may do is said with its type.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

fn no_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid sigaction: default action, empty mask.
    unsafe { std::mem::zeroed() }
}

/// Returns the set of these signals.
fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset(3) fills in the set, which is valid for writing.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was filled in above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

/// Unblocks these signals, whatever the inherited mask is.
pub fn unblock(signals: &[libc::c_int]) {
    let set = set_of(signals);
    // SAFETY: reads a set that is filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Returns a descriptor that is readable while one of these signals is pending,
/// for whatever thread. Reading it takes the signal.
pub fn pending_signals(signals: &[libc::c_int]) -> Result<OwnedFd, rustix::io::Errno> {
    let set = set_of(signals);
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: signalfd(2) reads a set that is filled in.
    let number = unsafe { libc::signalfd(-1, &raw const set, flags) };
    if number < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(rustix::io::Errno::from_raw_os_error(
            errno.unwrap_or(libc::EMFILE),
        ));
    }
    // SAFETY: the call has returned it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Runs `body` with all signals blocked. A thread that it starts keeps them
/// blocked.
pub fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset(3) fills in the set, which is valid for writing.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: reads the set filled in above, and fills in the one before.
    let blocked =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let done = body();
    // If a filter refuses the call, nothing was blocked or filled in.
    if blocked == 0 {
        // SAFETY: reads the set that the call before filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    done
}

/// Starts a detached thread with a small stack. It may use what a signal
/// handler may use.
pub fn start_plain_thread(body: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) {
    /// Four times the minimum (`PTHREAD_STACK_MIN`).
    const STACK: libc::size_t = 64 << 10;
    let mut how = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: pthread_attr_init(3) fills in the attributes.
    if unsafe { libc::pthread_attr_init(how.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: they were filled in above.
    unsafe { libc::pthread_attr_setstacksize(how.as_mut_ptr(), STACK) };
    let detached = libc::PTHREAD_CREATE_DETACHED;
    // SAFETY: as above.
    unsafe { libc::pthread_attr_setdetachstate(how.as_mut_ptr(), detached) };
    let none = std::ptr::null_mut();
    // SAFETY: all three are valid for the call; the body takes any argument.
    unsafe { libc::pthread_create(thread.as_mut_ptr(), how.as_ptr(), body, none) };
    // SAFETY: as above; they are not used any more.
    unsafe { libc::pthread_attr_destroy(how.as_mut_ptr()) };
}

/// Runs the body of a handler, and restores errno.
pub fn keeping_errno(body: impl FnOnce()) {
    // SAFETY: the address of this thread's errno is always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    body();
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// Ends the process at once. Async-signal-safe.
pub fn exit_at_once(status: libc::c_int) -> ! {
    // SAFETY: _exit(2) ends the process; it may be called anywhere.
    unsafe { libc::_exit(status) }
}

/// Returns the flags of a descriptor number, such as `FD_CLOEXEC`; `EBADF` if
/// it is not open. A filter may refuse the question.
pub fn descriptor_flags(number: RawFd) -> Result<libc::c_int, rustix::io::Errno> {
    // SAFETY: F_GETFD takes any number, and changes nothing.
    match unsafe { libc::fcntl(number, libc::F_GETFD) } {
        flags if flags < 0 => {
            let errno = std::io::Error::last_os_error().raw_os_error();
            Err(rustix::io::Errno::from_raw_os_error(
                errno.unwrap_or(libc::EBADF),
            ))
        }
        flags => Ok(flags),
    }
}

/// Returns an inherited descriptor; `EBADF` if it is not open, or if this
/// process has opened it itself.
pub fn inherited(number: RawFd) -> Result<BorrowedFd<'static>, rustix::io::Errno> {
    if descriptor_flags(number)? & libc::FD_CLOEXEC != 0 {
        return Err(rustix::io::Errno::BADF);
    }
    // SAFETY: it is open, and as it survived the exec that started us, nothing
    // in this process owns it or will close it.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Closes a file that was written to, and returns the file system's error: NFS,
/// CIFS and FUSE may find out only now that the server has no space, or the
/// user no quota (`close(2)`, NOTES).
///
/// `EINTR` is an error too: the descriptor is closed, and what the server has
/// not taken by then is unknown. The call is not made by the C library: that of
/// musl hides `EINTR`.
pub fn close(fd: OwnedFd) -> Result<(), rustix::io::Errno> {
    let number = fd.into_raw_fd();
    // SAFETY: the number was owned by `fd`, which has given it up; Linux frees
    // it whatever the call returns.
    match unsafe { libc::syscall(libc::SYS_close, number) } {
        0 => Ok(()),
        _ => match std::io::Error::last_os_error().raw_os_error() {
            None => Ok(()),
            Some(errno) => Err(rustix::io::Errno::from_raw_os_error(errno)),
        },
    }
}

/// Returns the bytes that a socket's peer has not acknowledged: `tcp(7)`,
/// `SIOCOUTQ`; 0 if that is unknown.
pub fn unsent(socket: BorrowedFd<'_>) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ on a socket, writes one int.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => bytes,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unparsable_memory_counts_as_none() {
        let page = rustix::param::page_size() as u64;
        let told = "1000 500 300 10 0 200 0\n";
        assert_eq!(addresses_and_data(told), [1000 * page, 200 * page]);
        assert_eq!(addresses_and_data(""), [0, 0]);
        assert_eq!(addresses_and_data("x\n"), [0, 0]);
        assert_eq!(addresses_and_data("7 -1"), [7 * page, 0]);
        let large = format!("{} 0 0 0 0 99999999999999999999", u64::MAX);
        assert_eq!(addresses_and_data(&large), [u64::MAX, 0]);
    }
}

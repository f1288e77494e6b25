//! System calls that fail as a kernel, a file system or a filter is known to make
//! them fail, by seccomp filters. A filter binds the thread that installs it, and
//! cannot be removed.

use std::io;

/// The calls that accept a connection. A 32-bit x86 process makes both by another one.
pub const ACCEPT: &[libc::c_long] = &[
    libc::SYS_accept4,
    #[cfg(not(target_arch = "x86"))]
    libc::SYS_accept,
];

/// `cachestat(2)`: the same number on every architecture; the libc crate has it
/// on some.
pub const CACHESTAT: libc::c_long = 451;

/// `landlock_create_ruleset(2)`: the same number on every architecture; the libc crate has it
/// on some.
pub const LANDLOCK_CREATE_RULESET: libc::c_long = 444;

/// `faccessat2(2)`: the same number on every architecture; the libc crate has it on some.
pub const FACCESSAT2: libc::c_long = 439;

/// `fcntl(2)`, as the C library makes it.
#[cfg(target_pointer_width = "64")]
pub const FCNTL: libc::c_long = libc::SYS_fcntl;
/// `fcntl(2)`, as the C library makes it.
#[cfg(not(target_pointer_width = "64"))]
pub const FCNTL: libc::c_long = libc::SYS_fcntl64;

/// `ftruncate(2)`, as the C library makes it.
#[cfg(target_pointer_width = "64")]
pub const FTRUNCATE: libc::c_long = libc::SYS_ftruncate;
/// `ftruncate(2)`, as the C library makes it.
#[cfg(not(target_pointer_width = "64"))]
pub const FTRUNCATE: libc::c_long = libc::SYS_ftruncate64;

/// `ppoll(2)`, which a 32-bit process calls with 64 bits for a time (414).
pub const PPOLL: &[libc::c_long] = if cfg!(target_pointer_width = "64") {
    &[libc::SYS_ppoll]
} else {
    &[libc::SYS_ppoll, 414]
};

/// `recvmmsg(2)`, which a 32-bit process calls with 64 bits for a time (417).
pub const RECVMMSG: &[libc::c_long] = if cfg!(target_pointer_width = "64") {
    &[libc::SYS_recvmmsg]
} else {
    &[libc::SYS_recvmmsg, 417]
};

/// `poll(2)`, as the C library makes it where it is a call of its own.
pub const POLL: &[libc::c_long] = &[
    #[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "arm"))]
    libc::SYS_poll,
];

/// `pselect6(2)`, which a 32-bit process calls with 64 bits for a time (413).
pub const SELECT: &[libc::c_long] = if cfg!(target_pointer_width = "64") {
    &[libc::SYS_pselect6]
} else {
    &[libc::SYS_pselect6, 413]
};

/// The calls that report the metadata of an open file, in the order in which they are tried. A
/// 32-bit process uses `statx(2)` first.
#[cfg(target_pointer_width = "64")]
pub const STAT: &[&[libc::c_long]] = &[
    &[libc::SYS_fstat],
    &[libc::SYS_newfstatat],
    &[libc::SYS_statx],
];
/// The calls that report the metadata of an open file.
#[cfg(not(target_pointer_width = "64"))]
pub const STAT: &[&[libc::c_long]] = &[
    &[libc::SYS_statx],
    &[libc::SYS_fstat64, libc::SYS_fstatat64],
];

/// The calls that open a file by its name.
pub const OPEN: &[libc::c_long] = &[
    // Newer architectures lack it.
    #[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "arm"))]
    libc::SYS_open,
    libc::SYS_openat,
];

/// `sendfile(2)`, with 64-bit offsets.
#[cfg(target_pointer_width = "64")]
pub const SENDFILE: libc::c_long = libc::SYS_sendfile;
/// `sendfile(2)`, with 64-bit offsets.
#[cfg(not(target_pointer_width = "64"))]
pub const SENDFILE: libc::c_long = libc::SYS_sendfile64;

/// `lseek(2)`, as the C library makes it.
#[cfg(target_pointer_width = "64")]
pub const SEEK: libc::c_long = libc::SYS_lseek;
/// `lseek(2)`, as the C library makes it.
#[cfg(not(target_pointer_width = "64"))]
pub const SEEK: libc::c_long = libc::SYS__llseek;

/// Runs `work` in a thread of its own, whose filters end with it.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Fails the calls of this thread that have these numbers. With an errno of 0 they
/// return 0 and do nothing.
pub fn refuse(calls: &[libc::c_long], errno: i32) {
    filter(calls, None, errno, 0);
}

/// Fails these calls in all threads of the process.
pub fn refuse_all(calls: &[libc::c_long], errno: i32) {
    filter(calls, None, errno, libc::SECCOMP_FILTER_FLAG_TSYNC);
}

/// Fails this call where the argument of this index has this value, a descriptor or
/// flags.
pub fn refuse_where(call: libc::c_long, index: usize, value: u32, errno: i32) {
    filter(&[call], Some((index, value)), errno, 0);
}

/// Refuses to this thread files in memory that can be executed, as `vm.memfd_noexec=2` does.
/// Returns `false`, and refuses nothing, before Linux 6.3, which has no others.
pub fn refuse_executable_memory() -> bool {
    use rustix::fs::{MemfdFlags, memfd_create};
    let old = MemfdFlags::CLOEXEC;
    let known = memfd_create(c"m", old | MemfdFlags::NOEXEC_SEAL).is_ok();
    if known {
        refuse_where(libc::SYS_memfd_create, 1, old.bits(), libc::EACCES);
    }
    known
}

fn filter(calls: &[libc::c_long], only: Option<(usize, u32)>, errno: i32, flags: libc::c_ulong) {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let give = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refused = op(give, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32);
    let allowed = op(give, 0, 0, libc::SECCOMP_RET_ALLOW);
    let mut program = Vec::new();
    if let Some((index, value)) = only {
        // The lower half of struct seccomp_data's args[index].
        let half = u32::from(cfg!(target_endian = "big")) * 4;
        program.push(op(load, 0, 0, 16 + 8 * index as u32 + half));
        program.push(op(equal, 1, 0, value));
        program.push(allowed);
    }
    program.push(op(load, 0, 0, 0));
    for call in calls {
        program.push(op(equal, 0, 1, *call as u32));
        program.push(refused);
    }
    program.push(allowed);
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: takes integers only.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: the program outlives the call, which copies it.
    let set = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const filter,
        )
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

//! Runs a program with system calls refused, as by a container's filter:
//! `refuse ERRNO CALL[,CALL...] PROGRAM [ARGUMENTS...]`.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The calls that the library has a fallback for.
const CALLS: &[(&str, libc::c_long)] = &[
    ("bpf", libc::SYS_bpf),
    ("cachestat", testkit::refuse::CACHESTAT),
    ("close_range", libc::SYS_close_range),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("eventfd2", libc::SYS_eventfd2),
    ("faccessat2", testkit::refuse::FACCESSAT2),
    ("fadvise64", libc::SYS_fadvise64),
    ("fallocate", libc::SYS_fallocate),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("kcmp", libc::SYS_kcmp),
    ("memfd_create", libc::SYS_memfd_create),
    ("openat2", libc::SYS_openat2),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("preadv2", libc::SYS_preadv2),
    ("pwritev2", libc::SYS_pwritev2),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("renameat2", libc::SYS_renameat2),
    ("sendfile", libc::SYS_sendfile),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("splice", libc::SYS_splice),
    ("statx", libc::SYS_statx),
    ("sync_file_range", libc::SYS_sync_file_range),
    ("tee", libc::SYS_tee),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("vmsplice", libc::SYS_vmsplice),
];

const ERRNOS: &[(&str, i32)] = &[
    ("EACCES", libc::EACCES),
    ("EINVAL", libc::EINVAL),
    ("ENOSYS", libc::ENOSYS),
    ("EPERM", libc::EPERM),
];

fn number<T: Copy>(table: &[(&str, T)], name: &str) -> Result<T, String> {
    match table.iter().find(|(known, _)| *known == name) {
        Some((_, number)) => Ok(*number),
        None => {
            let known: Vec<_> = table.iter().map(|(known, _)| *known).collect();
            Err(format!("{name} is none of {}", known.join(", ")))
        }
    }
}

fn run(arguments: &[String]) -> Result<std::convert::Infallible, String> {
    let [errno, calls, program, rest @ ..] = arguments else {
        return Err("usage: refuse ERRNO CALL[,CALL...] PROGRAM [ARGUMENTS...]".into());
    };
    let errno = number(ERRNOS, errno)?;
    let calls = calls.split(',').map(|call| number(CALLS, call));
    let calls = calls.collect::<Result<Vec<_>, _>>()?;
    testkit::refuse::refuse(&calls, errno);
    let error = Command::new(program).args(rest).exec();
    Err(format!("{program}: {error}"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Err(message) = run(&arguments);
    eprintln!("refuse: {message}");
    ExitCode::from(125)
}

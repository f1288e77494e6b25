//! What runs before the command.
//!
//! The runtime of the standard library is not started: for its message about
//! stack overflows it reads `/proc/self/maps`, which takes longer than copying a
//! small file. Without it, a stack overflow ends with `SIGSEGV` and no message.
//! What else it does is done here. `SIGPIPE` is ignored, standard
//! descriptors that are closed are filled, so that no file that is opened later
//! is taken for one, and a panic ends with status 101.

use std::ffi::{CStr, OsStr};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

// SAFETY: the loader calls what this section points to before `main`, with
// the C library ready; the function uses atomics and system calls alone.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    crate::endpoint::look_at_standard();
    crate::signals::look_at_sigpipe();
}

// SAFETY: the C library calls the one function of this name, with these
// arguments.
#[cfg_attr(not(test), unsafe(export_name = "main"))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn enter(count: libc::c_int, arguments: *const *const libc::c_char) -> libc::c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: so many pointers stand there, and are not changed.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count) };
    let word = |word: &*const libc::c_char| {
        // SAFETY: each is to a string that stays as it is.
        let word = unsafe { CStr::from_ptr(*word) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    };
    fill_closed();
    super::ignore(libc::SIGPIPE);
    let body = || crate::run(arguments.iter().map(word).collect());
    let status = std::panic::catch_unwind(body).unwrap_or(101);
    // The runtime would do so.
    let _ = std::io::Write::flush(&mut std::io::stdout());
    libc::c_int::from(status)
}

/// Fills each standard descriptor that is closed: an open takes the lowest
/// number. Where the limit is lower than that (`EMFILE`), no file gets it later
/// either. Else an error message could go into one: the process ends, as with the
/// runtime.
fn fill_closed() {
    let closed = crate::endpoint::standard_was_closed;
    for _ in (0..3).filter(|number| closed(*number)) {
        match crate::endpoint::placeholder() {
            Ok(filler) => {
                let _ = filler.into_raw_fd();
            }
            Err(Errno::MFILE) => {}
            Err(errno) => {
                if !closed(2) {
                    let errno = cordboard::Errno::from(errno);
                    let text = format_args!("{errno} in the place of a closed descriptor");
                    crate::problem::tell(format_args!("cordboard: {text}"));
                }
                super::exit_at_once(1);
            }
        }
    }
}

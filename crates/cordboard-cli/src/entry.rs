//! What runs before the command. This file and `sys` are the only ones with
//! `unsafe`.
//!
//! The runtime of the standard library is not started: for its message about
//! stack overflows it reads `/proc/self/maps`, which takes longer than copying a
//! small file. Without it, a stack overflow ends with `SIGSEGV` and no message.
//! The rest of its work is done here: `SIGPIPE` is ignored, closed standard
//! descriptors are replaced, so that no file opened later is taken for one, and a
//! panic ends with status 101.

use std::ffi::{CStr, OsStr};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use crate::inherited::{placeholder, record, was_closed};
use crate::output::print_line;
use crate::run::run;
use crate::sys;

// SAFETY: the loader calls what this section points to before `main`, with
// the C library ready; the function uses only atomics and system calls.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    record();
}

// SAFETY: the C library calls the one function of this name, with these
// arguments.
#[cfg_attr(not(test), unsafe(export_name = "main"))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn enter(count: libc::c_int, arguments: *const *const libc::c_char) -> libc::c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the array holds this number of pointers, which do not change.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count) };
    let word = |word: &*const libc::c_char| {
        // SAFETY: each points to a string that does not change.
        let word = unsafe { CStr::from_ptr(*word) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    };
    replace_closed();
    sys::ignore(libc::SIGPIPE);
    let body = || run(arguments.iter().map(word).collect());
    let status = std::panic::catch_unwind(body).unwrap_or(101);
    // As the runtime does.
    let _ = std::io::Write::flush(&mut std::io::stdout());
    libc::c_int::from(status)
}

/// Opens a placeholder for each standard descriptor that is closed: an open takes
/// the lowest number. If the limit is lower than that (`EMFILE`), no file gets the
/// number later either. On any other error, an error message could go into a
/// file: the process ends, as with the runtime.
fn replace_closed() {
    for _ in (0..3).filter(|number| was_closed(*number)) {
        match placeholder() {
            Ok(filler) => {
                let _ = filler.into_raw_fd();
            }
            Err(Errno::MFILE) => {}
            Err(errno) => {
                if !was_closed(2) {
                    let errno = cordboard::Errno::from(errno);
                    print_line(format_args!(
                        "cordboard: {errno} opening a placeholder for a closed standard descriptor"
                    ));
                }
                sys::exit_at_once(1);
            }
        }
    }
}

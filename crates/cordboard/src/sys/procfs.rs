//! The kernel's release, and numbers in files of procfs.
//!
//! A file under `/proc/sys` returns its number to the first read only
//! (`do_proc_dointvec` in kernel/sysctl.c: nothing past offset 0), so a second
//! read cannot complete a short one. The first digits of a number would be
//! another number, so only text that ends with its newline counts.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the kernel's release, such as `6.1.0-13-amd64`: `uname(2)`. `None`:
/// a filter refuses the call, which other wrappers assume cannot fail.
pub(crate) fn release() -> Option<String> {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: uname(2) writes one utsname, which is valid for it.
    let done = unsafe { libc::uname(name.as_mut_ptr()) };
    // SAFETY: all zeros is a valid utsname, and the call has filled it in.
    let name = unsafe { name.assume_init() };
    let text = (name.release.iter()).map_while(|c| (*c != 0).then_some(char::from(*c as u8)));
    (done == 0).then(|| text.collect())
}

/// Returns the number that is the whole content of this file; `None` for any
/// other content.
pub(crate) fn number(file: &str) -> Option<usize> {
    whole(&std::fs::read_to_string(file).ok()?)
}

fn whole(text: &str) -> Option<usize> {
    text.strip_suffix('\n')?.trim().parse().ok()
}

/// Returns the value of the line that begins with this name, as a hexadecimal
/// number.
pub(crate) fn hexadecimal(file: &str, name: &str) -> Option<u64> {
    line(&std::fs::read_to_string(file).ok()?, name)
}

/// Returns the position of an open file, without a wait for the lock that a read or write
/// of another process holds: `proc_pid_fdinfo(5)`, since Linux 2.6.22.
pub(crate) fn position(fd: BorrowedFd<'_>) -> Option<u64> {
    of_descriptor(fd, "pos:")
}

/// Returns the number of the mount of an open file, as mountinfo lists it:
/// `proc_pid_fdinfo(5)`, since Linux 3.15.
pub(crate) fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    of_descriptor(fd, "mnt_id:")
}

fn of_descriptor(fd: BorrowedFd<'_>, name: &str) -> Option<u64> {
    let file = format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd());
    value(&std::fs::read_to_string(file).ok()?, name)?
        .parse()
        .ok()
}

fn line(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(value(text, name)?, 16).ok()
}

fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.split_inclusive('\n');
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    Some(value.strip_suffix('\n')?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_release_of_this_kernel() {
        let told = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(release().as_deref(), told.strip_suffix('\n'));
    }

    #[test]
    fn the_position_of_a_file() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(position(file.as_fd()), Some(0));
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(12_345)).unwrap();
        assert_eq!(position(file.as_fd()), Some(12_345));
    }

    #[test]
    fn a_number_that_is_cut_short_is_none() {
        assert_eq!(whole("1048576\n"), Some(1_048_576));
        assert_eq!(whole(" 0 \n"), Some(0));
        for length in 0.."1048576\n".len() {
            assert_eq!(whole(&"1048576\n"[..length]), None);
        }
        for odd in ["\n", "-1\n", "1 2\n", "0x10\n", "99999999999999999999999\n"] {
            assert_eq!(whole(odd), None, "{odd:?}");
        }
        assert_eq!(number("/nowhere"), None);
        assert_eq!(number("/proc/self/exe"), None, "no text");
    }

    #[test]
    fn a_line_that_is_cut_short_is_none() {
        let text = "pos:\t0\neventfd-count:       1f\nSigPnd:\t0000000000002000\n";
        assert_eq!(line(text, "eventfd-count:"), Some(31));
        assert_eq!(line(text, "SigPnd:"), Some(1 << 13));
        for length in 0..text.len() {
            assert_eq!(line(&text[..length], "SigPnd:"), None);
        }
        for odd in [
            "a:\n",
            "a: x\n",
            "a: -1\n",
            "a: 1 2\n",
            "b\na: fffffffffffffffff\n",
        ] {
            assert_eq!(line(odd, "a:"), None, "{odd:?}");
        }
    }
}

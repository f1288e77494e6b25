//! A sink whose bytes are discarded.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, Stat, major, minor};
use rustix::io::Errno;

/// Opens `/dev/null`. If that is another file, as in a `chroot` without
/// devices: a file in memory, which is freed when it is closed.
///
/// # Errors
///
/// As `memfd_create(2)`.
pub fn discard_sink() -> Result<OwnedFd, Errno> {
    // Checked before it is opened, and again afterwards.
    if rustix::fs::stat("/dev/null").is_ok_and(|stat| is_null(&stat)) {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::open("/dev/null", flags, Mode::empty());
        if let Some(null) = opened.ok().filter(|null| {
            let stat = cordboard::fstat(null);
            stat.is_ok_and(|stat| is_null(&stat))
        }) {
            return Ok(null);
        }
    }
    cordboard::memory_file(c"nowhere")
}

/// The character device 1:3 (Documentation/admin-guide/devices.txt).
fn is_null(stat: &Stat) -> bool {
    let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && (major, minor) == (1, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_null_device_is_accepted() {
        let stat = |path: &str| rustix::fs::stat(path).unwrap();
        assert!(is_null(&stat("/dev/null")));
        for other in ["/dev/zero", "/proc/self/exe", "/"] {
            assert!(!is_null(&stat(other)), "{other}");
        }
    }
}

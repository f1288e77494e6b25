//! Whether an open file keeps its device and inode.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, fstatfs};

use super::filesystem::Filesystem;
use crate::sys::fstat;

/// Returns whether `fstat(2)` of this open file always returns the same device and inode, and
/// waits for no server. This call itself may wait for one.
///
/// Public for the C library only; not part of the API.
pub fn keeps_its_identity(fd: BorrowedFd<'_>) -> bool {
    match fstatfs(fd).as_ref().map(Filesystem::of) {
        Ok(found) => found.is_of_kernel() || found.keeps_identities(),
        // A filter refuses the call.
        Err(_) => fstat(fd).is_ok_and(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            matches!(kind, FileType::Fifo | FileType::Socket)
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn pipes_and_sockets_keep_theirs() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let ends = [reader.as_fd(), socket.as_fd()];
        assert!(ends.into_iter().all(keeps_its_identity));
        assert!(!keeps_its_identity(
            std::fs::File::open("/proc/self/stat").unwrap().as_fd()
        ));
        // 32 bits have another call.
        if cfg!(target_pointer_width = "64") {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_fstatfs], libc::EPERM);
                assert!(ends.into_iter().all(keeps_its_identity));
                assert!(!keeps_its_identity(null.as_fd()));
            });
        }
    }
}

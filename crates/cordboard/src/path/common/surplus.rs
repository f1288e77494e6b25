//! Releases blocks past the end of a file that were reserved and not needed.
//!
//! `ftruncate(2)` to the file's own length would release them. But another
//! process may have lengthened the file between `fstat(2)` and that call, and
//! its bytes would be lost. On ext4, a direct write past the end that fails
//! releases them under the lock that all writers take, and at the length that
//! the file then has (`ext4_dio_write_iter`, `ext4_truncate_failed_write`,
//! fs/ext4; since Linux 5.5).

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::OFlags;

use crate::endpoint::{direct_alignment, reopen};
use crate::errno::Errno;
use crate::sys;

/// Releases the blocks past the end of a file on ext4.
pub(crate) fn give_back(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // Nothing is written, whether or not another process lengthens the file.
    let own = reopen(fd, OFlags::WRONLY | OFlags::DIRECT)?;
    // Without direct I/O, a write that fails could lengthen the file up to the
    // offset of the write (seen with Linux 6.18).
    let alignment = direct_alignment(own.as_fd()).ok_or(Errno::EOPNOTSUPP)?;
    let block = u64::from(alignment.offset.max(4096));
    let size = sys::fstat(&own)?.st_size as u64;
    match sys::write_unreadable(own.as_fd(), size.next_multiple_of(block), block as usize) {
        Errno::EFAULT => Ok(()),
        errno => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use rustix::fs::FallocateFlags;

    use super::*;
    use crate::endpoint::Endpoint;

    #[test]
    fn only_what_is_behind_the_end_is_given_back() {
        let file = tempfile::tempfile().unwrap();
        let end = Endpoint::probe(file.as_fd()).unwrap();
        if !(end.facts().filesystem).is_some_and(|fs| fs.reserves_by_page()) {
            return testkit::skip::report("give_back", "temporary files are not on ext4");
        }
        let blocks = || file.metadata().unwrap().blocks() * 512;
        for length in [0u64, 1, 4096, 5000, (1 << 20) - 1] {
            file.set_len(0).unwrap();
            let bytes: Vec<u8> = (0..length).map(|n| n as u8 | 1).collect();
            file.write_all_at(&bytes, 0).unwrap();
            let keep = FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, keep, 0, 64 << 20).unwrap();
            assert!(blocks() >= 64 << 20);
            give_back(file.as_fd()).unwrap();
            let most = length.next_multiple_of(4096) + 16_384;
            assert!(blocks() <= most, "{length}: {}", blocks());
            assert_eq!(file.metadata().unwrap().len(), length);
            let mut found = vec![0; bytes.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == bytes, "{length}");
        }
    }

    /// Bytes that another process has written past the earlier end.
    #[test]
    fn what_is_written_there_stays() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 20_000], 0).unwrap();
        for synced in [false, true] {
            if synced {
                file.sync_all().unwrap();
            }
            let Ok(own) = reopen(file.as_fd(), OFlags::WRONLY | OFlags::DIRECT) else {
                return testkit::skip::report("give_back", "no direct I/O for temporary files");
            };
            for at in [0, 8192, 16_384] {
                let errno = sys::write_unreadable(own.as_fd(), at, 4096);
                assert_eq!(errno, Errno::EFAULT);
            }
            let mut found = [0; 20_001];
            assert_eq!(file.read_at(&mut found, 0).unwrap(), 20_000);
            assert!(found[..20_000] == [7; 20_000]);
        }
    }
}

//! `copy_file_range(2)`: the kernel copies between two files of one file
//! system, or lets the file system or its server do so. Used since Linux 5.3;
//! before, results could be wrong (man page, BUGS).

use crate::endpoint::{CloneAbility, Side};
use crate::errno::Errno;
use crate::pair::{Capabilities, Pair, forget_for_ever};
use crate::path::common::checks::{UNPAGED, blame, both_files, needs_room};
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::{Takes, Verdict};
use crate::request::Sparse;
use crate::request::{DataPath, Why};

/// Bytes of the first call: few enough that cancelling and progress take effect
/// within a fraction of a second on the slowest disks.
const FIRST: usize = 8 << 20;
/// Each call requests twice as many bytes as the one before, unless other
/// transfers share the thread, up to this. Still about a second on the slowest
/// disks, and well below the 2 GiB at which glibc 2.41's wrapper failed and the
/// 2^63 that gives EOVERFLOW.
const LARGEST: usize = 64 << 20;

/// Accepts two files on one file system, neither in direct mode.
pub(crate) fn takes(pair: &Pair<'_>, can: &Capabilities) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    both_files(source, sink)?;
    if !can.copy_file_range {
        return Err(Errno::ENOSYS.into());
    }
    if sink.append {
        // EBADF, generic_copy_file_checks in fs/read_write.c.
        return Err(Errno::EBADF.into());
    }
    if source.is_direct() || sink.is_direct() {
        return Err("direct I/O needs aligned buffers".into());
    }
    if source.unpaged {
        // If the server cannot copy, the kernel splices.
        return Err(UNPAGED.into());
    }
    if source.size == Some(0) && !source.has_true_size() {
        // Returns 0 on files that do not report their size (procfs, FUSE).
        return Err("the source's size is unknown".into());
    }
    if source.filesystem != sink.filesystem {
        // Since Linux 5.19 only within one type of file system. Before, slower
        // than sendfile.
        return Err(Errno::EXDEV.into());
    }
    let apart = matches!((source.id, sink.id), (Some(a), Some(b)) if a.device != b.device);
    if apart
        && source
            .filesystem
            .is_some_and(|fs| fs.keeps_copies_to_itself())
    {
        // Two file systems of one type: fails the same way, before the sink is
        // touched.
        return Err(Errno::EXDEV.into());
    }
    let clones = source
        .filesystem
        .is_none_or(|fs| fs.clone_ability() == CloneAbility::Perhaps);
    match pair.request.sparse {
        Sparse::Auto => {}
        Sparse::Always => return Err("the request turns blocks of zeros into holes".into()),
        Sparse::Never if clones => return Err("the request fills the source's holes".into()),
        Sparse::Never => {}
    }
    Ok("two files on one file system")
}

/// | errno | verdict | evidence |
/// |---|---|---|
/// | `EXDEV` | declined | old kernels and different file systems: toybox#382 |
/// | `EOPNOTSUPP` | declined | NFS: go#40731 |
/// | `EINVAL` | declined | overlapping ranges, files that are not regular |
/// | `EBADF` | declined | `O_APPEND`, also when set after open: rust#82417 |
/// | `ETXTBSY` | declined | swap file |
/// | `EAGAIN` | declined: a retry could loop without end | non-standard file systems; files are never polled |
/// | `ENOSYS` | declined for the life of the process | no such call |
/// | `EPERM`, `EACCES`, `ENOENT`, `EIO` | declined if nothing has moved | seccomp go#40893, old CephFS, CIFS go#42334 |
/// | `ENOSPC`, `EDQUOT`, `EFBIG`, `ENOMEM`, `ENOBUFS` | declined: may be of either side | `needs_room` in `path/common/checks.rs` |
/// | `EOVERFLOW` | declined | huge offsets (`generic_copy_file_checks`, fs/read_write.c) |
/// | anything else | failed | |
#[derive(Default)]
pub(crate) struct CopyFileRange {
    moved: bool,
    piece: usize,
}

impl Step for CopyFileRange {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let largest = if flow.mode.shares_thread() {
            FIRST
        } else {
            LARGEST
        };
        self.piece = (self.piece * 2).clamp(FIRST, largest);
        // Without a claim, the kernel would write at a position that another process moves:
        // it holds no lock meanwhile.
        let Some(length) = flow.claim_to_write(|flow| flow.want(self.piece)) else {
            return Verdict::Ended;
        };
        let (source, sink) = (flow.source.fd(), flow.sink.fd());
        let offset = flow.offset_to_read();
        let (mut from, mut to) = (offset, flow.sink.cursor.place());
        let done = rustix::fs::copy_file_range(source, from.as_mut(), sink, to.as_mut(), length);
        match done.map_err(Errno::from) {
            // The end, or a file with a wrong size: the transfer checks which.
            Ok(0) => Verdict::Ended,
            Ok(n) => {
                self.moved = true;
                flow.was_read(offset, n as u64);
                flow.sink.cursor.advance(n as u64);
                flow.carried(n as u64)
            }
            Err(Errno::EINTR) => flow.was_interrupted(Side::Sink),
            Err(errno) => match refused(errno, self.moved) {
                Some(why) => Verdict::Declined(why),
                None => blame(flow, errno),
            },
        }
    }
}

/// Returns the reason if this errno refuses the call as a whole.
fn refused(errno: Errno, moved: bool) -> Option<Why> {
    match errno {
        Errno::ENOSYS => forget_for_ever(DataPath::CopyFileRange),
        Errno::EXDEV | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EBADF | Errno::ETXTBSY => {}
        // A file cannot be polled.
        Errno::EAGAIN | Errno::EOVERFLOW => {}
        Errno::EPERM | Errno::EACCES | Errno::ENOENT | Errno::EIO if !moved => {}
        errno if needs_room(errno) => {}
        _ => return None,
    }
    Some(errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Facts, FileId, Filesystem, Kind};
    use crate::request::Request;

    #[test]
    fn two_file_systems_of_one_type_are_two() {
        let on = |magic, device| Facts {
            id: Some(FileId { device, inode: 1 }),
            filesystem: Some(Filesystem(magic)),
            size: Some(1),
            ..Facts::plain(Kind::File)
        };
        let can = Capabilities {
            copy_file_range: true,
            ..Capabilities::none()
        };
        let (ext4, tmpfs, xfs, btrfs, nfs) =
            (0xEF53, 0x0102_1994, 0x5846_5342, 0x9123_683E, 0x6969);
        for (magic, across) in [
            (ext4, false),
            (tmpfs, false),
            (xfs, false),
            // btrfs: subvolumes of one file system; NFS: two mounts.
            (btrfs, true),
            (nfs, true),
        ] {
            let (source, request) = (on(magic, 1), Request::default());
            for (device, right) in [(1, true), (2, across)] {
                let sink = on(magic, device);
                let found = takes(&Pair::new(&source, &sink, &request), &can);
                assert_eq!(found.is_ok(), right, "{magic:x} {device}: {found:?}");
            }
        }
    }

    /// Case 49: an EIO in mid-stream is a failure, not a reason to fall back.
    #[test]
    fn only_a_path_that_has_consumed_nothing_hands_over() {
        assert!(refused(Errno::EIO, false).is_some());
        assert!(refused(Errno::EIO, true).is_none());
        assert!(refused(Errno::EXDEV, true).is_some());
        // A retry could give the same forever.
        assert!(refused(Errno::EAGAIN, true).is_some());
        assert!(refused(Errno::EOVERFLOW, true).is_some());
        // Perhaps caused by the source.
        assert!(refused(Errno::ENOSPC, true).is_some());
        assert!(refused(Errno::EROFS, false).is_none());
    }
}

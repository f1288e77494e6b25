//! `FICLONERANGE` and `FICLONE`: the sink shares the source's blocks, and no byte
//! is copied. Since Linux 4.5; on btrfs, xfs, bcachefs, ocfs2, overlayfs over
//! these, NFS 4.2, CIFS, and OpenZFS 2.2. The switches can turn this path off. The
//! zeros of openzfs#15526, which were ascribed to clones, come from false holes: see
//! `common/hole_check.rs`.
//!
//! References: `ioctl_ficlonerange(2)`.

use crate::endpoint::{CloneAbility, Side};
use crate::errno::Errno;
use crate::pair::Pair;
use crate::path::common::checks::both_files;
use crate::path::flow::{Flow, SHORT_BURSTS};
use crate::path::step::Step;
use crate::path::verdict::{Takes, Verdict};
use crate::request::Sparse;
use crate::sys;

const ALSO_READ: &str = "another process reads the source too";

/// Accepts two files on a file system that may support clones.
pub(crate) fn takes(pair: &Pair<'_>) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    both_files(source, sink)?;
    if sink.append {
        // EBADF, remap_verify_area in fs/remap_range.c.
        return Err(Errno::EBADF.into());
    }
    match pair.request.sparse {
        Sparse::Auto => {}
        Sparse::Always => return Err("the request turns blocks of zeros into holes".into()),
        Sparse::Never => return Err("the request fills the source's holes".into()),
    }
    if source.size == Some(0) && !source.has_true_size() {
        return Err("the source's size is unknown".into());
    }
    for facts in [source, sink] {
        if facts
            .filesystem
            .is_some_and(|fs| fs.clone_ability() == CloneAbility::Never)
        {
            return Err(Errno::EOPNOTSUPP.into());
        }
    }
    if source.filesystem != sink.filesystem {
        return Err(Errno::EXDEV.into());
    }
    Ok("the file system may share blocks: no data is copied")
}

/// Clones in one step. Every refusal declines: a failed clone has moved no
/// position and counts nothing. It may have mapped a part of the sink (btrfs and
/// xfs without space), which the next path overwrites.
///
/// | errno | why | evidence |
/// |---|---|---|
/// | `EOPNOTSUPP`, `ENOTTY` | the file system has no clones | ext4, tmpfs; vfat |
/// | `EXDEV` | another file system | `ioctl_ficlonerange(2)` |
/// | `EINVAL` | not on block boundaries; or overlapping ranges of one file | as above |
/// | `EPERM` | immutable sink, or a seccomp filter | as above |
/// | `ETXTBSY` | swap file | as above |
/// | `ENOSPC`, `EDQUOT` | no space for the metadata | btrfs, xfs |
#[derive(Default)]
pub(crate) struct Clone {
    cloned: bool,
    /// The file system's block, of which a part of the file is a multiple.
    block: u64,
}

impl Step for Clone {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let stat = match sys::fstat(flow.source.fd()) {
            Ok(stat) => stat,
            Err(errno) => return Verdict::Declined(Errno::from(errno).into()),
        };
        let size = stat.st_size as u64;
        let length = match flow.source.place() {
            Ok(from) => size.saturating_sub(from).min(flow.allowance.remaining()),
            Err(errno) => return Verdict::Declined(errno.into()),
        };
        if length == 0 && (self.cloned || flow.source.facts().has_true_size()) {
            return Verdict::Ended;
        }
        if length == 0 {
            return Verdict::Declined("the source's size is unknown".into());
        }
        let asked = std::mem::replace(&mut self.block, (stat.st_blksize as u64).max(1));
        let length = match flow.allowance.now() {
            granted if granted < length && flow.allowance.is_less_than(asked) => {
                return Verdict::Declined(SHORT_BURSTS.into());
            }
            // Within a grant of a schedule, in pieces.
            granted if granted < length => granted / self.block * self.block,
            _ => length,
        };
        if length == 0 {
            return Verdict::Moved(0);
        }
        let Some(claimed) = flow.claim_found(length, size) else {
            return Verdict::Declined(ALSO_READ.into());
        };
        let (from, to) = match (flow.source.place(), flow.sink.place()) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(errno), _) | (_, Err(errno)) => return Verdict::Declined(errno.into()),
        };
        // Other processes may use the sink behind an earlier claim. A clone of less than asked
        // for ends with a whole block, unless the source ends there.
        let length = match claimed < length && from + claimed < size {
            true => claimed / self.block * self.block,
            false => claimed.min(length),
        };
        if length == 0 {
            return Verdict::Declined("the claimed range is less than a block".into());
        }
        // Another process has read some of it meanwhile. A length of 0 would mean
        // up to the end of file.
        if from + length > size {
            return Verdict::Declined(ALSO_READ.into());
        }
        let empty = sys::fstat(flow.sink.fd()).is_ok_and(|sink| sink.st_size == 0);
        // An exact length gives an exact count: if the file grows meanwhile, a
        // length that ends off a block boundary is EINVAL.
        let ranged = sys::clone_range(flow.source.fd(), from, length, flow.sink.fd(), to);
        let whole_file = from == 0 && to == 0 && length == size && flow.allowance.is_endless();
        // The file may have grown: the whole of it may be more than the schedule permits.
        let whole_file = whole_file && !flow.allowance.is_paced();
        let cloned = match ranged {
            Ok(()) => Ok(length),
            // OpenZFS has refused FICLONERANGE where it accepted FICLONE, and vice
            // versa. Only if no size was given and the sink is empty.
            Err(_) if whole_file && empty => whole(flow, length),
            Err(errno) => Err(errno),
        };
        let length = match cloned {
            Ok(length) => length,
            Err(Errno::EINTR) => return flow.was_interrupted(Side::Sink),
            Err(errno) => return Verdict::Declined(errno.into()),
        };
        // A clone moves neither position.
        if let Err(errno) = flow.source.move_by(length as i64) {
            return Verdict::Failed(Side::Source, errno);
        }
        if let Err(errno) = flow.sink.move_by(length as i64) {
            // Nothing is counted, so the source must not stay advanced.
            let _ = flow.source.move_by(-(length as i64));
            return Verdict::Failed(Side::Sink, errno);
        }
        self.cloned = true;
        flow.took(length);
        flow.gave(length);
        Verdict::Moved(length)
    }

    fn unit(&self) -> u64 {
        self.block
    }
}

/// `FICLONE` into an empty sink. Returns the number of bytes cloned: the source's
/// length may have changed, and xfs returns 0 for a partial clone (no space).
///
/// # Errors
///
/// `ENOSPC`: nothing was cloned of a source that has bytes.
fn whole(flow: &Flow<'_>, size: u64) -> Result<u64, Errno> {
    sys::clone_file(flow.source.fd(), flow.sink.fd())?;
    let made = sys::fstat(flow.sink.fd()).map_or(size, |made| made.st_size as u64);
    let is_empty = || sys::fstat(flow.source.fd()).is_ok_and(|source| source.st_size == 0);
    match made == 0 && !is_empty() {
        true => Err(Errno::ENOSPC),
        false => Ok(made),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::{Request, Transfer};

    /// The sink's position is past a range that an earlier path has claimed. Other processes
    /// write behind it.
    #[test]
    fn nothing_is_cloned_behind_a_claim_that_stays() {
        let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        source.set_len(1 << 20).unwrap();
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
        let flow = &mut transfer.flow;
        assert_eq!(flow.claim_sink(100), 100);
        let declined = Verdict::Declined("the claimed range is less than a block".into());
        assert_eq!(Clone::default().step(flow), declined);
        assert_eq!(sink.metadata().unwrap().len(), 0);
    }
}

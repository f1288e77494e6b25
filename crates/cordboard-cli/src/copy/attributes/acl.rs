//! `-p`: access control lists, without which a mode does not mean the same.
//!
//! Where a file has one, the group bits of its mode are the list's mask, the
//! most that anybody named in it may do, and what its group may do stands in
//! the list (acl(5)). A mode that comes without its list, or to a file with
//! another one, would let in whom the source keeps out.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use cordboard::Side;
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;

use super::value::whole;
use crate::signals::retry;

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

/// What could not be set or read: the mode, or a list. Of a failure, the side and the
/// errno.
pub type Kept = Result<(), (What, Side, Errno)>;

/// An attribute, as it is named.
pub type What = &'static str;

const LIST: What = "access control list";
const MODE: What = "mode";

/// Whether this attribute is one of the lists: by its name, or by the name under
/// which xfs stores it and shows it a second time (`__xfs_xattr_put_listent`,
/// fs/xfs/xfs_xattr.c).
pub fn is_list(name: &CStr) -> bool {
    [ACCESS, DEFAULT].contains(&name)
        || [c"trusted.SGI_ACL_FILE", c"trusted.SGI_ACL_DEFAULT"].contains(&name)
}

/// Gives a file the lists of its source, or none where that has none; a new
/// file may have got some from its directory. Returns the mode that the file
/// may then be given in place of the source's, and why a list is not there.
pub fn keep(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    mode: u32,
    directory: bool,
) -> (u32, Kept) {
    let inherited = match directory {
        true => default(source, sink),
        false => Ok(()),
    };
    let (mut allowed, mut done) = match read(source, ACCESS) {
        Ok(Some(list)) => match set(sink, ACCESS, &list) {
            Ok(()) => return (mode, inherited),
            Err(errno) => {
                let refused = |mode| (mode, Err((LIST, Side::Sink, errno)));
                without(mode, &list).map_or((mode, Ok(())), refused)
            }
        },
        Ok(None) => (mode, Ok(())),
        Err(errno) => (mode & !0o070, Err((LIST, Side::Source, errno))),
    };
    if let Err((what, errno)) = remove(sink) {
        // They would be the mask of the one that is still there.
        allowed &= !0o070;
        done = done.and(Err((what, Side::Sink, errno)));
    }
    (allowed, done.and(inherited))
}

/// What a directory hands on to what is made in it.
fn default(source: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> Kept {
    let writing = |errno| (LIST, Side::Sink, errno);
    let done = match read(source, DEFAULT) {
        Ok(Some(list)) => match set(sink, DEFAULT, &list) {
            Ok(()) => return Ok(()),
            refused => refused.map_err(writing),
        },
        Ok(None) => Ok(()),
        Err(errno) => Err((LIST, Side::Source, errno)),
    };
    done.and(take_away(sink, DEFAULT).map_err(writing))
}

/// Takes the list away without letting anybody in: what its mask was would be
/// what the group may do.
fn remove(sink: BorrowedFd<'_>) -> Result<(), (What, Errno)> {
    // What else is wrong, the calls below tell. A filter that has no such call
    // (`ENOSYS`) does not say that there is none.
    if let Err(Errno::NODATA | Errno::OPNOTSUPP) = there(sink, ACCESS) {
        return Ok(());
    }
    let mode = |errno| (MODE, errno);
    let now = retry(|| rustix::fs::fstat(sink)).map_err(mode)?.st_mode;
    retry(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(now & 0o700))).map_err(mode)?;
    take_away(sink, ACCESS).map_err(|errno| (LIST, errno))
}

fn there(sink: BorrowedFd<'_>, name: &CStr) -> Result<usize, Errno> {
    let mut nothing = [0u8; 0];
    retry(|| rustix::fs::fgetxattr(sink, name, &mut nothing[..]))
}

/// There is none any more: xattr(7) and removexattr(2) have `ENODATA` where
/// there was none, and `EOPNOTSUPP` where there is never one. A filter that has none
/// of these calls (`ENOSYS`) hides what there is, as it does of the source.
fn take_away(sink: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match retry(|| rustix::fs::fremovexattr(sink, name)) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::NOSYS) => match there(sink, name) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            _ => Err(Errno::NOSYS),
        },
        removed => removed,
    }
}

fn read(source: BorrowedFd<'_>, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    match whole(|buffer| rustix::fs::fgetxattr(source, name, buffer)) {
        Ok(list) => Ok(Some(list)),
        // As above.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn set(sink: BorrowedFd<'_>, name: &CStr, list: &[u8]) -> Result<(), Errno> {
    retry(|| rustix::fs::fsetxattr(sink, name, list, XattrFlags::empty()))
}

/// The mode of a file that has to do without this list: its group may do what
/// it could with it. `None` if the list says no more than the mode does.
fn without(mode: u32, list: &[u8]) -> Option<u32> {
    // linux/posix_acl_xattr.h: a version, 2, then tag, bits and id of each.
    let (mut group, mut mask) = (0, None);
    for entry in list.get(4..).unwrap_or_default().chunks_exact(8) {
        let bits = u32::from(u16::from_le_bytes([entry[2], entry[3]])) & 7;
        match u16::from_le_bytes([entry[0], entry[1]]) {
            0x04 => group = bits,
            0x10 => mask = Some(bits),
            _ => {}
        }
    }
    // There is a mask wherever somebody is named.
    mask.map(|mask| mode & !0o070 | (group & mask) << 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_without_its_list() {
        let list = |entries: &[[u16; 2]]| {
            let mut bytes = 2u32.to_le_bytes().to_vec();
            for [tag, bits] in entries {
                bytes.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
                bytes.extend(u32::MAX.to_le_bytes());
            }
            bytes
        };
        let plain = list(&[[1, 6], [4, 4], [0x20, 0]]);
        assert_eq!(without(0o640, &plain), None);
        let named = |group, mask| list(&[[1, 6], [2, 6], [4, group], [0x10, mask], [0x20, 4]]);
        assert_eq!(without(0o4664, &named(0, 6)), Some(0o4604));
        assert_eq!(without(0o644, &named(6, 4)), Some(0o644));
    }
}

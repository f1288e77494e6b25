//! `-p`: access control lists, without which a mode has another meaning.
//!
//! If a file has a list, the group bits of its mode are the mask of the list,
//! which limits all named users and groups, and the permissions of its group
//! are in the list (acl(5)). A mode without its list, or on a file with another
//! list, would give users access that the source denies.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use cordboard::Side;
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;

use super::value::read_value;
use crate::signals::retry;

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";
const SACL: &CStr = c"system.nfs4_sacl";
/// An NFSv4 list (RFC 7530, 6.2): that of a server of NFS, since Linux 5.18 also in two parts
/// (fs/nfs/nfs4proc.c), that of ZFS on TrueNAS, and those of kernels with patches
/// (`/etc/xattr.conf` of libattr).
const NFS4: [&CStr; 6] = [
    c"system.nfs4_acl",
    c"system.nfs4_dacl",
    SACL,
    c"system.nfs4_acl_xdr",
    c"system.nfs4acl",
    c"system.richacl",
];

/// The result; of a failure, the attribute that could not be set or read, the
/// side and the errno.
pub type ListResult = Result<(), (What, Side, Errno)>;

/// The name of an attribute, for messages.
pub type What = &'static str;

pub(super) const LIST: What = "access control list";
const MODE: What = "mode";

/// Whether this attribute is an NFSv4 list. The list alone has the permissions, and a server
/// derives the mode from it. A change of the mode, even to the same mode, may discard the list
/// (`aclmode=discard` of ZFS) or restrict its entries (RFC 7530, 6.4.1.1).
pub fn is_nfs4_list(name: &CStr) -> bool {
    NFS4.contains(&name)
}

/// Whether this NFSv4 list determines permissions: a `sacl` has entries for audits and alarms.
pub fn permits(name: &CStr) -> bool {
    name != SACL
}

/// Whether this attribute is one of the POSIX lists: by its name, or by the name
/// under which xfs stores it and shows it a second time
/// (`__xfs_xattr_put_listent`, fs/xfs/xfs_xattr.c).
pub fn is_list(name: &CStr) -> bool {
    [ACCESS, DEFAULT].contains(&name)
        || [c"trusted.SGI_ACL_FILE", c"trusted.SGI_ACL_DEFAULT"].contains(&name)
}

/// Gives a file the lists of its source, or none if the source has none; a new
/// file may have inherited some from its directory. Returns the mode that the
/// file may then be given, and why a list is missing.
pub fn preserve(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    mode: u32,
    directory: bool,
) -> (u32, ListResult) {
    let inherited = match directory {
        true => copy_default(source, sink),
        false => Ok(()),
    };
    let (mut allowed, mut done) = match read(source, ACCESS) {
        Ok(Some(list)) => match set(sink, ACCESS, &list) {
            Ok(()) => return (mode, inherited),
            Err(errno) => {
                let refused = |mode| (mode, Err((LIST, Side::Sink, errno)));
                mode_without_list(mode, &list).map_or((mode, Ok(())), refused)
            }
        },
        Ok(None) => (mode, Ok(())),
        Err(errno) => (mode & !0o070, Err((LIST, Side::Source, errno))),
    };
    if let Err((what, errno)) = remove_list(sink) {
        // The group bits would be the mask of the remaining list.
        allowed &= !0o070;
        done = done.and(Err((what, Side::Sink, errno)));
    }
    (allowed, done.and(inherited))
}

/// The list that new files in a directory inherit.
fn copy_default(source: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> ListResult {
    let writing = |errno| (LIST, Side::Sink, errno);
    let done = match read(source, DEFAULT) {
        Ok(Some(list)) => match set(sink, DEFAULT, &list) {
            Ok(()) => return Ok(()),
            refused => refused.map_err(writing),
        },
        Ok(None) => Ok(()),
        Err(errno) => Err((LIST, Side::Source, errno)),
    };
    done.and(remove_attribute(sink, DEFAULT).map_err(writing))
}

/// Removes the list. Its mask must not become the permissions of the group.
fn remove_list(sink: BorrowedFd<'_>) -> Result<(), (What, Errno)> {
    // The calls below report other errors. A filter that refuses this call
    // (`ENOSYS`) does not mean that there is no list.
    if let Err(Errno::NODATA | Errno::OPNOTSUPP) = probe(sink, ACCESS) {
        return Ok(());
    }
    let mode = |errno| (MODE, errno);
    let now = retry(|| cordboard::fstat(sink)).map_err(mode)?.st_mode;
    retry(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(now & 0o700))).map_err(mode)?;
    remove_attribute(sink, ACCESS).map_err(|errno| (LIST, errno))
}

/// Whether a file has a POSIX list.
pub fn has_list(file: BorrowedFd<'_>) -> bool {
    probe(file, ACCESS).is_ok()
}

/// Whether a file has an NFSv4 list with other users or groups than its owner and its group. The
/// mode does not show their permissions (RFC 7530, 6.3.2).
pub fn has_nfs4_names(file: BorrowedFd<'_>) -> bool {
    matches!(read(file, NFS4[0]), Ok(Some(list)) if names_others(&list))
}

/// Whether one of these lists of a file names others, as in [`has_nfs4_names`]. Those of another
/// form do.
pub fn names_others_in(file: BorrowedFd<'_>, lists: &[&CStr]) -> bool {
    match lists.contains(&NFS4[0]) {
        true => has_nfs4_names(file),
        false => lists.iter().any(|name| permits(name)),
    }
}

/// Whether an entry of this list, which is `nfsace4<>` in XDR, names another user or group, or the
/// list is of another form.
fn names_others(list: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"OWNER@", b"GROUP@", b"EVERYONE@"];
    // The number of entries, then of each: type, flags, mask, the length of the name, the name.
    let Some(mut rest) = list.get(4..) else {
        return true;
    };
    while let Some(([.., a, b, c, d], names)) = rest.split_first_chunk::<16>() {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let padded = length.checked_next_multiple_of(4);
        match padded.and_then(|padded| names.split_at_checked(padded)) {
            Some((name, next)) if known.contains(&&name[..length]) => rest = next,
            _ => return true,
        }
    }
    !rest.is_empty()
}

fn probe(sink: BorrowedFd<'_>, name: &CStr) -> Result<usize, Errno> {
    let mut nothing = [0u8; 0];
    retry(|| rustix::fs::fgetxattr(sink, name, &mut nothing[..]))
}

/// Removes one list. xattr(7) and removexattr(2) report `ENODATA` if there is
/// none, and `EOPNOTSUPP` if the file system has none. If a filter refuses all
/// these calls (`ENOSYS`), the list counts as none, as does that of the source.
fn remove_attribute(sink: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match retry(|| rustix::fs::fremovexattr(sink, name)) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::NOSYS) => match probe(sink, name) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            _ => Err(Errno::NOSYS),
        },
        removed => removed,
    }
}

fn read(source: BorrowedFd<'_>, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    match read_value(|buffer| rustix::fs::fgetxattr(source, name, buffer)) {
        Ok(list) => Ok(Some(list)),
        // As in `remove_attribute`.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn set(sink: BorrowedFd<'_>, name: &CStr, list: &[u8]) -> Result<(), Errno> {
    retry(|| rustix::fs::fsetxattr(sink, name, list, XattrFlags::empty()))
}

/// The mode of a file without this list: its group gets the permissions that
/// the list gives it. `None` if the list says no more than the mode.
fn mode_without_list(mode: u32, list: &[u8]) -> Option<u32> {
    // linux/posix_acl_xattr.h: a version, 2, then tag, permissions and id of
    // each entry.
    let (mut group, mut mask) = (0, None);
    for entry in list.get(4..).unwrap_or_default().chunks_exact(8) {
        let bits = u32::from(u16::from_le_bytes([entry[2], entry[3]])) & 7;
        match u16::from_le_bytes([entry[0], entry[1]]) {
            0x04 => group = bits,
            0x10 => mask = Some(bits),
            _ => {}
        }
    }
    // There is a mask if any user or group is named.
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
        assert_eq!(mode_without_list(0o640, &plain), None);
        let named = |group, mask| list(&[[1, 6], [2, 6], [4, group], [0x10, mask], [0x20, 4]]);
        assert_eq!(mode_without_list(0o4664, &named(0, 6)), Some(0o4604));
        assert_eq!(mode_without_list(0o644, &named(6, 4)), Some(0o644));
    }

    #[test]
    fn a_list_with_the_permissions_of_the_mode_names_no_others() {
        let list = |names: &[&str]| {
            let mut bytes = (names.len() as u32).to_be_bytes().to_vec();
            for name in names {
                let numbers = [0, 0, 0x16_0081, name.len() as u32];
                bytes.extend(numbers.map(u32::to_be_bytes).concat());
                bytes.extend(name.as_bytes());
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let mode = list(&["OWNER@", "GROUP@", "EVERYONE@"]);
        assert!(!names_others(&mode) && !names_others(&list(&[])));
        assert!(names_others(&list(&["OWNER@", "bob@here", "EVERYONE@"])));
        // Of another form.
        assert!(names_others(&mode[..mode.len() - 1]));
        assert!(names_others(&[0xff; 20]));
        assert!(names_others(&[]) && names_others(&[0; 3]));
    }
}

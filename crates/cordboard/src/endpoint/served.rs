//! Files below an overlay, which hides their file system.

use crate::sys::{STATX_ATTR_COMPRESSED, STATX_ATTR_ENCRYPTED, STATX_ATTR_NODUMP};

/// Whether a file below an overlay may be on FUSE or on a network file system. `attributes`:
/// those that it can have ([`Attributes::known`](crate::sys::Attributes::known)).
/// `maps_extents`: a call that may wait for a writer, and on SMB for the server. It is made only
/// if the attributes do not decide.
///
/// * *nodump* is known to no file system of a server. ext4, xfs, btrfs, f2fs, OpenZFS, and tmpfs
///   since Linux 6.0 know it.
/// * *compressed* and *encrypted* without *nodump* are those of SMB (`cifs_getattr`,
///   fs/smb/client/inode.c), and of ntfs3 and ubifs.
/// * An extent map shows ext4, xfs, btrfs and others before they know attributes, ocfs2, nilfs2
///   and erofs.
///
/// Also true of squashfs, iso9660, vfat, exfat, jffs2, ubifs and ntfs3, and of tmpfs before Linux
/// 6.0: no call tells them from FUSE or SMB. That costs time only.
pub(super) fn may_be_served(attributes: u64, maps_extents: impl FnOnce() -> bool) -> bool {
    let knows = |these| attributes & these == these;
    let may_be_smb = knows(STATX_ATTR_COMPRESSED | STATX_ATTR_ENCRYPTED);
    !knows(STATX_ATTR_NODUMP) && (may_be_smb || !maps_extents())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_decide_before_a_call_that_may_wait() {
        const APPEND_AND_IMMUTABLE: u64 = 0x30;
        let all = STATX_ATTR_COMPRESSED | STATX_ATTR_ENCRYPTED | STATX_ATTR_NODUMP;
        let not_made = || -> bool { panic!("the call is made") };
        // tmpfs, and f2fs.
        for attributes in [STATX_ATTR_NODUMP | APPEND_AND_IMMUTABLE, all] {
            assert!(!may_be_served(attributes, not_made), "{attributes:#x}");
        }
        // SMB.
        let smb = STATX_ATTR_COMPRESSED | STATX_ATTR_ENCRYPTED | APPEND_AND_IMMUTABLE;
        assert!(may_be_served(smb, not_made));
        // FUSE or squashfs, and erofs.
        for attributes in [
            0,
            APPEND_AND_IMMUTABLE,
            STATX_ATTR_COMPRESSED | APPEND_AND_IMMUTABLE,
        ] {
            for maps_extents in [false, true] {
                let may_be = may_be_served(attributes, || maps_extents);
                assert_eq!(may_be, !maps_extents, "{attributes:#x}");
            }
        }
    }
}

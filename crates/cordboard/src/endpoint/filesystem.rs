//! What a file system lets bytes do.

/// A file system, known by the magic number of `statfs(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Filesystem(pub u64);

/// Whether a file system can share blocks between files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloneAbility {
    /// It has no clones: asking would cost a call for a certain refusal.
    Never,
    /// It has, or may have: ask, and take no for an answer.
    Perhaps,
}

macro_rules! filesystems {
    ($($magic:literal $name:literal $kind:ident)*) => {
        const KNOWN: &[(u64, &str, Nature)] = &[$(($magic, $name, Nature::$kind)),*];
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// Ordinary files, no clones.
    Plain,
    /// Ordinary files that can be cloned.
    Clones,
    /// Files made up on the fly, whose size says nothing.
    Pseudo,
    /// Sizes come from somewhere else and can be false.
    Foreign,
}

// linux/magic.h, and statfs(2) for those that are not in it.
filesystems! {
    0xEF53     "ext4"       Plain
    0x01021994 "tmpfs"      Plain
    0x858458f6 "ramfs"      Plain
    0x958458f6 "hugetlbfs"  Plain
    0x4d44     "vfat"       Plain
    0x2011BAB0 "exfat"      Plain
    0xF2F52010 "f2fs"       Plain
    0x73717368 "squashfs"   Plain
    0x9660     "iso9660"    Plain
    0x7366746e "ntfs3"      Plain
    0xE0F5E1E2 "erofs"      Plain
    0x58465342 "xfs"        Clones
    0x9123683E "btrfs"      Clones
    0xca451a4e "bcachefs"   Clones
    0x7461636f "ocfs2"      Clones
    0x2fc12fc1 "zfs"        Clones
    0x794c7630 "overlayfs"  Clones
    0x6969     "nfs"        Foreign
    0xFF534D42 "cifs"       Foreign
    0xFE534D42 "smb2"       Foreign
    0x517B     "smb"        Foreign
    0x00C36400 "ceph"       Foreign
    0x01021997 "9p"         Foreign
    0x65735546 "fuse"       Foreign
    0x9fa0     "proc"       Pseudo
    0x62656572 "sysfs"      Pseudo
    0x64626720 "debugfs"    Pseudo
    0x74726163 "tracefs"    Pseudo
    0x73636673 "securityfs" Pseudo
    0xf97cff8c "selinuxfs"  Pseudo
    0x27e0eb   "cgroup"     Pseudo
    0x63677270 "cgroup2"    Pseudo
    0x62656570 "configfs"   Pseudo
    0xcafe4a11 "bpf"        Pseudo
    0x6165676c "pstore"     Pseudo
    0xde5e81e4 "efivarfs"   Pseudo
    0x42494e4d "binfmt_misc" Pseudo
    0x65735543 "fusectl"    Pseudo
    0x19800202 "mqueue"     Pseudo
    0x6e736673 "nsfs"       Pseudo
    0x7655821  "resctrl"    Pseudo
}

impl Filesystem {
    fn known(self) -> Option<&'static (u64, &'static str, Nature)> {
        KNOWN.iter().find(|(magic, ..)| *magic == self.0)
    }

    /// Its name, as `mount(8)` has it; `None` for one that isn't in our list.
    pub fn name(self) -> Option<&'static str> {
        self.known().map(|(_, name, _)| *name)
    }

    /// Whether asking it for a clone makes sense.
    pub fn clone_ability(self) -> CloneAbility {
        match self.known() {
            Some((_, _, Nature::Plain | Nature::Pseudo)) => CloneAbility::Never,
            _ => CloneAbility::Perhaps,
        }
    }

    /// Each page of a new file is reserved on its own as it is written, so that
    /// reserving many at once beforehand saves a third of the writing (measured
    /// on ext4; xfs and btrfs have cheaper ways, tmpfs would clear the pages).
    pub fn reserves_by_page(self) -> bool {
        self.name() == Some("ext4")
    }

    /// Sharing blocks costs it more than writing a few of them.
    pub fn writes_small_files_faster(self) -> bool {
        self.name() == Some("xfs")
    }

    /// Nothing is copied between two of the kind: it has no `copy_file_range`
    /// of its own, and the kernel's stays within one (`EXDEV`,
    /// `generic_copy_file_checks` in fs/read_write.c, since Linux 5.19). Only
    /// those of which each has one `st_dev`.
    pub fn keeps_copies_to_itself(self) -> bool {
        let plain = matches!(self.known(), Some((_, _, Nature::Plain)));
        plain || self.name() == Some("xfs")
    }

    /// It is in user space: `fuse(4)`, of which virtiofs is one.
    pub fn is_fuse(self) -> bool {
        self.name() == Some("fuse")
    }

    /// Its files are memory, and nothing else.
    pub fn is_in_memory(self) -> bool {
        matches!(self.name(), Some("tmpfs" | "ramfs" | "hugetlbfs"))
    }

    /// Its files are made up when they are read.
    pub fn is_pseudo(self) -> bool {
        matches!(self.known(), Some((_, _, Nature::Pseudo)))
    }

    /// Its sizes come from a server or a process and may be false.
    pub fn is_foreign(self) -> bool {
        !matches!(
            self.known(),
            Some((_, _, Nature::Plain | Nature::Clones | Nature::Pseudo))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_file_systems() {
        assert_eq!(Filesystem(0xEF53).name(), Some("ext4"));
        assert_eq!(Filesystem(0xEF53).clone_ability(), CloneAbility::Never);
        assert_eq!(
            Filesystem(0x58465342).clone_ability(),
            CloneAbility::Perhaps
        );
        assert!(Filesystem(0x9fa0).is_pseudo());
        assert!(Filesystem(0x65735546).is_foreign());
        let unknown = Filesystem(0xdead_beef);
        assert_eq!(unknown.name(), None);
        assert_eq!(unknown.clone_ability(), CloneAbility::Perhaps);
        assert!(unknown.is_foreign());
    }
}

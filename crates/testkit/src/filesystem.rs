//! The file system of the temporary directory.

/// The magic number of ext4, and of ext2 and ext3.
pub const EXT4: u32 = 0xEF53;
/// The magic number of tmpfs.
pub const TMPFS: u32 = 0x0102_1994;
/// The magic number of Btrfs.
pub const BTRFS: u32 = 0x9123_683E;
/// The magic number of overlayfs.
pub const OVERLAYFS: u32 = 0x794C_7630;

/// Returns the magic number of the file system of the temporary directory (statfs(2)). 0 if
/// it is not reported.
pub fn temporary_kind() -> u32 {
    let found = rustix::fs::statfs(std::env::temp_dir());
    found.map_or(0, |found| found.f_type as u32)
}

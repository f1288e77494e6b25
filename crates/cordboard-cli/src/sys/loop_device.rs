//! The backing file of a loop device: `loop(4)`.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// linux/loop.h; since Linux 2.6.
const LOOP_GET_STATUS64: u32 = 0x4c05;

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    /// Other fields.
    rest: [u64; 27],
}

/// Returns the device and the inode of the backing file of a loop device, or of
/// a partition of one. `None`: it is another device.
pub fn backing_file(device: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let mut info = MaybeUninit::<Info>::zeroed();
    let (number, request) = (device.as_raw_fd(), LOOP_GET_STATUS64 as _);
    // SAFETY: the call writes one loop_info64, which is valid for it; devices that
    // are no loop devices do not know the request.
    let done = unsafe { libc::ioctl(number, request, info.as_mut_ptr()) };
    // SAFETY: all zeros is a valid Info, and the call has filled it in.
    let info = unsafe { info.assume_init() };
    (done == 0).then(|| (decoded(info.device), info.inode))
}

/// A device number as the kernel encodes it (`huge_encode_dev`, linux/kdev_t.h).
fn decoded(device: u64) -> u64 {
    let [major, minor] = [
        device >> 8 & 0xfff,
        device & 0xff | device >> 12 & 0x000f_ff00,
    ];
    rustix::fs::makedev(major as u32, minor as u32)
}

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
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    /// Other fields.
    rest: [u32; 47],
}

/// The backing file of a loop device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backing {
    /// `st_dev`.
    pub(crate) device: u64,
    /// `st_ino`.
    pub(crate) inode: u64,
    /// `st_rdev`; 0 unless the file is a device.
    pub(crate) rdevice: u64,
    /// The offset in the file, in bytes, at which the loop device begins.
    pub(crate) offset: u64,
    /// The number of the loop device, as in its name.
    pub(crate) number: u32,
}

/// Returns the backing file of a loop device, or of the loop device of a partition. `None`: it
/// is neither.
pub(crate) fn backing_file(device: BorrowedFd<'_>) -> Option<Backing> {
    let mut info = MaybeUninit::<Info>::zeroed();
    let (number, request) = (device.as_raw_fd(), LOOP_GET_STATUS64 as _);
    // SAFETY: the call writes one loop_info64, which is valid for it; devices that
    // are no loop devices do not know the request.
    let done = unsafe { libc::ioctl(number, request, info.as_mut_ptr()) };
    // SAFETY: all zeros is a valid Info, and the call has filled it in.
    let info = unsafe { info.assume_init() };
    (done == 0).then(|| Backing {
        device: decoded(info.device),
        inode: info.inode,
        rdevice: decoded(info.rdevice),
        offset: info.offset,
        number: info.number,
    })
}

/// A device number as the kernel encodes it (`huge_encode_dev`, linux/kdev_t.h).
fn decoded(device: u64) -> u64 {
    let [major, minor] = [
        device >> 8 & 0xfff,
        device & 0xff | device >> 12 & 0x000f_ff00,
    ];
    rustix::fs::makedev(major as u32, minor as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_decoded() {
        for (major, minor) in [(7, 1), (259, 0x1_2345), (0, 41)] {
            let (wide, low) = (u64::from(minor), u64::from(minor) & 0xff);
            let encoded = low | u64::from(major) << 8 | (wide & !0xff) << 12;
            assert_eq!(decoded(encoded), rustix::fs::makedev(major, minor));
        }
    }
}

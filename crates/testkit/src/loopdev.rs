//! Block devices: loop devices over memory files.
//!
//! Dropping a device returns it to a pool, because attaching one costs more than using
//! it. The kernel detaches those of the pool when the process ends (`LO_FLAGS_AUTOCLEAR`).

use crate::skip;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;

/// The size of every device, in bytes.
pub const SIZE: u64 = 256 << 20;

static POOL: Mutex<Vec<Attached>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Attached {
    path: String,
    /// Keeps the device attached.
    _open: OwnedFd,
}

/// A loop device in use by one test.
#[derive(Debug)]
pub struct LoopDevice {
    attached: Option<Attached>,
}

/// Returns why loop devices are not available, if so. Attaches one, which stays in the
/// pool: in a container the control device may exist without the devices.
pub fn unavailable() -> Option<String> {
    if !skip::is_root() {
        return Some("loop devices need root".to_owned());
    }
    let taken = LoopDevice::take();
    taken.err().map(|error| format!("no loop device: {error}"))
}

impl LoopDevice {
    /// Takes a device from the pool, or attaches a new one.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `ioctl(2)` on `/dev/loop-control` and the device.
    pub fn take() -> io::Result<LoopDevice> {
        let pooled = POOL.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let attached = match pooled {
            Some(attached) => attached,
            None => attach()?,
        };
        Ok(LoopDevice {
            attached: Some(attached),
        })
    }

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    pub fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let path = self.attached.as_ref().map_or("", |a| a.path.as_str());
        Ok(rustix::fs::open(
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Some(attached) = self.attached.take() {
            let mut pool = POOL.lock().unwrap_or_else(|e| e.into_inner());
            pool.push(attached);
        }
    }
}

fn attach() -> io::Result<Attached> {
    let control = open("/dev/loop-control")?;
    let backing = rustix::fs::memfd_create("disk", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&backing, SIZE)?;
    loop {
        let number = get_free(&control)?;
        let path = format!("/dev/loop{number}");
        let device = open(&path)?;
        match configure(&device, &backing) {
            // Another process took the number in the meantime.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => continue,
            Err(e) => return Err(e),
            Ok(()) => {
                return Ok(Attached {
                    path,
                    _open: device,
                });
            }
        }
    }
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// `LOOP_CTL_GET_FREE`, since Linux 3.1.
fn get_free(control: impl AsFd) -> io::Result<i32> {
    const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
    // SAFETY: takes no argument and returns an integer.
    let number = unsafe { libc::ioctl(control.as_fd().as_raw_fd(), LOOP_CTL_GET_FREE) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(number)
}

/// `LOOP_CONFIGURE`, since Linux 5.8: backing file and flags in one step.
fn configure(device: impl AsFd, backing: impl AsFd) -> io::Result<()> {
    const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
    const LO_FLAGS_AUTOCLEAR: u32 = 4;
    // struct loop_config: fd and block size, a struct loop_info64 of 232
    // bytes whose lo_flags is at byte 52, and 64 reserved bytes.
    let mut config = [0u32; 76];
    config[0] = backing.as_fd().as_raw_fd().cast_unsigned();
    config[2 + 52 / 4] = LO_FLAGS_AUTOCLEAR;
    // SAFETY: the kernel reads sizeof(struct loop_config) = 304 bytes, the size of
    // `config`.
    let done = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_CONFIGURE, config.as_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_device_keeps_what_is_written() {
        if let Some(why) = unavailable() {
            return skip::report("loop device", &why);
        }
        let device = LoopDevice::take().unwrap();
        let fd = device.open(OFlags::RDWR).unwrap();
        rustix::io::pwrite(&fd, b"number, please", 1000).unwrap();
        let again = device.open(OFlags::RDONLY).unwrap();
        let mut back = [0; 14];
        rustix::io::pread(&again, &mut back, 1000).unwrap();
        assert_eq!(&back, b"number, please");
    }
}

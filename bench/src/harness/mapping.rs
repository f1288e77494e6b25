//! Memory that only the kernel touches: a section of a file that `read(2)` fills or `write(2)`
//! sends, and pages that `vmsplice(2)` puts into a pipe.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped section of a file.
#[derive(Debug)]
pub struct Mapping {
    address: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    /// Maps a section that is only read.
    pub fn to_read(file: &File, offset: u64, length: usize) -> io::Result<Mapping> {
        Mapping::new(file, offset, length, ProtFlags::READ, MapFlags::PRIVATE)
    }

    /// Maps a section whose changes are those of the file.
    pub fn to_write(file: &File, offset: u64, length: usize) -> io::Result<Mapping> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        Mapping::new(file, offset, length, both, MapFlags::SHARED)
    }

    fn new(
        file: &File,
        offset: u64,
        length: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses an unused address, and the mapping ends with `Mapping`.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                protection,
                flags,
                file,
                offset,
            )
        }?;
        Ok(Mapping { address, length })
    }

    /// Writes the bytes from `from` to the end of the mapping. `write(2)`.
    pub fn write_to(&self, from: usize, sink: impl AsFd) -> io::Result<usize> {
        let (start, length) = self.rest(from);
        // SAFETY: the range is mapped. Only the kernel reads it: if the file has become
        // shorter, the call fails with EFAULT.
        let wrote = unsafe { libc::write(sink.as_fd().as_raw_fd(), start, length) };
        usize::try_from(wrote).map_err(|_| io::Error::last_os_error())
    }

    /// Reads up to the end of the mapping into the bytes from `from`. `read(2)`.
    pub fn read_from(&mut self, from: usize, source: impl AsFd) -> io::Result<usize> {
        let (start, length) = self.rest(from);
        // SAFETY: the range is mapped, and only the kernel writes to it: if it must not, the
        // call fails with EFAULT.
        let read = unsafe { libc::read(source.as_fd().as_raw_fd(), start, length) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    fn rest(&self, from: usize) -> (*mut libc::c_void, usize) {
        assert!(from <= self.length, "beyond the end of the mapping");
        let start = self.address.wrapping_byte_add(from);
        (start, self.length - from)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no reference to it exists.
        let _ = unsafe { munmap(self.address, self.length) };
    }
}

/// Puts the pages of `bytes` into a pipe. The reader of the pipe gets the bytes that the pages
/// contain when it reads. `vmsplice(2)`.
pub fn vmsplice(pipe: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the vector describes `bytes`, which the kernel only reads. It holds references
    // to the pages, so the memory may be freed.
    let put = unsafe { libc::vmsplice(pipe.as_fd().as_raw_fd(), &raw const vector, 1, 0) };
    usize::try_from(put).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_section_of_a_file_is_read_and_written() {
        let mut from = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut from, &[7; 8192]).unwrap();
        let section = Mapping::to_read(&from, 4096, 4096).unwrap();
        let (mut take, put) = std::io::pipe().unwrap();
        assert_eq!(section.write_to(4000, &put).unwrap(), 96);

        let to = tempfile::tempfile().unwrap();
        to.set_len(4096).unwrap();
        let mut extent = Mapping::to_write(&to, 0, 4096).unwrap();
        assert_eq!(extent.read_from(10, &take).unwrap(), 96);
        assert_eq!(vmsplice(&put, &[9; 5]).unwrap(), 5);
        drop((extent, put));
        let mut rest = Vec::new();
        take.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [9; 5]);
        let mut written = Vec::new();
        { &to }.read_to_end(&mut written).unwrap();
        assert_eq!(written.len(), 4096);
        let sevens = written.iter().filter(|byte| **byte == 7).count();
        assert_eq!((sevens, written[10], written[9]), (96, 7, 0));
    }
}

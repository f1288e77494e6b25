//! An io_uring with registered buffers that reads and writes share, for the
//! hand-written direct copy. Only this module, `sys` and `mapping` contain `unsafe`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{IoUring, opcode, squeue, types};

/// The alignment of addresses, lengths and offsets for direct I/O.
pub const ALIGNMENT: usize = 4096;
const SOURCE: types::Fixed = types::Fixed(0);
const SINK: types::Fixed = types::Fixed(1);

/// The ring and its blocks. Dropping it waits for pending operations.
pub struct Ring {
    uring: IoUring,
    blocks: Vec<Block>,
    length: u32,
    under_way: usize,
}

/// Memory with the alignment of direct I/O.
pub struct Block {
    room: Vec<u8>,
    start: usize,
    length: usize,
}

impl Block {
    /// A block of `length` zeros.
    pub fn new(length: usize) -> Block {
        let room = vec![0; length + ALIGNMENT];
        let start = room.as_ptr().align_offset(ALIGNMENT);
        Block {
            room,
            start,
            length,
        }
    }

    /// Its bytes, whose address is a multiple of [`ALIGNMENT`].
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..][..self.length]
    }

    fn address(&mut self) -> *mut u8 {
        self.bytes().as_mut_ptr()
    }
}

/// A completed operation.
#[derive(Debug)]
pub struct Finished {
    /// The number of the block.
    pub block: usize,
    /// The number of bytes read or written.
    pub result: io::Result<usize>,
}

impl Ring {
    /// A ring with `depth` blocks of `length` bytes, between two files.
    ///
    /// # Errors
    ///
    /// * `ENOSYS`, `EPERM`: io_uring is not available.
    /// * `ENOMEM`: the blocks cannot be locked.
    pub fn new(
        source: impl AsFd,
        sink: impl AsFd,
        depth: usize,
        length: usize,
    ) -> io::Result<Ring> {
        let entries = u32::try_from(depth).map_err(io::Error::other)?;
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)?;
        let mut ring = Ring {
            uring,
            blocks: (0..depth).map(|_| Block::new(length)).collect(),
            length: u32::try_from(length).map_err(io::Error::other)?,
            under_way: 0,
        };
        let vectors: Vec<libc::iovec> = ring.blocks.iter_mut().map(|b| vector(b, length)).collect();
        // SAFETY: the blocks stay valid and in place until the ring is dropped.
        unsafe { ring.uring.submitter().register_buffers(&vectors) }?;
        let files = [source.as_fd().as_raw_fd(), sink.as_fd().as_raw_fd()];
        ring.uring.submitter().register_files(&files)?;
        Ok(ring)
    }

    /// Starts a read of a block at this offset of the source.
    pub fn read(&mut self, block: usize, position: u64) -> io::Result<()> {
        let (address, index) = self.place(block);
        let entry = opcode::ReadFixed::new(SOURCE, address, self.length, index)
            .offset(position)
            .build();
        self.push(entry, block)
    }

    /// Starts a write of `length` bytes of a block at this offset of the sink.
    pub fn write(&mut self, block: usize, length: usize, position: u64) -> io::Result<()> {
        let (address, index) = self.place(block);
        assert!(length <= self.length as usize, "longer than a block");
        let entry = opcode::WriteFixed::new(SINK, address, length as u32, index)
            .offset(position)
            .build();
        self.push(entry, block)
    }

    /// Waits for a completion.
    pub fn wait(&mut self) -> io::Result<Vec<Finished>> {
        self.uring.submit_and_wait(1)?;
        let done: Vec<Finished> = self
            .uring
            .completion()
            .map(|entry| Finished {
                block: entry.user_data() as usize,
                result: match entry.result() {
                    negative @ ..0 => Err(io::Error::from_raw_os_error(-negative)),
                    bytes => Ok(bytes as usize),
                },
            })
            .collect();
        self.under_way -= done.len();
        Ok(done)
    }

    /// The number of pending reads and writes.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    fn place(&mut self, block: usize) -> (*mut u8, u16) {
        (self.blocks[block].address(), block as u16)
    }

    fn push(&mut self, entry: squeue::Entry, block: usize) -> io::Result<()> {
        let entry = entry.user_data(block as u64);
        let mut queue = self.uring.submission();
        // SAFETY: the entry refers to a registered block, which lives as long
        // as the ring; the ring is not dropped before the entry has completed;
        // the length is at most that of the block.
        unsafe { queue.push(&entry) }.map_err(io::Error::other)?;
        drop(queue);
        self.under_way += 1;
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.under_way > 0 && self.wait().is_ok() {}
    }
}

fn vector(block: &mut Block, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: block.address().cast(),
        iov_len: length,
    }
}

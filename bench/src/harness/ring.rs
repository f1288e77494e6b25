//! An io_uring with blocks of memory of its own that reads and writes share:
//! what the hand-written direct copy needs. With `sys`, the only room of the
//! benches that has `unsafe`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{IoUring, opcode, squeue, types};

/// What direct I/O wants addresses, lengths and positions to be multiples of.
pub const ALIGNMENT: usize = 4096;
const SOURCE: types::Fixed = types::Fixed(0);
const SINK: types::Fixed = types::Fixed(1);

/// The ring and its blocks. Dropped, it waits for what is under way.
pub struct Ring {
    uring: IoUring,
    blocks: Vec<Block>,
    length: u32,
    under_way: usize,
}

/// Memory at an aligned address.
struct Block {
    room: Vec<u8>,
    start: usize,
}

impl Block {
    fn new(length: usize) -> Block {
        let room = vec![0; length + ALIGNMENT];
        let start = room.as_ptr().align_offset(ALIGNMENT);
        Block { room, start }
    }

    fn address(&mut self) -> *mut u8 {
        self.room[self.start..].as_mut_ptr()
    }
}

/// What has finished.
#[derive(Debug)]
pub struct Finished {
    /// Which block it was.
    pub block: usize,
    /// Bytes read or written.
    pub result: io::Result<usize>,
}

impl Ring {
    /// A ring with `depth` blocks of `length` bytes, between these two.
    ///
    /// # Errors
    ///
    /// `ENOSYS`, `EPERM`: no io_uring here; `ENOMEM`: the blocks cannot be locked.
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
        // SAFETY: the blocks are alive, and not moved, until the ring is dropped.
        unsafe { ring.uring.submitter().register_buffers(&vectors) }?;
        let files = [source.as_fd().as_raw_fd(), sink.as_fd().as_raw_fd()];
        ring.uring.submitter().register_files(&files)?;
        Ok(ring)
    }

    /// Starts to fill a block from this position of the source.
    pub fn read(&mut self, block: usize, position: u64) -> io::Result<()> {
        let (address, index) = self.place(block);
        let entry = opcode::ReadFixed::new(SOURCE, address, self.length, index)
            .offset(position)
            .build();
        self.push(entry, block)
    }

    /// Starts to write so much of a block at this position of the sink.
    pub fn write(&mut self, block: usize, length: usize, position: u64) -> io::Result<()> {
        let (address, index) = self.place(block);
        assert!(length <= self.length as usize, "more than a block holds");
        let entry = opcode::WriteFixed::new(SINK, address, length as u32, index)
            .offset(position)
            .build();
        self.push(entry, block)
    }

    /// Waits until something has finished.
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

    /// How many reads and writes have not finished.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    fn place(&mut self, block: usize) -> (*mut u8, u16) {
        (self.blocks[block].address(), block as u16)
    }

    fn push(&mut self, entry: squeue::Entry, block: usize) -> io::Result<()> {
        let entry = entry.user_data(block as u64);
        let mut queue = self.uring.submission();
        // SAFETY: the entry is for a registered block that lives as long as the
        // ring, which is not dropped before the entry has finished; its length
        // is no more than the block's.
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

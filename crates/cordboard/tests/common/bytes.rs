//! Contents of files and of other descriptors.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;

pub const MIB: usize = 1 << 20;

/// Sizes at and beside the ends of pages, pipes and buffers.
pub const BOUNDARIES: [usize; 11] = [
    0,
    1,
    4095,
    4096,
    4097,
    65_535,
    65_536,
    65_537,
    MIB - 1,
    MIB,
    MIB + 1,
];

/// Returns bytes of which no two pages are alike.
pub fn pattern(n: usize) -> Vec<u8> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

pub use testkit::file::file_with;

/// Reads a whole file.
pub fn content(mut file: &File) -> Vec<u8> {
    let mut all = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut all).unwrap();
    all
}

/// Reads a descriptor to its end.
pub fn content_of(fd: impl Into<OwnedFd>) -> Vec<u8> {
    let mut all = Vec::new();
    File::from(fd.into()).read_to_end(&mut all).unwrap();
    all
}

pub fn rewind(mut file: &File) {
    file.rewind().unwrap();
}

pub fn position(mut file: &File) -> u64 {
    file.stream_position().unwrap()
}

/// Reads a pipe to its end, each time with room for a whole packet.
pub fn read_packets(reader: OwnedFd) -> Vec<u8> {
    let (mut all, mut packet) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(&reader, &mut packet).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&packet[..n]),
        }
    }
}

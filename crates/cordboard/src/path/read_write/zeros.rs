//! Makes holes where the source has zeros (`--sparse always`).

use std::os::fd::OwnedFd;

use super::aligned;
use crate::errno::Errno;
use crate::path::common::hole_check::is_zero;
use crate::path::common::holes;
use crate::path::common::in_place;
use crate::path::flow::Flow;

/// The smallest run of zeros that becomes a hole: a page, which is the block of
/// nearly every file system.
const BLOCK: usize = 4096;

/// Writes up to the next block of zeros, or makes a hole of the blocks of zeros
/// at the start. Returns how many bytes that was.
pub(super) fn write(
    flow: &mut Flow<'_>,
    buffered_fd: &mut Option<OwnedFd>,
    bytes: &[u8],
) -> Result<usize, Errno> {
    let offset = flow.sink.place()?;
    let head = (offset.next_multiple_of(BLOCK as u64) - offset) as usize;
    if head == 0 {
        let zeros = bytes
            .chunks_exact(BLOCK)
            .take_while(|block| is_zero(block))
            .count()
            * BLOCK;
        if zeros > 0
            && let made @ 1.. = holes::make(flow, zeros as u64)?
        {
            return Ok(made as usize);
        }
    }
    let body = bytes.get(head..).unwrap_or_default();
    let data = body
        .chunks(BLOCK)
        .take_while(|block| block.len() < BLOCK || !is_zero(block))
        .map(<[u8]>::len)
        .sum::<usize>();
    // At least one block, so that zeros that cannot become a hole are written.
    let length = (head + data.max(BLOCK)).min(bytes.len());
    if aligned::unit(flow.sink.facts()) > 1 {
        return aligned::write(flow, buffered_fd, &bytes[..length]);
    }
    Ok(in_place::write(flow, &bytes[..length])?)
}

//! The function [`splice`].

use std::os::fd::AsFd;

use super::{Transfer, fast_path};
use crate::report::{Failure, Report};
use crate::request::{Request, Size};

/// Moves `size` bytes, or all bytes up to the end of `source`, to `sink`. Returns
/// when the transfer has ended.
///
/// # Errors
///
/// [`Failure`]: the side that failed, the errno, the counts, and the bytes that
/// were read and could not be written.
pub fn splice(
    source: impl AsFd,
    sink: impl AsFd,
    size: impl Into<Size>,
) -> Result<Report, Failure> {
    let (source, sink, size) = (source.as_fd(), sink.as_fd(), size.into());
    let first = match size {
        Size::Bytes(size) => fast_path::fast_path(source, sink, size),
        Size::Eof => fast_path::FastPath::default(),
    };
    let size = match size {
        Size::Bytes(size) if first.moved == size && size > 0 => return Ok(first.report()),
        Size::Bytes(size) => Size::Bytes(size - first.moved),
        Size::Eof => Size::Eof,
    };
    let request = Request {
        size,
        ..Request::default()
    };
    let rest = Transfer::new(source, sink, request).and_then(|rest| rest.run().into_result());
    first.before(rest)
}

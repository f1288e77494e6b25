//! The calls that have no safe wrapper elsewhere. The only room with
//! `unsafe`, each block with its SAFETY line.

mod describe;

pub(crate) use describe::{block_device_size, cached_pages, direct_alignment, same_description};

//! System calls that have no safe wrapper elsewhere, and page-aligned buffers.
//! Each `unsafe` block has a SAFETY line.

mod again;
mod arena;
mod attempt;
mod blocks;
mod buffer;
mod cgroup;
mod clock;
mod clone;
mod close;
mod datagram;
mod describe;
mod discard;
mod epoll;
mod event;
mod extents;
mod high;
mod identity;
mod inherited;
mod known;
mod last_errno;
mod lend;
mod limit;
pub(crate) mod load;
mod lock;
mod loop_device;
mod mapping;
mod memory_file;
mod offset;
mod origin;
mod poll;
mod process;
mod procfs;
mod wake_fd;
// The list is also in Cargo.toml, and is that of the `io-uring` crate
// (`src/sys/mod.rs`).
#[cfg_attr(
    not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )),
    path = "no_ring.rs"
)]
mod ring;
mod select;
mod served_by;
mod signal;
mod socket;
mod spawn;
mod stat;
mod table;
mod unreadable;
mod vmsplice;
mod wiped;
mod with_end;
mod writeback;

pub(crate) use again::again;
pub(crate) use arena::{Arena, LARGEST_ARENA, Piece, keep_an_arena};
pub(crate) use attempt::{CallError, attempt};
pub(crate) use blocks::{Half, SLOTS};
pub(crate) use buffer::Buffer;
pub(crate) use cgroup::memory_limit;
pub use clock::sleep_a_moment;
pub(crate) use clock::{monotonic, thread_time};
pub(crate) use clone::{clone_file, clone_range};
pub(crate) use close::{close, close_and_report, close_own};
pub(crate) use datagram::{Batch, How, Received, receive_one};
pub(crate) use describe::{
    Attributes, STATX_ATTR_COMPRESSED, STATX_ATTR_ENCRYPTED, STATX_ATTR_NODUMP, attributes,
    block_device_size, cached_pages, direct_alignment, same_description,
};
pub(crate) use discard::discard;
pub(crate) use epoll::epoll_delete;
pub(crate) use event::Event;
pub(crate) use extents::{has_written_extent, maps_extents};
pub(crate) use high::beyond;
pub use high::duplicate;
pub(crate) use identity::{Identity, identity};
pub use inherited::close_inherited_fd;
pub(crate) use known::Known;
pub(crate) use lend::{at, lend};
pub(crate) use limit::{file_size_limit, page_size};
pub use lock::Lock;
pub(crate) use loop_device::{Backing, backing_file};
pub(crate) use mapping::map_shared;
pub use memory_file::memory_file;
pub(crate) use offset::{HERE, pread, pwrite, pwritev};
pub use origin::Origin;
pub(crate) use poll::{Shown, poll_now, shows_now};
pub use poll::{poll_for, poll_or_select};
pub use process::PerProcess;
pub(crate) use process::Stamp;
pub(crate) use procfs::{hexadecimal, mount_id, number, position, release};
pub(crate) use ring::{Uring, try_io_uring};
pub(crate) use select::wait_for;
pub(crate) use served_by::ServedBy;
pub(crate) use signal::{NoSignals, SignalGuard, sigpipe_is_ignored};
pub(crate) use socket::{
    TcpProgress, accept_no_descriptors, defers_connection, is_said_to_join, joins_datagrams,
    makes_tls_records, pass_credentials, path_mtu, peek, peek_into, receive_mark, recv,
    recv_with_descriptors, send, send_parts, tcp_is_closed, tcp_progress, unsent,
};
#[cfg(test)]
pub(crate) use spawn::on_another;
pub(crate) use spawn::{Spawned, end_thread, spawn};
pub use stat::fstat;
pub(crate) use table::Thread;
pub(crate) use unreadable::write_unreadable;
pub(crate) use vmsplice::{is_over, read_across};
pub(crate) use wake_fd::WakeFd;
pub(crate) use with_end::WithEnd;
pub(crate) use writeback::{start_writeback, writeback_error};

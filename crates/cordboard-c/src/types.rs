//! What C sees: the structures and constants of `cordboard.h`.
//!
//! Every structure begins with its own size, which the caller fills in (the
//! `_INIT` macros do). One that has grown since the caller was built is filled
//! in as far as the caller knows it, and what the caller has not heard of is 0.
//!
//! So a field is added at the end only, none is ever moved or enlarged, and no
//! structure ends in padding, which a later field would find filled with
//! whatever the caller's stack had there. The compiler holds us to it
//! (`layout`).

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

/// A handle on one transfer: a number that is looked up, so that one which was
/// closed, or never was, is `EBADF`. The numbers are not used twice in a
/// process. 0 is `CORD_LAST`; -1 is what `cord_start` returns on failure.
pub type cord_transfer = i64;

/// In `cord_wait`, `cord_try`, `cord_stranded`, `cord_json` and `cord_close`:
/// the last `cord_splice` or `cord_run` that this thread waited for. It has
/// ended: all else is `EBADF`.
pub const CORD_LAST: cord_transfer = 0;

/// `cord_splice` until the source ends. (The header has it by hand: cbindgen
/// does not know the value.)
///
/// cbindgen:ignore
pub const CORD_EOF: usize = usize::MAX;

/// The same in `cord_request.size`.
pub const CORD_ALL: u64 = u64::MAX;

/// In `cord_request.source_offset` and `sink_offset`: where the descriptor
/// stands, and moving that place along.
pub const CORD_HERE: i64 = -1;

/// A flag of `cord_request`: a snapshot. Paths that hand the page cache's own
/// pages on are left out, so that later writes to the source cannot show; nor
/// those to a file whose pages are in a pipe or a socket that is the source.
pub const CORD_STABLE: u64 = 1;

/// A flag of `cord_request`: `fsync(2)` the sink at the end. Its result counts.
pub const CORD_SYNC: u64 = 2;

/// A flag of `cord_request`: blocks of zeros become holes, where the sink is a
/// file.
pub const CORD_SPARSE: u64 = 4;

/// A flag of `cord_request`: every byte is written, the source's holes too.
pub const CORD_DENSE: u64 = 8;

/// `cord_request.direct`: past the page cache where that is at least as fast as
/// any other way: much to move, `CORD_SYNC`, and most of the source not cached.
pub const CORD_DIRECT_AUTO: u32 = 0;
/// `cord_request.direct`: past the page cache wherever both sides can, before
/// any other way.
pub const CORD_DIRECT_ALWAYS: u32 = 1;
/// `cord_request.direct`: never past the page cache.
pub const CORD_DIRECT_NEVER: u32 = 2;

/// Why a transfer ended: the source ended.
pub const CORD_ENDED_EOF: c_int = 1;
/// Why a transfer ended: its size was reached.
pub const CORD_ENDED_SIZE: c_int = 2;
/// Why a transfer ended: nothing had moved for the time of `idle_ms`.
pub const CORD_ENDED_IDLE: c_int = 3;
/// Why a transfer ended: it was cancelled.
pub const CORD_ENDED_CANCELLED: c_int = 4;
/// Why a transfer ended: a failure, which `failed` and `error` tell of.
pub const CORD_ENDED_ERROR: c_int = 5;

/// The side that failed: none, or neither.
pub const CORD_NEITHER: c_int = 0;
/// The side that failed: the source.
pub const CORD_SOURCE: c_int = 1;
/// The side that failed: the sink.
pub const CORD_SINK: c_int = 2;

/// What to move. Begin with `struct cord_request r = CORD_REQUEST_INIT(src,
/// dst);`, which means all there is, from where both stand.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cord_request {
    /// `sizeof(struct cord_request)`.
    pub struct_size: usize,
    /// Descriptor to read from. `cord_start` duplicates it: the caller may close
    /// it once `cord_start` has returned. `cord_run` does not duplicate it: it must
    /// stay open until `cord_run` has returned.
    pub source: c_int,
    /// Descriptor to write to. The same.
    pub sink: c_int,
    /// Bytes, or `CORD_ALL` to the source's end.
    pub size: u64,
    /// Byte of the source to begin at, its own position being left alone; or
    /// `CORD_HERE`.
    pub source_offset: i64,
    /// The same for the sink.
    pub sink_offset: i64,
    /// Bytes moved by one step at most, and the size of each datagram where a
    /// stream goes to a datagram socket. 0: whatever suits.
    pub block: u64,
    /// End, without an error, when nothing has moved for so many
    /// milliseconds. If the source falls silent, bytes that were read have the
    /// same time again to go to the sink. 0: never.
    pub idle_ms: u64,
    /// `CORD_STABLE`, `CORD_SYNC`, `CORD_SPARSE` or `CORD_DENSE`, or'ed.
    pub flags: u64,
    /// The paths that may be used, names separated by commas, as in the
    /// variable `CORDBOARD_ROUTE`. NULL: as the environment says.
    pub paths: *const c_char,
    /// Whether to go past the page cache between files (O_DIRECT):
    /// `CORD_DIRECT_AUTO` and its like.
    pub direct: u32,
    /// The paper's watermarks, for a path that keeps several blocks in flight
    /// (direct): no more reads are started while so many are pending. With all
    /// three 0 the library finds out what suits the device; the paper's are
    /// 3, 5 and 5.
    pub marks_reads: u32,
    /// No more reads are started while so many writes are pending.
    pub marks_writes: u32,
    /// So many reads are started at a time, at most.
    pub marks_burst: u32,
    /// 0.
    pub reserved: usize,
}

/// The account of a transfer that has ended. `read == written + stranded`,
/// always. Begin with `struct cord_report r = CORD_REPORT_INIT;`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cord_report {
    /// `sizeof(struct cord_report)`.
    pub struct_size: usize,
    /// Bytes taken from the source.
    pub read: u64,
    /// Bytes that the sink accepted, from its first on without a gap. If a
    /// block fails past the page cache (`direct`), blocks behind it may be in
    /// the sink: they do not count. A file that they made longer is cut off
    /// again; what they replaced within its old length, or in a block device,
    /// is gone.
    pub written: u64,
    /// Bytes taken from the source that the sink did not accept and that could
    /// not be put back: `cord_stranded` hands them over.
    pub stranded: u64,
    /// Datagrams that the kernel cut short. 0 in practice.
    pub truncated: u64,
    /// Wall time from start to end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Why it ended: `CORD_ENDED_EOF` and its like.
    pub ended: c_int,
    /// Which side failed: `CORD_SOURCE`, `CORD_SINK` or `CORD_NEITHER`.
    pub failed: c_int,
    /// The errno it failed with, or 0.
    pub error: c_int,
    /// 0.
    pub reserved: c_int,
    /// The paths that carried it, in the order of their first use, separated
    /// by commas: `"clone"`, `"splice,read/write"`.
    pub path: [c_char; 96],
}

/// A transfer's state while it runs. Begin with `struct cord_status s =
/// CORD_STATUS_INIT;`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cord_status {
    /// `sizeof(struct cord_status)`.
    pub struct_size: usize,
    /// Bytes taken from the source so far. Past the page cache (`direct`), a
    /// block counts as read and as written once it and all blocks before it are
    /// in the sink.
    pub read: u64,
    /// Bytes that the sink accepted so far.
    pub written: u64,
    /// Bytes between the two: `read - written`.
    pub in_transit: u64,
    /// Bytes written per second since the start.
    pub rate: u64,
    /// Since the start, in nanoseconds.
    pub elapsed_ns: u64,
    /// Reads in the kernel's hands.
    pub pending_reads: u32,
    /// Writes in the kernel's hands.
    pub pending_writes: u32,
    /// 1 once it has ended, 0 before.
    pub ended: c_int,
    /// 0.
    pub reserved: c_int,
    /// The path in use, or the last one.
    pub path: [c_char; 32],
}

/// Called once when a transfer has ended, with what was given to `cord_on_end`.
/// It runs on a thread of the library, with all signals blocked (or on the
/// caller's, where the end came first), and should be short. It must not
/// throw, and must not wait for another transfer.
pub type cord_callback = Option<
    unsafe extern "C" fn(transfer: cord_transfer, report: *const cord_report, user: *mut c_void),
>;

/// What programs were compiled with. A structure that has grown gets lines of
/// its own here, and none of those that are here changes.
mod layout {
    use super::*;
    use std::mem::offset_of;

    /// Where a structure's last field ends is where it ends.
    const fn has_no_tail<T>(last: usize, size: usize) -> bool {
        last + size == size_of::<T>()
    }
    const WORD: usize = size_of::<usize>();
    const _: () = assert!(has_no_tail::<cord_request>(
        offset_of!(cord_request, reserved),
        WORD
    ));
    const _: () = assert!(has_no_tail::<cord_report>(
        offset_of!(cord_report, path),
        96
    ));
    const _: () = assert!(has_no_tail::<cord_status>(
        offset_of!(cord_status, path),
        32
    ));

    #[cfg(target_pointer_width = "64")]
    const _: () = {
        assert!(offset_of!(cord_request, source) == 8);
        assert!(offset_of!(cord_request, sink) == 12);
        assert!(offset_of!(cord_request, size) == 16);
        assert!(offset_of!(cord_request, source_offset) == 24);
        assert!(offset_of!(cord_request, sink_offset) == 32);
        assert!(offset_of!(cord_request, block) == 40);
        assert!(offset_of!(cord_request, idle_ms) == 48);
        assert!(offset_of!(cord_request, flags) == 56);
        assert!(offset_of!(cord_request, paths) == 64);
        assert!(offset_of!(cord_request, direct) == 72);
        assert!(offset_of!(cord_request, marks_reads) == 76);
        assert!(offset_of!(cord_request, marks_writes) == 80);
        assert!(offset_of!(cord_request, marks_burst) == 84);
        assert!(offset_of!(cord_request, reserved) == 88);

        assert!(offset_of!(cord_report, read) == 8);
        assert!(offset_of!(cord_report, written) == 16);
        assert!(offset_of!(cord_report, stranded) == 24);
        assert!(offset_of!(cord_report, truncated) == 32);
        assert!(offset_of!(cord_report, elapsed_ns) == 40);
        assert!(offset_of!(cord_report, ended) == 48);
        assert!(offset_of!(cord_report, failed) == 52);
        assert!(offset_of!(cord_report, error) == 56);
        assert!(offset_of!(cord_report, reserved) == 60);
        assert!(offset_of!(cord_report, path) == 64);

        assert!(offset_of!(cord_status, read) == 8);
        assert!(offset_of!(cord_status, written) == 16);
        assert!(offset_of!(cord_status, in_transit) == 24);
        assert!(offset_of!(cord_status, rate) == 32);
        assert!(offset_of!(cord_status, elapsed_ns) == 40);
        assert!(offset_of!(cord_status, pending_reads) == 48);
        assert!(offset_of!(cord_status, pending_writes) == 52);
        assert!(offset_of!(cord_status, ended) == 56);
        assert!(offset_of!(cord_status, reserved) == 60);
        assert!(offset_of!(cord_status, path) == 64);
    };
}

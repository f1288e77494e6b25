//! The structures and constants of `cordboard.h`.
//!
//! Every structure begins with its own size, which the caller sets (the `_INIT`
//! macros do). If the structure has grown since the caller was built, the
//! library writes only the fields of the caller's version, and reads the others
//! as 0.
//!
//! So a field is added only at the end, none is moved or enlarged, and no
//! structure ends in padding: a later field in its place would contain
//! arbitrary bytes of the caller's stack. The compiler checks this (`layout`).

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

/// A handle of a transfer. It is a number and not a pointer: a handle that was
/// closed, or was never opened, is `EBADF`. A process does not use a number
/// twice. 0 is `CORD_LAST`. `cord_start`, `cord_open` and `cord_last` return -1 on
/// failure.
pub type cord_transfer = i64;

/// Stands for the last `cord_run` or synchronous `cord_splice` of this thread in
/// this process, which has ended or was refused. Valid in `cord_wait`, `cord_try`,
/// `cord_stranded`, `cord_json` and `cord_close`; `EBADF` in the other calls, and
/// while the thread exits (also in atexit(3) functions).
pub const CORD_LAST: cord_transfer = 0;

/// `cord_splice`: until the source ends. (cbindgen cannot evaluate it:
/// cbindgen.toml has the macro.)
///
/// cbindgen:ignore
pub const CORD_EOF: usize = usize::MAX;

/// `cord_request.size`: until the source ends.
pub const CORD_ALL: u64 = u64::MAX;

/// `cord_request.source_offset`, `sink_offset`: begin at the file offset of the
/// descriptor, and advance it.
pub const CORD_HERE: i64 = -1;

/// `cord_request.flags`: move a snapshot. Later writes to the source file are
/// not visible in the sink. Excludes the paths that pass pages of the page
/// cache to the sink, and copies the bytes of a pipe or a stream socket, which
/// may hold such pages.
pub const CORD_STABLE: u64 = 1;

/// `cord_request.flags`: call `fsync(2)` on the sink at the end. If it fails,
/// the transfer fails.
pub const CORD_SYNC: u64 = 2;

/// `cord_request.flags`: if the sink is a regular file, turn blocks of zeros
/// into holes.
pub const CORD_SPARSE: u64 = 4;

/// `cord_request.flags`: write every byte, including holes of the source.
pub const CORD_DENSE: u64 = 8;

/// `cord_request.direct`: bypass the page cache if that is at least as fast as
/// any other path: both sides are files of local file systems or block devices,
/// at least 16 MiB are to be copied, `CORD_SYNC` is set, at most a tenth of the
/// source is in the page cache, and the sink is not on btrfs. Since Linux 6.5,
/// by cachestat(2), which newer kernels permit only to the owner of the source
/// and to processes that may write to it.
pub const CORD_DIRECT_AUTO: u32 = 0;
/// `cord_request.direct`: bypass the page cache if both sides support it,
/// before any other path.
pub const CORD_DIRECT_ALWAYS: u32 = 1;
/// `cord_request.direct`: never bypass the page cache.
pub const CORD_DIRECT_NEVER: u32 = 2;

/// `cord_report.ended`: the source ended.
pub const CORD_ENDED_EOF: c_int = 1;
/// `cord_report.ended`: the size was reached.
pub const CORD_ENDED_SIZE: c_int = 2;
/// `cord_report.ended`: no byte had moved for `idle_ms`.
pub const CORD_ENDED_IDLE: c_int = 3;
/// `cord_report.ended`: cancelled.
pub const CORD_ENDED_CANCELLED: c_int = 4;
/// `cord_report.ended`: failed; see `failed` and `error`.
pub const CORD_ENDED_ERROR: c_int = 5;

/// `cord_report.failed`: no side failed.
pub const CORD_NEITHER: c_int = 0;
/// `cord_report.failed`: the source.
pub const CORD_SOURCE: c_int = 1;
/// `cord_report.failed`: the sink.
pub const CORD_SINK: c_int = 2;

/// A command for `cord_cue`: transfer the number of bytes in the next word, or in the next two words,
/// the lower half first, with `CORD_CUE_WRITE + 0x10000`.
pub const CORD_CUE_WRITE: u32 = 0x43010001;
/// A command for `cord_cue`: transfer all bytes up to the end of the source.
pub const CORD_CUE_WRITE_TO_END: u32 = 0x43000002;
/// A command for `cord_cue`: the next transfer reads from this offset.
pub const CORD_CUE_SOURCE_OFFSET: u32 = 0x43010003;
/// A command for `cord_cue`: the next transfer writes at this offset.
pub const CORD_CUE_SINK_OFFSET: u32 = 0x43010004;
/// A command for `cord_cue`: the length of a block in bytes; 0: the library chooses.
pub const CORD_CUE_BLOCK: u32 = 0x43010005;
/// A command for `cord_cue`: the schedule (k, t): k blocks, then a rest of t milliseconds.
pub const CORD_CUE_SCHEDULE: u32 = 0x43020006;
/// A command for `cord_cue`: limit the rate to this many bytes a second; 0: no schedule.
pub const CORD_CUE_RATE: u32 = 0x43010007;
/// A command for `cord_cue`: take no more bytes from the source.
pub const CORD_CUE_PAUSE: u32 = 0x43000008;
/// A command for `cord_cue`: continue after `CORD_CUE_PAUSE`.
pub const CORD_CUE_RESUME: u32 = 0x43000009;
/// A command for `cord_cue`: end the running transfer and all waiting ones.
pub const CORD_CUE_CANCEL: u32 = 0x4300000a;
/// A command for `cord_cue`: answer with a status record.
pub const CORD_CUE_STATUS: u32 = 0x4300000b;
/// A command for `cord_cue`: send a status record at this interval in milliseconds while a transfer
/// runs. 1 to 9 count as 10. 0: send none.
pub const CORD_CUE_PROGRESS: u32 = 0x4301000c;
/// A command for `cord_cue`: transfers take no more than this many bytes from now on.
pub const CORD_CUE_LIMIT_BYTES: u32 = 0x4301000d;
/// A command for `cord_cue`: read only offsets of the source from the number in the first two words
/// to before the number in the last two.
pub const CORD_CUE_LIMIT_RANGE: u32 = 0x4304000e;
/// A command for `cord_cue`: no transfer is faster than this many bytes a second. 0 is refused with
/// EINVAL.
pub const CORD_CUE_LIMIT_RATE: u32 = 0x4301000f;
/// A command for `cord_cue`: no schedule has more blocks than this one, or shorter rests. 0 blocks
/// are refused with EINVAL.
pub const CORD_CUE_LIMIT_SCHEDULE: u32 = 0x43020010;
/// A command for `cord_cue`: allow only commands whose bit is set: bit n is that of code n.
pub const CORD_CUE_LIMIT_COMMANDS: u32 = 0x43010011;
/// A command for `cord_cue`: all transfers end after this many milliseconds, and no other one starts.
pub const CORD_CUE_LIMIT_TIME: u32 = 0x43010012;

/// A command for `cord_cue`: determine the schedule automatically. The first word is one of
/// `CORD_AIM_*`. The second word is the weight of `CORD_AIM_SHARE`, and 0 for other aims.
pub const CORD_CUE_AUTO: u32 = 0x43020013;

/// An aim of `CORD_CUE_AUTO`: move as many bytes a second as both sides permit.
pub const CORD_AIM_THROUGHPUT: u32 = 0;
/// An aim of `CORD_CUE_AUTO`: use only the processors and disks that other work leaves idle.
pub const CORD_AIM_BACKGROUND: u32 = 1;
/// An aim of `CORD_CUE_AUTO`: divide the throughput among the transfers of the process, in
/// proportion to their weights.
pub const CORD_AIM_SHARE: u32 = 2;

/// The code of a record, in the lower 16 bits of its first word: a transfer has started.
pub const CORD_RECORD_STARTED: u32 = 1;
/// The code of a record: a transfer has ended.
pub const CORD_RECORD_DONE: u32 = 2;
/// The code of a record: the answer to `CORD_CUE_STATUS`, or a report of progress.
pub const CORD_RECORD_STATUS: u32 = 3;
/// The code of a record: a command was refused.
pub const CORD_RECORD_REFUSED: u32 = 4;

/// How a transfer ended, in a record `CORD_RECORD_DONE`: the source ended. These numbers are not
/// those of `CORD_ENDED_*`.
pub const CORD_DONE_EOF: u32 = 0;
/// In a record `CORD_RECORD_DONE`: the size was reached.
pub const CORD_DONE_SIZE: u32 = 1;
/// In a record `CORD_RECORD_DONE`: no byte had moved within the idle limit.
pub const CORD_DONE_IDLE: u32 = 2;
/// In a record `CORD_RECORD_DONE`: cancelled.
pub const CORD_DONE_CANCELLED: u32 = 3;
/// In a record `CORD_RECORD_DONE`: failed. The next two words are the side and the errno.
pub const CORD_DONE_ERROR: u32 = 4;

/// The state, in a record `CORD_RECORD_STATUS`: no transfer runs.
pub const CORD_STATE_IDLE: u32 = 0;
/// In a record `CORD_RECORD_STATUS`: a transfer runs.
pub const CORD_STATE_RUNNING: u32 = 1;
/// In a record `CORD_RECORD_STATUS`: paused, with or without a transfer.
pub const CORD_STATE_PAUSED: u32 = 2;

/// A transfer to run. `struct cord_request r = CORD_REQUEST_INIT(src, dst);`
/// initialises a request for all bytes up to the end of the source, at the file
/// offsets of both descriptors.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cord_request {
    /// `sizeof(struct cord_request)`.
    pub struct_size: usize,
    /// The descriptor to read from. `cord_start` and `cord_open` duplicate it,
    /// and the caller may close it once they have returned. `cord_run` does not:
    /// the descriptor must stay open until `cord_run` has returned. If it is open
    /// for writing too, and the close of the duplicate fails, the transfer fails
    /// with its errno, as with `sink`.
    pub source: c_int,
    /// The descriptor to write to. As `source`. If the close of the duplicate
    /// fails, the transfer fails with its errno: some file servers report only
    /// then, and once, that they have no space.
    pub sink: c_int,
    /// The number of bytes, or `CORD_ALL`: until the source ends.
    pub size: u64,
    /// The offset in the source, in bytes: the file offset of the descriptor is
    /// neither used nor changed. Or `CORD_HERE`.
    pub source_offset: i64,
    /// The offset in the sink. As `source_offset`.
    pub sink_offset: i64,
    /// The maximum number of bytes of one step, and the size of each datagram
    /// if the source is a stream and the sink a datagram socket. 0: the library
    /// chooses.
    pub block: u64,
    /// End the transfer, without an error, when no byte has moved for this many
    /// milliseconds. If the source is idle, the sink gets the same time again
    /// to accept the bytes that were read. 0: no limit.
    pub idle_ms: u64,
    /// Bitwise OR of `CORD_STABLE`, `CORD_SYNC`, `CORD_SPARSE`, `CORD_DENSE`.
    pub flags: u64,
    /// The paths that may be used, separated by commas: clone, direct,
    /// copy_file_range, sendfile, splice, datagram, read/write. An empty string:
    /// all. NULL: those that the environment allows (`CORDBOARD_ROUTE`,
    /// `CORDBOARD_WITHOUT`).
    pub paths: *const c_char,
    /// Whether to bypass the page cache between files (`O_DIRECT`):
    /// `CORD_DIRECT_AUTO`, `CORD_DIRECT_ALWAYS` or `CORD_DIRECT_NEVER`.
    pub direct: u32,
    /// The paper's watermarks, for a path with several blocks in flight
    /// (`direct`). No read is started while this many reads are pending. If all
    /// three watermarks are 0, the library chooses them, and adapts them to the
    /// device unless `block` is set or `paths` has one path. Those of the paper
    /// are 3, 5 and 5.
    pub marks_reads: u32,
    /// No read is started while this many writes are pending.
    pub marks_writes: u32,
    /// The maximum number of reads that are started at a time.
    pub marks_burst: u32,
    /// Must be 0.
    pub reserved: usize,
}

/// The report of a transfer that has ended. `read == written + stranded +
/// dropped` always holds. Initialise it with `struct cord_report r =
/// CORD_REPORT_INIT;`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cord_report {
    /// `sizeof(struct cord_report)`.
    pub struct_size: usize,
    /// Bytes read from the source.
    pub read: u64,
    /// Bytes that the sink accepted, up to the first gap. If a block of direct
    /// I/O (`direct`) fails, the sink may contain later blocks, which do not
    /// count. A file that those blocks extended is truncated again. Data that
    /// they overwrote within its old length, or in a block device, is lost.
    pub written: u64,
    /// Bytes read from the source that the sink did not accept, and that could
    /// not be returned to the source: `cord_stranded` reads them.
    pub stranded: u64,
    /// Datagrams that the kernel truncated. 0 in practice.
    pub truncated: u64,
    /// The time from start to end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Why the transfer ended: `CORD_ENDED_EOF` and so on.
    pub ended: c_int,
    /// Which side failed: `CORD_SOURCE`, `CORD_SINK` or `CORD_NEITHER`.
    pub failed: c_int,
    /// The errno of the failure, or 0.
    pub error: c_int,
    /// Reserved, 0.
    pub reserved: c_int,
    /// The paths that moved the bytes, in the order of their first use,
    /// separated by commas: `"clone"`, `"splice,read/write"`.
    pub path: [c_char; 96],
    /// Bytes of datagrams that were longer than the sink accepts (EMSGSIZE).
    pub dropped: u64,
    /// The number of these datagrams.
    pub dropped_datagrams: u64,
}

/// The progress of a transfer. Initialise it with `struct cord_status s =
/// CORD_STATUS_INIT;`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cord_status {
    /// `sizeof(struct cord_status)`.
    pub struct_size: usize,
    /// Bytes read from the source so far. With direct I/O (`direct`), a block
    /// counts as read and as written once it and all blocks before it are in
    /// the sink.
    pub read: u64,
    /// Bytes that the sink has accepted so far.
    pub written: u64,
    /// Bytes read, and so far neither written nor dropped.
    pub in_transit: u64,
    /// Bytes written per second since the start.
    pub rate: u64,
    /// The time since the start, in nanoseconds.
    pub elapsed_ns: u64,
    /// Reads submitted to the kernel and not completed.
    pub pending_reads: u32,
    /// Writes submitted to the kernel and not completed.
    pub pending_writes: u32,
    /// 1 if the transfer has ended, else 0. Callbacks may still run on another
    /// thread.
    pub ended: c_int,
    /// Reserved, 0.
    pub reserved: c_int,
    /// The current path, or the last one.
    pub path: [c_char; 32],
}

/// Called once when a transfer has ended, with the `user` of `cord_on_end`. The
/// function runs on a thread of the library with all signals blocked and a stack
/// of 2 MiB. For a handle of `cord_open`, it runs in `cord_step`, `cord_wait` or
/// `cord_close`, and if the transfer has already ended, in `cord_on_end`: on the
/// calling thread, with its signal mask and its stack. It should be short, must
/// not throw, and must not wait for a transfer. On a thread of the library, a
/// child of fork(2) that returns from the function ends with status 1. A program
/// that it executes inherits the signal mask: unblock the signals before execve(2).
pub type cord_callback = Option<
    unsafe extern "C" fn(transfer: cord_transfer, report: *const cord_report, user: *mut c_void),
>;

/// The layouts that programs were compiled with. A new field gets a new line
/// here; no existing line changes.
mod layout {
    use super::*;
    use std::mem::offset_of;

    /// Whether the structure ends with its last field.
    const fn has_no_tail_padding<T>(last: usize, size: usize) -> bool {
        last + size == size_of::<T>()
    }
    const WORD: usize = size_of::<usize>();
    const _: () = assert!(has_no_tail_padding::<cord_request>(
        offset_of!(cord_request, reserved),
        WORD
    ));
    const _: () = assert!(has_no_tail_padding::<cord_report>(
        offset_of!(cord_report, dropped_datagrams),
        8
    ));
    const _: () = assert!(has_no_tail_padding::<cord_status>(
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
        assert!(offset_of!(cord_report, dropped) == 160);
        assert!(offset_of!(cord_report, dropped_datagrams) == 168);

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

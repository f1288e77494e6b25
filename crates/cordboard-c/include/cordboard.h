/* cordboard: any descriptor to any descriptor.
 *
 * Made from the Rust sources by cbindgen (crates/cordboard-c/tests/header.rs):
 * change those, not this. The page to read first is docs/c.md.
 *
 * Every call may be made from any thread. None may be made in a signal
 * handler. Link with `pkg-config --cflags --libs cordboard`. */

#ifndef CORDBOARD_H
#define CORDBOARD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// `cord_splice` until the source ends.
#define CORD_EOF SIZE_MAX

// Initialisers. In C, a compound literal of one is a value as well:
// `(struct cord_request)CORD_REQUEST_INIT(from, to)`.
#define CORD_REQUEST_INIT(source, sink)                                        \
    {sizeof(struct cord_request), (source), (sink), CORD_ALL, CORD_HERE,       \
     CORD_HERE, 0, 0, 0, NULL, 0, 0, 0, 0, 0}
#define CORD_REPORT_INIT                                                       \
    {sizeof(struct cord_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}
#define CORD_STATUS_INIT                                                       \
    {sizeof(struct cord_status), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}

// The same in `cord_request.size`.
#define CORD_ALL UINT64_MAX

// In `cord_request.source_offset` and `sink_offset`: where the descriptor
// stands, and moving that place along.
#define CORD_HERE -1

// A flag of `cord_request`: a snapshot. Paths that hand the page cache's own
// pages on are left out, so that later writes to the source cannot show; nor
// those to a file whose pages are in a pipe or a socket that is the source.
#define CORD_STABLE 1

// A flag of `cord_request`: `fsync(2)` the sink at the end. Its result counts.
#define CORD_SYNC 2

// A flag of `cord_request`: blocks of zeros become holes, where the sink is a
// file.
#define CORD_SPARSE 4

// A flag of `cord_request`: every byte is written, the source's holes too.
#define CORD_DENSE 8

// `cord_request.direct`: past the page cache where that is at least as fast as
// any other way: much to move, `CORD_SYNC`, and most of the source not cached.
#define CORD_DIRECT_AUTO 0

// `cord_request.direct`: past the page cache wherever both sides can, before
// any other way.
#define CORD_DIRECT_ALWAYS 1

// `cord_request.direct`: never past the page cache.
#define CORD_DIRECT_NEVER 2

// Why a transfer ended: the source ended.
#define CORD_ENDED_EOF 1

// Why a transfer ended: its size was reached.
#define CORD_ENDED_SIZE 2

// Why a transfer ended: nothing had moved for the time of `idle_ms`.
#define CORD_ENDED_IDLE 3

// Why a transfer ended: it was cancelled.
#define CORD_ENDED_CANCELLED 4

// Why a transfer ended: a failure, which `failed` and `error` tell of.
#define CORD_ENDED_ERROR 5

// The side that failed: none, or neither.
#define CORD_NEITHER 0

// The side that failed: the source.
#define CORD_SOURCE 1

// The side that failed: the sink.
#define CORD_SINK 2

// A handle on one transfer: a number that is looked up, so that one which was
// closed, or never was, is `EBADF`. The numbers are not used twice in a
// process. 0 is `CORD_LAST`; -1 is what `cord_start` returns on failure.
typedef int64_t cord_transfer;

// What to move. Begin with `struct cord_request r = CORD_REQUEST_INIT(src,
// dst);`, which means all there is, from where both stand.
struct cord_request {
    // `sizeof(struct cord_request)`.
    size_t struct_size;
    // Descriptor to read from. `cord_start` duplicates it: the caller may close
    // it once `cord_start` has returned. `cord_run` does not duplicate it: it must
    // stay open until `cord_run` has returned.
    int source;
    // Descriptor to write to. The same.
    int sink;
    // Bytes, or `CORD_ALL` to the source's end.
    uint64_t size;
    // Byte of the source to begin at, its own position being left alone; or
    // `CORD_HERE`.
    int64_t source_offset;
    // The same for the sink.
    int64_t sink_offset;
    // Bytes moved by one step at most, and the size of each datagram where a
    // stream goes to a datagram socket. 0: whatever suits.
    uint64_t block;
    // End, without an error, when nothing has moved for so many
    // milliseconds. If the source falls silent, bytes that were read have the
    // same time again to go to the sink. 0: never.
    uint64_t idle_ms;
    // `CORD_STABLE`, `CORD_SYNC`, `CORD_SPARSE` or `CORD_DENSE`, or'ed.
    uint64_t flags;
    // The paths that may be used, names separated by commas, as in the
    // variable `CORDBOARD_ROUTE`. NULL: as the environment says.
    const char *paths;
    // Whether to go past the page cache between files (O_DIRECT):
    // `CORD_DIRECT_AUTO` and its like.
    uint32_t direct;
    // The paper's watermarks, for a path that keeps several blocks in flight
    // (direct): no more reads are started while so many are pending. With all
    // three 0 the library finds out what suits the device; the paper's are
    // 3, 5 and 5.
    uint32_t marks_reads;
    // No more reads are started while so many writes are pending.
    uint32_t marks_writes;
    // So many reads are started at a time, at most.
    uint32_t marks_burst;
    // 0.
    size_t reserved;
};

// The account of a transfer that has ended. `read == written + stranded`,
// always. Begin with `struct cord_report r = CORD_REPORT_INIT;`.
struct cord_report {
    // `sizeof(struct cord_report)`.
    size_t struct_size;
    // Bytes taken from the source.
    uint64_t read;
    // Bytes that the sink accepted, from its first on without a gap. If a
    // block fails past the page cache (`direct`), blocks behind it may be in
    // the sink: they do not count. A file that they made longer is cut off
    // again; what they replaced within its old length, or in a block device,
    // is gone.
    uint64_t written;
    // Bytes taken from the source that the sink did not accept and that could
    // not be put back: `cord_stranded` hands them over.
    uint64_t stranded;
    // Datagrams that the kernel cut short. 0 in practice.
    uint64_t truncated;
    // Wall time from start to end, in nanoseconds.
    uint64_t elapsed_ns;
    // Why it ended: `CORD_ENDED_EOF` and its like.
    int ended;
    // Which side failed: `CORD_SOURCE`, `CORD_SINK` or `CORD_NEITHER`.
    int failed;
    // The errno it failed with, or 0.
    int error;
    // 0.
    int reserved;
    // The paths that carried it, in the order of their first use, separated
    // by commas: `"clone"`, `"splice,read/write"`.
    char path[96];
};

// A transfer's state while it runs. Begin with `struct cord_status s =
// CORD_STATUS_INIT;`.
struct cord_status {
    // `sizeof(struct cord_status)`.
    size_t struct_size;
    // Bytes taken from the source so far. Past the page cache (`direct`), a
    // block counts as read and as written once it and all blocks before it are
    // in the sink.
    uint64_t read;
    // Bytes that the sink accepted so far.
    uint64_t written;
    // Bytes between the two: `read - written`.
    uint64_t in_transit;
    // Bytes written per second since the start.
    uint64_t rate;
    // Since the start, in nanoseconds.
    uint64_t elapsed_ns;
    // Reads in the kernel's hands.
    uint32_t pending_reads;
    // Writes in the kernel's hands.
    uint32_t pending_writes;
    // 1 once it has ended, 0 before.
    int ended;
    // 0.
    int reserved;
    // The path in use, or the last one.
    char path[32];
};

// Called once when a transfer has ended, with what was given to `cord_on_end`.
// It runs on a thread of the library, with all signals blocked (or on the
// caller's, where the end came first), and should be short. It must not
// throw, and must not wait for another transfer.
typedef void (*cord_callback)(cord_transfer transfer,
                              const struct cord_report *report,
                              void *user);

// In `cord_wait`, `cord_try`, `cord_stranded`, `cord_json` and `cord_close`:
// the last `cord_splice` or `cord_run` that this thread waited for. It has
// ended: all else is `EBADF`.
#define CORD_LAST 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// cord_splice - move bytes from any descriptor to any other
//
// Moves `size` bytes, or with `CORD_EOF` all there are, from where `src`
// stands to where `dst` stands, by the fastest way this kernel has for the
// pair. Fewer come where `src` ends before. Both positions move along. It
// waits on descriptors with O_NONBLOCK too, and goes on after a signal's
// handler. No SIGPIPE and no SIGXFSZ are raised. The descriptors are not
// duplicated, and must stay open until it has returned.
//
// If either descriptor has FASYNC (O_ASYNC) set, both are duplicated, it
// returns 0 as soon as the transfer has started, and SIGIO tells of the end:
// the signal of F_SETSIG, if one was set, to the owner of F_SETOWN, or to the
// calling process where there is none. See docs/c.md, "The paper's way".
// `cord_last` tells how it went.
//
// # Returns
//
// Bytes written (SSIZE_MAX for more), or -1 and errno. What had been moved
// before a failure, be it nothing, is in `cord_try(CORD_LAST, &report)`, and
// bytes that were read and not written are had with
// `cord_stranded(CORD_LAST, ...)`.
//
// # Errors
//
// * EBADF: not open, or not for this direction.
// * EISDIR: a directory.
// * EINVAL: a listening socket; what cannot be read or written at all, as an
//   epoll descriptor; a record of an eventfd, a timerfd, a signalfd or inotify
//   that is longer than `size`; source and sink are one file or one open
//   description in a way that has no end, or that overlaps; a word in
//   CORDBOARD_ROUTE or CORDBOARD_WITHOUT that names no path.
//   With FASYNC, an end that is an error is reported by the signal.
// * EPIPE, ECONNRESET: the sink has no reader any more.
// * ENODATA: the source was truncated while it was read.
// * EOPNOTSUPP: the switches leave no path for this pair.
// * Any errno of read(2) and write(2) on these descriptors: EIO, ENOSPC,
//   EFBIG, EDQUOT, and so on.
ssize_t cord_splice(int src, int dst, size_t size);

// cord_last - the handle of an asynchronous cord_splice
//
// The latest that was started from or to the descriptor of this number, while
// it runs and after. The library keeps it until the next one on both its
// numbers, or until `cord_close`. Not to be called in a signal handler.
//
// # Returns
//
// A handle, or -1 and errno.
//
// # Errors
//
// * ENOENT: there is none, or it was closed.
// * EBADF: a number below 0.
cord_transfer cord_last(int fd);

// cord_run - carry out a request, and wait for its end
//
// As cord_splice, with everything that a request can say, and never
// asynchronous: FASYNC is not looked at. `report` may be NULL; it is filled
// in after every failure too, but that of its own `struct_size`.
//
// # Returns
//
// 0, or -1 and errno. An end by `idle_ms` is none of both sides' failure: 0,
// with bytes in `report->stranded` too, which `cord_stranded` hands back.
//
// # Errors
//
// * EFAULT: `request` is NULL.
// * EINVAL: a `struct_size` that no version had; an unknown flag, offset, path
//   or `direct`.
// * E2BIG: a field that this version does not know is not 0.
// * ESPIPE: an offset for what cannot seek.
// * EOVERFLOW: an offset past 2^63-1.
// * All of cord_splice's.
int cord_run(const struct cord_request *request, struct cord_report *report);

// cord_start - begin a transfer that runs by itself
//
// Both descriptors are duplicated. The caller owns the handle and gives it
// back with `cord_close` or `cord_detach`.
//
// # Returns
//
// A handle, or -1 and errno.
//
// # Errors
//
// Those of cord_run that need nothing to be moved, and
//
// * EMFILE, ENFILE, ENOMEM, EAGAIN: no descriptor, memory or thread.
// * EBADF: this thread has descriptors of its own (`unshare(2)`).
cord_transfer cord_start(const struct cord_request *request);

// cord_wait - wait for a transfer's end
//
// After it the callbacks of the transfer have returned, and it leaves both
// descriptors alone. The handle stays open.
// Any number of threads may wait, and no descriptor is needed for it. `report`
// may be NULL.
//
// # Returns
//
// 0 however it ended: see `report->ended` and `report->error`. -1 and errno
// where it could not be waited for.
//
// # Errors
//
// * EBADF: no open handle of this process.
// * EDEADLK: called in a callback.
// * EINVAL: a `struct_size` that no version had.
int cord_wait(cord_transfer transfer, struct cord_report *report);

// cord_try - the account of a transfer, if it has ended
//
// Never waits. `report` may be NULL.
//
// # Returns
//
// 1 if it has ended, 0 if it still runs, -1 and errno.
//
// # Errors
//
// * EBADF: no open handle of this process.
// * EINVAL: a `struct_size` that no version had.
int cord_try(cord_transfer transfer, struct cord_report *report);

// cord_get_status - how far a transfer has come
//
// # Returns
//
// 0, or -1 and errno.
//
// # Errors
//
// * EBADF: no open handle of this process; CORD_LAST, which has ended.
// * EFAULT: `status` is NULL.
// * EINVAL: a `struct_size` that no version had.
int cord_get_status(cord_transfer transfer, struct cord_status *status);

// cord_fd - a descriptor to wait for the end with poll(2)
//
// It polls readable once the transfer has ended, and stays so. It belongs to
// the handle: not to be read, nor closed.
//
// # Returns
//
// The descriptor, or -1 and errno.
//
// # Errors
//
// * EBADF: no open handle of this process; or this thread has descriptors of
//   its own (`unshare(2)`), among which the handle's is not.
// * EMFILE, ENFILE, ENOMEM: no descriptor or memory is available.
int cord_fd(cord_transfer transfer);

// cord_on_end - have a function called at the end
//
// Once, on a thread of the library before anyone who waits is told; at once
// and on the calling thread, if the end has come. It is called even where the
// handle is closed meanwhile. The report is valid for the call.
//
// # Returns
//
// 0, or -1 and errno.
//
// # Errors
//
// * EBADF: no open handle of this process.
// * EFAULT: `callback` is NULL.
int cord_on_end(cord_transfer transfer, cord_callback callback, void *user);

// cord_cancel - end a transfer early
//
// Returns at once; the end comes as any other, with an exact account. What
// has ended already stays as it is. A system call that blocks and cannot be
// interrupted returns first (docs/c.md).
//
// # Returns
//
// 0, or -1 and errno.
//
// # Errors
//
// * EBADF: no open handle of this process.
int cord_cancel(cord_transfer transfer);

// cord_stranded - bytes that were read from the source and not written
//
// As read(2): the next of them, at most `size`. Datagrams come one a call and
// whole, be it with no bytes.
//
// # Returns
//
// Bytes, or -1 and errno.
//
// # Errors
//
// * ENODATA: nothing is left, or nothing ever was.
// * EMSGSIZE: the next datagram has more than `size` bytes. It stays.
// * EBUSY: the transfer still runs.
// * EDEADLK: called in a callback.
// * EBADF: no open handle of this process.
// * EFAULT: `buffer` is NULL and `size` is not 0.
ssize_t cord_stranded(cord_transfer transfer, void *buffer, size_t size);

// cord_json - the whole account as one line of JSON
//
// The same as the command's `--json`, which has the paths that were not taken
// and why. As snprintf(3): at most `size` bytes with the ending 0.
//
// # Returns
//
// The length of the whole text, without its 0, or -1 and errno.
//
// # Errors
//
// * EBUSY: the transfer still runs.
// * EDEADLK: called in a callback.
// * EBADF: no open handle of this process.
// * EFAULT: `buffer` is NULL and `size` is not 0.
ssize_t cord_json(cord_transfer transfer, char *buffer, size_t size);

// cord_close - give a handle back; a transfer that still runs is cancelled
//
// Stranded bytes that were not read are dropped with it: wait and read them
// first, where they matter. Closing `CORD_LAST` frees what it keeps.
//
// It does not wait. What had been read is still written after it, as far as
// the sink takes it at once. To write something behind a transfer that was
// ended early: `cord_cancel`, `cord_wait`, `cord_close`.
//
// # Returns
//
// 0, or -1 and errno.
//
// # Errors
//
// * EBADF: no open handle of this process.
int cord_close(cord_transfer transfer);

// cord_detach - give a handle back and let the transfer go on to its end
//
// # Returns
//
// 0, or -1 and errno.
//
// # Errors
//
// * EBADF: no open handle of this process.
int cord_detach(cord_transfer transfer);

// cord_set_flags - fcntl(fd, F_SETFL, flags) that keeps FASYNC on every file
//
// Linux leaves O_ASYNC out on regular files, without an error. This remembers
// it, so that cord_splice is asynchronous from and to such a file as well.
// (The file's F_SETSIG becomes SIGIO, if it was 0; F_SETSIG with 0 ends it
// too.) While an asynchronous splice runs, the flag is kept for its end.
//
// # Returns
//
// 0, or -1 and errno.
//
// # Errors
//
// Those of fcntl(2): EBADF, EINVAL, EPERM.
int cord_set_flags(int fd, int flags);

// cord_get_flags - fcntl(fd, F_GETFL) that shows FASYNC as cord_splice sees it
//
// # Returns
//
// The flags, or -1 and errno.
//
// # Errors
//
// * EBADF: not an open descriptor.
int cord_get_flags(int fd);

// cord_error - what this thread's last failed call has to say
//
// Which side failed and why, and what to do about it: more than errno can
// tell. Valid until the next call of this thread that fails. Never NULL.
const char *cord_error(void);

// cord_version - the version of the library, `"0.1.0"`
const char *cord_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CORDBOARD_H */

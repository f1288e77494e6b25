//! Limits of the process, and its memory.

use std::mem::MaybeUninit;

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Returns a limit of the process; `u64::MAX` for none. `None` if a filter
/// refuses the call.
fn limit(resource: Resource) -> Option<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: getrlimit(2) writes one rlimit, which is valid for it.
    let done = unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) };
    // SAFETY: all zeros is a valid rlimit, and the call has filled it in.
    let limit = unsafe { limit.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "its width is the architecture's")]
    (done == 0).then_some(match limit.rlim_cur {
        libc::RLIM_INFINITY => u64::MAX,
        limit => limit as u64,
    })
}

/// Returns the limit of descriptor numbers: `RLIMIT_NOFILE`. `None` if a filter
/// refuses the call.
pub fn most_descriptors() -> Option<u64> {
    limit(libc::RLIMIT_NOFILE)
}

/// Returns the bytes of address space that the process may still map:
/// `RLIMIT_AS`, or `RLIMIT_DATA`, which counts writable private memory (since
/// Linux 4.7), less what it has (`/proc/self/statm` in `proc_pid_statm(5)`).
/// `None`: no limit.
pub fn addresses_left() -> Option<u64> {
    let limited = |limit: Option<u64>| limit.filter(|limit| *limit != u64::MAX);
    let limits = [
        limited(limit(libc::RLIMIT_AS)),
        limited(limit(libc::RLIMIT_DATA)),
    ];
    if limits == [None; 2] {
        return None;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let has = addresses_and_data(&statm);
    let left = |(limit, has): (Option<u64>, u64)| Some(limit?.saturating_sub(has));
    limits.into_iter().zip(has).filter_map(left).min()
}

/// Returns the first field of `/proc/self/statm`, and the sixth, in bytes; 0 if
/// they cannot be parsed.
fn addresses_and_data(statm: &str) -> [u64; 2] {
    let page = rustix::param::page_size() as u64;
    let fields: Vec<&str> = statm.split_ascii_whitespace().collect();
    [0, 5].map(|field| {
        let pages = fields.get(field).and_then(|pages| pages.parse().ok());
        pages.unwrap_or(0u64).saturating_mul(page)
    })
}

/// Has the C library use one heap for all threads. The GNU library gives each
/// thread its own, of 64 MiB of addresses (`HEAP_MAX_SIZE`, malloc/arena.c).
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes integers, and locks the main heap. A thread that makes a heap of its
    // own meanwhile sees the old number or the new one.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unparsable_memory_counts_as_none() {
        let page = rustix::param::page_size() as u64;
        let statm = "1000 500 300 10 0 200 0\n";
        assert_eq!(addresses_and_data(statm), [1000 * page, 200 * page]);
        assert_eq!(addresses_and_data(""), [0, 0]);
        assert_eq!(addresses_and_data("x\n"), [0, 0]);
        assert_eq!(addresses_and_data("7 -1"), [7 * page, 0]);
        let large = format!("{} 0 0 0 0 99999999999999999999", u64::MAX);
        assert_eq!(addresses_and_data(&large), [u64::MAX, 0]);
    }
}

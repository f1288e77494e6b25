use super::*;

#[test]
fn more_than_there_are_addresses_for() {
    for length in [usize::MAX, usize::MAX - 4095, isize::MAX as usize] {
        assert_eq!(Buffer::with_capacity(length).err(), Some(Errno::ENOMEM));
    }
}

#[test]
fn less_where_there_is_not_so_much() {
    let buffer = Buffer::at_most(isize::MAX as usize, 5000).unwrap();
    assert!(buffer.len() >= 8192 && buffer.len() < isize::MAX as usize);
    let none = Buffer::at_most(usize::MAX, isize::MAX as usize);
    assert_eq!(none.err(), Some(Errno::ENOMEM));
}

#[test]
fn what_is_hardly_touched_is_kept() {
    let buffer = Buffer::sparse(4 << 20, 4096).unwrap();
    assert_eq!(buffer.len(), 4 << 20);
    let start = buffer.as_ptr();
    buffer.recycle();
    let mut again = Buffer::sparse(3 << 20, 4096).unwrap();
    assert_eq!((again.as_ptr(), again.len()), (start, 3 << 20));
    again.is_not_sparse();
    again.recycle();
    assert!(SPARE.take().is_none());
    // A buffer that is touched does not get small pages.
    Buffer::sparse(4 << 20, 4096).unwrap().recycle();
    assert!(!Buffer::with_capacity(3 << 20).unwrap().sparse);
    // A 32-bit process may lack the address space for it.
    if cfg!(target_pointer_width = "64") {
        let less = Buffer::sparse(isize::MAX as usize - 4095, 5000).unwrap();
        assert_eq!(less.len(), 8192);
    }
}

/// Makes the calling process, a child, lock its later mappings.
fn lock() -> bool {
    // SAFETY: takes an integer.
    unsafe { libc::mlockall(libc::MCL_FUTURE) == 0 }
}

/// An unprivileged process that locks its mappings, under `RLIMIT_MEMLOCK`.
#[test]
fn less_where_no_more_may_be_locked() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::set_thread_res_uid;
    let most = 1 << 20;
    let limited = || {
        let nobody = rustix::process::Uid::from_raw(65534);
        if rustix::process::geteuid().is_root() {
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(Resource::Memlock, limit).is_ok() && lock()
    };
    if !testkit::child::in_a_child(limited) {
        testkit::skip::here("mlockall(2) is refused, or so high a limit");
        return;
    }
    assert!(testkit::child::in_a_child(|| {
        assert!(limited());
        let some = Buffer::at_most(4 << 20, 4096).unwrap();
        assert!(some.len() >= 4096 && some.len() as u64 <= most);
        drop(some);
        let none = Buffer::at_most(4 << 20, 4 << 20);
        assert_eq!(none.err(), Some(Errno::ENOMEM));
        Buffer::sparse(64 << 20, 8192).unwrap().len() == 8192
    }));
}

/// In a process that locks its mappings, only the touched pages are locked.
#[test]
fn what_is_hardly_touched_is_not_filled_in() {
    // RLIMIT_MEMLOCK binds a process without CAP_IPC_LOCK.
    let can = || lock() && Vec::<u8>::new().try_reserve_exact(64 << 20).is_ok();
    if !testkit::child::in_a_child(can) {
        testkit::skip::here("mlockall(2) of so much is refused");
        return;
    }
    assert!(testkit::child::in_a_child(|| {
        assert!(lock());
        let whole = 64 << 20;
        let mut buffer = Buffer::sparse(whole, 4096).unwrap();
        assert_eq!(buffer.len(), whole);
        let page = rustix::param::page_size();
        let there = |buffer: &Buffer| {
            let mut pages = vec![0u8; whole / page];
            // SAFETY: fills in a byte a page of the range.
            let done =
                unsafe { libc::mincore(buffer.as_raw().cast(), whole, pages.as_mut_ptr().cast()) };
            assert_eq!(done, 0);
            pages.iter().filter(|page| **page & 1 == 1).count()
        };
        let before = there(&buffer);
        buffer[whole / 2] = 7;
        (before, there(&buffer)) == (0, 1) && buffer.is_locked()
    }));
}

#[test]
fn aligned_and_reused() {
    let mut buffer = Buffer::with_capacity(100).unwrap();
    assert_eq!(buffer.as_ptr() as usize % 4096, 0);
    assert_eq!(buffer.len(), 4096);
    buffer[4095] = 7;
    let start = buffer.as_ptr();
    buffer.recycle();
    let again = Buffer::with_capacity(4096).unwrap();
    assert_eq!(again.as_ptr(), start);
    drop(again);
    Buffer::with_capacity(1 << 20).unwrap().recycle();
    let short = Buffer::with_capacity(4096).unwrap();
    assert_eq!(short.len(), 4096, "a longer one is not shown as such");
}

/// A child does not inherit the buffer, and does not unmap another mapping at
/// its address.
#[test]
fn what_a_device_reads_into_is_not_forked() {
    let mut buffer = Buffer::huge(1 << 20).unwrap();
    buffer[0] = 7;
    let place = buffer.as_raw();
    let place = place as usize;
    assert!(testkit::child::in_a_child(|| {
        let mapped = || {
            // SAFETY: looks whether the page is mapped, and changes nothing.
            let unmapped = unsafe { libc::msync(place as *mut _, 4096, libc::MS_ASYNC) };
            unmapped == 0
        };
        let before = mapped();
        let (protection, flags) = (ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: nothing is mapped there, as has just been seen.
        let other = !before
            && unsafe { rustix::mm::mmap_anonymous(place as _, 4096, protection, flags) }.is_ok();
        drop(buffer);
        other && mapped()
    }));
}

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::*;
use crate::sys::Thread;

const BLOCK: usize = 8192;

/// A ring between two files, with a second descriptor of each.
fn ring(arena: &Arena) -> Option<(Uring, File, File)> {
    let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    source.write_all_at(&[7; 2 * BLOCK], 0).unwrap();
    let files = [&source, &sink].map(|file| file.try_clone().unwrap().into());
    match Uring::new(files, arena) {
        Ok(ring) => Some((ring, source, sink)),
        Err((errno, _)) => {
            testkit::skip::here(format!("no io_uring here: {errno:?}"));
            None
        }
    }
}

fn length(file: &File) -> u64 {
    file.metadata().unwrap().len()
}

/// `retire` does not submit queued calls, and waits for the tags only.
#[test]
fn letting_go_submits_nothing_and_waits_for_nothing_else() {
    use io_uring::opcode::PollAdd;
    let arena = Arc::new(std::sync::Mutex::new(
        Arena::with_capacity(1 << 20).unwrap(),
    ));
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let (thread_at, thread) = std::sync::mpsc::channel();
    let retires = std::thread::spawn(move || {
        let source = tempfile::tempfile().unwrap();
        let mut arena = arena.lock().unwrap();
        let Ok(mut ring) = Uring::new([source.into(), reader], &arena) else {
            return false;
        };
        // A poll request uses the second file until the pipe is written to.
        let poll = PollAdd::new(types::Fixed(1), libc::POLLIN as u32).build();
        // SAFETY: polling uses no memory, and the file is registered.
        unsafe { ring.ring.submission().push(&poll.user_data(RELEASED | 7)) }.unwrap();
        ring.ring.submit().unwrap();
        let piece = arena.take(BLOCK).unwrap();
        assert!(ring.queue(0, piece, 0, 0).is_ok());
        ring.close();
        thread_at.send(Thread::this().number()).unwrap();
        ring.retire();
        assert_eq!(ring.ring.submission().len(), 2, "still not submitted");
        true
    });
    let Ok(number) = thread.recv() else {
        testkit::skip::here("no io_uring here");
        return;
    };
    let _hangs = testkit::watchdog::watch("letting_go_submits_nothing");
    // Until `retire` waits or has returned. Before Linux 6.12 io_uring_register(2)
    // waits; since then it returns at once.
    let task = |file| std::fs::read_to_string(format!("/proc/self/task/{number}/{file}"));
    let waits = || {
        let in_call = |number| move |call: String| call.starts_with(&format!("{number} "));
        let asleep = |status: String| !status.contains("State:\tR");
        task("syscall").map_or(true, in_call(libc::SYS_io_uring_enter))
            || (task("syscall").is_ok_and(in_call(libc::SYS_io_uring_register))
                && task("status").is_ok_and(asleep))
    };
    while !retires.is_finished() && !waits() {
        std::thread::yield_now();
    }
    rustix::io::write(&writer, b"x").unwrap();
    // Up to Linux 6.3 a deferred completion does not wake the waiting call
    // ("io_uring/rsrc: fix DEFER_TASKRUN rsrc quiesce"), but a signal does, and the
    // call is repeated. Outside this test, `retire` is called when everything has
    // completed.
    while !retires.is_finished() {
        interrupt(number);
        std::thread::yield_now();
    }
    assert!(retires.join().unwrap());
}

/// Sends a signal that only interrupts a call (`EINTR`).
fn interrupt(thread: i32) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an all-zero sigaction is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: the handler does nothing.
    let set = unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let process = std::process::id();
    // SAFETY: takes integers. ESRCH: it has ended.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2) };
}

/// The kernel accepts the read of the second block but not its write.
#[test]
fn a_write_without_its_read_is_never_submitted() {
    let mut arena = Arena::with_capacity(1 << 20).unwrap();
    let Some((mut ring, _source, sink)) = ring(&arena) else {
        return;
    };
    for slot in 0..3 {
        let at = (slot * BLOCK) as u64;
        let piece = arena.take(BLOCK).unwrap();
        assert!(ring.queue(slot, piece, at, at).is_ok());
    }
    assert!(ring.is_stuck());
    ring.submit(3, true).unwrap();
    assert!(ring.is_closed() && !ring.is_stuck());
    let mut seen = Vec::new();
    while ring.in_kernel > 0 {
        ring.enter(true).unwrap();
        while let Some(done) = ring.next() {
            assert_eq!(done.result, Ok(BLOCK));
            seen.push((done.slot, done.half));
        }
    }
    seen.sort_by_key(|(slot, half)| (*slot, *half == Half::Write));
    assert_eq!(seen, [(0, Half::Read), (0, Half::Write), (1, Half::Read)]);
    assert_eq!(length(&sink), BLOCK as u64, "the first block alone");
    assert!((0..3).all(|slot| ring.release(slot).is_some()));
    let piece = arena.take(BLOCK).unwrap();
    assert!(ring.queue(3, piece, 0, 0).is_err(), "it takes no more");
    drop(ring);
    assert_eq!(length(&sink), BLOCK as u64);
}

#[test]
fn what_is_queued_when_it_closes_never_begins() {
    let mut arena = Arena::with_capacity(1 << 20).unwrap();
    let Some((mut ring, _source, sink)) = ring(&arena) else {
        return;
    };
    let piece = arena.take(BLOCK).unwrap();
    assert!(ring.queue(0, piece, 0, 0).is_ok());
    ring.close();
    ring.enter(false).unwrap();
    assert!(ring.release(0).is_some());
    assert!(ring.next().is_none());
    drop(ring);
    assert_eq!(length(&sink), 0);
}

//! Threads, by `pthread_create(3)`. A thread of the standard library takes a
//! process-wide lock as it starts and as it ends, for its message about stack
//! overflows. If another thread holds that lock at the moment of a `fork(2)`,
//! it is never released in the child, where the standard library can then start
//! no thread.
//!
//! These threads would not print that message anyway: they block `SIGSEGV`,
//! which then kills the process regardless of handlers
//! (`force_sig_info_to_task` in kernel/signal.c). The stack still has a guard
//! page (`pthread_attr_setguardsize(3)`).

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use super::event::Event;
use super::process::Stamp;
use crate::errno::Errno;
use crate::guarded::guarded;

/// The standard library's default.
const STACK: usize = 2 << 20;

/// A started thread. Dropping this value detaches it.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Until it is joined.
    id: Option<libc::pthread_t>,
    /// The process that has the thread; a child of `fork(2)` does not.
    process: Stamp,
    /// Happens when the thread's body has ended.
    ended: Arc<Event>,
}

// SAFETY: an identifier, a pointer in some C libraries, that any thread may
// pass to any call.
unsafe impl Send for Spawned {}

/// The argument of a new thread.
struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
    ends: Ends,
}

/// Dropped when a thread's body has ended.
struct Ends(Arc<Event>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.happen();
    }
}

/// Starts a thread with the calling thread's signal mask. A panic in `body`
/// ends that thread only. The name is truncated to 15 bytes.
///
/// # Errors
///
/// `EAGAIN`: the limit of threads, or no memory; or new processes get another PID namespace.
/// `ENOMEM`: no memory. `EPERM`, `ENOSYS`, or another errno: a filter refuses.
pub(crate) fn spawn(
    name: &'static CStr,
    body: impl FnOnce() + Send + 'static,
) -> Result<Spawned, Errno> {
    let ended = Arc::new(Event::new());
    let ends = Ends(Arc::clone(&ended));
    let body = Box::new(body);
    let start = Box::into_raw(Box::new(Start { name, body, ends }));
    match create(start) {
        Ok(id) => Ok(Spawned {
            id: Some(id),
            process: Stamp::here(),
            ended,
        }),
        Err(errno) => {
            // SAFETY: made above; no thread has begun that would take it.
            drop(unsafe { Box::from_raw(start) });
            Err(errno)
        }
    }
}

fn create(start: *mut Start) -> Result<libc::pthread_t, Errno> {
    let attributes = Attributes::new()?;
    match create_with(&raw const attributes.0, start) {
        // The host's thread-local variables do not fit into a stack of that
        // size (`allocate_stack` in the GNU C library). The default size
        // suffices for the host's own threads.
        Err(Errno::EINVAL) => match create_with(ptr::null(), start) {
            // After unshare(2) with CLONE_NEWPID the kernel starts no thread (`copy_process`,
            // kernel/fork.c).
            Err(Errno::EINVAL) => Err(Errno::EAGAIN),
            done => done,
        },
        done => done,
    }
}

fn create_with(
    attributes: *const libc::pthread_attr_t,
    start: *mut Start,
) -> Result<libc::pthread_t, Errno> {
    let mut id = MaybeUninit::uninit();
    // SAFETY: the attributes are valid, or null; `start` may be used on any
    // thread, and only the new thread uses it once it has begun.
    let refused =
        unsafe { libc::pthread_create(id.as_mut_ptr(), attributes, begin, start.cast::<c_void>()) };
    done(refused)?;
    // SAFETY: filled in by the successful call above.
    Ok(unsafe { id.assume_init() })
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: made by `spawn`, which leaves it to the thread that begins.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { name, body, ends } = *start;
    // The name is informative only.
    let _ = rustix::thread::set_name(name);
    guarded(body);
    drop(ends);
    ptr::null_mut()
}

/// Ends the calling thread. If it is the last one, the process fails, without its exit handlers.
pub(crate) fn end_thread() -> ! {
    // SAFETY: the thread calls and drops nothing any more. Its memory stays.
    unsafe { libc::syscall(libc::SYS_exit, libc::EXIT_FAILURE) };
    // SAFETY: reached if a filter refuses the call above.
    unsafe { libc::_exit(libc::EXIT_FAILURE) }
}

impl Spawned {
    /// Whether its body has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.ended.has_happened()
    }

    /// Waits until the thread has ended. Returns at once on that thread itself,
    /// and in a child of `fork(2)`, which a signal handler may make during the
    /// wait.
    pub(crate) fn join(mut self) {
        // SAFETY: takes nothing.
        let this = unsafe { libc::pthread_self() };
        if self.id == Some(this) || !self.ended.wait_in(self.process) {
            return;
        }
        if let Some(id) = self.id.take() {
            // SAFETY: neither joined nor detached before, since both take the
            // identifier.
            unsafe { libc::pthread_join(id, ptr::null_mut()) };
        }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if let Some(id) = self.id.take()
            && self.process.is_here()
        {
            // SAFETY: neither joined nor detached before, and this process's.
            unsafe { libc::pthread_detach(id) };
        }
    }
}

/// The attributes of new threads.
struct Attributes(libc::pthread_attr_t);

impl Attributes {
    fn new() -> Result<Attributes, Errno> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: fills them in.
        done(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: filled in by the successful call above.
        let mut attributes = Attributes(unsafe { attributes.assume_init() });
        // SAFETY: they are valid. The size is a whole number of pages and above
        // the minimum, so it is not refused.
        unsafe { libc::pthread_attr_setstacksize(&mut attributes.0, STACK) };
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: they are valid, and not used after.
        unsafe { libc::pthread_attr_destroy(&mut self.0) };
    }
}

/// Converts the result of these calls, which is the errno.
fn done(refused: c_int) -> Result<(), Errno> {
    match refused {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Runs `body` on a thread, for tests in a child of `fork(2)`, where other
/// tests were starting theirs. `None`: it panicked.
#[cfg(test)]
pub(crate) fn on_another<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send, made) = std::sync::mpsc::channel();
    let thread = spawn(c"cordboard-test", move || {
        let _ = send.send(body());
    });
    thread.expect("a thread").join();
    made.try_recv().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_has_its_name_and_its_stack_and_is_waited_for() {
        let (send, told) = channel();
        let (go, gone) = channel::<()>();
        let thread = spawn(c"cordboard-named", move || {
            let mut large = [1u8; STACK - (256 << 10)];
            std::hint::black_box(&mut large);
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            send.send((name, std::thread::current())).unwrap();
            // The thread can be parked and unparked as any other.
            std::thread::park();
            gone.recv().unwrap_err();
        })
        .unwrap();
        let (name, parked) = told.recv().unwrap();
        assert_eq!(name, "cordboard-named\n");
        assert!(!thread.is_finished());
        parked.unpark();
        drop(go);
        thread.join();
    }

    #[test]
    fn what_a_thread_keeps_is_dropped_whatever_ends_it() {
        struct Tells(std::sync::mpsc::Sender<bool>);
        impl Drop for Tells {
            fn drop(&mut self) {
                let _ = self.0.send(std::thread::panicking());
            }
        }
        thread_local! {
            static KEPT: std::cell::RefCell<Option<Tells>> = const { std::cell::RefCell::new(None) };
        }
        for panics in [false, true] {
            let (send, told) = channel();
            let own = Tells(send.clone());
            let thread = spawn(c"cordboard-tells", move || {
                let _own = own;
                KEPT.set(Some(Tells(send)));
                if panics {
                    std::panic::resume_unwind(Box::new(()));
                }
            })
            .unwrap();
            assert_eq!(told.recv(), Ok(panics));
            assert_eq!(told.recv(), Ok(false), "as the thread ends");
            assert!(thread.is_finished());
            thread.join();
        }
    }

    /// A detached thread continues, and its stack is released at its end.
    #[test]
    fn a_thread_that_nobody_waits_for_goes_on() {
        let (send, told) = channel();
        let (go, gone) = channel::<()>();
        drop(spawn(c"cordboard-alone", move || {
            gone.recv().unwrap_err();
            send.send(()).unwrap();
        }));
        drop(go);
        assert_eq!(told.recv(), Ok(()));
    }

    #[test]
    fn without_another_thread_the_body_is_given_up() {
        assert!(testkit::child::in_a_child(|| {
            testkit::refuse::refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
            let kept = Arc::new(());
            let body = {
                let kept = Arc::clone(&kept);
                move || drop(kept)
            };
            let refused = spawn(c"cordboard-none", body).map(drop);
            refused == Err(Errno::EAGAIN) && Arc::strong_count(&kept) == 1
        }));
    }

    /// Callers take `EINVAL` for an invalid request.
    #[test]
    fn no_thread_is_started_beside_another_pid_namespace() {
        assert!(testkit::child::in_a_child(|| {
            testkit::refuse::refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EINVAL);
            spawn(c"cordboard-none", || ()).map(drop) == Err(Errno::EAGAIN)
        }));
    }
}

//! What runs transfers while their callers go on: the paper's handlers and
//! callout list.
//!
//! One thread waits for all transfers (`epoll(7)`) and takes the steps of those
//! between pipes and sockets, a step each in turn; another one, when needed,
//! does the same for direct copies, and a few more are there for what waits
//! inside the kernel. No signal reaches any of them. If one of them is blocked
//! in the kernel, another thread takes its place.

mod completion;
mod core;
mod ends;
mod handle;
mod inbox;
mod job;
mod message;
mod poller;
mod reactor;
mod running;
mod slab;
mod status;
mod sync;
mod takeover;
mod timers;
mod workers;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

pub use running::Running;
pub use status::Status;

pub use crate::request::Backend;

use self::core::Core;
use self::ends::Listed;
use self::job::{EngineForJob, Job, Registrations, Ticket};
use self::message::Message;
use self::reactor::EventLoop;
use self::running::{EngineForHandle, Shared};
use self::status::Live;
use self::timers::Timer;
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::{Failure, Refusal};
use crate::request::Request;
use crate::sys::{self, Event, PerProcess, Spawned, duplicate};
use crate::threads;
use crate::transfer::{Clock, Control, Stepper, Transfer, Wakeup};

/// How an engine is to be.
///
/// Write it as a literal that ends in `..Options::default()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How the kernel is given work that it does on its own. Unless this is
    /// [`Backend::Auto`], it takes precedence over `CORDBOARD_ENGINE`.
    pub backend: Backend,
    /// Threads for what waits inside the kernel, at most, and one at least.
    /// They are started when they are needed, and leave when there is nothing
    /// to do. If all are blocked and work waits, additional threads are
    /// started.
    pub workers: usize,
}

impl Default for Options {
    /// Four workers for each processor, but no more than 16: they wait for
    /// disks more than they compute, and a disk wants several to wait for it.
    fn default() -> Options {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Options {
            backend: Backend::Auto,
            workers: (4 * processors).min(16),
        }
    }
}

/// Runs any number of transfers on a few threads of its own.
///
/// Most programs need none: [`start`] and [`Transfer::start`] use
/// one that is there for the whole process, from its first use on. A child of
/// `fork(2)` gets a new one, and so does a host that has closed all descriptors
/// but its own (`close_range(2)`): transfers that were running end with `EBADF`
/// when they are cancelled, waited for or looked at, when their engine is shut
/// down, and within a minute otherwise, and do not touch files that have their
/// numbers by then, not even if these are the same files. A system call that begins within the millisecond before the
/// engine finds out uses the old number all the same. It may read or write a
/// file that the host has opened since, or block on one: an empty pipe that has
/// the number of a regular file. [`Running::cancel`] does not interrupt that
/// call, and the transfer ends after it. A host that ends its transfers before it
/// closes rules that out.
///
/// Its threads have the descriptors of the thread that made it. A thread with
/// a table of its own (`unshare(2)`, `CLONE_FILES`) can make itself an engine,
/// and must then keep it, and what it starts there, to itself.
///
/// Dropped, it [shuts down](Engine::shutdown).
pub struct Engine {
    core: Arc<Core>,
    backend: Backend,
    reactor: Mutex<Option<Spawned>>,
    /// Its threads have ended.
    shut: Event,
}

impl Engine {
    /// Starts one. `epoll_create1(2)`, since Linux 2.6.27.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: `CORDBOARD_ENGINE` names no backend.
    /// * `ENOSYS`, `EPERM`: [`Backend::Uring`], and io_uring is not available,
    ///   or `eventfd2(2)`, which it needs.
    /// * `EMFILE`, `ENFILE`, `ENOMEM`: three descriptors, or memory, are not
    ///   available.
    /// * `EAGAIN`: no thread is available.
    /// * `EPERM`, `ENOSYS`, or another errno of a seccomp filter:
    ///   `epoll_pwait(2)` is refused.
    pub fn new(options: Options) -> Result<Engine, Errno> {
        let backend = match options.backend {
            Backend::Auto => Backend::from_env().map_err(|_| Errno::EINVAL)?,
            chosen => chosen,
        };
        if backend == Backend::Uring {
            sys::try_io_uring()?;
        }
        let core = Arc::new(Core::new(options.workers)?);
        let event_loop = EventLoop::new(&core, core.main());
        let reactor = event_loop.begin()?;
        let body = {
            let core = Arc::clone(&core);
            move || {
                core.set_thread();
                event_loop.run(reactor);
            }
        };
        let thread = threads::start(c"cordboard", core.number, body)?;
        Ok(Engine {
            core,
            backend,
            reactor: Mutex::new(Some(thread)),
            shut: Event::new(),
        })
    }

    /// Starts a transfer and returns at once.
    ///
    /// A transfer whose descriptors are borrowed gets copies of them (`dup(2)`),
    /// which share position and flags with the caller's and are closed at its
    /// end.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoDescriptor`], [`Refusal::NoEngine`],
    /// [`Refusal::OtherDescriptors`]; nothing has moved.
    pub fn start(&self, transfer: Transfer<'static>) -> Result<Running, Failure> {
        self.admit(transfer).map_err(Failure::refused)
    }

    fn admit(&self, transfer: Transfer<'static>) -> Result<Running, Refusal> {
        self.try_start(transfer)?
            .map_err(|(errno, _)| Refusal::NoEngine { errno })
    }

    /// Starts it, or gives it back if this engine starts nothing any more.
    fn try_start(&self, mut transfer: Transfer<'static>) -> Result<Started, Refusal> {
        if self.core.is_inherited() {
            self.core.close_inherited();
            return Ok(Err((Errno::ECHILD, Box::new(transfer))));
        }
        if self.core.is_stopping() {
            return Ok(Err((self.stop_errno(), Box::new(transfer))));
        }
        // Before anything is duplicated: this thread alone could close it.
        if self.core.has_other_descriptors() {
            // A thread that has ended has none at all, and a child that a signal's
            // handler has made by now has its own.
            return match (self.core.is_inherited(), self.core.is_stopping()) {
                (true, _) => Ok(Err((Errno::ECHILD, Box::new(transfer)))),
                (_, true) => Ok(Err((self.stop_errno(), Box::new(transfer)))),
                _ => Err(Refusal::OtherDescriptors),
            };
        }
        let none_left = |errno| Refusal::NoDescriptor { errno };
        transfer.own().map_err(none_left)?;
        transfer.listen();
        let wake = transfer.control.as_ref().and_then(Control::wake_fd);
        let wake = wake.map(duplicate).transpose().map_err(none_left)?;
        transfer.set_up(self.backend);
        let live = Live::new(&transfer);
        let id = self.core.next_id();
        let shared = Shared::new(id, live, &self.core);
        let job = Job {
            listed: Listed::new(self.core.ends(), id, &transfer),
            transfer,
            stepper: Stepper::begin(self.core.clock().now()),
            wait: None,
            wakeup: Wakeup::default(),
            source_polled: false,
            queued: false,
            ending: None,
            timer: Timer::default(),
            poller: Arc::clone(self.core.main().poller()),
            registered: Registrations::default(),
            wake,
            ticket: Ticket::new(
                Arc::clone(&shared),
                Arc::clone(&self.core) as Arc<dyn EngineForJob>,
            ),
        };
        match self.core.inbox().push(Message::Run(Box::new(job))) {
            Ok(()) => Ok(Ok(Running::new(shared))),
            Err(Message::Run(job)) => Ok(Err((self.stop_errno(), Box::new(job.transfer)))),
            Err(_) => Err(Refusal::NoEngine {
                errno: Errno::ESHUTDOWN,
            }),
        }
    }

    /// Why nothing can be started any more.
    fn stop_errno(&self) -> Errno {
        match self.core.is_closed() {
            true => Errno::EBADF,
            false => Errno::ESHUTDOWN,
        }
    }

    /// It can start transfers, as far as its descriptors are concerned; or
    /// another thread has to say so, of which these are.
    fn is_usable(&self) -> bool {
        !self.core.is_closed() || self.core.has_other_descriptors()
    }

    /// Cancels what runs, waits until every outcome has been delivered, and
    /// ends the threads. Later starts are refused with `ESHUTDOWN`.
    ///
    /// On one of this engine's own threads, as in an
    /// [`on_end`](Running::on_end), it returns without waiting. In a child of
    /// `fork(2)` it only closes what the child has inherited, also where a
    /// signal's handler has made that child meanwhile.
    pub fn shutdown(&self) {
        if self.core.is_inherited() {
            return self.core.close_inherited();
        }
        self.core.stop();
        if threads::is_of(self.core.number) {
            return;
        }
        let mut thread = (self.reactor.lock()).unwrap_or_else(PoisonError::into_inner);
        let first = thread.take();
        // Not held meanwhile: a child of fork(2) would wait for it for ever.
        drop(thread);
        match first {
            // It sleeps, and nothing wakes it any more.
            Some(_) if self.core.is_closed() => self.core.end_without_waking(),
            Some(thread) => {
                thread.join();
                self.core.join();
            }
            // A second caller waits as well.
            None => {
                self.core.waits_for(&self.shut);
            }
        }
        if self.core.is_inherited() {
            // A signal's handler has forked meanwhile.
            return self.core.close_inherited();
        }
        self.shut.happen();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
        if self.core.is_inherited() {
            // A thread of the parent's is not the child's to detach.
            let thread = self.reactor.get_mut();
            std::mem::forget(thread.unwrap_or_else(PoisonError::into_inner).take());
            self.core.forget();
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// A transfer that runs, or has come back.
type Started = Result<Running, (Errno, Box<Transfer<'static>>)>;

/// The process's own.
static ENGINE: PerProcess<Engine> = PerProcess::new();

/// That one, if it is usable; another one, if not.
fn default_engine(usable: impl Fn(&Engine) -> bool) -> Result<&'static Engine, Refusal> {
    let fresh = || Engine::new(Options::default());
    ENGINE.get_usable(usable, |before| {
        if let Some(before) = before {
            before.core.close_inherited();
        }
        fresh().map_err(|errno| Refusal::NoEngine { errno })
    })
}

/// In a child of `fork(2)`: closes what its parent's transfers have of pipes and
/// sockets, as the first [`start`] does.
///
/// Public for the C library alone, and no part of the interface.
pub fn close_inherited() {
    if let Some(before) = ENGINE.inherited() {
        before.core.close_inherited();
    }
}

impl Transfer<'static> {
    /// Starts it on the process's own [`Engine`] and returns at once.
    ///
    /// # Errors
    ///
    /// As [`Engine::start`].
    pub fn start(self) -> Result<Running, Failure> {
        let start = || {
            let (mut engine, mut transfer) = (default_engine(|_| true)?, self);
            loop {
                transfer = match engine.try_start(transfer)? {
                    // The host has closed all descriptors, perhaps once more; or
                    // this is a child since.
                    Err((Errno::EBADF | Errno::ECHILD, transfer)) => *transfer,
                    done => return done.map_err(|(errno, _)| Refusal::NoEngine { errno }),
                };
                let next = default_engine(Engine::is_usable)?;
                if std::ptr::eq(next, engine) {
                    let errno = Errno::EBADF;
                    return Err(Refusal::NoEngine { errno });
                }
                engine = next;
            }
        };
        start().map_err(Failure::refused)
    }
}

/// Starts moving what `request` says from `source` to `sink`, and returns at
/// once. Both descriptors may be closed then: the transfer has its own.
///
/// # Errors
///
/// A [`Refusal`] in a [`Failure`]; nothing has moved.
pub fn start(source: impl AsFd, sink: impl AsFd, request: Request) -> Result<Running, Failure> {
    let (source, sink) = (source.as_fd(), sink.as_fd());
    let numbers = [source, sink].map(|fd| fd.as_raw_fd());
    let copy = |fd: std::os::fd::BorrowedFd<'_>, side: Side| {
        duplicate(fd).map_err(|errno| {
            Failure::refused(match errno {
                Errno::EMFILE | Errno::ENFILE => Refusal::NoDescriptor { errno },
                _ => Refusal::Unusable { side, errno },
            })
        })
    };
    let source = copy(source, Side::Source)?;
    let sink = copy(sink, Side::Sink)?;
    let transfer = Transfer::owning(source, sink, request)?;
    transfer.known_as(numbers).start()
}

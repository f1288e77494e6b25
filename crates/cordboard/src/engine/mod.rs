//! Runs transfers while their callers continue: the handlers and the callout list
//! of the 1992 paper.
//!
//! One thread waits for all transfers (`epoll(7)`) and takes the steps of those
//! between pipes and sockets, one step each in turn. A second one, started when
//! needed, does the same for direct copies. A pool of workers makes the calls that
//! may block in the kernel. All signals are blocked in these threads. If the first
//! thread blocks in the kernel, another thread takes its place.

mod completion;
mod core;
mod cycle;
mod handle;
mod home;
mod inbox;
mod inheritable;
mod job;
mod message;
mod numbers;
mod poller;
mod reactor;
mod running;
mod slab;
mod status;
#[cfg(test)]
mod stopped;
mod sync;
mod table;
mod takeover;
mod timers;
#[cfg(test)]
mod worker_tests;
mod workers;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

pub use running::Running;
pub(crate) use status::Awaits;
pub use status::Status;

pub use crate::request::Backend;

use self::core::Core;
use self::inheritable::InheritableEntry;
use self::job::{EndReporter, EngineForJob, Job};
use self::message::Message;
use self::reactor::EventLoop;
use self::running::{EngineForHandle, Shared};
use self::status::Live;
use crate::errno::Errno;
use crate::report::{Failure, Refusal};
use crate::request::Request;
use crate::sys::{self, Event, Origin, PerProcess, Spawned, Thread, duplicate};
use crate::threads;
use crate::transfer::{Control, Transfer};

/// The configuration of an engine.
///
/// Write it as a literal that ends in `..Options::default()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The interface for asynchronous I/O. Any value except [`Backend::Auto`] takes
    /// precedence over `CORDBOARD_ENGINE`.
    pub backend: Backend,
    /// The maximum number of worker threads, at least one. They start when they are
    /// needed and exit after a period without work. If all are blocked and work
    /// waits, additional threads are started.
    pub workers: usize,
}

impl Default for Options {
    /// Four workers for each processor, but no more than 16: they wait for disks
    /// more than they compute, and a disk benefits from several concurrent
    /// requests.
    fn default() -> Options {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Options {
            backend: Backend::Auto,
            workers: (4 * processors).min(16),
        }
    }
}

/// Runs any number of transfers on a few threads.
///
/// Most programs do not create one: [`start`] and [`Transfer::start`] use one
/// engine for the whole process, which the first use creates. A child of `fork(2)`
/// gets a new one, and so does a host that has closed all descriptors but its own
/// (`close_range(2)`). Transfers that were running then end with `EBADF`: when they
/// are cancelled, waited for or queried, when their engine is shut down, and within
/// a minute otherwise. They do not touch the files that have their descriptor
/// numbers by then, even if these are the same files. One exception: a system call
/// that begins within the millisecond before the engine notices uses the old
/// number. It may read or write a file that the host has opened since, or block on
/// one, such as an empty pipe that has the number of a regular file.
/// [`Running::cancel`] does not interrupt that call, and the transfer ends after
/// it. To rule this out, the host ends its transfers before it closes their
/// descriptors.
///
/// Its threads share the descriptor table of the thread that created it. A thread
/// with a table of its own (`unshare(2)`, `CLONE_FILES`) can create its own engine,
/// and must then use that engine and its transfers in this thread only.
///
/// Dropping an engine [shuts it down](Engine::shutdown).
pub struct Engine {
    core: Arc<Core>,
    backend: Backend,
    reactor: Mutex<Option<Spawned>>,
    /// All threads have ended.
    shut: Event,
}

impl Engine {
    /// Starts an engine. Uses `epoll_create1(2)`, since Linux 2.6.27.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: `CORDBOARD_ENGINE` names no backend.
    /// * `ENOSYS`, `EPERM`: the backend is [`Backend::Uring`], and io_uring, or
    ///   `eventfd2(2)`, which it needs, is not available.
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
        Engine::with(backend, options.workers)
    }

    /// As [`Engine::new`], without a look at the environment.
    fn with(backend: Backend, workers: usize) -> Result<Engine, Errno> {
        if backend == Backend::Uring {
            sys::try_io_uring()?;
        }
        let core = Arc::new(Core::new(workers)?);
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

    /// Starts a transfer and returns immediately.
    ///
    /// A transfer with borrowed descriptors gets copies of them (`dup(2)`), which
    /// share position and flags with the caller's and are closed at its end.
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

    /// Starts a transfer, or returns it if this engine starts none any more.
    fn try_start(&self, mut transfer: Transfer<'static>) -> Result<Started, Refusal> {
        if self.core.is_inherited() {
            self.core.close_inherited();
            return Ok(Err((Errno::ECHILD, Box::new(transfer))));
        }
        if self.core.is_stopping() {
            return self.returned(transfer);
        }
        // Before anything is duplicated: only this thread could close the copies.
        if self.core.has_other_descriptors() {
            // The engine may have been shut down meanwhile, or a signal handler may
            // have forked: that is the error to report.
            return match (self.core.is_inherited(), self.core.is_stopping()) {
                (true, _) => Ok(Err((Errno::ECHILD, Box::new(transfer)))),
                (_, true) => self.returned(transfer),
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
        let shared = Shared::new(id, live, transfer.source_rests, &self.core);
        let inheritable = InheritableEntry::new(self.core.inheritable(), id, &transfer);
        let engine = Arc::clone(&self.core) as Arc<dyn EngineForJob>;
        let reporter = EndReporter::new(Arc::clone(&shared), engine);
        let job = Job::new(
            transfer,
            wake,
            inheritable,
            self.core.main().poller(),
            reporter,
        );
        match self.core.inbox().push(Message::Run(Box::new(job))) {
            Ok(()) => Ok(Ok(Running::new(shared))),
            Err(Message::Run(job)) => {
                let Job { transfer, wake, .. } = *job;
                if self.stop_errno() == Errno::EBADF && !transfer.has_its_descriptors() {
                    // The number may refer to another file by now.
                    std::mem::forget(wake);
                }
                self.returned(transfer)
            }
            Err(_) => Err(Refusal::NoEngine {
                errno: Errno::ESHUTDOWN,
            }),
        }
    }

    /// Returns a transfer that cannot be started here. Refuses it if the host has closed
    /// its descriptors together with the engine's. Its numbers are not closed then, since
    /// they may refer to other files.
    fn returned(&self, transfer: Transfer<'static>) -> Result<Started, Refusal> {
        let errno = self.stop_errno();
        if errno == Errno::EBADF && !transfer.has_its_descriptors() {
            transfer.drop_without_close();
            return Err(Refusal::NoEngine { errno });
        }
        Ok(Err((errno, Box::new(transfer))))
    }

    /// Returns why no transfer can be started any more.
    fn stop_errno(&self) -> Errno {
        match self.core.is_closed() {
            true => Errno::EBADF,
            false => Errno::ESHUTDOWN,
        }
    }

    /// Returns whether the engine's descriptors are intact, as far as this thread
    /// can check: it assumes so of descriptors in another descriptor table.
    fn is_usable(&self) -> bool {
        !self.core.is_closed() || self.core.has_other_descriptors()
    }

    /// Cancels all transfers, waits until every outcome has been delivered, and
    /// ends the threads. Later starts fail with `ESHUTDOWN`.
    ///
    /// On one of this engine's own threads, as in an [`on_end`](Running::on_end)
    /// callback, it returns without waiting. In a child of `fork(2)`, also one that
    /// a signal handler forks meanwhile, it only closes the inherited descriptors.
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
        // Unlocked before the wait: a child of fork(2) would wait forever for
        // the lock.
        drop(thread);
        match first {
            // The thread may sleep, and nothing can wake it.
            Some(_) if self.core.is_closed() => self.core.end_without_waking(),
            Some(thread) => {
                thread.join();
                self.core.join();
            }
            // A second caller waits too.
            None => {
                self.core.waits_for(&self.shut);
            }
        }
        if self.core.is_inherited() {
            // A signal handler has forked meanwhile.
            return self.core.close_inherited();
        }
        self.shut.happen();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
        if self.core.is_inherited() {
            // A child must not detach a thread of its parent.
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

/// A running transfer, or one that was returned.
type Started = Result<Running, (Errno, Box<Transfer<'static>>)>;

/// The engine of the process.
static ENGINE: PerProcess<Engine> = PerProcess::new();

/// Returns the engine of the process, or a new one if that engine is not usable.
///
/// A new engine has the first thread's descriptor table. A thread with another one is refused:
/// its engine would refuse all other threads, also after it has exited. The environment is not
/// read: this may be a thread of the library, while the program changes the environment.
fn default_engine(
    usable: impl Fn(&Engine) -> bool,
    backend: Backend,
) -> Result<&'static Engine, Refusal> {
    let fresh = || Engine::with(backend, Options::default().workers);
    ENGINE.get_usable(usable, |before| {
        if Thread::first().shares_descriptors() == Some(false) {
            return Err(Refusal::OtherDescriptors);
        }
        if let Some(before) = before {
            before.core.close_inherited();
        }
        fresh().map_err(|errno| Refusal::NoEngine { errno })
    })
}

/// In a child of `fork(2)`: closes the pipe and socket descriptors of its parent's
/// transfers, as the first [`start`] does.
///
/// Public for the C library only; not part of the interface.
pub fn close_inherited() {
    if let Some(before) = ENGINE.inherited() {
        before.core.close_inherited();
    }
}

impl Transfer<'static> {
    /// Starts the transfer on the [`Engine`] of the process and returns
    /// immediately.
    ///
    /// # Errors
    ///
    /// As [`Engine::start`].
    pub fn start(self) -> Result<Running, Failure> {
        self.start_in(Origin::here())
    }

    /// As [`Transfer::start`], in a call that has begun here.
    fn start_in(self, origin: Origin) -> Result<Running, Failure> {
        let start = || {
            let backend = self.backend();
            let (mut engine, mut transfer) = (default_engine(|_| true, backend)?, self);
            loop {
                // A signal handler has forked since: the parent starts the transfer.
                if !origin.is_this_process() {
                    let errno = Errno::ECHILD;
                    return Err(Refusal::NoEngine { errno });
                }
                transfer = match engine.try_start(transfer)? {
                    // The host has closed all descriptors, perhaps again.
                    Err((Errno::EBADF, transfer)) => *transfer,
                    done => return done.map_err(|(errno, _)| Refusal::NoEngine { errno }),
                };
                let next = default_engine(Engine::is_usable, backend)?;
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

/// Starts moving the bytes that `request` selects from `source` to `sink`, and
/// returns immediately. The caller may close both descriptors then: the transfer
/// has copies.
///
/// # Errors
///
/// A [`Refusal`] in a [`Failure`]; nothing has moved.
pub fn start(source: impl AsFd, sink: impl AsFd, request: Request) -> Result<Running, Failure> {
    start_in(Origin::here(), source, sink, request)
}

/// As [`start`], in a call that has begun here.
///
/// Public for the C library only; not part of the interface.
///
/// # Errors
///
/// As [`start`].
pub fn start_in(
    origin: Origin,
    source: impl AsFd,
    sink: impl AsFd,
    request: Request,
) -> Result<Running, Failure> {
    let transfer = Transfer::duplicating(source.as_fd(), sink.as_fd(), request)?;
    transfer.start_in(origin)
}

/// As [`start`]; `attach` attaches a handle or an observer.
pub(crate) fn start_with(
    source: impl AsFd,
    sink: impl AsFd,
    request: Request,
    attach: impl FnOnce(Transfer<'static>) -> Transfer<'static>,
) -> Result<Running, Failure> {
    let origin = Origin::here();
    let transfer = Transfer::duplicating(source.as_fd(), sink.as_fd(), request)?;
    attach(transfer).start_in(origin)
}

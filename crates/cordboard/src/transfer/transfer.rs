//! The state of a transfer.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::control::{Control, Observer};
use super::reopened::Reopened;
use super::thread_kind::ThreadKind;
use super::tuning::{FirstSample, Tuning};
use super::used::Used;
use super::wait::Spin;
use super::writeback;
use crate::endpoint::resets;
use crate::endpoint::{Endpoint, Kind, Side};
use crate::errno::Errno;
use crate::path::common::holes;
use crate::path::{Flow, Joins, Preallocation, Step};
use crate::pipe::FifoCheck;
use crate::plan::{self, Decided, Route};
use crate::report::{Dropped, Failure, Refusal};
use crate::request::{Backend, DataPath, Declined, Request, Sparse, Tune};
use crate::sys::{duplicate, lend};
use crate::tune::Found;

/// One transfer.
///
/// [`Transfer::new`] examines the descriptors and decides the route,
/// [`Transfer::run`] moves the bytes.
///
/// ```
/// use cordboard::{Request, Size, Transfer};
/// use std::os::fd::AsFd;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = std::fs::File::open("/dev/zero")?;
/// let sink = std::fs::File::options().write(true).open("/dev/null")?;
/// let request = Request { size: Size::Bytes(1 << 20), ..Request::default() };
/// let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request)?;
/// for choice in &transfer.route().choices {
///     println!("{}: {}", choice.path, choice.why);
/// }
/// let outcome = transfer.run();
/// assert_eq!(outcome.report.written, 1 << 20);
/// # Ok(())
/// # }
/// ```
pub struct Transfer<'a> {
    pub(crate) flow: Flow<'a>,
    pub(super) request: Request,
    pub(super) route: Route,
    /// The index of the next path of the route.
    pub(super) next: usize,
    pub(super) current: Option<(DataPath, Box<dyn Step + Send>)>,
    // In boxes, because few transfers have them and thousands may be idle.
    pub(super) walk: Option<Box<holes::Walk>>,
    pub(super) preallocation: Option<Box<Preallocation>>,
    pub(crate) spin: Spin,
    pub(super) writeback: Option<writeback::Writeback>,
    pub(crate) runs_on: ThreadKind,
    /// The source is a private channel to which no more bytes are written: it has ended
    /// once it is empty.
    pub(crate) source_is_complete: bool,
    /// The source is a private channel whose writer waits for a schedule, or has the idle limit.
    /// A wait for the source then does not count as idle.
    pub(crate) source_rests: bool,
    /// A step on an engine's reactor has blocked in the kernel.
    pub(crate) was_blocked: bool,
    /// The check whether the source is a FIFO without a writer.
    pub(super) fifo_check: FifoCheck,
    /// How often an unconfirmed end was checked again.
    pub(super) end_retries: u32,
    /// The result of [`Step::quiesce`], once it was called.
    pub(super) quiesced: Option<crate::path::Verdict>,
    /// The paths that moved bytes.
    pub(super) used: Used,
    pub(super) declined: Vec<Declined>,
    pub(crate) control: Option<Control>,
    /// The number of bytes that it may take before its composition grants more. `None`: no
    /// limit.
    pub(super) quota: Option<u64>,
    /// The changes of the schedule before its last grant: see
    /// [`Returned`](super::pace::Returned).
    pub(super) grant_changes: u64,
    /// The schedule has granted bytes for the present step.
    pub(super) has_grant: bool,
    /// It measures other paths and sizes once it has moved enough bytes.
    pub(super) tunes: bool,
    /// The path that an earlier transfer has found, which is then the first of the route.
    pub(super) recalled: Option<Found>,
    /// The sample of the first path, until the measurements begin.
    pub(super) first_sample: Option<Box<FirstSample>>,
    /// The state of the measurements, once they have begun.
    pub(super) tuning: Option<Box<Tuning>>,
    pub(super) observer: Option<Box<dyn Observer + Send + 'a>>,
    /// The descriptors, if the transfer owns them. Declared after the fields that
    /// borrow them, since fields are dropped in order.
    pub(super) owned: Option<[OwnedFd; 2]>,
    /// Terminals that were reopened, so that calls do not block. The endpoints borrow
    /// them as well.
    pub(super) reopened: Vec<Reopened>,
}

impl<'a> Transfer<'a> {
    /// Examines both descriptors, refuses pairs for which a transfer cannot
    /// complete correctly, and decides the route. Nothing moves yet.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], in a [`Failure`] whose report says that nothing moved.
    pub fn new(
        source: BorrowedFd<'a>,
        sink: BorrowedFd<'a>,
        request: Request,
    ) -> Result<Transfer<'a>, Failure> {
        Transfer::new_with(source, sink, request, None)
    }

    /// As [`Transfer::new`]. `None`: the environment decides on the backend.
    fn new_with(
        source: BorrowedFd<'a>,
        sink: BorrowedFd<'a>,
        request: Request,
        backend: Option<Backend>,
    ) -> Result<Transfer<'a>, Failure> {
        let decided = plan::decide(source, sink, &request);
        decided
            .and_then(|decided| Transfer::prepare(decided, request, backend))
            .map_err(Failure::refused)
    }

    /// Creates a transfer that owns its descriptors and closes them at its end. It
    /// may outlive the caller. If the close of the sink, or of a source that is open for writing,
    /// returns an error, such as `ENOSPC` or `EDQUOT` of a file server, the transfer fails with it.
    ///
    /// # Errors
    ///
    /// As [`Transfer::new`].
    pub fn owning(
        source: OwnedFd,
        sink: OwnedFd,
        request: Request,
    ) -> Result<Transfer<'static>, Failure> {
        Transfer::owning_with(source, sink, request, None)
    }

    /// As [`Transfer::owning`]. `None`: the environment decides on the backend.
    pub(crate) fn owning_with(
        source: OwnedFd,
        sink: OwnedFd,
        request: Request,
        backend: Option<Backend>,
    ) -> Result<Transfer<'static>, Failure> {
        let owned = [source, sink];
        let [from, to] = lend_both(&owned);
        let mut transfer = Transfer::new_with(from, to, request, backend)?;
        transfer.owned = Some(owned);
        Ok(transfer)
    }

    /// Creates a transfer with copies of the descriptors (`dup(2)`), which share position
    /// and flags with the caller's and are closed at its end. It may outlive the caller. As with
    /// [`Transfer::owning`], an error of the close is one of the transfer: some file systems
    /// report it once, and not to the close of the caller's own descriptor.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoDescriptor`]: the limit of open files is reached. Others as
    /// [`Transfer::new`].
    pub fn duplicating(
        source: BorrowedFd<'_>,
        sink: BorrowedFd<'_>,
        request: Request,
    ) -> Result<Transfer<'static>, Failure> {
        Transfer::duplicating_with(source, sink, request, None)
    }

    /// As [`Transfer::duplicating`]. `None`: the environment decides on the backend.
    pub(crate) fn duplicating_with(
        source: BorrowedFd<'_>,
        sink: BorrowedFd<'_>,
        request: Request,
        backend: Option<Backend>,
    ) -> Result<Transfer<'static>, Failure> {
        // The kernel may be unable to compare two descriptors, but not two equal numbers.
        let decided = plan::decide(source, sink, &request).map_err(Failure::refused)?;
        let owned = [
            Transfer::copy_of(source, Side::Source)?,
            Transfer::copy_of(sink, Side::Sink)?,
        ];
        let [from, to] = lend_both(&owned);
        let decided = Decided {
            source: decided.source.on(from),
            sink: decided.sink.on(to),
            route: decided.route,
            known: decided.known,
        };
        let mut transfer =
            Transfer::prepare(decided, request, backend).map_err(Failure::refused)?;
        transfer.owned = Some(owned);
        Ok(transfer)
    }

    /// Duplicates the descriptor of one side.
    pub(crate) fn copy_of(fd: BorrowedFd<'_>, side: Side) -> Result<OwnedFd, Failure> {
        duplicate(fd).map_err(|errno| Failure::refused(Refusal::of_descriptor(side, errno)))
    }

    fn prepare(
        decided: Decided<'a>,
        request: Request,
        backend: Option<Backend>,
    ) -> Result<Transfer<'a>, Refusal> {
        let Decided {
            source,
            sink,
            route,
            known,
        } = decided;
        resets::begin(&source);
        resets::begin(&sink);
        let tune = match request.tune {
            Some(tune) => tune,
            None => Tune::from_env()?,
        };
        let backend = match backend {
            Some(backend) => backend,
            None => Backend::from_env()?,
        };
        let mut flow = Flow::new(source, sink, &request, backend);
        flow.options.tunes = tune != Tune::Off && route.has_settings(&request);
        let keeps_holes = request.sparse != Sparse::Never
            && source.facts().may_have_holes()
            && sink.kind().is_file()
            && !sink.facts().append;
        let end = sink.facts().size.filter(|_| sink.facts().append);
        let writeback = match end.or(flow.sink.offset()) {
            Some(start) if request.sync && sink.kind() == Kind::File => {
                Some(writeback::Writeback::from(start))
            }
            _ => None,
        };
        let preallocation = match known {
            // Holes must not be filled. With writeback during the transfer, the conversion of
            // reserved blocks costs more than the reservation saves.
            Some(known) if !keeps_holes && !flow.options.seek_zeros && writeback.is_none() => {
                Preallocation::new(&flow, known).map(Box::new)
            }
            _ => None,
        };
        let mut transfer = Transfer {
            flow,
            preallocation,
            spin: Spin::default(),
            writeback,
            runs_on: ThreadKind::Anywhere,
            source_is_complete: false,
            source_rests: false,
            was_blocked: false,
            fifo_check: FifoCheck::Due,
            end_retries: 0,
            quiesced: None,
            walk: keeps_holes.then(|| Box::new(holes::Walk::new())),
            request,
            route,
            next: 0,
            current: None,
            used: Used::new(),
            declined: Vec::new(),
            control: None,
            quota: None,
            grant_changes: 0,
            has_grant: false,
            tunes: false,
            recalled: None,
            first_sample: None,
            tuning: None,
            observer: None,
            owned: None,
            reopened: Vec::new(),
        };
        transfer.tunes = tune != Tune::Off && transfer.route.measures;
        transfer.request.tune = Some(tune);
        Ok(transfer)
    }

    /// Duplicates borrowed descriptors, which an engine needs.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`: the limit of open files.
    pub(crate) fn own(&mut self) -> Result<(), Errno> {
        if self.owned.is_some() {
            return Ok(());
        }
        // No path has started that could have stored the present ones.
        let owned = [
            duplicate(self.flow.source.fd())?,
            duplicate(self.flow.sink.fd())?,
        ];
        let [from, to] = lend_both(&owned);
        for (side, fd) in [(Side::Source, from), (Side::Sink, to)] {
            let end = self.flow.end_mut(side);
            end.set_endpoint(end.endpoint().on(fd));
        }
        self.owned = Some(owned);
        Ok(())
    }

    /// Returns the backend for asynchronous I/O.
    pub(crate) fn backend(&self) -> Backend {
        self.flow.options.backend
    }

    /// Prepares the transfer for an engine, whose threads must not sleep inside a
    /// call that may end only when another process acts.
    pub(crate) fn set_up(&mut self, backend: Backend) {
        self.flow.options.backend = backend;
        self.flow.mode.share_thread();
        self.flow.set_may_sleep(false);
        self.reopen_terminals();
    }

    /// Makes a datagram that is too long for the sink a failure. Otherwise it is dropped.
    pub(crate) fn keeping_all(mut self) -> Transfer<'a> {
        self.flow.options.drops_too_long = false;
        self
    }

    /// As [`Transfer::keeping_all`], for a private channel as the source: blocks of the request
    /// are collected for a device.
    pub(crate) fn out_of_a_channel(self) -> Transfer<'a> {
        let mut transfer = self.keeping_all();
        transfer.flow.options.joins = Joins::Records;
        transfer
    }

    /// Returns the bytes read and written so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.flow.read(), self.flow.written())
    }

    /// Returns the datagrams that were too long for the sink.
    pub(crate) fn dropped(&self) -> Dropped {
        self.flow.dropped()
    }

    /// Limits the number of bytes that the next step may take from the source, in addition
    /// to a schedule. With 0, a step waits for a grant.
    pub(crate) fn set_quota(&mut self, bytes: Option<u64>) {
        self.quota = bytes;
    }

    /// Attaches a handle that can cancel or pause the transfer, or set a schedule.
    #[must_use]
    pub fn control(mut self, control: &Control) -> Transfer<'a> {
        self.control = Some(control.clone());
        self
    }

    /// Attaches an observer. It may be called on another thread, if the transfer is
    /// sent to one.
    #[must_use]
    pub fn observe(mut self, observer: impl Observer + Send + 'a) -> Transfer<'a> {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Returns the route that the transfer will take.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Returns the source, with its facts.
    pub fn source(&self) -> &Endpoint<'_> {
        self.flow.source.endpoint()
    }

    /// Returns the sink, with its facts.
    pub fn sink(&self) -> &Endpoint<'_> {
        self.flow.sink.endpoint()
    }

    /// Returns the request.
    pub fn request(&self) -> &Request {
        &self.request
    }
}

/// Borrows descriptors for a transfer in which they are then stored.
fn lend_both(owned: &[OwnedFd; 2]) -> [BorrowedFd<'static>; 2] {
    owned.each_ref().map(lend_own)
}

#[allow(unsafe_code)]
pub(super) fn lend_own(fd: &OwnedFd) -> BorrowedFd<'static> {
    // SAFETY: a transfer closes them after it has dropped everything else; its own
    // accessors lend them for as long as it is borrowed, and nothing else of it
    // gives them away.
    unsafe { lend(fd) }
}

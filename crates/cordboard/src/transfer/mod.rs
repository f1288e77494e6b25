//! One running splice.

mod control;
mod report;
mod request;

pub use control::{Control, Observer, Progress};
pub use report::{Ended, Failure, Outcome, Refusal, Report, Stranded};
pub use request::{Request, Size, Sparse};

use std::os::fd::{AsFd, BorrowedFd};

use crate::endpoint::Endpoint;
use crate::route::Route;

/// All the state of one transfer, so that it needs nobody's context.
pub struct Transfer<'a> {
    source: Endpoint<'a>,
    sink: Endpoint<'a>,
    request: Request,
    route: Route,
    control: Option<Control>,
    observer: Option<&'a mut dyn Observer>,
}

impl<'a> Transfer<'a> {
    /// Looks at both descriptors, refuses what cannot end well, and decides
    /// the route. Nothing moves yet.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], in a [`Failure`] whose report says that nothing moved.
    pub fn new(
        source: BorrowedFd<'a>,
        sink: BorrowedFd<'a>,
        request: Request,
    ) -> Result<Transfer<'a>, Failure> {
        let _ = (source, sink, request);
        todo!()
    }

    /// Ends early when this handle says so.
    #[must_use]
    pub fn control(mut self, control: &Control) -> Transfer<'a> {
        self.control = Some(control.clone());
        self
    }

    /// Tells this observer of progress.
    #[must_use]
    pub fn observe(mut self, observer: &'a mut dyn Observer) -> Transfer<'a> {
        self.observer = Some(observer);
        self
    }

    /// The route it will take.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The source and what is known of it.
    pub fn source(&self) -> &Endpoint<'a> {
        &self.source
    }

    /// The sink and what is known of it.
    pub fn sink(&self) -> &Endpoint<'a> {
        &self.sink
    }

    /// What was asked for.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Moves the bytes on the caller's thread, and says how it went.
    pub fn run(self) -> Outcome {
        todo!()
    }
}

/// Moves `size` bytes, or all there are, from `source` to `sink`; returns when
/// it is done.
///
/// # Errors
///
/// [`Failure`]: which side failed, with which errno, what had been moved, and
/// the bytes that were read and could not be written.
pub fn splice(
    source: impl AsFd,
    sink: impl AsFd,
    size: impl Into<Size>,
) -> Result<Report, Failure> {
    let request = Request {
        size: size.into(),
        ..Request::default()
    };
    Transfer::new(source.as_fd(), sink.as_fd(), request)?
        .run()
        .into_result()
}

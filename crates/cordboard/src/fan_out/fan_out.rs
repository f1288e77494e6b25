//! The request: a source, its sinks, and the policy of each.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::outcome::{FanOutOutcome, Refused};
use super::policy::OnSlow;
use super::run::{self, Parts};
use crate::compose::Poll;
use crate::endpoint::Endpoint;
use crate::errno::Errno;
use crate::pair::{self, Relation};
use crate::plan;
use crate::report::Refusal;
use crate::request::Request;
use crate::transfer::{Control, Observer};

/// The default time for which other sinks, or the caller, wait before a sink is detached.
const PATIENCE: Duration = Duration::from_secs(1);

/// One source and several sinks.
///
/// ```
/// use cordboard::{FanOut, OnSlow, Request};
/// use std::os::fd::AsFd;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::io::{Seek, Write};
/// # let (mut source, a, b) = (tempfile::tempfile()?, tempfile::tempfile()?, tempfile::tempfile()?);
/// # source.write_all(b"to all")?;
/// # source.rewind()?;
/// let sinks = [a.as_fd(), b.as_fd()];
/// let outcome = FanOut::new(source.as_fd(), &sinks, Request::default())?
///     .on_slow(OnSlow::Detach)
///     .run()?;
/// for sink in &outcome.sinks {
///     assert_eq!(sink.read, sink.written + sink.dropped + sink.stranded);
/// }
/// # assert_eq!(outcome.sinks[1].written, 6);
/// # Ok(())
/// # }
/// ```
pub struct FanOut<'a> {
    parts: Parts<'a>,
}

impl<'a> FanOut<'a> {
    /// Examines the descriptors. No byte moves yet. The request applies to the source and
    /// to each sink.
    ///
    /// # Errors
    ///
    /// As [`Transfer::new`](crate::Transfer::new), for each sink. In addition, `EINVAL` if
    /// a sink is also the source, if two sinks are the same file, block device, terminal,
    /// pipe or stream socket, one open file description of another device other than
    /// `/dev/null` and similar devices, or block devices with bytes in common, or if there
    /// is no sink.
    pub fn new(
        source: BorrowedFd<'a>,
        sinks: &[BorrowedFd<'a>],
        request: Request,
    ) -> Result<FanOut<'a>, Refused> {
        let mut examined: Vec<Endpoint<'a>> = Vec::new();
        let mut from = None;
        for (sink, fd) in sinks.iter().enumerate() {
            let refused = |refusal| Refused { sink, refusal };
            let decided = plan::decide(source, *fd, &request).map_err(refused)?;
            if pair::relation(&decided.source, &decided.sink) != Relation::Strangers {
                return Err(refused(Refusal::Overlap));
            }
            let same = |other| pair::are_same_sink(other, &decided.sink);
            if examined.iter().any(same) {
                return Err(refused(Refusal::SameSinks));
            }
            examined.push(decided.sink);
            from = Some(decided.source);
        }
        let Some(source) = from else {
            let errno = Errno::EINVAL;
            let side = crate::endpoint::Side::Sink;
            let refusal = Refusal::Unusable { side, errno };
            return Err(Refused { sink: 0, refusal });
        };
        let sinks = examined.into_iter().map(|end| (end, OnSlow::Block));
        let parts = Parts {
            source,
            sinks: sinks.collect(),
            request,
            patience: PATIENCE,
            control: None,
            observer: None,
        };
        Ok(FanOut { parts })
    }

    /// Sets the policy of every sink.
    #[must_use]
    pub fn on_slow(mut self, policy: OnSlow) -> FanOut<'a> {
        self.parts
            .sinks
            .iter_mut()
            .for_each(|(_, its)| *its = policy);
        self
    }

    /// Sets the policy of one sink.
    ///
    /// # Panics
    ///
    /// There is no sink of this index.
    #[must_use]
    pub fn sink_on_slow(mut self, sink: usize, policy: OnSlow) -> FanOut<'a> {
        self.parts.sinks[sink].1 = policy;
        self
    }

    /// Sets the patience: the time after which a sink with [`OnSlow::Detach`] is detached.
    /// Before the last byte is read, it applies to the sum of the times for which the other
    /// sinks wait for this sink. The sum begins anew when the sink has room for new bytes.
    /// After the last byte was read, it applies to the time for which this sink accepts no
    /// byte. The default is one second.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> FanOut<'a> {
        self.parts.patience = patience;
        self
    }

    /// Attaches a handle that can cancel or pause the fan-out, or set a schedule, which
    /// limits the bytes that are read from the source.
    #[must_use]
    pub fn control(mut self, control: &Control) -> FanOut<'a> {
        self.parts.control = Some(control.clone());
        self
    }

    /// Attaches an observer, which is called on the caller's thread. The bytes written
    /// are those that the slowest attached sink has accepted, and those that were dropped
    /// for it. The path is that of this sink.
    #[must_use]
    pub fn observe(mut self, observer: impl Observer + Send + 'a) -> FanOut<'a> {
        self.parts.observer = Some(Box::new(observer));
        self
    }

    /// Moves the bytes, on the caller's thread and a thread of the engine.
    ///
    /// # Errors
    ///
    /// A refusal: no private pipe, or no engine for a sink that needs one, is available.
    /// No byte has moved.
    pub fn run(self) -> Result<FanOutOutcome, Refused> {
        run::run(self.parts, &mut Poll::new())
    }

    #[cfg(test)]
    pub(super) fn run_with(
        self,
        waiter: &mut dyn crate::compose::Waiter,
    ) -> Result<FanOutOutcome, Refused> {
        run::run(self.parts, waiter)
    }
}

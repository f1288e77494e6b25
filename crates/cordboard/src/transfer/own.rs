//! The descriptors that a transfer owns. The host may close them, and open files of
//! its own under their numbers.

use std::os::fd::OwnedFd;

use super::reopened::Reopened;
use super::transfer::{Transfer, lend_own};
use crate::endpoint::{Facts, Side};
use crate::errno::Errno;
use crate::guarded::guarded;
use crate::path::common::holes;
use crate::pipe::Channel;
use crate::sys::{close_and_report, identity};

/// The descriptors of a transfer that is dropped.
pub(crate) struct Owned {
    /// The source and the sink. `None` if the caller owns them.
    ends: Option<[OwnedFd; 2]>,
    facts: [Facts; 2],
    is_synced: bool,
    /// The result of the close of another description of the source.
    walked: Result<(), Errno>,
}

impl Owned {
    /// Closes the descriptors that are still those of the transfer, the sink last.
    ///
    /// # Errors
    ///
    /// As [`Transfer::close`].
    pub(crate) fn close(self) -> Result<(), (Side, Errno)> {
        let [of_source, of_sink] = &self.facts;
        // The last close of a file may block, and so may that of a pipe whose lock
        // another process holds. The close of a pipe wakes other threads, which may
        // delay this one.
        let close = |fd, facts: &Facts| match facts.is_still(&fd) {
            true => close_and_report(fd),
            false => {
                std::mem::forget(fd);
                Ok(())
            }
        };
        let [first, last] = match self.ends {
            Some([source, sink]) => [close(source, of_source), close(sink, of_sink)],
            None => [Ok(()); 2],
        };
        match last {
            // Its contents are on the disk after `fsync(2)`.
            Err(Errno::EINTR) if self.is_synced => {}
            Err(errno) => return Err((Side::Sink, errno)),
            Ok(()) => {}
        }
        let Some(errno) = [self.walked, first].into_iter().find_map(Result::err) else {
            return Ok(());
        };
        match of_source.id.is_some() && of_source.id == of_sink.id {
            // The close of the sink has flushed the rest.
            _ if errno == Errno::EINTR => Ok(()),
            // The first close of the one file gets the error.
            true => Err((Side::Sink, errno)),
            // Nothing was written through a descriptor for reading only.
            false if of_source.writable => Err((Side::Source, errno)),
            false => Ok(()),
        }
    }
}

impl Transfer<'_> {
    /// Returns whether the descriptors that it owns still refer to the same files
    /// ([`Facts::is_still`]).
    pub(crate) fn has_its_descriptors(&self) -> bool {
        let owned = self.owned.iter().flatten();
        let walks = (self.walk.as_deref()).and_then(holes::Walk::own);
        (owned.zip([self.source(), self.sink()]))
            .chain(walks.map(|fd| (fd, self.source())))
            .all(|(fd, end)| end.facts().is_still(fd))
            && self.reopened.iter().all(Reopened::is_still)
    }

    /// Drops the transfer and closes the descriptors that it owns, if they are
    /// still its own: the host may have closed them. `known`: they have just been
    /// checked, and nothing has blocked since.
    ///
    /// # Errors
    ///
    /// That of the file system of the sink, or of a source that is open for writing too. No other
    /// call reports it: the close of the caller's own descriptor then succeeds
    /// ([`close_and_report`]).
    pub(crate) fn close(self, known: bool) -> Result<(), (Side, Errno)> {
        self.release(known).map_or(Ok(()), Owned::close)
    }

    /// As [`Transfer::close`], and returns the descriptors that are still to be closed.
    pub(crate) fn release(mut self, known: bool) -> Option<Owned> {
        if !known && !self.has_its_descriptors() {
            self.drop_without_close();
            return None;
        }
        // It borrows the descriptors.
        self.current = None;
        let walk = self.walk.take().and_then(|walk| walk.into_own());
        let walked = walk.map_or(Ok(()), close_and_report);
        self.reopened.drain(..).for_each(Reopened::close);
        let facts = [self.source(), self.sink()].map(|end| *end.facts());
        let ends = self.owned.take();
        let owned = (ends.is_some() || walked.is_err()).then_some(Owned {
            ends,
            facts,
            is_synced: self.request.sync,
            walked,
        });
        // The drop of a stage or of the observer may panic. The caller of this function still
        // returns the outcome, with the errors of the closes.
        guarded(|| drop(self));
        owned
    }

    /// Returns whether the close of a socket may wait for its peer (`SO_LINGER`, socket(7)).
    pub(crate) fn close_may_linger(&self) -> bool {
        let lingers = |fd| matches!(rustix::net::sockopt::socket_linger(fd), Ok(Some(_)));
        let sockets = [&self.flow.source, &self.flow.sink];
        (sockets.iter()).any(|end| end.kind().is_socket() && lingers(end.fd()))
    }

    /// Drops the transfer after the host has closed a descriptor of the library,
    /// and closes no descriptor. A host that closes one has often closed all. It
    /// may then have opened the same file under the same number (`dup(2)`,
    /// `open(2)`), which cannot be distinguished from the transfer's descriptor.
    pub(crate) fn drop_without_close(mut self) {
        if let Some(rest) = self.flow.unreadable.take() {
            rest.pipe.forget();
        }
        let reopened = std::mem::take(&mut self.reopened);
        std::mem::forget((self.walk.take(), reopened, self.owned.take()));
        // As in `release`. A path that has not ended has the stages that change the bytes.
        if let Some((_, step)) = self.current.take() {
            guarded(|| step.drop_without_close());
        }
        guarded(|| drop(self));
    }

    /// Reopens terminals for a thread that must not sleep inside a call: for a
    /// terminal only `O_NONBLOCK` prevents that, and the library does not set it on
    /// the caller's descriptor.
    pub(crate) fn reopen_terminals(&mut self) {
        for side in [Side::Source, Side::Sink] {
            let end = self.flow.end_mut(side);
            if end.ready.may_sleep {
                continue;
            }
            let Some(fd) = end.endpoint().without_waiting(side) else {
                continue;
            };
            let reopened = end.endpoint().on(lend_own(&fd));
            end.set_endpoint(reopened.with_facts(Facts {
                nonblocking: true,
                ..*end.facts()
            }));
            end.ready.never_waits = true;
            let id = identity(&fd);
            self.reopened.push(Reopened { fd, id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Ended, Outcome};
    use crate::request::Request;
    use crate::stage::{Fault, Finished, Inspect, Passed, Stage, Transform};
    use crate::transfer::{Observer, Progress, Turn};
    use testkit::file::file_with;

    /// Panics at its drop, without the panic hook.
    struct Panics;

    impl Drop for Panics {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new(()));
            }
        }
    }

    impl Inspect for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn inspect(&mut self, _: &[u8]) {}
    }

    impl Transform for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
            let n = input.len().min(output.len());
            output[..n].copy_from_slice(&input[..n]);
            Ok(Passed { taken: n, made: n })
        }

        fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
            Ok(Finished {
                made: 0,
                done: true,
            })
        }
    }

    impl Observer for Panics {
        fn progress(&mut self, _: &Progress) {}
    }

    /// The transfers with a stage or an observer that panics at its drop.
    fn transfers() -> impl Iterator<Item = Transfer<'static>> {
        (0..3).map(|which| {
            let (source, sink) = (file_with(b"data"), tempfile::tempfile().unwrap());
            let transfer = Transfer::owning(source.into(), sink.into(), Request::default());
            let transfer = transfer.unwrap();
            match which {
                0 => transfer.stage(Stage::inspecting(Panics)).unwrap(),
                1 => transfer.stage(Stage::transforming(Panics)).unwrap(),
                _ => transfer.observe(Panics),
            }
        })
    }

    fn is_complete(outcome: &Outcome) -> bool {
        let report = &outcome.report;
        (report.ended, report.written, report.errno) == (Ended::Eof, 4, None)
    }

    #[test]
    fn a_panic_of_a_drop_loses_no_outcome() {
        for transfer in transfers() {
            assert!(is_complete(&transfer.run()));
        }
        for transfer in transfers() {
            let mut stepping = transfer.stepping().unwrap();
            let outcome = std::iter::repeat_with(|| stepping.step()).find_map(|outcome| outcome);
            assert!(is_complete(&outcome.unwrap()));
        }
        let engine = crate::Engine::new(crate::engine::Options::default()).unwrap();
        for transfer in transfers() {
            assert!(is_complete(&engine.start(transfer).unwrap().wait()));
        }
        engine.shutdown();
    }

    /// In a child, since the descriptors stay open.
    #[test]
    fn a_panic_of_a_drop_is_caught_where_the_descriptors_are_lost() {
        assert!(testkit::child::in_a_child(|| {
            for mut transfer in transfers() {
                assert_eq!(transfer.step(), Turn::Moved(4));
                transfer.drop_without_close();
            }
            true
        }));
    }
}

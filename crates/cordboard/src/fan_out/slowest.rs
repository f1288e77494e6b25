//! The progress of a fan-out for its observer: that of the slowest sink.

use std::time::Duration;

use super::outlet::Outlet;
use crate::report::Dropped;
use crate::request::DataPath;
use crate::transfer::{Observer, Progress};

/// The observer, and the position in its last report.
pub(super) struct Watcher<'a> {
    observer: Option<Box<dyn Observer + Send + 'a>>,
    start: Duration,
    last: (u64, DataPath),
}

impl<'a> Watcher<'a> {
    pub(super) fn new(
        observer: Option<Box<dyn Observer + Send + 'a>>,
        start: Duration,
    ) -> Watcher<'a> {
        Watcher {
            observer,
            start,
            last: (0, DataPath::Splice),
        }
    }

    /// Returns the longest wait without a call of the observer.
    pub(super) fn interval(&self) -> Option<Duration> {
        self.observer.as_ref().and_then(|its| its.interval())
    }

    /// Reports the progress. `read`: the bytes taken from the source.
    pub(super) fn observe(&mut self, now: Duration, read: u64, outlets: &[Outlet<'_>]) {
        let Some(observer) = &mut self.observer else {
            return;
        };
        let attached = || outlets.iter().filter(|outlet| outlet.is_attached());
        // Without an attached sink, the last position is reported again.
        self.last = slowest(attached().map(Outlet::position)).unwrap_or(self.last);
        let (written, path) = self.last;
        observer.progress(&Progress {
            read: read.max(written),
            written,
            dropped: Dropped::default(),
            pending_reads: 0,
            pending_writes: 0,
            path,
            elapsed: now.saturating_sub(self.start),
            sinks: u32::try_from(attached().count()).unwrap_or(u32::MAX),
        });
    }
}

/// Returns the lowest position, and its path.
fn slowest(positions: impl Iterator<Item = (u64, DataPath)>) -> Option<(u64, DataPath)> {
    positions.min_by_key(|(bytes, _)| *bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::fan_out::{FanOut, OnSlow};
    use crate::report::Ended;
    use crate::request::Request;
    use crate::transfer::Control;

    #[derive(Default)]
    struct Seen(Vec<Progress>);

    impl Observer for Seen {
        fn progress(&mut self, progress: &Progress) {
            self.0.push(*progress);
        }
    }

    #[test]
    fn the_least_position_counts() {
        let positions = [(7, DataPath::Splice), (3, DataPath::ReadWrite)];
        let least = slowest(positions.into_iter());
        assert_eq!(least, Some((3, DataPath::ReadWrite)));
        assert_eq!(slowest(std::iter::empty()), None);
    }

    /// Cancels once the file has more bytes than the pipe, which is not read.
    struct UntilFull<'t> {
        file: &'t std::fs::File,
        reader: &'t std::io::PipeReader,
        control: Control,
    }

    impl Observer for UntilFull<'_> {
        fn progress(&mut self, progress: &Progress) {
            let held = rustix::io::ioctl_fionread(self.reader).unwrap();
            assert!(progress.written <= held && progress.written <= progress.read);
            assert_eq!(progress.sinks, 2);
            let length = self.file.metadata().unwrap().len();
            if length > held && progress.written == held {
                self.control.cancel();
            }
        }

        fn interval(&self) -> Option<Duration> {
            Some(Duration::from_millis(1))
        }
    }

    #[test]
    fn the_sink_that_is_full_is_reported() {
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(&vec![7; 8 << 20]).unwrap();
        std::io::Seek::rewind(&mut source).unwrap();
        let file = tempfile::tempfile().unwrap();
        let (reader, pipe) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        let until = UntilFull {
            file: &file,
            reader: &reader,
            control: control.clone(),
        };
        let sinks = [file.as_fd(), pipe.as_fd()];
        let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
        let fan = fan.on_slow(OnSlow::Block).control(&control).observe(until);
        assert_eq!(fan.run().unwrap().ended, Ended::Cancelled);
    }

    /// A sink that has failed is not the slowest one.
    #[test]
    fn a_sink_that_has_failed_is_not_attached() {
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(&vec![7; 300_000]).unwrap();
        std::io::Seek::rewind(&mut source).unwrap();
        let file = tempfile::tempfile().unwrap();
        let (reader, pipe) = std::io::pipe().unwrap();
        drop(reader);
        let mut seen = Seen::default();
        let sinks = [file.as_fd(), pipe.as_fd()];
        let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
        // The failure is known before the end of the file.
        let fan = fan.on_slow(OnSlow::Block).observe(&mut seen);
        let outcome = fan.run().unwrap();
        assert_eq!(outcome.failed_sink, Some(1));
        assert_eq!(outcome.sinks[0].written, outcome.read);
        let last = seen.0.last().unwrap();
        assert_eq!((last.sinks, last.written), (1, outcome.read));
    }
}

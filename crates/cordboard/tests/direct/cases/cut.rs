//! A short write: the bytes that the sink has accepted count, whatever ends the
//! transfer before the rest is written.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::{CancelAt, direct};
use crate::common::mount::Loop;
use crate::common::{self, file_with, pattern, position, watchdog};
use cordboard::DataPath::Direct;
use cordboard::{Control, Ended, Errno, Observer, Progress, Report, Request, Side, Transfer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const BLOCK: usize = 64 << 10;

/// Cancels once all started blocks are read: their writes are in flight or done.
struct OnceRead(Control);

impl Observer for OnceRead {
    fn progress(&mut self, progress: &Progress) {
        if progress.pending_reads == 0 {
            self.0.cancel();
        }
    }
}

/// What runs the transfer.
#[derive(Debug, Clone, Copy)]
enum StepsBy {
    Caller,
    /// On the caller's thread, which waits in the kernel.
    Sleeper,
    Engine,
}

/// A sink with old bytes, of which this many can be overwritten.
struct Sink {
    file: File,
    old: Vec<u8>,
    data: Vec<u8>,
    room: usize,
    limited: bool,
}

impl Sink {
    /// Makes a sink for this many blocks, the last of which is cut.
    fn new(file: File, blocks: usize, room: usize) -> Sink {
        Sink {
            old: vec![0x55; common::content(&file).len()],
            data: pattern(blocks * BLOCK),
            limited: file.metadata().unwrap().is_file(),
            file,
            room,
        }
    }

    /// Runs one transfer. Asserts that exactly the counted bytes are in the
    /// sink.
    fn run<O: Observer + Send + 'static>(
        &self,
        by: StepsBy,
        request: Request,
        observer: impl FnOnce(Control) -> O,
    ) -> Report {
        self.file.write_all_at(&self.old, 0).unwrap();
        self.file.sync_all().unwrap();
        common::rewind(&self.file);
        let source = file_with(&self.data);
        let [from, to] = [&source, &self.file].map(|file| file.try_clone().unwrap().into());
        let request = Request {
            block: NonZeroUsize::new(BLOCK),
            ..request
        };
        let mut control = Control::new().unwrap();
        if let StepsBy::Sleeper = by {
            control = control.interrupting();
        }
        let transfer = Transfer::owning(from, to, request).unwrap();
        let transfer = transfer.observe(observer(control.clone()));
        let before = getrlimit(Resource::Fsize);
        if self.limited {
            let current = Some(self.room as u64);
            setrlimit(Resource::Fsize, Rlimit { current, ..before }).unwrap();
        }
        let transfer = transfer.control(&control);
        let report = match by {
            StepsBy::Engine => transfer.start().unwrap().wait().report,
            StepsBy::Caller | StepsBy::Sleeper => transfer.run().report,
        };
        setrlimit(Resource::Fsize, before).unwrap();
        let written = report.written as usize;
        let what = format!("{by:?}, room {}: {report:?}", self.room);
        assert_eq!((report.read, report.stranded), (report.written, 0));
        let places = (position(&source), position(&self.file));
        let found = common::content(&self.file);
        assert!(found[..written] == self.data[..written], "{what}");
        let replaced = (written..found.len()).find(|i| found[*i] != self.old[*i]);
        assert_eq!(replaced, None, "in the sink and not counted: {what}");
        assert_eq!(places, (report.written, report.written), "{what}");
        let path: &[_] = if written > 0 { &[Direct] } else { &[] };
        assert_eq!(report.path, path, "{what}");
        report
    }

    /// Before the rest of the short write, and after it.
    fn counts(&self, errno: Errno) {
        for by in [StepsBy::Caller, StepsBy::Sleeper, StepsBy::Engine] {
            let cut = self.run(by, direct(), OnceRead);
            assert_eq!(cut.ended, Ended::Cancelled, "{by:?}: {cut:?}");
            // Direct I/O is not begun if a limit leaves less than a sector.
            if self.data.len() == BLOCK && self.room.is_multiple_of(512) {
                assert_eq!(cut.written, self.room as u64, "{by:?}: {cut:?}");
            }
            for at in (0..=self.room as u64).step_by(BLOCK) {
                let cut = self.run(by, direct(), |control| CancelAt(at, control));
                assert_eq!(cut.ended, Ended::Cancelled, "{by:?}, {at}: {cut:?}");
                assert!(cut.written >= at, "{by:?}, {at}: {cut:?}");
            }
            let idle = Request {
                idle: Some(Duration::from_nanos(1)),
                ..direct()
            };
            let never = |control| CancelAt(u64::MAX, control);
            let cut = self.run(by, idle, never);
            let ends = [Ended::Idle, Ended::Error];
            assert!(ends.contains(&cut.ended), "{by:?}: {cut:?}");
            let full = self.run(by, direct(), never);
            assert_eq!(
                (full.written, full.failed, full.errno),
                (self.room as u64, Some(Side::Sink), Some(errno)),
                "{by:?}: {full:?}"
            );
        }
    }
}

/// In the first block, in a later one, and at an unaligned offset.
#[test]
fn by_the_limit_of_the_size_of_files() {
    let _dog = watchdog("by_the_limit_of_the_size_of_files");
    if !common::alone!() {
        return;
    }
    for (blocks, room) in [
        (1, 4096),
        (1, 5 * 4096),
        (1, 5 * 4096 + 100),
        (4, 3 * BLOCK + 7 * 4096),
    ] {
        let file = file_with(&vec![0; blocks * BLOCK]);
        Sink::new(file, blocks, room).counts(Errno::EFBIG);
    }
}

/// Also at a sector that is not at the boundary of a page.
#[test]
fn by_the_end_of_a_device() {
    let _dog = watchdog("by_the_end_of_a_device");
    for (blocks, room) in [
        (1, 5 * 4096),
        (1, 5 * 4096 + 1536),
        (4, 3 * BLOCK + 7 * 4096 + 512),
    ] {
        let made = |image: &std::path::Path| std::fs::write(image, vec![0; room]).unwrap();
        let Some(device) = Loop::new(made) else {
            return;
        };
        Sink::new(device.open(), blocks, room).counts(Errno::ENOSPC);
    }
}

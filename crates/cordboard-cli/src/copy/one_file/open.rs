//! Opening both sides of a copy.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::{DataPath, Errno, Request, Side, Stage, Switches};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::appended::AppendedRanges;
use super::lease::{clear_nonblock, open_past_lease};
use super::mode::{OpenError, OpenMode};
use super::opened::{Opened, SinkFile};
use super::read_once::seeks;
use super::verify::can_be_read_back;
use crate::copy::job::Job;
#[cfg(test)]
use crate::copy::job::Moment;
use crate::copy::outcome::Outcome;
use crate::copy::place::Place;
use crate::copy::refusals::not_copyable;
use crate::endpoint::open_problem;
use crate::files::{id, kind};
use crate::interruptible::interruptible;
use crate::problem::{Action, Problem, Refused};
use crate::request;
use crate::signals::retry;

/// The size from which a sink whose attributes are set after the transfer is also synchronized
/// by the transfer itself. The sync at the end writes the attributes only then, and the transfer
/// may use direct I/O, or start the writeback while it runs.
const SYNCED_TWICE: u64 = 16 << 20;

impl Job {
    /// Opens both sides.
    pub fn open(
        &self,
        (from, to): (&Place<'_>, &Place<'_>),
        follow: bool,
        open_mode: OpenMode,
        outcome: &mut Outcome,
    ) -> Result<Opened, OpenError> {
        #[cfg(test)]
        self.fault
            .iter()
            .for_each(|fault| fault(Moment::Opening, from.name));
        let (source, stat) = self.open_source(from, follow, open_mode)?;
        let file = kind(&stat) == FileType::RegularFile;
        let stages = self.build_stages((from, source.as_fd()), to, open_mode, outcome)?;
        let sink = self.open_sink(to, &stat, (from, source.as_fd()), open_mode, outcome)?;
        if self.staging.verify && sink.created {
            can_be_read_back(sink.fd.as_fd(), to)?;
        }
        let size = match file {
            true => {
                let size = u64::try_from(stat.st_size).ok().filter(|n| *n > 0);
                let offset = self.request.source_offset.unwrap_or(0);
                let there = size.map(|size| size.saturating_sub(offset));
                request::at_most(there, &self.request)
            }
            false => request::total(source.as_fd(), &self.request),
        };
        if let Some(warning) = request::offset_warning((source.as_fd(), from), &self.request) {
            outcome.add(warning);
        }
        let request = self.request_between(source.as_fd(), &stat, &sink, size);
        let seen = self.append && self.staging.verify && seeks(sink.fd.as_fd());
        Ok(Opened {
            appended: seen.then(|| AppendedRanges::new(sink.fd.as_fd())),
            size,
            read_once: self.is_read_once(source.as_fd()),
            stages,
            source,
            stat,
            sink,
            request,
        })
    }

    /// Opens the source, whose kind may have changed since it was found.
    fn open_source(
        &self,
        from: &Place<'_>,
        follow: bool,
        open_mode: OpenMode,
    ) -> Result<(OwnedFd, Stat), OpenError> {
        let reading = |e| open_problem(&from.path(), from.shown(), Side::Source, e);
        // If it has become a FIFO meanwhile, the open must not wait.
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        // With -r a symlink is copied as one, and this file was not one.
        if !follow || self.recursive {
            flags |= OFlags::NOFOLLOW;
        }
        let device = match follow && !self.recursive {
            true => character_device(from),
            false => None,
        };
        if let Some(stat) = &device {
            self.accepts(&from.path(), stat)?;
            if open_mode == OpenMode::Concurrent {
                return Err(OpenError::Postponed);
            }
            flags -= OFlags::NONBLOCK;
        }
        let open = || rustix::fs::openat(from.directory, from.name, flags, Mode::empty());
        let opened = match device {
            Some(_) => interruptible(open)?,
            None => self.spares.retry_without_spares(|| retry(open)),
        };
        let mut source = match opened {
            // Another process holds a lease on it.
            Err(rustix::io::Errno::AGAIN) if open_mode == OpenMode::Concurrent => {
                return Err(OpenError::Postponed);
            }
            Err(rustix::io::Errno::AGAIN) if device.is_none() => open_past_lease(from, flags)?,
            done => done,
        }
        .map_err(|e| OpenError::of(e, open_mode, reading))?;
        let stat = retry(|| cordboard::fstat(&source)).map_err(reading)?;
        if kind(&stat) == FileType::RegularFile {
            clear_nonblock(&source, flags);
        } else if !follow {
            return Err(not_copyable(&from.path(), kind(&stat), self.recursive).into());
        } else {
            self.accepts(&from.path(), &stat)?;
            if kind(&stat) == FileType::BlockDevice {
                source = reopen_blocking(from, flags, &stat)?;
            }
        }
        Ok((source, stat))
    }

    /// Returns the request of a transfer of `size` bytes, if they are known.
    fn request_between(
        &self,
        source: BorrowedFd<'_>,
        stat: &Stat,
        sink: &SinkFile,
        size: Option<u64>,
    ) -> Request {
        let file = kind(stat) == FileType::RegularFile;
        let gains = size.map_or(!file, |bytes| bytes >= SYNCED_TWICE);
        let mut request = Request {
            sync: self.sync && (gains || !self.preserve),
            source_unshared: true,
            sink_unshared: true,
            ..self.request.clone()
        };
        // Both fields are unsigned on some architectures and signed on others.
        let dense = i128::from(stat.st_blocks) * 512 >= i128::from(stat.st_size);
        let switches = request.switches.or_else(|| Switches::from_env().ok());
        // sendfile(2) writes only at the sink's own position. Where read/write is not allowed, it
        // may be the only path.
        let sendfile = switches.is_some_and(|switches| {
            switches.allows(DataPath::Sendfile) && !switches.allows(DataPath::ReadWrite)
        });
        if file && sink.created && dense && !self.append && !sendfile {
            // Both start positions are known: no call moves or reads a
            // position. A file without positions has no offsets either.
            if request.source_offset.is_none() && seeks(source) {
                request.source_offset = Some(0);
            }
            // The library refuses an offset that a file without positions is given.
            let start = seeks(sink.fd.as_fd()).then_some(0);
            request.sink_offset = request.sink_offset.or(start);
        }
        request
    }

    /// Builds the stages that change the bytes, before the sink is created or emptied: the source
    /// may be no data for them, and they may need more memory than there is beside the files
    /// under way.
    fn build_stages(
        &self,
        (from, source): (&Place<'_>, BorrowedFd<'_>),
        to: &Place<'_>,
        open_mode: OpenMode,
        outcome: &mut Outcome,
    ) -> Result<Option<Vec<Stage>>, OpenError> {
        if !self.staging.stages.transform() {
            return Ok(None);
        }
        let built = self.staging.build(from, Some((source, &self.request)));
        let refused = match built {
            Ok(stages) => return Ok(Some(stages)),
            Err(refused) => refused,
        };
        if is_postponed(&refused, open_mode) {
            return Err(OpenError::Postponed);
        }
        let Refused {
            report,
            mut problem,
        } = refused;
        outcome.report = report.map(|report| *report);
        problem.text += &match to.stat() {
            Err(rustix::io::Errno::NOENT) => format!("; {to} was not created"),
            _ => format!("; {to} was not changed"),
        };
        Err((*problem).into())
    }
}

/// Whether a transfer lacks memory that other files may have.
pub(super) fn is_postponed(refused: &Refused, open_mode: OpenMode) -> bool {
    open_mode == OpenMode::Concurrent && refused.problem.errno == Some(Errno::ENOMEM)
}

/// Returns the status of a character device. It is opened without `O_NONBLOCK`: with the flag,
/// the open of a tape drive does not wait until the drive is ready (`check_tape`,
/// drivers/scsi/st.c), and a read of a device that cannot be polled returns `EAGAIN`. A second
/// open would be refused (`st_open`: `EBUSY`), and the close of the first can move the tape.
fn character_device(at: &Place<'_>) -> Option<Stat> {
    let stat = retry(|| rustix::fs::statat(at.directory, at.name, AtFlags::empty())).ok()?;
    (kind(&stat) == FileType::CharacterDevice).then_some(stat)
}

/// Opens a block device again without `O_NONBLOCK`. With that flag, a device
/// without a medium opens too, and is empty (`BLK_OPEN_NDELAY`, block/bdev.c).
fn reopen_blocking(from: &Place<'_>, flags: OFlags, known: &Stat) -> Result<OwnedFd, Problem> {
    let reading = |e| Problem::call(from.shown(), Side::Source, e, Action::Open);
    let flags = flags - OFlags::NONBLOCK;
    let open = || rustix::fs::openat(from.directory, from.name, flags, Mode::empty());
    let source = interruptible(open)?.map_err(reading)?;
    let stat = retry(|| cordboard::fstat(&source)).map_err(reading)?;
    match id(&stat) == id(known) {
        true => Ok(source),
        false => Err(reading(rustix::io::Errno::STALE)),
    }
}

#[cfg(test)]
mod tests {
    use cordboard::Control;

    use super::*;
    use crate::flags::Stages;
    use crate::stages::Staging;

    #[test]
    fn a_character_device_is_opened_without_nonblock_and_alone() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        let job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
        let places = (&Place::top("/dev/null".as_ref()), &Place::top(&to));
        let open = |open_mode| job.open(places, true, open_mode, &mut Outcome::default());
        assert!(matches!(
            open(OpenMode::Concurrent),
            Err(OpenError::Postponed)
        ));
        let opened = open(OpenMode::Exclusive).unwrap();
        let flags = rustix::fs::fcntl_getfl(&opened.source).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK), "{flags:?}");
    }

    /// Direct I/O and writeback during a transfer need a transfer that syncs.
    #[test]
    fn with_p_the_transfer_of_a_large_file_syncs_too() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        for (length, sync, preserve, expected) in [
            (0, true, false, true),
            (0, true, true, false),
            (SYNCED_TWICE - 1, true, false, true),
            (SYNCED_TWICE - 1, true, true, false),
            (SYNCED_TWICE, true, true, true),
            (SYNCED_TWICE, false, true, false),
        ] {
            let file = std::fs::File::create(&from).unwrap();
            file.set_len(length).unwrap();
            let job = Job {
                sync,
                preserve,
                ..Job::plain(Box::leak(Box::new(Control::new().unwrap())))
            };
            let places = (&Place::top(&from), &Place::top(&to));
            let opened = job.open(places, true, OpenMode::Exclusive, &mut Outcome::default());
            let case = format!("{length} {sync} {preserve}");
            assert_eq!(opened.unwrap().request.sync, expected, "{case}");
        }
    }

    /// Other files may have the memory: the file is tried again with nothing else under way.
    #[test]
    fn without_memory_for_its_encoder_a_file_is_postponed_and_its_sink_kept() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        std::fs::write(&from, b"new").unwrap();
        std::fs::write(&to, b"old").unwrap();
        let stages = Stages {
            zstd: Some(19),
            ..Stages::default()
        };
        let job = Job {
            staging: Staging {
                stages,
                verify: false,
            },
            ..Job::plain(Box::leak(Box::new(Control::new().unwrap())))
        };
        let open = |open_mode| {
            let places = (&Place::top(&from), &Place::top(&to));
            job.open(places, true, open_mode, &mut Outcome::default())
        };
        // The encoder takes about 90 MiB.
        assert!(testkit::child::in_a_child(|| {
            testkit::child::limit_addresses(48 << 20);
            let is_postponed = matches!(open(OpenMode::Concurrent), Err(OpenError::Postponed));
            let fails = match open(OpenMode::Exclusive) {
                Err(OpenError::Problem(problem)) => problem.errno == Some(Errno::ENOMEM),
                _ => false,
            };
            is_postponed && fails
        }));
        assert_eq!(std::fs::read(&to).unwrap(), b"old");
        let opened = open(OpenMode::Concurrent).unwrap();
        assert!(opened.stages.is_some());
    }
}

//! Waiting, with time that passes only in waits.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use super::wait::{Clock, Interest, Waiter, Wakeup};
use super::{Observer, Progress, Transfer, Turn, drive};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::Request;

/// A waiter that reports everything as ready, or nothing.
struct Fake {
    now: Duration,
    claims_ready: bool,
    /// The timeout of each wait, and whether it waited for a side.
    waits: Vec<(Option<Duration>, bool)>,
}

impl Fake {
    fn new(claims_ready: bool) -> Fake {
        Fake {
            now: Duration::from_secs(1000),
            claims_ready,
            waits: Vec::new(),
        }
    }
}

impl Clock for Fake {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl Waiter for Fake {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        self.waits.push((timeout, interest.ready.is_some()));
        assert!(self.waits.len() < 10_000, "it waits forever");
        let ready = self.claims_ready && interest.ready.is_some();
        if !ready {
            self.now += timeout.expect("nothing would wake it");
        }
        Ok(Wakeup {
            ready,
            ..Wakeup::default()
        })
    }
}

fn idle_after(seconds: u64) -> Request {
    Request {
        idle: Some(Duration::from_secs(seconds)),
        switches: Some(crate::Switches::all()),
        ..Request::default()
    }
}

#[test]
fn idle_time_counts_from_the_last_byte() {
    // Not a pipe, which is not read before a wait reports it ready.
    let (source, mut feed) = std::os::unix::net::UnixStream::pair().unwrap();
    source.set_nonblocking(true).unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    feed.write_all(b"hello").unwrap();
    let mut time = Fake::new(false);
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), idle_after(7)).unwrap();
    let report = drive::run(transfer, &mut time).report;
    assert_eq!((report.ended, report.written), (Ended::Idle, 5));
    assert_eq!(report.elapsed, Duration::from_secs(7));
    // And a last check.
    let waits = [7, 0].map(|seconds| (Some(Duration::from_secs(seconds)), true));
    assert_eq!(time.waits, waits);
}

struct Every(Duration, u32);

impl Observer for Every {
    fn progress(&mut self, _: &Progress) {
        self.1 += 1;
    }
    fn interval(&self) -> Option<Duration> {
        Some(self.0)
    }
}

#[test]
fn an_observer_is_called_while_nothing_moves() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let mut every = Every(Duration::from_secs(1), 0);
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), idle_after(5)).unwrap();
    let report = drive::run(transfer.observe(&mut every), &mut Fake::new(false)).report;
    assert_eq!((report.ended, report.elapsed.as_secs()), (Ended::Idle, 5));
    assert_eq!(every.1, 5);
}

/// A descriptor that polls ready and returns `EAGAIN` would keep the processor
/// busy: after some tries each further one follows a pause.
#[test]
fn what_is_ready_and_is_not_so_gets_a_rest() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let mut time = Fake::new(true);
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), idle_after(1)).unwrap();
    let report = drive::run(transfer, &mut time).report;
    assert_eq!(report.ended, Ended::Idle);
    let polls = time.waits.iter().filter(|(_, asks)| *asks).count();
    let rested = time.waits.len() - polls;
    assert_eq!(rested, 200, "a second in pauses of 5 ms");
    // Polls at once at first, then once after each backoff.
    let coincidence = time.waits.iter().take_while(|(_, asks)| *asks).count();
    assert!(coincidence <= 40, "{coincidence}");
    assert_eq!(polls, coincidence + rested);
    let mut then = time.waits[coincidence..].chunks(2);
    assert!(then.all(|pair| !pair[0].1 && pair[1].1));
}

#[test]
fn a_kernel_that_does_not_answer_counts_as_idle_too() {
    use super::{Next, Stepper, Turn, Wait, WaitFor};
    let source = tempfile::tempfile().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), idle_after(7)).unwrap();
    let mut time = Fake::new(false);
    let mut stepper = Stepper::begin(time.now);
    time.now += Duration::from_secs(3);
    let four_more = Next::Wait(Wait {
        target: WaitFor::Completions,
        timeout: Some(Duration::from_secs(4)),
    });
    let next = stepper.unless_idle(&mut transfer, WaitFor::Completions, &mut time);
    assert_eq!(next, four_more);
    time.now += Duration::from_secs(4);
    let next = stepper.unless_idle(&mut transfer, WaitFor::Completions, &mut time);
    assert_eq!(next, Next::End(Turn::Done(Ended::Idle)));
}

/// Bytes of a private channel are due when the schedule of the other transfer permits.
#[test]
fn a_source_that_rests_is_not_idle() {
    use super::{Next, Stepper, Turn, Wait, WaitFor};
    let (source, _feed) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), idle_after(7)).unwrap();
    let mut time = Fake::new(false);
    let mut stepper = Stepper::begin(time.now);
    let [from, to] = [Side::Source, Side::Sink].map(WaitFor::Side);
    let seven = |target| Wait {
        target,
        timeout: Some(Duration::from_secs(7)),
    };
    transfer.source_rests = true;
    for _ in 0..3 {
        let next = stepper.unless_idle(&mut transfer, from, &mut time);
        assert_eq!(next, Next::Wait(seven(from)));
        time.now += Duration::from_secs(7);
    }
    // The limit begins when the bytes arrive, also for the sink.
    let ready = Wakeup {
        ready: true,
        ..Wakeup::default()
    };
    let next = stepper.resume(&mut transfer, seven(from), ready, &mut time);
    assert_eq!(next, Next::Step);
    let next = stepper.unless_idle(&mut transfer, to, &mut time);
    assert_eq!(next, Next::Wait(seven(to)));
    time.now += Duration::from_secs(3);
    // The rest has ended.
    transfer.source_rests = false;
    let next = stepper.unless_idle(&mut transfer, from, &mut time);
    assert_eq!(next, Next::Wait(seven(from)));
    time.now += Duration::from_secs(7);
    let next = stepper.unless_idle(&mut transfer, from, &mut time);
    assert_eq!(next, Next::End(Turn::Done(Ended::Idle)));
}

/// `/proc/kmsg` and similar files block in a read; memory devices never block.
#[test]
fn what_may_wait_is_polled_before() {
    let never_waits = |source: &str, sink: &str| {
        let source = std::fs::File::open(source).unwrap();
        let sink = std::fs::File::options().write(true).open(sink).unwrap();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
        let flow = &transfer.flow;
        (flow.source.ready.never_waits, flow.sink.ready.never_waits)
    };
    assert_eq!(never_waits("/proc/self/status", "/dev/null"), (false, true));
    assert_eq!(never_waits("/dev/zero", "/dev/full"), (true, true));
    assert_eq!(never_waits("/dev/random", "/dev/random"), (false, true));
}

/// A process that shares a socket may clear `O_NONBLOCK` at any time.
#[test]
fn what_waits_since_is_polled_since() {
    let (source, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    source.set_nonblocking(true).unwrap();
    // Limits the wait if the test fails.
    source
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
    transfer.flow.set_may_sleep(false);
    assert!(transfer.flow.source.ready.never_waits);
    source.set_nonblocking(false).unwrap();
    assert!(matches!(transfer.step(), Turn::Blocked(Side::Source)));
    assert!(!transfer.flow.source.ready.never_waits);
    assert!(!transfer.flow.source.facts().nonblocking);
}

/// The two ends of a terminal, both with `O_NONBLOCK`: the terminal, of which a
/// read without that flag waits for a tenth of a second, and its master.
fn pty() -> [OwnedFd; 2] {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let mut modes = tcgetattr(&terminal).unwrap();
    modes.make_raw();
    modes.special_codes[SpecialCodeIndex::VMIN] = 0;
    modes.special_codes[SpecialCodeIndex::VTIME] = 1;
    tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
    rustix::fs::fcntl_setfl(&master, flags).unwrap();
    [terminal, master]
}

fn nonblocking(fd: impl AsFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(fd).unwrap();
    flags.contains(rustix::fs::OFlags::NONBLOCK)
}

/// Between the check of a terminal's `O_NONBLOCK` and the read, another process
/// clears it: on the caller's description the read would wait.
#[test]
fn a_terminal_that_waits_since_the_last_look_is_not_waited_for() {
    let [terminal, _master] = pty();
    let (_reader, sink) = std::io::pipe().unwrap();
    let mut transfer = Transfer::new(terminal.as_fd(), sink.as_fd(), idle_after(7)).unwrap();
    transfer.flow.set_may_sleep(false);
    transfer.reopen_terminals();
    assert_eq!(transfer.step(), Turn::Blocked(Side::Source));
    rustix::fs::fcntl_setfl(&terminal, rustix::fs::OFlags::RDWR).unwrap();
    let (name, path) = transfer.current.as_mut().unwrap();
    let verdict = path.step(&mut transfer.flow);
    assert_eq!(
        verdict,
        crate::path::Verdict::Blocked(Side::Source),
        "{name}"
    );
    assert!(nonblocking(transfer.flow.source.fd()) && !nonblocking(&terminal));
}

/// The same for a terminal that is written to. The master of a pseudoterminal
/// cannot be reopened, and is checked before each step.
#[test]
fn a_terminal_that_does_not_wait_is_opened_again_too() {
    let [terminal, master] = pty();
    let (source, _feed) = std::io::pipe().unwrap();
    for (sink, again) in [(&terminal, true), (&master, false)] {
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), idle_after(7)).unwrap();
        transfer.flow.set_may_sleep(false);
        transfer.reopen_terminals();
        let own = transfer.flow.sink.fd().as_raw_fd() != sink.as_raw_fd();
        assert_eq!((own, transfer.reopened.len()), (again, usize::from(again)));
        assert!(transfer.flow.sink.ready.never_waits);
        rustix::fs::fcntl_setfl(sink, rustix::fs::OFlags::RDWR).unwrap();
        assert_eq!(transfer.step(), Turn::Blocked(Side::Source));
        assert_eq!(nonblocking(transfer.flow.sink.fd()), again);
        assert_eq!(transfer.flow.sink.ready.never_waits, again);
    }
}

/// An error that shows makes later errors edge-triggered; after `select(2)`, which
/// does not distinguish an error from readiness, the socket is checked but not
/// marked.
#[test]
fn only_a_reported_error_makes_the_wait_edge_triggered() {
    for unclear in [false, true] {
        let (source, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let (_reader, sink) = std::io::pipe().unwrap();
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
        transfer.flow.set_may_sleep(false);
        // The current path splices.
        assert!(matches!(transfer.step(), Turn::Blocked(Side::Source)));
        let mut shows = |open| {
            let wakeup = Wakeup {
                ready: true,
                open,
                unclear,
                ..Wakeup::default()
            };
            transfer.is_ready(Side::Source, wakeup).unwrap();
            let ready = transfer.flow.source.ready;
            (ready.marked, ready.error_persists)
        };
        assert_eq!(shows(false), (false, !unclear));
        (&peer).write_all(b"x").unwrap();
        assert_eq!(shows(false), (true, !unclear));
        assert_eq!(shows(true), (true, !unclear));
    }
}

/// The host has closed all descriptors of a transfer, and opened files of its own
/// under the numbers: none is closed, including those of the source that was
/// reopened to find holes, and of the pipe with unreadable bytes. They may be the
/// same files.
#[test]
fn what_is_let_go_of_closes_nothing_of_others() {
    use crate::pipe::{Channel, OwnedPipe, Unreadable};
    use crate::sys::{at, identity};
    fn numbers() -> Vec<i32> {
        (0..200).filter(|number| at(*number).is_some()).collect()
    }
    let lets_go = |same: bool| {
        let (mut source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        source.write_all(b"data").unwrap();
        source.set_len(1 << 20).unwrap();
        let host = tempfile::tempfile().unwrap();
        // This also closes the pipes that the parent keeps for reuse.
        let rest = OwnedPipe::holding(b"rest").unwrap();
        let before = numbers();
        let request = Request {
            source_offset: Some(0),
            sink_offset: Some(0),
            switches: Some(crate::Switches::only(&[crate::DataPath::ReadWrite])),
            ..Request::default()
        };
        let copies = [&source, &sink].map(|file| file.try_clone().unwrap().into());
        let [from, to] = copies;
        let mut transfer = Transfer::owning(from, to, request).unwrap();
        assert!(matches!(transfer.step(), Turn::Moved(_)));
        let mut own: Vec<i32> = (numbers().into_iter())
            .filter(|number| !before.contains(number))
            .collect();
        assert_eq!(own.len(), 3, "{own:?}");
        own.extend(rest.ends().map(|(end, _)| end.as_raw_fd()));
        transfer.flow.unreadable = Some(Box::new(Unreadable {
            pipe: rest,
            errno: Errno::EIO,
        }));
        for number in &own {
            let number = at(*number).unwrap();
            let it = (identity(number) == identity(&source)).then_some(&source);
            let by = if same { it.unwrap_or(&sink) } else { &host };
            testkit::child::replace(number, by.as_fd());
        }
        transfer.drop_without_close();
        own.iter().all(|number| at(*number).is_some())
    };
    for same in [false, true] {
        assert!(testkit::child::in_a_child(|| lets_go(same)), "{same}");
    }
}

/// A transfer that reads a pipe through a private one no longer counts as one of its users.
#[test]
fn what_is_let_go_of_has_no_share_of_the_budget() {
    let name = "what_is_let_go_of_has_no_share_of_the_budget";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let (source, mut feed) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    feed.write_all(b"data").unwrap();
    assert!(testkit::child::in_a_child(|| {
        let request = Request {
            // The buffer is shorter than the pipe.
            size: crate::Size::Bytes(2),
            switches: Some(crate::Switches::only(&[crate::DataPath::ReadWrite])),
            ..Request::default()
        };
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        transfer.flow.source.ready.marked = true;
        assert_eq!(transfer.step(), Turn::Moved(2));
        assert_eq!(crate::pipe::users(), 1);
        transfer.drop_without_close();
        crate::pipe::users() == 0
    }));
}

/// The same for a transfer that ends after the host has closed only what was
/// reopened: a terminal, or the source, to find holes.
#[test]
fn what_was_opened_again_is_looked_at_before_it_is_closed() {
    use crate::sys::{at, identity};
    if testkit::skip::on_overlayfs("a file has no lasting identity") {
        return;
    }
    fn of_others(transfer: Transfer<'_>, number: i32, host: &std::fs::File) -> bool {
        assert!(transfer.has_its_descriptors());
        testkit::child::replace(at(number).unwrap(), host.as_fd());
        assert!(!transfer.has_its_descriptors());
        transfer.close(false).unwrap();
        at(number).is_some_and(|now| identity(now) == identity(host))
    }
    let [terminal, _master] = pty();
    let (_reader, pipe) = std::io::pipe().unwrap();
    let (mut source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    source.write_all(b"data").unwrap();
    source.set_len(1 << 20).unwrap();
    let host = tempfile::tempfile().unwrap();
    assert!(testkit::child::in_a_child(|| {
        let mut transfer =
            Transfer::new(terminal.as_fd(), pipe.as_fd(), Request::default()).unwrap();
        transfer.reopen_terminals();
        let number = transfer.flow.source.fd().as_raw_fd();
        assert_ne!(number, terminal.as_raw_fd());
        of_others(transfer, number, &host)
    }));
    assert!(testkit::child::in_a_child(|| {
        let request = Request {
            source_offset: Some(0),
            sink_offset: Some(0),
            switches: Some(crate::Switches::only(&[crate::DataPath::ReadWrite])),
            ..Request::default()
        };
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let before: Vec<i32> = (0..200).filter(|number| at(*number).is_some()).collect();
        assert!(matches!(transfer.step(), Turn::Moved(_)));
        let mut own = (0..200).filter(|number| at(*number).is_some() && !before.contains(number));
        let number = own.next().unwrap();
        assert_eq!(own.next(), None);
        of_others(transfer, number, &host)
    }));
    // The host may have the same terminal under that number.
    assert!(testkit::child::in_a_child(|| {
        let mut transfer =
            Transfer::new(terminal.as_fd(), pipe.as_fd(), Request::default()).unwrap();
        transfer.reopen_terminals();
        let number = transfer.flow.source.fd().as_raw_fd();
        transfer.drop_without_close();
        at(number).is_some()
    }));
}

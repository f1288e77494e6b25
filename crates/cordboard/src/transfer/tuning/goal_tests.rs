//! Tests of transfers whose goal a command changes.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use testkit::needs::{Need, missing};
use testkit::pattern::noise;

use super::tests::{measured, request, settle, store};
use crate::path::{Flow, Step, Verdict};
use crate::request::{Aim, DataPath, Request, Schedule, Switches, Tune};
use crate::sys::monotonic;
use crate::transfer::{Control, Transfer};
use crate::tune::{Goal, Key, Search};

/// Returns whether a search is stored that needs no further measurement. A transfer of another
/// test may hold the lock for a moment.
fn is_settled(key: &Key) -> bool {
    let found = (0..1000).find_map(|_| {
        std::thread::yield_now();
        Search::recall(key, monotonic())
    });
    found.is_some_and(|(search, _)| search.controller.is_settled())
}

/// The transfer continues the search of earlier ones for the new goal, and leaves that for the
/// former goal to later ones. The paths are those of no other test of this process.
#[test]
fn a_change_of_the_goal_loses_no_search() {
    let name = "a_change_of_the_goal_loses_no_search";
    if missing(name, &[Need::Sendfile]) {
        return;
    }
    let file = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, &noise(1 << 20)).unwrap();
    let (sink, _peer) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let control = Control::without_descriptor();
    let new = || {
        let request = Request {
            switches: Some(Switches::all().without(DataPath::Splice)),
            ..request()
        };
        let transfer = Transfer::new(file.as_fd(), sink.as_fd(), request).unwrap();
        let mut transfer = transfer.control(&control);
        assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
        transfer
    };
    let background = Schedule::Auto(Aim::Background);
    control.set_schedule(background);
    let mut earlier = new();
    let time = earlier.key();
    settle(&mut earlier);
    assert!(is_settled(&time));
    control.set_schedule(Schedule::Unlimited);
    let mut transfer = new();
    let rate = transfer.key();
    assert_ne!(rate, time);
    // A transfer of another test may hold the lock at the change.
    let is_kept = (0..1000).any(|_| {
        control.set_schedule(Schedule::Unlimited);
        transfer.tuning = Some(Box::new(measured(&transfer)));
        transfer.change_way();
        control.set_schedule(background);
        transfer.measure(monotonic());
        let tuning = transfer.tuning.as_ref().unwrap();
        assert_eq!(tuning.key, time);
        tuning.controller.is_settled() && is_settled(&rate)
    });
    assert!(is_kept);
    store(&mut transfer);
    assert!(is_settled(&time));
}

/// Has completions, as direct I/O.
struct Completes;

impl Step for Completes {
    fn step(&mut self, _: &mut Flow<'_>) -> Verdict {
        Verdict::Moved(0)
    }

    fn has_completions(&self) -> bool {
        true
    }
}

/// A path that measures its own settings knows the goal at each step.
#[test]
fn direct_io_follows_the_goal() {
    let file = testkit::file::file_with(b"abc");
    let sink = testkit::file::file_with(b"");
    let control = Control::without_descriptor();
    for tune in [Tune::On, Tune::Processor] {
        let request = Request {
            tune: Some(tune),
            ..request()
        };
        let transfer = Transfer::new(file.as_fd(), sink.as_fd(), request).unwrap();
        let mut transfer = transfer.control(&control);
        transfer.current = Some((DataPath::Direct, Box::new(Completes)));
        for (schedule, goal) in [
            (Schedule::Unlimited, Goal::Rate),
            (Schedule::Auto(Aim::Background), Goal::Time),
            (Schedule::Auto(Aim::Throughput), Goal::Rate),
            (Schedule::rate(1), Goal::Rate),
        ] {
            control.set_schedule(schedule);
            transfer.step();
            let expected = if tune == Tune::On { goal } else { Goal::Time };
            assert_eq!(transfer.flow.goal, expected, "{tune:?} {schedule:?}");
        }
    }
}

//! The cost of many control descriptors: little memory, and no wake-ups.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cordboard::cue::{Command, Cue, State};
use cordboard::{Ended, Request, Transfer};

use super::common::{allowed, alone, asleep, switches, watchdog};
use super::steps::{done, send, status};
use testkit::allocated::{Counting, in_use};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of control descriptors. Each needs one descriptor for the caller, five for the
/// service, three for a transfer, and four for the pipes.
const CUES: usize = 1000;

/// Lets this much time pass, by the idle limit of a transfer.
fn pass(time: Duration) {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let request = Request {
        idle: Some(time),
        ..Request::default()
    };
    use std::os::fd::AsFd;
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    assert!(transfer.run().report.elapsed >= time);
}

#[test]
fn a_thousand_idle_cues() {
    let _dog = watchdog("a_thousand_idle_cues");
    if !alone!() {
        return;
    }
    let Some(count) = allowed(CUES, 13, 200) else {
        return;
    };
    let pipes: Vec<_> = (0..count)
        .map(|_| (std::io::pipe().unwrap(), std::io::pipe().unwrap()))
        .collect();
    let open = || -> Vec<Cue> {
        let each = pipes.iter();
        each.map(|((source, _), (_, sink))| Cue::new(source, sink).unwrap())
            .collect()
    };
    // Starts the threads.
    let mut first = Cue::new(&pipes[0].0.0, &pipes[0].1.1).unwrap();
    send(&first, &[Command::Write(1), Command::Cancel]);
    done(&mut first);
    let before = in_use();
    let mut cues = open();
    for cue in &mut cues {
        assert_eq!(status(cue).state, State::Idle);
    }
    let each = (in_use() - before) / count;
    eprintln!("{count} control descriptors without a transfer: {each} bytes each");
    assert!(each <= 2048, "{each}");
    // As many transfers as wait were commanded before, and ended.
    let burst = [&[Command::Pause], &[Command::Write(1); 40][..]].concat();
    for cue in &mut cues {
        send(cue, &burst);
        send(cue, &[Command::Cancel, Command::Resume]);
        for _ in 0..40 {
            assert_eq!(done(cue).ended, Ended::Cancelled);
        }
        assert_eq!(status(cue).state, State::Idle);
    }
    // Without the buffers of the records that were read.
    let cues = cues.into_iter().map(|cue| Cue::from(OwnedFd::from(cue)));
    let mut cues: Vec<Cue> = cues.collect();
    let each = (in_use() - before) / count;
    eprintln!("{count} control descriptors after transfers: {each} bytes each");
    assert!(each <= 2048, "{each}");
    // With a transfer, which may take 2048 bytes itself.
    for cue in &mut cues {
        send(cue, &[Command::WriteToEnd]);
        while status(cue).path.is_none() {}
    }
    let each = (in_use() - before) / count;
    eprintln!("{count} control descriptors with a transfer: {each} bytes each");
    assert!(each <= 4096 + 2048, "{each}");
    let threads = &["cordboard", "cordboard-cue"];
    // The service may still run after its last answer.
    asleep(threads);
    let before = switches(threads);
    pass(Duration::from_millis(200));
    assert_eq!(switches(threads), before, "a thread was woken");
}

//! Changes at random moments, on each path, on the caller's thread and on both engines:
//! the counts are exact, the files are right, nothing is stuck, and nothing moves faster
//! than the limit.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cordboard::engine::{Backend, Options};
use cordboard::{
    Aim, Control, DataPath, Ended, Engine, Observer, Progress, Report, Request, Schedule, Switches,
    Transfer,
};
use testkit::needs::{self, Need};
use testkit::pattern::noise;

use super::common::watchdog;
use super::steps::file_with;

/// Bytes a second.
const LIMIT: u64 = 100 << 20;

/// Notes whether the transfer was ever ahead of its limit.
struct Bound(Arc<AtomicBool>);

impl Observer for Bound {
    fn progress(&mut self, progress: &Progress) {
        let allowed = u128::from(LIMIT) * progress.elapsed.as_nanos() / 1_000_000_000;
        if u128::from(progress.read) > allowed {
            self.0.store(true, Relaxed);
        }
    }
}

/// Changes the transfer until it has ended.
fn interfere(control: &Control, ended: &AtomicBool, random: &mut fastrand::Rng) {
    let cancels = random.u8(..4) == 0;
    for turn in 0.. {
        if ended.load(Relaxed) {
            return;
        }
        match random.u8(..9) {
            0 => control.pause(),
            1 => control.resume(),
            2 => control.set_schedule(Schedule::rate(random.u64(1 << 20..1 << 40))),
            3 => {
                let rest = Duration::from_millis(random.u64(..3));
                control.set_schedule(Schedule::blocks(random.u32(1..9), rest));
            }
            4 => control.set_schedule(Schedule::Unlimited),
            5 => control.limit_schedule(Schedule::rate(LIMIT), Schedule::BLOCK),
            6 => control.wake(),
            7 => control.set_schedule(Schedule::Auto(match random.u32(..5) {
                0 => Aim::Throughput,
                1 => Aim::Background,
                weight => Aim::share(weight).unwrap(),
            })),
            _ if cancels && turn > 100 => control.cancel(),
            _ => {}
        }
        // It must end at last.
        if turn > 2000 {
            control.set_schedule(Schedule::Unlimited);
            control.resume();
        }
        std::thread::yield_now();
    }
}

fn run(
    path: DataPath,
    engine: Option<&Engine>,
    data: &[u8],
    random: &mut fastrand::Rng,
) -> Option<(Report, std::fs::File, bool)> {
    let (source, sink) = (file_with(data), file_with(b""));
    let control = Control::new().unwrap();
    control.limit_schedule(Schedule::rate(LIMIT), Schedule::BLOCK);
    let request = Request {
        switches: Some(Switches::only(&[path])),
        ..Request::default()
    };
    let (from, to) = (source.as_fd(), sink.as_fd());
    let copies = [from, to].map(|fd| fd.try_clone_to_owned().unwrap());
    let [from, to] = copies;
    let ahead = Arc::new(AtomicBool::new(false));
    let transfer = Transfer::owning(from, to, request).ok()?;
    let transfer = transfer
        .control(&control)
        .observe(Bound(Arc::clone(&ahead)));
    let ended = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| interfere(&control, &ended, random));
        let outcome = match engine {
            Some(engine) => engine.start(transfer).unwrap().wait(),
            None => transfer.run(),
        };
        ended.store(true, Relaxed);
        outcome.report
    });
    Some((report, sink, ahead.load(Relaxed)))
}

#[test]
fn changes_at_random_moments_on_each_path() {
    let name = "changes_at_random_moments_on_each_path";
    let _dog = watchdog(name);
    let data = noise(3 << 20);
    let engines = [Backend::Epoll, Backend::Uring].map(|backend| {
        let options = Options {
            backend,
            ..Options::default()
        };
        Engine::new(options).ok()
    });
    // The rest of the test continues without that engine.
    needs::missing(
        "random changes on the engine with io_uring",
        &[Need::IoUring],
    );
    let runners = [None, engines[0].as_ref(), engines[1].as_ref()];
    for seed in 0..3 {
        for path in [
            DataPath::ReadWrite,
            DataPath::Sendfile,
            DataPath::CopyFileRange,
            DataPath::Splice,
            DataPath::Direct,
        ] {
            for (n, engine) in runners.into_iter().enumerate() {
                if n > 0 && engine.is_none() {
                    continue;
                }
                let mut random = fastrand::Rng::with_seed(seed);
                let Some((report, sink, ahead)) = run(path, engine, &data, &mut random) else {
                    continue;
                };
                let case = format!("{path}, seed {seed}, runner {n}: {report:?}");
                assert!(!ahead, "{case}");
                assert!(
                    matches!(report.ended, Ended::Eof | Ended::Cancelled) || report.path.is_empty(),
                    "{case}"
                );
                assert_eq!(report.read, report.written + report.stranded, "{case}");
                let mut copy = vec![0; data.len() + 1];
                let length = usize::try_from(report.written).unwrap();
                let found = rustix::io::pread(&sink, &mut copy, 0).unwrap();
                assert_eq!(found, length, "{case}");
                assert!(copy[..length] == data[..length], "{case}");
                if report.ended == Ended::Eof {
                    assert_eq!(
                        (length, &report.path[..]),
                        (data.len(), &[path][..]),
                        "{case}"
                    );
                }
            }
        }
    }
}

//! What a panic leaves behind.

use std::path::Path;

use cordboard::{Control, Errno};

use super::Workers;
use crate::copy::job::{Job, Moment};
use crate::copy::parallel::batch::{Batch, Item};
use crate::copy::parallel::dispatch::Dispatch;
use crate::flags::{Common, Stages};
use crate::session::Session;

/// The size of a file that the engine takes.
const LARGE: u64 = 5 << 20;

/// Panics if the file's name requests it, without the message of the panic
/// hook.
fn fault(moment: Moment, name: &Path) {
    let end = match moment {
        Moment::Opening => "-opening",
        Moment::Settling => "-settling",
    };
    if name.to_string_lossy().ends_with(end) {
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Files with these names and lengths.
fn items(dir: &Path, files: &[(&str, u64)]) -> Vec<Item> {
    let item = |(name, length): &(&str, u64)| {
        let source = dir.join(name);
        let made = std::fs::File::create(&source).unwrap();
        made.set_len(*length).unwrap();
        Item {
            target: Some(dir.join(format!("to-{name}"))),
            name: source.into(),
            beneath: false,
            collides: false,
        }
    };
    files.iter().map(item).collect()
}

fn faulty(control: &'static Control) -> Job {
    Job {
        fault: Some(fault),
        ..Job::plain(control)
    }
}

/// On another thread than the walk's, which the panic would end.
#[test]
fn a_panic_gives_the_slot_back_and_ends_the_file() {
    let _hangs = testkit::watchdog::watch("a_panic_gives_the_slot_back_and_ends_the_file");
    let dir = tempfile::tempdir().unwrap();
    let control = Box::leak(Box::new(Control::new().unwrap()));
    let files = [
        ("1", 4096),
        ("2-opening", 4096),
        ("3-settling", 4096),
        ("4-settling", LARGE),
        ("5", 4096),
    ];
    let pool = Workers::new(faulty(control), 2);
    pool.push(Batch::new(7, None, items(dir.path(), &files)));
    let thread = pool.thread().unwrap();
    let done = loop {
        let state = pool.lock();
        if thread.is_finished() || !state.done.is_empty() && pool.is_idle(&state) {
            break state.done.len();
        }
        pool.sleep(state, None);
    };
    assert_eq!(done, 1, "the batch is through");
    let (number, totals) = pool.lock().done.pop().unwrap();
    assert_eq!((number, pool.lock().free), (7, 2));
    let files = totals.files();
    assert_eq!((files.copied, files.failed, files.left_out), (2, 3, false));
    assert_eq!(pool.engine_copies.status().0, 0);
    pool.close();
    thread.join().unwrap();
}

/// The whole command: its threads, an engine, and the walk's thread.
#[test]
fn a_panic_is_a_failure_of_its_file_and_of_the_command() {
    let _hangs = testkit::watchdog::watch("a_panic_is_a_failure_of_its_file_and_of_the_command");
    for slots in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let common = Common::silent(Stages::default());
        let mut session = Session::begin(&common, "copied");
        session.count_files(true);
        let job = faulty(session.control());
        let mut dispatch = Dispatch::new(&mut session, job, slots, false);
        let name = |i: usize| match i % 20 {
            8 => format!("{i}-opening"),
            9 => format!("{i}-settling"),
            _ => i.to_string(),
        };
        let mut files: Vec<_> = (0..200).map(|i| (name(i), 100)).collect();
        files.extend(["large", "large-opening", "large-settling"].map(|n| (n.to_owned(), LARGE)));
        let files: Vec<_> = files
            .iter()
            .map(|(n, length)| (n.as_str(), *length))
            .collect();
        for item in items(dir.path(), &files) {
            dispatch.file(item, || None);
        }
        dispatch.drain();
        drop(dispatch);
        let account = session.account();
        let files = account.files.unwrap();
        assert_eq!(
            (files.copied, files.failed, files.left_out),
            (181, 22, false)
        );
        let report = &account.total;
        assert_eq!(
            (report.errno, report.failed),
            (Some(Errno::ENOTRECOVERABLE), None)
        );
        for (name, length) in [("199", 100), ("large", LARGE)] {
            let made = std::fs::metadata(dir.path().join(format!("to-{name}")));
            assert_eq!(made.unwrap().len(), length);
        }
        assert!(!dir.path().join("to-188-opening").exists());
        assert_eq!(session.finish(), 1);
    }
}

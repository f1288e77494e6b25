//! A process is killed while it copies: the files that it has reported as synced are
//! on the medium.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;

use crate::common::mount::Mount;
use crate::common::{self, any, pattern, watchdog};
use cordboard::{Direct, Ended, Request, Running, Transfer};
use testkit::owned::Start;

const DIRECTORY: &str = "CORDBOARD_TEST_DIRECTORY";
const SIZES: [usize; 6] = [0, 1, 70_001, 1 << 20, (5 << 20) + 17, 12 << 20];
const ROUNDS: usize = 6;

/// Returns the content of each file.
fn bytes(index: usize) -> Vec<u8> {
    let mut bytes = pattern(SIZES[index] + index);
    bytes.drain(..index);
    bytes
}

/// Copies all files at once, and prints the number of each synced file.
fn copies(directory: &Path) {
    let (sender, receiver) = mpsc::channel();
    let all: Vec<Running> = (0..SIZES.len())
        .map(|index| {
            let source = File::open(directory.join(format!("source{index}"))).unwrap();
            let sink = directory.join(format!("sink{index}"));
            let sink = File::options().write(true).open(sink).unwrap();
            let request = Request {
                sync: true,
                direct: if index % 2 == 0 {
                    Direct::Auto
                } else {
                    Direct::Always
                },
                ..any()
            };
            let transfer = Transfer::owning(source.into(), sink.into(), request).unwrap();
            let running = transfer.start().unwrap();
            let sender = sender.clone();
            running.on_end(move |report| {
                assert_eq!(report.ended, Ended::Eof, "{report:?}");
                sender.send(index).unwrap();
            });
            running
        })
        .collect();
    for index in receiver.iter().take(all.len()) {
        // A single write, so that no buffer needs to be flushed.
        let line = format!("synced {index}\n");
        rustix::io::write(rustix::stdio::stdout(), line.as_bytes()).unwrap();
    }
}

fn prepare(directory: &Path) {
    for index in 0..SIZES.len() {
        std::fs::write(directory.join(format!("source{index}")), bytes(index)).unwrap();
        File::create(directory.join(format!("sink{index}"))).unwrap();
    }
    rustix::fs::syncfs(File::open(directory).unwrap()).unwrap();
}

/// Runs the copies in a child and kills it after this many are synced. Returns the
/// numbers of the files that it has reported.
fn killed_after(test: &str, count: usize, directory: &Path) -> Vec<usize> {
    let mut child = common::command_of(test)
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .start();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut reported = Vec::new();
    if count == 0 {
        child.kill().unwrap();
    }
    for line in lines.map_while(Result::ok) {
        if let Some((_, index)) = line.split_once("synced ") {
            reported.push(index.trim().parse().unwrap());
            if reported.len() == count {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(reported.len() >= count, "{count}: {reported:?}");
    reported
}

#[test]
fn what_was_reported_as_synced_is_there() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        return copies(Path::new(&directory));
    }
    let _dog = watchdog("what_was_reported_as_synced_is_there");
    let mount = Mount::new("ext4", 128 << 20);
    let scratch = tempfile::tempdir().unwrap();
    let mut partly = 0;
    for round in 0..ROUNDS {
        let base = mount
            .as_ref()
            .map_or(scratch.path().to_owned(), Mount::path);
        prepare(&base);
        let reported = killed_after(common::this_test!(), round % SIZES.len(), &base);
        partly += usize::from(reported.len() < SIZES.len());
        // Without a mount, the test checks only what other processes see.
        let snapshot = mount.as_ref().map(Mount::snapshot);
        let there = snapshot.as_ref().map_or(base, Mount::path);
        for index in reported {
            let found = std::fs::read(there.join(format!("sink{index}"))).unwrap();
            assert!(
                found == bytes(index),
                "round {round}: file {index} is not on the medium"
            );
        }
    }
    assert!(partly > 0, "no child was killed before its end");
}

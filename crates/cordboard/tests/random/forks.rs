//! Children that close everything, open files of their own under the same numbers,
//! and move bytes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Size, Transfer, start};
use fastrand::Rng;
use rustix::fs::MemfdFlags;
use testkit::child;

use crate::common::{any, file_with, only, pattern, run};

/// More files than the parent has descriptors.
const OWN: u64 = 200;

/// A file of the child, which only the child may change.
fn own(index: u64) -> File {
    let file = rustix::fs::memfd_create("own", MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(file);
    file.write_all_at(&index.to_ne_bytes(), 0).unwrap();
    file
}

fn is_unharmed((index, file): (u64, &File)) -> bool {
    let mut bytes = [0; 16];
    let length = file.read_at(&mut bytes, 0);
    length.is_ok_and(|n| bytes[..n] == index.to_ne_bytes())
}

/// Moves bytes from pipe to pipe: on an engine, or on this thread.
fn carries(rng: &mut Rng, bytes: usize) -> bool {
    let data = pattern(bytes);
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    feed.write_all(&data).unwrap();
    drop(feed);
    let written = match rng.u8(..3) {
        0 => {
            run(&source, &sink, only(&[Splice, ReadWrite]))
                .report
                .written
        }
        1 => run(&source, &sink, only(&[ReadWrite])).report.written,
        _ => {
            let copies = (source.try_clone().unwrap(), sink.try_clone().unwrap());
            let transfer = Transfer::owning(copies.0.into(), copies.1.into(), any()).unwrap();
            // The first start after the engine's descriptors were closed is
            // refused, and the next has another engine.
            match transfer.start() {
                Ok(running) => running.wait().report.written,
                Err(_) => start(&source, &sink, any()).unwrap().wait().report.written,
            }
        }
    };
    drop(sink);
    let mut got = Vec::new();
    end.read_to_end(&mut got).unwrap();
    written == data.len() as u64 && got == data
}

fn copies(rng: &mut Rng) -> bool {
    let data = pattern(rng.usize(0..300_000));
    let (source, mut sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let report = cordboard::splice(&source, &sink, Size::Eof).unwrap();
    let mut got = Vec::new();
    std::io::Seek::rewind(&mut sink).unwrap();
    sink.read_to_end(&mut got).unwrap();
    report.written == data.len() as u64 && got == data
}

/// Runs one child to its end.
pub fn child(rng: &mut Rng) {
    let seed = rng.u64(..);
    let fine = child::in_a_child(|| {
        let rng = &mut Rng::with_seed(seed);
        // With inherited descriptors, and with an engine of its own or without.
        for _ in 0..rng.usize(0..3) {
            assert!(carries(rng, 1000), "before it closes everything");
        }
        child::close_from(3);
        let files: Vec<File> = (0..OWN).map(own).collect();
        for _ in 0..rng.usize(1..5) {
            let length = rng.usize(0..60_000);
            assert!(carries(rng, length), "from pipe to pipe");
            assert!(copies(rng), "from file to file");
            assert!((0..).zip(&files).all(is_unharmed), "the child's own files");
        }
        // Not dropped: the child ends by `_exit`.
        std::mem::forget(files);
        true
    });
    assert!(fine, "a child that closes everything");
}

//! Stages between read and write: the bytes, the counts, the digests, in every
//! ending.

mod endings;
mod faults;
mod holes;
mod refusals;
mod whole;

use crate::common;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use cordboard::{DataPath, Outcome, Report, Request, Stage, Transfer};
use testkit::pattern::noise;

/// Makes stages by their names, for tables of them.
fn stage(name: &str) -> Stage {
    match name {
        "crc32" => Stage::crc32(),
        "xxh3" => Stage::xxh3(),
        "blake3" => Stage::blake3(),
        "count" => Stage::count(),
        "zstd" => Stage::zstd(1).unwrap(),
        "unzstd" => Stage::unzstd().unwrap(),
        _ => panic!("{name}"),
    }
}

/// The digest of an inspecting stage over all bytes.
fn digest(name: &str, bytes: &[u8]) -> Option<String> {
    Some(match name {
        "crc32" => format!("{:08x}", crc32fast::hash(bytes)),
        "xxh3" => format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes)),
        "blake3" => blake3::hash(bytes).to_hex().to_string(),
        _ => return None,
    })
}

fn transfer<'a>(
    source: &'a impl AsFd,
    sink: &'a impl AsFd,
    request: Request,
    stages: &[&str],
) -> Transfer<'a> {
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    for name in stages {
        transfer = transfer.stage(stage(name)).unwrap();
    }
    transfer
}

fn run(source: &impl AsFd, sink: &impl AsFd, request: Request, stages: &[&str]) -> Outcome {
    transfer(source, sink, request, stages).run()
}

/// Asserts that the path is read/write, and that the report has each stage.
#[track_caller]
fn by_user_space(report: &Report, stages: &[&str]) {
    assert!(report.path.iter().all(|p| *p == DataPath::ReadWrite));
    let names: Vec<_> = report.stages.iter().map(|s| s.stage).collect();
    assert_eq!(names, stages);
}

/// A sink, and the thread that collects what arrives.
struct Sink {
    fd: OwnedFd,
    reader: Option<JoinHandle<Vec<u8>>>,
}

#[derive(Debug, Clone, Copy)]
enum To {
    File,
    Pipe,
    Unix,
}

impl Sink {
    /// Makes a sink whose reader closes after this many bytes.
    fn new(kind: To, takes: usize) -> Sink {
        let (fd, peer): (OwnedFd, OwnedFd) = match kind {
            To::File => {
                return Sink {
                    fd: tempfile::tempfile().unwrap().into(),
                    reader: None,
                };
            }
            To::Pipe => {
                let (reader, writer) = std::io::pipe().unwrap();
                (writer.into(), reader.into())
            }
            To::Unix => {
                let (a, b) = UnixStream::pair().unwrap();
                (a.into(), b.into())
            }
        };
        let reader = std::thread::spawn(move || {
            use std::io::Read;
            let mut got = Vec::new();
            let mut peer = File::from(peer).take(takes as u64);
            // The test may close its end early.
            let _ = peer.read_to_end(&mut got);
            got
        });
        Sink {
            fd,
            reader: Some(reader),
        }
    }

    /// Returns all that arrived.
    fn got(self) -> Vec<u8> {
        match self.reader {
            None => common::content(&File::from(self.fd)),
            Some(reader) => {
                drop(self.fd);
                reader.join().unwrap()
            }
        }
    }
}

/// Returns bytes that compress in part.
fn data(length: usize) -> Vec<u8> {
    let mut data = noise(length);
    for part in data.chunks_mut(5000).step_by(3) {
        part.fill(7);
    }
    data
}

fn packed(data: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, data).unwrap();
    encoder.finish().unwrap()
}

fn unpacked(frames: &[u8]) -> Vec<u8> {
    zstd::decode_all(frames).unwrap()
}

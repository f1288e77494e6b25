//! A peer sends arbitrary bytes to a control descriptor with limits: no more bytes are moved
//! than the limit, and none outside the range. The first byte determines how the peer reads
//! and closes.
#![no_main]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use cordboard::cue::{Command, Cue, Limit};
use libfuzzer_sys::fuzz_target;

const LENGTH: usize = 200_000;
const LIMIT: u64 = 50_000;
const START: u64 = 1000;
const END: u64 = 100_000;
/// Bytes inside and outside the range.
const INSIDE: u8 = 1;
const OUTSIDE: u8 = 2;

fn source() -> &'static File {
    static SOURCE: OnceLock<File> = OnceLock::new();
    SOURCE.get_or_init(|| {
        let mut bytes = vec![OUTSIDE; LENGTH];
        bytes[START as usize..END as usize].fill(INSIDE);
        let file = memory_file();
        file.write_all_at(&bytes, 0).unwrap();
        file
    })
}

fn memory_file() -> File {
    let folder = if std::path::Path::new("/dev/shm").is_dir() {
        "/dev/shm"
    } else {
        "/tmp"
    };
    let path = format!("{folder}/cordboard-fuzz-{}", std::process::id());
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

fuzz_target!(|data: &[u8]| {
    let Some((how, bytes)) = data.split_first() else {
        return;
    };
    let (mut out, sink) = UnixStream::pair().unwrap();
    let cue = Cue::new(source(), &sink).unwrap();
    drop(sink);
    for limit in [
        Limit::Bytes(LIMIT),
        Limit::Range {
            start: START,
            end: END,
        },
        Limit::Rate(1 << 40),
        Limit::Time(2000),
    ] {
        cue.send(Command::Limit(limit)).unwrap();
    }
    let reader = std::thread::spawn(move || {
        let mut moved = Vec::new();
        // The end of file means that the service has closed the sink.
        let _ = out.read_to_end(&mut moved);
        moved
    });
    let mut peer = UnixStream::from(cue.as_fd().try_clone_to_owned().unwrap());
    drop(cue);
    peer.set_nonblocking(how & 1 != 0).unwrap();
    for part in bytes.chunks(usize::from(how >> 3).max(1)) {
        // The socket is full, because the records are not read.
        if peer.write_all(part).is_err() {
            break;
        }
    }
    if how & 2 != 0 {
        let _ = peer.shutdown(std::net::Shutdown::Write);
    }
    if how & 4 != 0 {
        let mut records = Vec::new();
        let _ = peer.set_nonblocking(true);
        let _ = peer.read_to_end(&mut records);
    }
    drop(peer);
    let moved = reader.join().unwrap();
    assert!(
        moved.len() as u64 <= LIMIT,
        "{} bytes were moved",
        moved.len()
    );
    assert!(
        moved.iter().all(|byte| *byte == INSIDE),
        "bytes outside the range were read"
    );
});

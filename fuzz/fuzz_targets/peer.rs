//! A peer sends arbitrary bytes to a control descriptor with limits: no more bytes are moved
//! than the limit, none outside the range, and none earlier than a limit of the rate or of
//! blocks permits. The first byte determines how the peer reads and closes, and which of
//! these two limits there is.
#![no_main]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cordboard::cue::{Command, Cue, Limit};
use libfuzzer_sys::fuzz_target;

const LENGTH: usize = 200_000;
const LIMIT: u64 = 50_000;
const START: u64 = 1000;
const END: u64 = 100_000;
/// Bytes a second: all bytes together take 5 ms.
const RATE: u64 = 10_000_000;
/// The blocks of which one is moved in each millisecond.
const BLOCK: u32 = 8192;
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
    cue.send(Command::Block(BLOCK)).unwrap();
    let has_blocks = how & 8 != 0;
    for limit in [
        Limit::Bytes(LIMIT),
        Limit::Range {
            start: START,
            end: END,
        },
        match has_blocks {
            true => Limit::Schedule { count: 1, rest: 1 },
            false => Limit::Rate(RATE),
        },
        Limit::Time(2000),
    ] {
        cue.send(Command::Limit(limit)).unwrap();
    }
    let most = move |time: Duration| match has_blocks {
        true => (time.as_millis() + 1) * u128::from(BLOCK),
        false => u128::from(RATE) * time.as_micros() / 1_000_000,
    };
    let begin = Instant::now();
    let reader = std::thread::spawn(move || {
        let (mut moved, mut piece) = (Vec::new(), [0; 4096]);
        // The end of file means that the service has closed the sink.
        while let Ok(n @ 1..) = out.read(&mut piece) {
            moved.extend_from_slice(&piece[..n]);
            let (bytes, time) = (moved.len(), begin.elapsed());
            assert!(bytes as u128 <= most(time), "{bytes} bytes in {time:?}");
        }
        moved
    });
    let mut peer = UnixStream::from(cue.as_fd().try_clone_to_owned().unwrap());
    drop(cue);
    peer.set_nonblocking(how & 1 != 0).unwrap();
    for part in bytes.chunks(usize::from(how >> 4).max(1)) {
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

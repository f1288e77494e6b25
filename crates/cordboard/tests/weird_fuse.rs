//! A file whose size is false, as a file system in user space can make it:
//! every path reads what a read loop reads. The server here speaks the
//! kernel's protocol itself (linux/fuse.h); its root is the one file.

mod common;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use common::{content, only, pattern, run, watchdog};
use cordboard::Ended;
use cordboard::PathName::{CopyFileRange, ReadWrite, Sendfile, Splice};

const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const FORGET: u32 = 2;
const INTERRUPT: u32 = 36;
const FOPEN_DIRECT_IO: u32 = 1;

/// What the file holds, what it claims to hold, and whether reads go past the
/// page cache.
#[derive(Debug, Clone, Copy)]
struct Claim {
    holds: usize,
    claims: u64,
    direct: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn double(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// struct fuse_attr_out: not to be kept, then the attributes.
fn attributes(size: u64) -> Vec<u8> {
    let mut out = words(&[0, 0, 0, 0]);
    for number in [1, size, size.div_ceil(512), 0, 0, 0] {
        out.extend(number.to_ne_bytes());
    }
    // Three fractions of times, mode, links, owner, group, device, block, flags.
    out.extend(words(&[0, 0, 0, 0o100_444, 1, 0, 0, 0, 4096, 0]));
    out
}

/// Answers until the file system is unmounted.
fn serve(mut device: &File, claim: Claim) {
    let data = pattern(claim.holds);
    let mut request = vec![0; 1 << 20];
    while let Ok(n @ 40..) = device.read(&mut request) {
        let (opcode, unique, body) = (word(&request, 4), double(&request, 8), &request[40..n]);
        let answer = match opcode {
            // struct fuse_init_out of protocol 7.31.
            INIT => Ok({
                let mut out = words(&[7, 31, 0, 0, 0, 65_536, 1]);
                out.resize(64, 0);
                out
            }),
            GETATTR => Ok(attributes(claim.claims)),
            OPEN => Ok(words(&[0, 0, u32::from(claim.direct) * FOPEN_DIRECT_IO, 0])),
            READ => {
                let from = (double(body, 8) as usize).min(data.len());
                let to = (from + word(body, 16) as usize).min(data.len());
                Ok(data[from..to].to_vec())
            }
            STATFS => Ok(vec![0; 80]),
            RELEASE | FLUSH => Ok(Vec::new()),
            FORGET | INTERRUPT => continue,
            _ => Err(-libc::ENOSYS),
        };
        let (error, body) = answer.map_or_else(|e| (e, Vec::new()), |body| (0, body));
        let mut out = words(&[16 + body.len() as u32, error as u32]);
        out.extend(unique.to_ne_bytes());
        out.extend(body);
        // ENOENT: whoever asked has gone.
        let _ = device.write(&out);
    }
}

fn with_file(claim: Claim, test: impl FnOnce(&mut File)) -> bool {
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
        return false;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("file");
    File::create(&at).unwrap();
    let options = format!(
        "fd={},rootmode=100444,user_id=0,group_id=0",
        device.as_raw_fd()
    );
    let text = |s: &str| std::ffi::CString::new(s).unwrap();
    let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
    let options = text(&options);
    if rustix::mount::mount("cord", &at, "fuse", flags, Some(options.as_c_str())).is_err() {
        return false;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&device, claim));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(&mut File::open(&at).unwrap());
        }));
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    true
}

#[test]
fn a_false_size_ends_nothing_early() {
    let _dog = watchdog("a_false_size_ends_nothing_early");
    if !common::root() {
        eprintln!("SKIPPED: mounting takes root");
        return;
    }
    for direct in [false, true] {
        for claims in [0, 10, 99_999, 100_000, 150_000, 1 << 40] {
            let claim = Claim {
                holds: 100_000,
                claims,
                direct,
            };
            let mounted = with_file(claim, |source| {
                // What a read loop finds.
                let (mut expected, mut block) = (Vec::new(), vec![0; 4096]);
                while let Ok(n @ 1..) = source.read_at(&mut block, expected.len() as u64) {
                    expected.extend_from_slice(&block[..n]);
                    assert!(expected.len() < 1 << 20, "{claim:?}");
                }
                if direct {
                    assert_eq!(expected.len(), 100_000, "{claim:?}");
                }
                for paths in [
                    &[CopyFileRange, Sendfile, Splice, ReadWrite][..],
                    &[Sendfile, ReadWrite],
                    &[Splice, ReadWrite],
                    &[ReadWrite],
                ] {
                    source.rewind().unwrap();
                    let sink = tempfile::tempfile().unwrap();
                    let report = run(source.as_fd(), &sink, only(paths)).report;
                    let what = format!("{claim:?} by {paths:?}: {report:?}");
                    assert_eq!(report.ended, Ended::Eof, "{what}");
                    assert_eq!(report.written, expected.len() as u64, "{what}");
                    assert!(content(&sink) == expected, "{what}");
                    if direct && claims == 99_999 && paths.len() == 2 {
                        // It ends a byte too early, which a read finds out.
                        source.rewind().unwrap();
                        let (sink, mut peer) = common::tcp_pair();
                        let reader = std::thread::spawn(move || {
                            let mut got = Vec::new();
                            peer.read_to_end(&mut got).unwrap();
                            got
                        });
                        let report = run(source.as_fd(), &sink, only(paths)).report;
                        drop(sink);
                        assert_eq!(report.path, paths, "{report:?}");
                        assert!(reader.join().unwrap() == expected, "{report:?}");
                    }
                }
            });
            if !mounted {
                eprintln!("SKIPPED: no FUSE here");
                return;
            }
        }
    }
}

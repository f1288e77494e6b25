//! Beyond 2 GiB, where counts exceed 31 bits: a sparse file with islands of data at
//! critical offsets.

use cordboard::{DataPath, Ended, Report, Request, Switches, Transfer};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use testkit::{pattern, watchdog};

const SIZE: u64 = (2 << 30) + 4097;
const ISLAND: usize = 8192;

/// Returns the offsets of islands across the limits of one call, of 31 and of 32
/// bits, and at both ends.
fn islands() -> [u64; 6] {
    let limit = 0x7fff_f000;
    [
        0,
        1 << 20,
        1 << 30,
        limit - 4096,
        (2 << 30) - 4096,
        SIZE - ISLAND as u64,
    ]
}

/// Makes a file in `dir` whose name is already removed.
fn file(dir: &str) -> OwnedFd {
    tempfile::tempfile_in(dir).expect("a temporary file").into()
}

/// The directory of a tmpfs; `None` skips the test.
fn tmpfs() -> Option<&'static str> {
    let missing = testkit::SourceKind::Tmpfs.unavailable();
    missing.iter().for_each(testkit::skip::here);
    missing.is_none().then_some("/dev/shm")
}

fn temp_dir() -> String {
    std::env::temp_dir().to_string_lossy().into_owned()
}

fn source(dir: &str) -> OwnedFd {
    let fd = file(dir);
    rustix::fs::ftruncate(&fd, SIZE).expect("a sparse file");
    for at in islands() {
        let bytes = pattern::bytes(at, ISLAND);
        rustix::io::pwrite(&fd, &bytes, at).expect("an island");
    }
    fd
}

/// Checks that `bytes` is what the source has at `offset`.
fn is_right(offset: u64, bytes: &[u8]) -> bool {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut wanted = bytes.len();
    let mut at = 0;
    while at < bytes.len() {
        // Up to the next edge of an island, or 64 KiB.
        let here = offset + at as u64;
        let length = wanted.min(ZEROS.len());
        let edges = islands().into_iter().flat_map(|i| [i, i + ISLAND as u64]);
        let edge = edges.filter(|edge| *edge > here).min().unwrap_or(SIZE);
        let length = length.min(usize::try_from(edge - here).unwrap_or(length));
        let part = &bytes[at..at + length];
        let data = islands()
            .into_iter()
            .any(|i| i <= here && here < i + ISLAND as u64);
        let same = if data {
            pattern::check(here, part).is_ok()
        } else {
            part == &ZEROS[..length]
        };
        if !same {
            return false;
        }
        at += length;
        wanted -= length;
    }
    true
}

fn carry(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, switches: Switches) -> Report {
    rustix::fs::seek(source, rustix::fs::SeekFrom::Start(0)).expect("a rewind");
    let request = Request {
        switches: Some(switches),
        ..Request::default()
    };
    let outcome = Transfer::new(source, sink, request)
        .expect("a transfer")
        .run();
    let report = outcome.report;
    assert_eq!(report.ended, Ended::Eof, "{report:?}");
    assert_eq!((report.read, report.written), (SIZE, SIZE), "{report:?}");
    assert_eq!(rustix::fs::tell(source), Ok(SIZE), "{report:?}");
    report
}

/// Runs with all paths, and then repeatedly without those that were taken.
fn by_every_path(name: &str, mut one: impl FnMut(Switches) -> Report) {
    let mut switches = Switches::all();
    while switches.allows(DataPath::ReadWrite) {
        let _watched = watchdog::watch(format!("2 GiB, {name}, {switches:?}"));
        let report = one(switches);
        println!("{name}: {:?}", report.path);
        for path in report.path {
            switches = switches.without(path);
        }
    }
}

fn to_file(from: &str, to: &str) {
    let source = source(from);
    by_every_path(&format!("{from} to {to}"), |switches| {
        let sink = file(to);
        let report = carry(source.as_fd(), sink.as_fd(), switches);
        assert_eq!(rustix::fs::tell(&sink), Ok(SIZE), "{report:?}");
        let stat = rustix::fs::fstat(&sink).expect("a stat");
        assert_eq!(stat.st_size as u64, SIZE, "{report:?}");
        let allocated = stat.st_blocks as u64 * 512;
        assert!(
            allocated < 64 << 20,
            "{allocated} bytes allocated: {report:?}"
        );
        data_is_right(&sink);
        report
    });
}

/// Checks the ranges of the copy that are not holes, and those that must not be.
fn data_is_right(fd: &OwnedFd) {
    use rustix::fs::{SeekFrom, seek};
    let mut block = vec![0; 1 << 20];
    let mut at = 0;
    while let Ok(data) = seek(fd, SeekFrom::Data(at)) {
        at = seek(fd, SeekFrom::Hole(data)).expect("an end of the data");
        let mut done = data;
        while done < at {
            let want = block.len().min((at - done) as usize);
            let got = rustix::io::pread(fd, &mut block[..want], done).expect("a read");
            assert!(is_right(done, &block[..got]), "wrong bytes near {done}");
            done += got as u64;
        }
    }
    for island in islands() {
        let got = rustix::io::pread(fd, &mut block[..ISLAND], island).expect("a read");
        assert!(got == ISLAND && is_right(island, &block[..got]), "{island}");
    }
}

#[test]
fn tmpfs_to_tmpfs() {
    if let Some(tmpfs) = tmpfs() {
        to_file(tmpfs, tmpfs);
    }
}

#[test]
fn tmpfs_to_file() {
    if let Some(tmpfs) = tmpfs() {
        to_file(tmpfs, &temp_dir());
    }
}

#[test]
fn file_to_file() {
    to_file(&temp_dir(), &temp_dir());
}

#[test]
fn file_to_null() {
    let Some(tmpfs) = tmpfs() else {
        return;
    };
    let source = source(tmpfs);
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.expect("/dev/null");
    by_every_path("file to /dev/null", |switches| {
        carry(source.as_fd(), null.as_fd(), switches)
    });
}

#[test]
fn file_to_pipe() {
    let Some(tmpfs) = tmpfs() else {
        return;
    };
    let source = source(tmpfs);
    by_every_path("file to pipe", |switches| {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let reader = std::thread::spawn(move || count(read));
        let report = carry(source.as_fd(), write.as_fd(), switches);
        drop(write);
        let found = reader.join().expect("the reader").expect("a read");
        assert_eq!(found, SIZE, "{report:?}");
        report
    });
}

/// Reads to the end, compares, and gives the number of bytes.
fn count(fd: OwnedFd) -> io::Result<u64> {
    let mut file = std::fs::File::from(fd);
    let mut block = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        let got = file.read(&mut block)?;
        if got == 0 {
            return Ok(done);
        }
        assert!(is_right(done, &block[..got]), "wrong bytes near {done}");
        done += got as u64;
    }
}

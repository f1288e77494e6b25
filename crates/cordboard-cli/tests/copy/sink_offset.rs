//! `--sink-offset`: a range of the sink is written, and the rest of it stays, with `copy`
//! and with `splice`.

use std::fs::File;
use std::io::Seek;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use testkit::loopdev::LoopDevice;

use super::common::*;

const COMMANDS: [&str; 2] = ["splice", "copy"];

/// Runs a command with these options, a source and a sink.
fn at(command: &str, options: &[&str], offset: u64, [from, to]: [&Path; 2]) -> Run {
    let offset = format!("--sink-offset={offset}");
    run(cordboard()
        .args([command, "--json", &offset])
        .args(options)
        .args([from, to]))
}

/// The contents after these bytes are written at an offset.
fn written_at(old: &[u8], offset: usize, new: &[u8]) -> Vec<u8> {
    let mut all = old.to_vec();
    all.resize(old.len().max(offset + new.len()), 0);
    all[offset..][..new.len()].copy_from_slice(new);
    all
}

#[test]
fn the_bytes_before_and_behind_the_range_stay() {
    let dir = dir();
    let (new, old) = (bytes((64 << 10) + 100), vec![0xee; 256 << 10]);
    let source = file(&dir, "s", &new);
    let sink = dir.path().join("d");
    let routes = cordboard::DataPath::ALL.iter().map(|path| path.name());
    for route in routes.filter(|route| *route != "sockmap") {
        let allowed = format!("{route},read/write");
        // At the start, within, over the end, at the end, behind it; a new file too.
        for offset in [0, 4096, 100_001, 240 << 10, 256 << 10, 300_001, 512 << 10] {
            for command in COMMANDS {
                for is_new in [false, true] {
                    let before = if is_new { &[][..] } else { &old[..] };
                    match is_new {
                        true => std::fs::remove_file(&sink).unwrap(),
                        false => std::fs::write(&sink, &old).unwrap(),
                    }
                    let mut options = vec!["--route", &*allowed];
                    if route == "direct" {
                        options.push("--sync");
                    }
                    let done = at(command, &options, offset as u64, [&source, &sink]);
                    assert_eq!(done.ok().json()["written"], new.len());
                    let expected = written_at(before, offset, &new);
                    assert!(
                        read(&sink) == expected,
                        "{command} {route} {offset} {is_new}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_offset_behind_the_end_leaves_a_hole() {
    let dir = dir();
    let source = file(&dir, "s", b"far");
    for command in COMMANDS {
        let sink = file(&dir, command, b"near");
        at(command, &[], 1 << 30, [&source, &sink]).ok();
        let stat = sink.metadata().unwrap();
        assert_eq!(stat.len(), (1 << 30) + 3);
        let mut ends = [[0; 4]; 2];
        let file = File::open(&sink).unwrap();
        file.read_exact_at(&mut ends[0], 0).unwrap();
        file.read_exact_at(&mut ends[1], (1 << 30) - 1).unwrap();
        assert_eq!(ends, [*b"near", *b"\0far"]);
        if stat.blocks() * 512 > 1 << 20 {
            testkit::skip::here("no holes on this file system");
        }
    }
}

/// No bytes lengthen no file.
#[test]
fn of_no_bytes_nothing_is_left() {
    let dir = dir();
    let empty = file(&dir, "empty", b"");
    for command in COMMANDS {
        let sink = file(&dir, "d", b"old");
        let options: &[&str] = if command == "copy" {
            &["--verify"]
        } else {
            &[]
        };
        at(command, options, 10, [&empty, &sink]).ok();
        assert_eq!(read(&sink), b"old");
        // It is read at byte 0, which fails.
        let new = dir.path().join("new");
        let failed = at(command, &[], 10, [Path::new("/proc/self/mem"), &new]);
        failed.fails(1, &["/proc/self/mem"]);
        assert!(!new.exists(), "{}", failed.stderr());
        let failed = at(command, &[], 10, [Path::new("/proc/self/mem"), &sink]);
        failed.fails(1, &["/proc/self/mem"]);
        assert_eq!(read(&sink), b"old");
    }
}

/// Holes of the source are zeros in the sink, whatever was there.
#[test]
fn holes_replace_what_was_there() {
    let dir = dir();
    let source = dir.path().join("sparse");
    let out = File::create(&source).unwrap();
    out.set_len(4 << 20).unwrap();
    out.write_all_at(&bytes(5000), 1 << 20).unwrap();
    out.write_all_at(&[0; 1 << 20], 2 << 20).unwrap();
    let new = read(&source);
    let old = vec![0xee; 6 << 20];
    for command in COMMANDS {
        for sparse in ["auto", "always", "never"] {
            for route in [
                "read/write",
                "copy_file_range,read/write",
                "clone,read/write",
            ] {
                for offset in [1 << 20, 4097, 5 << 20] {
                    let sink = file(&dir, "d", &old);
                    let options = ["--sparse", sparse, "--route", route];
                    at(command, &options, offset as u64, [&source, &sink]).ok();
                    let same = read(&sink) == written_at(&old, offset, &new);
                    assert!(same, "{command} {sparse} {route} {offset}");
                }
            }
        }
    }
}

#[test]
fn with_the_other_options() {
    let dir = dir();
    let (new, old) = (bytes(50_000), vec![0xee; 200_000]);
    let source = file(&dir, "s", &new);
    for command in COMMANDS {
        let sink = file(&dir, "d", &old);
        let part = ["--offset", "1K", "--size", "2K"];
        at(command, &part, 7, [&source, &sink]).ok();
        assert!(
            read(&sink) == written_at(&old, 7, &new[1024..3072]),
            "{command}"
        );

        let hash = at(command, &["--hash", "crc32"], 7, [&source, &sink]);
        let plain = run(cordboard()
            .args(["splice", "--hash", "crc32"])
            .args([&source, Path::new("/dev/null")]));
        assert_eq!(
            hash.ok().stderr().lines().next(),
            plain.stderr().lines().next()
        );
        assert!(read(&sink) == written_at(&old, 7, &new), "{command}");

        let sink = file(&dir, "d", &old);
        let packed = at(command, &["--zstd"], 7, [&source, &sink]);
        let size = packed.ok().json()["written"].to_string();
        let unpacked = run(cordboard()
            .args(["splice", "--unzstd", "--offset", "7", "--size", &size])
            .args([sink.as_os_str(), "-".as_ref()]));
        assert!(unpacked.ok().stdout() == new);
        assert!(read(&sink).ends_with(&old[7 + size.parse::<usize>().unwrap()..]));
    }
    for route in [&[][..], &["--route", "read/write"], &["--zstd"], &["-p"]] {
        for offset in [0, 4096, 190_000, 300_000] {
            let sink = file(&dir, "d", &old);
            let options = [&["--verify"], route].concat();
            let done = at("copy", &options, offset, [&source, &sink]);
            assert_eq!(
                done.ok().json()["verified"],
                done.json()["written"],
                "{route:?}"
            );
        }
    }
    // Into a directory.
    std::fs::create_dir(dir.path().join("into")).unwrap();
    file(&dir, "into/s", b"old");
    at(
        "copy",
        &["--size", "1"],
        1,
        [&source, &dir.path().join("into")],
    )
    .ok();
    assert_eq!(read(dir.path().join("into/s")), [b'o', new[0], b'd']);
}

/// Within one file, the ranges decide.
#[test]
fn within_one_file() {
    let dir = dir();
    let old = bytes(100_000);
    for command in COMMANDS {
        for (from, size, to) in [(0, 1000, 50_000), (50_000, 1000, 0), (1000, 60_000, 0)] {
            let both = file(&dir, "f", &old);
            let (offset, size_) = (format!("--offset={from}"), format!("--size={size}"));
            at(command, &[&offset, &size_], to as u64, [&both, &both]).ok();
            assert!(read(&both) == written_at(&old, to, &old[from..][..size]));
        }
        let both = file(&dir, "f", &old);
        let size = "--size=50000";
        at(command, &[size], 1, [&both, &both]).fails(1, &["overlap"]);
        at(command, &[], 100_000, [&both, &both]).fails(1, &["grow forever"]);
        assert!(read(&both) == old);
    }
}

#[test]
fn a_block_device_is_written_at_its_offset() {
    let Ok(device) = LoopDevice::take() else {
        testkit::skip::here("no loop device here");
        return;
    };
    let open = device.open(OFlags::RDWR).unwrap();
    let number = rustix::fs::fstat(&open).unwrap().st_rdev;
    let dir = dir();
    let node = dir.path().join("disk");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &node, FileType::BlockDevice, mode, number).unwrap();
    let source = file(&dir, "s", &bytes(10_000));
    let old = vec![0xee; 1 << 20];
    for command in COMMANDS {
        for offset in [0, 4096, 100_001] {
            rustix::io::pwrite(&open, &old, 0).unwrap();
            at(command, &[], offset as u64, [&source, &node]).ok();
            let mut all = vec![0; 1 << 20];
            rustix::io::pread(&open, &mut all, 0).unwrap();
            assert!(
                all == written_at(&old, offset, &bytes(10_000)),
                "{command} {offset}"
            );
        }
        let explained = run(cordboard()
            .args(["explain", "--sink-offset", "4K"])
            .args([&source, &node]));
        explained.ok();
    }
}

#[test]
fn a_sink_without_offsets_is_refused() {
    is_refused(
        &["--sink-offset", "1"],
        &["cannot seek", "omit --sink-offset"],
    );
}

#[test]
fn a_sink_that_cannot_be_synced_is_refused() {
    is_refused(&["--sync"], &["cannot be synced (EINVAL)", "omit --sync"]);
}

#[test]
fn a_sink_that_cannot_be_read_back_is_refused() {
    let dir = dir();
    let source = file(&dir, "s", b"new");
    std::fs::create_dir(dir.path().join("into")).unwrap();
    for sink in ["fifo", "into/s"] {
        let fifo = dir.path().join(sink);
        super::common::fifo(&fifo);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
        let sink = fifo.parent().filter(|into| into.ends_with("into"));
        let run = at_any("copy", &["--verify"], &source, sink.unwrap_or(&fifo));
        run.fails(1, &["cannot be read back", "omit --verify"]);
        // It was not opened: the reader sees no end.
        let mut ends = [PollFd::new(&reader, PollFlags::IN)];
        assert_eq!(
            poll(&mut ends, Some(&Timespec::default())),
            Ok(0),
            "{sink:?}"
        );
    }
}

/// With this option, each sink that is no file.
fn is_refused(option: &[&str], says: &[&str]) {
    let dir = dir();
    let source = file(&dir, "s", b"new");
    let fifo = dir.path().join("fifo");
    super::common::fifo(&fifo);
    let at_any = |command: &str, from: &Path, to: &Path| at_any(command, option, from, to);
    // No reader is waited for, and no server is connected to.
    for command in ["splice", "copy", "explain"] {
        at_any(command, &source, &fifo).fails(1, says);
    }
    std::fs::create_dir(dir.path().join("into")).unwrap();
    super::common::fifo(&dir.path().join("into/s"));
    at_any("copy", &source, &dir.path().join("into")).fails(1, says);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", port.local_addr().unwrap());
    for sink in [
        &*address,
        "tcp-listen:127.0.0.1:0",
        "udp:127.0.0.1:9",
        "unix:@none",
    ] {
        at_any("splice", &source, Path::new(sink)).fails(1, says);
        at_any("explain", &source, Path::new(sink)).fails(1, says);
    }
    port.set_nonblocking(true).unwrap();
    assert!(port.accept().is_err());
    // A pipe.
    at_any("splice", &source, Path::new("-")).fails(1, says);
    let (_master, terminal) = terminal_of(80);
    let child = cordboard()
        .arg("splice")
        .args(option)
        .args([source.as_os_str(), "-".as_ref()])
        .stdout(terminal)
        .stderr(Stdio::piped())
        .start();
    end(child).fails(1, says);
}

/// Without a report, which explain has not.
fn at_any(command: &str, option: &[&str], from: &Path, to: &Path) -> Run {
    run(cordboard().arg(command).args(option).args([from, to]))
}

/// The position of the descriptor is neither used nor moved.
#[test]
fn standard_output_can_be_a_file() {
    let dir = dir();
    let source = file(&dir, "s", b"new");
    let sink = file(&dir, "d", b"0123456789");
    let splice = |out: &File| {
        let child = cordboard()
            .args(["splice", "--sink-offset", "5"])
            .args([source.as_os_str(), "-".as_ref()])
            .stdout(out.try_clone().unwrap())
            .stderr(Stdio::piped())
            .start();
        end(child)
    };
    let mut out = File::options().write(true).open(&sink).unwrap();
    out.seek(std::io::SeekFrom::Start(2)).unwrap();
    splice(&out).ok();
    assert_eq!(out.stream_position().unwrap(), 2);
    assert_eq!(read(&sink), b"01234new89");
    let out = File::options().append(true).open(&sink).unwrap();
    splice(&out).fails(1, &["O_APPEND", "omit --sink-offset"]);
    assert_eq!(read(&sink), b"01234new89");
}

/// The offset itself is a valid one, but the bytes at it are not.
#[test]
fn a_range_after_the_largest_offset_has_a_hint() {
    let dir = dir();
    let source = file(&dir, "s", b"bytes");
    let sink = dir.path().join("d");
    let done = at("copy", &[], i64::MAX as u64, [&source, &sink]);
    done.fails(1, &["at the sink, after 0 bytes", "2^63-1"]);
    assert!(!sink.exists());
}

//! Devices as sources, and a device that fails below a file system.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use testkit::loopdev::LoopDevice;

use super::common::*;

#[test]
fn a_block_device_goes_into_a_file_by_its_size() {
    let Ok(device) = LoopDevice::take() else {
        testkit::skip::here("no loop device here");
        return;
    };
    let open = device.open(OFlags::RDWR).unwrap();
    let size = rustix::fs::seek(&open, rustix::fs::SeekFrom::End(0)).unwrap();
    let mut contents = bytes(100_000);
    rustix::io::pwrite(&open, &contents, 0).unwrap();
    rustix::fs::fsync(&open).unwrap();
    contents.resize(100_000, 0);
    let number = rustix::fs::fstat(&open).unwrap().st_rdev;
    drop(open);
    let dir = dir();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    let node = dir.path().join("tree/disk");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &node, FileType::BlockDevice, mode, number).unwrap();
    let (small, into) = (file(&dir, "small", b"x"), dir.path().join("into"));
    std::fs::create_dir(&into).unwrap();
    let image = dir.path().join("image");
    let run_ = run(cordboard().args(["copy", "--json"]).args([&node, &image]));
    assert_eq!(run_.ok().json()["written"], size);
    let copied = read(&image);
    assert_eq!(copied.len() as u64, size);
    assert!(copied.starts_with(&contents));
    let part = ["copy", "--verify", "--json", "--size", "1M"];
    let run_ = run(cordboard().args(part).args([&node, &image]));
    assert_eq!(run_.ok().json()["verified"], 1 << 20);
    // A part of it, and among other sources.
    let part = ["copy", "--json", "--offset", "4K", "--size", "5000"];
    run(cordboard().args(part).args([&node, &image])).ok();
    assert!(read(&image) == contents[4096..9096]);
    run(cordboard().arg("copy").args([&small, &node, &into])).ok();
    assert_eq!(into.join("disk").metadata().unwrap().len(), size);
    // Not in a tree, and not as an operand with -r.
    for source in [&node, &node.parent().unwrap().to_owned()] {
        let run = run(cordboard()
            .args(["copy", "-r"])
            .args([source, &dir.path().join("t")]));
        assert_eq!(run.code(), 1);
        let says = "disk: is a block device, which copy -r does not copy";
        assert!(run.stderr().contains(says), "{}", run.stderr());
    }
}

#[test]
fn progress_of_a_block_device_has_a_share() {
    let Ok(device) = LoopDevice::take() else {
        testkit::skip::here("no loop device here");
        return;
    };
    let open = device.open(OFlags::RDONLY).unwrap();
    let name = std::fs::read_link(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&open)
    ));
    let name = name.unwrap();
    let size = rustix::fs::seek(&open, rustix::fs::SeekFrom::End(0)).unwrap();
    let near_end = (size - (4 << 20)).to_string();
    let parts: [(&[&str], &str); 4] = [
        (&[], " %)  "),
        (&["--offset", &near_end], " of 4.0 MiB ("),
        (&["--offset", &near_end, "--size", "2M"], " of 2.0 MiB ("),
        (&["--offset", &near_end, "--size", "1T"], " of 4.0 MiB ("),
    ];
    for (command, (part, shown)) in ["splice", "copy"].into_iter().flat_map(|command| {
        let all = parts.into_iter();
        all.map(move |part| (command, part))
    }) {
        let dir = dir();
        // Slow enough to be drawn: the sink takes nothing for a while.
        let fifo = dir.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let mut child = cordboard()
            .args([command, "--progress", "always"])
            .args(part)
            .args([name.as_path(), &fifo])
            .stderr(std::process::Stdio::piped())
            .start();
        let reader = std::fs::File::open(&fifo).unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut seen = String::new();
        while !seen.contains(shown) {
            let mut piece = [0; 256];
            let n = std::io::Read::read(&mut stderr, &mut piece).unwrap();
            assert!(n > 0, "{seen}");
            seen += &String::from_utf8_lossy(&piece[..n]);
            // The share is in the first line, unless the size is not known.
            assert!(seen.matches(" elapsed ").count() < 20, "no share: {seen}");
        }
        drop(reader);
        drop(stderr);
        end(child);
    }
}

#[test]
fn character_devices_that_have_an_end_or_are_given_one() {
    let dir = dir();
    let out = dir.path().join("out");
    let copy = |args: &[&str], source: &str| {
        let mut command = cordboard();
        command.args(["copy", "--json"]).args(args);
        run(command.args([Path::new(source), &out]))
    };
    assert_eq!(copy(&[], "/dev/null").ok().json()["written"], 0);
    assert_eq!(read(&out), b"");
    assert_eq!(
        copy(&["--size", "5000"], "/dev/zero").ok().json()["ended"],
        "size"
    );
    assert_eq!(read(&out), [0; 5000]);
    copy(&["--size", "100"], "/dev/urandom").ok();
    assert_eq!(read(&out).len(), 100);
    std::fs::remove_file(&out).unwrap();
    for endless in ["/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"] {
        copy(&[], endless).fails(1, &[endless, "has no end", "--size N"]);
    }
    copy(&["--size", "1", "--verify"], "/dev/zero").fails(1, &["second time", "--verify"]);
    let tree = run(cordboard().args(["copy", "-r", "/dev/null"]).arg(&out));
    tree.fails(
        1,
        &[
            "a character device, which copy -r",
            "cordboard copy /dev/null",
        ],
    );
    assert!(!out.exists());
}

/// The file system fails and becomes read-only: preallocated space may remain.
#[test]
fn what_a_failed_file_system_has_is_not_overstated() {
    if !can_mount() {
        return;
    }
    if let Some(why) = testkit::loopdev::unavailable() {
        return testkit::skip::here(why);
    }
    let dir = dir();
    let source = file(&dir, "s", &bytes(40 << 20));
    // 40 MiB do not fit, which only the device reports.
    let script = r#"cd "$1" && mkdir t m && mount -t tmpfs -o size=30M none t &&
        truncate -s 200M t/image && mkfs.ext4 -q -F t/image &&
        mount -o loop,errors=remount-ro t/image m || exit 99
        "$0" copy --route direct --json s m/f; code=$?
        wc -c < m/f; cmp s m/f; umount m; exit $code"#;
    let copy = run(Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .arg(dir.path()));
    if copy.code() == 99 {
        return testkit::skip::here(format!("no ext4 in memory: {}", copy.stderr()));
    }
    assert_eq!(copy.code(), 1, "{}", copy.stderr());
    let stderr = copy.stderr();
    let line = stderr.lines().find(|line| line.starts_with('{'));
    let line = line.unwrap_or_else(|| panic!("{stderr}"));
    let json: serde_json::Value = serde_json::from_str(line).unwrap();
    let written = json["written"].as_u64().unwrap();
    let total = source.metadata().unwrap().len();
    assert!(written < total, "{stderr}");
    let stdout = String::from_utf8_lossy(copy.stdout()).into_owned();
    let Some(length) = stdout.lines().next() else {
        return testkit::skip::here(format!("what failed opens nothing any more: {stderr}"));
    };
    let length: u64 = length.parse().unwrap();
    let says = match length == written {
        true => format!("m/f holds {written} of {total} bytes"),
        false => {
            format!("m/f is {length} bytes long, of which {written} were copied")
        }
    };
    assert!(stderr.contains(&says), "{says}: {stderr}");
}

/// Closed standard descriptors, with and without a procfs to replace them from:
/// no file opened later is taken for one.
#[test]
fn closed_standard_descriptors_are_filled() {
    let dir = dir();
    file(&dir, "s", &bytes(70_000));
    let copy = r#""$0" copy s f <&- >&- 2>&-; code=$?; cmp s f || exit 98
        echo from a pipe | "$0" splice - f >&- 2>&- || exit 97
        [ "$(cat f)" = "from a pipe" ] || exit 96; exit $code"#;
    let run_in = |script: String, words: &[&str]| {
        run(Command::new(words[0])
            .args(&words[1..])
            .args(["sh", "-c", &script])
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .current_dir(dir.path()))
    };
    let done = run_in(copy.to_owned(), &["env"]);
    assert_eq!(done.code(), 0, "{}", done.stderr());
    if !can_mount() {
        return;
    }
    let hidden =
        format!("mount -t tmpfs none /dev && mount -t tmpfs none /proc || exit 99\n{copy}");
    let done = run_in(hidden, &["unshare", "--mount"]);
    if done.code() == 99 {
        return testkit::skip::here("no mount namespace");
    }
    assert_eq!(done.code(), 0, "{}", done.stderr());
}

/// Truncating it would truncate the device.
#[test]
fn a_loop_device_is_not_copied_to_the_file_behind_it_or_back() {
    let dir = dir();
    let contents = bytes(1 << 20);
    let image = file(&dir, "image", &contents);
    let Some(attached) = mounted::Attached::new(&image) else {
        return;
    };
    let device = attached.device();
    let other = dir.path().join("other");
    let runs: Vec<Run> = ["copy", "splice"]
        .iter()
        .map(|command| run(cordboard().args([command, device]).arg(&image)))
        .collect();
    let elsewhere = run(cordboard().args(["copy", device]).arg(&other));
    // The other direction, which would shift the contents.
    let shifting: [&[&str]; 7] = [
        &["copy", "--sink-offset=4K"],
        &["copy", "--offset=4K"],
        &["copy"],
        &["splice", "--sink-offset=4K"],
        &["splice", "--offset=4K", "--size=4K"],
        &["splice", "--offset=4K", "--buffer=1M"],
        &["splice", "--offset=4K", "--fan-in=turn"],
    ];
    let run_at = |args: &&[&str]| run(cordboard().args(*args).arg(&image).arg(device));
    let mut runs: Vec<Run> = runs
        .into_iter()
        .chain(shifting.iter().map(run_at))
        .collect();
    runs.push(run(cordboard()
        .args(["splice", "--offset=4K"])
        .arg(&image)
        .args([device, "/dev/null"])));
    drop(attached);
    for run in runs {
        run.fails(1, &["is the same file as the source"]);
    }
    elsewhere.ok();
    assert!(read(&image) == contents && read(&other) == contents);
}

/// Its major number is not that of loop devices.
#[test]
fn a_partition_of_a_loop_device_is_not_copied_to_the_file_behind_it() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let contents = bytes(1 << 20);
    let image = file(&dir, "image", &contents);
    let Some(attached) = mounted::Attached::new(&image) else {
        return;
    };
    let script = r#"mount -t tmpfs none /sys || exit 99
        "$0" copy "$1" "$2"; "$0" splice --offset 4K --size 4K "$2" "$1"; exit 1"#;
    let part = format!("{}p1", attached.device());
    let done = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let is_added = done(Command::new("addpart").args([attached.device(), "1", "8", "1024"]));
    let exists = is_added && std::fs::exists(&part).unwrap();
    let copy = exists.then(|| {
        run(Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .args([&part, image.to_str().unwrap()]))
    });
    if is_added {
        done(Command::new("delpart").args([attached.device(), "1"]));
    }
    drop(attached);
    let Some(copy) = copy.filter(|copy| copy.code() != 99) else {
        return testkit::skip::here("no partition of a loop device here");
    };
    let refused = copy
        .stderr()
        .matches("is the same file as the source")
        .count();
    assert_eq!(refused, 2, "{}", copy.stderr());
    assert!(read(&image) == contents);
}

/// With `-p`, the transfer itself does not synchronize a small sink.
#[test]
fn what_cannot_be_synchronized_is_refused_before_any_byte() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = dir();
    let (from, fifo) = (file(&dir, "from", b"bytes"), dir.path().join("fifo"));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    // So that its open does not wait.
    let options = || std::fs::File::options().read(true).write(true).open(&fifo);
    let end = options().unwrap();
    for more in [&["--sync"][..], &["--sync", "-p"]] {
        let mut command = cordboard();
        let run = run(command.arg("copy").args(more).args([&from, &fifo]));
        run.fails(
            1,
            &["is a FIFO, which cannot be synced (EINVAL)", "omit --sync"],
        );
        assert_eq!(rustix::io::ioctl_fionread(&end).unwrap(), 0, "{more:?}");
    }
}

/// `sendfile(2)` has no sink offset, which a new file otherwise gets.
#[test]
fn a_new_file_is_written_by_sendfile_if_read_write_is_not_allowed() {
    let name = "a_new_file_is_written_by_sendfile_if_read_write_is_not_allowed";
    if testkit::needs::missing(name, &[testkit::needs::Need::Sendfile]) {
        return;
    }
    let dir = dir();
    let (from, to) = (file(&dir, "from", &bytes(100_000)), dir.path().join("to"));
    for paths in [
        "--route=clone,sendfile",
        "--without=read/write,splice,copy_file_range",
    ] {
        let mut command = cordboard();
        run(command.args(["copy", paths]).args([&from, &to])).ok();
        assert!(std::fs::read(&to).unwrap() == bytes(100_000), "{paths}");
        std::fs::remove_file(&to).unwrap();
    }
}

/// A buffer of the tracer of its own, which is removed at the end.
struct Instance(PathBuf);

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// ftruncate(2) of these files has no effect.
#[test]
fn a_control_file_of_the_tracer_is_replaced() {
    let dir = dir();
    let at = dir.path().join("t");
    let Some(_mounted) = mounted::Mounted::new(&["-t", "tracefs", "none"], &at) else {
        return;
    };
    let instance = at.join(format!("instances/cordboard-{}", std::process::id()));
    if std::fs::create_dir(&instance).is_err() {
        return testkit::skip::here("no instances of the tracer here");
    }
    let instance = Instance(instance);
    // No event is enabled that it restricts.
    let pids = instance.0.join("set_event_pid");
    if std::fs::write(&pids, b"1").is_err() {
        return testkit::skip::here("no events of the tracer here");
    }
    for command in ["splice", "copy"] {
        for (pid, append, expected) in [("2\n", false, "2\n"), ("3\n", true, "2\n3\n")] {
            let source = file(&dir, "source", pid.as_bytes());
            let mut run_ = cordboard();
            run_.arg(command).args([&source, &pids]);
            if append {
                run_.arg("--append");
            }
            run(&mut run_).ok();
            let text = std::fs::read_to_string(&pids).unwrap();
            assert_eq!(text, expected, "{command}");
        }
    }
    // It is refused before it is opened with `O_TRUNC`.
    let source = file(&dir, "source", b"4\n");
    for more in [&[][..], &["-p"]] {
        let mut copy = cordboard();
        copy.args(["copy", "--verify"]).args(more);
        let refused = run(copy.args([&source, &pids]));
        refused.fails(1, &["is a pseudo file, which cannot be verified"]);
        assert_eq!(std::fs::read_to_string(&pids).unwrap(), "2\n3\n");
    }
}

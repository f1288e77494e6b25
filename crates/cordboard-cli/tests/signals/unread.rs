//! Standard error that is not read: a pipe or a terminal without room. A signal
//! ends the command all the same, and no status line stops the bytes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode};
use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use rustix::termios::{Action, tcflow};

use super::common::*;
use super::{settled, terminal_of};

/// A pipe without room, or a terminal that is held (Ctrl-S).
#[derive(Debug, Clone, Copy)]
pub enum Full {
    Pipe,
    Terminal,
}

impl Full {
    const ALL: [Full; 2] = [Full::Pipe, Full::Terminal];

    /// Its other end, and its own, which blocks.
    pub fn make(self) -> (OwnedFd, OwnedFd) {
        match self {
            Full::Pipe => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                ioctl_fionbio(&writer, true).unwrap();
                while rustix::io::write(&writer, &[b'\n'; 4096]).is_ok() {}
                ioctl_fionbio(&writer, false).unwrap();
                (reader, writer)
            }
            Full::Terminal => {
                let (master, slave) = terminal_of(80);
                tcflow(&slave, Action::OOff).unwrap();
                (master.into(), slave.into())
            }
        }
    }
}

/// Waits until it writes to standard error, and sleeps (`proc(5)`, `syscall`).
fn stuck(child: &mut Child) {
    let pid = child.id();
    let call = format!("{} 0x2 ", libc::SYS_write);
    until("its write", || {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}");
        let at = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
        let writes = at.map_or(true, |at| at.starts_with(&call));
        (writes && handles(pid, 14) && sleeping(pid)).then_some(())
    });
}

fn with_stderr(args: &[&str], stderr: impl AsFd) -> Owned {
    let stderr = stderr.as_fd().try_clone_to_owned().unwrap();
    let mut command = cordboard();
    command.args(args).stderr(stderr);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).start()
}

#[test]
fn one_signal_ends_it_whatever_it_has_to_say() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..200 {
        std::os::unix::fs::symlink("/nowhere", tree.join(format!("l{n}"))).unwrap();
        std::fs::write(tree.join(format!("f{n}")), b"abcd").unwrap();
    }
    let sink = dir.path().join("sink");
    let [source, tree, sink] = [&source, &tree, &sink].map(|path| path.to_str().unwrap());
    // An existing file that is not a directory.
    let taken = file(&dir, "taken", b"");
    let taken = taken.to_str().unwrap();
    let play = ["play", source, source, "--frame=4", "--fps=1000"];
    let film = [&play[..], &["--audio-to=/dev/null", "--video-to=/dev/null"]].concat();
    let cases: [&[&str]; 8] = [
        &["copy", "--json", source, sink],
        &["copy", "-r", "--hash=crc32", tree, sink],
        &["copy", "-r", tree, taken],
        &["copy", "/nowhere", sink],
        &["splice", "/nowhere", "-"],
        &["splice", "--hash=crc32", source, "/dev/null"],
        &["cat", "--json", source],
        &[&film[..], &["--json"]].concat(),
    ];
    for (n, args) in cases.into_iter().enumerate() {
        let (by, code) = [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)][n % 3];
        let full = Full::ALL[n % 2];
        eprintln!("{full:?} {args:?}");
        let (_reader, writer) = full.make();
        let mut child = with_stderr(args, &writer);
        stuck(&mut child);
        signal(child.id(), by);
        assert_eq!(end(child).code(), code, "{full:?} {args:?}");
        let _ = std::fs::remove_dir_all(sink);
        let _ = std::fs::remove_file(sink);
    }
}

/// A reader gets the whole report.
#[test]
fn a_reader_gets_the_report_after_a_signal() {
    for full in Full::ALL {
        let (reader, writer) = full.make();
        let mut child = with_stderr(&["splice", "--json", "/nowhere", "-"], &writer);
        stuck(&mut child);
        if matches!(full, Full::Terminal) {
            tcflow(&writer, Action::OOn).unwrap();
        }
        drop(writer);
        let (begun, begins) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            let mut all = vec![0];
            rustix::io::read(&reader, &mut all).unwrap();
            begun.send(()).unwrap();
            // The end of a terminal is EIO.
            let _ = File::from(reader).read_to_end(&mut all);
            all
        });
        begins.recv().unwrap();
        signal(child.id(), Signal::TERM);
        let code = end(child).code();
        let said = reading.join().unwrap();
        let said = String::from_utf8_lossy(&said);
        // Either of the two may come first.
        assert!([1, 143].contains(&code), "{code}");
        let last = said.lines().last().unwrap();
        let json: serde_json::Value = serde_json::from_str(last).unwrap();
        let ended = if code == 1 { "error" } else { "cancelled" };
        assert_eq!(json["ended"], ended, "{full:?}: {said}");
    }
}

/// Each line is requested while everything sleeps, and comes before the next
/// byte.
#[test]
fn no_line_of_progress_stops_the_bytes() {
    for full in Full::ALL {
        for progress in ["--progress=never", "--progress=always"] {
            let (_reader, writer) = full.make();
            let mut child = with_stderr(&["splice", progress, "-", "-"], &writer);
            let mut stdin = child.stdin.take().unwrap();
            let stdout = child.stdout.take().unwrap();
            settled(&child);
            for n in 0..20u8 {
                signal(child.id(), Signal::USR1);
                stdin.write_all(&[n]).unwrap();
                let mut fds = [PollFd::new(&stdout, PollFlags::IN)];
                let time = Timespec::try_from(deadline()).unwrap();
                let came = poll(&mut fds, Some(&time));
                assert_eq!(came, Ok(1), "{full:?} {progress}: it stands still");
                let mut byte = [0];
                rustix::io::read(&stdout, &mut byte).unwrap();
                assert_eq!(byte, [n]);
            }
            signal(child.id(), Signal::INT);
            assert_eq!(end(child).code(), 130);
        }
    }
}

/// Drawn lines too: more than one in this time.
#[test]
fn no_line_that_is_drawn_stops_the_film() {
    for full in Full::ALL {
        let dir = dir();
        let film = file(&dir, "film", &bytes(600));
        let out = dir.path().join("out");
        let (_reader, writer) = full.make();
        let mut child = with_stderr(
            &[
                "play",
                film.to_str().unwrap(),
                film.to_str().unwrap(),
                "--audio-to=/dev/null",
                &format!("--video-to={}", out.display()),
                "--frame=1",
                "--fps=1000",
                "--progress=always",
            ],
            &writer,
        );
        until("the whole film", || {
            let whole = std::fs::metadata(&out).is_ok_and(|meta| meta.len() == 600);
            whole.then_some(())
        });
        // The summary is a result, and waits.
        stuck(&mut child);
        signal(child.id(), Signal::TERM);
        assert_eq!(end(child).code(), 143, "{full:?}");
    }
}

/// The kernel stops a background job that may not write to its terminal (`stty
/// tostop`); one that was interrupted reports, and ends.
#[test]
fn a_job_in_the_background_is_not_stopped_by_its_report() {
    for by in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (_master, slave) = terminal_of_a_job(true);
        let mut command = cordboard();
        command.args(["splice", "--json", "/nowhere", "-"]);
        command.stderr(slave.try_clone().unwrap()).process_group(0);
        in_a_session(&slave, || {
            let child = command.start();
            let job = child.id();
            let stopped = next_of(job).stopping_signal() == Some(Signal::TTOU.as_raw());
            signal(job, by);
            signal(job, Signal::CONT);
            stopped && end_of(job) == Some(128 + by.as_raw())
        });
    }
}

/// A terminal of a job in the background. `tostop`: the kernel stops the job when it writes.
fn terminal_of_a_job(tostop: bool) -> (File, File) {
    let (master, slave) = terminal_of(80);
    let mut modes = rustix::termios::tcgetattr(&slave).unwrap();
    (modes.local_modes).set(rustix::termios::LocalModes::TOSTOP, tostop);
    let now = rustix::termios::OptionalActions::Now;
    rustix::termios::tcsetattr(&slave, now, &modes).unwrap();
    (master, slave)
}

/// Runs `what` in a process that leads the session of this terminal, and is in its foreground.
fn in_a_session(slave: &File, what: impl FnOnce() -> bool) {
    use rustix::process::{ioctl_tiocsctty, setsid};
    assert!(testkit::child::in_a_child(|| {
        setsid().unwrap();
        ioctl_tiocsctty(slave).unwrap();
        what()
    }));
}

/// The exit status of this job. `None` if it is stopped or killed instead.
fn end_of(job: u32) -> Option<i32> {
    next_of(job).exit_status()
}

/// What has arrived on the terminal until its last writer closes it.
fn all_of(mut master: File) -> String {
    let mut screen = String::new();
    while more(&mut master, &mut screen) {}
    screen
}

/// The terminal is one of the foreground, where another command may draw.
#[test]
fn a_job_in_the_background_draws_nothing() {
    let dir = dir();
    let path = file(&dir, "paced", &bytes(10_000));
    for (word, tostop, background) in [
        ("cat", false, true),
        ("cat", true, true),
        ("cat", false, false),
        ("splice", false, true),
        // Its summary is left out.
        ("splice", true, true),
    ] {
        let (master, slave) = terminal_of_a_job(tostop);
        let mut command = cordboard();
        command.arg(word).arg(&path).args(["--rate", "10000"]);
        if word == "splice" {
            command.arg("/dev/null");
        }
        command.stdout(Stdio::null()).env("TERM", "xterm");
        command.stderr(slave.try_clone().unwrap());
        if background {
            command.process_group(0);
        }
        in_a_session(&slave, || {
            let child = command.start();
            end_of(child.id()) == Some(0)
        });
        drop((slave, command));
        let screen = all_of(master);
        assert_eq!(screen.contains("\x1b[K"), !background, "{screen:?}");
        let summary = screen.contains("moved 9.8 KiB");
        assert_eq!(summary, word == "splice" && !tostop, "{screen:?}");
    }
}

/// A line that is requested is printed in the background too, unless that would stop the job.
#[test]
fn a_job_in_the_background_answers_if_it_may_write() {
    let dir = dir();
    let sink = dir.path().join("sink");
    for tostop in [false, true] {
        let (mut master, slave) = terminal_of_a_job(tostop);
        let mut command = cordboard();
        command.args(["splice", "--rate", "1M", "/dev/zero"]);
        command.arg(&sink).env("TERM", "xterm");
        command.stderr(slave.try_clone().unwrap()).process_group(0);
        in_a_session(&slave, || {
            let child = command.start();
            let job = child.id();
            until("its handlers", || handles(job, 14).then_some(()));
            signal(job, Signal::USR1);
            let (mut screen, mut length, mut writes) = (String::new(), 0, 0);
            until("the answer", || {
                if rustix::io::ioctl_fionread(&master).unwrap() > 0 {
                    more(&mut master, &mut screen);
                }
                // Without an answer, the second write since then shows that the job has
                // handled the request.
                let now = sink.metadata().map_or(0, |sink| sink.len());
                writes += u32::from(std::mem::replace(&mut length, now) < now);
                (writes > 2 && (tostop || screen.contains(" written"))).then_some(())
            });
            signal(job, Signal::INT);
            end_of(job) == Some(130)
        });
    }
}

/// A signal that goes to a whole pipeline may have ended the source too: a hash
/// of a part is not printed beside the status of an interrupt.
#[test]
fn a_hash_is_told_of_what_is_whole() {
    for args in [
        &["splice", "--hash=crc32", "-", "/dev/null"][..],
        &["cat", "--hash=crc32"],
    ] {
        let (reader, writer) = Full::Pipe.make();
        let mut child = with_stderr(args, &writer);
        drop(writer);
        feed(&mut child, b"123456789");
        stuck(&mut child);
        signal(child.id(), Signal::INT);
        let mut told = String::new();
        File::from(reader).read_to_string(&mut told).unwrap();
        let (code, told) = (end(child).code(), told.trim_start());
        assert!(code == 0 || code == 130, "{args:?}: {code}");
        assert_eq!(told.contains("cbf43926"), code == 0, "{args:?}: {told}");
    }
    // Nor once it is known.
    let dir = dir();
    let path = dir.path().join("fifo");
    let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o644));
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let mut child = super::start(&["cat", "--hash=crc32", "-", path.to_str().unwrap()]);
    feed(&mut child, b"123456789");
    let silent = File::options().write(true).open(&path).unwrap();
    let mut first = [0; 9];
    (child.stdout.as_mut().unwrap())
        .read_exact(&mut first)
        .unwrap();
    settled(&child);
    signal(child.id(), Signal::INT);
    end(child).fails(130, &["interrupted by SIGINT: 9 bytes read, 9 written"]);
    drop(silent);
}

/// A copy of a terminal ends by Ctrl-D.
#[test]
fn a_hash_of_a_terminal_is_told_at_the_end() {
    for is_stopped in [true, false] {
        let dir = dir();
        let mut terminals = [terminal_of(80), terminal_of(80)];
        let names = terminals.each_ref().map(|(_, terminal)| {
            let link = format!("/proc/self/fd/{}", terminal.as_raw_fd());
            std::fs::read_link(link).unwrap()
        });
        let mut copy = cordboard();
        let copy = copy.args(["copy", "--hash=crc32"]).args(&names);
        let child = piped(copy.arg(dir.path()));
        let sink = |number: usize| dir.path().join(names[number].file_name().unwrap());
        terminals[0].0.write_all(b"12345678\n\x04").unwrap();
        until("the second terminal", || std::fs::metadata(sink(1)).ok());
        assert_eq!(read(sink(0)), b"12345678\n");
        let code = match is_stopped {
            true => {
                signal(child.id(), Signal::INT);
                130
            }
            false => {
                terminals[1].0.write_all(b"\x04").unwrap();
                0
            }
        };
        let run = end(child);
        assert_eq!(run.code(), code, "{}", run.stderr());
        assert_eq!(
            run.stderr().contains("74245830"),
            !is_stopped,
            "{}",
            run.stderr()
        );
    }
}

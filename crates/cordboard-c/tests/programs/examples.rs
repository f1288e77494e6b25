//! The papers' programs compile as printed and move every byte.

use std::io::{BufRead, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use testkit::owned::{Owned, Start};
use testkit::pattern;

use super::prefix::here;
use super::program::Program;

/// The size of a frame of the player.
const FRAME: usize = 64 * 48;
/// 24 whole frames and a short one.
const VIDEO: usize = 24 * FRAME + 700;
/// More than a pipe can hold, so that writing it waits for the reader.
const AUDIO: usize = 2 << 20;

/// Offsets of audio and video in the pattern.
const AUDIO_AT: u64 = 0;
const VIDEO_AT: u64 = 500_009;

/// A directory with a movie.
fn movie() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.path().join(name), bytes);
    write("movie.audio", pattern::bytes(AUDIO_AT, AUDIO)).unwrap();
    write("movie.video", pattern::bytes(VIDEO_AT, VIDEO)).unwrap();
    folder
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Runs the player in that directory, at a high frame rate to keep tests short.
fn player(program: &Program, folder: &Path) -> Command {
    let mut command = program.plain();
    command.current_dir(folder).arg("500");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ends_well(child: Owned) {
    let out = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {stderr}", out.status);
    let output = String::from_utf8_lossy(&out.stdout);
    assert!(
        output.starts_with(&format!("audio: {AUDIO} bytes by ")),
        "{output}"
    );
}

/// The reader of the audio reads nothing before all frames have arrived. If the
/// audio were not asynchronous, the player would never show the first frame.
#[test]
fn the_player_shows_frames_while_the_audio_waits() {
    let Some(program) = Program::example("player") else {
        return;
    };
    let _watched = testkit::watchdog::watch("the player, FIFO and sequenced packets");
    let folder = movie();
    let speaker = folder.path().join("speaker");
    fifo(&speaker);
    let (screen, dac) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::empty(),
        None,
    )
    .unwrap();
    // The child must not inherit this end.
    rustix::io::fcntl_setfd(&screen, rustix::io::FdFlags::CLOEXEC).unwrap();
    let mut command = player(&program, folder.path());
    command.env("SPEAKER", &speaker);
    command.env("VIDEO_DAC", format!("fd:{}", dac.as_raw_fd()));
    let child = command.start();
    drop(dac);
    // open(2) waits until the player opens the FIFO. Nothing is read yet.
    let mut audio = std::fs::File::open(&speaker).unwrap();
    // One message is one frame.
    let mut at = 0;
    let mut message = vec![0u8; 2 * FRAME];
    while at < VIDEO {
        let (length, _) = rustix::net::recv(&screen, &mut message[..], RecvFlags::empty()).unwrap();
        assert_eq!(length, FRAME.min(VIDEO - at), "a whole frame, at {at}");
        assert_eq!(
            pattern::check(VIDEO_AT + at as u64, &message[..length]),
            Ok(())
        );
        at += length;
    }
    let mut heard = Vec::new();
    audio.read_to_end(&mut heard).unwrap();
    assert_eq!(heard.len(), AUDIO);
    assert_eq!(pattern::check(AUDIO_AT, &heard), Ok(()));
    ends_well(child);
    let rest = rustix::net::recv(&screen, &mut message[..], RecvFlags::empty());
    assert_eq!(
        rest.map(|(length, _)| length),
        Ok(0),
        "end of file after the last frame"
    );
}

/// Audio to a socket, video to a terminal whose reader is slow.
#[test]
fn the_player_plays_to_a_socket_and_a_terminal() {
    let Some(program) = Program::example("player") else {
        return;
    };
    let _watched = testkit::watchdog::watch("the player, socket and terminal");
    let folder = movie();
    let (mut ear, speaker) = std::os::unix::net::UnixStream::pair().unwrap();
    let speaker = OwnedFd::from(speaker);
    rustix::io::fcntl_setfd(&speaker, rustix::io::FdFlags::empty()).unwrap();
    let (master, terminal) = terminal();
    let mut command = player(&program, folder.path());
    command.env("SPEAKER", format!("fd:{}", speaker.as_raw_fd()));
    command.env("VIDEO_DAC", &terminal);
    // The terminal must not become the controlling terminal of the test.
    command.process_group(0);
    let child = command.start();
    drop(speaker);
    let listener = std::thread::spawn(move || {
        let mut heard = Vec::new();
        ear.read_to_end(&mut heard).unwrap();
        heard
    });
    // Small reads make the terminal slow.
    let mut seen = vec![0u8; VIDEO];
    let mut at = 0;
    while at < VIDEO {
        let end = VIDEO.min(at + 61);
        at += rustix::io::read(&master, &mut seen[at..end]).unwrap();
    }
    assert_eq!(pattern::check(VIDEO_AT, &seen), Ok(()));
    let heard = listener.join().unwrap();
    assert_eq!(heard.len(), AUDIO);
    assert_eq!(pattern::check(AUDIO_AT, &heard), Ok(()));
    ends_well(child);
}

/// If the audio cannot start, no signal reports its end.
#[test]
fn the_player_ends_where_its_audio_cannot_start() {
    let Some(program) = Program::example("player") else {
        return;
    };
    let _watched = testkit::watchdog::watch("the player, without audio");
    let folder = movie();
    let mut command = player(&program, folder.path());
    // Not open for writing.
    command.stdin(Stdio::null()).env("SPEAKER", "fd:0");
    let video = folder.path().join("screen");
    std::fs::write(&video, b"").unwrap();
    command.env("VIDEO_DAC", &video);
    let out = command.start().wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("audio: "), "{stderr}");
    let shown = std::fs::read(&video).unwrap();
    assert_eq!(shown.len(), VIDEO);
    assert_eq!(pattern::check(VIDEO_AT, &shown), Ok(()));
}

/// A terminal in raw mode, and its name.
fn terminal() -> (OwnedFd, std::ffi::OsString) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let mut raw = tcgetattr(&master).unwrap();
    raw.make_raw();
    tcsetattr(&master, OptionalActions::Now, &raw).unwrap();
    let name = std::os::unix::ffi::OsStringExt::from_vec(name.into_bytes());
    (master, name)
}

/// The lines between the markers are the figure, word for word.
#[test]
fn the_figure_is_as_printed() {
    const PRINTED: &str = r#"
        int audiofile, videofile; int audio_dev, video_dev;
        audiofile = open("movie.audio", O_RDONLY);
        videofile = open("movie.video", O_RDONLY);
        audio_dev = open("/dev/speaker", O_WRONLY);
        video_dev = open("/dev/video_dac", O_WRONLY);
        fcntl(audiofile, F_SETFL, FASYNC);
        splice(audiofile, audio_dev, SPLICE_EOF);
        setitimer(ITIMER_REAL, &inter_frame_time);
        do { rval = splice(videofile, video_dev, sizeof(video_frame)); pause();
        } while (rval > 0);
    "#;
    let text = std::fs::read_to_string(here().join("examples/player.c")).unwrap();
    let (_, text) = text.split_once("/* ---- Figure 1 begins ---- */").unwrap();
    let (figure, _) = text.split_once("/* ---- Figure 1 ends ---- */").unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(figure), words(PRINTED));
}

#[test]
fn scp_copies() {
    let Some(program) = Program::example("scp") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let bytes = pattern::bytes(7, 3_000_017);
    std::fs::write(&from, &bytes).unwrap();
    std::fs::write(&to, b"what was there before").unwrap();
    let copy = program.plain().args([&from, &to]).output().unwrap();
    assert!(copy.status.success(), "{copy:?}");
    assert!(std::fs::read(&to).unwrap() == bytes);
    // The process that starts it has blocked the signal.
    let _watched = testkit::watchdog::watch("scp with a blocked signal");
    let mut blocked = program.plain();
    testkit::child::with_blocked(&mut blocked, &[libc::SIGIO]);
    let copy = blocked.args([&from, &to]).output().unwrap();
    assert!(copy.status.success(), "{copy:?}");
    // An error names the side that failed.
    let full = program
        .plain()
        .arg(&from)
        .arg("/dev/full")
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&full.stderr);
    assert!(
        stderr.ends_with("/dev/full: No space left on device\n"),
        "{stderr}"
    );
    let none = program.plain().arg("none").arg(&to).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
}

/// The program of the paper on cue(): 4000 KB of a longer file, to a TCP server.
#[test]
fn the_cue_program_sends_what_it_commands() {
    let Some(program) = Program::example("cue") else {
        return;
    };
    let _watched = testkit::watchdog::watch("the cue program");
    const BYTES: usize = 4_096_000;
    let folder = tempfile::tempdir().unwrap();
    let bytes = pattern::bytes(11, BYTES + 1000);
    std::fs::write(folder.path().join("file"), &bytes).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let receiver = std::thread::spawn(move || {
        let mut all = Vec::new();
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_to_end(&mut all).unwrap();
        all
    });
    let run = program
        .checked()
        .current_dir(folder.path())
        .arg(port.to_string())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    assert!(receiver.join().unwrap() == bytes[..BYTES]);
    // No server has port 0.
    let refused = (program.plain().current_dir(folder.path()).arg("0"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(!refused.stderr.is_empty());
}

/// The statements between the markers are the paper's, apart from its comments.
#[test]
fn the_cue_example_is_as_printed() {
    const PRINTED: &str = r#"
        int sd, fd, c, commands[CSIZE];
        sd = socket(AF_INET,SOCK_STREAM,0);
        connect(sd, &addr, sizeof(addr));
        fd = open ("file", O_RDONLY);
        c = cue(fd,sd);
        commands[0] = WRITE;
        commands[1] = 4096000;
        write (c, commands, 2*sizeof(int));
        close (c);
    "#;
    let text = std::fs::read_to_string(here().join("examples/cue.c")).unwrap();
    let (_, text) = text
        .split_once("/* ---- The example begins ---- */")
        .unwrap();
    let (example, _) = text.split_once("/* ---- The example ends ---- */").unwrap();
    let plain = |text: &str| -> String {
        let lines = text.lines().filter(|line| !line.contains("/*"));
        lines.flat_map(str::split_whitespace).collect()
    };
    assert_eq!(plain(example), plain(PRINTED));
}

/// A session with the FTP server of the examples.
struct Session {
    lines: std::io::BufReader<std::net::TcpStream>,
}

impl Session {
    fn new(port: u16) -> Session {
        let control = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut session = Session {
            lines: std::io::BufReader::new(control),
        };
        assert!(session.line().starts_with("220 "));
        session
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    fn says(&mut self, command: &str) -> String {
        write!(self.lines.get_mut(), "{command}\r\n").unwrap();
        self.line()
    }

    /// A data connection, by `EPSV`.
    fn data(&mut self) -> std::net::TcpStream {
        let answer = self.says("EPSV");
        let port = answer.trim().strip_prefix("229 (|||").unwrap();
        let port: u16 = port.strip_suffix("|)").unwrap().parse().unwrap();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()
    }
}

/// The server of the paper: a control descriptor in the place of the copy loop.
#[test]
fn the_ftp_server_sends_files_by_control_descriptors() {
    let Some(program) = Program::example("ftpd") else {
        return;
    };
    let _watched = testkit::watchdog::watch("the FTP server of the examples");
    let folder = tempfile::tempdir().unwrap();
    let bytes = pattern::bytes(5, 3_000_011);
    std::fs::write(folder.path().join("film"), &bytes).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
    for schedule in [&[][..], &["64", "1"]] {
        let mut server = program.plain();
        server.current_dir(folder.path()).arg("0").args(schedule);
        let mut server = server.stdout(Stdio::piped()).start();
        let mut port = String::new();
        let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
        out.read_line(&mut port).unwrap();
        let port = port.trim().parse().unwrap();
        let clients: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut session = Session::new(port);
                    assert!(session.says("USER anonymous").starts_with("331 "));
                    let mut data = session.data();
                    assert!(session.says("RETR film").starts_with("150 "));
                    let mut got = Vec::new();
                    data.read_to_end(&mut got).unwrap();
                    assert!(session.line().starts_with("226 "));
                    got
                })
            })
            .collect();
        for client in clients {
            assert!(client.join().unwrap() == bytes);
        }
        let mut session = Session::new(port);
        for name in ["link", "../film", "/etc/passwd", "none"] {
            let _data = session.data();
            let answer = session.says(&format!("RETR {name}"));
            assert!(answer.starts_with("550 "), "{name}: {answer}");
        }
        // A client that goes away in the middle.
        drop(session.data());
        let answer = session.says("RETR film");
        assert!(
            answer.starts_with("150 ") || answer.starts_with("425 "),
            "{answer}"
        );
        let _ = session.line();
        assert!(session.says("PWD").starts_with("257 "), "it goes on");
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

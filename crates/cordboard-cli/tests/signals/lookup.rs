//! A signal while the name of a host is looked up.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::common::*;
use super::unread;

/// A name server that never answers, and its configuration in this directory. `None`: the test
/// is skipped.
fn silent_server(dir: &TempDir) -> Option<UdpSocket> {
    if !can_mount() {
        return None;
    }
    if !Path::new("/etc/resolv.conf").exists() {
        testkit::skip::here("no /etc/resolv.conf to mount another one over");
        return None;
    }
    let server = match UdpSocket::bind("127.77.53.53:53") {
        Ok(server) => server,
        Err(error) => {
            testkit::skip::here(format!("a name server that never answers: {error}"));
            return None;
        }
    };
    server.set_read_timeout(Some(deadline())).unwrap();
    let names = b"nameserver 127.77.53.53\noptions timeout:30\n";
    file(dir, "names", names);
    Some(server)
}

/// Starts the command with the name server of this directory, in this directory. Waits until it
/// looks a name up.
fn looking_up(dir: &TempDir, server: &UdpSocket, args: &[&str], stderr: Stdio) -> Owned {
    let script = r#"mount --bind names /etc/resolv.conf && exec "$0" "$@""#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(args)
        .env("CORDBOARD_RUNTIME_DIR", dir.path())
        .current_dir(dir.path());
    let child = command.stdout(Stdio::piped()).stderr(stderr).start();
    server.recv(&mut [0; 512]).unwrap();
    child
}

/// The tests would get the questions of each other.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn an_interrupt_while_a_name_is_looked_up_leaves_no_socket_file() {
    let _one = ONE.lock();
    let dir = dir();
    let Some(server) = silent_server(&dir) else {
        return;
    };
    let [socket, control] = ["s", "c"].map(|name| dir.path().join(name));
    let mut args = vec!["splice", "--json", "--control", "c"];
    args.extend(["unix-dgram:s", "tcp:nobody.example:80"]);
    // Its output may not be readable.
    let (_reader, unread) = unread::Full::Pipe.make();
    for stderr in [Stdio::piped(), unread.into()] {
        let child = looking_up(&dir, &server, &args, stderr);
        let read = child.stderr.is_some();
        // The question may be one of the run before: both families may be requested.
        until("the socket", || control.exists().then_some(()));
        signal(child.id(), Signal::INT);
        let run = end(child);
        assert_eq!(run.code(), 130, "{}", run.stderr());
        assert!(!read || run.json()["ended"] == "cancelled");
        assert!(!socket.exists() && !control.exists());
        let entries = std::fs::read_dir(dir.path().join("cordboard")).unwrap();
        assert_eq!(entries.count(), 0, "the entry for top");
    }
}

/// No file is created before the names of all sinks were looked up.
#[test]
fn an_interrupt_while_a_name_is_looked_up_leaves_no_new_file() {
    let _one = ONE.lock();
    let name = "tcp:nobody.example:80";
    let cases: [&[&str]; 3] = [
        &["splice", "names", "new", name],
        &["splice", "unix-dgram:s", "new", name, "--control", "c"],
        &[
            "play",
            "names",
            "names",
            "--frame",
            "1",
            "--fps",
            "1",
            "--audio-to",
            "new",
            "--video-to",
            name,
        ],
    ];
    for args in cases {
        // A server of its own gets no questions of the run before.
        let dir = dir();
        let Some(server) = silent_server(&dir) else {
            return;
        };
        let child = looking_up(&dir, &server, args, Stdio::piped());
        signal(child.id(), Signal::INT);
        let run = end(child);
        assert_eq!(run.code(), 130, "{}", run.stderr());
        for path in ["new", "s", "c"] {
            assert!(!dir.path().join(path).exists(), "{path} of {args:?}");
        }
    }
}

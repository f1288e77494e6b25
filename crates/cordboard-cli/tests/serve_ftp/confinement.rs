//! Nothing outside of the root is read, written or shown.

use std::io::Read;
use std::os::unix::fs::symlink;
use std::sync::mpsc::{TryRecvError, channel};

use testkit::needs::Need;
use testkit::refuse::LANDLOCK_CREATE_RULESET;

use super::server::Server;

const LANDLOCK: (libc::c_long, i32) = (LANDLOCK_CREATE_RULESET, libc::ENOSYS);

/// The calls that are refused to the server. Landlock refuses most of what a fault in the
/// resolution of names would permit, with the same reply. So the tests also run without it, and
/// then without `openat2(2)`, which a filter refuses with `ENOSYS` or `EPERM`.
const WAYS: [&[(libc::c_long, i32)]; 4] = [
    &[],
    &[LANDLOCK],
    &[LANDLOCK, (libc::SYS_openat2, libc::ENOSYS)],
    &[LANDLOCK, (libc::SYS_openat2, libc::EPERM)],
];

/// Runs `test` with a server for each of [`WAYS`].
fn in_every_way(test: impl Fn(&Server)) {
    for refused in WAYS {
        let server = Server::refusing(refused);
        let line = server.logs(&["listening at"]);
        eprintln!("refused: {refused:?}: {line}");
        let is_confined = !line.contains("not confined by landlock");
        let expected = refused.is_empty() && Need::Landlock.is_met();
        assert_eq!(is_confined, expected, "{line}");
        if refused.is_empty() && !expected {
            testkit::skip::report("the confinement of a server", Need::Landlock.words());
        }
        test(&server);
    }
}

#[test]
fn paths_and_symlinks_do_not_lead_out() {
    in_every_way(|server| {
        let secret = server.folder.path().join("secret");
        std::fs::write(&secret, b"secret").unwrap();
        let modified = || secret.metadata().unwrap().modified().unwrap();
        let before = modified();
        symlink("../secret", server.path("relative")).unwrap();
        symlink(&secret, server.path("absolute")).unwrap();
        symlink("..", server.path("up")).unwrap();
        symlink("/", server.path("slash")).unwrap();
        symlink("../planted", server.path("dangling")).unwrap();
        let mut client = server.ann();
        for path in [
            "../secret",
            "/../secret",
            "up/secret",
            "relative",
            "absolute",
            "slash/etc/passwd",
            "..//../secret",
            "./../secret",
            "dangling",
        ] {
            let _data = client.passive();
            for verb in ["RETR", "SIZE", "MDTM", "MLST", "CWD"] {
                client.ask(&format!("{verb} {path}"), 550);
            }
            // A symlink alone is listed as itself.
            for verb in ["LIST", "NLST", "MLSD"] {
                if path.contains('/') {
                    client.ask(&format!("{verb} {path}"), 550);
                }
            }
            if !path.contains("../secret") {
                client.ask(&format!("STOR {path}"), 550);
                let _data = client.passive();
                client.ask(&format!("APPE {path}"), 550);
                client.ask(&format!("MFMT 20010909014640 {path}"), 550);
            }
        }
        for line in [
            "MKD up/d",
            "DELE up/secret",
            "RMD up/root",
            "RNFR up/secret",
            "CWD up",
            "CWD slash/etc",
        ] {
            client.ask(line, 550);
        }
        server.write("inside", b"inside");
        client.ask("RNFR inside", 350);
        client.ask("RNTO up/taken", 550);
        assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
        assert_eq!(modified(), before);
        let mut names: Vec<_> = std::fs::read_dir(server.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["log", "root", "secret", "users"]);
        // A symlink within the root is followed.
        symlink("inside", server.path("link")).unwrap();
        assert_eq!(client.fetch("RETR link"), b"inside");
    });
}

/// The facts of a symlink that leads out are not those of the file outside.
#[test]
fn a_listing_shows_no_facts_of_outside() {
    in_every_way(|server| {
        std::fs::write(server.folder.path().join("secret"), vec![0; 123_457]).unwrap();
        symlink("../secret", server.path("out")).unwrap();
        let mut client = server.anonymous();
        for line in ["LIST", "MLSD", "LIST ."] {
            let text = client.fetch_text(line);
            assert!(text.contains("out") && !text.contains("123457"), "{text}");
        }
    });
}

/// The number of times that a directory is found in its place, and a symlink.
const OFTEN: u32 = 20;

/// A directory is swapped with a symlink again and again, while a client reads and
/// writes through it.
#[test]
fn a_swap_meanwhile_does_not_lead_out() {
    let _dog = testkit::watchdog::watch("a_swap_meanwhile_does_not_lead_out");
    in_every_way(|server| {
        let outside = server.folder.path().join("outside");
        std::fs::create_dir_all(outside.join("kept")).unwrap();
        std::fs::write(outside.join("f"), b"the secret").unwrap();
        std::fs::create_dir(server.path("real")).unwrap();
        server.write("real/f", b"public");
        symlink(&outside, server.path("evil")).unwrap();
        let folder = server.path("");
        // Dropped if an assertion fails, too.
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            let swaps = scope.spawn(move || {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let open = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
                let dir = rustix::fs::open(&folder, open, rustix::fs::Mode::empty()).unwrap();
                while stopped.try_recv() == Err(TryRecvError::Empty) {
                    rustix::fs::renameat_with(&dir, "real", &dir, "evil", flags).unwrap();
                }
            });
            let mut client = server.ann();
            let (mut read, mut refused) = (0, 0);
            while read < OFTEN || refused < OFTEN {
                assert!(!swaps.is_finished(), "the swaps have failed");
                let mut data = client.passive();
                client.send("RETR real/f");
                match client.reply().code {
                    150 => {
                        let mut got = Vec::new();
                        data.read_to_end(&mut got).unwrap();
                        client.expect(226);
                        assert_eq!(got, b"public");
                        read += 1;
                    }
                    550 => refused += 1,
                    other => panic!("{other}"),
                }
                for (line, done) in [
                    ("SIZE real/f", "213 6"),
                    ("MKD real/d", "257 "),
                    ("RMD real/d", "250 "),
                    ("RMD real/kept", "550 "),
                    ("RNFR real/kept", "550 "),
                    ("DELE real/kept/f", "550 "),
                ] {
                    client.send(line);
                    let reply = client.reply();
                    let text = &reply.text;
                    assert!(
                        reply.code == 550 || text.starts_with(done),
                        "{line}: {text}"
                    );
                }
            }
            drop(stop);
        });
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 2);
        assert_eq!(std::fs::read(outside.join("f")).unwrap(), b"the secret");
    });
}

/// A file that is replaced during its transfer is still sent whole: the descriptor refers
/// to the old file.
#[test]
fn a_file_that_is_replaced_meanwhile_is_sent_whole() {
    let server = Server::start(&[]);
    let data = super::common::bytes(8_000_000);
    server.write("data", &data);
    std::fs::write(server.folder.path().join("secret"), b"secret").unwrap();
    let mut client = server.anonymous();
    let mut socket = client.passive();
    client.ask("RETR data", 150);
    std::fs::remove_file(server.path("data")).unwrap();
    symlink("../secret", server.path("data")).unwrap();
    let mut got = Vec::new();
    socket.read_to_end(&mut got).unwrap();
    client.expect(226);
    assert!(got == data);
}

/// FIFOs, sockets and devices are refused. They are not opened, which would wake the process
/// that waits for the other end.
#[test]
fn only_regular_files_are_served() {
    use std::io::Write;

    use rustix::fs::{Mode, OFlags, inotify};
    let server = Server::start(&[]);
    let path = server.path("fifo");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(server.path("socket")).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN).unwrap();
    let opens = || match rustix::io::read(&watch, &mut [0; 4096]) {
        Err(rustix::io::Errno::AGAIN) => false,
        read => read.is_ok_and(|length| length > 0),
    };
    // It waits until the test reads.
    let end = path.clone();
    let writer = std::thread::spawn(move || {
        let mut fifo = std::fs::File::options().write(true).open(end).unwrap();
        fifo.write_all(b"x").unwrap();
    });
    let mut client = server.ann();
    for path in ["fifo", "socket", "."] {
        for verb in ["RETR", "STOR", "APPE", "SIZE"] {
            let _data = client.passive();
            client.ask(&format!("{verb} {path}"), 550);
        }
    }
    assert!(!opens());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let other = rustix::fs::open(&path, flags, Mode::empty());
    assert_eq!(other.err(), Some(rustix::io::Errno::NXIO), "a reader");
    let mut got = Vec::new();
    let mut reader = std::fs::File::open(&path).unwrap();
    reader.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert_eq!(got, b"x");
    assert!(opens());
    // An upload would open it while it has a reader.
    let _data = client.passive();
    client.ask("STOR fifo", 550);
    assert!(!opens());
}

//! The bounds of clients, times and lines, and the flags that are refused.

use std::io::Read;
use std::net::TcpStream;
use std::process::Stdio;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use testkit::refuse::{ACCEPT, POLL, PPOLL, refuse, refuse_executable_memory};

use super::client::{Client, connect_from};
use super::common::{Start, apart, bytes, call, cordboard, dir, end, signal, until};
use super::server::Server;

#[test]
fn clients_are_counted_by_address_and_in_all() {
    let server = Server::start(&["--clients", "3", "--clients-per-address", "2"]);
    let other = "127.0.0.2".parse().unwrap();
    let refused = |socket: TcpStream| {
        let mut client = Client::new(socket);
        client.expect(421);
        assert_eq!(client.next(), None);
    };
    let connect = || TcpStream::connect(server.address).unwrap();
    let first = Client::greeted(connect());
    let _second = Client::greeted(connect());
    refused(connect());
    let _third = Client::greeted(connect_from(other, server.address));
    refused(connect_from(other, server.address));
    drop(first);
    until("a place", || {
        (Client::new(connect()).reply().code == 220).then_some(())
    });
}

#[test]
fn many_clients_read_at_once() {
    let server = Server::start(&[]);
    let data = bytes(500_000);
    server.write("data", &data);
    let before = server.descriptors();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut client = server.anonymous();
                assert!(client.fetch("RETR data") == data);
                client.ask("QUIT", 221);
            });
        }
    });
    let log = server.log();
    assert_eq!(log.matches("RETR /data 500000 bytes").count(), 64);
    // No descriptors are left, except for those that the library keeps: 8 pipes, 8 socket
    // pairs, and the descriptors by which its threads wait and wake each other.
    until("the descriptors closed", || {
        (server.descriptors() <= before + 40).then_some(())
    });
}

/// Sets the limit of descriptors of the server.
pub fn limit_descriptors(server: &Server, current: u64) {
    limit(server, Resource::Nofile, current, Some(1000));
}

fn limit(server: &Server, resource: Resource, current: u64, maximum: Option<u64>) {
    let current = Some(current);
    let limit = Rlimit { current, maximum };
    prlimit(Pid::from_raw(server.pid() as i32), resource, limit).unwrap();
}

/// The lowest numbers that are no descriptors of the server. As a limit, each leaves as many
/// descriptors as it has numbers before it here.
pub fn free_descriptors(server: &Server, count: usize) -> Vec<u64> {
    let numbers = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let used: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
    (0..).filter(|fd| !used.contains(fd)).take(count).collect()
}

/// The last descriptor is needed to look up the target of the symlink.
#[test]
fn a_listing_without_descriptors_is_not_wrong() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    std::os::unix::fs::symlink("f", server.path("link")).unwrap();
    let mut client = server.anonymous();
    let whole = client.ask("STAT .", 213);
    assert!(whole.contains("\n -") && whole.contains(" link"), "{whole}");
    let mut failed = 0;
    for next in free_descriptors(&server, 8) {
        limit_descriptors(&server, next);
        client.send("STAT .");
        let reply = client.reply();
        match reply.code {
            451 => failed += 1,
            _ => assert_eq!(reply.text, whole),
        }
    }
    assert!((3..8).contains(&failed), "{failed}");
}

/// The listing does not fit into its memory file, but the directory exists.
#[test]
fn a_listing_that_cannot_be_stored_is_not_a_missing_directory() {
    const MOST: u64 = 10_000;
    let server = Server::start(&[]);
    let name = "n".repeat(100);
    for number in 0..200 {
        server.write(&format!("{name}{number}"), b"f");
    }
    let mut client = server.anonymous();
    limit(&server, Resource::Fsize, MOST, Some(MOST));
    for verb in ["LIST", "NLST", "MLSD"] {
        let _data = client.passive();
        client.ask(verb, 451);
    }
    assert_eq!(client.ask("STAT .", 213).matches(&name).count(), 200);
    assert_eq!(client.fetch(&format!("RETR {name}7")), b"f");
}

/// Whichever descriptor is missing, a transfer that fails leaves the old content. Without the engine
/// (binary), and without the service of control descriptors (ASCII), the start needs more of them.
#[test]
fn an_upload_without_descriptors_keeps_the_file() {
    for kind in ["TYPE I", "TYPE A"] {
        let server = Server::start(&[]);
        let mut client = server.ann();
        client.ask(kind, 200);
        server.write("up", b"the file");
        let mut codes = Vec::new();
        for left in 0..40 {
            let _data = client.passive();
            let limit = free_descriptors(&server, left + 1).pop().unwrap();
            limit_descriptors(&server, limit);
            client.send("STOR up");
            let begun = client.reply().code;
            let mut code = begun;
            if begun == 150 {
                client.send("ABOR");
                code = client.reply().code;
                client.expect(226);
            }
            codes.push((begun, code));
            limit_descriptors(&server, 1000);
            if code == 426 {
                break;
            }
            assert_eq!(server.read("up"), b"the file", "{kind}: {codes:?}");
        }
        assert!(codes.contains(&(451, 451)), "{kind}: {codes:?}");
        assert!(codes.contains(&(150, 451)), "{kind}: {codes:?}");
        assert!(codes.ends_with(&[(150, 426)]), "{kind}: {codes:?}");
        assert_eq!(server.read("up"), b"", "{kind}");
    }
}

/// Without descriptors, the reply states a temporary error, and the server continues.
#[test]
fn without_descriptors_the_server_continues() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    let mut client = server.anonymous();
    assert_eq!(client.fetch("RETR f"), b"f");
    limit_descriptors(&server, 3);
    client.ask("RETR f", 451);
    client.ask("EPSV", 425);
    // The client is accepted once a descriptor is free.
    let waits = TcpStream::connect(server.address).unwrap();
    server.logs(&["no client can be accepted"]);
    limit_descriptors(&server, 1000);
    Client::greeted(waits);
    assert_eq!(client.fetch("RETR f"), b"f");
}

/// The C library starts without `ppoll(2)` where there is `poll(2)`.
#[test]
fn clients_are_served_without_ppoll() {
    if POLL.is_empty() {
        return testkit::skip::here("this architecture has no older call");
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let server = apart(|| {
            refuse(PPOLL, errno);
            Server::start(&[])
        });
        server.write("f", b"f");
        let mut client = server.anonymous();
        assert_eq!(client.fetch("RETR f"), b"f");
    }
}

/// The connection stays in the queue of the listener, which polls readable all the time.
#[test]
fn without_accept_the_server_rests() {
    for errno in [libc::EPERM, libc::EACCES] {
        let server = apart(|| {
            refuse(ACCEPT, errno);
            Server::start(&[])
        });
        let _waits = TcpStream::connect(server.address).unwrap();
        server.logs(&["no client can be accepted"]);
    }
}

#[test]
fn without_a_pipe_the_server_does_not_start() {
    let folder = dir();
    let (mut says, stderr) = std::io::pipe().unwrap();
    let child = apart(|| {
        refuse(&[libc::SYS_pipe2], libc::EMFILE);
        let mut command = cordboard();
        command.args(["serve", "ftp", "--listen", "127.0.0.1:0", "--root"]);
        command.arg(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(stderr).start()
    });
    assert_eq!(end(child).code(), 1);
    let mut text = String::new();
    says.read_to_string(&mut text).unwrap();
    assert!(text.contains("(EMFILE) creating a pipe"), "{text}");
}

#[test]
fn clients_are_accepted_by_an_older_call() {
    if ACCEPT.len() < 2 {
        return testkit::skip::report("an older call", "this architecture has none");
    }
    for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
        let server = apart(|| {
            refuse(&[libc::SYS_accept4], errno);
            Server::start(&[])
        });
        server.write("f", b"f");
        assert_eq!(server.anonymous().fetch("RETR f"), b"f", "{errno}");
    }
}

/// A filter may know only the calls for messages.
#[test]
fn a_session_needs_neither_recvfrom_nor_sendto() {
    let server = apart(|| {
        refuse(&[libc::SYS_recvfrom, libc::SYS_sendto], libc::EPERM);
        Server::start(&[])
    });
    let data = bytes(3 << 20);
    server.write("f", &data);
    assert!(server.anonymous().fetch("RETR f") == data);
}

#[test]
fn a_listing_needs_no_executable_memory() {
    let server = apart(|| refuse_executable_memory().then(|| Server::start(&[])));
    let Some(server) = server else {
        return testkit::skip::here("all files in memory are executable here");
    };
    server.write("f", b"f");
    let mut client = server.anonymous();
    for verb in ["LIST", "NLST", "MLSD"] {
        assert!(client.fetch(verb).ends_with(b"f\r\n"), "{verb}");
    }
}

#[test]
fn an_idle_client_is_disconnected() {
    let server = Server::start(&["--idle", "0.2"]);
    let mut client = server.anonymous();
    client.expect(421);
    assert_eq!(client.next(), None);
    // Half a line is not a command.
    let mut client = server.connect();
    client.send_bytes(b"NOO");
    client.expect(421);
    // A transfer that does not move is idle, too.
    let (mut client, _data) = server.in_a_download();
    assert!(client.expect(426).contains("Idle timeout"));
}

#[test]
fn a_long_line_is_refused_and_the_next_one_taken() {
    let server = Server::start(&[]);
    let mut client = server.anonymous();
    client.send(&format!("CWD {}", "x".repeat(100_000)));
    client.expect(500);
    client.ask("NOOP", 200);
    client.ask(&format!("CWD {}", "x".repeat(4000)), 550);
}

#[test]
fn an_address_for_other_machines_needs_a_flag() {
    let run = call(["serve", "ftp", "--root", ".", "--listen", "0.0.0.0:0"]);
    run.fails(2, &["0.0.0.0:0", "other machines", "--public"]);
    let run = call(["serve", "ftp", "--root", "/none/such"]);
    run.fails(1, &["/none/such", "ENOENT", "opening the root"]);
    let run = call([
        "serve",
        "ftp",
        "--root",
        "/dev/null",
        "--listen",
        "127.0.0.1:0",
    ]);
    run.fails(1, &["/dev/null", "ENOTDIR"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    call(["serve", "ftp", "--root", ".", "--listen", &address]).fails(1, &[&address, "EADDRINUSE"]);
    assert_eq!(call(["serve", "ftp"]).code(), 2);
    call(["serve", "ftp", "--root", ".", "--users", "/none"]).fails(2, &["/none"]);
    for flag in ["--clients", "--clients-per-address"] {
        let run = call(["serve", "ftp", "--root", ".", flag, "0"]);
        assert_eq!(run.code(), 2);
        let says = run.stderr();
        assert!(
            says.contains(flag) && says.contains("between 1 and"),
            "{says}"
        );
    }
}

/// The address cannot be logged either, so the server listens at a port that was free.
#[test]
fn a_log_that_cannot_be_written_is_reported_once() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let child = cordboard()
        .args(["serve", "ftp", "--root", ".", "--log", "/dev/full"])
        .args(["--listen", &address.to_string()])
        .stderr(std::process::Stdio::piped())
        .start();
    let mut client = Client::greeted(until("the server", || TcpStream::connect(address).ok()));
    client.login("anonymous", "x");
    assert!(client.fetch_text("NLST").contains("Cargo.toml"));
    signal(child.id(), rustix::process::Signal::TERM);
    let run = end(child);
    let says = run.ok().stderr();
    assert_eq!(says.lines().count(), 1, "{says}");
    assert!(says.contains("(ENOSPC) writing the log"), "{says}");
}

//! The end of the server: by signals, with and without transfers.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::process::Signal;

use super::aborts::is_reset;
use super::client::Client;
use super::common::{Start, cordboard, end, signal, until};
use super::connection::{ESTABLISHED, state};
use super::server::Server;

#[test]
fn a_signal_ends_idle_clients_at_once() {
    for number in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&["--grace", "1000"]);
        let mut clients: Vec<_> = (0..5).map(|_| server.anonymous()).collect();
        let mut waits = server.anonymous();
        waits.epsv();
        waits.send("LIST");
        server.signal(number);
        for client in &mut clients {
            client.expect(421);
            assert_eq!(client.next(), None);
        }
        // 421 if the signal arrives before LIST is read.
        assert!(matches!(waits.reply().code, 425 | 421));
        assert_eq!(server.end().code(), 0);
        server.logs(&["ended"]);
    }
}

/// No line of progress is printed, and the timer of such a request would never end (proc(5),
/// `SigIgn`).
#[test]
fn a_request_of_progress_is_ignored() {
    let server = Server::start(&[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let ignored = (status.lines()).find_map(|line| line.strip_prefix("SigIgn:\t"));
    let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
    assert!(
        ignored & 1 << (Signal::USR1.as_raw() - 1) != 0,
        "{ignored:x}"
    );
}

/// A transfer completes within the time of grace. New clients are refused.
#[test]
fn a_running_transfer_may_end() {
    let mut server = Server::start(&["--grace", "1000"]);
    let mut client = server.ann();
    let mut data = client.passive();
    client.ask("STOR up", 150);
    data.write_all(b"before, ").unwrap();
    server.signal(Signal::TERM);
    until("the listener closed", || {
        TcpStream::connect(server.address).is_err().then_some(())
    });
    data.write_all(b"after").unwrap();
    drop(data);
    client.expect(226);
    client.expect(421);
    assert_eq!(server.end().code(), 0);
    assert_eq!(server.read("up"), b"before, after");
}

#[test]
fn after_the_grace_a_transfer_is_cancelled() {
    let mut server = Server::start(&["--grace", "0.1"]);
    let (mut client, data) = server.in_a_download();
    server.signal(Signal::TERM);
    client.expect(426);
    assert!(is_reset(data));
    assert_eq!(server.end().code(), 0);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["--grace", "1000"]);
    let (_client, data) = server.in_a_download();
    server.signal(Signal::TERM);
    let pid = server.pid();
    // Two signals within a quarter of a second count as one.
    until("its end", || {
        signal(pid, Signal::TERM);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") Z ").then_some(())
    });
    assert_eq!(server.end().code(), 128 + 15);
    assert!(is_reset(data));
}

/// Standard error is a full pipe. A session waits for room in it, with its line of the log.
#[test]
fn a_log_that_is_not_read_does_not_delay_the_end() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (_reader, writer) = std::io::pipe().unwrap();
    // Its flags are not those of the server's descriptor.
    let again = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let child = cordboard()
        .args(["serve", "ftp", "--root", ".", "--grace", "0.1"])
        .args(["--listen", &address.to_string()])
        .stderr(OwnedFd::from(writer.try_clone().unwrap()))
        .start();
    let mut client = Client::greeted(until("the server", || TcpStream::connect(address).ok()));
    client.login("anonymous", "x");
    let mut options = File::options();
    let filler = options.write(true).custom_flags(libc::O_NONBLOCK);
    let mut filler = filler.open(again).unwrap();
    for piece in [4096, 1] {
        while filler.write(&vec![b'.'; piece]).is_ok() {}
    }
    let mut data = client.passive();
    client.ask("RETR Cargo.toml", 150);
    data.read_to_end(&mut Vec::new()).unwrap();
    signal(child.id(), Signal::TERM);
    assert_eq!(end(child).code(), 0);
}

/// The end of the process does not end the file.
#[test]
fn a_killed_server_resets_its_data_connections() {
    let mut server = Server::start(&[]);
    let (_client, data) = server.in_a_download();
    let mut other = server.ann();
    let mut upload = other.passive();
    other.ask("STOR up", 150);
    upload.write_all(b"some bytes").unwrap();
    until("the bytes", || {
        (server.read("up") == b"some bytes").then_some(())
    });
    server.signal(Signal::KILL);
    server.end();
    assert!(is_reset(data) && is_reset(upload));
}

/// Unread bytes would make the close of the connection a reset.
#[test]
fn bytes_are_not_lost_by_what_their_reader_has_sent() {
    let server = Server::start(&[]);
    let sent = super::common::bytes(200_000);
    server.write("f", &sent);
    let mut client = server.anonymous();
    let mut data = client.passive();
    data.write_all(b"not expected").unwrap();
    client.ask("RETR f", 150);
    let of_server = [
        data.peer_addr().unwrap().port(),
        data.local_addr().unwrap().port(),
    ];
    until("the end of the file", || {
        (state(of_server) != Some(ESTABLISHED)).then_some(())
    });
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    assert!(got == sent);
    client.expect(226);
}

/// The server waits until the client has acknowledged the file, because a close with unread bytes
/// would be a reset. The client reads nothing, and its buffer is smaller than the file.
#[test]
fn the_wait_for_the_last_bytes_is_aborted() {
    let server = Server::start(&["--clients", "1"]);
    server.write("f", &super::common::bytes(100_000));
    let start = || {
        let mut client = until("a place", || {
            let socket = TcpStream::connect(server.address).unwrap();
            let mut client = Client::new(socket);
            (client.reply().code == 220).then_some(client)
        });
        client.login("anonymous", "x");
        let data = client.narrow();
        rustix::io::write(&data, b"not expected").unwrap();
        client.ask("RETR f", 150);
        let ports = [
            data.peer_addr().unwrap().port(),
            data.local_addr().unwrap().port(),
        ];
        until("the end of the file", || {
            (state(ports) != Some(ESTABLISHED)).then_some(())
        });
        (client, data)
    };
    let (mut client, data) = start();
    client.ask("STAT", 213);
    client.ask("NOOP", 200);
    client.send("ABOR\r\nNOOP");
    for code in [226, 226, 200] {
        client.expect(code);
    }
    drop((client, data));
    let (client, _data) = start();
    drop(client);
    drop(start());
}

/// All bytes arrive after a complete transfer, even if the client reads them only after the
/// server has closed the connection and has been killed.
#[test]
fn bytes_that_are_not_read_yet_survive_the_server() {
    let mut server = Server::start(&[]);
    let sent = super::common::bytes(200_000);
    server.write("f", &sent);
    let mut client = server.anonymous();
    let mut data = client.passive();
    client.ask("RETR f", 150);
    client.expect(226);
    server.signal(Signal::KILL);
    server.end();
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    assert!(got == sent);
}

//! Data connections: active, passive, and their peers.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV6, TcpStream};

use super::client::{Client, connect_from};
use super::server::Server;

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

#[test]
fn an_active_connection_goes_to_the_client() {
    let server = Server::start(&[]);
    server.write("f", b"active");
    let mut client = server.ann();
    let (listener, port) = client.active();
    client.ask(&port, 200);
    client.ask("RETR f", 150);
    let mut got = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    client.expect(226);
    assert_eq!(got, b"active");
    let at = listener.local_addr().unwrap();
    client.ask(&format!("EPRT |1|{}|{}|", at.ip(), at.port()), 200);
    client.ask("STOR up", 150);
    listener.accept().unwrap().0.write_all(b"up").unwrap();
    client.expect(226);
    assert_eq!(server.read("up"), b"up");
    // A mapped address is one of IPv4.
    client.ask(&format!("EPRT |2|::ffff:{}|{}|", at.ip(), at.port()), 200);
    client.ask("RETR f", 150);
    let mut got = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    client.expect(226);
    assert_eq!(got, b"active");
    // The address is used once.
    client.ask("RETR f", 425);
}

/// The bounce attack (RFC 2577): no connection to another host, or to a low port.
#[test]
fn no_connection_goes_elsewhere() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    let victim = std::net::TcpListener::bind((OTHER, 0)).unwrap();
    victim.set_nonblocking(true).unwrap();
    let [high, low] = victim.local_addr().unwrap().port().to_be_bytes();
    let mut client = server.anonymous();
    client.ask(&format!("PORT 127,0,0,2,{high},{low}"), 501);
    client.ask(
        &format!("EPRT |1|127.0.0.2|{}|", victim.local_addr().unwrap().port()),
        501,
    );
    client.ask("PORT 127,0,0,1,0,25", 501);
    client.ask("EPRT |1|127.0.0.1|1023|", 501);
    client.ask("EPRT |2|::2|5000|", 522);
    let said = client.ask("EPRT |2|::1|5000|", 522);
    assert!(said.ends_with("(1)"), "{said}");
    client.ask("EPRT |3|x|5000|", 522);
    client.ask("PORT 127,0,0,1", 501);
    client.ask("RETR f", 425);
    assert!(victim.accept().is_err());
}

/// Another host does not get the file, and does not use up the data connection.
#[test]
fn a_connection_from_elsewhere_gets_nothing() {
    let server = Server::start(&[]);
    server.write("f", b"for the client only");
    let mut client = server.anonymous();
    let address = client.epsv();
    let mut thief = connect_from(OTHER, address);
    client.send("RETR f");
    let mut stolen = Vec::new();
    let read = thief.read_to_end(&mut stolen);
    assert!(stolen.is_empty(), "{read:?}");
    let mut data = TcpStream::connect(address).unwrap();
    client.expect(150);
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    client.expect(226);
    assert_eq!(got, b"for the client only");
}

#[test]
fn after_epsv_all_only_epsv_is_accepted() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    let mut client = server.anonymous();
    client.ask("EPSV 2", 522);
    client.ask("EPSV 1", 229);
    client.ask("EPSV ALL", 200);
    client.ask("PASV", 503);
    client.ask("PORT 127,0,0,1,100,1", 503);
    client.ask("EPRT |1|127.0.0.1|5000|", 503);
    assert_eq!(client.fetch("RETR f"), b"f");
}

#[test]
fn the_ports_of_the_range_are_used() {
    // Ports that are free now.
    let (first, last) = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        (port, port)
    };
    let server = Server::start(&["--passive-ports", &format!("{first}-{last}")]);
    server.write("f", b"f");
    let mut client = server.anonymous();
    for _ in 0..3 {
        assert_eq!(client.epsv().port(), first);
        assert_eq!(client.fetch("RETR f"), b"f");
    }
}

#[test]
fn ipv6_works_and_pasv_says_why_not() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return testkit::skip::here("no IPv6 here");
    }
    let server = Server::at("[::1]:0", &[]);
    server.write("f", b"six");
    let mut client = server.anonymous();
    client.ask("PASV", 425);
    assert_eq!(client.fetch("RETR f"), b"six");
    let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
    client.ask(
        &format!("EPRT |2|::1|{}|", listener.local_addr().unwrap().port()),
        200,
    );
    client.ask("RETR f", 150);
    let mut got = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"six");
    client.expect(226);
}

/// A link-local address of this machine, with its interface (`if_inet6`, proc(5)).
fn link_local() -> Option<SocketAddrV6> {
    let all = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
    let parsed = all.lines().filter_map(|line| {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(parts.get(at)?, 16).ok();
        let address = u128::from_str_radix(parts.first()?, 16).ok()?;
        // An address that is tentative or a duplicate cannot be used.
        let is_usable = number(3)? == 0x20 && number(4)? & 0x48 == 0;
        is_usable.then_some(SocketAddrV6::new(address.into(), 0, 0, number(1)?))
    });
    let mut found = parsed.filter(|address| std::net::TcpListener::bind(address).is_ok());
    found.next()
}

#[test]
fn link_local_addresses_keep_their_interface() {
    let Some(local) = link_local() else {
        return testkit::skip::here("no link-local address here");
    };
    let server = Server::at(&local.to_string(), &["--public"]);
    server.write("f", b"local");
    let mut client = server.anonymous();
    assert_eq!(client.fetch("RETR f"), b"local");
    let listener = std::net::TcpListener::bind(local).unwrap();
    let port = listener.local_addr().unwrap().port();
    client.ask(&format!("EPRT |2|{}|{port}|", local.ip()), 200);
    client.ask("RETR f", 150);
    let mut got = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"local");
    client.expect(226);
}

/// A client that makes no data connection can still abort and disconnect.
#[test]
fn the_wait_for_a_connection_ends_with_the_client() {
    let server = Server::start(&["--clients", "1"]);
    server.write("f", b"f");
    let mut client = server.anonymous();
    client.epsv();
    client.send("RETR f");
    client.ask("ABOR", 425);
    client.expect(226);
    assert_eq!(client.fetch("RETR f"), b"f");
    for commands in ["RETR f", "RETR f\r\nNOOP"] {
        client.epsv();
        client.send(commands);
        drop(client);
        // The client is no longer counted.
        client = super::common::until("the place", || {
            let mut next = Client::new(TcpStream::connect(server.address).unwrap());
            (next.reply().code == 220).then_some(next)
        });
        client.login("anonymous", "x");
    }
}

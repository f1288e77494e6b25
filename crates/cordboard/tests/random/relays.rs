//! Both directions between two connections, one of which is reset.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cordboard::{Ended, Engine, Errno, Running, Side, Transfer};
use fastrand::Rng;
use testkit::obstacle;

use crate::common::{any, pattern};
use crate::moves::length;

pub struct Relay {
    client: OwnedFd,
    server: OwnedFd,
    /// From the client to the server, and back.
    ways: [Running; 2],
    sent: usize,
}

impl Relay {
    pub fn start(engine: &Arc<Engine>, rng: &mut Rng) -> Relay {
        let (client, from) = obstacle::tcp().unwrap();
        let (server, to) = obstacle::tcp().unwrap();
        let start = |source: &OwnedFd, sink: &OwnedFd| {
            let copies = (source.try_clone().unwrap(), sink.try_clone().unwrap());
            let transfer = Transfer::owning(copies.0, copies.1, any()).unwrap();
            engine.start(transfer).unwrap()
        };
        let ways = [start(&from, &to), start(&to, &from)];
        // As much as fits into the sockets' buffers.
        let sent = length(rng).min(60_000) as usize;
        Relay {
            client,
            server,
            ways,
            sent,
        }
    }

    /// A reset is not the end of a direction: both report an error.
    pub fn check(self) {
        let data = pattern(self.sent);
        let mut client = TcpStream::from(self.client);
        let mut server = TcpStream::from(self.server);
        client.write_all(&data).unwrap();
        let mut got = vec![0; self.sent];
        server.read_exact(&mut got).unwrap();
        assert!(got == data, "what came through the relay");
        obstacle::resets(&client).unwrap();
        drop(client);
        let [there, back] = self.ways;
        let report = there.wait().report;
        assert_eq!(report.written, self.sent as u64, "{report:?}");
        assert_eq!(report.ended, Ended::Error, "{report:?}");
        assert_eq!(report.errno, Some(Errno::ECONNRESET), "{report:?}");
        assert_eq!(report.failed, Some(Side::Source), "{report:?}");
        // The peer is already closed.
        let _ = server.write_all(b"too late");
        let report = back.wait().report;
        assert_eq!(report.ended, Ended::Error, "{report:?}");
        assert_eq!(report.failed, Some(Side::Sink), "{report:?}");
    }
}

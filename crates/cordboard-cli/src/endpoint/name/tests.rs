use super::*;

fn name(text: &str) -> Result<Name, Problem> {
    parse(OsStr::new(text), Side::Source)
}

fn at(host: &str, port: u16) -> Host {
    Host {
        host: host.to_owned(),
        port,
        addresses: OnceLock::new(),
    }
}

#[test]
fn every_scheme() {
    let path = PathBuf::from("/tmp/s");
    for (text, expected) in [
        ("-", Name::Standard),
        ("fd:3", Name::Fd(3)),
        ("/tmp/s", Name::Path(path.clone())),
        ("file:/tmp/s", Name::Path(path.clone())),
        ("file:-", Name::Path("-".into())),
        ("file:tcp:a:1", Name::Path("tcp:a:1".into())),
        ("./tcp:a:1", Name::Path("./tcp:a:1".into())),
        ("a b:c", Name::Path("a b:c".into())),
        (":x", Name::Path(":x".into())),
        ("tcp:localhost:80", Name::Tcp(at("localhost", 80))),
        ("tcp:[::1]:80", Name::Tcp(at("::1", 80))),
        ("tcp-listen:0.0.0.0:0", Name::TcpListen(at("0.0.0.0", 0))),
        ("tcp-listen::9000", Name::TcpListen(at("", 9000))),
        ("udp:h:65535", Name::Udp(at("h", 65535))),
        ("udp-listen:h:1", Name::UdpListen(at("h", 1))),
        ("unix:/tmp/s", Name::Unix(path.clone())),
        ("unix:@abstract", Name::Unix("@abstract".into())),
        ("unix-listen:/tmp/s", Name::UnixListen(path.clone())),
        ("unix-dgram:/tmp/s", Name::UnixDgram(path.clone())),
        ("unix-seqpacket:/tmp/s", Name::UnixSeqpacket(path.clone())),
        (
            "unix-seqpacket-listen:/tmp/s",
            Name::UnixSeqpacketListen(path.clone()),
        ),
    ] {
        assert_eq!(name(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn wrong_names() {
    for (text, says) in [
        ("", "empty"),
        ("fd:", "fd:3"),
        ("fd:-1", "fd:3"),
        ("fd:x", "fd:3"),
        ("fd:99999999999", "fd:3"),
        ("file:", "path"),
        ("unix:", "path"),
        ("unix-listen:@", "name"),
        ("tcp:", "HOST:PORT"),
        ("tcp:host", "HOST:PORT"),
        ("tcp:host:", "1 to 65535"),
        ("tcp:host:0", "1 to 65535"),
        ("tcp:host:65536", "1 to 65535"),
        ("tcp:host:-1", "1 to 65535"),
        ("tcp:host:+80", "1 to 65535"),
        ("tcp:host:000080", "1 to 65535"),
        ("tcp:host:http", "1 to 65535"),
        ("tcp::80", "host"),
        ("tcp:::1:80", "brackets"),
        ("tcp:[::1]80", "brackets"),
        ("tcp-listen:h:x", "0 to 65535"),
        ("tpc:host:1", "unknown scheme"),
        ("http://host/", "unknown scheme"),
    ] {
        let problem = name(text).unwrap_err();
        assert!(problem.usage, "{text}");
        assert!(problem.to_string().contains(says), "{text}: {problem}");
        assert!(!problem.to_string().contains('\n'));
    }
}

#[test]
fn a_sink_of_an_odd_name_is_a_new_file_unless_it_is_nearly_a_scheme() {
    let sink = |text| parse(OsStr::new(text), Side::Sink);
    assert!(matches!(sink("backup:2026"), Ok(Name::Path(_))));
    assert!(matches!(sink("c:x"), Ok(Name::Path(_))));
    assert!(sink("tpc:host:1").unwrap_err().usage);
    assert!(sink("TCP:host:1").unwrap_err().usage);
}

#[test]
fn slips_of_the_finger() {
    for word in ["tcp", "tpc", "tc", "tccp", "txp", "cp"] {
        assert!(near(word.as_bytes(), b"tcp"), "{word}");
    }
    for word in ["", "c", "t", "cup", "backup", "tcpip", "pct"] {
        assert!(!near(word.as_bytes(), b"tcp"), "{word}");
    }
    assert!(near(b"unix-listn", b"unix-listen"));
}

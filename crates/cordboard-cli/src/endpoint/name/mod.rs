//! The meaning of an endpoint's name: the name of an existing file always means
//! that file.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cordboard::Side;

use crate::files::if_reachable;
use crate::interruptible::interruptible;
use crate::problem::Action;
use crate::problem::Problem;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A name or an address, without brackets. Empty: every address, for listening.
    pub host: String,
    /// 0 only for listening: any free port.
    pub port: u16,
    /// The addresses, once they were looked up.
    pub addresses: OnceLock<Vec<SocketAddr>>,
}

/// What an operand names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// `-`
    Standard,
    /// `fd:N`
    Fd(i32),
    /// A path, or `file:PATH`.
    Path(PathBuf),
    /// `tcp:`
    Tcp(Host),
    /// `tcp-listen:`
    TcpListen(Host),
    /// `udp:`
    Udp(Host),
    /// `udp-listen:`
    UdpListen(Host),
    /// `unix:`
    Unix(PathBuf),
    /// `unix-listen:`
    UnixListen(PathBuf),
    /// `unix-dgram:`
    UnixDgram(PathBuf),
    /// `unix-seqpacket:`
    UnixSeqpacket(PathBuf),
    /// `unix-seqpacket-listen:`
    UnixSeqpacketListen(PathBuf),
}

const SCHEMES: [&str; 11] = [
    "file",
    "fd",
    "tcp",
    "tcp-listen",
    "udp",
    "udp-listen",
    "unix",
    "unix-listen",
    "unix-dgram",
    "unix-seqpacket",
    "unix-seqpacket-listen",
];

impl Name {
    /// Whether both name one local address, whose listener accepts a connection for each. With
    /// port 0, each gets an address of its own. A datagram socket has one peer.
    pub fn is_same_address(&self, other: &Name) -> bool {
        match (self, other) {
            (Name::TcpListen(one), Name::TcpListen(two)) => {
                one.port != 0 && (&one.host, one.port) == (&two.host, two.port)
            }
            (Name::UdpListen(_), _) => false,
            (one, two) => one == two,
        }
    }

    /// Returns the name for a line that the sum tools can check: the path of a file, without
    /// `file:`, or the operand itself.
    pub fn in_hash_lines(&self, operand: &OsStr) -> OsString {
        match self {
            Name::Path(path) => path_in_hash_lines(path),
            _ => operand.to_owned(),
        }
    }
}

/// Returns the path of a file for a line that the sum tools can check: they take `-` for
/// standard input.
pub fn path_in_hash_lines(path: &Path) -> OsString {
    match path.as_os_str() {
        name if name == "-" => "./-".into(),
        name => name.to_owned(),
    }
}

/// Parses the name of an endpoint that is used as this side.
pub fn parse(operand: &OsStr, side: Side) -> Result<Name, Problem> {
    let shown = operand.to_string_lossy();
    let bytes = operand.as_bytes();
    if bytes.is_empty() {
        return Err(Problem::usage("''", "an empty name is not an endpoint").on(side));
    }
    if bytes == b"-" {
        return Ok(Name::Standard);
    }
    let Some(colon) = bytes.iter().position(|b| *b == b':') else {
        return Ok(Name::Path(operand.into()));
    };
    let (scheme, rest) = (&bytes[..colon], &bytes[colon + 1..]);
    // A pattern such as `*` can expand to a file of that name.
    let known = SCHEMES.iter().any(|known| known.as_bytes() == scheme);
    if known && exists(operand, side)? {
        return Ok(Name::Path(operand.into()));
    }
    let usage = |text: &str| Problem::usage(shown.clone(), text).on(side);
    let path = || match rest {
        [] => Err(usage("a path is required after the colon")),
        rest => Ok(PathBuf::from(OsString::from_vec(rest.to_vec()))),
    };
    // An empty abstract name is valid, and probably a variable that is not set.
    let unix = || match rest {
        b"@" => Err(usage("a name is required after the @")),
        _ => path(),
    };
    let connect = || host(rest, false).map_err(|text| usage(&text));
    let listen = || host(rest, true).map_err(|text| usage(&text));
    match scheme {
        b"file" => path().map(Name::Path),
        b"fd" => std::str::from_utf8(rest)
            .ok()
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .map(Name::Fd)
            .ok_or_else(|| usage("a descriptor number is required after fd:, for example fd:3")),
        b"tcp" => connect().map(Name::Tcp),
        b"tcp-listen" => listen().map(Name::TcpListen),
        b"udp" => connect().map(Name::Udp),
        b"udp-listen" => listen().map(Name::UdpListen),
        b"unix" => unix().map(Name::Unix),
        b"unix-listen" => unix().map(Name::UnixListen),
        b"unix-dgram" => unix().map(Name::UnixDgram),
        b"unix-seqpacket" => unix().map(Name::UnixSeqpacket),
        b"unix-seqpacket-listen" => unix().map(Name::UnixSeqpacketListen),
        scheme if misspelt(scheme, side) && !exists(operand, side)? => {
            let text = format!(
                "unknown scheme {}:, and no such file exists",
                String::from_utf8_lossy(scheme)
            );
            let known = format!(
                "known schemes: {}:; for a path, use file:PATH",
                SCHEMES.join(":, ")
            );
            Err(usage(&text).help(known))
        }
        _ => Ok(Name::Path(operand.into())),
    }
}

/// Whether this names an endpoint that is not a path, valid or not.
pub fn names_other_endpoint(operand: &OsStr) -> bool {
    let bytes = operand.as_bytes();
    let scheme = bytes.splitn(2, |b| *b == b':').next().unwrap_or_default();
    let known = |known: &str| known != "file" && known.as_bytes() == scheme;
    bytes == b"-" || (scheme.len() < bytes.len() && SCHEMES.iter().any(|name| known(name)))
}

/// Parses an operand that is a file or `-`, and not another endpoint.
pub fn file(operand: &OsStr, side: Side) -> Result<Name, Problem> {
    let path = match operand.as_bytes() {
        b"" | b"-" | b"file:" => return parse(operand, side),
        bytes => bytes.strip_prefix(b"file:"),
    };
    Ok(Name::Path(match path {
        Some(path) if !exists(operand, side)? => OsString::from_vec(path.to_vec()).into(),
        _ => operand.into(),
    }))
}

/// Whether anything has this name, including a dangling symlink. A file that
/// cannot be reached does not count.
fn exists(path: &OsStr, side: Side) -> Result<bool, Problem> {
    let found = if_reachable(interruptible(|| rustix::fs::lstat(path))?);
    let shown = path.to_string_lossy();
    let found = found.map_err(|errno| Problem::call(shown, side, errno, Action::Open))?;
    Ok(found.is_some())
}

/// Whether a scheme is probably misspelt. A source of that name does not exist;
/// a sink may be a new file, unless the word is one typing error away from a
/// scheme.
fn misspelt(scheme: &[u8], side: Side) -> bool {
    let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+');
    if scheme.is_empty() || !scheme[0].is_ascii_alphabetic() || !scheme.iter().all(word) {
        return false;
    }
    let lower = scheme.to_ascii_lowercase();
    side == Side::Source
        || (SCHEMES.iter()).any(|known| known.len() > 2 && near(&lower, known.as_bytes()))
}

/// Whether two words differ in at most one letter that is wrong, missing,
/// added, or swapped with the next.
fn near(a: &[u8], b: &[u8]) -> bool {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[same..], &b[same..]);
    match (a, b) {
        ([], rest) | (rest, []) => rest.len() <= 1,
        ([_, a1 @ ..], [_, b1 @ ..]) => {
            let swapped = a.len() > 1 && b.len() > 1 && a[0] == b[1] && a[1] == b[0];
            a1 == b1 || a1 == b || a == b1 || (swapped && a[2..] == b[2..])
        }
    }
}

/// Parses `HOST:PORT` or `[ADDRESS]:PORT`; for listening also `:PORT`, every
/// address.
fn host(text: &[u8], listening: bool) -> Result<Host, String> {
    let text = std::str::from_utf8(text).map_err(|_| "a host name must be UTF-8".to_owned())?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest
            .split_once("]:")
            .ok_or("an address in brackets must be followed by :PORT, for example [::1]:9000")?,
        None => text
            .rsplit_once(':')
            .ok_or("HOST:PORT is required, for example localhost:9000")?,
    };
    if host.contains(':') && !text.starts_with('[') {
        return Err("an IPv6 address must be in brackets, for example [::1]:9000".to_owned());
    }
    let host = match host {
        "" if !listening => {
            return Err(
                "a host is required before the port, for example localhost:9000".to_owned(),
            );
        }
        host => host,
    };
    // `parse` accepts a plus sign.
    let is_number = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port.parse::<u16>() {
        Ok(0) if !listening => Err(()),
        Ok(port) if is_number => Ok(port),
        _ => Err(()),
    };
    let port = port.map_err(|()| {
        let lowest = u8::from(!listening);
        format!("the port must be a number from {lowest} to 65535")
    })?;
    Ok(Host {
        host: host.to_owned(),
        port,
        addresses: OnceLock::new(),
    })
}

#[cfg(test)]
mod tests;

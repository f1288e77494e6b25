//! The flags of the servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use crate::units;

/// The flags of `serve`.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub struct Serve {
    /// The protocol.
    #[command(subcommand)]
    pub protocol: Protocol,
}

/// The protocol of `serve`.
#[derive(Debug, Subcommand)]
pub enum Protocol {
    /// Serve a directory by FTP
    ///
    /// Each data connection is a control descriptor (docs/cue-protocol.md), so the
    /// bytes take the same paths as with `splice`, and each transfer can be paced and
    /// cancelled. Anonymous clients may read. After SIGTERM or SIGINT, the server
    /// waits for running transfers, but not longer than --grace, and exits. A second
    /// signal ends it at once.
    #[command(after_help = super::texts::help(&[&super::texts::OF_SERVE]))]
    Ftp(Ftp),
}

/// The flags of `serve ftp`.
#[derive(Debug, Args)]
pub struct Ftp {
    /// The directory to serve. Clients cannot reach files outside of it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "hash_password")]
    pub root: Option<PathBuf>,
    /// The address to listen at. Port 0: any free port, which is logged
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:2121")]
    pub listen: SocketAddr,
    /// Allow an address that other machines can reach
    ///
    /// FTP without TLS sends passwords and bytes unencrypted.
    #[arg(long)]
    pub public: bool,
    /// A file of users, one per line: NAME:HASH or NAME:HASH:ro
    ///
    /// --hash-password prints such a line. A user may write, unless the line ends
    /// with :ro. After ten wrong passwords from one address within ten minutes, further
    /// passwords from it are refused until ten minutes after the first one. Anonymous
    /// logins are not refused.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub users: Option<PathBuf>,
    /// Refuse anonymous clients
    #[arg(long, requires = "users")]
    pub no_anonymous: bool,
    /// Read a password from standard input, print the line of this user for
    /// --users, and exit
    #[arg(long, value_name = "NAME", exclusive = true)]
    pub hash_password: Option<String>,
    /// Limit each transfer to this many bytes a second
    #[arg(long, value_name = "BYTES", value_parser = units::per_second)]
    #[arg(allow_hyphen_values = true)]
    pub rate: Option<u64>,
    /// The maximum number of clients at a time
    #[arg(long, value_name = "N", value_parser = units::clients, default_value = "256")]
    #[arg(allow_hyphen_values = true)]
    pub clients: usize,
    /// The maximum number of clients at a time from one address. With IPv6, the addresses of a
    /// /64 network count as one
    #[arg(long, value_name = "N", value_parser = units::clients, default_value = "128")]
    #[arg(allow_hyphen_values = true)]
    pub clients_per_address: usize,
    /// Disconnect a client that is idle for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds, default_value = "300")]
    #[arg(allow_hyphen_values = true)]
    pub idle: Duration,
    /// At shutdown, wait up to this many seconds for running transfers
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds, default_value = "10")]
    #[arg(allow_hyphen_values = true)]
    pub grace: Duration,
    /// The ports of passive data connections. The default is any free port
    ///
    /// A session listens at a port until its data connection is made. The sessions of one
    /// address together use at most half of the ports that no other address uses, rounded up.
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    #[arg(allow_hyphen_values = true)]
    pub passive_ports: Option<(u16, u16)>,
    /// Append the log to this file instead of standard error
    ///
    /// The line of a transfer has: time, client, user, command, file, bytes, seconds,
    /// data path, result. In names, a space is \x20, and a backslash is doubled.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// A PEM file with the certificate chain for AUTH TLS
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Refuse logins and data connections without TLS
    #[arg(long, requires = "tls_cert")]
    pub require_tls: bool,
}

/// Parses a range of ports: `50000-50100`.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let parsed = text.split_once('-').and_then(|(first, last)| {
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (0 < first && first <= last).then_some((first, last))
    });
    parsed.ok_or_else(|| "a range of ports is FIRST-LAST, for example 50000-50100".to_owned())
}

//! A server that is stopped when it is dropped.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use testkit::refuse::refuse;

use super::client::Client;
use super::common::{Owned, Run, Start, TempDir, apart, cordboard, dir, end, piped, signal, until};

/// The password of each user of the tests.
pub const PASSWORD: &str = "open sesame";

pub struct Server {
    // Dropped before its folder.
    child: Option<Owned>,
    pub folder: TempDir,
    pub address: SocketAddr,
}

impl Server {
    /// Serves an empty directory, to anonymous clients and to `ann`, who may write, and
    /// `bob`, who may not.
    pub fn start(flags: &[&str]) -> Server {
        Server::at("127.0.0.1:0", flags)
    }

    pub fn at(address: &str, flags: &[&str]) -> Server {
        // Not the one of the user who runs the tests.
        let home = dir();
        Server::with(address, flags, home.path())
    }

    /// A server with this runtime directory.
    pub fn with(address: &str, flags: &[&str], home: &Path) -> Server {
        Server::by(cordboard(), address, flags, home, users().as_bytes())
    }

    /// A server with these users.
    pub fn with_users(users: &[u8]) -> Server {
        Server::by(cordboard(), "127.0.0.1:0", &[], dir().path(), users)
    }

    /// A server in which each of these calls fails with its errno.
    pub fn refusing(calls: &[(libc::c_long, i32)]) -> Server {
        apart(|| {
            for (call, errno) in calls {
                refuse(&[*call], *errno);
            }
            Server::start(&[])
        })
    }

    /// A server whose user is restricted by the modes of files, unlike root. `None`: the test is
    /// skipped.
    pub fn mortal() -> Option<Server> {
        let mut command = cordboard();
        if rustix::process::geteuid().is_root() {
            let without = "--bounding-set=-dac_override,-dac_read_search";
            let can = Command::new("setpriv").args([without, "true"]).output();
            if !can.is_ok_and(|tried| tried.status.success()) {
                testkit::skip::here("without setpriv, root has all permissions");
                return None;
            }
            let mut wrapped = Command::new("setpriv");
            wrapped.arg(without).arg(command.get_program());
            wrapped.stdin(Stdio::null());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => wrapped.env(name, value),
                    None => wrapped.env_remove(name),
                };
            }
            command = wrapped;
        }
        let home = dir();
        let users = users().as_bytes();
        Some(Server::by(command, "127.0.0.1:0", &[], home.path(), users))
    }

    /// A server that this command runs.
    fn by(
        mut command: Command,
        address: &str,
        flags: &[&str],
        home: &Path,
        users: &[u8],
    ) -> Server {
        let folder = dir();
        std::fs::create_dir(folder.path().join("root")).unwrap();
        std::fs::write(folder.path().join("users"), users).unwrap();
        let log = folder.path().join("log");
        let child = command
            .args(["serve", "ftp", "--listen", address, "--root"])
            .arg(folder.path().join("root"))
            .arg("--users")
            .arg(folder.path().join("users"))
            .arg("--log")
            .arg(&log)
            .args(flags)
            .env("CORDBOARD_RUNTIME_DIR", home)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .start();
        let address = until("the address", || {
            let text = std::fs::read_to_string(&log).ok()?;
            let (_, rest) = text.split_once("listening at ")?;
            rest.split_once(',')?.0.parse().ok()
        });
        Server {
            folder,
            address,
            child: Some(child),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Waits for a line of the log that contains all these words.
    #[track_caller]
    pub fn logs(&self, words: &[&str]) -> String {
        until(&format!("{words:?} in {}", self.log()), || {
            let log = self.log();
            let mut lines = log.lines();
            let line = lines.find(|line| words.iter().all(|word| line.contains(word)));
            line.map(str::to_owned)
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The most memory that the server has used so far, in KiB.
    pub fn most_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let (_, rest) = status.split_once("VmHWM:").unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The number of descriptors of the server.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn anonymous(&self) -> Client {
        let mut client = self.connect();
        client.login("anonymous", "me@example.org");
        client
    }

    pub fn ann(&self) -> Client {
        let mut client = self.connect();
        client.login("ann", PASSWORD);
        client
    }

    /// A client in the middle of a download that fills the data connection, and that
    /// connection.
    pub fn in_a_download(&self) -> (Client, TcpStream) {
        let large = std::fs::File::create(self.path("large")).unwrap();
        large.set_len(1 << 30).unwrap();
        let mut client = self.anonymous();
        let mut data = client.passive();
        client.ask("RETR large", 150);
        data.read_exact(&mut [0; 100]).unwrap();
        (client, data)
    }

    pub fn signal(&self, number: Signal) {
        signal(self.pid(), number);
    }

    /// Does this while no thread of the server runs.
    pub fn while_stopped(&self, work: impl FnOnce()) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        until("a stop", || {
            let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).ok();
                // A thread that has ended meanwhile does not run either.
                stat.is_none_or(|stat| stat.rsplit(") ").next().unwrap().starts_with('T'))
            };
            let mut all = std::fs::read_dir(&tasks).unwrap();
            all.all(is_stopped).then_some(())
        });
        work();
        self.signal(Signal::CONT);
    }

    /// Waits for the end of the server.
    pub fn end(&mut self) -> Run {
        end(self.child.take().unwrap())
    }
}

/// The lines of the users. They are hashed once, because argon2 is slow by design.
fn users() -> &'static str {
    static USERS: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    USERS.get_or_init(|| {
        let mut child = piped(cordboard().args(["serve", "ftp", "--hash-password", "ann"]));
        super::common::feed(&mut child, PASSWORD.as_bytes());
        let run = end(child);
        let line = String::from_utf8(run.ok().stdout().to_vec()).unwrap();
        let hash = line.trim().strip_prefix("ann:").unwrap();
        format!("# users of the tests\nann:{hash}\nbob:{hash}:ro\n")
    })
}

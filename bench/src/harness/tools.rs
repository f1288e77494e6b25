//! Finds the programs to compare.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::contestant::{Contestant, Role};

/// The variable with the path of the `cordboard` to measure. By default it is
/// built.
pub const BINARY_VARIABLE: &str = "CORDBOARD_BIN";
/// The variable with the `--root` of `cargo install` for the peers.
pub const PEERS_VARIABLE: &str = "CORDBOARD_PEERS";

/// The programs that were found.
#[derive(Debug, Clone)]
pub struct Tools {
    /// This program, which contains the baselines.
    pub bench: PathBuf,
    /// The `cordboard` command.
    pub cordboard: PathBuf,
    /// The directory in which cargo has installed the peers.
    peers: PathBuf,
}

impl Tools {
    /// Finds the programs, and builds the command if necessary.
    pub fn find() -> Result<Tools> {
        let bench = std::env::current_exe()?;
        let directory = bench.parent().context("no directory")?.to_owned();
        let target = directory
            .parent()
            .context("no target directory")?
            .to_owned();
        let cordboard = match std::env::var_os(BINARY_VARIABLE) {
            Some(path) => PathBuf::from(path)
                .canonicalize()
                .with_context(|| BINARY_VARIABLE)?,
            None => {
                let built = directory.join("cordboard");
                // Always under `cargo run`, so that no outdated command is
                // measured.
                if std::env::var_os("CARGO").is_some() || !built.is_file() {
                    build(&target)?;
                }
                built
            }
        };
        let peers = std::env::var_os(PEERS_VARIABLE).map_or(target.join("peers"), PathBuf::from);
        Ok(Tools {
            bench,
            cordboard,
            peers,
        })
    }

    /// The command as a contestant.
    pub fn ours(&self, name: &str, args: &str) -> Contestant {
        Contestant::new(name, Role::Ours, &self.cordboard, args)
    }

    /// The library as a contestant, called by a process of this program.
    pub fn library(&self, args: &str) -> Contestant {
        let args = format!("baseline library {args}");
        Contestant::new("library", Role::Ours, &self.bench, &args)
    }

    /// A hand-written loop.
    pub fn baseline(&self, name: &str, args: &str) -> Contestant {
        Contestant::new(
            name,
            Role::Baseline,
            &self.bench,
            &format!("baseline {args}"),
        )
    }

    /// The system's tool of this name, if it is GNU's.
    pub fn gnu(&self, tool: &str, args: &str) -> Option<Contestant> {
        let path = on_path(tool)?;
        let is_gnu = version(&path)?.contains("GNU");
        is_gnu.then(|| Contestant::new(tool, Role::Reference, path, args))
    }

    /// Another program of the system.
    pub fn peer(&self, tool: &str, args: &str) -> Option<Contestant> {
        Some(Contestant::new(tool, Role::Peer, on_path(tool)?, args))
    }

    /// The tool of uutils, installed by
    /// `cargo install uu_cat uu_cp --root target/peers`.
    pub fn uutils(&self, tool: &str, args: &str) -> Option<Contestant> {
        let path = self.uutils_path(tool)?;
        Some(Contestant::new(
            &format!("uutils {tool}"),
            Role::Peer,
            path,
            args,
        ))
    }

    fn uutils_path(&self, tool: &str) -> Option<PathBuf> {
        let path = self.peers.join("bin").join(tool);
        version(&path)?.contains("uutils").then_some(path)
    }

    /// The server of pyftpdlib, by the first Python on the path that has it.
    pub fn pyftpdlib(&self, args: &str) -> Option<Contestant> {
        let pythons = all_on_path("python3");
        let has_it = |python: &PathBuf| {
            let mut import = Command::new(python);
            import.args(["-c", "import pyftpdlib"]);
            let ran = import.stdin(Stdio::null()).output();
            ran.is_ok_and(|output| output.status.success())
        };
        let python = pythons.into_iter().find(has_it)?;
        let args = format!("-W ignore -m pyftpdlib {args}");
        Some(Contestant::new("pyftpdlib", Role::Peer, python, &args))
    }

    /// The help text of a subcommand of the command.
    pub fn help_of(&self, subcommand: &str) -> String {
        let ran = Command::new(&self.cordboard)
            .args([subcommand, "--help"])
            .output();
        ran.map_or(String::new(), |o| {
            String::from_utf8_lossy(&o.stdout).into_owned()
        })
    }

    /// All programs that may be compared, with the first line of their
    /// versions.
    pub fn versions(&self) -> Vec<(String, String)> {
        let mut all = vec![("cordboard".to_owned(), version(&self.cordboard))];
        for tool in [
            "cat",
            "cp",
            "tee",
            "dd",
            "pv",
            "perf",
            "mkfs.xfs",
            "mkfs.btrfs",
        ] {
            all.push((tool.to_owned(), on_path(tool).as_deref().and_then(version)));
        }
        all.push((
            "socat".to_owned(),
            on_path("socat").as_deref().and_then(socat_version),
        ));
        all.push(("vsftpd".to_owned(), vsftpd_version()));
        let module = self
            .pyftpdlib("")
            .and_then(|c| pyftpdlib_version(&c.program));
        all.push(("pyftpdlib".to_owned(), module));
        for tool in ["cat", "cp"] {
            let found = self.uutils_path(tool).as_deref().and_then(version);
            all.push((format!("uutils {tool}"), found));
        }
        all.into_iter()
            .map(|(tool, v)| (tool, v.unwrap_or("not found".to_owned())))
            .collect()
    }
}

/// Builds the command in the directory of this program.
fn build(target: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "-q", "-p", "cordboard-cli", "--target-dir"])
        .arg(target);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    if !command.status().context("cannot run cargo")?.success() {
        bail!("cordboard-cli does not build; set {BINARY_VARIABLE} to the path of another one");
    }
    Ok(())
}

fn on_path(tool: &str) -> Option<PathBuf> {
    all_on_path(tool).into_iter().next()
}

/// All programs of this name, and those where only root looks.
fn all_on_path(tool: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    directories.push("/usr/sbin".into());
    let candidates = directories.iter().map(|directory| directory.join(tool));
    candidates.filter(|path| path.is_file()).collect()
}

/// The first line that `--version` (or `-V`) prints.
fn version(program: &Path) -> Option<String> {
    ["--version", "-V"].iter().find_map(|flag| {
        let ran = Command::new(program)
            .arg(flag)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&ran.stdout);
        // Drops the author, which some programs print after the version.
        let first = text.lines().next()?.split(" - ").next()?.trim();
        let first = first.replace(
            &*program.to_string_lossy(),
            &program.file_name()?.to_string_lossy(),
        );
        (ran.status.success() && !first.is_empty()).then_some(first)
    })
}

fn socat_version(program: &Path) -> Option<String> {
    let ran = Command::new(program).arg("-V").output().ok()?;
    let text = String::from_utf8_lossy(&ran.stdout);
    text.lines()
        .find(|line| line.starts_with("socat version"))
        .map(str::to_owned)
}

/// vsftpd prints its version on standard input.
fn vsftpd_version() -> Option<String> {
    let program = on_path("vsftpd")?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "\"$0\" -v 0>&1"]).arg(program);
    first_line_of(shell)
}

fn pyftpdlib_version(python: &Path) -> Option<String> {
    let mut command = Command::new(python);
    command.args(["-W", "ignore", "-c"]);
    command.arg("import pyftpdlib; print('pyftpdlib', pyftpdlib.__ver__)");
    first_line_of(command)
}

fn first_line_of(mut command: Command) -> Option<String> {
    let ran = command.output().ok()?;
    let text = String::from_utf8_lossy(&ran.stdout);
    text.lines().next().map(|line| line.trim().to_owned())
}

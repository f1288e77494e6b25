//! The programs to compare, where they are found.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::contestant::{Contestant, Role};

/// Names the `cordboard` to measure; otherwise it is built.
pub const BINARY_VARIABLE: &str = "CORDBOARD_BIN";
/// Names the root that `cargo install --root` has put the peers in.
pub const PEERS_VARIABLE: &str = "CORDBOARD_PEERS";

/// What was found.
#[derive(Debug, Clone)]
pub struct Tools {
    /// This program, which has the baselines in it.
    pub bench: PathBuf,
    /// The `cordboard` command.
    pub cordboard: PathBuf,
    /// The root of the peers installed by cargo.
    peers: PathBuf,
}

impl Tools {
    /// Looks, and builds the command if need be.
    pub fn find() -> Result<Tools> {
        let bench = std::env::current_exe()?;
        let beside = bench.parent().context("no directory")?.to_owned();
        let target = beside.parent().context("no target directory")?.to_owned();
        let cordboard = match std::env::var_os(BINARY_VARIABLE) {
            Some(path) => PathBuf::from(path)
                .canonicalize()
                .with_context(|| BINARY_VARIABLE)?,
            None => {
                let built = beside.join("cordboard");
                // Under `cargo run`, so that nothing stale is measured.
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

    /// One of ours.
    pub fn ours(&self, name: &str, args: &str) -> Contestant {
        Contestant::new(name, Role::Ours, &self.cordboard, args)
    }

    /// The library, called by a process of this program.
    pub fn library(&self, args: &str) -> Contestant {
        let args = format!("baseline library {args}");
        Contestant::new("library", Role::Ours, &self.bench, &args)
    }

    /// One of the hand-written loops.
    pub fn baseline(&self, name: &str, args: &str) -> Contestant {
        Contestant::new(
            name,
            Role::Baseline,
            &self.bench,
            &format!("baseline {args}"),
        )
    }

    /// GNU's tool, if that is what this system has under the name.
    pub fn gnu(&self, tool: &str, args: &str) -> Option<Contestant> {
        let path = on_path(tool)?;
        let is_gnu = version(&path)?.contains("GNU");
        is_gnu.then(|| Contestant::new(tool, Role::Reference, path, args))
    }

    /// A program of the system.
    pub fn peer(&self, tool: &str, args: &str) -> Option<Contestant> {
        Some(Contestant::new(tool, Role::Peer, on_path(tool)?, args))
    }

    /// uutils' tool: installed by
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

    /// What the command's help says.
    pub fn help_of(&self, subcommand: &str) -> String {
        let ran = Command::new(&self.cordboard)
            .args([subcommand, "--help"])
            .output();
        ran.map_or(String::new(), |o| {
            String::from_utf8_lossy(&o.stdout).into_owned()
        })
    }

    /// Every program that may take part, with the first line of its version.
    pub fn versions(&self) -> Vec<(String, String)> {
        let mut all = vec![("cordboard".to_owned(), version(&self.cordboard))];
        for tool in ["cat", "cp", "dd", "pv", "perf", "mkfs.xfs", "mkfs.btrfs"] {
            all.push((tool.to_owned(), on_path(tool).as_deref().and_then(version)));
        }
        all.push((
            "socat".to_owned(),
            on_path("socat").as_deref().and_then(socat_version),
        ));
        for tool in ["cat", "cp"] {
            let found = self.uutils_path(tool).as_deref().and_then(version);
            all.push((format!("uutils {tool}"), found));
        }
        all.into_iter()
            .map(|(tool, v)| (tool, v.unwrap_or("not found".to_owned())))
            .collect()
    }
}

/// Builds the command beside this program.
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
        bail!("cordboard-cli does not build; {BINARY_VARIABLE}=PATH measures another one");
    }
    Ok(())
}

fn on_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(tool))
        .find(|candidate| candidate.is_file())
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
        // Without the author that some name after the number.
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

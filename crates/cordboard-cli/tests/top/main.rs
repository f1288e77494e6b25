//! `cordboard top`, at a terminal, as a person uses it.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod keys;
mod listed;
mod terminal;
mod tty;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Owned, Start, TempDir, cordboard, until};

/// The runtime directory of one test.
pub struct Home(TempDir);

impl Home {
    pub fn make() -> Home {
        Home(common::dir())
    }

    /// `cordboard` with this runtime directory.
    pub fn cordboard(&self) -> Command {
        let mut command = cordboard();
        command.env("CORDBOARD_RUNTIME_DIR", self.0.path());
        command
    }

    /// The directory of the entries.
    pub fn list(&self) -> PathBuf {
        self.0.path().join("cordboard")
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The names of the entries, whole ones and others.
    pub fn entries(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.list()).into_iter().flatten();
        files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Starts a transfer without an end, and waits until it is listed and runs.
    pub fn moving(&self, socket: &str, args: &[&str]) -> Moving {
        self.moving_with(socket, args, |_| ())
    }

    /// The same, of a command that is changed before.
    pub fn moving_with(
        &self,
        socket: &str,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Moving {
        let whole = || {
            self.entries()
                .iter()
                .filter(|name| name.ends_with(".json"))
                .count()
        };
        let before = whole();
        let socket = self.path().join(socket);
        let mut command = self.cordboard();
        change(&mut command);
        let child = command
            .args(["splice", "/dev/zero", "/dev/null"])
            .args(args)
            .arg("--control")
            .arg(&socket)
            .stderr(Stdio::piped())
            .start();
        until("an entry", || (whole() > before).then_some(()));
        let moving = Moving { child, socket };
        until("the start", || {
            (moving.status()["state"] == "running").then_some(())
        });
        moving
    }
}

/// A transfer, which is killed at the end.
pub struct Moving {
    pub child: Owned,
    pub socket: PathBuf,
}

impl Moving {
    /// Its status.
    pub fn status(&self) -> serde_json::Value {
        let run = common::run(
            cordboard()
                .arg("cue")
                .arg(&self.socket)
                .args(["status", "--json"]),
        );
        assert_eq!(run.code(), 0, "{}", run.stderr());
        serde_json::from_slice(run.stdout()).unwrap()
    }

    pub fn cue(&self, args: &[&str]) {
        let run = common::run(cordboard().arg("cue").arg(&self.socket).args(args));
        assert_eq!(run.code(), 0, "{}", run.stderr());
    }
}

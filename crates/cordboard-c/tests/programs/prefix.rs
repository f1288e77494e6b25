//! The library, built once and installed into its own prefix.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Checks for the tools that all tests need.
fn tools() -> Result<(), String> {
    for tool in ["cc", "make", "pkg-config"] {
        let found = Command::new(tool).arg("--version").output();
        if !found.is_ok_and(|out| out.status.success()) {
            return Err(format!("no {tool}"));
        }
    }
    Ok(())
}

/// Runs a command, which must succeed, and returns its output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let out = command.output().expect("it can be started");
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("it prints text")
}

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of `libcordboard_c.a` of this source tree, as cargo prints
/// it. Without cargo, returns that of an archive that was built elsewhere.
fn archive() -> PathBuf {
    if let Some(built) = std::env::var_os("CORDBOARD_C_ARCHIVE") {
        return built.into();
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "-p", "cordboard-c", "--lib", "--locked"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(here());
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    run(&mut build)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "cordboard_c")
        .filter_map(|message| {
            let names = message["filenames"].as_array()?.iter();
            let names = names.filter_map(serde_json::Value::as_str);
            names
                .map(PathBuf::from)
                .find(|p| p.extension() == Some("a".as_ref()))
        })
        .next_back()
        .expect("cargo names the archive")
}

/// Runs `make` in the directory of the crate.
pub fn make(target: &str, variables: &[(&str, &Path)]) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(here()).arg(target);
    for (name, value) in variables {
        make.arg(format!("{name}={}", value.display()));
    }
    // An outer make sets these.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    make
}

pub struct Prefix {
    pub path: PathBuf,
    pub archive: PathBuf,
    build: PathBuf,
}

impl Prefix {
    /// Runs `make` with the archive, so that it does not call cargo.
    pub fn command(&self, target: &str, variables: &[(&str, &Path)]) -> Command {
        let mut all: Vec<(&str, &Path)> = vec![("ARCHIVE", &self.archive), ("BUILD", &self.build)];
        all.extend(variables);
        make(target, &all)
    }

    /// Runs it.
    pub fn make(&self, target: &str, variables: &[(&str, &Path)]) {
        run(&mut self.command(target, variables));
    }

    /// The output of pkg-config with these options.
    pub fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command
            .env("PKG_CONFIG_PATH", self.path.join("lib/pkgconfig"))
            .args(arguments)
            .arg("cordboard");
        let words = run(&mut command);
        words.split_whitespace().map(str::to_owned).collect()
    }
}

/// The prefix; `None`, with a report of the skip, if tools are missing.
pub fn prefix() -> Option<&'static Prefix> {
    static PREFIX: OnceLock<Option<Prefix>> = OnceLock::new();
    let made = PREFIX.get_or_init(|| {
        if let Err(reason) = tools() {
            testkit::skip::report("the C library", &reason);
            return None;
        }
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
        std::fs::create_dir_all(&root).expect("there is room");
        let prefix = Prefix {
            path: root.join("prefix"),
            archive: archive(),
            build: root.join("build"),
        };
        // Locked: another test process may install at the same time.
        let alone = std::fs::File::create(root.join("lock")).expect("there is room");
        alone.lock().expect("files can be locked here");
        prefix.make("all", &[]);
        prefix.make("install", &[("PREFIX", &prefix.path)]);
        Some(prefix)
    });
    made.as_ref()
}

//! Compiling and running one program in C.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::prefix::{Prefix, here, prefix, run};

#[derive(Clone, Copy, PartialEq)]
pub enum Language {
    C,
    Cpp,
}

pub struct Program {
    path: PathBuf,
    forks: bool,
}

const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wshadow"];

/// Misuse of memory, and leaks, are failures. What a running thread still has
/// is "possibly lost" or "still reachable".
const VALGRIND: &[&str] = &[
    "--quiet",
    "--error-exitcode=99",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

/// Valgrind is installed and can start a program: it asks `statx(2)` about it.
fn has_valgrind() -> bool {
    static RUNS: OnceLock<bool> = OnceLock::new();
    *RUNS.get_or_init(|| {
        let mut valgrind = Command::new("valgrind");
        let tried = valgrind.args(["--quiet", "--tool=none", "true"]).output();
        tried.is_ok_and(|out| out.status.success())
    })
}

fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output();
    found.is_ok_and(|out| out.status.success())
}

impl Program {
    /// `tests/c/NAME.c`, or `None` where it cannot be compiled here.
    pub fn test(name: &str, language: Language, forks: bool) -> Option<Program> {
        let source = here().join("tests/c").join(name).with_extension("c");
        Program::compile(prefix()?, &source, language, forks)
    }

    /// `examples/NAME.c`, as any program outside this tree would be.
    pub fn example(name: &str) -> Option<Program> {
        let source = here().join("examples").join(name).with_extension("c");
        Program::compile(prefix()?, &source, Language::C, false)
    }

    fn compile(prefix: &Prefix, source: &Path, language: Language, forks: bool) -> Option<Program> {
        let stem = source.file_stem()?.to_str()?;
        let (compiler, standard, end) = match language {
            Language::C => ("cc", "-std=c11", ""),
            Language::Cpp => ("c++", "-std=c++11", "-cpp"),
        };
        if !has(compiler) {
            testkit::skip::report("the C library from C++", "no c++");
            return None;
        }
        // Tests of this process and of another may compile at the same time,
        // and two of one process the same program.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
        let path = folder.join(format!("{stem}{end}-{}-{number}", std::process::id()));
        let mut command = Command::new(compiler);
        command
            .args([standard, "-g", "-O1"])
            .args(WARNINGS)
            .arg("-D_GNU_SOURCE");
        if language == Language::Cpp {
            command.args(["-x", "c++"]);
        }
        command
            .arg("-o")
            .arg(&path)
            .arg(source)
            .args(["-x", "none"]);
        if !has_valgrind() && language == Language::C {
            // The address sanitizer's allocator does not survive a fork beside
            // other threads: the child waits for a lock that one of them had.
            command.arg(if forks {
                "-fsanitize=undefined"
            } else {
                "-fsanitize=address,undefined"
            });
        }
        command.args(prefix.pkg_config(&["--cflags", "--libs"]));
        command.arg("-pthread");
        command.arg(format!("-Wl,-rpath,{}", prefix.path.join("lib").display()));
        run(&mut command);
        Some(Program { path, forks })
    }

    /// It, as it is.
    pub fn plain(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .env_remove("CORDBOARD_ROUTE")
            .env_remove("CORDBOARD_WITHOUT");
        command
    }

    /// It, with its memory watched. In a child of fork(2) what the parent's
    /// threads had on their stacks looks leaked: not to be asked for there.
    pub fn checked(&self) -> Command {
        if !has_valgrind() {
            testkit::skip::report(
                "valgrind",
                "does not run here; the compiler's checks instead",
            );
            return self.plain();
        }
        let mut command = Command::new("valgrind");
        command
            .args(VALGRIND)
            .arg(match self.forks {
                true => "--leak-check=no",
                false => "--leak-check=full",
            })
            .arg(&self.path)
            .env_remove("CORDBOARD_ROUTE")
            .env_remove("CORDBOARD_WITHOUT");
        command
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

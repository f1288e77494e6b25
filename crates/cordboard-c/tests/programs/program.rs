//! Compiles and runs one C program.

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

/// Memory errors and leaks are failures. The memory of a running thread is
/// "possibly lost" or "still reachable", which is not a failure.
const VALGRIND: &[&str] = &[
    "--quiet",
    "--error-exitcode=99",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

/// Whether valgrind is installed and can start a program: it needs `statx(2)`.
fn has_valgrind() -> bool {
    static RUNS: OnceLock<bool> = OnceLock::new();
    *RUNS.get_or_init(|| {
        let mut valgrind = Command::new("valgrind");
        let tried = valgrind.args(["--quiet", "--tool=none", "true"]).output();
        tried.is_ok_and(|out| out.status.success())
    })
}

/// Whether a program that is linked with the compiler's sanitizers can be made and runs.
fn has_sanitizers() -> bool {
    static RUNS: OnceLock<bool> = OnceLock::new();
    *RUNS.get_or_init(|| {
        let tried = || {
            let folder = tempfile::tempdir()?;
            let (source, program) = (folder.path().join("tried.c"), folder.path().join("tried"));
            std::fs::write(&source, "int main(void) { return 0; }\n")?;
            let mut cc = Command::new("cc");
            cc.arg("-fsanitize=address,undefined").arg("-o");
            let made = cc.arg(&program).arg(&source).output()?;
            let runs = made.status.success() && Command::new(&program).output()?.status.success();
            std::io::Result::Ok(runs)
        };
        tried().unwrap_or(false)
    })
}

fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output();
    found.is_ok_and(|out| out.status.success())
}

impl Program {
    /// Compiles `tests/c/NAME.c`; `None` if that is not possible here.
    pub fn test(name: &str, language: Language, forks: bool) -> Option<Program> {
        let source = here().join("tests/c").join(name).with_extension("c");
        Program::compile(prefix()?, &source, language, forks)
    }

    /// Compiles `examples/NAME.c` as a program outside this source tree.
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
        // Other tests and other processes may compile the same program at the
        // same time.
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
        if !has_valgrind() && language == Language::C && has_sanitizers() {
            // The address sanitizer's allocator does not support fork(2) with
            // several threads: the child waits for a lock of one of them.
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

    /// Runs it without checks.
    pub fn plain(&self) -> Command {
        let mut command = Command::new(&self.path);
        testkit::environment::defaults(&mut command);
        command
    }

    /// Runs it with memory checks. A program that forks is not checked for
    /// leaks: in a child, memory that only the parent's threads refer to looks
    /// leaked.
    pub fn checked(&self) -> Command {
        if !has_valgrind() {
            let instead = match has_sanitizers() {
                true => "does not run here; the compiler's sanitizers instead",
                false => {
                    "does not run here, nor do the compiler's sanitizers: memory is not checked"
                }
            };
            testkit::skip::report("valgrind", instead);
            return self.plain();
        }
        let mut command = Command::new("valgrind");
        command
            .args(VALGRIND)
            .arg(match self.forks {
                true => "--leak-check=no",
                false => "--leak-check=full",
            })
            .arg(&self.path);
        testkit::environment::defaults(&mut command);
        command
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

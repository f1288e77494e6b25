//! The files that `make install` installs.

use std::path::Path;
use std::process::Command;

use super::prefix::{Prefix, here, make, prefix, run};

/// The symbols that a shared library exports, by `nm`.
fn symbols(library: &Path) -> Vec<String> {
    let listed = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library));
    let mut names: Vec<String> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn all_exported_symbols_are_versioned() {
    let Some(prefix) = prefix() else { return };
    let library = prefix.path.join("lib/libcordboard.so");
    let symbols = symbols(&library);
    let calls: Vec<&String> = symbols
        .iter()
        .filter(|name| *name != "CORDBOARD_0.1")
        .collect();
    assert!(calls.len() > 15, "{symbols:?}");
    for call in calls {
        assert!(
            call.starts_with("cord_") && call.ends_with("@@CORDBOARD_0.1"),
            "{call}"
        );
    }
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libcordboard.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn uninstall_removes_every_installed_file() {
    let Some(prefix) = prefix() else { return };
    let stage = tempfile::tempdir().unwrap();
    let variables: [(&str, &Path); 2] = [
        ("PREFIX", Path::new("/opt/cordboard")),
        ("DESTDIR", stage.path()),
    ];
    prefix.make("install", &variables);
    let root = stage.path().join("opt/cordboard");
    for file in [
        "include/cordboard.h",
        "include/cordboard/classic.h",
        "lib/libcordboard.a",
        "lib/libcordboard.so",
        "lib/libcordboard.so.0",
        concat!("lib/libcordboard.so.", env!("CARGO_PKG_VERSION")),
        "lib/pkgconfig/cordboard.pc",
        "share/doc/cordboard/c.md",
        "share/doc/cordboard/player.c",
        "share/doc/cordboard/cue-protocol.md",
        "share/doc/cordboard/json.md",
        "share/doc/cordboard/scp.c",
        "share/doc/cordboard/cue.c",
        "share/doc/cordboard/ftpd.c",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    let pc = std::fs::read_to_string(root.join("lib/pkgconfig/cordboard.pc")).unwrap();
    assert!(pc.contains("prefix=/opt/cordboard\n"), "{pc}");
    assert!(!pc.contains('@'), "{pc}");
    prefix.make("uninstall", &variables);
    let left = run(Command::new("find")
        .arg(&root)
        .args(["-type", "f", "-o", "-type", "l"]));
    assert_eq!(left, "");
}

/// `make`, then `make install` without cargo and without a compiler, which
/// writes nothing into the source tree.
#[test]
fn install_builds_nothing() {
    let Some(prefix) = prefix() else { return };
    let (target, stage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let release = target.path().join("release");
    let archive = release.join("libcordboard_c.a");
    let files = || {
        run(Command::new("find")
            .arg(target.path())
            .args(["-printf", "%p %T@\\n"]))
    };
    let install = [
        ("TARGET", target.path()),
        ("DESTDIR", stage.path()),
        ("CARGO", Path::new("false")),
        ("CC", Path::new("false")),
    ];
    let before = files();
    let early = make("install", &install).output().unwrap();
    assert!(!early.status.success());
    let stderr = String::from_utf8_lossy(&early.stderr);
    assert!(stderr.contains("is missing: run make first"), "{stderr}");
    assert_eq!(files(), before);

    std::fs::create_dir(&release).unwrap();
    std::fs::copy(&prefix.archive, &archive).unwrap();
    run(&mut make(
        "all",
        &[("TARGET", target.path()), ("ARCHIVE", &archive)],
    ));
    let before = files();
    run(&mut make("install", &install));
    assert_eq!(files(), before);
    let installed = stage.path().join("usr/local/lib/libcordboard.so");
    assert!(installed.is_file());
}

/// cargo builds into another folder if `build.target` is set. The archive of an earlier build is
/// not installed in its place.
#[test]
fn the_archive_is_the_one_that_cargo_names() {
    let Some(prefix) = prefix() else { return };
    let target = tempfile::tempdir().unwrap();
    let release = target.path().join("release");
    std::fs::create_dir(&release).unwrap();
    let archive = release.join("libcordboard_c.a");
    std::fs::write(&archive, "stale").unwrap();
    let (lines, cargo) = (target.path().join("lines"), target.path().join("cargo.sh"));
    let built = serde_json::json!({ "filenames": [prefix.archive, "libcordboard_c.rlib"] });
    std::fs::write(&lines, format!("{built}\n{{\"success\":true}}\n")).unwrap();
    std::fs::write(&cargo, format!("cat '{}'\n", lines.display())).unwrap();
    let cargo = format!("sh {}", cargo.display());
    run(&mut make(
        "all",
        &[("TARGET", target.path()), ("CARGO", Path::new(&cargo))],
    ));
    let length = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert_eq!(length(&archive), length(&prefix.archive));

    let unnamed = [("TARGET", target.path()), ("CARGO", Path::new("true"))];
    let failed = make("all", &unnamed).output().unwrap();
    assert!(!failed.status.success());
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert!(stderr.contains("cargo names no"), "{stderr}");
}

/// A moved installation is found at its new place.
#[test]
fn an_installation_can_be_moved() {
    let Some(prefix) = prefix() else { return };
    let words = prefix.pkg_config(&["--define-variable=prefix=/moved", "--cflags", "--libs"]);
    for word in ["-I/moved/include", "-L/moved/lib"] {
        assert!(words.iter().any(|w| w == word), "{words:?}");
    }
    // A directory outside the prefix is absolute.
    let stage = tempfile::tempdir().unwrap();
    let elsewhere = Path::new("/usr/lib/here");
    prefix.make(
        "install",
        &[("DESTDIR", stage.path()), ("LIBDIR", elsewhere)],
    );
    let pc = stage.path().join("usr/lib/here/pkgconfig/cordboard.pc");
    let pc = std::fs::read_to_string(pc).unwrap();
    for line in [
        "prefix=/usr/local\n",
        "includedir=${prefix}/include\n",
        "libdir=/usr/lib/here\n",
    ] {
        assert!(pc.contains(line), "{line}{pc}");
    }
}

/// Copies descriptor 0 to 1: half with a synchronous call, half on the engine,
/// which has threads.
const ALONE: &str = r#"
#include <cordboard.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    if (cord_splice(-1, -1, 0) != -1)
        return 1;
    if (cord_splice(STDIN_FILENO, STDOUT_FILENO, 4) != 4)
        return 2;
    struct cord_request request = CORD_REQUEST_INIT(STDIN_FILENO, STDOUT_FILENO);
    cord_transfer transfer = cord_start(&request);
    struct cord_report report = CORD_REPORT_INIT;
    if (cord_wait(transfer, &report) != 0 || report.written != 4)
        return 3;
    return cord_close(transfer) != 0;
}
"#;

/// Links a program with these options, runs it, and returns the shared
/// libraries that it needs.
fn links_and_runs(prefix: &Prefix, options: &[&str], libraries: &[String]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("alone.c"), folder.path().join("alone"));
    std::fs::write(&source, ALONE).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]);
    cc.args(options);
    cc.arg("-o").arg(&program).arg(&source);
    cc.args(prefix.pkg_config(&["--cflags"]));
    cc.args(libraries);
    run(&mut cc);
    let input = folder.path().join("input");
    std::fs::write(&input, "onestwos").unwrap();
    let mut program_runs = Command::new(&program);
    let input = std::fs::File::open(input).unwrap();
    assert_eq!(run(program_runs.stdin(input)), "onestwos");
    run(Command::new("readelf").args(["-d", "-l"]).arg(&program))
}

/// The options that link the archive into a dynamic program or a shared object.
fn with_archive(prefix: &Prefix) -> Vec<String> {
    let mut libraries = prefix.pkg_config(&["--static", "--libs"]);
    for word in &mut libraries {
        if word == "-lcordboard" {
            *word = "-l:libcordboard.a".to_owned();
        }
    }
    libraries
}

/// A program linked with the archive does not need the shared library.
#[test]
fn a_program_linked_with_the_archive_needs_no_library() {
    let Some(prefix) = prefix() else { return };
    let needed = links_and_runs(prefix, &[], &with_archive(prefix));
    assert!(needed.contains("[libc.so"), "{needed}");
    assert!(!needed.contains("libcordboard"), "{needed}");
}

/// A plugin that contains the archive, and a program that loads it, uses it and closes it. The
/// library's threads still run then.
#[test]
fn a_plugin_with_the_archive_can_be_closed() {
    let Some(prefix) = prefix() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let source = here().join("tests/c/plugin.c");
    let cc = |options: &[&str], to: &Path, libraries: &[String]| {
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]);
        cc.args(options).arg("-o").arg(to).arg(&source);
        cc.args(prefix.pkg_config(&["--cflags"])).args(libraries);
        run(&mut cc);
    };
    let (plugin, host) = (path("plugin.so"), path("host"));
    let options = ["-DPLUGIN", "-shared", "-fPIC"];
    cc(&options, &plugin, &with_archive(prefix));
    cc(&[], &host, &["-ldl".to_owned()]);
    run(Command::new(host).arg(plugin));
}

/// `pkg-config --static --libs` is sufficient for `-static`, if the C library
/// is installed as an archive.
#[test]
fn a_static_program_needs_nothing() {
    let Some(prefix) = prefix() else { return };
    let libraries = prefix.pkg_config(&["--static", "--libs"]);
    for option in ["-static", "-static-pie"] {
        if let Err(reason) = can_link(option) {
            testkit::skip::report(&format!("the C library with {option}"), &reason);
            continue;
        }
        let needed = links_and_runs(prefix, &[option], &libraries);
        assert!(!needed.contains("(NEEDED)"), "{option}: {needed}");
        assert!(!needed.contains("INTERP"), "{option}: {needed}");
    }
}

/// Whether any program can be linked with this option.
fn can_link(option: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("none.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut cc = Command::new("cc");
    cc.arg(option).arg("-o").arg(folder.path().join("none"));
    let linked = cc.arg(source).output().unwrap();
    match linked.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&linked.stderr).replace('\n', " ")),
    }
}

/// `make install` into a directory that the dynamic linker searches, and then
/// the example, in overlays that leave the machine's file systems unchanged.
#[test]
fn a_program_finds_the_library_as_soon_as_it_is_installed() {
    const WHAT: &str = "an installation that the dynamic linker searches";
    let Some(prefix) = prefix() else { return };
    if !testkit::skip::is_root() {
        return testkit::skip::report(WHAT, "needs root");
    }
    let apart = |script: &str| {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-ec", script, "sh"]);
        shell
    };
    let scratch = tempfile::tempdir().unwrap();
    // `$1` is the scratch directory.
    let overlays = r#"
        mount -t tmpfs none "$1"
        for folder in etc var usr/local; do
            mkdir -p "$1/$folder/upper" "$1/$folder/work"
            mount -t overlay none "/$folder" \
                -o "lowerdir=/$folder,upperdir=$1/$folder/upper,workdir=$1/$folder/work"
        done
    "#;
    let can = apart(overlays).arg(scratch.path()).output();
    if !can.is_ok_and(|out| out.status.success()) {
        return testkit::skip::report(WHAT, "no mount namespace with overlayfs");
    }
    let script = format!(
        r#"{overlays}
        shift
        "$@"
        cd /usr/local/share/doc/cordboard
        cc -D_GNU_SOURCE scp.c $(pkg-config --cflags --libs cordboard) -o /usr/local/bin/scp
        scp scp.c /usr/local/copy
        cmp scp.c /usr/local/copy
        "#
    );
    let install = prefix.command("install", &[("PREFIX", Path::new("/usr/local"))]);
    let mut all = apart(&script);
    all.arg(scratch.path());
    all.arg(install.get_program()).args(install.get_args());
    all.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    all.env("PKG_CONFIG_PATH", "/usr/local/lib/pkgconfig");
    all.env_remove("LD_LIBRARY_PATH");
    all.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    run(&mut all);
    assert!(!Path::new("/usr/local/copy").exists());
}

/// If the dynamic linker does not search the directory, or the cache cannot be
/// written, `make install` says what to do; with DESTDIR it says nothing.
#[test]
fn a_library_that_the_dynamic_linker_will_not_find_is_reported() {
    let Some(prefix) = prefix() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fake = |name: &str, text: &str| {
        let path = folder.path().join(name);
        let text_file = path.with_extension("sh");
        std::fs::write(&text_file, format!("#!/bin/sh\n{text}\n")).unwrap();
        // Made by another process: a child that another test starts meanwhile
        // would have a descriptor of this one, and the script could not be
        // started (`ETXTBSY`).
        run(Command::new("install")
            .args(["-m", "755"])
            .args([&text_file, &path]));
        path
    };
    let root = folder.path().join("root");
    let library = root.join("lib");
    // A replacement of ldconfig that only lists the directory.
    let lists = format!(
        "[ $# = 0 ] || {{ echo '{}: (from here)'; exit; }}",
        library.display()
    );
    let install = |ldconfig: &Path, destdir: &Path| {
        let variables = [
            ("PREFIX", root.as_path()),
            ("LDCONFIG", ldconfig),
            ("DESTDIR", destdir),
        ];
        run(&mut prefix.command("install", &variables))
    };
    let none = Path::new("");
    let elsewhere = install(&fake("elsewhere", "[ $# != 0 ]"), none);
    let advice = format!("-Wl,-rpath,{}", library.display());
    assert!(elsewhere.contains(&advice), "{elsewhere}");
    let refused = install(&fake("refused", &format!("{lists}\nexit 1")), none);
    assert!(refused.contains("until root has run ldconfig"), "{refused}");
    let ran = folder.path().join("ran");
    let runs = fake("runs", &format!("{lists}\n: >'{}'", ran.display()));
    let staged = install(&runs, &folder.path().join("stage"));
    assert!(!staged.contains("note:") && !ran.exists(), "{staged}");
    let done = install(&runs, none);
    assert!(!done.contains("note:") && ran.exists(), "{done}");
}

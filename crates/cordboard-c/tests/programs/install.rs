//! What `make install` puts where.

use std::path::Path;
use std::process::Command;

use super::prefix::{make, prefix, run};

/// The symbols that a shared library gives, as `nm` has them.
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
fn the_symbols_are_versioned_and_no_others_show() {
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
fn a_staged_installation_has_every_file_and_takes_them_all_back() {
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
        "share/doc/cordboard/scp.c",
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

/// `make`, then `make install` by somebody who has neither cargo nor a compiler,
/// and whose files are not to turn up in the tree.
#[test]
fn installing_makes_nothing() {
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
    let said = String::from_utf8_lossy(&early.stderr);
    assert!(said.contains("is missing: run make first"), "{said}");
    assert_eq!(files(), before);

    std::fs::create_dir(&release).unwrap();
    std::fs::copy(&prefix.archive, &archive).unwrap();
    run(&mut make(
        "all",
        &[("TARGET", target.path()), ("CARGO", Path::new("true"))],
    ));
    let before = files();
    run(&mut make("install", &install));
    assert_eq!(files(), before);
    let installed = stage.path().join("usr/local/lib/libcordboard.so");
    assert!(installed.is_file());
}

/// An installation that was moved is found where it is.
#[test]
fn the_prefix_can_be_another_than_at_installation() {
    let Some(prefix) = prefix() else { return };
    let words = prefix.pkg_config(&["--define-variable=prefix=/moved", "--cflags", "--libs"]);
    for word in ["-I/moved/include", "-L/moved/lib"] {
        assert!(words.iter().any(|w| w == word), "{words:?}");
    }
    // What is elsewhere stays there.
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

/// The archive is all that a program needs to stand alone.
#[test]
fn a_program_linked_with_the_archive_needs_no_library() {
    let Some(prefix) = prefix() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("alone.c"), folder.path().join("alone"));
    let text = "#include <cordboard.h>\n#include <stdio.h>\nint main(void) { return puts(cord_version()) < 0 || cord_splice(-1, -1, 0) != -1; }\n";
    std::fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]);
    cc.arg("-o").arg(&program).arg(&source);
    cc.args(prefix.pkg_config(&["--cflags"]));
    cc.arg(prefix.path.join("lib/libcordboard.a"));
    let libraries = prefix.pkg_config(&["--static", "--libs"]);
    cc.args(libraries.iter().filter(|word| *word != "-lcordboard"));
    run(&mut cc);
    let needed = run(Command::new("readelf").arg("-d").arg(&program));
    assert!(!needed.contains("libcordboard"), "{needed}");
    let said = run(&mut Command::new(&program));
    assert_eq!(said.trim(), env!("CARGO_PKG_VERSION"));
}

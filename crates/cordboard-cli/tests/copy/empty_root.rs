//! The statically linked command in an otherwise empty root directory: no
//! libraries, no `/proc`, no `/dev`.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::*;

/// The command in its new root. Needs root.
fn bare(top: &Path) -> Option<Command> {
    if !root("a root directory of its own") {
        return None;
    }
    install(env!("CARGO_BIN_EXE_cordboard"), &top.join("cordboard"));
    let mut command = Command::new("chroot");
    command
        .arg(top)
        .arg("/cordboard")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null());
    Some(command)
}

#[test]
fn it_says_its_version() {
    let dir = dir();
    let Some(mut command) = bare(dir.path()) else {
        return;
    };
    let run = run(command.arg("--version"));
    run.ok();
    let version = concat!("cordboard ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(run.stdout()), version);
}

/// Direct I/O of uncached files needs `/proc`, to open both files again;
/// without it, another path carries the bytes.
#[test]
fn a_file_is_copied() {
    let dir = dir();
    let data = bytes(17 << 20);
    let from = File::open(file(&dir, "from", &data)).unwrap();
    from.sync_all().unwrap();
    rustix::fs::fadvise(&from, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for flags in [&["--sync"][..], &[], &["--hash", "crc32"]] {
        let Some(mut command) = bare(dir.path()) else {
            return;
        };
        command.args(["copy", "--json"]).args(flags);
        let run = run(command.args(["from", "to"]));
        run.ok();
        let told = run.json();
        let size = data.len() as u64;
        for count in ["read", "written"] {
            assert_eq!(told[count], size, "{flags:?}: {told}");
        }
        assert_eq!(told["ended"], "eof", "{flags:?}: {told}");
        assert!(!told["path"].to_string().contains("direct"), "{told}");
        let to = dir.path().join("to");
        assert!(read(&to) == data, "{flags:?}");
        std::fs::remove_file(to).unwrap();
    }
}

/// By threads and an engine of several slots, compressed and decompressed.
#[test]
fn a_tree_is_copied() {
    let dir = dir();
    std::fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
    let small = bytes(5000);
    let large = bytes(5 << 20);
    for i in 0..100 {
        file(&dir, &format!("tree/sub/{i}"), &small);
    }
    file(&dir, "tree/large", &large);
    let Some(mut command) = bare(dir.path()) else {
        return;
    };
    run(command.args(["copy", "-rp", "--jobs", "4", "tree", "copy"])).ok();
    let copy = dir.path().join("copy");
    assert!(read(copy.join("large")) == large);
    for i in 0..100 {
        assert!(read(copy.join(format!("sub/{i}"))) == small, "{i}");
    }
    let packed = |flag, from, to| {
        let mut command = bare(dir.path()).unwrap();
        run(command.args(["copy", flag, from, to])).ok();
    };
    packed("--zstd", "tree/large", "packed");
    packed("--unzstd", "packed", "unpacked");
    assert!(read(dir.path().join("unpacked")) == large);
}

//! Which transfers are listed.

use std::os::unix::fs::PermissionsExt;

use super::common::{self, Start, run, until};
use super::{Home, Moving};

const HEADER: &str = "PID  STATE  RATE  DONE  TIME  PATH  SCHEDULE  TRANSFER\n";

fn once(home: &Home) -> String {
    let run = run(home.cordboard().arg("top"));
    assert_eq!((run.code(), run.stderr().as_str()), (0, ""));
    String::from_utf8(run.stdout().to_vec()).unwrap()
}

#[test]
fn a_table_for_scripts() {
    let home = Home::make();
    assert_eq!(once(&home), HEADER);
    let moving = home.moving("one", &["--rate", "1M"]);
    let pid = moving.child.id().to_string();
    let table = once(&home);
    let line = table.lines().nth(1).unwrap();
    for word in [&pid, "running", "max 1.0 MiB/s", "  /dev/zero -> /dev/null"] {
        assert!(line.contains(word), "{table}");
    }
    moving.cue(&["pause"]);
    // The socket can also be named, with and without --once.
    for once in [&["--once"][..], &[]] {
        let named = run(home.cordboard().arg("top").arg(&moving.socket).args(once));
        let table = String::from_utf8(named.stdout().to_vec()).unwrap();
        assert!(
            table.contains("paused") && table.contains("/one\n"),
            "{table}"
        );
    }
    let json = run(home.cordboard().args(["top", "--json"]));
    let line: serde_json::Value = serde_json::from_slice(json.stdout()).unwrap();
    assert_eq!(
        (&line["state"], &line["pid"].to_string()),
        (&"paused".into(), &pid)
    );
    assert_eq!(line["transfer"], "/dev/zero -> /dev/null");
    let list = std::fs::metadata(home.list()).unwrap().permissions().mode();
    assert_eq!(list & 0o777, 0o700);
}

#[test]
fn the_entry_of_a_killed_process_goes() {
    let home = Home::make();
    let killed = home.moving("one", &[]);
    let lives = home.moving("two", &[]);
    let pid = killed.child.id().to_string();
    assert!(once(&home).contains(&pid));
    drop(killed);
    assert_eq!(
        home.entries().len(),
        2,
        "it has no time to remove its entry"
    );
    let table = once(&home);
    assert!(
        !table.contains(&pid) && table.contains(&lives.child.id().to_string()),
        "{table}"
    );
    assert_eq!(home.entries().len(), 1);
    // One that ends by itself, or by a signal, removes its own.
    common::signal(lives.child.id(), rustix::process::Signal::TERM);
    until("no entry", || home.entries().is_empty().then_some(()));
}

/// A process that is stopped answers nothing, and keeps its entry.
#[test]
fn a_stopped_process_is_listed() {
    let home = Home::make();
    let moving = home.moving("one", &[]);
    common::signal(moving.child.id(), rustix::process::Signal::STOP);
    until("a stop", || {
        common::is_stopped(moving.child.id()).then_some(())
    });
    assert!(once(&home).contains("waiting"));
    assert_eq!(home.entries().len(), 1);
    common::signal(moving.child.id(), rustix::process::Signal::CONT);
}

#[test]
fn all_commands_with_a_control_socket_are_listed() {
    let home = Home::make();
    let file = home.path().join("file");
    std::fs::write(&file, vec![1; 100_000]).unwrap();
    let name = file.to_str().unwrap();
    let to = home.path().join("to");
    let name_of_socket = format!("@cordboard-top-{}", std::process::id());
    for args in [&["copy", name, to.to_str().unwrap()][..], &["cat", name]] {
        let child = home
            .cordboard()
            .args(args)
            .args(["--rate", "1", "--control", &name_of_socket])
            .stdout(std::process::Stdio::null())
            .start();
        let moving = Moving {
            child,
            socket: std::path::PathBuf::from(&name_of_socket),
        };
        // With a path, and both names.
        let label = format!("  {} {name} -> ", args[0]);
        until("a row", || {
            let table = once(&home);
            let is_whole = table.contains("running") && !table.contains(" - ");
            (is_whole && table.contains(&label)).then_some(())
        });
        drop(moving);
    }
    // Without one, a command writes no entry.
    std::fs::remove_dir_all(home.list()).unwrap();
    let run = run(home.cordboard().args(["splice", name, "/dev/null"]));
    assert_eq!((run.code(), home.list().exists()), (0, false));
    assert_eq!(once(&home), HEADER);
    assert!(!home.list().exists(), "nor does top");
}

#[test]
fn a_directory_that_others_can_change_is_refused() {
    let home = Home::make();
    std::fs::create_dir(home.list()).unwrap();
    std::fs::set_permissions(home.list(), PermissionsExt::from_mode(0o777)).unwrap();
    let refused = run(home.cordboard().arg("top"));
    refused.fails(1, &["other users may write to it", "CORDBOARD_RUNTIME_DIR"]);
    // The command itself runs all the same, and is steered. Its entry would come before its
    // first byte.
    let socket = home.path().join("s");
    let child = home
        .cordboard()
        .args(["splice", "/dev/zero", "/dev/null", "--rate", "1M"])
        .arg("--control")
        .arg(&socket)
        .stderr(std::process::Stdio::piped())
        .start();
    let moving = Moving { child, socket };
    until("the socket", || moving.socket.exists().then_some(()));
    until("progress", || {
        (moving.status()["written"].as_u64() > Some(0)).then_some(())
    });
    assert_eq!(home.entries(), [""; 0]);
    moving.cue(&["cancel"]);
    let stderr = common::end(moving.child).stderr();
    let warning = "warning: `cordboard top` shows no entry: ";
    assert!(
        stderr.contains(warning) && stderr.contains("other users may write to it"),
        "{stderr}"
    );
    std::fs::remove_dir(home.list()).unwrap();
    std::os::unix::fs::symlink(home.path(), home.list()).unwrap();
    run(home.cordboard().arg("top")).fails(1, &["ENOTDIR"]);
    if !common::root("giving a directory to another user") {
        return;
    }
    std::fs::remove_file(home.list()).unwrap();
    std::fs::create_dir(home.list()).unwrap();
    std::os::unix::fs::chown(home.list(), Some(1), Some(1)).unwrap();
    run(home.cordboard().arg("top")).fails(1, &["belongs to another user"]);
}

/// Other commands of the user may be in the list.
#[test]
fn the_runtime_directory_is_that_of_the_environment() {
    let home = Home::make();
    let in_runtime = |command: &mut std::process::Command| {
        command.env_remove("CORDBOARD_RUNTIME_DIR");
        command.env("XDG_RUNTIME_DIR", home.path());
    };
    let moving = home.moving_with("one", &["--rate", "1M"], in_runtime);
    assert_eq!(home.entries().len(), 1);
    let mut top = home.cordboard();
    in_runtime(top.arg("top"));
    let table = String::from_utf8(run(&mut top).stdout().to_vec()).unwrap();
    let pid = moving.child.id().to_string();
    let is_its = |line: &str| line.starts_with(&pid) && line.contains("running");
    assert!(table.lines().any(is_its), "{table}");
}

#[test]
fn a_wrong_socket_is_reported() {
    let home = Home::make();
    let none = home.path().join("none");
    run(home.cordboard().arg("top").arg(none)).fails(1, &["ENOENT", "--control"]);
}

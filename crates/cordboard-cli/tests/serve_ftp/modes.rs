//! Files whose modes restrict the user of the server.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::server::Server;

fn chmod(server: &Server, name: &str, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(server.path(name), mode).unwrap();
}

#[test]
fn a_directory_that_may_not_be_searched_is_not_entered() {
    let Some(server) = Server::mortal() else {
        return;
    };
    std::fs::create_dir_all(server.path("d/inner")).unwrap();
    symlink("d", server.path("link")).unwrap();
    let mut client = server.ann();
    for mode in [0o000, 0o600] {
        chmod(&server, "d", mode);
        for name in ["d", "d/", "d/.", "link", "d/inner"] {
            let said = client.ask(&format!("CWD {name}"), 550);
            assert!(said.contains("Permission denied"), "{mode:o} {said}");
        }
        assert!(client.ask("PWD", 257).contains("\"/\""));
    }
    // To read a directory is another permission.
    chmod(&server, "d", 0o100);
    for name in ["link", "/d", "inner", "..", "/"] {
        client.ask(&format!("CWD {name}"), 250);
    }
    symlink(".", server.path("d/inner/loop")).unwrap();
    for (name, kind) in [("inner", "dir"), ("inner/loop", "OS.unix=slink:.")] {
        let fact = client.ask(&format!("MLST d/{name}"), 250);
        assert!(fact.contains(&format!(" type={kind};")), "{fact}");
    }
    client.ask("RNFR d/inner", 350);
    chmod(&server, "d", 0o700);
    server.write("f", b"f");
    for name in ["f", "f/"] {
        let said = client.ask(&format!("CWD {name}"), 550);
        assert!(said.contains("Not a directory"), "{said}");
    }
}

/// The names can be read, but not what they are. An empty listing would be wrong.
#[test]
fn a_directory_that_may_not_be_searched_is_not_listed() {
    let Some(server) = Server::mortal() else {
        return;
    };
    std::fs::create_dir(server.path("d")).unwrap();
    server.write("d/f", b"f");
    symlink("d/f", server.path("link")).unwrap();
    chmod(&server, "d", 0o400);
    let mut client = server.ann();
    for line in ["LIST d", "NLST d", "MLSD d", "STAT d", "NLST d/*"] {
        let _data = client.passive();
        let said = client.ask(line, 550);
        assert!(said.contains("Permission denied"), "{line}: {said}");
    }
    // The target of the symlink is unknown.
    let facts = client.fetch_text("MLSD");
    let link = facts.lines().find(|line| line.ends_with("; link")).unwrap();
    assert!(link.starts_with("type=OS.unix=special;"), "{facts}");
    chmod(&server, "d", 0o700);
    assert_eq!(client.fetch_text("NLST d"), "d/f\r\n");
}

/// utimensat(2) requires the owner of the file, and no permission to read it.
#[test]
fn the_time_of_a_file_that_may_not_be_read_is_set() {
    let Some(server) = Server::mortal() else {
        return;
    };
    server.write("f", b"f");
    std::fs::create_dir(server.path("d")).unwrap();
    symlink("f", server.path("link")).unwrap();
    let mut client = server.ann();
    let modified = |name| std::fs::metadata(server.path(name)).unwrap().mtime();
    for (at, (mode, name)) in [(0o200, "f"), (0o000, "f"), (0o200, "link"), (0o000, "d")]
        .into_iter()
        .enumerate()
    {
        chmod(&server, name, mode);
        client.ask(&format!("MFMT 2001090901464{at} {name}"), 213);
        assert_eq!(modified(name), 1_000_000_000 + at as i64, "{mode:o} {name}");
        chmod(&server, name, 0o700);
    }
    assert!(
        std::fs::symlink_metadata(server.path("link"))
            .unwrap()
            .mtime()
            > 1_500_000_000
    );
}

//! Several operands.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::*;

#[test]
fn many_into_a_directory_and_the_totals() {
    let dir = dir();
    let a = file(&dir, "a", &bytes(1000));
    let b = file(&dir, "b", &bytes(2000));
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let run = run(cordboard().args(["copy", "--json"]).args([&a, &b, &into]));
    assert_eq!(run.ok().json()["written"], 3000);
    assert_eq!(read(into.join("a")), bytes(1000));
    assert_eq!(read(into.join("b")), bytes(2000));
}

#[test]
fn many_go_on_after_one_that_fails() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let z = file(&dir, "z", b"zz");
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let run = run(cordboard().args(["copy", "--json"]).args([
        &a,
        &dir.path().join("missing"),
        &z,
        &into,
    ]));
    run.fails(
        1,
        &["missing: No such file or directory (ENOENT) opening the source"],
    );
    let json = run.json();
    assert_eq!(json["written"], 3);
    assert_eq!(json["ended"], "error");
    assert_eq!(json["failed"], "source");
    assert_eq!(json["errno"], "ENOENT");
    assert_eq!(read(into.join("z")), b"zz");
}

#[test]
fn two_of_one_name_into_a_directory() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("x")).unwrap();
    std::fs::create_dir(dir.path().join("into")).unwrap();
    let a = file(&dir, "f", b"first");
    let b = file(&dir, "x/f", b"second");
    let into = dir.path().join("into");
    run(cordboard().arg("copy").args([&a, &b, &into])).fails(1, &["just copied"]);
    assert_eq!(read(into.join("f")), b"first");
}

/// As by cp: a warning, and success.
#[test]
fn an_operand_that_is_named_twice_is_copied_once() {
    let dir = dir();
    let [tree, into] = ["tree", "into"].map(|name| dir.path().join(name));
    std::fs::create_dir(&tree).unwrap();
    std::fs::create_dir(&into).unwrap();
    let a = file(&dir, "a", b"a");
    file(&dir, "tree/b", b"b");
    let slash = dir.path().join("tree/");
    let mut copy = cordboard();
    let all = [&a, &tree, &a, &slash, &into];
    let run_ = run(copy.args(["copy", "-r", "--json"]).args(all));
    assert_eq!(run_.code(), 0, "{}", run_.stderr());
    let warning = "warning: named more than once, and copied once";
    assert_eq!(
        run_.stderr().matches(warning).count(),
        2,
        "{}",
        run_.stderr()
    );
    let files = run_.json()["files"].clone();
    assert_eq!((&files["copied"], &files["failed"]), (&2.into(), &0.into()));
    assert_eq!(
        (read(into.join("a")), read(into.join("tree/b"))),
        (b"a".to_vec(), b"b".to_vec())
    );
    // A new name is not taken for one.
    let new = dir.path().join("new");
    run(cordboard().arg("copy").args([&a, &a, &new])).fails(1, &["is not a directory"]);
}

/// A slash behind a symlink names the directory that it points to, which is not the symlink.
#[test]
fn a_symlink_and_its_target_are_two_operands() {
    let dir = dir();
    let [tree, link, into] = ["tree", "link", "into"].map(|name| dir.path().join(name));
    std::fs::create_dir(&tree).unwrap();
    file(&dir, "tree/f", b"f");
    std::os::unix::fs::symlink("tree", &link).unwrap();
    let slash = dir.path().join("link/");
    for operands in [[&link, &slash], [&slash, &link]] {
        std::fs::create_dir(&into).unwrap();
        let copied = run(cordboard()
            .args(["copy", "-r", "--json"])
            .args(operands)
            .arg(&into));
        copied.fails(1, &["link"]);
        let files = copied.json()["files"].clone();
        assert_eq!((&files["copied"], &files["failed"]), (&1.into(), &1.into()));
        std::fs::remove_dir_all(&into).unwrap();
    }
    // Two names of the target are one.
    let twice = dir.path().join("link//");
    let copied = run(cordboard()
        .args(["copy", "-r"])
        .args([&slash, &twice, &into]));
    copied.fails(1, &["is not a directory"]);
    std::fs::create_dir(&into).unwrap();
    let copied = run(cordboard()
        .args(["copy", "-r"])
        .args([&slash, &twice, &into]));
    copied.fails(0, &["warning: named more than once, and copied once"]);
}

#[test]
fn two_trees_of_one_name_become_one() {
    let dir = dir();
    for tree in ["x/t/sub", "y/t/sub", "into"] {
        std::fs::create_dir_all(dir.path().join(tree)).unwrap();
    }
    file(&dir, "x/t/sub/both", b"first");
    file(&dir, "x/t/x", b"x");
    file(&dir, "y/t/sub/both", b"second");
    file(&dir, "y/t/y", b"y");
    let at = |name: &str| dir.path().join(name);
    for (from, to) in [("t", "into/t"), ("t/.", "into")] {
        let sources = [at("x").join(from), at("y").join(from)];
        let run = run(cordboard()
            .args(["copy", "-r"])
            .args(sources)
            .arg(at("into")));
        run.fails(1, &["both: was just copied"]);
        assert_eq!(read(at(to).join("sub/both")), b"first");
        assert_eq!(read(at(to).join("x")), b"x");
        assert_eq!(read(at(to).join("y")), b"y");
    }
}

#[test]
fn nothing_is_written_through_a_symlink_that_was_just_copied() {
    let dir = dir();
    for name in ["x/t", "y/t", "x/d", "y/d", "into", "elsewhere"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let at = |name: &str| dir.path().join(name);
    file(&dir, "important", b"precious");
    file(&dir, "y/t/f", b"another's");
    file(&dir, "y/d/f", b"f");
    symlink(at("important"), at("x/t/f")).unwrap();
    symlink("first", at("x/t/l")).unwrap();
    symlink("second", at("y/t/l")).unwrap();
    let run_ = run(cordboard()
        .args(["copy", "-r", "--json"])
        .args(["x/t", "y/t", "into"].map(at)));
    assert_eq!(run_.code(), 1, "{}", run_.stderr());
    for name in ["f", "l"] {
        let says = format!("into/t/{name}: was just copied, and is not overwritten by ");
        assert!(run_.stderr().contains(&says), "{}", run_.stderr());
    }
    assert_eq!(run_.json()["written"], 0);
    assert_eq!(read(at("important")), b"precious");
    let link = |name| std::fs::read_link(at(name)).unwrap();
    assert_eq!(link("into/t/f"), at("important"));
    assert_eq!(link("into/t/l"), Path::new("first"));
    // Nor is a directory, or an operand, copied to its target.
    symlink(at("elsewhere"), at("x/t/d")).unwrap();
    for (name, source) in [("d", "y/d"), ("f", "y/t/f")] {
        std::fs::remove_dir_all(at("into")).unwrap();
        std::fs::create_dir(at("into")).unwrap();
        let run = run(cordboard()
            .args(["copy", "-r"])
            .args(["x/t/.", source, "into"].map(at)));
        run.fails(1, &[&format!("into/{name}: was just copied")]);
        assert!(!at("elsewhere/f").exists());
        assert_eq!(read(at("important")), b"precious");
    }
    // An existing symlink is followed, if it is an operand or no tree is
    // copied.
    std::fs::remove_dir_all(at("into")).unwrap();
    std::fs::create_dir_all(at("into/t")).unwrap();
    symlink(at("important"), at("into/t/f")).unwrap();
    symlink(at("into/t"), at("named")).unwrap();
    let trees = run(cordboard()
        .args(["copy", "-r"])
        .args(["y/t", "y/d", "into"].map(at)));
    trees.fails(1, &["into/t/f: is a symlink, and copy -r"]);
    assert_eq!(read(at("important")), b"precious");
    run(cordboard().arg("copy").args(["y/t/f", "named"].map(at))).ok();
    assert_eq!(read(at("important")), b"another's");
}

/// Each would replace the one before, and only the last would remain.
#[test]
fn sinks_that_are_one_file_get_the_first_of_the_contents() {
    for (jobs, flags) in [("-j1", "-r"), ("-j4", "-r"), ("-j1", "-rp"), ("-j4", "-rp")] {
        let dir = dir();
        let at = |name: String| dir.path().join(name);
        for name in ["tree/sub", "into/sub"] {
            std::fs::create_dir_all(at(name.to_owned())).unwrap();
        }
        let one = file(&dir, "into/f00", b"old");
        for i in 0..60 {
            // In another directory too.
            let name = format!("{}f{i:02}", if i % 2 == 0 { "" } else { "sub/" });
            file(
                &dir,
                &format!("tree/{name}"),
                format!("contents {i}").as_bytes(),
            );
            if i > 0 {
                std::fs::hard_link(&one, at(format!("into/{name}"))).unwrap();
            }
        }
        let [tree, into] = ["tree/.", "into"].map(|name| at(name.to_owned()));
        let run = run(cordboard()
            .args(["copy", jobs, flags, "--json"])
            .args([tree, into]));
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        let refused = stderr.matches(": was just copied, and is not overwritten by ");
        assert_eq!(refused.count(), 59, "{stderr}");
        let text = String::from_utf8(read(&one)).unwrap();
        assert_eq!(run.json()["written"], text.len());
        // The existing file is complete.
        let number = text.strip_prefix("contents ").unwrap();
        let number: usize = number.parse().unwrap();
        assert!(number < 60, "{text}");
        assert!(
            !stderr.contains(&format!("f{number:02}: was just copied")),
            "{stderr}"
        );
    }
}

/// A sink that is a symlink is written with nothing else under way. A later operand does not
/// precede it.
#[test]
fn a_sink_that_leads_to_another_one_gets_the_first_of_the_contents() {
    for jobs in ["-j1", "-j4"] {
        let dir = dir();
        let [a, b] =
            ["a", "b"].map(|name| file(&dir, name, format!("contents of {name}").as_bytes()));
        let into = dir.path().join("into");
        std::fs::create_dir(&into).unwrap();
        std::fs::write(into.join("b"), b"old").unwrap();
        symlink("b", into.join("a")).unwrap();
        let run = run(cordboard().args(["copy", jobs]).args([&a, &b, &into]));
        run.fails(1, &["into/b: was just copied"]);
        assert_eq!(read(into.join("b")), b"contents of a", "{jobs}");
    }
}

/// As with cp, slashes at the end change nothing.
#[test]
fn the_contents_of_a_directory_by_any_spelling() {
    for name in ["d/.", "d/./", "d/.//", "d//.///"] {
        let dir = dir();
        let into = dir.path().join("into");
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::create_dir(&into).unwrap();
        file(&dir, "d/f", b"contents");
        run(cordboard()
            .args(["copy", "-r"])
            .arg(dir.path().join(name))
            .arg(&into))
        .ok();
        assert_eq!(read(into.join("f")), b"contents", "{name}");
    }
}

/// It would be overwritten before or after it is copied.
#[test]
fn a_sink_that_is_a_file_of_the_source_too_is_not_overwritten() {
    // Deeper than directories are kept open.
    let deep = "d/".repeat(40);
    for jobs in ["-j1", "-j4"] {
        let dir = dir();
        let at = |name: &str| dir.path().join(name);
        for name in ["tree/sub", &format!("tree/{deep}"), "into/sub"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let sources = ["a", "b", "sub/a", "sub/b", &format!("{deep}a"), "z"];
        for name in sources {
            file(&dir, &format!("tree/{name}"), name.as_bytes());
        }
        let link = |from: &str, to: &str| std::fs::hard_link(at(from), at(to)).unwrap();
        link("tree/b", "into/a");
        link("tree/sub/a", "into/b");
        link(&format!("tree/{deep}a"), "into/sub/b");
        // Of a file that is not a source.
        file(&dir, "other", b"other");
        link("other", "into/z");
        let [tree, into] = ["tree/.", "into"].map(at);
        let run = run(cordboard()
            .args(["copy", "-r", jobs, "--json"])
            .args([tree, into]));
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        assert_eq!(
            stderr.matches(": is also a file of the source").count(),
            3,
            "{stderr}"
        );
        for name in ["a", "b", "sub/b"] {
            let says = format!("into/{name}: is also a file of the source");
            assert!(stderr.contains(&says), "{stderr}");
        }
        for name in sources {
            assert_eq!(read(at("tree").join(name)), name.as_bytes());
        }
        for name in ["sub/a", "z", &format!("{deep}a")] {
            assert_eq!(read(at("into").join(name)), name.as_bytes());
        }
        assert_eq!(read(at("other")), b"z");
        assert_eq!(run.json()["files"]["failed"], 3);
    }
}

#[test]
fn nor_is_one_of_several_operands() {
    type Link = fn(&Path, &Path) -> std::io::Result<()>;
    let symbolic: Link = |from, to| symlink(from, to);
    let hard: Link = |from, to| std::fs::hard_link(from, to);
    for link in [hard, symbolic] {
        for (source, other) in [("a", "b"), ("b", "a")] {
            for jobs in ["-j1", "-j4"] {
                let dir = dir();
                let [a, b] = ["a", "b"].map(|name| file(&dir, name, name.as_bytes()));
                let into = dir.path().join("into");
                std::fs::create_dir(&into).unwrap();
                link(&dir.path().join(other), &into.join(source)).unwrap();
                let run = run(cordboard().args(["copy", jobs]).args([&a, &b, &into]));
                run.fails(
                    1,
                    &[&format!("into/{source}: is also a file of the source")],
                );
                assert_eq!((read(&a), read(&b)), (b"a".to_vec(), b"b".to_vec()));
                assert_eq!(read(into.join(other)), other.as_bytes());
            }
        }
    }
}

/// The names of the destination lead into the source: its files would be
/// overwritten by those of a directory below.
#[test]
fn nor_are_those_of_a_directory_of_the_source() {
    for jobs in ["-j1", "-j4"] {
        let dir = dir();
        std::fs::create_dir_all(dir.path().join("d/d/d")).unwrap();
        for name in ["d/d/f", "d/d/d/f"] {
            file(&dir, name, name.as_bytes());
        }
        let mut copy = cordboard();
        copy.current_dir(&dir)
            .args(["copy", "-r", "--json", jobs, "d/d", "."]);
        let run = run(&mut copy);
        run.fails(1, &["./d/d: is also a directory of the source"]);
        for name in ["d/d/f", "d/d/d/f"] {
            assert_eq!(read(dir.path().join(name)), name.as_bytes());
        }
        assert_eq!(read(dir.path().join("d/f")), b"d/d/f");
        let files = serde_json::json!({"copied": 1, "failed": 1, "left_out": false});
        assert_eq!(run.json()["files"], files);
    }
}

/// A file of that name in another directory would replace it first.
#[test]
fn nor_is_an_operand_in_the_destination() {
    for jobs in ["-j1", "-j4"] {
        let dir = dir();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let [a, other] = ["a", "sub/a"].map(|name| file(&dir, name, name.as_bytes()));
        let mut copy = cordboard();
        let run = run(copy.args(["copy", jobs]).args([&other, &a]).arg(dir.path()));
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        assert!(
            stderr.contains("/a: is also a file of the source"),
            "{stderr}"
        );
        assert_eq!(read(&a), b"a");
    }
}

#[test]
fn nor_is_a_symlink_that_is_an_operand() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    for (name, to) in [("x", "first"), ("into", "second")] {
        std::fs::create_dir(at(name)).unwrap();
        symlink(to, at(name).join("l")).unwrap();
    }
    let operands = [at("x/l"), at("into/l"), at("into")];
    let run = run(cordboard().args(["copy", "-r"]).args(operands));
    let stderr = run.stderr();
    assert_eq!(run.code(), 1, "{stderr}");
    assert!(
        stderr.contains("into/l: is also a file of the source"),
        "{stderr}"
    );
    assert_eq!(at("into/l").read_link().unwrap(), Path::new("second"));
}

/// Of each file, a refusal is known before its sink is truncated.
#[test]
fn a_file_that_no_path_takes_leaves_its_sink_alone() {
    for jobs in ["-j1", "-j4"] {
        let dir = dir();
        let a = file(&dir, "a", b"new");
        let into = dir.path().join("into");
        std::fs::create_dir(&into).unwrap();
        for name in ["a", "null"] {
            std::fs::write(into.join(name), b"old contents").unwrap();
        }
        let run = run(cordboard()
            .args(["copy", jobs, "--without", "read/write,splice,sendfile"])
            .arg(&a)
            .args([Path::new("/dev/null"), &into]));
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        assert!(
            stderr.contains("into/null: no usable data path for this pair"),
            "{stderr}"
        );
        assert_eq!(read(into.join("null")), b"old contents");
    }
}

#[test]
fn many_into_what_is_no_directory() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let b = file(&dir, "b", b"b");
    let c = file(&dir, "c", b"c");
    run(cordboard().arg("copy").args([&a, &b, &c])).fails(1, &["mkdir"]);
    assert_eq!(read(&c), b"c");
}

#[test]
fn few_descriptors_are_enough_for_many_files() {
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let sources: Vec<_> = (0..200)
        .map(|i| file(&dir, &format!("f{i}"), &bytes(20_000 + i)))
        .collect();
    let run = run(std::process::Command::new("sh")
        .args(["-c", r#"ulimit -n 16; exec "$@""#, "sh"])
        .args([env!("CARGO_BIN_EXE_cordboard"), "copy"])
        .args(&sources)
        .arg(&into));
    run.ok();
    for (i, source) in sources.iter().enumerate() {
        assert!(read(into.join(source.file_name().unwrap())) == bytes(20_000 + i));
    }
}

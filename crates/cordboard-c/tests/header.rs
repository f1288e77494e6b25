//! `include/cordboard.h` is generated from the sources.

use std::path::Path;

/// Writes it with `CORDBOARD_BLESS=1 cargo test -p cordboard-c --test header`.
#[test]
fn the_header_is_what_the_sources_generate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .expect("cbindgen reads the sources")
        .write(&mut made);
    // The "# Safety" sections are for Rust.
    let made = without_safety(&String::from_utf8(made).unwrap());
    assert!(made.is_ascii(), "a C compiler may not accept UTF-8");
    let header = root.join("include/cordboard.h");
    if std::env::var_os("CORDBOARD_BLESS").is_some() {
        std::fs::write(&header, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(
        made == committed,
        "include/cordboard.h is not what the sources generate: \
         run `CORDBOARD_BLESS=1 cargo test -p cordboard-c --test header`"
    );
}

/// Removes the sections "# Safety" of the comments.
fn without_safety(header: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in header.lines() {
        let comment = line.trim_start().strip_prefix("//");
        inside = match comment.map(str::trim) {
            Some("# Safety") => {
                // The empty comment line before it.
                while out.last().is_some_and(|line| line.trim() == "//") {
                    out.pop();
                }
                true
            }
            Some(text) => inside && !text.starts_with("# "),
            None => false,
        };
        if !inside {
            out.push(line);
        }
    }
    out.join("\n") + "\n"
}

/// Every function in the header has a symbol version, and no other symbol has.
#[test]
fn the_versions_are_those_of_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let map = read("cordboard.map");
    let versioned: Vec<&str> = map
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("cord_"))
        .collect();
    let header = read("include/cordboard.h");
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with("//") && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("cord_"))
        .collect();
    declared.sort_unstable();
    assert_eq!(versioned, declared);
    assert!(declared.len() > 15, "{declared:?}");
}

/// The header declares no function of the system's C library.
#[test]
fn the_header_declares_only_its_own_functions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/cordboard.h")).unwrap();
    let others: Vec<&str> = header
        .lines()
        .filter(|line| line.contains('(') && line.ends_with(';') && !line.starts_with("//"))
        .filter(|line| !line.contains("cord_"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

//! Tests the order of the top-level modules that docs/architecture.md states: a
//! module imports only from modules below it, and no two files import each other,
//! directly or indirectly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Module = Vec<String>;

/// Returns the source files of the crate by module, except tests.
fn modules() -> BTreeMap<Module, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let module = module_of(path.strip_prefix(&root).unwrap());
                let is_test = |name: &String| name.ends_with("tests") || name == "module_order";
                if !module.iter().any(is_test) {
                    found.insert(module, std::fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    found
}

fn module_of(file: &Path) -> Module {
    let mut path = PathBuf::from(file);
    path.set_extension("");
    let names = path.iter().map(|name| name.to_str().unwrap().to_owned());
    let names = names.filter(|name| !matches!(name.as_str(), "mod" | "lib"));
    names.collect()
}

/// Returns identifiers and punctuation, without comments, strings and tests.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let (mut all, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            string_length(rest)
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let end = end.unwrap_or(rest.len());
            all.push(rest[..end].to_owned());
            end
        } else if rest.starts_with("::") {
            all.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                all.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    all
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

/// The names in a file: the paths that it imports, and those that it re-exports
/// (`pub use`), by exported name.
#[derive(Default)]
struct Named {
    used: Vec<Vec<String>>,
    handed_on: BTreeMap<String, Vec<String>>,
}

fn named(tokens: &[String]) -> Named {
    let (mut named, mut at) = (Named::default(), 0);
    while at < tokens.len() {
        let is_path = tokens.get(at + 1).is_some_and(|next| next == "::");
        if tokens[at] == "use" {
            // `pub use`, `pub(crate) use`.
            let hands_on = at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")");
            at += 1;
            let mut all = Vec::new();
            tree(tokens, &mut at, &[], &mut all);
            if hands_on {
                let by_name = |path: Vec<String>| (path[path.len() - 1].clone(), path);
                named.handed_on.extend(all.into_iter().map(by_name));
            } else {
                named.used.extend(all);
            }
        } else if is_path && is_name(&tokens[at]) {
            // `pub(in crate::path)` is a visibility, not a use.
            let is_visibility = at > 1 && tokens[at - 1] == "in" && tokens[at - 2] == "(";
            let path = path(tokens, &mut at);
            if !is_visibility {
                named.used.push(path);
            }
        } else {
            at += 1;
        }
    }
    named
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn path(tokens: &[String], at: &mut usize) -> Vec<String> {
    let mut path = vec![tokens[*at].clone()];
    *at += 1;
    while tokens.get(*at).is_some_and(|t| t == "::")
        && tokens.get(*at + 1).is_some_and(|t| is_name(t))
    {
        path.push(tokens[*at + 1].clone());
        *at += 2;
    }
    path
}

/// Parses one tree of an import, after the prefix `before`.
fn tree(tokens: &[String], at: &mut usize, before: &[String], all: &mut Vec<Vec<String>>) {
    let mut here = before.to_vec();
    if tokens.get(*at).is_some_and(|t| is_name(t)) {
        here.extend(path(tokens, at));
    }
    if tokens.get(*at).is_some_and(|t| t == "::") {
        *at += 1;
    }
    match tokens.get(*at).map(String::as_str) {
        Some("{") => {
            while tokens.get(*at).is_some_and(|t| t != "}") {
                *at += 1;
                if tokens.get(*at).is_some_and(|t| t != "}") {
                    tree(tokens, at, &here, all);
                }
            }
            *at += 1;
        }
        Some("as") => {
            *at += 2;
            all.push(here);
        }
        _ => {
            if tokens.get(*at).is_some_and(|t| t == "*") {
                *at += 1;
            }
            all.push(here);
        }
    }
}

/// Returns the module that defines the item to which a path in `home` refers;
/// `None` if the crate does not define it. An item that a folder's `mod.rs`
/// re-exports belongs to the file that defines it.
fn target(all: &BTreeMap<Module, Named>, home: &[String], path: &[String]) -> Option<Module> {
    let mut base = home.to_vec();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        child => {
            let mut module = base.clone();
            module.push(child.to_owned());
            all.contains_key(&module).then_some(())?;
        }
    }
    for (at, name) in rest.iter().enumerate() {
        base.push(name.clone());
        if all.contains_key(&base) {
            continue;
        }
        base.pop();
        let Some(from) = all.get(&base)?.handed_on.get(name) else {
            break;
        };
        let mut path = from.clone();
        path.extend_from_slice(&rest[at + 1..]);
        return target(all, &base, &path);
    }
    all.contains_key(&base).then_some(base)
}

/// Returns the imports of each module.
fn arrows() -> BTreeMap<Module, BTreeSet<Module>> {
    let parse = |(module, text): (Module, String)| (module, named(&tokens(&text)));
    let all: BTreeMap<Module, Named> = modules().into_iter().map(parse).collect();
    let of = |home: &Module| -> BTreeSet<Module> {
        let targets = (all[home].used.iter()).filter_map(|path| target(&all, home, path));
        targets.filter(|module| module != home).collect()
    };
    all.keys().map(|home| (home.clone(), of(home))).collect()
}

/// Returns the top-level modules in layers, from top to bottom, as
/// docs/architecture.md lists them.
fn order() -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/architecture.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("## Order of the modules").unwrap();
    let (_, block) = rest.split_once("```text\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let layer = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    block.lines().map(layer).collect()
}

#[test]
fn no_module_imports_from_one_above_it() {
    let (arrows, order) = (arrows(), order());
    let layer = |module: &String| order.iter().position(|layer| layer.contains(module));
    let mut up = Vec::new();
    for (home, targets) in &arrows {
        let Some(module) = home.first() else { continue };
        let here = layer(module);
        assert!(
            here.is_some(),
            "{module} is missing in docs/architecture.md"
        );
        for target in targets {
            match target.first() {
                Some(other) if other == module => {}
                Some(other) if layer(other) > here => {}
                _ => up.push(format!("{} -> {}", home.join("/"), target.join("/"))),
            }
        }
    }
    assert!(up.is_empty(), "{}", up.join("\n"));
    for module in order.iter().flatten() {
        let is_there = arrows.keys().any(|m| m.first() == Some(module));
        assert!(
            is_there,
            "docs/architecture.md lists {module}, which the crate does not have"
        );
    }
}

#[test]
fn no_files_import_each_other() {
    let arrows = arrows();
    let reached = |from: &Module| {
        let mut seen: BTreeSet<&Module> = BTreeSet::new();
        let mut next: Vec<&Module> = arrows[from].iter().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(&arrows[module]);
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = arrows.keys().map(|m| (m, reached(m))).collect();
    let mut circles = Vec::new();
    for (home, targets) in &arrows {
        for target in targets {
            if reached[target].contains(home) {
                circles.push(format!("{} -> {}", home.join("/"), target.join("/")));
            }
        }
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn imports_are_found_in_every_form() {
    let text = "use crate::a::{self, b::C, d::*};\nuse super::e as f; // use crate::no;\n\
                fn x() { crate::g::h(\"crate::no::m\"); child::go() }\n\
                pub(crate) use child::Handed; pub(in crate::no) fn y();";
    let named = named(&tokens(text));
    let found: Vec<String> = named.used.iter().map(|path| path.join("::")).collect();
    let all = [
        "crate::a::self",
        "crate::a::b::C",
        "crate::a::d",
        "super::e",
        "crate::g::h",
        "child::go",
    ];
    assert_eq!(found, all);
    assert_eq!(named.handed_on["Handed"], ["child", "Handed"]);
}

use super::{BestSetting, Chosen, Dropped, PathUse, Report};
use crate::request::{DataPath, Declined, Why};
use crate::stage::StageReport;

/// Adds the names of all members of a value.
fn add_names(value: &serde_json::Value, names: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                names.push(name.clone());
                add_names(value, names);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| add_names(item, names)),
        _ => {}
    }
}

#[test]
fn the_page_has_every_member() {
    let path = DataPath::ReadWrite;
    let mut best = PathUse::new(path, 1, Chosen::First);
    best.set_best(BestSetting {
        piece: 1,
        depth: Some(1),
        after: 1,
    });
    let report = Report {
        by_path: vec![best, PathUse::new(path, 1, Chosen::First)],
        declined: vec![Declined {
            path,
            why: Why::CannotWait,
        }],
        truncated: 1,
        dropped: Dropped {
            datagrams: 1,
            bytes: 1,
        },
        stages: vec![StageReport {
            stage: "blake3",
            bytes_in: 1,
            bytes_out: 1,
            digest: Some(String::new()),
            fault: Some(String::new()),
        }],
        ..Report::default()
    };
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut names = Vec::new();
    add_names(&serde_json::to_value(&report).unwrap(), &mut names);
    assert!(names.len() > 20, "{names:?}");
    let chosen = Chosen::ALL.iter().map(|chosen| chosen.name().to_owned());
    for name in names.into_iter().chain(chosen) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

/// Most transfers use one path, the first that has not declined, which `path` and `declined` tell.
#[test]
fn one_path_has_an_entry_if_it_was_measured() {
    for chosen in Chosen::ALL {
        let report = Report {
            by_path: vec![PathUse::new(DataPath::Sendfile, 1, *chosen)],
            ..Report::default()
        };
        let line = serde_json::to_value(&report).unwrap();
        let is_measured = !matches!(chosen, Chosen::First | Chosen::Next);
        assert_eq!(line.get("by_path").is_some(), is_measured, "{chosen}");
    }
}

//! The reports of the sinks.

use std::fs;

use serde_json::json;
use testkit::needs::Need;

use super::common::*;

#[test]
fn one_sink_has_the_account_of_one_transfer() {
    let dir = dir();
    let (source, sink) = (dir.path().join("s"), dir.path().join("d"));
    fs::write(&source, bytes(10_000)).unwrap();
    let run = call([
        "splice".as_ref(),
        source.as_os_str(),
        sink.as_os_str(),
        "--json".as_ref(),
    ]);
    let account = run.ok().json();
    assert_eq!(account["written"], 10_000);
    assert_eq!(account.get("sinks"), None);
}

/// The paths in front of the one that was taken, with the reason.
#[test]
fn each_sink_has_what_was_declined() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(10_000));
    let [a, b] = ["a", "b"].map(|name| file(&dir, name, b"old"));
    let splice = |option: &[&str]| {
        let mut command = cordboard();
        command.args(["splice", "--append", "--json"]).args(option);
        run(command.args([&source, &a, &b])).ok().json()
    };
    let turned_off = json!({"path": "splice", "why": "turned off"});
    let account = splice(&["--without", "splice"]);
    for sink in account["sinks"].as_array().unwrap() {
        assert_eq!(sink["path"], json!(["write", "read/write"]));
        let declined = sink["declined"].as_array().unwrap();
        let count = declined.iter().filter(|one| **one == turned_off).count();
        assert_eq!(count, 1, "{sink}");
    }
    if testkit::needs::missing("each_sink_has_what_was_declined", &[Need::Splice]) {
        return;
    }
    let account = splice(&[]);
    let refused = json!({"path": "splice", "why": "EINVAL"});
    for sink in account["sinks"].as_array().unwrap() {
        let declined = sink["declined"].as_array().unwrap();
        assert!(declined.contains(&refused), "{sink}");
    }
}

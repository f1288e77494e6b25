//! What the status of a command with a control socket reports.

use super::common::{dir, until};
use super::{status, steered};

/// The total of the first file would be a share that reaches 100 % with each file.
#[test]
fn the_total_of_several_files_is_known_with_the_last_one() {
    let folder = dir();
    let (short, long) = (folder.path().join("short"), folder.path().join("long"));
    std::fs::write(&short, [0; 100]).unwrap();
    std::fs::write(&long, [0; 1 << 20]).unwrap();
    for (files, total) in [
        ([&long, &short], serde_json::Value::Null),
        ([&short, &long], (100 + (1 << 20)).into()),
    ] {
        let [first, last] = files.map(|file| file.to_str().unwrap());
        let (mut child, socket) = steered(folder.path(), &["cat", first, last, "--rate", "1K"]);
        let moved = until("more than the short file", || {
            let now = status(&socket, &["status"]);
            (now["written"].as_u64() > Some(200)).then_some(now)
        });
        assert_eq!(moved["total"], total);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

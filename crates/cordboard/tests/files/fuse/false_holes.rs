//! Holes that the server of a file reports although the file has bytes there.

use std::io::Write;

use super::overlay::Overlay;
use super::*;

/// Copies the file in every way, and asserts that the sink has its bytes.
fn is_copied(source: &mut File, data: &[u8], what: &str) {
    for (sparse, unshared, engine) in [
        (Sparse::Auto, false, false),
        (Sparse::Auto, true, false),
        (Sparse::Auto, false, true),
        (Sparse::Always, false, false),
    ] {
        source.rewind().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let request = Request {
            sparse,
            source_unshared: unshared,
            ..common::any()
        };
        let [from, to] = [&*source, &sink].map(|file| file.try_clone().unwrap().into());
        let report = moved(from, to, request, engine, false);
        let what = format!("{what}, {sparse:?}, {unshared}, {engine}: {report:?}");
        assert_eq!(report.ended, Ended::Eof, "{what}");
        assert_eq!(report.written, data.len() as u64, "{what}");
        assert!(content(&sink) == data, "{what}");
    }
}

/// The server does not have the bytes when it looks for data, as with writes that are in
/// flight. The open of another description does not write them back.
#[test]
fn bytes_that_the_server_has_after_a_sync_are_no_hole() {
    let _dog = watchdog("bytes_that_the_server_has_after_a_sync_are_no_hole");
    if !common::is_root() {
        return testkit::skip::here("mounting needs root");
    }
    let data = noise((1 << 20) + 5);
    // If the server refuses the sync, it never reports data.
    for refuses in [false, true] {
        let gets = Mutex::default();
        let served = Served {
            inside: true,
            writeback: true,
            kept: true,
            sparse: true,
            gets: Some(&gets),
            sync: if refuses { libc::EIO } else { 0 },
            never_syncs: true,
            ..Served::default()
        };
        let mounted = with_file(served, |at| {
            let mut file = File::options().read(true).write(true).open(at).unwrap();
            file.write_all(&data).unwrap();
            // Writes back. A probe maps the file, and would do so while it holds the lock of
            // this address space, which the thread of the server needs too.
            drop(file.try_clone().unwrap());
            is_copied(&mut file, &data, &format!("refuses {refuses}"));
        });
        if !mounted {
            return testkit::skip::here("no FUSE here");
        }
    }
}

/// An overlay passes the search for holes on to the server, and syncs no file of a lower
/// layer. With `metacopy=on` a file may have the attributes of a file in the upper layer.
#[test]
fn a_false_hole_below_an_overlay_is_read() {
    let _dog = watchdog("a_false_hole_below_an_overlay_is_read");
    if !common::is_root() {
        return testkit::skip::here("mounting needs root");
    }
    let data = noise((1 << 20) + 5);
    let served = Served {
        holds: &data,
        claims: data.len() as u64,
        inside: true,
        sparse: true,
        ..Served::default()
    };
    let mounted = with_file(served, |at| {
        for options in ["", ",metacopy=on"] {
            let Some(overlay) = Overlay::with(at.parent().unwrap(), options) else {
                return;
            };
            if !options.is_empty() {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                std::fs::set_permissions(overlay.at("file"), mode).unwrap();
            }
            let mut file = File::open(overlay.at("file")).unwrap();
            is_copied(&mut file, &data, options);
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

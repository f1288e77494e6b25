//! Other programs as clients: curl, lftp, Python's ftplib, and mc, a file manager.

use std::process::Command;

use super::common::{Run, bytes, run, until};
use super::server::{PASSWORD, Server};
use super::tls::Certificate;
use super::tty::Tty;

/// Whether a program is installed; otherwise the test is skipped.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        testkit::skip::here(format!("no {program} here"));
    }
    found
}

fn url(server: &Server, user: &str, path: &str) -> String {
    let user = match user {
        "" => String::new(),
        user => format!("{user}:{}@", PASSWORD.replace(' ', "%20")),
    };
    format!("ftp://{user}{}/{path}", server.address)
}

fn curl(server: &Server, arguments: &[&str]) -> Run {
    let mut command = Command::new("curl");
    command.current_dir(server.folder.path());
    // No settings of the user.
    run(command
        .args(["-q", "-sS", "--noproxy", "*"])
        .args(arguments))
}

#[test]
fn curl_reads_and_writes() {
    if !has("curl") {
        return;
    }
    let server = Server::start(&[]);
    let data = bytes(1_500_000);
    server.write("data", &data);
    let path = |name: &str| url(&server, "", name);
    assert!(curl(&server, &[&path("data")]).ok().stdout() == data);
    assert!(
        curl(&server, &["-P", "-", &path("data")]).ok().stdout() == data,
        "active"
    );
    assert!(
        curl(&server, &["--disable-epsv", &path("data")])
            .ok()
            .stdout()
            == data
    );
    assert!(
        curl(&server, &["-r", "1000-1999", &path("data")])
            .ok()
            .stdout()
            == &data[1000..2000]
    );
    let list = curl(&server, &["-l", &path("")]);
    assert_eq!(list.ok().stdout(), b"data\n");
    let local = server.folder.path().join("local");
    std::fs::write(&local, &data[..700_000]).unwrap();
    curl(&server, &["-C", "-", "-o", "local", &path("data")]).ok();
    assert!(std::fs::read(&local).unwrap() == data, "continued");
    let ann = |name: &str| url(&server, "ann", name);
    curl(
        &server,
        &["--ftp-create-dirs", "-T", "local", &ann("a/b/up")],
    )
    .ok();
    assert!(server.read("a/b/up") == data);
    server.write("part", &data[..100_000]);
    curl(&server, &["-C", "-", "-T", "local", &ann("part")]).ok();
    assert!(server.read("part") == data, "continued");
    curl(&server, &["-Q", "-DELE part", &ann("")]).ok();
    assert!(!server.path("part").exists());
    assert_eq!(curl(&server, &["-T", "local", &path("refused")]).code(), 25);
    assert_eq!(curl(&server, &[&path("none")]).code(), 78);
}

#[test]
fn curl_encrypts() {
    if !has("curl") {
        return;
    }
    let certificate = Certificate::new();
    let server = certificate.server(&["--require-tls"]);
    let data = bytes(1_500_000);
    std::fs::write(server.folder.path().join("local"), &data).unwrap();
    let cert = certificate.cert.to_str().unwrap();
    let tls = |arguments: &[&str]| {
        curl(
            &server,
            &[&["--ssl-reqd", "--cacert", cert], arguments].concat(),
        )
    };
    tls(&["-T", "local", &url(&server, "ann", "data")]).ok();
    assert!(server.read("data") == data);
    assert!(tls(&[&url(&server, "", "data")]).ok().stdout() == data);
    assert_eq!(tls(&["-l", &url(&server, "", "")]).ok().stdout(), b"data\n");
    assert_eq!(curl(&server, &[&url(&server, "", "data")]).code(), 67);
}

#[test]
fn lftp_mirrors_trees() {
    if !has("lftp") {
        return;
    }
    let certificate = Certificate::new();
    for (server, ssl) in [
        (Server::start(&[]), "no"),
        (certificate.server(&["--require-tls"]), "yes"),
    ] {
        let tree = server.folder.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        let data = bytes(300_000);
        for name in ["one", "a/two", "a/b/three", "a/with space"] {
            std::fs::write(tree.join(name), &data).unwrap();
        }
        let script = format!(
            "set net:max-retries 1; set net:timeout 20; set ftp:ssl-force {ssl}; \
             set ftp:ssl-protect-data {ssl}; set ftp:ssl-allow {ssl}; \
             set ssl:verify-certificate no; open -u 'ann,{PASSWORD}' ftp://{}; \
             mirror -R -P 3 tree up; mirror -P 3 up back; mv up/one up/moved; rm -r up/a; cls up; bye",
            server.address
        );
        let mut command = Command::new("lftp");
        command
            .current_dir(server.folder.path())
            .env("HOME", server.folder.path());
        let run = run(command.args(["--norc", "-c", &script]));
        let listed = String::from_utf8_lossy(run.ok().stdout()).into_owned();
        assert!(listed.contains("up/moved"), "{listed} {}", run.stderr());
        for name in ["one", "a/two", "a/b/three", "a/with space"] {
            let back = server.folder.path().join("back").join(name);
            assert!(std::fs::read(back).unwrap() == data, "{name}");
        }
        let left: Vec<_> = std::fs::read_dir(server.path("up")).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}

/// The target of a link is outside of the tree that is deleted or copied.
#[test]
fn lftp_does_not_follow_links_to_directories() {
    if !has("lftp") {
        return;
    }
    for mlsd in ["yes", "no"] {
        let server = Server::start(&[]);
        for name in ["old", "keep"] {
            std::fs::create_dir(server.path(name)).unwrap();
        }
        server.write("old/f", b"old");
        server.write("keep/f", b"keep");
        for (target, name) in [("../keep", "old/link"), (".", "old/loop")] {
            std::os::unix::fs::symlink(target, server.path(name)).unwrap();
        }
        let script = format!(
            "set cmd:interactive no; set net:max-retries 2; set ftp:ssl-allow no; \
             set ftp:use-mlsd {mlsd}; open -u 'ann,{PASSWORD}' ftp://{}; \
             mirror old back; rm -r old; bye",
            server.address
        );
        let mut command = Command::new("lftp");
        command
            .current_dir(server.folder.path())
            .env("HOME", server.folder.path());
        run(command.args(["--norc", "-c", &script])).ok();
        let back = server.folder.path().join("back");
        let link = std::fs::read_link(back.join("link")).unwrap();
        assert_eq!(link, std::path::Path::new("../keep"), "mlsd {mlsd}");
        assert!(!server.path("old").exists(), "mlsd {mlsd}");
        assert_eq!(server.read("keep/f"), b"keep", "mlsd {mlsd}");
    }
}

const PYTHON: &str = r#"
import ftplib, io, os, ssl, sys
port, password, cert = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if cert:
    ftp = ftplib.FTP_TLS(context=ssl.create_default_context(cafile=cert))
else:
    ftp = ftplib.FTP()
ftp.connect('127.0.0.1', port, timeout=30)
ftp.login('ann', password)
if cert:
    ftp.prot_p()
data = os.urandom(500000)
ftp.storbinary('STOR up', io.BytesIO(data))
for passive in (True, False):
    ftp.set_pasv(passive)
    got = io.BytesIO()
    ftp.retrbinary('RETR up', got.write)
    assert got.getvalue() == data
got = io.BytesIO()
ftp.retrbinary('RETR up', got.write, rest=499000)
assert got.getvalue() == data[499000:]
ftp.storlines('STOR text', io.BytesIO(b'one\ntwo\n'))
lines = []
ftp.retrlines('RETR text', lines.append)
assert lines == ['one', 'two'], lines
ftp.voidcmd('TYPE I')
assert ftp.size('up') == 500000
facts = dict(ftp.mlsd())
assert facts['up']['size'] == '500000', facts
ftp.mkd('d"q')
ftp.cwd('d"q')
assert ftp.pwd() == '/d"q', ftp.pwd()
ftp.cwd('..')
ftp.rmd('d"q')
ftp.rename('up', 'moved')
ftp.storbinary('APPE moved', io.BytesIO(b'end'))
assert sorted(ftp.nlst()) == ['moved', 'text']
ftp.delete('text')
assert ftp.quit().startswith('221')
"#;

#[test]
fn ftplib_uses_every_command() {
    if !has("python3") {
        return;
    }
    let certificate = Certificate::new();
    let cert = certificate.cert.to_str().unwrap();
    for (server, cert) in [
        (Server::start(&[]), ""),
        (certificate.server(&["--require-tls"]), cert),
    ] {
        let port = server.address.port().to_string();
        run(Command::new("python3").args(["-c", PYTHON, &port, PASSWORD, cert])).ok();
        assert!(server.read("moved").ends_with(b"end"));
        assert_eq!(server.read("moved").len(), 500_003);
    }
}

/// `mc` with the files of the server in one panel, and those of a directory in the other.
fn mc(server: &Server, panels: [&str; 2]) -> Tty {
    let mut command = Command::new("mc");
    command
        .env("HOME", server.folder.path())
        .env_remove("XDG_CONFIG_HOME")
        .args(["-u", "-b", "-d"])
        .args(panels);
    Tty::start(&mut command, 24, 80)
}

/// Presses keys until they have an effect: mc discards the keys that arrive while it removes a
/// dialog. They are not pressed so often that they fill the terminal.
fn press_until<T>(tty: &mut Tty, keys: &str, mut effect: impl FnMut(&mut Tty) -> Option<T>) -> T {
    let mut polls = 0;
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until("the effect", || {
            if polls % 256 == 0 {
                tty.press(keys);
            }
            polls += 1;
            effect(tty)
        })
    }));
    found.unwrap_or_else(|_| panic!("{keys:?} had no effect:\n{}", tty.lines().join("\n")))
}

/// Presses a function key until a dialog has opened, in which the key has no effect.
fn opens(tty: &mut Tty, key: &str, dialog: &str) {
    let shown = |tty: &mut Tty| tty.lines().iter().any(|line| line.contains(dialog));
    press_until(tty, key, |tty| shown(tty).then_some(()));
}

/// Moves down to the last file of the panel on the left, which shows its name at the bottom.
fn selects_the_last(tty: &mut Tty, name: &str) {
    let bottom = format!("│ {name:<37}│");
    press_until(tty, "\x0e", |tty| {
        let lines = tty.lines();
        lines
            .iter()
            .any(|line| line.starts_with(&bottom))
            .then_some(())
    });
}

/// The end of mc, which F10 asks for.
fn quits(tty: &mut Tty) {
    press_until(tty, "\x1b0", |tty| tty.child.try_wait().unwrap());
}

/// Waits for the whole of a copy.
fn copied(path: &std::path::Path, data: &[u8]) {
    until("the copy", || {
        std::fs::read(path)
            .is_ok_and(|read| read == data)
            .then_some(())
    });
}

/// A panel with the server, a panel with a directory, and the keys of a user. (ESC and a digit
/// are a function key, Ctrl-N is the next line, Ctrl-U empties a field.)
#[test]
fn mc_copies_between_its_panels() {
    if !has("mc") {
        return;
    }
    let server = Server::start(&[]);
    let (down, up) = (bytes(700_000), bytes(300_000));
    server.write("data", &down);
    let local = server.folder.path().join("local");
    std::fs::create_dir(&local).unwrap();
    // It takes the password literally.
    let remote = &format!("/ftp://ann:{PASSWORD}@{}/", server.address);
    let here = local.to_str().unwrap();

    let mut tty = mc(&server, [remote, here]);
    tty.shows(&["data", "700000"]);
    opens(&mut tty, "\x1b7", "Enter directory name");
    tty.press("\x15made dir\r");
    tty.shows(&["/made dir"]);
    assert!(server.path("made dir").is_dir());
    selects_the_last(&mut tty, "data");
    opens(&mut tty, "\x1b5", "Copy file \"data\"");
    tty.press("\r");
    copied(&local.join("data"), &down);
    // Both panels list it now.
    tty.shows(&["data", "700000", "700000"]);
    opens(&mut tty, "\x1b6", "Move file \"data\"");
    tty.press("\x15moved\r");
    tty.shows(&["moved", "700000"]);
    assert!(server.read("moved") == down);
    opens(&mut tty, "\x1b8", "Delete file");
    tty.press("\r");
    until("the file is gone", || {
        (!server.path("moved").exists()).then_some(())
    });
    quits(&mut tty);

    std::fs::remove_file(local.join("data")).unwrap();
    std::fs::write(local.join("upload"), &up).unwrap();
    let mut tty = mc(&server, [here, remote]);
    tty.shows(&["upload", "300000"]);
    tty.shows(&["/made dir"]);
    selects_the_last(&mut tty, "upload");
    opens(&mut tty, "\x1b5", "Copy file \"upload\"");
    tty.press("\r");
    copied(&server.path("upload"), &up);
    tty.shows(&["upload", "300000", "300000"]);
    quits(&mut tty);
}

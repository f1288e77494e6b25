//! Names that look like options of ls(1).

use super::server::Server;

#[test]
fn names_that_begin_with_a_hyphen_are_listed() {
    let server = Server::start(&[]);
    for name in ["-d", "-d/-l"] {
        std::fs::create_dir(server.path(name)).unwrap();
    }
    for name in ["-d/inside", "-d/-l/deep", "-dash", "-a b", "other"] {
        server.write(name, b"");
    }
    let mut client = server.anonymous();
    for (argument, expected) in [
        ("-d", "-d/-l -d/inside"),
        ("-l -d", "-d/-l -d/inside"),
        ("-d/-l", "-d/-l/deep"),
        ("-dash", "-dash"),
        ("-a b", "-a b"),
        ("-- -dash", "-dash"),
        ("-d*", "-d -dash"),
        // Options.
        ("-la", "-a b -d -dash other"),
        ("--sort=size -1", "-a b -d -dash other"),
        ("-l other", "other"),
        ("-l -a -d/-l", "-d/-l/deep"),
    ] {
        let names = client.fetch_text(&format!("NLST {argument}"));
        let names: Vec<_> = names.lines().collect();
        assert_eq!(names.join(" "), expected, "NLST {argument}");
    }
    // The replies of STAT are listings, too.
    for (argument, listed) in [
        ("-la", &["-a b", "-d", "-dash", "other"][..]),
        ("-l -d", &["-l", "inside"]),
        ("-d", &["-l", "inside"]),
        ("-- -dash", &["-dash"]),
    ] {
        let text = client.ask(&format!("STAT {argument}"), 213);
        let names = text.lines().filter(|line| line.starts_with(' '));
        let names = names.map(|line| line.split_once(':').unwrap().1[3..].to_owned());
        assert_eq!(names.collect::<Vec<_>>(), listed, "STAT {argument}");
    }
    client.ask("CWD -d", 250);
    let text = client.fetch_text("LIST -l");
    assert!(
        text.ends_with(" deep\r\n") && text.lines().count() == 1,
        "{text}"
    );
    let text = client.fetch_text("LIST -a");
    assert!(
        text.contains(" -l\r\n") && text.contains(" inside\r\n"),
        "{text}"
    );
    for argument in ["-none.txt", "-none/x", "-l none", "-"] {
        let _data = client.passive();
        client.ask(&format!("LIST {argument}"), 550);
        client.ask(&format!("STAT {argument}"), 550);
    }
}

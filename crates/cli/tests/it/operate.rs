//! A server as its operator runs it: by a file, reloaded, checked before it is started, watched and stopped.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use crate::support::client::{gridlane, run, signal, text};
use crate::support::serve::Server;
use crate::support::tools::run_curl;
use crate::support::{Scratch, names, until};

/// The status of a GET, or of an upload if there is something to upload.
fn status(url: &str, upload: Option<&Path>) -> String {
    let mut arguments = vec!["-o", "/dev/null", "-w", "%{http_code}", url];
    if let Some(file) = upload {
        arguments.extend(["-T", text(file)]);
    }
    run_curl(&arguments).text()
}

fn exports() -> Scratch {
    let scratch = Scratch::new();
    for name in ["open", "closed", "in"] {
        fs::write(scratch.dir(name).join("f"), name).unwrap();
    }
    scratch
}

fn write_config(scratch: &Scratch, tables: &str) {
    let serve =
        "[serve]\nlisten = [\"127.0.0.1:0\"]\naccess-log = \"@/access.log\"\naudit-log = \"@/audit.log\"\n";
    let text = format!("{serve}{tables}").replace('@', text(scratch.path()));
    // As is done where half a file must not be read.
    let partial = scratch.file("serve.toml.new", text.as_bytes());
    fs::rename(partial, scratch.join("serve.toml")).unwrap();
}

const TABLES: &str = r#"
[[export]]
path = "/open"
directory = "@/open"
[[export]]
path = "/closed"
directory = "@/closed"
rules = [{ addresses = "192.0.2.0/24", may = ["read"] }]
[[export]]
path = "/in"
directory = "@/in"
allow-write = true
umask = "027"
quota = 1000
max-upload = "10kB"
"#;

#[test]
fn several_exports_come_from_a_file_and_change_with_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = exports();
    write_config(&scratch, TABLES);
    let mut server = Server::by_file(&scratch.join("serve.toml"));
    let small = scratch.file("small", &[1; 500]);
    let get = |server: &Server, path: &str| status(&server.url(path), None);
    assert_eq!(get(&server, "open/f"), "200");
    assert_eq!(get(&server, "closed/f"), "403");
    assert_eq!(get(&server, "f"), "404");
    assert_eq!(status(&server.url("open/new"), Some(&small)), "403");
    assert_eq!(status(&server.url("in/new"), Some(&small)), "201");
    assert_eq!(status(&server.url("in/more"), Some(&small)), "507", "the quota has room for one");
    let mode = fs::metadata(scratch.join("in/new")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640);
    // The logs are moved away, and the file is changed.
    fs::rename(scratch.join("access.log"), scratch.join("access.log.1")).unwrap();
    write_config(&scratch, &TABLES.replace("192.0.2.0/24", "loopback"));
    signal(&server.pid().to_string(), "HUP");
    assert_eq!(server.next_event()["type"], "reloaded");
    assert_eq!(get(&server, "closed/f"), "200");
    assert_eq!(status(&server.url("in/more"), Some(&small)), "507", "what was counted is still known");
    until("the new log has a record", || {
        fs::read_to_string(scratch.join("access.log")).is_ok_and(|log| log.contains("/closed/f"))
    });
    // A file that is wrong changes nothing, and the server says what is wrong.
    write_config(&scratch, &TABLES.replace("addresses", "wings"));
    signal(&server.pid().to_string(), "HUP");
    let event = server.next_event();
    assert_eq!(event["type"], "reload.failed");
    assert!(event["error"]["message"].as_str().unwrap().contains("wings"), "{event}");
    assert_eq!(get(&server, "closed/f"), "200");
    // An address needs a restart.
    write_config(&scratch, TABLES);
    let changed =
        fs::read_to_string(scratch.join("serve.toml")).unwrap().replace("127.0.0.1:0", "127.0.0.2:0");
    fs::write(scratch.join("serve.toml"), changed).unwrap();
    signal(&server.pid().to_string(), "HUP");
    assert_eq!(server.next_event()["unchanged"][0], "listen");
    assert_eq!(get(&server, "closed/f"), "403");
    assert_eq!(server.stop("TERM").code(), Some(0));
    let audit = fs::read_to_string(scratch.join("audit.log")).unwrap();
    assert_eq!(audit.lines().filter(|line| line.contains("\"PUT\"")).count(), 4, "{audit}");
    assert!(!audit.contains("\"GET\""));
}

/// Also through a link: what one export's rules forbid would be possible by the other's path.
#[test]
fn directories_that_lie_in_each_other_are_refused() {
    let scratch = Scratch::new();
    scratch.dir("data/inner");
    std::os::unix::fs::symlink(scratch.join("data"), scratch.join("link")).unwrap();
    let tables = format!(
        "[[export]]\npath = \"/a\"\ndirectory = {:?}\n[[export]]\npath = \"/b\"\ndirectory = {:?}\n",
        scratch.join("link"),
        scratch.join("data/inner"),
    );
    let file = scratch.file("serve.toml", tables.as_bytes());
    for check in [&["--check"][..], &[]] {
        let mut command = gridlane();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file).args(check);
        run(command).exits(2).says(&["overlap"]);
    }
}

#[test]
fn a_directory_and_tables_are_one_too_many_and_neither_is_one_too_few() {
    let scratch = exports();
    write_config(&scratch, TABLES);
    let mut both = gridlane();
    both.arg("serve").arg(scratch.join("open")).arg("--config").arg(scratch.join("serve.toml"));
    run(both).exits(2).says(&["[[export]]", "command line"]);
    let mut neither = gridlane();
    neither.arg("serve");
    run(neither).exits(2).says(&["nothing to serve", "[[export]]"]);
}

#[test]
fn a_check_says_what_would_be_served_and_leaves_nothing_behind() {
    let scratch = exports();
    write_config(&scratch, TABLES);
    let check = |more: &[&str]| {
        let mut command = gridlane();
        command.args(["serve", "--check", "--config"]).arg(scratch.join("serve.toml")).args(more);
        command.env("XDG_DATA_HOME", scratch.join("data"));
        run(command)
    };
    let before = (scratch.names(), names(&scratch.join("in")));
    check(&[]).exits(0).says(&["/open", "/closed", "writable", "quota", "certificate", "ok"]);
    assert_eq!((scratch.names(), names(&scratch.join("in"))), before);
    write_config(&scratch, &format!("{TABLES}\n[root]\nauth = \"unix\"\n"));
    check(&[]).exits(0).says(&["root://: spoken", "their user's name"]);
    let rule = "[[rule]]\nwho = \"anyone\"\nmay = [\"read\"]\nunder = \"/opne\"\n";
    write_config(&scratch, &format!("{TABLES}\n{rule}"));
    check(&[]).exits(0).says(&["is about /opne, where no export is"]);
    for (tables, words) in [
        (TABLES.replace("@/open", "@/missing"), &["missing"][..]),
        (TABLES.replace("\"/closed\"", "\"/open/closed\""), &["lies in"]),
        (TABLES.replace("\"027\"", "\"999\""), &["umask"]),
    ] {
        write_config(&scratch, &tables);
        check(&[]).exits(2).says(words);
    }
    write_config(&scratch, TABLES);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    check(&["--listen", &address]).exits(2).says(&[&address]);
    check(&["--admin", "0.0.0.0:0"]).exits(2).says(&["--insecure-admin"]);
    check(&["--proxy-protocol", "10.0.0.1/8"]).exits(2).says(&["10.0.0.1/8"]);
    // A certificate and the key of another.
    let pair =
        |name: &str| gridlane_net::tls::self_signed(&scratch.dir(name), &["localhost".to_owned()]).unwrap();
    let ((cert, key), (_, other)) = (pair("one"), pair("two"));
    check(&["--cert", text(&cert), "--key", text(&key)]).exits(0).says(&["valid for"]);
    check(&["--cert", text(&cert), "--key", text(&other)]).exits(2).says(&["one"]);
}

#[test]
fn the_example_configuration_and_the_unit_are_sound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = Scratch::new();
    let example = fs::read_to_string(root.join("deploy/serve.toml")).unwrap();
    let mut localised = example.clone();
    for (place, name) in [("/var/log/gridlane", "log"), ("/srv/gridlane", "srv")] {
        assert!(example.contains(place), "{place}");
        localised = localised.replace(place, text(&scratch.dir(name)));
    }
    // Free ports, and IPv6 only where it is there.
    localised = localised.replace(", \"[::1]:1094\"", "").replace(":1094", ":0").replace(":9194", ":0");
    let file = scratch.file("serve.toml", localised.as_bytes());
    let mut command = gridlane();
    command.args(["serve", "--check", "--config"]).arg(file).env("XDG_DATA_HOME", scratch.path());
    run(command).exits(0).says(&["ok"]);
    let unit = fs::read_to_string(root.join("deploy/gridlane.service")).unwrap();
    for line in ["Type=notify", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="] {
        assert!(unit.lines().any(|other| other == line), "{line}");
    }
    assert!(unit.contains("serve --config /etc/gridlane/serve.toml"));
    // What bounds it, with room for what the example asks for: four descriptors for each connection, and 64.
    let bound = |name: &str| {
        let value = unit.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}"));
        value.trim_end_matches('%').parse::<u64>().unwrap()
    };
    let connections = example.lines().find_map(|line| line.strip_prefix("max-connections = ")).unwrap();
    assert!(bound("LimitNOFILE=") >= 4 * connections.parse::<u64>().unwrap() + 64);
    assert!((50..=90).contains(&bound("MemoryMax=")));
    assert!(bound("TasksMax=") >= 512);
}

#[test]
fn a_service_manager_is_told() {
    let scratch = exports();
    let socket = UnixDatagram::bind(scratch.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let told = || {
        let mut bytes = [0; 200];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let mut command = Server::command(&scratch.join("open"));
    command.args(["--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", scratch.join("notify"));
    let server = Server::spawn(command);
    assert_eq!(told(), "READY=1");
    signal(&server.pid().to_string(), "HUP");
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1");
    assert_eq!(server.stop("TERM").code(), Some(0));
    assert_eq!(told(), "STOPPING=1");
}

/// Without a signal: what was mounted, or made again, where an export is.
#[test]
fn a_directory_that_is_made_again_is_served() {
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    scratch.file("data/f", b"old");
    let mut server = Server::with(&data, &["--admin", "127.0.0.1:0", "--watch-interval", "0.05"]);
    let ready = format!("{}readyz", server.admin());
    let get = |url: &str| status(url, None);
    assert_eq!((get(&server.url("f")), get(&ready)), ("200".to_owned(), "200".to_owned()));
    fs::remove_dir_all(&data).unwrap();
    assert_eq!(server.next_event()["type"], "reload.failed");
    assert_eq!(get(&ready), "503");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("g"), b"new").unwrap();
    assert_eq!(server.next_event()["type"], "reloaded");
    assert_eq!((get(&server.url("g")), get(&ready)), ("200".to_owned(), "200".to_owned()));
    assert_eq!(get(&server.url_over("http", "f")), "404");
}

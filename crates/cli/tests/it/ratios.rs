//! That the data path is what it should be: how often it asks the kernel for something, and what it costs beside
//! other people's programs in the same run. Wide ratios, which a debug build on a loaded machine keeps; how fast it is
//! says `make bench`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::calls::{Calls, counted};
use crate::support::client::{Running, cp, cp_from, cp_r, gridlane, run, signal, text};
use crate::support::nginx::Nginx;
use crate::support::serve::Server;
use crate::support::tools::{curl, tool};
use crate::support::{MIB, Scratch, python, until};

const FILE_MIB: u64 = 256;

/// The system calls by which bytes of memory get into a socket.
const SENDS: [&str; 4] = ["write", "writev", "sendto", "sendmsg"];
const FUTEX: [&str; 1] = ["futex"];

/// A file without blocks on the disk: reading it costs what reading from the page cache costs. It is at rest, as nearly all
/// that is served: what was changed a moment ago is copied before it is sent.
fn large_file(dir: &Path, mib: u64) {
    let file = fs::File::create(dir.join("big")).unwrap();
    file.set_len(mib * MIB as u64).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

/// The system calls of a server from its start to its end, while something is done with it.
fn calls_of_serve(options: &[&str], work: impl FnOnce(&Server, &Path)) -> Calls {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    large_file(&export, FILE_MIB);
    let mut command = Server::command(&export);
    command.args(["--listen", "127.0.0.1:0", "--access-log", "off"]).args(options);
    let into = scratch.join("calls");
    let server = Server::spawn(counted(&command, &into));
    work(&server, &export);
    // Of strace itself, which does not end before its child does.
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    signal(fs::read_to_string(children).unwrap().trim(), "TERM");
    let mut calls = None;
    until("strace says what it has counted", || {
        calls = Calls::read(&into);
        calls.is_some()
    });
    calls.unwrap()
}

/// The system calls of a command.
fn calls_of(command: &Command) -> Calls {
    let scratch = Scratch::new();
    let into = scratch.join("calls");
    run(counted(command, &into)).ok();
    Calls::read(&into).unwrap()
}

fn curl_to_null(url: &str, ca: &Path) -> Command {
    let mut command = curl();
    command.args(["--fail", "-o", "/dev/null", url, "--cacert"]).arg(ca);
    command
}

#[test]
fn a_download_over_http_does_not_pass_through_the_servers_memory() {
    let calls = calls_of_serve(&[], |server, _| {
        run(curl_to_null(&server.url("big"), &server.ca())).ok();
    });
    calls.at_most(FILE_MIB / 2, "sending from memory what the kernel could send by itself", &SENDS);
    // A socket that is nearly full takes less than it is offered.
    calls.at_most(32 * FILE_MIB, "pieces that are too small", &[]);
    calls.at_most(2 * FILE_MIB, "threads that wake each other up", &FUTEX);
}

#[test]
fn a_download_over_https_goes_in_large_pieces() {
    let calls = calls_of_serve(&[], |server, _| {
        run(curl_to_null(&server.url_over("https", "big"), &server.ca())).ok();
    });
    // A record has 16 KiB: a read and a write for each would be 128 for a MiB.
    calls.at_most(100 * FILE_MIB, "calls for every record", &[]);
    calls.at_most(2 * FILE_MIB, "threads that wake each other up", &FUTEX);
}

#[test]
fn an_upload_goes_in_large_pieces() {
    for scheme in ["http", "https"] {
        let calls = calls_of_serve(&["--allow-write"], |server, export| {
            let mut command = curl();
            command.args(["--fail", "-T", text(&export.join("big")), &server.url_over(scheme, "new")]);
            command.arg("--cacert").arg(server.ca());
            run(command).ok();
        });
        calls.at_most(200 * FILE_MIB, "calls for every few KB", &[]);
        calls.at_most(8 * FILE_MIB, "threads that wake each other up", &FUTEX);
    }
}

#[test]
fn a_copy_asks_the_kernel_for_large_pieces() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    large_file(&export, FILE_MIB);
    let server = Server::with(&export, &["--access-log", "off"]);
    for scheme in ["http", "https"] {
        let target = scratch.join(scheme);
        let mut command = cp(server.url_over(scheme, "big"), &target);
        command.arg("--quiet").arg("--ca").arg(server.ca());
        let calls = calls_of(&command);
        calls.at_most(100 * FILE_MIB, "pieces that are too small", &[]);
        // How often depends on the machine: 1.5 to 3.5 for a MiB were seen. Once for each record would be 64.
        calls.at_most(8 * FILE_MIB, "threads that wake each other up", &FUTEX);
        assert_eq!(fs::metadata(&target).unwrap().len(), FILE_MIB * MIB as u64);
    }
}

#[test]
fn small_files_share_connections_and_cost_few_calls() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    small_files(&export, 1000);
    let server = Server::with(&export, &["--access-log", "off"]);
    let mut command = cp_r(server.url("tree/"), scratch.join("target"));
    command.arg("--quiet");
    let calls = calls_of(&command);
    calls.at_most(64, "connections that are not used again", &["connect"]);
    calls.at_most(64, "threads for files", &["clone", "clone3"]);
    // Twelve, of which a debug build has one to itself and events have two.
    calls.at_most(25 * 1000, "calls for every file", &[]);
    assert_eq!(fs::read_dir(scratch.join("target")).unwrap().count(), 1000);
}

#[test]
fn what_needs_no_network_starts_no_runtime() {
    let mut command = gridlane();
    command.arg("--version");
    let calls = calls_of(&command);
    calls.at_most(
        0,
        "threads, sockets or an event loop",
        &["clone", "clone3", "socket", "epoll_create1", "epoll_wait"],
    );
    calls.at_most(300, "work that nobody asked for", &[]);
}

fn small_files(export: &Path, count: usize) {
    fs::create_dir(export.join("tree")).unwrap();
    for number in 0..count {
        fs::write(export.join(format!("tree/{number:04}")), format!("{number}")).unwrap();
    }
}

// --- Beside others ----------------------------------------------------------------------------------

/// A command, and the process that serves it.
type Side = (Command, u32);

/// The least that each took in several turns: seconds, and CPU-seconds of client and server.
fn in_turns(runs: usize, remove: Option<&Path>, sides: &[Side]) -> Vec<Value> {
    let words = |command: &Command| -> Vec<String> {
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|word: &OsStr| word.to_str().unwrap().to_owned()).collect()
    };
    let sides: Vec<Value> =
        sides.iter().map(|(command, server)| json!({"command": words(command), "server": server})).collect();
    let mut script = python::debian("ratios.py");
    script.arg(json!({"runs": runs, "remove": remove, "sides": sides}).to_string());
    let outcome = run(script).ok();
    serde_json::from_slice(&outcome.stdout).unwrap()
}

#[track_caller]
fn assert_ratio(what: &str, found: &[Value], most: f64) {
    let of = |side: &Value| side[what].as_f64().unwrap();
    let ratio = of(&found[0]) / of(&found[1]).max(0.001);
    assert!(ratio <= most, "{what}: {ratio:.2} times the other's, which should be at most {most}: {found:?}");
}

#[test]
fn moving_bytes_costs_what_it_costs_others() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    // Enough that starting a process and shaking hands are not what is measured.
    large_file(&export, 2 * FILE_MIB);
    let server = Server::with(&export, &["--access-log", "off"]);
    let nginx = Nginx::with(&export, "ssl_protocols TLSv1.3;");
    for (scheme, client_most, server_most) in [("http", 4.0, 4.0), ("https", 2.5, 2.0)] {
        let peer = if scheme == "http" { nginx.url("big") } else { nginx.tls_url("big") };
        let mut copy = cp(&peer, "/dev/null");
        copy.arg("--quiet").arg("--ca").arg(nginx.ca());
        let found =
            in_turns(4, None, &[(copy, nginx.pid()), (curl_to_null(&peer, &nginx.ca()), nginx.pid())]);
        assert_ratio("client_cpu_s", &found, client_most);
        let ours = curl_to_null(&server.url_over(scheme, "big"), &server.ca());
        let found =
            in_turns(4, None, &[(ours, server.pid()), (curl_to_null(&peer, &nginx.ca()), nginx.pid())]);
        assert_ratio("server_cpu_s", &found, server_most);
    }
}

#[test]
fn a_tree_of_small_files_does_not_wait() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    small_files(&export, 1000);
    let server = Server::with(&export, &["--access-log", "off"]);
    let (list, target) = (scratch.join("list"), scratch.join("target"));
    let lines: String =
        (0..1000).map(|number| format!("{}\n", server.url(&format!("tree/{number:04}")))).collect();
    fs::write(&list, lines).unwrap();
    let mut copy = cp_r(server.url("tree/"), &target);
    copy.arg("--quiet");
    let mut aria2 = tool("aria2c", "aria2");
    aria2.args([
        "--no-conf",
        "--quiet",
        "--file-allocation=none",
        "-j16",
        "--dir",
        text(&target),
        "-i",
        text(&list),
    ]);
    let found = in_turns(5, Some(&target), &[(copy, server.pid()), (aria2, server.pid())]);
    // It takes a tenth of the time. A wait of two milliseconds for every file would be longer than all of the other's.
    assert_ratio("seconds", &found, 1.0);
}

// --- Memory -------------------------------------------------------------------------------------------

/// The most memory that a process has had resident; 0 when it has ended.
fn peak_bytes(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| 1024 * line.trim().trim_end_matches(" kB").parse::<usize>().unwrap())
}

fn sockets_of(pid: u32) -> usize {
    let is_socket =
        |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| text(&to).starts_with("socket:"));
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter(is_socket).count()
}

#[test]
fn three_hundred_slow_readers_fit_into_memory() {
    const READERS: usize = 300;
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    large_file(&export, FILE_MIB);
    let server = Server::with(&export, &["--access-log", "off"]);
    let mut command = curl();
    command.args([
        "--fail",
        "--parallel",
        "--parallel-immediate",
        "--parallel-max",
        "300",
        "--limit-rate",
        "20k",
    ]);
    command.arg("--cacert").arg(server.ca());
    command.args([&format!("{}?[1-{READERS}]", server.url_over("https", "big")), "-o", "/dev/null"]);
    let readers = Running::start(command);
    until("all are connected", || sockets_of(server.pid()) >= READERS);
    // Until it grows no more.
    let mut before = 0;
    until("every reader has as much as the kernel takes", || {
        let now = peak_bytes(server.pid());
        let grown = now > before;
        before = now;
        sleep(Duration::from_millis(500));
        !grown
    });
    readers.kill();
    let limit = 64 * MIB + READERS * MIB / 4;
    assert!(before <= limit, "{} MiB for {READERS} connections", before / MIB);
}

#[test]
fn a_copy_from_three_sources_fits_into_memory() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    large_file(&export, 4 * FILE_MIB);
    let servers: Vec<Server> = (0..3).map(|_| Server::with(&export, &["--access-log", "off"])).collect();
    let urls: Vec<String> = servers.iter().map(|server| server.url("big")).collect();
    let mut command = cp_from(&urls, "/dev/null");
    command.arg("--quiet");
    let mut copy = Running::start(command);
    let mut peak = 0;
    while copy.is_running() {
        peak = peak.max(peak_bytes(copy.pid()));
        sleep(Duration::from_millis(1));
    }
    copy.wait().ok();
    assert!((MIB..=128 * MIB).contains(&peak), "{} MiB", peak / MIB);
}

//! Commands of a prompt beside copies: names and trees, completion, the doctor, manual pages.

use std::fs;
use std::process::Command;

use crate::support::client::{Outcome, gridlane, run, text};
use crate::support::serve::Server;
use crate::support::{Scratch, until};

fn ask(arguments: &[&str]) -> Outcome {
    let mut command = gridlane();
    command.args(arguments);
    run(command)
}

fn site() -> (Scratch, Server) {
    let scratch = Scratch::new();
    let server = Server::with(&scratch.dir("export"), &["--allow-write"]);
    (scratch, server)
}

#[test]
fn directories_and_names() {
    let (scratch, server) = site();
    let (dir, url) = (scratch.join("export"), |path: &str| server.url(path));
    ask(&["mkdir", &url("a"), &url("b")]).ok();
    ask(&["mkdir", &url("a")]).exits(5);
    ask(&["mkdir", &url("no/such")]).exits(5);
    ask(&["mkdir", "-p", &url("p/q/r"), &url("a")]).ok();
    fs::write(dir.join("a/x"), b"x").unwrap();
    fs::write(dir.join("a/y"), b"y").unwrap();
    // Into a directory that is there, with or without a slash.
    ask(&["mv", &url("a/x"), &url("p/q")]).ok();
    ask(&["mv", &url("p/q/x"), &url("a/y"), &url("p/q/r/")]).ok();
    assert!(dir.join("p/q/r/x").is_file() && dir.join("p/q/r/y").is_file());
    ask(&["mv", &url("p/q/r/x"), &url("p/q/r/y")]).exits(5).says(&["there already"]);
    assert_eq!(fs::read(dir.join("p/q/r/y")).unwrap(), b"y");
    ask(&["mv", "--force", &url("p/q/r/x"), &url("p/q/r/y")]).ok();
    assert_eq!(fs::read(dir.join("p/q/r/y")).unwrap(), b"x");
    ask(&["mv", &url("p"), &url("b/")]).ok();
    assert!(dir.join("b/p/q/r/y").is_file());
    ask(&["mv", &url("missing"), &url("other")]).exits(3);
    ask(&["mv", &url("b"), text(&scratch.join("here"))]).exits(12).says(&["cp"]);
    ask(&["mv", &url("a"), &url("b"), &url("b/p/q/r/y")]).exits(2);
    // Names that need encoding.
    fs::write(dir.join("ü 1"), b"u").unwrap();
    ask(&["mv", &url("%C3%BC%201"), &url("b/100%25")]).ok();
    assert_eq!(fs::read(dir.join("b/100%")).unwrap(), b"u");

    ask(&["rm", &url("b")]).exits(2);
    ask(&["rm", &url("missing"), &url("b/100%25")]).exits(10);
    assert!(!dir.join("b/100%").exists());
    ask(&["rm", "-r", &url("b"), &url("a")]).ok();
    assert!(!dir.join("b").exists() && !dir.join("a").exists());
    let found = ask(&["df", "--json", &url("")]).ok().event("space");
    assert!(found["available_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{found}");
}

#[test]
fn on_this_machine() {
    let scratch = Scratch::new();
    let path = |name: &str| text(&scratch.join(name)).to_owned();
    ask(&["mkdir", &path("d")]).ok();
    ask(&["mkdir", &path("d")]).exits(5);
    ask(&["mkdir", "-p", &path("d/e/f")]).ok();
    scratch.file("x", b"x");
    scratch.file("y", b"y");
    ask(&["mv", &path("x"), &path("y")]).exits(5);
    ask(&["mv", &path("x"), &path("d")]).ok();
    assert!(scratch.join("d/x").is_file());
    ask(&["mv", "--force", &path("d/x"), &path("y")]).ok();
    assert_eq!(fs::read(scratch.join("y")).unwrap(), b"x");
    // The current directory stays.
    scratch.file("d/kept", b"");
    for here in [".", "..", "../../d"] {
        let mut command = gridlane();
        command.args(["rm", "-r", here]).current_dir(scratch.join("d/e"));
        run(command).exits(2).says(&["current directory"]);
    }
    assert!(scratch.join("d/kept").exists() && scratch.join("d/e/f").exists());
    ask(&["rm", "-r", &path("d")]).ok();
    assert!(!scratch.join("d").exists());
    let table = ask(&["df", &path("")]).ok().text();
    assert!(table.contains("available") && table.lines().count() == 2, "{table}");
}

#[test]
fn completion() {
    let (scratch, server) = site();
    for name in ["file one", "file2", "other"] {
        fs::write(scratch.join("export").join(name), b"").unwrap();
    }
    fs::create_dir(scratch.join("export/dir")).unwrap();
    let complete = |arguments: &[&str]| {
        let mut command = gridlane();
        command.env("XDG_CACHE_HOME", scratch.join("cache")).arg("complete").args(arguments);
        run(command).ok().text()
    };
    let url = server.url("");
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    // A person presses TAB again where a server did not tell its names in time.
    let mut found = Vec::new();
    until("the names are told", || {
        found = lines(complete(&["zsh", "--", "gridlane", "cp", &format!("{url}f")]));
        !found.is_empty()
    });
    assert_eq!(found, [format!("{url}file%20one"), format!("{url}file2")]);
    let found = lines(complete(&["fish", "--", "gridlane", "ls", &url]));
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.contains(&format!("{url}dir/")), "{found:?}");
    // bash replaces only what stands behind the last colon.
    let port = url.rsplit(':').next().unwrap();
    let found = lines(complete(&["bash", "--", &format!("gridlane cp --force {url}file2")]));
    assert_eq!(found, [format!("{port}file2")]);
    let found = lines(complete(&["bash", "--", "gridlane mk"]));
    assert_eq!(found, ["mkdir"]);
    assert!(lines(complete(&["bash", "--", "gridlane cp --checks"])).contains(&"--checksum".to_owned()));
    // Names on this machine are the shell's business, and what cannot be reached is no failure.
    assert_eq!(complete(&["bash", "--", "gridlane cp /et"]), "");
    assert_eq!(complete(&["bash", "--", "gridlane cp http://127.0.0.1:1/x"]), "");
    // Asked once, remembered for a while.
    fs::remove_file(scratch.join("export/file2")).unwrap();
    assert_eq!(lines(complete(&["zsh", "--", "gridlane", "cp", &format!("{url}file2")])).len(), 1);
}

/// bash itself, with the script and what it would do at a TAB.
#[test]
fn completion_in_bash() {
    let (scratch, server) = site();
    fs::write(scratch.join("export/file2"), b"").unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_gridlane"));
    let line = format!("gridlane cp {}f", server.url(""));
    let script = format!(
        "PATH={}:$PATH; source <(gridlane completion bash); COMP_LINE={line:?}; COMP_POINT=${{#COMP_LINE}}; \
         compopt() {{ :; }}; _gridlane; echo \"${{COMPREPLY[@]}}\"; complete -p gridlane",
        program.parent().unwrap().display()
    );
    let mut said = String::new();
    // A server may be too slow to tell its names in time: then nothing is offered.
    until("the name is told", || {
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", &script]).env("XDG_CACHE_HOME", scratch.join("cache"));
        said = run(command).ok().text();
        !said.lines().next().unwrap().is_empty()
    });
    assert!(said.lines().next().unwrap().ends_with("/file2"), "{said}");
    assert!(said.contains("-F _gridlane gridlane"), "{said}");
}

#[test]
fn doctor() {
    let (scratch, server) = site();
    fs::write(scratch.join("export/f"), b"bytes").unwrap();
    let outcome = ask(&["doctor", &server.url("f")]).ok();
    let said = outcome.text();
    for words in
        ["this machine", "open files", "authorities", "127.0.0.1", "agrees with the server's", "adler32"]
    {
        assert!(said.contains(words), "no {words:?}: {said}");
    }
    let verdict = |outcome: &Outcome, subject: &str| {
        let found = outcome.events().into_iter().rfind(|event| event["subject"] == subject);
        found.unwrap_or_else(|| panic!("nothing about {subject}: {}", outcome.describe()))["verdict"].clone()
    };
    let outcome = ask(&["doctor", "--json", &server.url("f")]).ok();
    for subject in ["connection", "answer", "ranges", "checksums", "clock", "WebDAV"] {
        assert_eq!(verdict(&outcome, subject), "ok", "{subject}");
    }
    let outcome = ask(&["doctor", "--json", &server.url("missing")]).exits(3);
    assert_eq!(verdict(&outcome, "answer"), "bad");
    let outcome = ask(&["doctor", "--json", &server.url_over("https", "f")]).exits(4);
    assert_eq!(verdict(&outcome, "connection"), "bad");
    ask(&["doctor", "http://127.0.0.1:1/"]).exits(6);
    let secret = "hunter2";
    let mut command = gridlane();
    command.args(["doctor"]).env("https_proxy", format!("http://ada:{secret}@127.0.0.1:1/"));
    let outcome = run(command).ok();
    assert!(outcome.text().contains("https_proxy") && !outcome.text().contains(secret), "{}", outcome.text());
}

#[test]
fn manual_pages() {
    let scratch = Scratch::new();
    ask(&["man", text(&scratch.join("man"))]).ok();
    let page = fs::read_to_string(scratch.join("man/gridlane-cp.1")).unwrap();
    assert!(page.contains(".TH gridlane-cp 1") && page.contains("mirror"), "{page}");
    for name in ["gridlane.1", "gridlane-serve.1", "gridlane-mv.1", "gridlane-wan-up.1"] {
        assert!(scratch.join("man").join(name).is_file(), "{name}");
    }
    assert!(!scratch.join("man/gridlane-complete.1").exists());
}

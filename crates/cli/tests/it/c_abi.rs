//! The C interface (`crates/capi`): what is installed, used by a C program, which is compiled as C99 with the address sanitizer and as
//! C++; against our own server over both protocols, one that holds answers back, and servers that die.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::{Rogue, closed_port_url};
use crate::support::serve::Server;
use crate::support::{Scratch, content};

// Has cargo build the library, of which nothing is called from here.
use gridlane_capi as _;

/// Options for C99 with the sanitizers of addresses and of undefined behaviour.
const SANITIZED: [&str; 3] = ["-std=c99", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command that has to succeed; returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The library as it is installed, and the program as it is compiled with it.
struct Installed {
    scratch: Scratch,
}

impl Installed {
    fn library(&self) -> PathBuf {
        self.scratch.join("lib/libgridlane.so.1")
    }

    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.scratch.join(name));
        command.env("LD_LIBRARY_PATH", self.scratch.join("lib")).args(arguments);
        command
    }

    /// Runs a case of the program in both forms at the same time; returns what the second one prints.
    fn check(&self, arguments: &[&str]) -> String {
        std::thread::scope(|scope| {
            scope.spawn(|| run(&mut self.program("reads", arguments)));
            run(&mut self.program("reads++", arguments))
        })
    }

    fn compile(&self, compiler: &str, options: &[&str], source: &Path, name: &str) {
        let mut flags = Command::new("pkg-config");
        flags.args(["--cflags", "--libs", "gridlane"]);
        let flags = run(flags.env("PKG_CONFIG_PATH", self.scratch.join("lib/pkgconfig")));
        let mut command = Command::new(compiler);
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]).args(options);
        command.arg(source).args(["-x", "none"]);
        run(command.args(flags.split_whitespace()).arg("-o").arg(self.scratch.join(name)));
    }
}

/// Once for all tests.
fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let installed = Installed { scratch: Scratch::new() };
        let test = std::env::current_exe().unwrap();
        let mut install = Command::new("sh");
        install.arg(repository().join("scripts/install.sh")).arg("library").arg(test.parent().unwrap());
        run(install.env("PREFIX", installed.scratch.path()).env_remove("DESTDIR"));
        let program = repository().join("crates/capi/tests/reads.c");
        installed.compile("cc", &SANITIZED, &program, "reads");
        installed.compile("c++", &["-std=c++11", "-x", "c++"], &program, "reads++");
        installed
    })
}

#[test]
fn the_library_exports_what_the_header_says_and_nothing_else() {
    let header = repository().join("crates/capi/include/gridlane.h");
    let header = std::fs::read_to_string(header).unwrap();
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut said: Vec<&str> = header
        .match_indices("gridlane_")
        // A function's name: in a declaration, which begins at the beginning of a line.
        .filter(|(at, _)| {
            let line = header[..*at].rsplit('\n').next().unwrap();
            !line.starts_with([' ', '*', '/', '#'])
        })
        .filter_map(|(at, _)| {
            let name = header[at..].split(|letter| !is_of_name(letter)).next().unwrap();
            header[at + name.len()..].starts_with('(').then_some(name)
        })
        .collect();
    said.sort_unstable();
    let found = run(Command::new("nm").args(["-D", "--defined-only"]).arg(installed().library()));
    let mut found: Vec<&str> = found.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, said);
    assert!(said.len() > 20);
    let dynamic = run(Command::new("readelf").arg("-d").arg(installed().library()));
    assert!(dynamic.contains("[libgridlane.so.1]") && dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn a_c_program_reads_all_over_by_both_protocols() {
    let (scratch, bytes) = (Scratch::new(), content(5201, 24_000_123));
    let file = scratch.file("export/f", &bytes);
    let server = Server::start(&scratch.join("export"));
    for scheme in ["http", "root"] {
        let url = server.url_over(scheme, "f");
        let said = installed().check(&["all-over", file.to_str().unwrap(), &url]);
        let explain: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert_eq!(explain["size_bytes"], 24_000_123, "{said}");
        assert_eq!(explain["policy"], "adaptive", "{said}");
        assert_eq!(explain["failures"], 0, "{said}");
        assert!(
            explain["moved_bytes"].as_u64().unwrap() >= explain["wanted_bytes"].as_u64().unwrap(),
            "{said}"
        );
        // What the reference says of it, and nothing that it does not.
        let page = std::fs::read_to_string(repository().join("docs/reference/json-events.md")).unwrap();
        let page = page.lines().find(|line| line.starts_with("| `run` | `seconds`")).unwrap();
        for name in explain.as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{name}`")), "docs/reference/json-events.md has no `{name}`");
        }
    }
}

#[test]
fn the_example_of_the_reference_reads_a_file() {
    let page = std::fs::read_to_string(repository().join("docs/reference/c-abi.md")).unwrap();
    let example = page.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let scratch = Scratch::new();
    let source = scratch.file("example.c", example.as_bytes());
    installed().compile("cc", &SANITIZED, &source, "example");
    scratch.file("export/f", &content(5204, 2_000_300));
    let server = Server::start(&scratch.join("export"));
    let urls = [server.url_over("root", "f"), server.url_over("http", "f")];
    let said = run(&mut installed().program("example", &[&urls[0], &urls[1]]));
    let mut said: Vec<&str> = said.lines().collect();
    said.sort_unstable();
    assert_eq!(said, ["head: 512 bytes", "range 0: 1000 bytes", "range 1: 1000 bytes", "range 2: 300 bytes"]);
    let mut missing = installed().program("example", &[&server.url_over("http", "missing")]);
    assert_eq!(missing.output().unwrap().status.code(), Some(1));
}

#[test]
fn a_c_program_is_told_what_went_wrong() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.dir("export"));
    // A server that refuses is tried for some seconds.
    std::thread::scope(|scope| {
        for scheme in ["http", "root"] {
            let (missing, refused) = (server.url_over(scheme, "missing"), closed_port_url("f"));
            let refused = refused.replace("http://", &format!("{scheme}://"));
            scope.spawn(move || installed().check(&["errors", &missing, &refused]));
        }
    });
}

#[test]
fn a_c_program_gives_up_what_is_held_back() {
    let object = Object::new(&content(5202, 24_000_123));
    let server = Rogue::start(move |request| match request.range {
        Some((first, _)) if (1_000_000..23_000_000).contains(&first) => {
            Answer::raw(Vec::new()).then(Then::Stall)
        }
        _ => object.answer(request),
    });
    let silent = Rogue::start(|_| Answer::raw(Vec::new()).then(Then::Stall));
    installed().check(&["held", &server.url("f"), &silent.url("f")]);
}

/// Runs a case up to the word "half", then kills a server, and lets the case go on.
fn die_half_way(program: &str, arguments: &[&str], server: &mut Server) {
    let mut command = installed().program(program, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line == "half\n" {
        server.kill();
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    }
    said.read_to_string(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && line == "half\nwell\n",
        "{arguments:?}: {} {line}\n{why}",
        output.status
    );
}

#[test]
fn a_c_program_survives_its_servers() {
    let (scratch, bytes) = (Scratch::new(), content(5203, 24_000_123));
    let file = scratch.file("export/f", &bytes);
    let lasting = Server::start(&scratch.join("export"));
    for (program, scheme, other) in [("reads", "http", "root"), ("reads++", "root", "http")] {
        let mut dying = Server::start(&scratch.join("export"));
        let (first, second) = (dying.url_over(scheme, "f"), lasting.url_over(other, "f"));
        die_half_way(program, &["dies", file.to_str().unwrap(), &first, &second], &mut dying);
        let mut dying = Server::start(&scratch.join("export"));
        die_half_way(program, &["alone", &dying.url_over(scheme, "f")], &mut dying);
    }
}

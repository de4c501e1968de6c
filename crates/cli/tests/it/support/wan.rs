//! Emulated networks: one that is taken down with the value, and what must not be left of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{Outcome, copy_of_gridlane, gridlane, isolated, run, signal};
use super::serve::Server;
use super::tools::tool;
use super::{Scratch, until};

/// The longest time that processes which were killed or told to end may take to be gone.
const GOING_MAX: Duration = Duration::from_secs(15);

/// Signals by number.
const KILL: i32 = 9;
const TERM: i32 = 15;

/// An emulated network, up or not. Whatever happens in the test, it is down when the value is dropped.
pub(crate) struct Wan {
    name: String,
    scratch: Scratch,
    launch: Launch,
}

/// The user and the place that `gridlane` is run by.
struct Launch {
    /// The words before the arguments; the last is the binary.
    words: Vec<String>,
    /// `XDG_RUNTIME_DIR`; as it is without.
    runtime: Option<PathBuf>,
}

impl Wan {
    /// One that is not up. The name of the test keeps it apart from those of others.
    pub(crate) fn planned(test: &str, scenario: &str) -> Wan {
        let name = format!("it-{}-{test}", std::process::id());
        assert!(name.len() <= 32, "{name}");
        let scratch = Scratch::new();
        scratch.file("scenario.toml", scenario.as_bytes());
        let words = vec![gridlane().get_program().to_str().unwrap().to_owned()];
        Wan { name, scratch, launch: Launch { words, runtime: None } }
    }

    /// One that is up.
    pub(crate) fn up(test: &str, scenario: &str) -> Wan {
        let wan = Wan::planned(test, scenario);
        wan.bring_up();
        wan
    }

    /// One that is not up, and belongs to an ordinary user that has a copy of the binary. To be used by root.
    pub(crate) fn planned_for_nobody(test: &str, scenario: &str) -> Wan {
        const NOBODY: u32 = 65534;
        super::needs_root();
        let mut wan = Wan::planned(test, scenario);
        let (dir, binary) = (wan.scratch.dir("nobody"), wan.scratch.join("gridlane"));
        copy_of_gridlane(&binary);
        for (path, mode) in [(wan.scratch.path(), 0o755), (&dir, 0o700), (&binary, 0o755)] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        let setpriv = tool("setpriv", "util-linux");
        wan.launch.words = [setpriv.get_program().to_str().unwrap(), "--reuid=65534", "--regid=65534"]
            .into_iter()
            .chain(["--clear-groups", binary.to_str().unwrap()])
            .map(str::to_owned)
            .collect();
        wan.launch.runtime = Some(dir);
        wan
    }

    /// `gridlane wan SUBCOMMAND` for this network.
    pub(crate) fn command(&self, subcommand: &str) -> Command {
        self.command_within(&[], subcommand)
    }

    /// The same, run by other programs.
    pub(crate) fn command_within(&self, runner: &[&str], subcommand: &str) -> Command {
        let words: Vec<&str> =
            runner.iter().copied().chain(self.launch.words.iter().map(String::as_str)).collect();
        let mut command = isolated(Command::new(words[0]));
        command.args(&words[1..]).args(["wan", subcommand, "--name", &self.name]);
        if let Some(runtime) = &self.launch.runtime {
            command.env("XDG_RUNTIME_DIR", runtime);
        }
        command
    }

    /// `gridlane wan SUBCOMMAND ARGUMENTS`, run to its end.
    pub(crate) fn run(&self, subcommand: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.command(subcommand);
        command.args(arguments);
        run(command)
    }

    /// `gridlane wan up SCENARIO.toml`, to which a test adds.
    pub(crate) fn command_up(&self) -> Command {
        let mut command = self.command("up");
        command.arg(self.scenario());
        command
    }

    /// Brings it up. A machine that cannot is no reason to skip a test.
    #[track_caller]
    pub(crate) fn bring_up(&self) -> Outcome {
        let outcome = run(self.command_up());
        assert_eq!(
            outcome.code,
            Some(0),
            "no network came up; these tests need iproute2 and either root or user namespaces and \
             a /dev/net/tun that users may use\n{}",
            outcome.describe()
        );
        outcome
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn scenario(&self) -> PathBuf {
        self.scratch.join("scenario.toml")
    }

    /// A directory that the user which runs the network may write to.
    pub(crate) fn writable(&self) -> &Path {
        self.launch.runtime.as_deref().unwrap_or(self.scratch.path())
    }

    // --- Inside ---------------------------------------------------------------------------------

    /// `gridlane wan exec SITE -- PROGRAM`, to which a test adds arguments.
    pub(crate) fn exec(&self, site: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("exec");
        command.args([site, "--"]).arg(program);
        command
    }

    /// The output of a shell at a site.
    #[track_caller]
    pub(crate) fn shell(&self, site: &str, script: &str) -> String {
        let mut command = self.exec(site, "sh");
        command.args(["-c", script]);
        run(command).ok().text().trim_end().to_owned()
    }

    /// Serves a directory at a site, over both families.
    pub(crate) fn serve(&self, site: &str, dir: &Path) -> Server {
        let [ipv4, ipv6] = self.addresses(site);
        let mut command = self.exec(site, "env");
        command.arg(format!("XDG_DATA_HOME={}", self.writable().join(site).display()));
        command.arg(self.binary()).arg("serve").arg(dir).args(["--json", "--access-log", "off"]);
        command.args(["--insecure-allow-anonymous", "--listen", &format!("{ipv4}:0")]);
        command.args(["--listen", &format!("[{ipv6}]:0")]);
        Server::spawn(command)
    }

    /// `gridlane cp SOURCE TARGET --json` at a site, with the other sources as mirrors.
    pub(crate) fn cp(&self, site: &str, sources: &[String], target: &Path) -> Command {
        let mut command = self.exec(site, self.binary());
        command.arg("cp").arg(&sources[0]).arg(target).arg("--json");
        for mirror in &sources[1..] {
            command.arg("--mirror").arg(mirror);
        }
        command
    }

    fn binary(&self) -> &str {
        &self.launch.words[self.launch.words.len() - 1]
    }

    // --- What it says of itself -----------------------------------------------------------------

    /// The output of `wan show --json`.
    #[track_caller]
    pub(crate) fn show(&self) -> Value {
        self.run("show", &["--json"]).ok().event("wan")
    }

    /// The process that keeps it up.
    pub(crate) fn keeper(&self) -> String {
        self.show()["pid"].to_string()
    }

    /// IPv4 and IPv6.
    pub(crate) fn addresses(&self, site: &str) -> [String; 2] {
        let node = find(&self.show()["nodes"], &[("name", site)]);
        [0, 1].map(|family| node["addresses"][family].as_str().unwrap().to_owned())
    }

    /// The part of it about one direction of a link.
    #[track_caller]
    pub(crate) fn link(&self, link: &str, from: &str) -> Value {
        find(&self.show()["links"], &[("link", link), ("from", from)])
    }

    /// The part of it about the way from one site to another.
    #[track_caller]
    pub(crate) fn path(&self, from: &str, to: &str) -> Value {
        find(&self.show()["paths"], &[("from", from), ("to", to)])
    }

    /// A counter of one direction of a link.
    #[track_caller]
    pub(crate) fn count(&self, link: &str, from: &str, counter: &str) -> u64 {
        let state = self.link(link, from);
        state["counters"][counter].as_u64().unwrap_or_else(|| panic!("no {counter} in {state}"))
    }

    /// The same of the links to one site, added up: all as of one moment.
    #[track_caller]
    pub(crate) fn count_all(&self, from: &[&str], to: &str, counter: &str) -> u64 {
        let state = self.show();
        let of = |from: &&str| {
            let link = find(&state["links"], &[("link", &format!("{from}-{to}")), ("from", from)]);
            link["counters"][counter].as_u64().unwrap_or_else(|| panic!("no {counter} in {link}"))
        };
        from.iter().map(of).sum()
    }

    /// `wan set`, which must succeed.
    #[track_caller]
    pub(crate) fn set(&self, link: &str, arguments: &[&str]) {
        let mut command = self.command("set");
        command.arg(link).args(arguments);
        run(command).ok();
    }

    // --- What is left ---------------------------------------------------------------------------

    /// Where its files are while it is up.
    pub(crate) fn dir(&self) -> PathBuf {
        let (base, user) = match &self.launch.runtime {
            Some(dir) => (dir.clone(), fs::metadata(dir).unwrap().uid()),
            None if is_root() => ("/run".into(), 0),
            None => {
                let set = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
                (set.map_or_else(std::env::temp_dir, PathBuf::from), user())
            }
        };
        base.join(format!("gridlane-wan-{user}")).join(&self.name)
    }

    /// Processes that were told its name. Those that `exec` became are not among them.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes(|dir| {
            let words = fs::read(dir.join("cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == self.name.as_bytes())
        })
    }

    /// Its network namespaces by their numbers.
    pub(crate) fn namespaces(&self) -> BTreeSet<u64> {
        let nodes = self.show()["nodes"].clone();
        let names = nodes.as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap());
        names.map(|site| self.shell(site, "stat -L -c %i /proc/self/ns/net").parse().unwrap()).collect()
    }

    /// Asserts that neither its processes nor its files are left, nor anything in its namespaces.
    #[track_caller]
    pub(crate) fn assert_gone(&self, namespaces: &BTreeSet<u64>) {
        let start = Instant::now();
        loop {
            let inside = processes_in(namespaces);
            let is_there = self.dir().exists();
            if self.processes().is_empty() && inside.is_empty() && !is_there {
                return;
            }
            assert!(
                start.elapsed() < GOING_MAX,
                "left of {}: processes {:?}, in its namespaces {inside:?}, its directory: {is_there}",
                self.name,
                self.processes()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        // It has deadlines of its own. A test that failed has said so already.
        let _ = self.command("down").output();
    }
}

/// The value in a list whose fields are these.
#[track_caller]
pub(crate) fn find(list: &Value, fields: &[(&str, &str)]) -> Value {
    let has_all = |value: &&Value| fields.iter().all(|(field, text)| value[field] == *text);
    let found = list.as_array().and_then(|list| list.iter().find(has_all));
    found.unwrap_or_else(|| panic!("nothing with {fields:?} in {list}")).clone()
}

/// True if the tests run as root.
pub(crate) fn is_root() -> bool {
    user() == 0
}

fn user() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

/// Processes in one of these network namespaces.
pub(crate) fn processes_in(namespaces: &BTreeSet<u64>) -> Vec<u32> {
    processes(|dir| {
        fs::metadata(dir.join("ns/net")).is_ok_and(|namespace| namespaces.contains(&namespace.ino()))
    })
}

fn processes(is_meant: impl Fn(&Path) -> bool) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid: &u32| is_meant(&PathBuf::from(format!("/proc/{pid}")))).collect()
}

/// True if any thread of a process is there that is no zombie: while one is, locks and devices are held.
pub(crate) fn is_alive(pid: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    states
        .filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next())
        .any(|state| !matches!(state, 'Z' | 'X'))
}

/// A `sleep` at a site that would take ten minutes. It is killed when the value is dropped.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    /// Runs a command that ends in `sleep`, and waits until it is that.
    pub(crate) fn start(mut command: Command) -> Sleeper {
        let sleeper = Sleeper(command.arg("600").spawn().unwrap());
        until("sleep runs", || {
            let words = fs::read(format!("/proc/{}/cmdline", sleeper.0.id())).unwrap_or_default();
            words.starts_with(b"sleep\0")
        });
        sleeper
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.0.id().to_string(), name);
    }

    /// Waits for it to be ended by a signal.
    #[track_caller]
    pub(crate) fn assert_ended(&mut self) {
        let mut status = None;
        until("what runs inside is ended", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(matches!(status.unwrap().signal(), Some(TERM | KILL)), "{status:?}");
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills the process that keeps it up; returns the numbers of its namespaces.
pub(crate) fn crash(wan: &Wan) -> BTreeSet<u64> {
    let (namespaces, keeper) = (wan.namespaces(), wan.keeper());
    signal(&keeper, "KILL");
    until("it is gone", || !is_alive(&keeper));
    namespaces
}

// --- The host ----------------------------------------------------------------------------------

/// The state that must be the same outside the namespaces before and after: settings, routes, devices, names, mounts.
pub(crate) fn host() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for dir in ["core", "ipv4", "ipv6", "unix"] {
        read_all(&Path::new("/proc/sys/net").join(dir), &mut found);
    }
    for file in
        ["/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/etc/hosts", "/proc/self/mounts"]
    {
        found.insert(file.to_owned(), fs::read_to_string(file).unwrap_or_default());
    }
    let hosts = fs::metadata("/etc/hosts").map(|hosts| (hosts.dev(), hosts.ino(), hosts.mtime_nsec()));
    found.insert("the file /etc/hosts".into(), format!("{:?}", hosts.ok()));
    let named = fs::read_dir("/run/netns").map(|dir| dir.flatten().map(|entry| entry.file_name()).collect());
    found.insert("named namespaces".into(), format!("{:?}", named.unwrap_or_else(|_| Vec::new())));
    for question in ["-o link", "-4 route show table all", "-6 route show table all", "-4 rule", "-6 rule"] {
        let output = tool("ip", "iproute2").args(question.split(' ')).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Routes that a router has told count down.
        let lines = text.lines().map(|line| line.split(" expires ").next().unwrap_or(line));
        found.insert(format!("ip {question}"), lines.collect::<Vec<_>>().join("\n"));
    }
    found
}

fn read_all(dir: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => read_all(&path, found),
            // Some can only be written to.
            _ => drop(fs::read_to_string(&path).map(|text| found.insert(path.display().to_string(), text))),
        }
    }
}

/// Asserts that the host is as it was.
#[track_caller]
pub(crate) fn assert_unchanged(before: &BTreeMap<String, String>) {
    let after = host();
    for (what, was) in before {
        assert_eq!(after.get(what), Some(was), "{what} has changed on the host");
    }
    assert_eq!(before.len(), after.len(), "there is more on the host than before");
}

//! XRootD's manager with a data server behind it, as sites have them: an `xrootd` and a `cmsd` for each.

use std::fs;
use std::path::PathBuf;

use super::nginx::free_port;
use super::tools::tool;
use super::xrootd::{Daemon, answers, give, open_to_all};
use super::{Scratch, until};

/// A manager and a data server. They are killed when the value is dropped.
pub(crate) struct Cluster {
    daemons: Vec<Daemon>,
    manager: u16,
    member: u16,
    scratch: Scratch,
}

impl Cluster {
    /// A manager of an empty directory, once it knows of the data server.
    pub(crate) fn start() -> Cluster {
        // Another process may take a port before it is used.
        (0..20).find_map(|_| Cluster::try_start()).expect("free ports for a cluster")
    }

    fn try_start() -> Option<Cluster> {
        let (manager, member, cluster) = (free_port(), free_port(), free_port());
        let mut this = Cluster { daemons: Vec::new(), manager, member, scratch: Scratch::new() };
        open_to_all(this.scratch.path());
        for (role, port) in [("manager", manager), ("server", member)] {
            let home = this.scratch.dir(role);
            for dir in ["export", "admin"] {
                this.scratch.dir(&format!("{role}/{dir}"));
            }
            let at = home.display();
            let lines = format!(
                "all.export / r/w
all.role {role}
all.manager 127.0.0.1:{cluster}
oss.localroot {at}/export
all.adminpath {at}/admin
xrd.network nodnr
xrd.port {port}
xrd.port {cluster} if exec cmsd
xrootd.chksum max 4 adler32 crc32c md5
cms.delay startup 1 servers 1 lookup 1
cms.space min 1m 2m
"
            );
            // Only the manager's cmsd is called by others.
            let lines = match role {
                "manager" => lines,
                _ => lines
                    .replace(&format!("xrd.port {cluster} if exec cmsd\n"), "xrd.port any if exec cmsd\n"),
            };
            fs::write(home.join("cfg"), lines).unwrap();
            give(&home);
            for program in ["cmsd", "xrootd"] {
                let log = fs::File::create(home.join(format!("{program}.log"))).unwrap();
                let mut command = tool(program, "xrootd-server");
                command.arg("-s").arg(home.join(format!("admin/{program}.pid")));
                command.arg("-c").arg(home.join("cfg")).current_dir(home.join("admin"));
                this.daemons.push(Daemon::start(command, log));
            }
        }
        fs::write(this.exported("known"), b"known").unwrap();
        this.give();
        let mut ended = false;
        until("the manager knows its data server", || {
            ended = this.daemons.iter().any(Daemon::has_ended);
            ended || answers(manager) && answers(member) && this.knows() && this.takes()
        });
        // What the last question left.
        let _ = fs::remove_file(this.exported("taken"));
        (!ended).then_some(this)
    }

    /// True if the manager sends clients to the data server.
    fn knows(&self) -> bool {
        let mut command = tool("xrdfs", "xrootd-client");
        command.args([&format!("127.0.0.1:{}", self.manager), "stat", "/known"]);
        super::client::run(command).code == Some(0)
    }

    /// True if the manager sends writers there as well: it does not before it was told how much room there is.
    fn takes(&self) -> bool {
        let mut command = tool("xrdcp", "xrootd-client");
        command.args(["--silent", "--force"]).arg(self.exported("known")).arg(self.url("taken"));
        super::client::run(command).code == Some(0)
    }

    /// The URL of a path at the manager.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("root://127.0.0.1:{}//{path}", self.manager)
    }

    /// Where a file of the data server is on the disk.
    pub(crate) fn exported(&self, name: &str) -> PathBuf {
        self.scratch.join("server/export").join(name)
    }

    /// Makes everything in the export the server's own, after a test has changed something in it.
    pub(crate) fn give(&self) {
        give(&self.scratch.join("server/export"));
    }

    /// The data server's port.
    pub(crate) fn member(&self) -> u16 {
        self.member
    }
}

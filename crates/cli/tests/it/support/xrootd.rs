//! Debian's XRootD server on a free port: root:// and roots:// as the field has them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::client::run;
use super::nginx::free_port;
use super::tools::tool;
use super::wan::is_root;
use super::{Scratch, until};

/// The user that it works as when root runs the tests: it refuses to be root.
const USER: &str = "xrootd";

/// A running server. It is killed when the value is dropped.
///
/// When it has crashed it is started again, once, as an operator's service manager does: XRootD 5.5.3 uses a connection now and then
/// that it has closed already (segmentation faults in `XrdLink::Enable` and `XrdLink::setEtext`, three in some twenty runs of
/// these tests). Clients have to get over that. A second crash is no chance, and stays.
pub(super) struct Daemon {
    child: Arc<Mutex<Child>>,
    is_stopped: Arc<AtomicBool>,
    watch: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts one that writes to this log.
    pub(super) fn start(mut command: Command, log: fs::File) -> Daemon {
        if is_root() {
            command.args(["-R", USER]);
        }
        command.stdout(Stdio::from(log.try_clone().unwrap())).stderr(Stdio::from(log.try_clone().unwrap()));
        let child = Arc::new(Mutex::new(command.spawn().unwrap()));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (watched, stops) = (Arc::clone(&child), Arc::clone(&is_stopped));
        let watch = std::thread::spawn(move || restart_crashed(command, log, &watched, &stops));
        Daemon { child, is_stopped, watch: Some(watch) }
    }

    /// True if it has ended otherwise than by a crash.
    pub(super) fn has_ended(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_some_and(|status| !is_crash(status))
    }

    /// Sends it a signal.
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.lock().unwrap()), signal).unwrap();
    }

    /// Kills it for good: when this returns it is gone, and nothing starts it again.
    fn kill(&mut self) -> std::io::Result<()> {
        self.is_stopped.store(true, Relaxed);
        self.child.lock().unwrap().kill()?;
        if let Some(watch) = self.watch.take() {
            watch.join().map_err(|_| std::io::Error::other("the thread that watches it has panicked"))?;
        }
        self.child.lock().unwrap().wait().map(|_| ())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn is_crash(status: ExitStatus) -> bool {
    [Signal::SEGV, Signal::BUS, Signal::ABORT].iter().any(|signal| status.signal() == Some(signal.as_raw()))
}

/// Starts a server again when it has crashed and was not stopped. Returns when it has ended in another way, too.
fn restart_crashed(mut command: Command, mut log: fs::File, child: &Mutex<Child>, is_stopped: &AtomicBool) {
    let pid = Pid::from_child(&child.lock().unwrap());
    // Without the lock, and without taking its status from others who ask how it has ended.
    while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {}
    let mut child = child.lock().unwrap();
    let status = child.try_wait().unwrap().filter(|status| is_crash(*status));
    if let Some(status) = status.filter(|_| !is_stopped.load(Relaxed)) {
        writeln!(log, "the tests start it again after a crash: {status}").unwrap();
        *child = command.spawn().unwrap();
    }
}

/// A running xrootd with a directory of its own, which anyone may read and write. It is killed when the value is
/// dropped.
pub(crate) struct Xrootd {
    daemon: Daemon,
    port: u16,
    host: &'static str,
    prefix: Scratch,
}

/// The settings of one server beside those of all.
pub(super) struct Setup {
    /// Lines of configuration, in which `__PORT__` stands for the port.
    pub(super) lines: String,
    /// Variables of its environment.
    pub(super) env: Vec<(&'static str, PathBuf)>,
    /// The name by which clients call it.
    pub(super) host: &'static str,
}

impl Xrootd {
    /// Serves an empty directory, with the checksums adler32, crc32c and md5, and with TLS for clients that want it.
    pub(crate) fn start() -> Xrootd {
        Xrootd::with("")
    }

    /// The same with more lines of configuration.
    pub(crate) fn with(lines: &str) -> Xrootd {
        let prefix = Scratch::new();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        gridlane_net::tls::self_signed(prefix.path(), &names).unwrap();
        let at = prefix.path().display();
        let lines = format!(
            "xrd.tls {at}/cert.pem {at}/key.pem\nxrd.tlsca noverify\nxrootd.tls capable none\n{lines}\n"
        );
        Xrootd::set_up(prefix, &Setup { lines, env: Vec::new(), host: "127.0.0.1" })
    }

    /// A read cache (XCache) of what is at this origin, `roots://HOST:PORT`, for which this certificate vouches.
    pub(crate) fn cache_of(origin: &str, ca: &Path) -> Xrootd {
        let prefix = Scratch::new();
        let authorities = hashed_authorities(&prefix, ca);
        let lines = format!(
            "ofs.osslib libXrdPss.so\npss.cachelib libXrdPfc.so\npss.origin {origin}\n\
             pfc.ram 1g\npfc.blocksize 1m\npfc.diskusage 0.98 0.99\n"
        );
        let env = vec![("X509_CERT_DIR", authorities)];
        Xrootd::set_up(prefix, &Setup { lines, env, host: "127.0.0.1" })
    }

    /// Starts one in a directory with everything that it needs, which becomes its own.
    pub(super) fn set_up(prefix: Scratch, setup: &Setup) -> Xrootd {
        for dir in ["export", "admin"] {
            prefix.dir(dir);
        }
        // Another user has to get in, and owns all of it.
        open_to_all(prefix.path());
        give(prefix.path());
        // Between choosing a port and listening at it another process may take it: then choose another.
        for _ in 0..20 {
            let port = free_port();
            let file = prefix.join("xrootd.cfg");
            fs::write(&file, configuration(prefix.path(), port, &setup.lines)).unwrap();
            let log = fs::File::create(prefix.join("log")).unwrap();
            let mut command = tool("xrootd", "xrootd-server");
            // Without a name for the process's number it leaves a file in /tmp.
            command
                .arg("-s")
                .arg(prefix.join("admin/pid"))
                .arg("-c")
                .arg(&file)
                .envs(setup.env.iter().map(|(name, value)| (name, value)))
                .current_dir(prefix.join("admin"));
            let daemon = Daemon::start(command, log);
            let mut ended = false;
            until("xrootd answers", || {
                ended = daemon.has_ended();
                ended || answers(port)
            });
            if !ended {
                return Xrootd { daemon, port, host: setup.host, prefix };
            }
            let log = fs::read_to_string(prefix.join("log")).unwrap_or_default();
            assert!(log.contains("in use"), "xrootd does not start: {log}");
        }
        panic!("no free port for xrootd");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a path below its root, which may not be encoded: it is not decoded.
    pub(crate) fn url(&self, path: &str) -> String {
        self.url_over("root", path)
    }

    /// The same over `root`, `roots` or, when it has that, `https`.
    pub(crate) fn url_over(&self, scheme: &str, path: &str) -> String {
        let slashes = if scheme.starts_with("root") { "//" } else { "/" };
        format!("{scheme}://{}:{}{slashes}{path}", self.host, self.port)
    }

    /// Where an exported file is on the disk.
    pub(crate) fn exported(&self, name: &str) -> PathBuf {
        self.prefix.join("export").join(name)
    }

    /// Puts a file into the export.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.exported(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        self.give();
        path
    }

    /// Makes everything in the export its own, after a test has changed something in it.
    pub(crate) fn give(&self) {
        give(&self.prefix.join("export"));
    }

    /// The certificate that vouches for it.
    pub(crate) fn ca(&self) -> PathBuf {
        self.prefix.join("cert.pem")
    }

    /// Its log: logins, connections that went over to TLS, errors.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.prefix.join("log")).unwrap()).into_owned()
    }

    /// Kills it in the middle of everything, for good.
    pub(crate) fn kill(&mut self) {
        self.daemon.kill().unwrap();
    }
}

/// A directory as XRootD's and davix's clients want it: each authority under the hash of its name.
pub(crate) fn hashed_authorities(scratch: &Scratch, certificate: &Path) -> PathBuf {
    let dir = scratch.dir("authorities");
    fs::copy(certificate, dir.join("gridlane.pem")).unwrap();
    let mut command = tool("openssl", "openssl");
    command.arg("rehash").arg(&dir);
    run(command).ok();
    dir
}

/// True if a server answers XRootD's handshake.
pub(super) fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut hello = [0; 20];
    hello[15] = 4;
    hello[18..].copy_from_slice(&2012_u16.to_be_bytes());
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.write_all(&hello).is_ok() && stream.read_exact(&mut [0; 16]).is_ok()
}

/// Lets every user into a directory.
pub(crate) fn open_to_all(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Lets the server's user own a tree, when it is not the one that runs the tests.
pub(crate) fn give(tree: &Path) {
    if is_root() {
        let owner = format!("{USER}:");
        let mut command = tool("chown", "coreutils");
        command.arg("-R").arg(owner).arg(tree);
        run(command).ok();
    }
}

fn configuration(prefix: &Path, port: u16, lines: &str) -> String {
    let prefix = prefix.display();
    let lines = lines.replace("__PORT__", &port.to_string());
    format!(
        "all.export / r/w
oss.localroot {prefix}/export
all.adminpath {prefix}/admin
xrd.port {port}
xrd.network nodnr
xrootd.chksum max 4 adler32 crc32c md5
{lines}
"
    )
}

/// The tests of other servers' clients rest on this.
#[test]
fn a_server_is_started_again_after_its_first_crash_alone() {
    let mut server = Xrootd::start();
    let again = |server: &Xrootd| server.log().matches("start it again after a crash").count();
    server.daemon.signal(Signal::SEGV);
    until("it was started again", || again(&server) == 1);
    until("it answers", || answers(server.port));
    server.daemon.signal(Signal::SEGV);
    until("it is gone", || !answers(server.port));
    server.kill();
    assert_eq!(again(&server), 1);
    assert!(!answers(server.port));
}

/// One that crashes while it is stopped would be left over.
#[test]
fn a_server_that_was_stopped_is_not_started_again() {
    let mut server = Xrootd::start();
    server.daemon.is_stopped.store(true, Relaxed);
    server.daemon.signal(Signal::SEGV);
    // It has crashed when this ends: a kill could come before.
    server.daemon.watch.take().unwrap().join().unwrap();
    assert!(!answers(server.port) && !server.log().contains("start it again"));
    server.kill();
}

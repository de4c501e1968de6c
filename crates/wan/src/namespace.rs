//! One node: a network namespace and a thread that lives in it.
//!
//! A namespace exists as long as a thread lives in it or a descriptor of it is open. These are kept by this
//! process only, and nothing is written outside: when the process ends, however it does, the kernel removes
//! its namespaces and everything in them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_sys::namespace::{Namespaces, unshare};

use crate::isolation::denied;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace, with a host name of its own.
pub(crate) struct Namespace {
    name: String,
    handles: Handles,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The names of the namespaces for other processes and for reading their counters.
struct Handles {
    network: OwnedFd,
    host_name: OwnedFd,
    /// Its `/proc/net/dev`, which stays that of this namespace for any reader.
    devices: Mutex<File>,
}

impl Namespace {
    /// Makes one. Its host name is its name.
    pub(crate) fn create(name: &str) -> Result<Namespace> {
        let (ready, is_ready) = mpsc::channel();
        let (jobs, to_do) = mpsc::channel::<Job>();
        let host_name = name.to_owned();
        let thread = std::thread::Builder::new()
            .name(format!("wan {name}"))
            .spawn(move || {
                let handles = enter_new(&host_name);
                let is_made = handles.is_ok();
                if ready.send(handles).is_ok() && is_made {
                    to_do.iter().for_each(|job| job());
                }
            })
            .map_err(|cause| Error::local_io("cannot start a thread", &cause))?;
        let handles = is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        let handles = handles.map_err(|cause| match cause.kind() {
            io::ErrorKind::PermissionDenied => denied(&cause),
            _ => Error::local_io(format!("cannot make the network namespace of {name}"), &cause),
        })?;
        Ok(Namespace { name: name.to_owned(), handles, jobs: Some(jobs), thread: Some(thread) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Descriptors of the network namespace and of that of the host name.
    pub(crate) fn descriptors(&self) -> (&OwnedFd, &OwnedFd) {
        (&self.handles.network, &self.handles.host_name)
    }

    /// The network namespace's number, as in `/proc/PID/ns/net`. Unique while the namespace exists.
    pub(crate) fn number(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.handles.network)
            .map_err(|cause| Error::local_io("cannot look at a namespace", &cause.into()))?;
        Ok(stat.st_ino)
    }

    /// Does something inside and waits for it. Threads and processes that it starts are inside too.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let gone =
            || Error::new(ErrorKind::Other, format!("the thread in the namespace of {} is gone", self.name));
        let (done, result) = mpsc::channel();
        let job = Box::new(move || {
            // The caller waits below.
            let _ = done.send(job());
        });
        self.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }

    /// Runs `program` inside with lines on its standard input: the batch modes of `ip` and `tc`.
    pub(crate) fn batch(&self, program: &'static str, lines: &str) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let (site, lines) = (self.name.clone(), lines.to_owned());
        self.run(move || batch(program, &lines).map_err(|error| error.endpoint(site)))?
    }

    /// Runs `program` inside and returns what it prints.
    pub(crate) fn output(&self, program: &'static str, arguments: &[&str]) -> Result<String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self.run(move || {
            let output = command(program).args(arguments).output();
            let output = output.map_err(|cause| not_run(program, &cause))?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })?
    }

    /// Writes what the kernel lets one set for a network namespace: paths below `/proc/sys/net`.
    pub(crate) fn set_all(&self, settings: &[(String, String)]) -> Result<()> {
        let settings = settings.to_vec();
        self.run(move || {
            for (path, value) in settings {
                // Which namespace's it is depends on the thread that opens it, and this one is inside.
                std::fs::write(&path, &value)
                    .map_err(|cause| Error::local_io(format!("cannot set {path} to {value}"), &cause))?;
            }
            Ok(())
        })?
    }

    /// Packets that a device dropped before anyone read them (`tx_dropped`); `None`: there is no such device.
    pub(crate) fn dropped_by_device(&self, device: &str) -> Result<Option<u64>> {
        let unknown = |why: &str| {
            Error::new(ErrorKind::Other, format!("cannot tell what {device} of {} dropped: {why}", self.name))
                .fault(Fault::Local)
        };
        let mut file = self.handles.devices.lock().map_err(|_| unknown("its file is in use"))?;
        let mut text = String::new();
        file.rewind()
            .and_then(|()| file.read_to_string(&mut text))
            .map_err(|cause| unknown(&cause.to_string()))?;
        Ok(transmit_drops(&text, device))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn enter_new(host_name: &str) -> io::Result<Handles> {
    unshare(Namespaces::NetworkAndHostName)?;
    rustix::system::sethostname(host_name.as_bytes())?;
    let open = |what: &str| File::open(format!("/proc/thread-self/{what}"));
    Ok(Handles {
        network: open("ns/net")?.into(),
        host_name: open("ns/uts")?.into(),
        devices: Mutex::new(open("net/dev")?),
    })
}

fn batch(program: &'static str, lines: &str) -> Result<()> {
    let failed = |cause: io::Error| not_run(program, &cause);
    let mut child = command(program)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // What it says of mistakes is short; it reads all of its input before it could block on saying it.
    let fed = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return fed.map_err(failed);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split('\n').filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("; ");
    let wrong = line_number(&said).and_then(|number| lines.lines().nth(number - 1)).unwrap_or("its input");
    Err(Error::new(ErrorKind::Other, format!("{program} refuses {wrong:?}: {said}")).fault(Fault::Local))
}

/// A command of iproute2, which ends with the thread that starts it: a namespace is gone when this process is.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    // Where ordinary users often do not look.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("LC_ALL", "C").env("PATH", format!("{path}:/usr/sbin:/sbin"));
    gridlane_sys::process::end_with_thread(&mut command);
    command
}

fn not_run(program: &str, cause: &io::Error) -> Error {
    match cause.kind() {
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::Unsupported, format!("there is no command {program}"))
                .fault(Fault::Local)
                .hint("install the package iproute2")
        }
        _ => Error::local_io(format!("cannot run {program}"), cause),
    }
}

/// The N of iproute2's `Command failed -:N`.
fn line_number(said: &str) -> Option<usize> {
    let (_, after) = said.split_once("Command failed -:")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|number| *number > 0)
}

/// The field `drop` of the transmitting half of a device's line in `/proc/net/dev` (proc_pid_net(5)).
fn transmit_drops(text: &str, device: &str) -> Option<u64> {
    const RECEIVE_FIELDS: usize = 8;
    const DROP: usize = 3;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(RECEIVE_FIELDS + DROP)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_in_the_kernels_table() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n  \
            wan1:     84       1    0    5    0     0          0         0       84       1    0    7    0     0       0          0\n";
        assert_eq!(transmit_drops(text, "wan1"), Some(7));
        assert_eq!(transmit_drops(text, "lo"), Some(0));
        assert_eq!(transmit_drops(text, "wan"), None);
    }

    #[test]
    fn the_line_that_was_refused_is_found() {
        assert_eq!(line_number("Cannot find device \"x\"; Command failed -:3"), Some(3));
        assert_eq!(line_number("Command failed -:"), None);
        assert_eq!(line_number("no"), None);
    }
}

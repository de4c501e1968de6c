//! The process that keeps a network up: it holds the namespaces, forwards, follows the timetable and
//! answers the other commands.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use gridlane_core::text::printable;
use gridlane_core::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::commands::{BackEnd, hosts_file};
use crate::control::{Answer, Request, read_request, send};
use crate::emulation::Emulation;
use crate::isolation::{Privilege, provide_names, restore_names};
use crate::network::Network;
use crate::place::{Claim, Place, Remains, kill_inside};
use crate::scenario::Scenario;
use crate::state::State;

/// Interval at which the process looks if it can still be reached: its directory may be removed, by a logout or by
/// a program that empties /tmp.
const LOOKING_INTERVAL: Duration = Duration::from_secs(10);

/// Version of the file that is read after a crash.
const REMAINS_VERSION: u32 = 1;

/// Brings a network up, says so, and keeps it until it is told to take it down, or gets SIGTERM, SIGINT or
/// SIGHUP. To be called while the process has a single thread.
///
/// Fails with `Precondition` if a network of this name is up. If `ready` fails, there is no wait for the network
/// any more, and it is taken down. Whatever happens, nothing is left but what the command line made.
pub fn keep_up(
    scenario: Scenario,
    place: &Place,
    back_end: BackEnd,
    ready: impl FnOnce(&State) -> Result<()>,
) -> Result<()> {
    let claim = place.claim()?;
    let result = keep_claimed_up(scenario, place, &claim, back_end, ready);
    match &result {
        // What still runs has to be found again.
        Err(error) if error.kind() == ErrorKind::Timeout => {}
        _ if place.is_reachable(&claim) => place.forget(),
        // Whatever is there by now is another one's.
        _ => {}
    }
    result
}

fn keep_claimed_up(
    scenario: Scenario,
    place: &Place,
    claim: &Claim,
    back_end: BackEnd,
    ready: impl FnOnce(&State) -> Result<()>,
) -> Result<()> {
    // From here on signals are answered by cleaning up.
    let stop = stop_on_signals().map_err(|cause| Error::local_io("cannot listen to signals", &cause))?;
    if let Some(remains) = place.kept() {
        // Its process is gone, or the place could not have been claimed.
        kill_inside(&remains, true)?;
        // What is found here from now on is this process's own.
        let _ = fs::remove_file(place.socket());
    }
    place.write(&place.hosts(), &hosts_file(&Network::of(&scenario)))?;
    let privilege = Privilege::obtain()?;
    provide_names(place)?;
    let emulation = Emulation::start(scenario, back_end, privilege)?;
    let id = format!("{}-{}", std::process::id(), started_ns());
    let remains = Remains { v: REMAINS_VERSION, id, namespaces: emulation.namespace_numbers()? };
    place.keep(&remains)?;
    let failed = |cause: io::Error| Error::local_io("cannot listen for commands", &cause);
    let _ = fs::remove_file(place.socket());
    let listener = UnixListener::bind(place.socket()).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let entrance = Entrance::open(privilege).map_err(failed)?;
    let id = remains.id.clone();
    let mut daemon =
        Daemon { timetable: Timetable::new(), emulation, listener, stop, entrance, place, claim, id };
    if daemon.wait(Some(Duration::ZERO))? {
        return Err(Error::new(ErrorKind::Interrupted, "told to end while the network was coming up"));
    }
    ready(&daemon.state()?)?;
    daemon.timetable = Timetable::new();
    let result = daemon.run();
    kill_inside(&remains, false)?;
    result
}

/// Namespaces that all nodes share.
struct Entrance {
    user: Option<OwnedFd>,
    mounts: OwnedFd,
}

impl Entrance {
    fn open(privilege: Privilege) -> io::Result<Entrance> {
        let user = match privilege {
            Privilege::Root => None,
            Privilege::UserNamespace => Some(File::open("/proc/self/ns/user")?.into()),
        };
        Ok(Entrance { user, mounts: File::open("/proc/self/ns/mnt")?.into() })
    }
}

/// Where the timetable is.
struct Timetable {
    began: Instant,
    /// Index of the next event.
    next: usize,
}

impl Timetable {
    fn new() -> Timetable {
        Timetable { began: Instant::now(), next: 0 }
    }
}

struct Daemon<'a> {
    place: &'a Place,
    claim: &'a Claim,
    emulation: Emulation,
    timetable: Timetable,
    listener: UnixListener,
    stop: UnixStream,
    entrance: Entrance,
    id: String,
}

impl Daemon<'_> {
    fn run(&mut self) -> Result<()> {
        loop {
            let until = self.follow_timetable().map_or(LOOKING_INTERVAL, |until| until.min(LOOKING_INTERVAL));
            if self.wait(Some(until))? {
                return Ok(());
            }
            if !self.place.is_reachable(self.claim) {
                say("its directory was removed: it cannot be reached any more");
                return Ok(());
            }
            // One in a turn: signals and the timetable do not wait for many.
            if let Ok((stream, _)) = self.listener.accept() {
                let request = match read_request(&stream) {
                    Ok(request) => request,
                    // A client that asks and goes away, or asks nonsense, is no reason to take anything down.
                    Err(cause) => {
                        let error = Error::new(ErrorKind::Usage, format!("not understood: {cause}"));
                        let _ = send(&stream, &Answer::failed(&error), &[]);
                        continue;
                    }
                };
                let is_last = matches!(request, Request::Down);
                // Answered at once: what runs inside is ended after `run`, and the client waits for the claim.
                let _ = self.answer(&stream, request);
                if is_last {
                    return Ok(());
                }
            }
        }
    }

    /// Makes what is due happen; returns how long until there is more.
    fn follow_timetable(&mut self) -> Option<Duration> {
        loop {
            let event = self.emulation.scenario().events.get(self.timetable.next)?.clone();
            let left = event.at.saturating_sub(self.timetable.began.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
            self.timetable.next += 1;
            if let Err(error) = self.emulation.change(event.link, event.from, &event.change) {
                // To the log: this is not waited for.
                say(&format!("event at {} s: {error}", event.at.as_secs_f64()));
            }
        }
    }

    /// Waits for a command, or so long; returns whether there was a signal.
    fn wait(&self, until: Option<Duration>) -> Result<bool> {
        let timeout = until.map(|until| Timespec {
            tv_sec: until.as_secs() as i64,
            tv_nsec: i64::from(until.subsec_nanos()),
        });
        let mut waiting = [
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(Error::local_io("cannot wait for commands", &cause.into())),
        }
        Ok(waiting[0].revents().intersects(PollFlags::IN))
    }

    fn answer(&mut self, stream: &UnixStream, request: Request) -> io::Result<()> {
        let done = |result: Result<()>| match result {
            Ok(()) => Answer::Done,
            Err(error) => Answer::failed(&error),
        };
        let answer = match request {
            Request::Down => Answer::Done,
            Request::Show => match self.state() {
                Ok(state) => Answer::State(Box::new(state)),
                Err(error) => Answer::failed(&error),
            },
            Request::Set { link, from, restore, change } => {
                done(self.emulation.set(&link, from.as_deref(), restore, &change))
            }
            Request::StartTimetable => {
                self.timetable = Timetable::new();
                done(self.emulation.restore_all())
            }
            Request::Enter { site } => match self.entrance_to(&site) {
                Ok((network, host_name)) => {
                    let user = self.entrance.user.as_ref();
                    let descriptors: Vec<_> = user
                        .into_iter()
                        .chain([&self.entrance.mounts, network, host_name])
                        .map(|descriptor| descriptor.as_fd())
                        .collect();
                    let answer = Answer::Entrance { has_user: user.is_some(), id: self.id.clone() };
                    return send(stream, &answer, &descriptors);
                }
                Err(error) => Answer::failed(&error),
            },
        };
        send(stream, &answer, &[])
    }

    fn entrance_to(&self, site: &str) -> Result<(&OwnedFd, &OwnedFd)> {
        restore_names(self.place)?;
        self.emulation.descriptors(site)
    }

    fn state(&self) -> Result<State> {
        let mut state = self.emulation.state()?;
        state.timetable_s = self.timetable.began.elapsed().as_secs_f64();
        Ok(state)
    }
}

/// A socket that becomes readable at the first signal that asks the process to end.
fn stop_on_signals() -> io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    Ok(stop)
}

/// Tells this run from others that had the same process number.
fn started_ns() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// Refuses an answer that does not belong to its request.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Other, "the process that keeps the network up gave an answer to something else")
}

/// Writes a line to the log. A log that takes none is no reason to end.
fn say(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), log_line(line).as_bytes());
}

/// A line as the log has it: what commands said is in errors, and `gridlane wan up` shows the log on a terminal.
fn log_line(line: &str) -> String {
    format!("{}\n", printable(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_said_commands_no_terminal() {
        let line = log_line("event at 3 s: ip refuses \u{1b}[2J\u{202e}x\ny");
        assert_eq!(line, "event at 3 s: ip refuses \u{fffd}[2J\u{fffd}x\u{fffd}y\n");
    }
}

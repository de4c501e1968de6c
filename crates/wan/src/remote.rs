//! What the other commands do with a network that is up.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::control::{Answer, Request, ask};
use crate::daemon::unexpected;
use crate::place::{ID_VARIABLE, Place};
use crate::scenario::Change;
use crate::state::State;

/// Number of times that a network is taken down that comes up at the same time.
const DOWN_ATTEMPTS_MAX: u32 = 5;

/// In the environment of everything that runs in an emulated network: at which site.
pub const SITE_VARIABLE: &str = "GRIDLANE_WAN_SITE";

/// The state of a network; `NotFound` if it is not up.
pub fn show(place: &Place) -> Result<State> {
    match ask(place, &Request::Show)? {
        Some((Answer::State(state), _)) => Ok(*state),
        Some(_) => Err(unexpected()),
        None => Err(not_up(place)),
    }
}

/// Gives a link, or what one of its ends sends, other figures; with `restore`, the scenario's first.
pub fn set(place: &Place, link: &str, from: Option<&str>, restore: bool, change: Change) -> Result<()> {
    let request = Request::Set { link: link.to_owned(), from: from.map(str::to_owned), restore, change };
    ask(place, &request)?.map(|_| ()).ok_or_else(|| not_up(place))
}

/// Starts the timetable again, from the scenario's figures.
pub fn start_timetable(place: &Place) -> Result<()> {
    ask(place, &Request::StartTimetable)?.map(|_| ()).ok_or_else(|| not_up(place))
}

/// Becomes a command that runs at a site; returns only when that fails. With `timetable`, the timetable
/// starts as the command does. To be called while the process has a single thread.
pub fn exec(place: &Place, site: &str, command: &[OsString], timetable: bool) -> Result<NotRun> {
    let Some(program) = command.first() else {
        return Err(Error::new(ErrorKind::Usage, "there is no command to run"));
    };
    let directory = std::env::current_dir()
        .map_err(|cause| Error::local_io("cannot tell the working directory", &cause))?;
    let (answer, descriptors) =
        ask(place, &Request::Enter { site: site.to_owned() })?.ok_or_else(|| not_up(place))?;
    let Answer::Entrance { has_user, id } = answer else { return Err(unexpected()) };
    let kinds = [
        LinkNameSpaceType::User,
        LinkNameSpaceType::Mount,
        LinkNameSpaceType::Network,
        LinkNameSpaceType::HostNameAndNISDomainName,
    ];
    let kinds = &kinds[usize::from(!has_user)..];
    if descriptors.len() != kinds.len() {
        return Err(unexpected());
    }
    for (descriptor, kind) in descriptors.iter().zip(kinds) {
        move_into_link_name_space(descriptor.as_fd(), Some(*kind)).map_err(|cause| {
            Error::local_io(format!("cannot enter a namespace of {site}"), &cause.into())
                .hint("run it as the user who brought the network up")
        })?;
    }
    // Entering other mounts leaves one at their root.
    std::env::set_current_dir(&directory)
        .map_err(|cause| Error::local_io(format!("cannot go back to {}", directory.display()), &cause))?;
    if timetable {
        start_timetable(place)?;
    }
    let cause =
        Command::new(program).args(&command[1..]).env(ID_VARIABLE, id).env(SITE_VARIABLE, site).exec();
    let error = Error::local_io(format!("cannot run {}", program.display()), &cause);
    Ok(match error.kind() {
        ErrorKind::NotFound => NotRun::NotFound(error),
        _ => NotRun::Other(error),
    })
}

/// Why a command did not run although its site could be entered.
#[derive(Debug)]
pub enum NotRun {
    /// There is no such command.
    NotFound(Error),
    /// There is, but it cannot be run.
    Other(Error),
}

/// Takes a network down, or removes what is left of one that died. Returns what there was.
pub fn down(place: &Place) -> Result<Down> {
    let mut attempts = DOWN_ATTEMPTS_MAX;
    loop {
        attempts -= 1;
        match down_once(place) {
            // It came up between two looks.
            Err(error) if error.kind() == ErrorKind::Precondition && attempts > 0 => {}
            result => return result,
        }
    }
}

fn down_once(place: &Place) -> Result<Down> {
    match ask(place, &Request::Down) {
        Ok(Some(_)) => {}
        Ok(None) => {
            return Ok(match place.clean_up()? {
                Some(killed) => Down::Remains { killed },
                None => Down::Nothing,
            });
        }
        Err(error) if error.kind() == ErrorKind::Denied => return Err(error),
        // It does not answer: then it is ended the hard way, and the kernel removes its namespaces.
        Err(_) => place.end()?,
    }
    place.wait_until_gone()?;
    Ok(match place.clean_up()? {
        Some(killed) => Down::Remains { killed },
        None => Down::Network,
    })
}

/// Things that were taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// A network that was up.
    Network,
    /// Remains of a network that died: so many processes, and files.
    Remains {
        /// Processes that were still running in its namespaces.
        killed: usize,
    },
    /// There was nothing.
    Nothing,
}

fn not_up(place: &Place) -> Error {
    let message = format!("no network {} is up", place.name());
    let error = Error::new(ErrorKind::NotFound, message).fault(Fault::Caller);
    match place.has_remains() {
        true => error.hint(Hint::TakeDownRemains),
        false => error.hint(Hint::BringUp),
    }
}

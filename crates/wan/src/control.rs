//! How the commands talk to the process that keeps a network up: one request, one answer, a line of JSON
//! each, over a Unix socket that only its user can reach. Namespaces travel as descriptors.

use std::io::{BufRead as _, BufReader, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::scenario::Change;
use crate::state::State;

/// Time for which either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which a connected client may say nothing, or not listen: the timetable waits meanwhile.
const HESITATION_MAX: Duration = Duration::from_millis(500);

/// Longest answer: what `show` says of a thousand links.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Longest request.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Namespaces of one node: of users if there is one, mounts, network, host name.
const DESCRIPTORS_MAX: usize = 4;

/// The question of a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// The state of everything.
    Show,
    /// Other figures for a link.
    Set {
        link: String,
        /// The node whose sending changes; both directions without.
        from: Option<String>,
        /// True if the scenario's figures come back before the change.
        restore: bool,
        change: Change,
    },
    /// The namespaces of a node.
    Enter { site: String },
    /// Starts the timetable again, from the scenario's figures.
    StartTimetable,
    /// Takes the network down.
    Down,
}

/// The answer to it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    State(Box<State>),
    /// Descriptors follow: of the user namespace if `has_user`, of mounts, network and host name.
    Entrance {
        has_user: bool,
        id: String,
    },
    Failed {
        class: String,
        fault: String,
        message: String,
        hint: Option<Hint>,
        endpoint: Option<String>,
    },
}

impl Answer {
    pub(crate) fn failed(error: &Error) -> Answer {
        Answer::Failed {
            class: error.kind().name().to_owned(),
            fault: error.whose_fault().name().to_owned(),
            message: error.message().to_owned(),
            hint: error.advice().cloned(),
            endpoint: error.endpoint_text().map(str::to_owned),
        }
    }
}

/// Asks the network of a place; `None` when it is not up.
pub(crate) fn ask(place: &Place, request: &Request) -> Result<Option<(Answer, Vec<OwnedFd>)>> {
    let lost = |cause: std::io::Error| {
        let kind = match cause.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Other,
        };
        Error::new(kind, format!("the process that keeps {} up does not answer: {cause}", place.name()))
            .fault(Fault::Local)
            .hint(Hint::TakeDown)
    };
    if !place.is_there()? {
        return Ok(None);
    }
    let stream = match UnixStream::connect(place.socket()) {
        Ok(stream) => stream,
        Err(_) if !place.is_up() => return Ok(None),
        Err(cause) => return Err(lost(cause)),
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
    let mut line = serde_json::to_vec(request).map_err(|cause| lost(cause.into()))?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(lost)?;
    let (answer, descriptors) = receive(&stream).map_err(lost)?;
    match answer {
        Answer::Failed { class, fault, message, hint, endpoint } => {
            let mut error = Error::new(ErrorKind::named(&class), message);
            if let Some(fault) = Fault::named(&fault) {
                error = error.fault(fault);
            }
            if let Some(hint) = hint {
                error = error.hint(hint);
            }
            if let Some(endpoint) = endpoint {
                error = error.endpoint(endpoint);
            }
            Err(error)
        }
        answer => Ok(Some((answer, descriptors))),
    }
}

/// The other side: reads the request of a connection.
pub(crate) fn read_request(stream: &UnixStream) -> std::io::Result<Request> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(HESITATION_MAX))?;
    let began = Instant::now();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < REQUEST_BYTES_MAX {
        let left = HESITATION_MAX.saturating_sub(began.elapsed());
        // No time at all would mean any time.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut bytes = [0; 4096];
        match (&*stream).read(&mut bytes)? {
            0 => break,
            len => line.extend_from_slice(&bytes[..len]),
        }
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Answers, with descriptors.
pub(crate) fn send(
    stream: &UnixStream,
    answer: &Answer,
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(std::io::Error::other("too many descriptors for one message"));
    }
    let sent = sendmsg(stream.as_fd(), &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    let mut stream = stream;
    stream.write_all(&line[sent..])
}

fn receive(stream: &UnixStream) -> std::io::Result<(Answer, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut line = vec![0; 64 * 1024];
    // Descriptors come with the first bytes.
    let got =
        recvmsg(stream.as_fd(), &mut [IoSliceMut::new(&mut line)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    line.truncate(got.bytes);
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if !line.ends_with(b"\n") {
        BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    }
    Ok((serde_json::from_slice(&line)?, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek as _;

    #[test]
    fn an_answer_carries_descriptors() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"inside").unwrap();
        let answer = Answer::Entrance { has_user: false, id: "7".into() };
        send(&near, &answer, &[file.as_fd(), file.as_fd()]).unwrap();
        let (answer, mut descriptors) = receive(&far).unwrap();
        assert!(matches!(answer, Answer::Entrance { has_user: false, id } if id == "7"));
        assert_eq!(descriptors.len(), 2);
        let mut same = std::fs::File::from(descriptors.remove(0));
        same.rewind().unwrap();
        let mut text = String::new();
        same.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }

    #[test]
    fn a_long_answer_arrives_whole() {
        let (near, far) = UnixStream::pair().unwrap();
        let message = "x".repeat(1_000_000);
        let sender = std::thread::spawn(move || {
            let answer = Answer::failed(&Error::new(ErrorKind::Usage, message));
            send(&near, &answer, &[]).unwrap();
        });
        let (answer, _) = receive(&far).unwrap();
        assert!(matches!(answer, Answer::Failed { message, .. } if message.len() == 1_000_000));
        sender.join().unwrap();
    }

    #[test]
    fn garbage_is_an_error_and_no_panic() {
        for garbage in [&b"\n"[..], b"{}\n", b"\xff\xfe\n", b"{\"show\":", b""] {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(garbage).unwrap();
            drop(near);
            assert!(read_request(&far).is_err());
        }
    }
}

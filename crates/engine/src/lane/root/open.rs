//! The beginning of a lane over XRootD's protocol: the file is open, on a session of its own or on another lane's, as a
//! substream.

use std::collections::VecDeque;
use std::future::Future;

use gridlane_core::{ByteRange, Error, ErrorKind, Result, Url};
use gridlane_peer::Client;
use gridlane_peer::root::{MainStream, OpenFile};
use gridlane_plan::Loss;
use gridlane_xrd::answer::StatText;
use gridlane_xrd::flags::OpenOptions;
use gridlane_xrd::request::{About, Stat};

use super::reads::{Reads, Step};
use crate::lane::{Command, Commands, End, Lane, bounded};
use crate::notice::Notice;
use crate::source::{Identity, Source};

/// Opens the file, or binds to a session that has it open, while orders come in.
pub(super) async fn open(
    lane: &Lane,
    commands: &mut Commands,
    early: &mut VecDeque<ByteRange>,
) -> Step<Reads> {
    let opening = with_orders(commands, early, lane.source.opening()).await?;
    if let Some(shared) = lane.source.shared_session() {
        let bind = lane.client.root.bind(&shared);
        match with_orders(commands, early, bind).await? {
            Ok((file, substream)) => {
                told(lane, &file)?;
                return Ok(Reads::new(file, None, Some(substream)));
            }
            Err(error) if opening.is_some() => return Err(End::Lost(Loss::Busy { wait: None }, Some(error))),
            Err(_) => lane.source.refuse(&shared),
        }
    }
    let mut file = open_anew(lane, commands, early).await?;
    let main = MainStream::new(&mut file).map_err(End::Local)?;
    if let Some(main) = &main {
        lane.source.set_shared_session(main.shared());
    }
    drop(opening);
    told(lane, &file)?;
    Ok(Reads::new(file, main, None))
}

/// Does something while orders come in.
async fn with_orders<T>(
    commands: &mut Commands,
    early: &mut VecDeque<ByteRange>,
    doing: impl Future<Output = T>,
) -> Step<T> {
    tokio::pin!(doing);
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(Command::Request(range)) => early.push_back(range),
                Some(Command::Ask) => {}
                Some(Command::Close) | None => return Err(End::Lost(Loss::Closed, None)),
            },
            outcome = &mut doing => return Ok(outcome),
        }
    }
}

/// Opens the file on a session of its own.
async fn open_anew(lane: &Lane, commands: &mut Commands, early: &mut VecDeque<ByteRange>) -> Step<OpenFile> {
    let url = lane.source.current_url();
    let opened = with_orders(commands, early, opened(&lane.client, &url)).await?;
    led(&lane.source, &url, opened)
}

/// Opens the file to be read; its size is known then.
pub(crate) async fn opened(client: &Client, url: &Url) -> Result<OpenFile> {
    let options = OpenOptions::READ | OpenOptions::RETSTAT;
    let mut file = client.root.open(url, options, 0, "").await?;
    if file.stat.is_none() {
        let said = file.call(|handle| Stat { about: About::Handle(handle), is_vfs: false, wants: 0 }).await?;
        file.stat = StatText::parse(&said).ok();
    }
    match file.stat {
        Some(_) => Ok(file),
        None => Err(Error::new(ErrorKind::Protocol, "it does not state the size of the file").endpoint(url)),
    }
}

/// Remembers where the open of `url` led, or says what its failure means for the source.
pub(crate) fn led(source: &Source, url: &Url, opened: Result<OpenFile>) -> Step<OpenFile> {
    let file = opened.map_err(|error| {
        source.set_resolved(None);
        match error.kind() {
            ErrorKind::Busy => {
                let wait = bounded(error.wait());
                End::Lost(Loss::Busy { wait }, Some(error))
            }
            _ if error.is_unreached() && source.was_opened_once() => End::Dead { error, forget: false },
            _ if error.is_retryable() => End::Lost(Loss::Failed, Some(error)),
            // What spoke the protocol before and does not now may be another program, that has the port of a server
            // which is being started.
            ErrorKind::Protocol if source.identity().is_some() => End::Lost(Loss::Failed, Some(error)),
            // A certificate that is not trusted will not be trusted in a second either.
            _ => End::Dead { error, forget: false },
        }
    })?;
    if file.url != *url {
        source.set_resolved(Some(file.url.clone()));
    }
    Ok(file)
}

/// Tells that there is a connection, and of which version of the file.
fn told(lane: &Lane, file: &OpenFile) -> Step<()> {
    let identity = identity(&lane.source, file);
    let (round_trip, handshake_round_trips) = (file.round_trip(), file.handshake_round_trips());
    lane.tell(Notice::Dialled { lane: lane.id, round_trip, handshake_round_trips });
    lane.identify(&identity)?;
    lane.tell(Notice::Pipelines { lane: lane.id });
    Ok(())
}

/// Which version of the file this is.
pub(crate) fn identity(source: &Source, file: &OpenFile) -> Identity {
    let of_itself = source.url.same_endpoint(&file.url);
    file.stat.as_ref().map_or(Identity::unknown(), |stat| Identity::of_stat(stat, of_itself))
}

//! Requests for what a server says of itself.

use gridlane_core::{Result, Url};
use gridlane_xrd::client::Session;
use gridlane_xrd::request::{Ping, Query};
use gridlane_xrd::{Call, QueryKind, StreamId};

use super::client::Client;
use super::connection::COLLECTED;
use super::file::OpenFile;
use crate::pool::Purpose;

/// Knowledge of a server that has been greeted.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// Its flags and abilities.
    pub session: Session,
    /// For people: its address, and the version of TLS if it is spoken.
    pub text: String,
}

impl Client {
    /// Makes sure that a server is there and takes us.
    pub async fn greet(&self, url: &Url) -> Result<Greeting> {
        let make = |_, _: bool| Ping.to_bytes(StreamId::default());
        let mut take = |_: &[u8], _| Ok(());
        let (connection, _) = self.exchange(url, "", Purpose::Request, &make, COLLECTED, &mut take).await?;
        Ok(Greeting { session: connection.session(), text: connection.describe() })
    }

    /// The settings of a server, one for each of `names`; `None` for one that it does not know.
    pub async fn settings<const N: usize>(&self, url: &Url, names: [&str; N]) -> Result<[Option<String>; N]> {
        let answered = self.call(url, |_| ask(names)).await?;
        Ok(said(&answered.body, names))
    }
}

impl OpenFile {
    /// The settings of the server that has the file open, as [`Client::settings`].
    pub async fn settings<const N: usize>(&mut self, names: [&str; N]) -> Result<[Option<String>; N]> {
        let body = self.call(|_| ask(names)).await?;
        Ok(said(&body, names))
    }
}

fn ask<const N: usize>(names: [&str; N]) -> Query {
    // XRootD 5.5 does not see what is behind a line break.
    Query::new(QueryKind::CONFIG, names.join(" "))
}

fn said<const N: usize>(body: &[u8], names: [&str; N]) -> [Option<String>; N] {
    let text = body.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    // A server repeats the name of a setting that it does not know.
    names.map(|name| lines.next().map(str::trim).filter(|said| *said != name).map(str::to_owned))
}

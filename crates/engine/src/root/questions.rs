//! Questions that more than one part of gridlane asks.

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Result, Url};
use gridlane_xrd::answer::parse_checksum;
use gridlane_xrd::client::Session;
use gridlane_xrd::request::{Ping, Query};
use gridlane_xrd::{Call, QueryKind, StreamId};

use super::{COLLECTED, Client};
use crate::pool::Purpose;

/// What is known of a server when it has been greeted.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// What it is and can.
    pub session: Session,
    /// For people: its address, and the version of TLS if it is spoken.
    pub text: String,
}

impl Client {
    /// Makes sure that a server is there and takes us.
    pub async fn greet(&self, url: &Url) -> Result<Greeting> {
        let make = |_| Ping.to_bytes(StreamId::default());
        let mut take = |_: &[u8], _| Ok(());
        let (connection, _) =
            self.exchange(url, "", Purpose::Question, &make, COLLECTED, &mut take).await?;
        Ok(Greeting { session: connection.session(), text: connection.describe() })
    }

    /// What a server says of its settings, one for each of `names`; `None` for one that it does not know.
    pub async fn settings<const N: usize>(&self, url: &Url, names: [&str; N]) -> Result<[Option<String>; N]> {
        // XRootD 5.5 does not see what is behind a line break.
        let asked = names.join(" ");
        let answered = self.call(url, |_| Query::new(QueryKind::CONFIG, asked.as_bytes())).await?;
        let text = answered.body.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines();
        // It says again what it does not know.
        Ok(names.map(|name| lines.next().map(str::trim).filter(|said| *said != name).map(str::to_owned)))
    }

    /// The checksum that the server has of a file, or computes; `None` when it has none of this kind.
    pub async fn checksum(&self, url: &Url, kind: ChecksumKind) -> Result<Option<Checksum>> {
        let wanted = format!("cks.type={}", kind.name());
        match self.call(url, |about| Query::about(QueryKind::CHECKSUM, &about, &wanted)).await {
            Ok(answered) => Ok(parse_checksum(&answered.body).filter(|said| said.kind() == kind)),
            Err(error) if is_no_answer(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a server does not know what was asked for. XRootD says of a kind that it does not have that the server
/// failed.
fn is_no_answer(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.message().to_ascii_lowercase().contains("not supported")
}

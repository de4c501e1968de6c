//! A way through an HTTP proxy to a server that speaks TLS: CONNECT (RFC 9110, 9.3.6).

use std::time::SystemTime;

use gridlane_core::limits::CONNECT_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::ResponseHead;
use gridlane_net::{Proxy, Stream};
use tokio::time::timeout;

use super::connection::Connection;
use super::request::Request;

/// Asks the proxy at the other end of `stream` for a way to the host of `url`. What follows on the stream
/// is that host's. Errors name the proxy.
pub(super) async fn open(stream: Stream, proxy: &Proxy, url: &Url) -> Result<Stream> {
    let asked = async {
        let mut connection = Connection::new(stream);
        connection.send_to(&Request::new("CONNECT", url), Some(proxy)).await?;
        let response = connection.response().await?;
        match response.head.status.is_success() {
            true => connection.into_stream(),
            false => Err(refused(&response.head, url)),
        }
    };
    let late = |_| {
        let message = format!("the proxy did not answer within {} s", CONNECT_MAX.as_secs());
        Err(Error::new(ErrorKind::Timeout, message))
    };
    timeout(CONNECT_MAX, asked).await.unwrap_or_else(late).map_err(|error| error.endpoint(proxy))
}

fn refused(head: &ResponseHead, url: &Url) -> Error {
    let code = head.status.code();
    let (kind, meaning) = match code {
        // Tinyproxy says 401 where 407 is meant.
        401 | 407 => (ErrorKind::Denied, "it wants credentials"),
        403 => (ErrorKind::Denied, "it does not allow this"),
        405 | 501 => (ErrorKind::Unsupported, "it opens no way to other servers"),
        408 | 504 => (ErrorKind::Timeout, "the server did not answer it"),
        429 | 503 => (ErrorKind::Busy, "it has too much to do"),
        500..=599 => (ErrorKind::Network, "it cannot reach the server"),
        _ => (ErrorKind::Protocol, "that makes no sense here"),
    };
    let (host, status) = (url.host_header(), head.status);
    let message = format!("the proxy answered {status} when asked for a way to {host}: {meaning}");
    let fault = if matches!(code, 401 | 407) { Fault::Caller } else { Fault::Peer };
    let error = Error::new(kind, message).fault(fault).http_status(code);
    match code {
        401 | 407 => error.hint("put user and password into the proxy's URL"),
        _ => error.retry_after(head.retry_after(SystemTime::now())),
    }
}

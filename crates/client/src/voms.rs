//! Asking the servers of a virtual organisation for attributes.
//!
//! Newer servers are asked over HTTP. Where that is not understood, which Debian's server shows by closing the connection, the
//! same server is asked in the older way: a document of XML in each direction, over TLS as well. The connection shows the
//! user's certificate, and nothing is believed of a server whose certificate is not the one that its line in `vomses` names.

use std::io;

use gridlane_auth::voms::{Answer, AttributeRequest, VomsServer, document_end, read_answer};
use gridlane_core::limits::{VOMS_ANSWER_BYTES_MAX, VOMS_SERVERS_ASKED_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_net::tls;
use gridlane_peer::Client;
use gridlane_peer::http::{Exchange, Request};
use tokio::time::timeout;

use crate::ANSWER_MAX;

/// What a VOMS server has given, and how it came to that.
#[derive(Clone, Debug)]
pub struct VomsGift<T> {
    /// The server that gave it.
    pub server: VomsServer,
    /// What was made of its answer.
    pub checked: T,
    /// The server's own words about it.
    pub warnings: Vec<String>,
    /// The servers that were asked before, each with the reason why it gave nothing.
    pub failures: Vec<String>,
}

/// Bytes asked for at once.
const READ_BYTES: usize = 16 * 1024;

/// The URL of a VOMS server, to which a client has to be allowed to show the user's certificate.
///
/// # Errors
/// When its host is none.
pub fn voms_url(server: &VomsServer) -> Result<Url> {
    Url::parse_absolute(&format!("https://{}:{}/", server.host, server.port))
}

/// Asks the servers of a VO one after the other until one gives what `check` accepts.
///
/// # Errors
/// When none does: the reason of the only one, or those of all. Of kind `Denied` where any of them refuses the user.
pub async fn ask_voms<T>(
    client: &Client,
    servers: &[&VomsServer],
    request: &AttributeRequest,
    check: impl Fn(&Answer) -> Result<T>,
) -> Result<VomsGift<T>> {
    let (mut errors, mut failures) = (Vec::<Error>::new(), Vec::new());
    for server in servers.iter().take(VOMS_SERVERS_ASKED_MAX) {
        let asked = match ask(client, server, request).await {
            Ok(answer) => check(&answer).map(|checked| (answer, checked)),
            Err(error) => Err(error),
        };
        match asked {
            Ok((answer, checked)) => {
                let warnings = answer.warnings;
                return Ok(VomsGift { server: (*server).clone(), checked, warnings, failures });
            }
            Err(error) => {
                failures.push(format!("{}:{}: {}", server.host, server.port, error.message()));
                errors.push(error.endpoint(format_args!("VOMS server {}:{}", server.host, server.port)));
            }
        }
    }
    // What the user can do something about comes first.
    let told = errors.iter().position(|error| error.kind() == ErrorKind::Denied).unwrap_or_default();
    if errors.is_empty() {
        let what = format!("no VOMS server of {} is known", request.vo);
        return Err(Error::new(ErrorKind::Usage, what).fault(Fault::Caller));
    }
    let first = errors.swap_remove(told);
    if failures.len() == 1 {
        return Err(first);
    }
    let what = format!("no VOMS server of {} gives attributes: {}", request.vo, failures.join("; "));
    let all = Error::new(first.kind(), what).fault(first.whose_fault());
    Err(match first.advice() {
        Some(advice) => all.hint(advice.clone()),
        None => all,
    })
}

async fn ask(client: &Client, server: &VomsServer, request: &AttributeRequest) -> Result<Answer> {
    let url = voms_url(server)?;
    match in_time(ask_newer(client, &url, server, request)).await {
        Err(error) if is_not_understood(&error) => {
            match in_time(ask_older(client, &url, server, request)).await {
                Err(older) if older.kind() == ErrorKind::Network || older.kind() == ErrorKind::Protocol => {
                    Err(older.more(format_args!("and before, asked over HTTP: {}", error.message())))
                }
                outcome => outcome,
            }
        }
        outcome => outcome,
    }
}

/// A whole exchange: each byte of it alone may come late.
async fn in_time<T>(exchange: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(ANSWER_MAX, exchange).await.unwrap_or_else(|_| {
        let what = format!("no whole answer within {} s", ANSWER_MAX.as_secs());
        Err(Error::new(ErrorKind::Timeout, what))
    })
}

/// True if a server of the older protocol may be behind it: it knows no such path, its answer is no HTTP, or it closes the
/// connection without any.
fn is_not_understood(error: &Error) -> bool {
    match error.status() {
        Some(status) => matches!(status, 404 | 405 | 501),
        None => matches!(error.kind(), ErrorKind::Network | ErrorKind::Protocol) && !error.is_unreached(),
    }
}

/// Over HTTP. A refusal has a body of the same form, whatever its status.
async fn ask_newer(
    client: &Client,
    url: &Url,
    server: &VomsServer,
    request: &AttributeRequest,
) -> Result<Answer> {
    let target = url.join(&request.target())?;
    let asked = Request::new("GET", &target).header("Accept", "text/xml, application/xml").stays();
    let mut exchange = client.http.exchange(&asked).await?;
    check_certificate(server, exchange.connection.certificate())?;
    let status = exchange.status();
    if matches!(status.code(), 404 | 405 | 501) {
        return Err(exchange.into_error().await);
    }
    let document = document(&mut exchange).await?;
    match read_answer(&document) {
        Err(error) if !status.is_success() && error.kind() == ErrorKind::Protocol => {
            let what = format!("the server answered {} {}", status.code(), status.reason());
            Err(Error::new(ErrorKind::Other, what).fault(Fault::Peer).http_status(status.code()))
        }
        outcome => outcome,
    }
}

/// The body of an answer. Some servers end it by closing the connection without a word of TLS: a document that is there to its end
/// is enough.
async fn document(exchange: &mut Exchange) -> Result<Vec<u8>> {
    let mut document = Vec::new();
    let mut piece = vec![0; READ_BYTES];
    loop {
        match exchange.read(&mut piece).await {
            Ok(0) => return Ok(document),
            Ok(count) => document.extend_from_slice(&piece[..count]),
            Err(_) if document_end(&document).is_some() => return Ok(document),
            Err(error) => return Err(error),
        }
        refuse_too_long(&document)?;
    }
}

/// In the older way.
async fn ask_older(
    client: &Client,
    url: &Url,
    server: &VomsServer,
    request: &AttributeRequest,
) -> Result<Answer> {
    let route = client.dialer().route(url)?.of_identity(&client.credentials.shown_identity()?);
    if route.tunneller().is_some() {
        let what = "it does not answer over HTTP, and its older protocol goes through no HTTP proxy";
        return Err(Error::new(ErrorKind::Unsupported, what).fault(Fault::Peer));
    }
    let mut stream = client.dialer().dial(&route).await?.stream;
    check_certificate(server, stream.peer_certificates().first().map(|shown| shown.as_ref()))?;
    stream.write_all(request.document().as_bytes()).await.map_err(|cause| broken(&cause))?;
    let mut document = Vec::new();
    let mut piece = vec![0; READ_BYTES];
    // The end of the document is the end: whether and how the connection is closed says nothing more.
    while document_end(&document).is_none() {
        match stream.read(&mut piece).await {
            Ok(0) => break,
            Ok(count) => document.extend_from_slice(&piece[..count]),
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof && !document.is_empty() => break,
            Err(cause) => return Err(broken(&cause)),
        }
        refuse_too_long(&document)?;
    }
    if document.is_empty() {
        return Err(broken(&io::ErrorKind::UnexpectedEof.into()));
    }
    let end = document_end(&document).unwrap_or(document.len());
    read_answer(&document[..end])
}

/// A connection that ends early. With TLS 1.3 a server's word about the client's certificate comes only here.
fn broken(cause: &io::Error) -> Error {
    tls::rejection(cause).unwrap_or_else(|| Error::network("the connection ended without an answer", cause))
}

fn refuse_too_long(document: &[u8]) -> Result<()> {
    match document.len() <= VOMS_ANSWER_BYTES_MAX {
        true => Ok(()),
        false => {
            let what = format!("the answer is longer than {VOMS_ANSWER_BYTES_MAX} bytes");
            Err(Error::new(ErrorKind::Unsupported, what).fault(Fault::Peer))
        }
    }
}

fn check_certificate(server: &VomsServer, shown: Option<&[u8]>) -> Result<()> {
    let refusal = match shown {
        Some(shown) => server.check_certificate(shown).err().map(|refusal| refusal.to_string()),
        None => Some("it has shown no certificate".to_owned()),
    };
    match refusal {
        None => Ok(()),
        Some(what) => Err(Error::new(ErrorKind::Denied, what)
            .fault(Fault::Peer)
            .hint("correct the name of its certificate in vomses, if the VO says that it has a new one")),
    }
}

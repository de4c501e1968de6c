//! A SOCKS 5 proxy, asked for a connection (RFC 1928), with user and password where it wants them
//! (RFC 1929).

use std::net::{IpAddr, SocketAddr};

use gridlane_core::{Error, ErrorKind, Fault, Result};

use crate::stream::Stream;

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NONE_OF_THEM: u8 = 0xff;

/// Where the proxy shall connect to.
pub(crate) enum Place {
    /// A name, which the proxy looks up, or an address as text.
    Name(String, u16),
    /// An address.
    Address(SocketAddr),
}

/// Asks the proxy at the other end of `stream` for a connection to `place`; what follows on `stream` is
/// that connection. Returns how many round trips it took.
pub(crate) async fn connect(
    stream: &mut Stream,
    place: &Place,
    login: Option<&(Vec<u8>, Vec<u8>)>,
) -> Result<u32> {
    let offer: &[u8] = if login.is_some() { &[VERSION, 2, NO_LOGIN, LOGIN] } else { &[VERSION, 1, NO_LOGIN] };
    let mut round_trips = 2;
    match (answer(stream, offer).await?, login) {
        ([VERSION, NO_LOGIN], _) => {}
        ([VERSION, LOGIN], Some((user, password))) => {
            round_trips += 1;
            let mut words = vec![1];
            for word in [user, password] {
                let length = u8::try_from(word.len()).map_err(|_| {
                    let message = "user and password for a SOCKS proxy have at most 255 bytes";
                    Error::new(ErrorKind::Usage, message)
                })?;
                words.push(length);
                words.extend_from_slice(word);
            }
            match answer(stream, &words).await? {
                [_, 0] => {}
                _ => return Err(denied("the SOCKS proxy does not take this user and password")),
            }
        }
        ([VERSION, NONE_OF_THEM], _) => return Err(denied("the SOCKS proxy demands authentication")),
        _ => return Err(strange()),
    }
    let [version, outcome] = answer(stream, &request(place)?).await?;
    let [_, kind] = read(stream).await?;
    match (version, outcome) {
        (VERSION, 0) => {}
        (VERSION, code) => return Err(refused(code)),
        _ => return Err(strange()),
    }
    // The address that the proxy speaks from, and its port: of no use to us.
    let rest = match kind {
        1 => 4 + 2,
        4 => 16 + 2,
        3 => usize::from(read::<1>(stream).await?[0]) + 2,
        _ => return Err(strange()),
    };
    for _ in 0..rest {
        read::<1>(stream).await?;
    }
    Ok(round_trips)
}

fn request(place: &Place) -> Result<Vec<u8>> {
    let mut bytes = vec![VERSION, 1, 0];
    let (address, port) = match place {
        Place::Name(name, port) => (name.parse::<IpAddr>().ok(), *port),
        Place::Address(address) => (Some(address.ip()), address.port()),
    };
    match (address, place) {
        (Some(IpAddr::V4(address)), _) => {
            bytes.push(1);
            bytes.extend(address.octets());
        }
        (Some(IpAddr::V6(address)), _) => {
            bytes.push(4);
            bytes.extend(address.octets());
        }
        (None, Place::Name(name, _)) if name.len() <= 255 => {
            bytes.extend([3, name.len() as u8]);
            bytes.extend(name.as_bytes());
        }
        _ => return Err(Error::new(ErrorKind::Usage, "the host's name is too long for a SOCKS proxy")),
    }
    bytes.extend(port.to_be_bytes());
    Ok(bytes)
}

async fn answer<const COUNT: usize>(stream: &mut Stream, question: &[u8]) -> Result<[u8; COUNT]> {
    stream.write_all(question).await.map_err(|cause| Error::network("cannot ask the SOCKS proxy", &cause))?;
    read(stream).await
}

/// Exactly so many bytes: what is behind them is not the proxy's.
async fn read<const COUNT: usize>(stream: &mut Stream) -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let mut filled = 0;
    while filled < COUNT {
        match stream.read(&mut bytes[filled..]).await {
            Ok(0) => return Err(Error::new(ErrorKind::Network, "the SOCKS proxy closed the connection")),
            Ok(count) => filled += count,
            Err(cause) => return Err(Error::network("no answer from the SOCKS proxy", &cause)),
        }
    }
    Ok(bytes)
}

fn refused(code: u8) -> Error {
    let (kind, why) = match code {
        2 => (ErrorKind::Denied, "it does not allow this"),
        3 => (ErrorKind::Network, "the network is unreachable"),
        4 => (ErrorKind::Network, "the host is unreachable"),
        5 => (ErrorKind::Network, "the connection was refused"),
        6 => (ErrorKind::Timeout, "the host did not answer"),
        7 | 8 => (ErrorKind::Unsupported, "it cannot do this"),
        _ => (ErrorKind::Network, "it failed"),
    };
    Error::new(kind, format!("the SOCKS proxy did not connect: {why} (code {code})")).fault(Fault::Peer)
}

fn denied(message: &str) -> Error {
    Error::new(ErrorKind::Denied, message).hint("put user and password into the proxy's URL")
}

fn strange() -> Error {
    Error::new(ErrorKind::Protocol, "the proxy does not speak SOCKS 5")
}

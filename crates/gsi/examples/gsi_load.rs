//! A client that does nothing but log in by certificate over root://: what `make bench-gsi` measures servers with.
//!
//! ```text
//! gsi_load HOST:PORT PROXY.pem COUNT THREADS     COUNT logins, each on a connection of its own
//! ```
//!
//! Prints, as JSON, how many logins were taken, and how long all took. It believes any server, whose certificate it does not look at.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use gridlane_auth::Refusal;
use gridlane_auth::make::{Contents, pem};
use gridlane_gsi::client::Decisions;
use gridlane_gsi::{Client, ClientCredential, Parameters};
use openssl::pkey::PKey;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const OK: u16 = 0;
const AUTHMORE: u16 = 4002;
const PROTOCOL: u16 = 3006;
const LOGIN: u16 = 3007;
const AUTH: u16 = 3000;

/// More than any answer before the end of a login.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, proxy, count, threads] = words.as_slice() else {
        return Err("usage: gsi_load HOST:PORT PROXY.pem COUNT THREADS".into());
    };
    let (count, threads): (u64, u64) = (count.parse()?, threads.parse()?);
    let credential = Arc::new(credential(&std::fs::read(proxy)?)?);
    let began = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let (server, credential) = (server.clone(), Arc::clone(&credential));
            let mine = count / threads + u64::from(number < count % threads);
            thread::spawn(move || -> Outcome<u64> {
                for _ in 0..mine {
                    log_in(&server, &credential)?;
                }
                Ok(mine)
            })
        })
        .collect();
    let mut granted = 0;
    for worker in workers {
        granted += worker.join().map_err(|_| "a thread has panicked")??;
    }
    println!("{{\"granted\": {granted}, \"seconds\": {}}}", began.elapsed().as_secs_f64());
    Ok(())
}

/// A proxy, with its key and the chain behind it, from one text.
fn credential(text: &[u8]) -> Outcome<ClientCredential> {
    let chain = pem::certificates(text).map_err(|error| error.message().to_owned())?;
    let last = chain.last().ok_or("there is no certificate")?;
    let issuer = Contents::read(last).map_err(|error| error.message().to_owned())?.issuer;
    let hash = issuer.hash().map_err(|error| error.message().to_owned())?;
    let key = PKey::private_key_from_pem(text)?.private_key_to_pkcs8()?;
    Ok(ClientCredential::new(&chain, &key, &hash, "the proxy").map_err(|refusal| refusal.message)?)
}

/// Believes any server.
struct Any;

impl Decisions for Any {
    fn check_server(&mut self, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn sign_proxy(&mut self, _: &[u8]) -> Result<Vec<u8>, Refusal> {
        Ok(Vec::new())
    }
}

fn log_in(server: &str, credential: &Arc<ClientCredential>) -> Outcome<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    // The handshake, what the client speaks (5.1, without TLS), and the login, as `bench`.
    let mut first: Vec<u8> = [0_u32, 0, 0, 4, 2012].iter().flat_map(|word| word.to_be_bytes()).collect();
    first.extend(request(PROTOCOL, [0, 0, 5, 0x11, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]));
    first.extend(request(LOGIN, *b"\0\0\0\x01bench\0\0\0\0\0\x05\0", &[]));
    stream.write_all(&first)?;
    for _ in 0..2 {
        expect(&mut stream, OK)?;
    }
    let methods = expect(&mut stream, OK)?.split_off(16);
    let start = b"&P=gsi,";
    let at = methods.windows(start.len()).position(|part| part == start).ok_or("gsi is not offered")?;
    let parameters = methods[at + start.len()..].split(|byte| *byte == b'&').next().unwrap_or_default();
    let parameters = Parameters::parse(parameters).map_err(|refusal| refusal.message)?;
    let begun = Client::begin(&parameters, Arc::clone(credential), false, false);
    let (mut client, message) = begun.map_err(|refusal| refusal.message)?;
    let kind = *b"\0\0\0\0\0\0\0\0\0\0\0\0gsi\0";
    stream.write_all(&request(AUTH, kind, &message))?;
    let proof = expect(&mut stream, AUTHMORE)?;
    let message = client.receive(&proof, &mut Any).map_err(|refusal| refusal.message)?;
    stream.write_all(&request(AUTH, kind, &message))?;
    expect(&mut stream, OK)?;
    Ok(())
}

fn request(id: u16, body: [u8; 16], payload: &[u8]) -> Vec<u8> {
    let mut out = vec![1, 0];
    out.extend(id.to_be_bytes());
    out.extend(body);
    out.extend((payload.len() as u32).to_be_bytes());
    out.extend(payload);
    out
}

/// What an answer of this status says.
fn expect(stream: &mut TcpStream, status: u16) -> Outcome<Vec<u8>> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let len = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if len > ANSWER_BYTES_MAX {
        return Err(format!("an answer of {len} bytes").into());
    }
    let mut said = vec![0; len];
    stream.read_exact(&mut said)?;
    match u16::from_be_bytes([head[2], head[3]]) {
        came if came == status => Ok(said),
        came => Err(format!("the server answers {came}: {}", String::from_utf8_lossy(&said)).into()),
    }
}

//! Logins over root:// by certificate: what either side sends, also behind its proof.

use std::sync::{Arc, LazyLock};

use gridlane_auth::Refusal;
use gridlane_auth::make::{Credential, Key, Validity, profile};
use gridlane_gsi::client::Decisions;
use gridlane_gsi::{
    Client, ClientCredential, HostCredential, Parameters, Server, ServerStep, generate_rsa_pkcs8,
};
use ring::rand::SystemRandom;

const NOW_S: i64 = 1_800_000_000;

/// The bucket with a message inside of a message.
const MAIN: [u8; 4] = 3001u32.to_be_bytes();

/// The two ends. Their keys are other ones in every run; what becomes of an input does not depend on them.
static ENDS: LazyLock<(Arc<HostCredential>, Arc<ClientCredential>)> =
    LazyLock::new(|| ends().unwrap_or_else(|why| panic!("no keys: {why}")));

fn ends() -> Result<(Arc<HostCredential>, Arc<ClientCredential>), Box<dyn std::error::Error>> {
    let random = SystemRandom::new();
    let key = generate_rsa_pkcs8(2048)?;
    let validity = Validity::from_now(NOW_S, 3600);
    let made = |name: &str| -> Result<Credential, Box<dyn std::error::Error>> {
        Ok(profile::authority(&name.parse()?, Key::from_pkcs8(&key, &random)?, validity, &random)?)
    };
    let host = HostCredential::new(&made("/CN=h")?.chain[0], &key, "01234567")?;
    let user = ClientCredential::new(&made("/CN=Ada")?.chain, &key, "89abcdef", "a proxy")?;
    Ok((Arc::new(host), Arc::new(user)))
}

/// Believes every server, and gives none a proxy that is worth anything.
struct Believes;

impl Decisions for Believes {
    fn check_server(&mut self, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn sign_proxy(&mut self, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        Ok(request.to_vec())
    }
}

/// Two ends, and the first message.
fn begin() -> (Client, Server, Vec<u8>) {
    let (host, user) = &*ENDS;
    let parameters = Parameters::parse(host.parameters().as_bytes());
    let begun = parameters.and_then(|parameters| Client::begin(&parameters, Arc::clone(user), true, false));
    let (client, first) = begun.unwrap_or_else(|refusal| panic!("{refusal}"));
    (client, Server::new(Arc::clone(host)), first)
}

fn say(server: &mut Server, message: &[u8]) -> Vec<u8> {
    match server.receive(message, NOW_S) {
        Ok(ServerStep::Say(said)) => said,
        Ok(_) => panic!("the first message proves something"),
        Err(refusal) => panic!("{refusal}"),
    }
}

/// A message with another main part, which is its last bucket.
fn with_main(message: &[u8], main: &[u8]) -> Vec<u8> {
    let at = message.windows(4).rposition(|window| window == MAIN).unwrap_or(message.len());
    let len = u32::try_from(main.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&message[..at], &MAIN, &len, main, &[0; 4]].concat()
}

fn refused<T>(outcome: Result<T, Refusal>) {
    match outcome {
        Ok(_) => panic!("what nobody has signed is believed"),
        Err(refusal) => assert!(!refusal.message.is_empty() && refusal.message.len() < 1000, "{refusal}"),
    }
}

/// Behind the first byte, which says where it is put: the parameters of a server and a message in clear; or the main part
/// of a message of the server, of the client's proof, of the client's proxy.
pub(crate) fn gsi(data: &[u8]) {
    let Some((place, data)) = data.split_first() else { return };
    let (mut client, mut server, first) = begin();
    match place % 4 {
        0 => {
            if let Ok(parameters) = Parameters::parse(data) {
                assert!(parameters.version >= 10_400);
            }
            refused(client.receive(data, &mut Believes));
            // The first message proves nothing, so that it may be anybody's.
            if let Ok(step) = server.receive(data, NOW_S) {
                assert!(matches!(step, ServerStep::Say(_)));
            }
        }
        1 => {
            let second = say(&mut server, &first);
            refused(client.receive(&with_main(&second, data), &mut Believes));
        }
        place => {
            let second = say(&mut server, &first);
            let third = client.receive(&second, &mut Believes).unwrap_or_else(|refusal| panic!("{refusal}"));
            let key = client.session_key().cloned().unwrap_or_else(|| panic!("no key was agreed on"));
            let sealed = key.seal(data).unwrap_or_else(|refusal| panic!("{refusal}"));
            if place == 2 {
                refused(server.receive(&with_main(&third, &sealed), NOW_S));
                return;
            }
            assert!(matches!(server.receive(&third, NOW_S), Ok(ServerStep::Judge(_))));
            let asked = server.ask(b"request").unwrap_or_else(|refusal| panic!("{refusal}"));
            refused(server.receive(&with_main(&asked, &sealed), NOW_S));
        }
    }
}

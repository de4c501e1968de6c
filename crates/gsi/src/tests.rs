//! Both machines with each other, and with third parties between them.

use std::sync::{Arc, OnceLock};

use gridlane_auth::make::{Credential, Key, ProxyTerms, Validity, profile, proxy};
use gridlane_auth::{Cause, Refusal};
use ring::rand::SystemRandom;

use crate::buffer::{Buffer, Kind};
use crate::client::Decisions;
use crate::{Client, ClientCredential, HostCredential, Parameters, Server, ServerStep, generate_rsa_pkcs8};

/// A host and a user, with the keys of both.
struct People {
    host: (Credential, Vec<u8>),
    user: (Credential, Vec<u8>),
}

fn people() -> &'static People {
    static PEOPLE: OnceLock<People> = OnceLock::new();
    PEOPLE.get_or_init(|| {
        let random = SystemRandom::new();
        let key = || {
            let pkcs8 = generate_rsa_pkcs8(2048).unwrap();
            (Key::from_pkcs8(&pkcs8, &random).unwrap(), pkcs8)
        };
        let validity = Validity::from_now(1_700_000_000, 3600);
        let name = |text: &str| text.parse().unwrap();
        let authority = profile::authority(&name("/CN=CA"), key().0, validity, &random).unwrap();
        let (host_key, host_pkcs8) = key();
        let host = profile::host(&authority, &name("/CN=h"), &[], host_key, validity, &random).unwrap();
        let user = profile::user(&authority, &name("/CN=Ada"), key().0, validity, &random).unwrap();
        let (proxy_key, proxy_pkcs8) = key();
        let user = proxy(&user, proxy_key, &ProxyTerms::new(validity), &random).unwrap();
        People { host: (host, host_pkcs8), user: (user, proxy_pkcs8) }
    })
}

fn host() -> Arc<HostCredential> {
    static HOST: OnceLock<Arc<HostCredential>> = OnceLock::new();
    let (host, key) = &people().host;
    let make = || Arc::new(HostCredential::new(&host.chain[0], key, "01234567").unwrap());
    Arc::clone(HOST.get_or_init(make))
}

fn user() -> Arc<ClientCredential> {
    let (user, key) = &people().user;
    Arc::new(ClientCredential::new(&user.chain, key, "89abcdef", "the test's proxy").unwrap())
}

/// Believes the one host, and signs what it is asked to.
#[derive(Default)]
struct Believes {
    refuses_host: bool,
    refuses_proxy: bool,
}

impl Decisions for Believes {
    fn check_server(&mut self, certificate: &[u8]) -> Result<(), Refusal> {
        assert_eq!(certificate, people().host.0.chain[0]);
        match self.refuses_host {
            true => Err(Refusal::new(Cause::Untrusted, "no such authority")),
            false => Ok(()),
        }
    }

    fn sign_proxy(&mut self, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        match self.refuses_proxy {
            true => Err(Refusal::new(Cause::Expired, "the certificate has expired")),
            false => Ok([b"proxy for ", request].concat()),
        }
    }
}

fn begin(delegates: bool) -> (Client, Server, Vec<u8>) {
    let host = host();
    let parameters = Parameters::parse(host.parameters().as_bytes()).unwrap();
    assert_eq!(parameters.authorities, ["01234567.0"]);
    let (client, first) = Client::begin(&parameters, user(), delegates, false).unwrap();
    (client, Server::new(host), first)
}

fn said(step: ServerStep) -> Vec<u8> {
    let ServerStep::Say(said) = step else { panic!("nothing is said") };
    said
}

/// The client's proof, and the server that has asked for it.
fn proved(delegates: bool) -> (Client, Server, Vec<u8>) {
    let (mut client, mut server, first) = begin(delegates);
    let second = said(server.receive(&first, 1_700_000_000).unwrap());
    let third = client.receive(&second, &mut Believes::default()).unwrap();
    (client, server, third)
}

#[test]
fn both_prove_themselves_and_agree_on_a_key() {
    let (client, mut server, third) = proved(false);
    let ServerStep::Judge(chain) = server.receive(&third, 1_700_000_001).unwrap() else { panic!("no chain") };
    assert_eq!(chain, people().user.0.chain);
    assert!(!server.may_ask());
    let (ours, theirs) = (client.session_key().unwrap(), server.session_key().unwrap());
    assert_eq!(theirs.open(&ours.seal(b"request").unwrap()).unwrap(), b"request");
}

#[test]
fn a_client_that_offers_it_signs_a_proxy() {
    for (refuses_proxy, expected) in
        [(false, Ok(b"proxy for request".to_vec())), (true, Err("the certificate has expired".to_owned()))]
    {
        let (mut client, mut server, third) = proved(true);
        assert!(matches!(server.receive(&third, 1_700_000_001), Ok(ServerStep::Judge(_))));
        assert!(server.may_ask());
        let asked = server.ask(b"request").unwrap();
        let answer = client.receive(&asked, &mut Believes { refuses_proxy, ..Believes::default() }).unwrap();
        let ServerStep::Delegated(got) = server.receive(&answer, 1_700_000_002).unwrap() else {
            panic!("nothing came")
        };
        assert_eq!(got, expected);
        assert!(client.session_key().is_some());
    }
}

/// A server that asks although the client has not offered anything is told so, and gets nothing.
#[test]
fn a_client_that_does_not_offer_it_signs_nothing() {
    let (mut client, mut server, third) = proved(false);
    server.receive(&third, 1_700_000_001).unwrap();
    let asked = server.ask(b"request").unwrap();
    let answer = client.receive(&asked, &mut Believes::default()).unwrap();
    let ServerStep::Delegated(Err(why)) = server.receive(&answer, 1_700_000_002).unwrap() else {
        panic!("it came")
    };
    assert!(why.contains("Not allowed"), "{why}");
}

#[test]
fn a_server_that_is_not_believed_gets_no_certificate() {
    let (mut client, mut server, first) = begin(false);
    let second = said(server.receive(&first, 1_700_000_000).unwrap());
    let refusal =
        client.receive(&second, &mut Believes { refuses_host: true, ..Believes::default() }).unwrap_err();
    assert_eq!(refusal.message, "no such authority");
    assert!(client.session_key().is_none());
    // Nothing of it is kept: one that is believed later begins with the same part.
    assert!(client.receive(&second, &mut Believes::default()).is_ok(), "it may still be asked again");
}

/// With any bit changed on the way the exchange fails, or was about something that nothing depends on.
#[test]
fn what_is_changed_on_the_way_is_noticed() {
    let (mut client, mut server, first) = begin(false);
    let second = said(server.receive(&first, 1_700_000_000).unwrap());
    // The tag and the part of the key exchange are what a third party would replace.
    let read = Buffer::parse(&second).unwrap();
    let part = read.get(Kind::CIPHER).unwrap();
    let at = second.windows(part.len()).position(|window| window == part).unwrap();
    for at in [at, at + 100, at + 300, at + part.len() - 1] {
        let mut changed = second.clone();
        changed[at] ^= 4;
        let refusal = client.receive(&changed, &mut Believes::default()).unwrap_err();
        assert!(matches!(refusal.cause, Cause::BadSignature | Cause::Malformed), "{at}: {refusal}");
    }
    let third = client.receive(&second, &mut Believes::default()).unwrap();
    for at in (0..third.len()).step_by(97) {
        let mut changed = third.clone();
        changed[at] ^= 4;
        let (_, mut other, first) = begin(false);
        other.receive(&first, 1_700_000_000).unwrap();
        // Of another exchange with the same host: its tag is another one.
        assert!(other.receive(&changed, 1_700_000_001).is_err(), "{at}");
    }
    let mut unchanged = Server::new(host());
    assert!(unchanged.receive(&third, 1_700_000_001).is_err(), "it did not begin");
    assert!(matches!(server.receive(&third, 1_700_000_001), Ok(ServerStep::Judge(_))));
}

/// The answer to one server is nothing at another, also at one with the same host certificate.
#[test]
fn a_proof_cannot_be_used_again() {
    let (_, mut server, third) = proved(false);
    assert!(matches!(server.receive(&third, 1_700_000_001), Ok(ServerStep::Judge(_))));
    assert!(server.receive(&third, 1_700_000_001).is_err());
    let (_, mut second, first) = begin(false);
    second.receive(&first, 1_700_000_000).unwrap();
    let refusal = second.receive(&third, 1_700_000_001).err().unwrap();
    assert_eq!(refusal.message, "gsi: the client has signed another tag than it was sent");
}

/// A client that shows somebody else's certificate has not its key.
#[test]
fn the_certificate_of_another_user_is_of_no_use() {
    let (other, _) = &people().host;
    let (_, key) = &people().user;
    let thief = ClientCredential::new(&other.chain, key, "89abcdef", "a thief").unwrap();
    let host = host();
    let parameters = Parameters::parse(host.parameters().as_bytes()).unwrap();
    let (mut client, first) = Client::begin(&parameters, Arc::new(thief), false, false).unwrap();
    let mut server = Server::new(host);
    let second = said(server.receive(&first, 1_700_000_000).unwrap());
    let third = client.receive(&second, &mut Believes::default()).unwrap();
    let refusal = server.receive(&third, 1_700_000_000).err().unwrap();
    assert!(refusal.message.contains("another key than its certificate's"), "{refusal}");
}

/// One part of the key exchange serves for a minute, and no longer; also where the clock is set back.
#[test]
fn the_servers_part_is_renewed() {
    let (host, key) = &people().host;
    let host = Arc::new(HostCredential::new(&host.chain[0], key, "01234567").unwrap());
    let part = |now_s| {
        let parameters = Parameters::parse(host.parameters().as_bytes()).unwrap();
        let (_, first) = Client::begin(&parameters, user(), false, false).unwrap();
        let second = said(Server::new(Arc::clone(&host)).receive(&first, now_s).unwrap());
        Buffer::parse(&second).unwrap().get(Kind::CIPHER).unwrap().to_vec()
    };
    let first = part(1000);
    assert!(part(1059) == first);
    let second = part(1060);
    assert!(second != first);
    assert!(part(900) != second);
}

#[test]
fn peers_that_are_too_old_or_different_are_refused_in_words() {
    let begin = |version: u32, module: &str| {
        let main = Buffer::new(1000).with(Kind::TAG, *b"12345678").encode();
        let message = Buffer::new(1000)
            .with(Kind::CRYPTO_MODULE, module)
            .with_number(Kind::VERSION, version)
            .with(Kind::MAIN, main)
            .encode();
        Server::new(host()).receive(&message, 1_700_000_000).err().map(|refusal| refusal.message)
    };
    assert!(begin(10_300, "ssl").unwrap().contains("does not sign"));
    assert!(begin(10_600, "local").unwrap().contains("\"local\""));
    assert_eq!(begin(10_600, "sslnopad"), None);
    for message in [&b""[..], b"gsi\0", b"ztn\0", &Buffer::new(1003).encode(), &Buffer::new(1000).encode()] {
        assert!(Server::new(host()).receive(message, 0).is_err());
    }
}

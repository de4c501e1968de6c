//! Fields that a client has given for a copy between other servers: the servers that get them, and those that do not.

use crate::identity::{Site, ask};
use crate::script::{Reply, Scripted, answer};
use crate::{identity, root_site};

use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Fault, Secret, Url};
use gridlane_net::tls::Trust;
use gridlane_net::{AddressRules, Dialer, Identity};
use gridlane_peer::http::{Purpose, Request};
use gridlane_peer::{Client, Credentials, Forwarded};
use gridlane_xrd::PathArg;
use gridlane_xrd::answer::Redirect;
use gridlane_xrd::flags::ServerFlags;
use gridlane_xrd::request::{About, Stat};
use root_site::{Faults, certificate};

/// A token's beginning is what the server of root:// looks at.
const BEARER: &str = "Bearer good-0123456789";

fn url(text: &str) -> Url {
    Url::parse_absolute(text).unwrap()
}

fn forwarded(to: &Url, fields: &[(&str, &str)]) -> Forwarded {
    let field = |(name, value): &(&str, &str)| ((*name).to_owned(), Secret::new(*value));
    Forwarded { to: to.clone(), fields: fields.iter().map(field).collect() }
}

/// The client of a copy of a user, on the parts that `client` shares.
fn copy(client: &Client, identity: &Identity, given: Vec<Forwarded>) -> Client {
    client.clone().credentials(Credentials::forwarding(identity.clone(), given).unwrap())
}

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), Duration::from_secs(30))
}

async fn refused(client: &Client, url: &Url) -> Error {
    client.http.request("GET", url, &[]).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn a_server_gets_the_fields_that_were_given_for_it() {
    let server = Scripted::start(|_| answer("200 OK", &[], "")).await;
    let (first, second) = (server.url("/first"), server.url("/second"));
    let fields = [
        ("Authorization", BEARER),
        ("X-Other", "of the copy"),
        ("user-agent", "a copier"),
        ("SciTag", "144"),
        ("Depth", "7"),
    ];
    let given = vec![forwarded(&first, &fields), forwarded(&second, &[("Authorization", "Basic YTpi")])];
    let copy = copy(&client(), &Identity::new(None), given);
    let password = url(&server.url("/third").as_str().replace("http://", "http://ada:pw@"));
    for (at, authorization) in [
        (&first, BEARER),
        (&second, "Basic YTpi"),
        // What was given for the server goes in front of what is in the URL.
        (&password, BEARER),
    ] {
        let request = Request::new("PROPFIND", at).header("Depth", "1");
        copy.http.exchange(&request).await.unwrap();
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.field("authorization"), Some(authorization), "{seen:?}");
        assert_eq!(seen.head.to_ascii_lowercase().matches("\nauthorization:").count(), 1, "{seen:?}");
        assert_eq!(seen.head.matches("Depth:").count(), 1, "{seen:?}");
        assert!(seen.has_line("Depth: 1"), "the request's own field stands: {seen:?}");
        assert_eq!(seen.head.to_ascii_lowercase().matches("\nuser-agent:").count(), 1, "{seen:?}");
        let is_second = authorization.starts_with("Basic");
        assert_eq!(seen.has_line("User-Agent: a copier"), !is_second, "{seen:?}");
        assert_eq!(seen.has_line("X-Other: of the copy"), !is_second, "{seen:?}");
    }
    // Another server was given nothing.
    let other = Scripted::start(|_| answer("200 OK", &[], "")).await;
    copy.http.request("GET", &other.url("/first"), &[]).await.unwrap();
    let seen = other.seen().pop().unwrap();
    assert!(seen.field("authorization").is_none() && seen.field("scitag").is_none(), "{seen:?}");
}

#[tokio::test]
async fn a_redirect_takes_along_what_is_no_secret() {
    let there = Scripted::start(|seen| match seen.head.contains("/refused") {
        true => answer("403 Forbidden", &[], "not with good-0123456789"),
        false => answer("200 OK", &[], ""),
    })
    .await;
    let to = there.origin.clone();
    let here = Scripted::start(move |seen| match seen.head.split(' ').nth(1).unwrap() {
        "/one" => answer("302 Found", &["Location: /two"], ""),
        path => answer("307 Temporary Redirect", &[&format!("Location: {to}{path}")], ""),
    })
    .await;
    let fields = [("Authorization", BEARER), ("X-Token", "abcdefgh"), ("SciTag", "144"), ("User-Agent", "c")];
    // That the other server was given something as well is for requests that begin there.
    let given = vec![
        forwarded(&here.url("/one"), &fields),
        forwarded(&there.url("/two"), &[("Authorization", "Bearer of-the-other")]),
    ];
    let copy = copy(&client(), &Identity::new(None), given);
    copy.http.request("GET", &here.url("/one"), &[]).await.unwrap();
    let seen = here.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.field("authorization") == Some(BEARER)), "{seen:?}");
    let seen = there.seen().pop().unwrap();
    assert!(seen.has_line("SciTag: 144") && seen.has_line("User-Agent: c"), "{seen:?}");
    assert!(seen.field("authorization").is_none() && seen.field("x-token").is_none(), "{seen:?}");
    let error = refused(&copy, &here.url("/refused")).await;
    let text = error.to_string();
    assert!(text.contains("which was given for another server") && !text.contains("0123456789"), "{text}");
}

#[tokio::test]
async fn a_redirect_to_where_the_operator_lets_nobody_go_is_refused() {
    let here = Scripted::start(|seen| {
        let port = seen.field("host").unwrap().rsplit(':').next().unwrap();
        let to = seen.head.split(' ').nth(1).unwrap().trim_start_matches('/');
        answer("302 Found", &[&format!("Location: http://{to}:{port}/there")], "")
    })
    .await;
    let rules = AddressRules::public().allow("127.0.0.1".parse().unwrap());
    let client = Client::new(Dialer::new(Trust::default()).addresses(rules), Duration::from_secs(30));
    let copy = copy(&client, &Identity::new(None), Vec::new());
    for to in ["127.0.0.2", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.2]", "0x7f.2"] {
        let error = refused(&copy, &here.url(&format!("/{to}"))).await;
        assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Denied, Fault::Caller), "{error}");
        assert!(error.message().contains("the operator of this server") && !error.is_retryable(), "{error}");
        assert!(error.endpoint_text().unwrap().ends_with("/there"), "{error}");
    }
    assert!(here.seen().iter().all(|seen| !seen.head.contains("/there")));
    assert_eq!(here.connections(), 1, "and the way there stays");
}

#[tokio::test]
async fn a_secret_travels_in_clear_to_nobody_but_this_machine() {
    let secret = [("Authorization", BEARER)];
    for at in ["http://h.invalid/f", "http://192.0.2.1/f"].map(url) {
        let copy = copy(&client(), &Identity::new(None), vec![forwarded(&at, &secret)]);
        // Nothing is looked up or connected to: neither would end like this.
        let error = refused(&copy, &at).await;
        assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Denied, Fault::Caller), "{error}");
        let text = error.to_string();
        assert!(text.contains("in clear") && text.contains("https://") && !text.contains("good"), "{text}");
        let connected = copy.http.connect(&at, &at, Purpose::Lane, true).await.map(|_| ());
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::Denied);
    }
    // What is no secret may; so that it is the name that fails.
    let at = url("http://h.invalid/f");
    let copy = copy(&client(), &Identity::new(None), vec![forwarded(&at, &[("SciTag", "144")])]);
    assert_ne!(refused(&copy, &at).await.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_server_that_refuses_is_told_of_without_the_secret() {
    let server = Scripted::start(|seen| {
        let shown = seen.field("authorization").unwrap_or_default().to_owned();
        let cookie = seen.field("cookie").unwrap_or_default();
        let status = if seen.head.contains("/401") { "401 Unauthorized" } else { "403 Forbidden" };
        let said = format!("no to {shown}, {}, pass-word and {cookie}", shown.replace("Bearer ", ""));
        let Reply::Bytes(bytes) = answer(status, &[], &said) else { unreachable!() };
        Reply::Bytes(bytes)
    })
    .await;
    for (authorization, secret) in [(BEARER, "good-0123456789"), ("Basic YWRhOnBhc3Mtd29yZA==", "pass-word")]
    {
        let fields = [("Authorization", authorization), ("Cookie", "id=0a1b2c3d; k=hidden-one")];
        let copy = copy(&client(), &Identity::new(None), vec![forwarded(&server.url("/"), &fields)]);
        for path in ["/401", "/403"] {
            let text = refused(&copy, &server.url(path)).await.to_string();
            assert!(text.contains("the credential that was given for this server was refused"), "{text}");
            for hidden in [secret, "YWRh", "0a1b2c3d", "hidden-one"] {
                assert!(!text.contains(hidden), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn copies_of_one_user_share_connections_and_those_of_others_do_not() {
    let site = Site::start(true).await;
    let (client, ada, bob) = (site.client(), Identity::new(None), Identity::new(None));
    let bearer = |token: &str| forwarded(&site.url, &[("Authorization", &format!("Bearer {token}"))]);
    for (identity, token, connection) in
        [(&ada, "one", 0), (&ada, "two", 0), (&bob, "one", 1), (&ada, "three", 0), (&bob, "two", 1)]
    {
        // Each copy has a client of its own, which is gone before the next.
        let copy = copy(&client, identity, vec![bearer(token)]);
        assert_eq!(ask(&copy, &site.url).await, format!("nobody {token}"));
        assert_eq!(site.heard().last().unwrap().connection, connection, "{:?}", site.heard());
    }
    // A copy without any, and the process itself, are nobody.
    assert_eq!(ask(&copy(&client, &ada, Vec::new()), &site.url).await, "nobody no token");
    assert_eq!(site.heard().last().unwrap().connection, 2);
}

#[tokio::test]
async fn copies_of_one_user_go_on_from_one_session_of_tls() {
    let site = Site::start(false).await;
    let (client, ada) = (site.client(), Identity::new(None));
    let bearer = |token: &str| forwarded(&site.url, &[("Authorization", &format!("Bearer {token}"))]);
    for (token, is_resumed) in [("one", false), ("two", true), ("three", true)] {
        assert_eq!(
            ask(&copy(&client, &ada, vec![bearer(token)]), &site.url).await,
            format!("nobody {token}")
        );
        assert_eq!(site.heard().last().unwrap().is_resumed, is_resumed, "{:?}", site.heard());
    }
    let bob = copy(&client, &Identity::new(None), vec![bearer("four")]);
    assert_eq!(ask(&bob, &site.url).await, "nobody four");
    assert!(!site.heard().last().unwrap().is_resumed, "{:?}", site.heard());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_root_sees_the_token_and_whom_it_leads_to_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (config, trust) = certificate(dir.path());
    let faults = |methods| Faults {
        methods,
        tls: Some((config.clone(), ServerFlags::TLS_LOGIN)),
        ..Faults::default()
    };
    const BOTH: &str = "&P=ztn,0:4096:&P=unix";
    let stat = |about: PathArg| Stat { about: About::Path(about), is_vfs: false, wants: 0 };
    let client = Client::new(Dialer::new(trust), Duration::from_secs(20));
    let ada = Identity::new(None);
    let of = |to: &Url, bearer: &str| {
        copy(&client, &ada, vec![forwarded(to, &[("Authorization", bearer), ("SciTag", "144")])])
    };
    let second = root_site::Site::start(b"x", faults(BOTH)).await;
    let first = Faults { redirects: vec![second.redirect()], ..faults(BOTH) };
    let first = root_site::Site::start(b"x", first).await;
    for _ in 0..2 {
        of(&first.url, BEARER).root.call(&first.url, stat).await.unwrap();
    }
    assert_eq!(first.count("auth ztn good-0123456789"), 1, "the session is kept: {:?}", first.log());
    assert_eq!(second.count("auth ztn"), 0, "{:?}", second.log());
    // Another copy's token is another login.
    of(&first.url, "Bearer good-other").root.call(&first.url, stat).await.unwrap();
    assert_eq!(first.count("auth ztn good-other"), 1, "{:?}", first.log());
    // One that is refused, and a server that was given none.
    let strict = root_site::Site::start(b"x", faults("&P=ztn,0:4096:")).await;
    let error = of(&strict.url, "Bearer bad-0123456789").root.call(&strict.url, stat).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the credential that was given for this server"), "{text}");
    assert!(error.kind() == ErrorKind::Denied && !text.contains("0123456789"), "{text}");
    let error = of(&first.url, BEARER).root.call(&strict.url, stat).await.unwrap_err();
    assert!(error.to_string().contains("to that server, and on to no other"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_root_leads_nobody_to_where_the_operator_does_not_let_it() {
    let second = root_site::Site::start(b"x", Faults::default()).await;
    let refused = Redirect::Host { host: "127.0.0.2".into(), port: second.port, cgi: vec![], token: vec![] };
    let first = Faults { redirects: vec![refused], ..Faults::default() };
    let first = root_site::Site::start(b"x", first).await;
    let rules = AddressRules::public().allow("127.0.0.1".parse().unwrap());
    let client = Client::new(Dialer::new(Trust::default()).addresses(rules), Duration::from_secs(20));
    let stat = |about: PathArg| Stat { about: About::Path(about), is_vfs: false, wants: 0 };
    let error = client.root.call(&first.url, stat).await.unwrap_err();
    assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Denied, Fault::Caller), "{error}");
    assert!(error.endpoint_text().unwrap().contains("127.0.0.2"), "{error}");
    assert_eq!(second.connections(), 0);
    client.root.call(&second.url, stat).await.unwrap();
}

/// The certificate of an identity goes where its fields go.
#[tokio::test]
async fn a_certificate_is_shown_to_servers_that_something_was_given_for() {
    let site = Site::start(true).await;
    let client = site.client();
    let ada = Identity::new(Some(identity::certificate("ada").shown));
    let given = vec![forwarded(&site.url, &[("Authorization", "Bearer t")])];
    assert_eq!(ask(&copy(&client, &ada, given), &site.url).await, "ada t");
    assert_eq!(ask(&copy(&client, &ada, Vec::new()), &site.url).await, "nobody no token");
}

#[tokio::test]
async fn secrets_of_a_request_stay_at_its_server() {
    let other = Scripted::start(|_| answer("200 OK", &[], "")).await;
    let elsewhere = other.url("/f").to_string();
    let server = Scripted::start(move |request| match request.head.starts_with("COPY /moved ") {
        true => answer("307 Elsewhere", &[&format!("Location: {elsewhere}")], ""),
        false => answer("403 No", &[], "I know secret-of-the-other-one"),
    })
    .await;
    let secret = || Secret::new("Bearer secret-of-the-other-one");
    let (plain, moved) = (server.url("/plain"), server.url("/moved"));
    let request = Request::new("COPY", &plain).secret("TransferHeaderAuthorization", secret());
    let refused = client().http.exchange(&request).await.unwrap().into_error().await;
    assert!(!refused.to_string().contains("secret-of-the-other-one"), "{refused}");
    assert!(
        server.seen()[0].has_line("TransferHeaderAuthorization: Bearer secret-of-the-other-one"),
        "{:?}",
        server.seen()
    );
    let request = Request::new("COPY", &moved).secret("TransferHeaderAuthorization", secret());
    let led = client().http.exchange(&request).await.map(|_| ()).unwrap_err();
    assert_eq!(led.kind(), ErrorKind::Denied, "{led}");
    assert_eq!(other.seen().len(), 0);
    let away = url("http://192.0.2.1/f");
    let request = Request::new("COPY", &away).secret("TransferHeaderAuthorization", secret());
    let clear = client().http.exchange(&request).await.map(|_| ()).unwrap_err();
    assert_eq!((clear.kind(), clear.whose_fault()), (ErrorKind::Denied, Fault::Caller), "{clear}");
}

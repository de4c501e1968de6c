//! Requests of all kinds against a server that answers what the test says.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::time::Duration;

use gridlane_core::{ErrorKind, Url};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::http::{Client, Request};
use script::{Reply, Scripted, answer};

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), Duration::from_secs(30))
}

#[tokio::test]
async fn a_request_with_a_body_and_a_status_of_its_own() {
    let server = Scripted::start(|seen| match seen.method() {
        "PROPFIND" => answer("207 Multi-Status", &["Content-Type: application/xml"], "<multistatus/>"),
        "MKCOL" => answer("405 Method Not Allowed", &[], "it is there\nand more"),
        _ => answer("204 No Content", &[], ""),
    })
    .await;
    let (client, url) = (client(), server.url("/d/"));
    let ask = Request::new("PROPFIND", &url).header("Depth", "1").body(b"<propfind/>");
    let mut listing = client.exchange(&ask).await.unwrap().accept(&[207]).await.unwrap();
    assert_eq!(listing.read_whole(1000).await.unwrap(), b"<multistatus/>");
    let seen = &server.seen()[0];
    assert!(seen.has_line("Depth: 1") && seen.body == b"<propfind/>", "{seen:?}");

    let mut listing = client.exchange(&ask).await.unwrap();
    assert_eq!(listing.read_whole(5).await.unwrap_err().kind(), ErrorKind::Unsupported);

    let made = client.exchange(&Request::new("MKCOL", &url)).await.unwrap();
    assert_eq!(made.status().code(), 405, "the caller decides what it means");
    let error = made.success().await.map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unsupported, Some(405)));
    assert!(error.message().contains("(\"it is there\")"), "{error}");
    assert!(error.endpoint_text().unwrap().ends_with("/d/"));

    let gone = client.exchange(&Request::new("DELETE", &url)).await.unwrap();
    let error = gone.accept(&[207]).await.map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Protocol, Some(204)));
}

#[tokio::test]
async fn redirects_repeat_the_request_and_keep_secrets() {
    let there = Scripted::start(|_| answer("207 Multi-Status", &[], "")).await;
    let to = format!("Location: {}/there/", there.origin);
    let here = Scripted::start(move |seen| match seen.head.contains(" /one") {
        true => answer("301 Moved", &["Location: /two"], "moved"),
        false => answer("307 Temporary Redirect", &[&to], ""),
    })
    .await;
    let url = Url::parse_absolute(&here.origin.replace("http://", "http://ada:pw@")).unwrap();
    let url = url.join("/one").unwrap();
    let ask = Request::new("PROPFIND", &url)
        .header("Depth", "0")
        .header("Authorization", "Bearer secret")
        .body(b"<propfind/>");
    let found = client().exchange(&ask).await.unwrap();
    assert_eq!(found.url, there.url("/there/"));
    let (here, there) = (here.seen(), there.seen());
    assert_eq!(here.len(), 2);
    assert!(here.iter().all(|seen| seen.head.matches("Authorization: ").count() == 1));
    assert!(here.iter().all(|seen| seen.has_line("Authorization: Bearer secret")));
    let last = &there[0];
    assert!(last.method() == "PROPFIND" && last.has_line("Depth: 0") && last.body == b"<propfind/>");
    assert!(!last.head.to_ascii_lowercase().contains("authorization"), "{}", last.head);
}

#[tokio::test]
async fn what_changes_things_does_so_only_where_it_was_said() {
    let server = Scripted::start(|_| answer("302 Found", &["Location: /other"], "")).await;
    let (client, url) = (client(), server.url("/f"));
    for method in ["DELETE", "MOVE", "MKCOL", "COPY"] {
        let answered = client.exchange(&Request::new(method, &url)).await.unwrap();
        assert_eq!(answered.status().code(), 302, "{method}");
        assert_eq!(answered.success().await.map(|_| ()).unwrap_err().kind(), ErrorKind::Protocol);
    }
    assert!(server.seen().iter().all(|seen| seen.head.contains(" /f ")));
}

#[tokio::test]
async fn a_circle_ends() {
    let server = Scripted::start(|_| answer("308 Permanent Redirect", &["Location: /f"], "")).await;
    let url = server.url("/f");
    let error = client().exchange(&Request::new("GET", &url)).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(server.seen().len() <= 11, "{}", server.seen().len());
}

#[tokio::test]
async fn the_text_of_an_error_is_bounded() {
    let long = "x".repeat(100_000);
    let server = Scripted::start(move |_| {
        Reply::Last(format!("HTTP/1.1 403 No\r\nContent-Length: 100000000\r\n\r\n{long}").into_bytes())
    })
    .await;
    let error = client().request("GET", &server.url("/f"), &[]).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.message().len() < 1000, "{}", error.message().len());
}

#[tokio::test]
async fn the_round_trip_of_the_data_is_known_behind_it() {
    const BYTES: usize = 16 << 20;
    let server = Scripted::start(|_| answer("200 OK", &[], &"x".repeat(BYTES))).await;
    let (client, url) = (client(), server.url("/f"));
    let mut got = client.exchange(&Request::new("GET", &url)).await.unwrap();
    assert_eq!(got.read_whole(BYTES).await.unwrap().len(), BYTES);
    let (empty, path) = (got.connection.round_trip(), got.connection.path().unwrap());
    let loaded = path.loaded_round_trip;
    assert!(empty.is_some_and(|time| !time.is_zero()), "{empty:?}");
    assert!(loaded.is_some_and(|time| !time.is_zero() && time < Duration::from_secs(5)), "{loaded:?}");
}

#[tokio::test]
async fn what_is_believed_of_one_server_is_not_looked_for_at_another() {
    let other = Scripted::start(|_| answer("200 OK", &[], "theirs")).await;
    let elsewhere = format!("Location: {}/f", other.origin);
    let server = Scripted::start(move |seen| match seen.head.split(' ').nth(1) {
        Some("/f/") => answer("200 OK", &[], "ours"),
        Some("/f") => answer("301 Moved", &["Location: /f/"], ""),
        _ => answer("302 Found", &[elsewhere.as_str()], ""),
    })
    .await;
    let (client, there, leaves) = (client(), server.url("/f"), server.url("/g"));
    let stays = client.exchange(&Request::new("GET", &there).stays()).await.unwrap();
    assert_eq!(stays.success().await.unwrap().read_whole(1000).await.unwrap(), b"ours");
    let error = client.exchange(&Request::new("GET", &leaves).stays()).await.map(|_| ()).unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("another server"), "{error}");
    assert_eq!(other.connections(), 0);
    client.exchange(&Request::new("GET", &leaves)).await.unwrap().finish().await;
    assert_eq!(other.connections(), 1);
}

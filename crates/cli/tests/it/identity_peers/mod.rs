//! Debian's XRootD with authentication: first that each set-up is right, as the field's own clients see it, then the
//! answers to `gridlane`.

mod client;
mod gsi;
mod set_up;

use std::process::Command;

use serde_json::Value;

use crate::support::client::{Outcome, run, text};
use crate::support::pki::{Credential, Pki};
use crate::support::secrets;
use crate::support::tools::curl;

/// The status and the body of a request to a peer, by curl.
fn ask(pki: &Pki, url: &str, arguments: &[&str]) -> (u16, String) {
    let mut command = curl();
    command.arg("--capath").arg(pki.certificates()).args(["--write-out", "\n%{http_code}"]);
    command.args(arguments).arg(url);
    let said = run(command).ok().text();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// The same with a proxy.
fn ask_with(pki: &Pki, credential: &Credential, url: &str, arguments: &[&str]) -> (u16, String) {
    ask(pki, url, &[&["--cert", text(&credential.file)], arguments].concat())
}

/// A program with the variables by which the grid's programs find credentials.
fn with(pki: &Pki, mut command: Command, credential: Option<&Credential>, token: Option<&str>) -> Outcome {
    command.env("X509_CERT_DIR", pki.certificates());
    // One that is not there would be an error to XRootD's clients.
    if let Some(credential) = credential {
        command.env("X509_USER_PROXY", &credential.file);
    }
    if let Some(token) = token {
        command.env("BEARER_TOKEN", token);
    }
    run(command)
}

/// A macaroon of XRootD for reading.
fn request_macaroon(pki: &Pki, url: &str, arguments: &[&str]) -> String {
    let request = r#"{"caveats": ["activity:DOWNLOAD,LIST"], "validity": "PT10M"}"#;
    let header = "Content-Type: application/macaroon-request";
    let all = [&["--request", "POST", "--header", header, "--data", request], arguments].concat();
    let (status, body) = ask(pki, url, &all);
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let macaroon = answer["macaroon"].as_str().unwrap().to_owned();
    secrets::remember(&macaroon);
    macaroon
}

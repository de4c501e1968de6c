//! The switch between records of our own and those of rustls: either understands the other, in every direction, and a
//! user is told which it is.

use std::fs;

use gridlane_net::tls::RecordLayer;

use crate::support::client::{cp, gridlane, run};
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, content};

/// A build without the feature `own-records` has one only.
fn choices() -> Vec<String> {
    RecordLayer::BUILT_IN.iter().map(RecordLayer::to_string).collect()
}

#[test]
fn each_kind_of_records_understands_the_other() {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    let bytes = content(771, 6 * MIB + 5);
    let source = scratch.file("source", &bytes);
    for of_server in choices() {
        let server = Server::with(&dir, &["--allow-write", "--tls-records", &of_server]);
        for of_client in choices() {
            for scheme in ["https", "roots"] {
                let name = format!("{of_server}-{of_client}-{scheme}");
                let url = server.url_over(scheme, &name);
                let target = scratch.join(&name);
                for mut command in [cp(&source, &url), cp(&url, &target)] {
                    command.env("GRIDLANE_TLS_RECORDS", &of_client).arg("--ca").arg(server.ca());
                    run(command).ok();
                }
                assert_copied(&dir.join(&name), &bytes);
                assert_copied(&target, &bytes);
            }
        }
    }
}

#[test]
fn the_choice_is_told_and_a_wrong_one_refused() {
    let scratch = Scratch::new();
    let dir = scratch.dir("export");
    let file = scratch.join("gridlane.toml");
    fs::write(&file, "tls-records = \"rustls\"\n").unwrap();
    let told = "records of TLS 1.3";
    let default = &choices()[0];
    for (variable, file_counts, choice) in [
        (None, true, "rustls"),
        (None, false, default),
        (Some("rustls"), false, "rustls"),
        (Some(default.as_str()), true, default),
    ] {
        let with = |words: &[&str]| {
            let mut command = gridlane();
            command.args(words).env_remove("GRIDLANE_TLS_RECORDS");
            if let Some(variable) = variable {
                command.env("GRIDLANE_TLS_RECORDS", variable);
            }
            if file_counts {
                command.arg("--config").arg(&file);
            }
            run(command)
        };
        let outcome = with(&["serve", dir.to_str().unwrap(), "--check", "--listen", "127.0.0.1:0"]).exits(0);
        outcome.says(&[&format!("{told}: {choice}")]);
        let text = with(&["doctor"]).ok().text();
        let line = text.lines().find(|line| line.contains(told)).unwrap();
        assert!(line.ends_with(choice), "{line}");
    }
    let mut command = gridlane();
    command.args(["doctor", "--tls-records", "mine"]);
    run(command).exits(2).says(&["neither own nor rustls"]);
}

//! Authorities that are believed: those that `--ca` names, the system's, and no others.

use crate::support::client::{cp, run};
use crate::support::serve::Server;
use crate::support::{Scratch, assert_copied, content};

#[test]
fn the_systems_authorities_count_beside_named_ones() {
    let bytes = content(951, 100_000);
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    std::fs::write(export.join("f"), &bytes[..]).unwrap();
    let (server, stranger) = (Server::start(&export), Server::start(&export));
    let (right, wrong) = (server.ca(), stranger.ca());
    assert_ne!(
        std::fs::read(&right).unwrap(),
        std::fs::read(&wrong).unwrap(),
        "each has its own certificate"
    );
    // What --ca names, what the system has, and whether that is enough.
    for (number, (named, system, trusted)) in [
        (Some(&right), None, true),
        (None, Some(&right), true),
        (Some(&wrong), Some(&right), true),
        (Some(&right), Some(&wrong), true),
        (Some(&wrong), Some(&wrong), false),
        (None, Some(&wrong), false),
    ]
    .into_iter()
    .enumerate()
    {
        let target = scratch.join(format!("copy{number}"));
        let mut command = cp(server.url_over("https", "f"), &target);
        if let Some(named) = named {
            command.arg("--ca").arg(named);
        }
        if let Some(system) = system {
            command.env("SSL_CERT_FILE", system);
        }
        match trusted {
            true => {
                run(command).ok();
                assert_copied(&target, &bytes);
            }
            false => drop(run(command).exits(4).says(&["certificate", "--ca"])),
        }
    }
}

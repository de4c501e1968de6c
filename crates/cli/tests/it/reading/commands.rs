//! `gridlane read` and `gridlane cat --range`.

use std::fs;

use gridlane_core::ChecksumKind;

use crate::support::client::{gridlane, run};
use crate::support::serve::Server;
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, checksum, content};

#[test]
fn a_trace_is_replayed_by_every_policy() {
    let (scratch, bytes) = (Scratch::new(), content(5201, 5_000_000));
    let export = scratch.dir("export");
    fs::write(export.join("f"), bytes.as_slice()).unwrap();
    let server = Server::start(&export);
    let lines = (0..200_u64).map(|nth| format!("{},read,{},1000\n", nth / 4, nth * 7919 % 4_990_000));
    let trace = format!("request,op,offset,length\n{}", lines.collect::<String>());
    let path = scratch.file("trace.csv", trace.as_bytes());
    let read =
        (0..200).flat_map(|nth| &bytes[nth * 7919 % 4_990_000..][..1000]).copied().collect::<Vec<u8>>();
    let right = checksum(ChecksumKind::Adler32, &read).hex();
    for url in [server.url("f"), server.url_over("root", "f")] {
        let mut command = gridlane();
        command.arg("read").arg(&path).args([&url, "--policy", "all", "--json", "--checksum"]);
        let outcome = run(command).ok();
        let events = outcome.events();
        let runs: Vec<_> = events.iter().filter(|event| event["type"] == "run").collect();
        let names: Vec<&str> = runs.iter().map(|run| run["policy"].as_str().unwrap()).collect();
        assert_eq!(names, ["adaptive", "direct", "vector", "prefetch", "lazy", "copy"]);
        for run in &runs {
            let number = |name: &str| run[name].as_f64().unwrap();
            assert_eq!((number("size_bytes"), number("failures")), (5e6, 0.0), "{run:#}");
            assert!(number("seconds") >= number("open_s"), "{run:#}");
            assert!(number("moved_bytes") >= 190_000.0, "{run:#}");
            assert_eq!((&run["adler32"], &run["bytes"]), (&right.clone().into(), &200_000.into()), "{run:#}");
            assert!(run["explain"].as_str().unwrap().contains("round trip"), "{run:#}");
        }
        // One after the other, and many at once.
        assert!(runs[1]["requests"].as_u64().unwrap() >= 190, "{:#}", runs[1]);
        let prices = outcome.event("prices");
        assert_eq!((&prices["calls"], &prices["ranges"]), (&50.into(), &200.into()));
        assert_eq!(prices["policies"].as_array().unwrap().len(), 5);
    }
    let mut command = gridlane();
    command.arg("read").arg(&path).args([&server.url("f"), &server.url_over("root", "f")]);
    let outcome = run(command).ok().says(&["50 calls, 200 ranges", "policy", "expected", "took"]);
    // Five that were not run, and one that has no price.
    let text = outcome.text();
    let rows = text.lines().skip_while(|line| !line.starts_with("policy")).skip(1);
    let (not_run, run): (Vec<&str>, Vec<&str>) = rows.partition(|line| line.ends_with('-'));
    assert!(not_run.len() == 5 && run.len() == 1 && run[0].starts_with("adaptive"), "{text}");
}

#[test]
fn a_trace_that_makes_no_sense_says_where() {
    let (scratch, bytes) = (Scratch::new(), content(5202, 1000));
    let export = scratch.dir("export");
    fs::write(export.join("f"), bytes.as_slice()).unwrap();
    let server = Server::start(&export);
    for (text, words) in [
        ("request,op,offset,length\n0,read,0\n", "line 2 of the trace"),
        ("0,read,0,1\n", "line 1 of the trace"),
        ("request,op,offset,length\n0,read,990,100\n", "the trace is of another file"),
    ] {
        let path = scratch.file("trace.csv", text.as_bytes());
        let mut command = gridlane();
        command.arg("read").arg(&path).arg(server.url("f"));
        run(command).exits(2).says(&[words]);
    }
    let mut command = gridlane();
    command.args(["read", "/nothing/here", &server.url("f")]);
    run(command).says(&["cannot read the trace"]);
    let mut command = gridlane();
    command.args(["read", "--policy", "fast", "-", &server.url("f")]);
    run(command).exits(2).says(&["there is no policy", "adaptive"]);
}

#[test]
fn ranges_are_written_in_their_order() {
    let (scratch, bytes) = (Scratch::new(), content(5203, 3_000_000));
    let export = scratch.dir("export");
    fs::write(export.join("f"), bytes.as_slice()).unwrap();
    let (server, xrootd) = (Server::start(&export), Xrootd::start());
    xrootd.put("f", &bytes);
    let size = bytes.len();
    for url in [server.url("f"), server.url_over("root", "f"), xrootd.url("f")] {
        let cat = |ranges: &[&str]| {
            let mut command = gridlane();
            command.args(["cat", &url]);
            command.args(ranges.iter().flat_map(|range| ["--range", range]));
            run(command)
        };
        let outcome = cat(&["100-199,0-0", "-5", "2000000-"]).ok();
        let wanted = [&bytes[100..200], &bytes[..1], &bytes[size - 5..], &bytes[2_000_000..]].concat();
        assert!(outcome.stdout == wanted, "{url}: {} bytes", outcome.stdout.len());
        assert!(cat(&["5-4000000000"]).ok().stdout == bytes[5..], "{url}");
        cat(&["3000000-"]).exits(2).says(&["3000000 bytes, and none in the range"]);
    }
    let mut command = gridlane();
    command.args(["cat", "--range", "five", &server.url("f")]);
    run(command).exits(2).says(&["is no range"]);
}

//! `gridlane wan` by its commands: what they make, show and change, what they refuse, and that the host is as
//! before when they are done. Nothing here measures traffic: that is in `wan_paths`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::Value;

use crate::support::client::{Running, run, signal, text};
use crate::support::wan::{Sleeper, Wan, assert_unchanged, find, host, is_alive, is_root};
use crate::support::{Scratch, until};

const STAR: &str = r#"
    sites = ["client", "near", "far"]
    routers = ["exchange"]
    seed = 7
    congestion_control = "reno" # every kernel has it

    [[link]]
    between = ["near", "exchange"]
    rate = "50Mb/s"
    delay_ms = 5
    queue = "100kB"

    [[link]]
    between = ["far", "exchange"]
    delay_ms = 40
    jitter_ms = 1
    loss = 0.001
    from.exchange.rate = "8Mb/s"

    [[link]]
    between = ["exchange", "client"]
    rate = "1Gb/s"
"#;

const PAIR: &str = r#"
    sites = ["client", "near"]
    link = [{ between = ["near", "client"], delay_ms = 1 }]
"#;

#[test]
fn from_up_to_down_and_the_host_is_as_before() {
    let before = host();
    let wan = Wan::planned("life", STAR);
    wan.bring_up().says(&["near", "client", "198.18.0.1", "2001:2::1", "reno", "10.0 ms"]);
    let state = wan.show();
    assert_eq!((state["name"].as_str(), state["backend"].as_str()), (Some(wan.name()), Some("tun")));
    assert_eq!(state["privilege"], if is_root() { "root" } else { "user namespace" });
    assert!(is_alive(&state["pid"].to_string()), "{state}");
    assert_eq!([&state["seed"], &state["mtu"], &state["framing_bytes"]], [7, 1500, 38]);
    assert_eq!((&state["buffers"], &state["void"]), (&Value::from("bdp"), &Value::Null));
    let namespaces = wan.namespaces();
    assert_eq!(namespaces.len(), 4, "each node has its own");

    let nodes = state["nodes"].as_array().unwrap();
    let names: Vec<_> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["client", "near", "far", "exchange"]);
    for node in nodes {
        // Verified at a socket, not repeated from the scenario.
        assert_eq!(node["congestion_control"], "reno", "{node}");
        assert_eq!(node["is_router"], node["name"] == "exchange", "{node}");
        assert!(node["addresses"][0].as_str().unwrap().starts_with("198.18.0."), "{node}");
        assert!(node["addresses"][1].as_str().unwrap().starts_with("2001:2::"), "{node}");
    }
    assert_eq!(wan.path("near", "far")["rate_bits_per_s"], 8_000_000);
    assert_eq!(wan.path("far", "near")["rate_bits_per_s"], 50_000_000);
    assert_eq!(wan.path("far", "client")["round_trip_s"], 0.08);

    let near = wan.link("near-exchange", "near");
    assert_eq!([&near["rate_bits_per_s"], &near["queue_bytes"]], [50_000_000, 100_000]);
    assert_eq!((&near["delay_s"], &near["to"]), (&Value::from(0.005), &Value::from("exchange")));
    let far = wan.link("far-exchange", "far");
    assert_eq!((&far["rate_bits_per_s"], &far["queue_bytes"]), (&Value::Null, &Value::Null));
    assert_eq!([&far["loss"], &far["jitter_s"]], [0.001, 0.001]);
    assert_eq!(wan.link("far-exchange", "exchange")["rate_bits_per_s"], 8_000_000);
    for counter in ["passed_packets", "passed_bytes", "queued_bytes", "dropped_packets", "lost_packets"] {
        assert_eq!(near["counters"][counter], 0, "{counter}: nobody has sent anything");
    }
    for counter in ["lateness_p50_s", "lateness_p99_s"] {
        assert!(near["counters"][counter].is_number(), "{counter}");
    }
    wan.run("show", &[]).ok().says(&["seed 7", "exchange (router)", "40±1 ms", "100 kB"]);

    wan.run("down", &["--json"]).ok().says(&[r#""was":"network""#]);
    wan.assert_gone(&namespaces);
    assert_unchanged(&before);
}

#[test]
fn a_command_runs_at_its_site_as_it_would_outside() {
    let wan = Wan::up("exec", STAR);
    let mut command = wan.exec("near", "sh");
    command.args(["-c", "hostname; pwd; echo $GRIDLANE_WAN_SITE $MINE; exit 7"]);
    command.env("MINE", "kept").current_dir(wan.scratch().path());
    let outcome = run(command).exits(7);
    assert_eq!(outcome.text(), format!("near\n{}\nnear kept\n", text(wan.scratch().path())));

    run(wan.exec("near", "no-such-command")).exits(127).says(&["no-such-command"]);
    run(wan.exec("near", "/etc/hosts")).exits(126).says(&["/etc/hosts"]);
    let outcome = run(wan.exec("moon", "true")).exits(3);
    outcome.says(&["no site moon", "client", "near", "far"]);
    wan.run("exec", &["near"]).exits(2);

    // A directory that is gone is not replaced by another one.
    let gone = wan.scratch().dir("gone");
    let mut command = Command::new("sh");
    command.args(["-c", "cd \"$0\" && rmdir \"$0\" && exec \"$@\""]).arg(&gone);
    let inner = wan.exec("near", "pwd");
    command.arg(inner.get_program()).args(inner.get_args());
    run(command).exits(3).says(&["working directory"]);

    // A signal is for the command itself: there is no process in between.
    let mut sleeper = Sleeper::start(wan.exec("near", "sleep"));
    sleeper.signal("TERM");
    sleeper.assert_ended();

    let mut child = wan.exec("far", "cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through standard input").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through standard input");
}

#[test]
fn names_resolve_inside_in_both_families() {
    let wan = Wan::up("names", STAR);
    for site in ["client", "far"] {
        let [ipv4, ipv6] = wan.addresses("near");
        let found = wan.shell(site, "getent ahosts near");
        assert!(found.contains(&ipv4) && found.contains(&ipv6), "{found}");
        assert_eq!(wan.shell(site, "getent ahosts near.v4 | cut -d' ' -f1 | sort -u"), ipv4);
        assert_eq!(wan.shell(site, "getent ahosts near.v6 | cut -d' ' -f1 | sort -u"), ipv6);
        assert!(!wan.shell(site, "getent ahosts localhost").is_empty());
    }
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    assert!(!hosts.contains("near.v4"), "the host's own file has it: {hosts}");
}

#[test]
fn set_changes_what_it_is_told_and_nothing_else() {
    let wan = Wan::up("set", STAR);
    let scenario = wan.show();
    wan.set("near-exchange", &["--from", "near", "--rate", "20Mb/s", "--delay-ms", "7.5", "--loss", "0.25"]);
    let near = wan.link("near-exchange", "near");
    assert_eq!((&near["rate_bits_per_s"], &near["delay_s"]), (&20_000_000.into(), &0.0075.into()));
    assert_eq!((&near["loss"], &near["queue_bytes"]), (&0.25.into(), &100_000.into()));
    assert_eq!(
        wan.link("near-exchange", "exchange"),
        find(&scenario["links"], &[("link", "near-exchange"), ("from", "exchange")]),
        "only what near sends"
    );
    assert_eq!(wan.path("near", "client")["rate_bits_per_s"], 20_000_000);
    assert_eq!(wan.path("client", "near")["round_trip_s"], 0.0125);

    wan.set("far-exchange", &["--rate", "unlimited", "--jitter-ms", "2", "--down"]);
    for from in ["far", "exchange"] {
        let far = wan.link("far-exchange", from);
        assert_eq!((&far["rate_bits_per_s"], &far["jitter_s"]), (&Value::Null, &0.002.into()));
        assert_eq!(far["is_down"], true);
    }
    wan.set("far-exchange", &["--up", "--queue", "64KiB", "--rate", "1Mb/s"]);
    let far = wan.link("far-exchange", "far");
    assert_eq!((&far["is_down"], &far["queue_bytes"]), (&false.into(), &65_536.into()));

    wan.set("far-exchange", &["--restore"]);
    wan.set("near-exchange", &["--restore", "--from", "near"]);
    assert_eq!(wan.show()["links"], scenario["links"]);

    // A queue that is none of the scenario's grows with the rate.
    wan.set("exchange-client", &["--rate", "2Gb/s"]);
    let before = find(&scenario["links"], &[("link", "exchange-client"), ("from", "client")]);
    let after = wan.link("exchange-client", "client");
    assert!(after["queue_bytes"].as_u64() > before["queue_bytes"].as_u64(), "{after}");
}

#[test]
fn what_cannot_be_set_is_refused_and_changes_nothing() {
    let wan = Wan::up("set-bad", STAR);
    let before = wan.show()["links"].clone();
    let refused: &[(&[&str], i32, &[&str])] = &[
        (&["moon", "--down"], 3, &["no link moon", "near-exchange", "far-exchange", "exchange-client"]),
        (&["near-exchange", "--from", "far", "--down"], 3, &["far", "near", "exchange"]),
        (&["near-exchange"], 2, &["nothing", "--rate", "--restore"]),
        (&["near-exchange", "--loss", "1.5"], 2, &["1.5"]),
        (&["near-exchange", "--loss", "NaN"], 2, &["loss"]),
        (&["near-exchange", "--delay-ms=-1"], 2, &["-1"]),
        (&["near-exchange", "--delay-ms", "1e9"], 2, &["delay"]),
        (&["near-exchange", "--rate", "fast"], 2, &["fast"]),
        (&["near-exchange", "--rate", "0"], 2, &["rate"]),
        (&["near-exchange", "--queue", "100"], 2, &["queue", "1538"]),
        (&["near-exchange", "--jitter-ms", "6"], 2, &["jitter", "delay"]),
        (&["near-exchange", "--up", "--down"], 2, &["--up", "--down"]),
        (&[], 2, &["LINK"]),
    ];
    for (arguments, code, words) in refused {
        wan.run("set", arguments).exits(*code).says(words);
    }
    assert_eq!(wan.show()["links"], before);
}

#[test]
fn buffers_hold_the_longest_path_unless_told_otherwise() {
    let long = |more: &str| {
        format!(
            "sites = ['client', 'far']\n{more}\n\
             link = [{{ between = ['client', 'far'], rate = '10Gb/s', delay_ms = 100 }}]"
        )
    };
    let most = |wan: &Wan, site: &str, which: &str| {
        find(&wan.show()["nodes"], &[("name", site)])[which][2].as_u64().unwrap()
    };
    let host = |which: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{which}")).unwrap();
        text.split_ascii_whitespace().next_back().unwrap().parse().unwrap()
    };
    let (bdp, own) = (Wan::up("bdp", &long("")), Wan::up("host", &long("buffers = 'host'")));
    for which in ["tcp_rmem", "tcp_wmem"] {
        // 10 Gb/s for 200 ms are 250 MB.
        assert!(most(&bdp, "far", which) >= 250_000_000, "{which}");
        assert_eq!(most(&own, "far", which), host(which), "{which}");
        let inside = bdp.shell("far", &format!("cat /proc/sys/net/ipv4/{which}"));
        assert!(inside.ends_with(&most(&bdp, "far", which).to_string()), "{which} is {inside}");
    }
}

#[test]
fn events_happen_when_the_timetable_says() {
    let wan = Wan::up(
        "events",
        r#"
            sites = ["client", "near"]
            link = [{ between = ["near", "client"], rate = "10Mb/s", delay_ms = 1 }]
            event = [
                { at_s = 4.5, link = "near-client", down = false, rate = "20Mb/s" },
                { at_s = 0.5, link = "near-client", from = "near", down = true },
            ]
        "#,
    );
    // It starts with the network, and again with each command that asks for it.
    for round in 0..2 {
        let (mut was_down, mut last_s) = (false, 0.0);
        until("the timetable is over", || {
            let state = wan.show();
            let of = |from| find(&state["links"], &[("link", "near-client"), ("from", from)]);
            let at_s = state["timetable_s"].as_f64().unwrap();
            assert!(at_s >= last_s, "it goes back from {last_s} s to {at_s} s");
            last_s = at_s;
            assert_eq!(of("client")["is_down"], false, "the other direction has no such event");
            // Close to an event either is right: the time is looked at after the links.
            if (at_s - 0.5).abs() > 0.25 && (at_s - 4.5).abs() > 0.25 {
                let (is_down, rate) = (at_s > 0.5 && at_s < 4.5, if at_s > 4.5 { 20 } else { 10 });
                assert_eq!(of("near")["is_down"], is_down, "round {round}, {at_s} s");
                assert_eq!(of("near")["rate_bits_per_s"], rate * 1_000_000, "round {round}, {at_s} s");
                was_down |= is_down;
            }
            at_s > 4.8
        });
        assert!(was_down, "nobody saw it down");
        // The figures of the scenario come back first, however they were changed.
        wan.set("near-client", &["--delay-ms", "9", "--loss", "0.5"]);
        let mut again = wan.command("exec");
        again.args(["--timetable", "client", "--", "true"]);
        run(again).ok();
        let near = wan.link("near-client", "near");
        assert_eq!((&near["delay_s"], &near["loss"]), (&0.001.into(), &0.0.into()));
        assert_eq!(near["rate_bits_per_s"], 10_000_000);
    }
}

#[test]
fn a_second_network_needs_another_name() {
    let wan = Wan::up("second", PAIR);
    let pid = wan.keeper();
    run(wan.command_up()).exits(5).says(&[wan.name(), "gridlane wan down", "--name"]);
    let mut foreground = wan.command_up();
    foreground.arg("--foreground");
    run(foreground).exits(5).says(&["gridlane wan down"]);
    let mut json = wan.command_up();
    json.arg("--json");
    assert_eq!(run(json).exits(5).event("error")["error"]["class"], "precondition");
    assert_eq!((wan.keeper(), wan.shell("near", "hostname")), (pid, "near".into()));
    let other = Wan::up("second-2", PAIR);
    assert!(wan.namespaces().is_disjoint(&other.namespaces()));
}

#[test]
fn of_many_at_once_one_comes_up() {
    let wan = Wan::planned("race", PAIR);
    for _ in 0..5 {
        let starting: Vec<Running> = (0..4).map(|_| Running::start(wan.command_up())).collect();
        let mut codes: Vec<_> = starting.into_iter().map(|running| running.wait().code.unwrap()).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 5, 5, 5]);
        let namespaces = wan.namespaces();
        wan.run("down", &[]).ok();
        wan.assert_gone(&namespaces);
    }
}

#[test]
fn looking_for_a_network_does_not_disturb_it() {
    let wan = Wan::planned("look", PAIR);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    wan.command("show").output().unwrap();
                }
            });
        }
        // Asserted only at the end.
        let outcomes: Vec<_> =
            (0..10).flat_map(|_| [run(wan.command_up()), wan.run("down", &["--json"])]).collect();
        is_over.store(true, Relaxed);
        for pair in outcomes.chunks(2) {
            assert_eq!(pair[0].code, Some(0), "{}", pair[0].describe());
            assert_eq!(pair[1].event("wan.down")["was"], "network", "{}", pair[1].describe());
        }
    });
    wan.assert_gone(&Default::default());
}

#[test]
fn nothing_up_is_said_with_what_to_do() {
    let wan = Wan::planned("nothing", PAIR);
    let asked: [(&str, &[&str]); 3] =
        [("show", &[]), ("set", &["near-client", "--down"]), ("exec", &["near", "--", "true"])];
    for (subcommand, arguments) in asked {
        wan.run(subcommand, arguments).exits(3).says(&[wan.name(), "gridlane wan up"]);
    }
    wan.run("down", &[]).ok().says(&["no network"]);
    wan.run("down", &["--json"]).ok().says(&[r#""was":"nothing""#]);
    assert!(!wan.dir().exists());
    for bad in ["", "..", "a/b", "a b"] {
        let mut command = crate::support::client::gridlane();
        command.args(["wan", "show", "--name", bad]);
        run(command).exits(2).says(&["name"]);
    }
}

/// A scenario that is wrong in one place, and words of what is said about it.
const IMPOSSIBLE: &[(&str, &[&str])] = &[
    ("", &["sites"]),
    ("sites = [", &["line 1"]),
    ("sites = ['a']", &["sites", "at least two"]),
    ("sites = ['a', 'b']", &["from a to b", "[[link]]"]),
    ("sites = ['a', 'A']\nlink = [{ between = ['a', 'A'] }]", &["\"A\"", "two"]),
    ("sites = ['a', 'b c']\nlink = [{ between = ['a', 'b c'] }]", &["b c", "site"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'moon'] }]", &["a-moon", "\"moon\""]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'a'] }, { between = ['a', 'b'] }]", &["a-a", "itself"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'] }, { between = ['b', 'a'] }]", &["a-b", "b-a"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], speed = '1Gb/s' }]", &["line 2", "speed"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], rate = 100 }]", &["line 2", "rate"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], rate = '0' }]", &["link 1", "rate"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], loss = 1.5 }]", &["link 1", "1.5"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], delay_ms = -1 }]", &["link 1", "-1"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], jitter_ms = 2 }]", &["link 1", "jitter"]),
    ("sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], queue = '100' }]", &["link 1", "queue"]),
    ("mtu = 1000\nsites = ['a', 'b']\nlink = [{ between = ['a', 'b'] }]", &["mtu", "1000"]),
    (
        "sites = ['a', 'b']\nlink = [{ between = ['a', 'b'] }]\nevent = [{ at_s = 1, link = 'x', loss = 1.0 }]",
        &["event 1", "\"x\"", "a-b"],
    ),
    (
        "sites = ['a', 'b']\nlink = [{ between = ['a', 'b'], delay_ms = 2, jitter_ms = 2 }]\n\
         event = [{ at_s = 1, link = 'a-b', delay_ms = 1 }]",
        &["event 1", "jitter"],
    ),
];

#[test]
fn impossible_scenarios_are_refused_before_anything_is_made() {
    let before = host();
    for (scenario, words) in IMPOSSIBLE {
        let wan = Wan::planned("impossible", scenario);
        for more in [&[][..], &["--foreground"], &["--dry-run"]] {
            let mut command = wan.command_up();
            command.args(more);
            run(command).exits(2).says(&["scenario.toml"]).says(words);
            assert!(!wan.dir().exists() && wan.processes().is_empty(), "{scenario}");
        }
    }
    assert_unchanged(&before);
}

#[test]
fn files_that_are_no_scenarios_are_refused() {
    let wan = Wan::planned("files", "");
    let scratch = Scratch::new();
    wan.run("up", &[text(&scratch.join("missing.toml"))]).exits(3).says(&["missing.toml"]);
    let binary = scratch.file("binary.toml", b"sites = ['\xff\xfe']");
    let big = scratch.file("big.toml", &vec![b'#'; 64 << 20]);
    for (path, name) in [(binary, "binary.toml"), (big, "big.toml"), (scratch.dir("dir.toml"), "dir.toml")] {
        let outcome = wan.run("up", &[text(&path)]).says(&[name]);
        assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    }
    assert!(!wan.dir().exists() && wan.processes().is_empty());
}

#[test]
fn what_the_kernel_refuses_leaves_nothing() {
    let before = host();
    // What congestion controls a kernel has is known only when it is asked.
    let wan = Wan::planned("refused", &format!("congestion_control = 'no_such'\n{PAIR}"));
    let outcome = run(wan.command_up()).says(&["no_such"]);
    assert!(!matches!(outcome.code, None | Some(0)), "{}", outcome.describe());
    wan.assert_gone(&Default::default());
    wan.run("show", &[]).exits(3).says(&["gridlane wan up"]);
    assert_unchanged(&before);
}

#[test]
fn a_dry_run_prints_and_makes_nothing() {
    let wan = Wan::planned("dry", STAR);
    let mut command = wan.command_up();
    command.arg("--dry-run");
    run(command).ok().says(&["route add 198.18.0.1/32", "2001:2::1", "near.v6", "congctl reno"]);
    assert!(!wan.dir().exists() && wan.processes().is_empty());
}

#[test]
fn in_the_foreground_it_ends_with_its_process() {
    for name in ["INT", "TERM", "HUP"] {
        let wan = Wan::planned(&format!("fg-{name}"), PAIR);
        let mut command = wan.command_up();
        command.arg("--foreground");
        let keeper = Running::start(command);
        until("it is up", || wan.run("show", &[]).code == Some(0));
        let namespaces = wan.namespaces();
        let mut sleeper = Sleeper::start(wan.exec("near", "sleep"));
        keeper.signal(name);
        let outcome = keeper.wait().ok().says(&["near", "198.18.0.2"]);
        assert!(outcome.elapsed < Duration::from_secs(20), "{}", outcome.describe());
        sleeper.assert_ended();
        wan.assert_gone(&namespaces);
    }
}

#[test]
fn a_signal_takes_a_network_in_the_background_down() {
    let wan = Wan::up("term", PAIR);
    let namespaces = wan.namespaces();
    let mut sleeper = Sleeper::start(wan.exec("near", "sleep"));
    signal(&wan.keeper(), "TERM");
    sleeper.assert_ended();
    wan.assert_gone(&namespaces);
    wan.run("show", &[]).exits(3).says(&["gridlane wan up"]);
}

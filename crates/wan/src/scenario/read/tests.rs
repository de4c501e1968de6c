//! What can be written, what is refused, and that nothing panics.

use proptest::prelude::*;

use super::*;

const ESSAY: &str = r#"
    sites = ["client", "near", "far"]
    routers = ["exchange"]
    seed = 7
    mtu = 9000
    congestion_control = "cubic"
    buffers = "host"

    [[link]]
    between = ["near", "exchange"]
    rate = "800Mb/s"
    delay_ms = 5
    queue = "1MB"
    loss = 1e-5
    jitter_ms = 0.1
    from.exchange.rate = "100Mb/s"
    from.exchange.queue = "bdp"

    [[link]]
    between = ["far", "exchange"]
    delay_ms = 60.5
    name = "ocean"

    [[link]]
    between = ["exchange", "client"]

    [[event]]
    at_s = 4
    link = "near-exchange"
    from = "near"
    down = false

    [[event]]
    at_s = 2
    link = "near-exchange"
    down = true

    [[event]]
    at_s = 2
    link = "ocean"
    rate = "unlimited"
    queue = "bdp"
"#;

#[test]
fn everything_that_can_be_written() {
    let scenario = Scenario::parse(ESSAY).unwrap();
    assert_eq!((scenario.seed, scenario.mtu, scenario.framing_bytes), (7, 9000, 38));
    assert_eq!(scenario.congestion_control.as_deref(), Some("cubic"));
    assert_eq!(scenario.buffers, Buffers::Host);
    let near = &scenario.links[0];
    assert_eq!(near.name, "near-exchange");
    assert_eq!(
        near.directions[0],
        Direction {
            rate_bits_per_s: Some(800_000_000),
            delay: Duration::from_millis(5),
            queue_bytes: Some(1_000_000),
            loss: 1e-5,
            jitter: Duration::from_micros(100),
            is_down: false,
        }
    );
    let slower =
        Direction { rate_bits_per_s: Some(100_000_000), queue_bytes: None, ..near.directions[0].clone() };
    assert_eq!(near.directions[1], slower);
    assert_eq!(scenario.links[1].name, "ocean");
    assert_eq!(scenario.links[1].directions[1].delay, Duration::from_micros(60_500));
    assert_eq!(scenario.links[2].directions, [Direction::default(), Direction::default()]);

    let times: Vec<_> =
        scenario.events.iter().map(|event| (event.at.as_secs(), event.link, event.from)).collect();
    assert_eq!(times, [(2, 0, None), (2, 1, None), (4, 0, Some(0))]);
    assert_eq!(scenario.events[0].change, Change { is_down: Some(true), ..Change::default() });
    assert_eq!(scenario.packet_bytes_max(), 9038);
    assert_eq!(scenario.directions()[0], near.directions);
}

#[test]
fn little_needs_to_be_written() {
    let scenario = Scenario::parse("sites = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']").unwrap();
    assert_eq!((scenario.seed, scenario.mtu, scenario.framing_bytes), (1, 1500, 38));
    assert_eq!((scenario.congestion_control, scenario.buffers), (None, Buffers::Bdp));
    assert_eq!(scenario.links[0].name, "a-b");
    assert!(scenario.routers.is_empty() && scenario.events.is_empty());
}

/// A scenario of two sites with something added at the top, to the link, and behind it.
fn text(top: &str, link: &str, behind: &str) -> String {
    format!("sites = ['a', 'b']\n{top}\n[[link]]\nbetween = ['a', 'b']\ndelay_ms = 5\n{link}\n{behind}")
}

#[test]
fn what_is_refused_and_with_what_words() {
    let event = |lines: &str| text("", "", &format!("[[event]]\n{lines}"));
    let long = "x".repeat(64);
    let refused = [
        // The text.
        ("sites = [".to_owned(), "line 1"),
        (text("colour = 1", "", ""), "line 2: unknown field `colour`"),
        (text("", "speed = 1", ""), "line 6: unknown field `speed`"),
        (text("", "rate = 100", ""), "line 6: invalid type"),
        (text("", "from.a.down = true", ""), "unknown field `down`"),
        (text("seed = -1", "", ""), "line 2"),
        (text("buffers = 'huge'", "", ""), "line 2"),
        (event("at_s = 1"), "missing field `link`"),
        ("#".repeat(limits::WAN_SCENARIO_BYTES_MAX + 1), "bytes long"),
        // Sizes.
        (text("mtu = 1279", "", ""), "mtu of 1279"),
        (text("mtu = 65536", "", ""), "mtu of 65536"),
        (text("framing_bytes = 257", "", ""), "framing_bytes is 257"),
        // Names.
        ("sites = []".to_owned(), "there are 0 sites"),
        ("sites = ['a']".to_owned(), "there are 1 sites"),
        ("sites = ['a', '']".to_owned(), "\"\" cannot be the name of a site"),
        ("sites = ['a', '1b']".to_owned(), "\"1b\" cannot be the name"),
        ("sites = ['a', '-b']".to_owned(), "\"-b\" cannot be the name"),
        ("sites = ['a', 'b-']".to_owned(), "\"b-\" cannot be the name"),
        ("sites = ['a', 'b.c']".to_owned(), "\"b.c\" cannot be the name"),
        ("sites = ['a', 'b c']".to_owned(), "\"b c\" cannot be the name"),
        ("sites = ['a', 'ü']".to_owned(), "cannot be the name"),
        (format!("sites = ['a', '{long}']"), "cannot be the name"),
        ("sites = ['a', 'Localhost']".to_owned(), "every host for itself"),
        ("sites = ['a', 'A']".to_owned(), "given to two"),
        ("sites = ['a', 'b']\nrouters = ['b']".to_owned(), "given to two"),
        ("sites = ['a', 'b']\nrouters = ['r/']".to_owned(), "cannot be the name of a router"),
        (text("congestion_control = 'cubic; rm'", "", ""), "congestion control"),
        (text("congestion_control = ''", "", ""), "congestion control"),
        (text("congestion_control = 'a234567890123456'", "", ""), "congestion control"),
        // Links.
        (text("", "name = 'a b'", ""), "link 1 (between a and b): \"a b\" cannot be the name of a link"),
        (text("", "", "[[link]]\nbetween = ['b', 'a']"), "join the same two"),
        (text("", "", "[[link]]\nbetween = ['a', 'c']"), "\"c\", which is neither"),
        (text("", "", "[[link]]\nbetween = ['c', 'a']"), "\"c\", which is neither"),
        (text("", "", "[[link]]\nbetween = ['a', 'a']"), "to itself"),
        (text("", "", "[[link]]\nbetween = ['a']"), "link 2 (between a): it has 1 ends"),
        (text("", "", "[[link]]\nbetween = ['a', 'b', 'c']"), "it has 3 ends"),
        (text("routers = ['r']", "", "[[link]]\nbetween = ['a', 'r']"), "router \"r\" has only one link"),
        (text("routers = ['r']", "", ""), "no links lead from a to r"),
        ("sites = ['a', 'b']".to_owned(), "no links lead from a to b"),
        (
            "sites = ['a', 'b', 'c', 'd']\n[[link]]\nbetween = ['a', 'b']\n[[link]]\nbetween = ['c', 'd']"
                .to_owned(),
            "no links lead from a to c",
        ),
        (
            "sites = ['a-b', 'c', 'a', 'b-c']\n[[link]]\nbetween = ['a-b', 'c']\n\
             [[link]]\nbetween = ['a', 'b-c']"
                .to_owned(),
            "two links are named \"a-b-c\"",
        ),
        // Figures of a link.
        (text("", "loss = -0.1", ""), "link 1 (between a and b): the loss of -0.1"),
        (text("", "loss = 1.1", ""), "not a probability"),
        (text("", "loss = nan", ""), "not a probability"),
        (text("", "loss = inf", ""), "not a probability"),
        (text("", "jitter_ms = 5.1", ""), "exceeds the delay of 5 ms"),
        (text("", "jitter_ms = -1", ""), "jitter_ms is -1"),
        (text("", "from.a.delay_ms = -1", ""), "from.a: delay_ms is -1"),
        (text("", "from.a.delay_ms = nan", ""), "delay_ms is NaN"),
        (text("", "from.b.delay_ms = 10001", ""), "from.b: the delay of 10001 ms is too long"),
        (text("", "from.c.delay_ms = 1", ""), "from.c is not one of its ends"),
        (text("", "rate = '7999b/s'", ""), "rate of 7992 b/s"),
        (text("", "rate = '401Gb/s'", ""), "out of range"),
        (text("", "rate = 'fast'", ""), "\"fast\" is not a rate"),
        (text("", "queue = '1537'", ""), "queue of 1537 bytes"),
        (text("mtu = 9000", "queue = '9037'", ""), "queue of 9037 bytes"),
        (text("", "queue = '20GB'", ""), "queue of 20000000000 bytes"),
        (text("", "queue = 'some'", ""), "\"some\" is not a size"),
        // Events.
        (event("at_s = -1\nlink = 'a-b'\ndown = true"), "event 1 (at_s = -1): its time"),
        (event("at_s = nan\nlink = 'a-b'\ndown = true"), "its time"),
        (event("at_s = 2592001\nlink = 'a-b'\ndown = true"), "its time"),
        (event("at_s = 1\nlink = 'b-a'\ndown = true"), "there is no link \"b-a\""),
        (event("at_s = 1\nlink = 'a-b'\nfrom = 'c'\ndown = true"), "\"c\" is not an end"),
        (event("at_s = 1\nlink = 'a-b'"), "it changes nothing"),
        (event("at_s = 1\nlink = 'a-b'\nloss = 2"), "the loss of 2"),
        (event("at_s = 1\nlink = 'a-b'\njitter_ms = 6"), "what a sends): the jitter of 6 ms exceeds"),
        (
            event(
                "at_s = 9\nlink = 'a-b'\njitter_ms = 4\n\
                 [[event]]\nat_s = 3\nlink = 'a-b'\nfrom = 'b'\ndelay_ms = 2",
            ),
            "event 1 (at_s = 9, what b sends): the jitter of 4 ms exceeds the delay of 2 ms",
        ),
    ];
    for (text, words) in refused {
        let text = text.as_str();
        let refusal = Scenario::parse(text).expect_err(words);
        let message = refusal.message();
        assert!(message.contains(words), "{message:?} should say {words:?}");
        assert_eq!((refusal.kind(), refusal.whose_fault()), (ErrorKind::Usage, Fault::Caller), "{words}");
        assert!(refusal.advice().is_some(), "{message:?} says nothing to do");
        assert!(!message.contains('\n') && message.len() < 400, "{message:?}");
    }
}

#[test]
fn too_many_nodes_and_links() {
    let sites = |count: usize| (0..count).map(|i| format!("'s{i}'")).collect::<Vec<_>>().join(",");
    let star =
        |count: usize| (1..count).map(|i| format!("[[link]]\nbetween=['s0','s{i}']\n")).collect::<String>();
    let most = limits::WAN_NODES_MAX;
    Scenario::parse(&format!("sites = [{}]\n{}", sites(most), star(most))).unwrap();
    let over = Scenario::parse(&format!("sites = [{}]\n{}", sites(most + 1), star(most + 1)));
    assert!(over.unwrap_err().message().contains("251 sites"));
    let links = "[[link]]\nbetween=['a','b']\n".repeat(limits::WAN_LINKS_MAX + 1);
    let over = Scenario::parse(&format!("sites = ['a','b']\n{links}"));
    assert!(over.unwrap_err().message().contains("1001 links"));
}

#[test]
fn what_both_directions_override_need_not_be_possible() {
    let link = "jitter_ms = 9\nfrom.a.delay_ms = 9\nfrom.b.jitter_ms = 0";
    let scenario = Scenario::parse(&text("", link, "")).unwrap();
    assert_eq!(scenario.links[0].directions[0].delay.as_millis(), 9);
    assert_eq!(scenario.links[0].directions[1].jitter, Duration::ZERO);
}

proptest! {
    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        let _ = Scenario::parse(&text);
    }

    #[test]
    fn damaged_scenarios_never_panic(
        start in 0..ESSAY.len(),
        length in 0..40_usize,
        with in prop_oneof!["[a-z0-9'\"=.\\[\\]{}\n -]{0,12}", any::<String>(), Just("1e999".to_owned())],
    ) {
        let mut text = ESSAY.to_owned();
        text.replace_range(start..(start + length).min(ESSAY.len()), &with);
        if let Ok(scenario) = Scenario::parse(&text) {
            for link in &scenario.links {
                for direction in &link.directions {
                    direction.check(scenario.packet_bytes_max()).unwrap();
                }
            }
        }
    }
}

/// Scenarios that the documents show: indented blocks that name sites.
#[test]
fn what_the_documents_show_can_be_brought_up() {
    let documents = [
        include_str!("../../../../../docs/guides/wan.md"),
        include_str!("../../../../../docs/reference/wan-scenario.md"),
    ];
    let mut shown = 0;
    for document in documents {
        let mut block = String::new();
        for line in document.lines().chain(["the end"]) {
            match line.strip_prefix("    ") {
                Some(line) => block = block + line + "\n",
                // A block goes on after an empty line.
                None if line.is_empty() => block.push('\n'),
                None => {
                    let text = std::mem::take(&mut block);
                    if text.contains("sites = ") {
                        Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
                        shown += 1;
                    }
                }
            }
        }
    }
    assert_eq!(shown, 2);
}

//! The kernel's `netem`: what it counted.

use gridlane_core::Result;

use crate::commands::ETHERNET_BYTES;
use crate::counters::Counters;
use crate::namespace::Namespace;

/// The counters of the discipline of a link's device. Losses by lot, drops for want of room and packets that
/// vanished on a link that was down are one number there.
pub(crate) fn counters(sender: &Namespace, device: &str) -> Result<Counters> {
    let text = sender.output("tc", &["-s", "-j", "qdisc", "show", "dev", device])?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Counters {
    let all: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let of_netem = all.as_array().into_iter().flatten().find(|discipline| discipline["kind"] == "netem");
    // A program at the site removed it, or the device.
    let Some(of_netem) = of_netem else { return Counters { has_failed: true, ..Counters::default() } };
    let number = |name: &str| of_netem[name].as_u64().unwrap_or(0);
    let packets = number("packets");
    Counters {
        passed_packets: packets,
        // The header that packets have here, and not elsewhere.
        passed_bytes: number("bytes").saturating_sub(packets * ETHERNET_BYTES),
        dropped_packets: number("drops"),
        queued_bytes: number("backlog"),
        ..Counters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_tc_are_read() {
        // As `tc -s -j qdisc show dev eth0` of iproute2 6.1 prints it.
        let text = r#"[{"kind":"netem","handle":"8001:","root":true,"refcnt":2,"options":{"limit":1000,
            "delay":{"delay":0.01,"jitter":0,"correlation":0},"ecn":false,"gap":0},
            "bytes":98,"packets":1,"drops":3,"overlimits":0,"requeues":0,"backlog":1514,"qlen":1}]"#;
        let counters = parse(text);
        assert_eq!((counters.passed_packets, counters.passed_bytes), (1, 84));
        assert_eq!((counters.dropped_packets, counters.queued_bytes), (3, 1514));
        assert!(parse("no").void().is_some());
    }
}

//! A network as text.

use std::fmt::Write as _;

use gridlane_core::units::{format_bytes, format_rate};
use gridlane_wan::State;
use gridlane_wan::check::Row;

/// Paths in a table for people: there are as many as pairs of sites.
const PATHS_SHOWN_MAX: usize = 30;

/// The output of `wan up` and `wan show`.
pub(super) fn text(state: &State, name: &str) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut out, state, name);
    out
}

fn write(out: &mut String, state: &State, name: &str) -> std::fmt::Result {
    writeln!(
        out,
        "network {name}: {}, {}, process {}, seed {}, MTU {}, framing {} bytes, buffers {}",
        state.backend, state.privilege, state.pid, state.seed, state.mtu, state.framing_bytes, state.buffers
    )?;
    if let Some(void) = &state.void {
        writeln!(out, "VOID: {void}: figures from this run mean nothing")?;
    }
    writeln!(
        out,
        "\n{:<16} {:<15} {:<14} {:<10} {:>9} {:>9}",
        "site", "IPv4", "IPv6", "congestion", "tcp_rmem", "tcp_wmem"
    )?;
    for node in &state.nodes {
        let name = if node.is_router { format!("{} (router)", node.name) } else { node.name.clone() };
        writeln!(
            out,
            "{name:<16} {:<15} {:<14} {:<10} {:>9} {:>9}",
            node.addresses[0],
            node.addresses[1],
            node.congestion_control,
            format_bytes(node.tcp_rmem[2]),
            format_bytes(node.tcp_wmem[2])
        )?;
    }
    writeln!(out, "\n{:<33} {:>9} {:>11} {:>13}", "path", "rate", "payload", "round trip")?;
    for path in state.paths.iter().take(PATHS_SHOWN_MAX) {
        let payload = path.payload_bytes_per_s.map_or("-".into(), |[payload, _]| format_rate(payload));
        let rate = rate(path.rate_bits_per_s);
        let between = between(&path.from, &path.to);
        writeln!(out, "{between:<33} {rate:>9} {payload:>11} {:>10.1} ms", path.round_trip_s * 1e3)?;
    }
    if state.paths.len() > PATHS_SHOWN_MAX {
        writeln!(out, "and {} more, which --json has", state.paths.len() - PATHS_SHOWN_MAX)?;
    }
    writeln!(
        out,
        "\n{:<33} {:>9} {:>11} {:>9} {:>8} {:>9} {:>9} {:>9} {:>8} {:>17}  name",
        "link", "rate", "delay", "queue", "loss", "passed", "queued", "dropped", "lost", "late p50/p99"
    )?;
    for link in &state.links {
        let counters = &link.counters;
        let delay = match link.jitter_s {
            0.0 => format!("{} ms", ms(link.delay_s)),
            jitter => format!("{}±{} ms", ms(link.delay_s), ms(jitter)),
        };
        let late = format!("{:.0}/{:.0} us", counters.lateness_p50_s * 1e6, counters.lateness_p99_s * 1e6);
        writeln!(
            out,
            "{:<33} {:>9} {delay:>11} {:>9} {:>8} {:>9} {:>9} {:>9} {:>8} {late:>17}  {}{}",
            between(&link.from, &link.to),
            if link.is_down { "down".into() } else { rate(link.rate_bits_per_s) },
            link.queue_bytes.map_or("-".into(), format_bytes),
            if link.loss == 0.0 { "-".into() } else { format!("{:e}", link.loss) },
            format_bytes(counters.passed_bytes),
            format_bytes(counters.queued_bytes),
            counters.dropped_packets,
            counters.lost_packets,
            link.link,
            match counters.vanished_packets {
                0 => String::new(),
                vanished => format!(" ({vanished} vanished)"),
            }
        )?;
    }
    if state.backend == "tun" {
        writeln!(
            out,
            "\nforwarder: {:.2} CPU-s so far{}",
            state.forwarder_cpu_s,
            if state.forwarder_is_real_time {
                ", real-time"
            } else {
                ", not real-time: it may be late under load"
            }
        )?;
    }
    Ok(())
}

/// Milliseconds with as many digits as there are, microseconds at most.
fn ms(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

fn between(from: &str, to: &str) -> String {
    format!("{from} > {to}")
}

/// Rates of links are in bits, as everywhere in networks.
fn rate(bits_per_s: Option<u64>) -> String {
    bits_per_s.map_or("unlimited".into(), |rate| format_bytes(rate).replace('B', "b/s"))
}

/// The head of the table that `wan check` prints.
pub(super) fn check_heading() -> String {
    format!("{:<58} {:>14} {:>22}", "what", "measured", "limit")
}

/// A row of it.
pub(super) fn check_row(row: &Row, is_verbose: bool) -> String {
    let verdict = if row.passed { "ok" } else { "OUT" };
    if row.measured.is_nan() {
        // Why there is no figure.
        return format!(
            "{:<58} {:>14} {:>22}  {verdict}\n    {}",
            row.name, "-", row.limit_text, row.measured_text
        );
    }
    let detail = if is_verbose { format!("\n    {}", row.detail) } else { String::new() };
    format!("{:<58} {:>14} {:>22}  {verdict}{detail}", row.name, row.measured_text, row.limit_text)
}

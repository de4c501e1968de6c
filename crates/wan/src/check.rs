//! Whether the emulation is what it says, measured on this machine: `gridlane wan check`.
//!
//! A figure that was measured through an emulated path is worth what the emulation is worth, here and now: on
//! this kernel, with these cores, next to whatever else runs. So the check believes nothing that the emulator
//! says of itself where it can look for itself. It brings up networks of two sites and one link, sends through
//! them with the kernel's own TCP and UDP, and compares what *arrives* with what the scenario asks for:
//!
//! - **Round trips**, of paths where nothing waits: median of UDP echoes, never early, and late by at most 0.25 ms and 1 %.
//! - **Losses** of a million numbered packets, within the 99 % interval of the binomial distribution; the same
//!   ones with the same seed, others with another seed. And of the segments of a TCP stream, which travel in
//!   super-packets that have to be cut: as many are lost as should be, and every byte arrives as it was sent.
//! - **A full queue**: while a flood exceeds the rate, a round trip is the base and the time that the queue
//!   takes to be sent, within 5 %.
//! - **One TCP stream**, which is what all of it is for: at least 98 % of what the headers leave of the rate,
//!   and no more than 101 %, which would be a wire that is faster than it says. Also without a rate, which
//!   shows the headroom of this machine.
//! - **What it costs**: CPU of the forwarder, and how late it is.
//!
//! # When a stream is measured
//!
//! After its ramp-up, and both kinds of congestion control have their own idea of that:
//!
//! - BBR has ramped up after some twenty round trips, and every 10 s it sends next to nothing for 200 ms or a
//!   round trip, to see how short the path is without its own queue (ProbeRTT). That is the protocol and not
//!   the emulator, so it is measured at fixed times between both, which the row's name tells: from 2 s on (3 s at
//!   100 ms, 7 s at 300 ms), to at most 9 s after the connection was accepted.
//! - CUBIC leaves its slow start early and may need 20 s at 300 ms. It is waited for, at most 40 s: until it has
//!   reached the limit for two seconds. What arrives after that counts, for four seconds and until the stream
//!   flows evenly: not while a loss is repaired, when the receiver gets nothing for a round trip or two, and then
//!   everything at once.
//!
//! # When a figure is out of its limit
//!
//! It is measured once more, because two cores that are shared with others stall a sender for longer than a
//! queue of a millisecond lasts. The row then has the second figure, and says that it is the second try. Where
//! the limit is that something never happens, once is enough, and there is no second try.
//!
//! # When there is no figure
//!
//! A run is void if the emulator says that it lost packets on its own account (see [`State::void`]), above all
//! if a TUN device dropped some before it could read them. Then, and if something fails (this kernel has no
//! BBR, no connection), the row says why in place of its figure, and has not passed. Seeds are fixed, so that
//! a loss which is out of its interval is not the one in a hundred that has to be.
//!
//! Read first: `plan.rs`, the table of what is measured; `experiment.rs` does it; `traffic.rs` sends and
//! receives; `statistics.rs` is arithmetic.
//!
//! [`State::void`]: crate::State::void

mod experiment;
mod plan;
mod statistics;
mod traffic;

use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use serde::Serialize;

use crate::isolation::Privilege;
use plan::Experiment;

/// The measurements to make.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A few rows only.
    pub is_quick: bool,
    /// Only rows whose name contains this, in whatever case.
    pub only: String,
}

/// A figure, and whether it is within its limit.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of the figure.
    pub name: String,
    /// The figure, in `unit`; not a number (`null` in JSON) if there is none.
    pub measured: f64,
    /// The unit of `measured`, `least` and `most`; empty for numbers of things.
    pub unit: &'static str,
    /// The figure is to be at least this.
    pub least: Option<f64>,
    /// The figure is to be at most this.
    pub most: Option<f64>,
    /// The figure with its unit, or why there is none.
    pub measured_text: String,
    /// The limit with its unit.
    pub limit_text: String,
    /// Further observations; may be empty.
    pub detail: String,
    /// True if the figure is within the limit. Never if there is none.
    pub passed: bool,
}

/// Measures, and tells each row as it is done. To be called while the process has a single thread.
pub fn run(settings: &Settings, tell: &mut dyn FnMut(&Row)) -> Result<()> {
    let only = settings.only.to_lowercase();
    let is_asked_for = |name: &str| name.to_lowercase().contains(&only);
    let chosen: Vec<Experiment> = plan::experiments()
        .into_iter()
        .filter(|experiment| experiment.is_quick || !settings.is_quick)
        .filter(|experiment| experiment.rows.iter().any(|row| is_asked_for(&row.name)))
        .collect();
    if chosen.is_empty() {
        let message = format!("the check has no row whose name contains {:?}", settings.only);
        return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(Hint::ShowAllRows));
    }
    let privilege = Privilege::obtain()?;
    for experiment in chosen {
        let measure = || {
            let measured = match experiment::measure(&experiment.work, privilege) {
                // What is denied to one is denied to all.
                Err(error) if error.kind() == ErrorKind::Denied => return Err(error),
                measured => measured,
            };
            let rows = experiment.rows.iter().enumerate().map(|(index, row)| row.judge(&measured, index));
            let rows: Vec<Row> = rows.filter(|row| is_asked_for(&row.name)).collect();
            // What the kernel does not have, it does not have a moment later.
            let may_pass = !matches!(&measured, Err(error) if error.kind() == ErrorKind::Unsupported);
            Ok((rows, may_pass))
        };
        let (mut rows, may_pass) = measure()?;
        if may_pass && rows.iter().any(|row| !row.passed) && !rows.iter().any(Row::is_never_excused) {
            let first = std::mem::replace(&mut rows, measure()?.0);
            rows.iter_mut().zip(&first).for_each(|(row, first)| row.is_second_try_after(first));
        }
        rows.iter().for_each(&mut *tell);
    }
    Ok(())
}

impl Row {
    /// True if it failed where a busy machine is no excuse: nothing of this may happen, not even once.
    fn is_never_excused(&self) -> bool {
        !self.passed && self.measured.is_finite() && self.most == Some(0.0)
    }

    fn is_second_try_after(&mut self, first: &Row) {
        if self.measured.is_finite() {
            self.measured_text.push_str(" (2nd try)");
        }
        let separator = if self.detail.is_empty() { "" } else { "; " };
        self.detail.push_str(&format!("{separator}first try: {}", first.measured_text));
    }
}

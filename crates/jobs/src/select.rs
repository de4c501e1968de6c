//! The choice of a source among replicas, by the strategies of FTS3 (fts3-rest 4.3).

use crate::{Link, Selection};

/// Figures of a link over the last hour, for one VO and activity where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Files that wait.
    pub waiting: u64,
    /// Bytes of files that wait, of activities that weigh as much as this one or more.
    pub waiting_bytes: u64,
    /// The share of copies that went well, 0 to 1. `None`: there were none.
    pub success: Option<f64>,
    /// Bytes per second of all copies together. `None`: there were none.
    pub rate_bytes_per_s: Option<f64>,
    /// Bytes per second of one copy. `None`: there were none.
    pub file_rate_bytes_per_s: Option<f64>,
}

impl Selection {
    /// The strategy of a name; `queue` is another name of `auto`.
    pub fn named(name: &str) -> Option<Selection> {
        Some(match name {
            "auto" | "queue" => Selection::Auto,
            "orderly" => Selection::Orderly,
            "success" => Selection::Success,
            "throughput" => Selection::Throughput,
            "file-throughput" => Selection::FileThroughput,
            "pending-data" => Selection::PendingData,
            "waiting-time" => Selection::WaitingTime,
            "waiting-time-with-error" => Selection::WaitingTimeWithError,
            "duration" => Selection::Duration,
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Selection::Auto => "auto",
            Selection::Orderly => "orderly",
            Selection::Success => "success",
            Selection::Throughput => "throughput",
            Selection::FileThroughput => "file-throughput",
            Selection::PendingData => "pending-data",
            Selection::WaitingTime => "waiting-time",
            Selection::WaitingTimeWithError => "waiting-time-with-error",
            Selection::Duration => "duration",
        }
    }

    /// The best of some links for a file of so many bytes, by its place. Of those that are as good as each other the first; none if
    /// there is none.
    ///
    /// A link without the figures that a strategy needs is better than any other: it is tried, and has some then. FTS3 means to do that,
    /// and takes the first source of all.
    pub fn best<'a>(
        self,
        links: impl IntoIterator<Item = &'a Link>,
        size_bytes: u64,
        figures: &dyn Fn(&Link) -> Figures,
    ) -> Option<usize> {
        let mut links = links.into_iter().enumerate();
        let (first, link) = links.next()?;
        if self == Selection::Orderly {
            return Some(first);
        }
        let mut best = (first, self.cost(&figures(link), size_bytes));
        for (place, link) in links {
            let cost = self.cost(&figures(link), size_bytes);
            if cost < best.1 {
                best = (place, cost);
            }
        }
        Some(best.0)
    }

    /// The cost of a link: less is better. Below all others where figures are missing.
    fn cost(self, figures: &Figures, size_bytes: u64) -> f64 {
        let rate = figures.rate_bytes_per_s.filter(|rate| *rate > 0.0);
        let file_rate = figures.file_rate_bytes_per_s.filter(|rate| *rate > 0.0);
        let wait_s = rate.map(|rate| figures.waiting_bytes as f64 / rate);
        let wait_with_error_s = || Some(wait_s? * (2.0 - figures.success?.clamp(0.0, 1.0)));
        let cost = match self {
            Selection::Orderly => Some(0.0),
            Selection::Auto => Some(figures.waiting as f64),
            Selection::PendingData => Some(figures.waiting_bytes as f64),
            Selection::Success => figures.success.map(|success| -success),
            Selection::Throughput => rate.map(|rate| -rate),
            Selection::FileThroughput => file_rate.map(|rate| -rate),
            Selection::WaitingTime => wait_s,
            Selection::WaitingTimeWithError => wait_with_error_s(),
            Selection::Duration => {
                wait_with_error_s().zip(file_rate).map(|(wait, rate)| wait + size_bytes as f64 / rate)
            }
        };
        cost.filter(|cost| !cost.is_nan()).unwrap_or(f64::NEG_INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(source: usize) -> Link {
        Link { source: format!("davs://{source}").as_str().into(), destination: "davs://d".into() }
    }

    fn best(selection: Selection, figures: &[Figures]) -> usize {
        let links: Vec<Link> = (0..figures.len()).map(link).collect();
        let of = |asked: &Link| figures[links.iter().position(|link| link == asked).unwrap()];
        selection.best(&links, 1 << 30, &of).unwrap()
    }

    const PLAIN: Figures = Figures {
        waiting: 10,
        waiting_bytes: 10_000_000_000,
        success: Some(0.9),
        rate_bytes_per_s: Some(100e6),
        file_rate_bytes_per_s: Some(10e6),
    };

    #[test]
    fn each_strategy_has_its_own_figure() {
        let better = [
            (Selection::Auto, Figures { waiting: 9, ..PLAIN }),
            (Selection::Success, Figures { success: Some(0.95), ..PLAIN }),
            (Selection::Throughput, Figures { rate_bytes_per_s: Some(101e6), ..PLAIN }),
            (Selection::FileThroughput, Figures { file_rate_bytes_per_s: Some(11e6), ..PLAIN }),
            (Selection::PendingData, Figures { waiting_bytes: 9_000_000_000, ..PLAIN }),
            (Selection::WaitingTime, Figures { rate_bytes_per_s: Some(101e6), ..PLAIN }),
            (Selection::WaitingTimeWithError, Figures { success: Some(1.0), ..PLAIN }),
            (Selection::Duration, Figures { file_rate_bytes_per_s: Some(11e6), ..PLAIN }),
        ];
        for (selection, figures) in better {
            assert_eq!(best(selection, &[PLAIN, figures, PLAIN]), 1, "{selection:?}");
            assert_eq!(best(selection, &[PLAIN, PLAIN]), 0, "{selection:?}: the first of equals");
        }
        assert_eq!(best(Selection::Orderly, &[PLAIN, Figures { waiting: 0, ..PLAIN }]), 0);
        assert_eq!(best(Selection::WaitingTime, &[PLAIN, Figures { success: Some(1.0), ..PLAIN }]), 0);
    }

    #[test]
    fn a_source_without_figures_is_tried() {
        let unknown = Figures { waiting: 99, ..Figures::default() };
        let stopped = Figures { rate_bytes_per_s: Some(0.0), ..PLAIN };
        for selection in
            [Selection::Success, Selection::Throughput, Selection::FileThroughput, Selection::Duration]
        {
            assert_eq!(best(selection, &[PLAIN, unknown, PLAIN]), 1, "{selection:?}");
        }
        assert_eq!(best(Selection::Throughput, &[PLAIN, stopped]), 1);
        assert_eq!(best(Selection::Auto, &[PLAIN, unknown]), 0, "its queue is known");
    }

    #[test]
    fn names_are_those_of_fts3() {
        for selection in
            ["auto", "orderly", "success", "throughput", "file-throughput", "pending-data", "waiting-time"]
        {
            assert_eq!(Selection::named(selection).unwrap().name(), selection);
        }
        assert_eq!(Selection::named("queue"), Some(Selection::Auto));
        assert_eq!(Selection::named("shortest"), None);
        assert_eq!(Selection::Auto.best([], 1, &|_| PLAIN), None);
        let json = serde_json::to_value(Selection::WaitingTimeWithError).unwrap();
        assert_eq!(json, Selection::WaitingTimeWithError.name());
    }
}

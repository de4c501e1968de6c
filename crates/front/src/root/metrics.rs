//! Counters of root://.

use gridlane_xrd::{ErrorCode, RequestId};

use crate::metrics::{Counter, Kind, Page};

/// Requests are counted by name, of which a client cannot invent any; what has no name is `other`.
const REQUESTS: usize = RequestId::KNOWN.len() + 1;

/// The same for errors.
const ERRORS: usize = ErrorCode::KNOWN.len() + 1;

/// The counters.
pub(crate) struct RootMetrics {
    /// Bytes of files received.
    received_bytes: Counter,
    /// Bytes of files sent.
    sent_bytes: Counter,
    /// Those that went well, and the others.
    requests: [[Counter; 2]; REQUESTS],
    errors: [Counter; ERRORS],
}

impl Default for RootMetrics {
    fn default() -> RootMetrics {
        RootMetrics {
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            requests: std::array::from_fn(|_| Default::default()),
            errors: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl RootMetrics {
    /// Counts an answered request, and its error if it failed.
    pub(crate) fn answered(&self, id: RequestId, error: Option<ErrorCode>) {
        let index = RequestId::KNOWN.iter().position(|known| *known == id).unwrap_or(REQUESTS - 1);
        self.requests[index][usize::from(error.is_some())].add(1);
        if let Some(error) = error {
            let index = ErrorCode::KNOWN.iter().position(|known| *known == error).unwrap_or(ERRORS - 1);
            self.errors[index].add(1);
        }
    }

    /// Counts bytes of files that came.
    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.add(bytes);
    }

    /// Counts bytes of files that went.
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.add(bytes);
    }

    /// Adds the counters to a page.
    pub(crate) fn render(&self, page: &mut Page) {
        page.family("root_requests", Kind::Counter, "Requests answered over root://, by name and outcome.");
        for (index, outcomes) in self.requests.iter().enumerate() {
            let name = RequestId::KNOWN.get(index).and_then(|id| id.name()).unwrap_or("other");
            for (outcome, counter) in ["ok", "error"].iter().zip(outcomes) {
                if counter.get() > 0 {
                    page.sample("_total", &[("request", name), ("outcome", outcome)], counter.get());
                }
            }
        }
        page.family(
            "root_errors",
            Kind::Counter,
            "Requests that failed over root://, by XRootD's name of the error.",
        );
        for (index, counter) in self.errors.iter().enumerate() {
            let name = ErrorCode::KNOWN.get(index).and_then(|code| code.name()).unwrap_or("other");
            if counter.get() > 0 {
                page.sample("_total", &[("error", name)], counter.get());
            }
        }
        page.counter(
            "root_received_bytes",
            "Bytes of files received over root://.",
            self.received_bytes.get(),
        );
        page.counter("root_sent_bytes", "Bytes of files sent over root://.", self.sent_bytes.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_requests_and_errors() {
        let metrics = RootMetrics::default();
        metrics.answered(RequestId::OPEN, None);
        metrics.answered(RequestId::OPEN, Some(ErrorCode::NOT_FOUND));
        metrics.answered(RequestId(7), Some(ErrorCode(9)));
        metrics.sent(5);
        let mut page = Page::default();
        metrics.render(&mut page);
        let text = page.finish();
        for line in [
            "gridlane_root_requests_total{request=\"open\",outcome=\"ok\"} 1",
            "gridlane_root_requests_total{request=\"open\",outcome=\"error\"} 1",
            "gridlane_root_requests_total{request=\"other\",outcome=\"error\"} 1",
            "gridlane_root_errors_total{error=\"NotFound\"} 1",
            "gridlane_root_errors_total{error=\"other\"} 1",
            "gridlane_root_sent_bytes_total 5",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
        }
    }
}

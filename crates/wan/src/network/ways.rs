//! The shortest ways between all nodes; the rules are told in the essay of `network`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use gridlane_core::limits;

use super::{Joint, Step, Way};
use crate::scenario::Direction;

/// `[node][destination]`: Dijkstra's shortest ways from every destination, which are the same backwards.
pub(super) fn ways(nodes: usize, links: &[Joint], directions: &[[Direction; 2]]) -> Vec<Vec<Option<Way>>> {
    let mut by_name: Vec<usize> = (0..links.len()).collect();
    by_name.sort_by(|a, b| links[*a].name.cmp(&links[*b].name));
    let mut ranks = vec![0; links.len()];
    for (rank, link) in by_name.into_iter().enumerate() {
        ranks[link] = rank;
    }
    let mut neighbours = vec![Vec::new(); nodes];
    for (link, joint) in links.iter().enumerate() {
        for end in 0..2 {
            neighbours[joint.ends[end]].push(Step { link, end });
        }
    }

    let mut ways = vec![vec![None; nodes]; nodes];
    for destination in 0..nodes {
        let mut best: Vec<Option<Cost>> = vec![None; nodes];
        let mut is_settled = vec![false; nodes];
        let mut waiting = BinaryHeap::from([Reverse((Cost::NONE, destination))]);
        best[destination] = Some(Cost::NONE);
        while let Some(Reverse((cost, here))) = waiting.pop() {
            if std::mem::replace(&mut is_settled[here], true) {
                continue;
            }
            for &Step { link, end } in &neighbours[here] {
                let there = links[link].ends[1 - end];
                let delay = directions[link][0].delay + directions[link][1].delay;
                let longer = cost.with(delay, ranks[link]);
                if !is_settled[there] && best[there].is_none_or(|best| longer < best) {
                    best[there] = Some(longer);
                    let step = Step { link, end: 1 - end };
                    ways[there][destination] = Some(Way { step, next_hop: here });
                    waiting.push(Reverse((longer, there)));
                }
            }
        }
    }
    ways
}

const WORDS: usize = limits::WAN_LINKS_MAX.div_ceil(64);

/// The cost of a way, compared from the top: its delay there and back, its links, and which links, as a number
/// in which a link that comes late in the alphabet is a high bit. No two sets of links are the same number,
/// and numbers of parts add up to that of the whole, so that it is a length like the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    delay_ns: u128,
    links: usize,
    which: [u64; WORDS],
}

impl Cost {
    const NONE: Cost = Cost { delay_ns: 0, links: 0, which: [0; WORDS] };

    fn with(mut self, delay: Duration, rank: usize) -> Cost {
        self.delay_ns += delay.as_nanos();
        self.links += 1;
        // The first word is compared first.
        self.which[WORDS - 1 - rank / 64] |= 1 << (rank % 64);
        self
    }
}

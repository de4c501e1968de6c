//! The share of each connection.

use super::world::{Path, Resource};

/// Rates of a connection of each path, in bytes per second: max-min over the resources, where `connections` are those of each path,
/// and paths that are down have none.
pub(crate) fn rates(resources: &[Resource], paths: &[Path], connections: &[u32], rates: &mut Vec<f64>) {
    rates.clear();
    rates.resize(paths.len(), 0.0);
    let mut users = vec![0u32; resources.len()];
    let mut open: Vec<usize> = (0..paths.len()).filter(|path| connections[*path] > 0).collect();
    for path in &open {
        for resource in &paths[*path].through {
            users[*resource] += connections[*path];
        }
    }
    let mut left: Vec<f64> = resources
        .iter()
        .zip(&users)
        .map(|(resource, users)| {
            let beyond = f64::from(users.saturating_sub(resource.knee)) / f64::from(resource.knee.max(1));
            resource.bytes_per_s / (1.0 + 0.5 * beyond)
        })
        .collect();
    while !open.is_empty() {
        let shares = left.iter().zip(&users).enumerate().filter(|(_, (_, users))| **users > 0);
        let narrowest = shares
            .map(|(place, (left, users))| (left.max(0.0) / f64::from(*users), place))
            .min_by(|one, other| one.0.total_cmp(&other.0));
        let (share, place) = narrowest.unwrap_or((f64::INFINITY, usize::MAX));
        let is_bound_elsewhere = |path: &usize| paths[*path].connection_bytes_per_s <= share;
        let is_any = open.iter().any(is_bound_elsewhere);
        open.retain(|path| {
            let ends = if is_any { is_bound_elsewhere(path) } else { paths[*path].through.contains(&place) };
            if ends {
                let rate = share.min(paths[*path].connection_bytes_per_s);
                rates[*path] = rate;
                for resource in &paths[*path].through {
                    left[*resource] -= rate * f64::from(connections[*path]);
                    users[*resource] -= connections[*path];
                }
            }
            !ends
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(through: &[usize], connection_bytes_per_s: f64) -> Path {
        Path {
            source: "a".into(),
            destination: "b".into(),
            through: through.to_vec(),
            connection_bytes_per_s,
            overhead_s: 0.0,
            verify_s: 0.0,
        }
    }

    #[test]
    fn connections_share_as_equals_up_to_their_ceiling() {
        let resources = [
            Resource { bytes_per_s: 100.0, knee: 1000 },
            Resource { bytes_per_s: 30.0, knee: 1000 },
            Resource { bytes_per_s: 100.0, knee: 2 },
        ];
        let paths = [path(&[0], 5.0), path(&[0, 1], 50.0), path(&[0], 50.0), path(&[2], 1000.0)];
        let mut found = Vec::new();
        rates(&resources, &paths, &[2, 3, 1, 4], &mut found);
        // The first is bound by its ceiling, the second by resource 1; the third has the rest.
        assert_eq!(found[..3], [5.0, 10.0, 50.0]);
        assert!((found[3] - 100.0 / 1.5 / 4.0).abs() < 1e-9, "{found:?}");
    }
}

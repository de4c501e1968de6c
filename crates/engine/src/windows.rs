//! Memory for targets in order: one budget for all copies of a process.
//!
//! Bytes that come before those in front of them wait in memory, and a copy asks for nothing behind its window. A copy that is
//! alone has the largest window there is. Many share the budget: users equally, and the copies of each user. A window that has
//! become too large shrinks as the bytes in it go, and what is free by then goes to the windows that have less than their share.
//! A copy to which nothing comes has what it holds, and no more, while others move; one that waits for its target is none of
//! these, as its window is what it needs.
//!
//! The least window of a copy that has begun is never refused, so that no copy waits for another one in the middle. With pieces
//! that have checksums of their own it is as large as one of them; so that those together are bounded too, the governor lets a
//! copy with large ones begin only where there is room.

use std::collections::HashMap;

use gridlane_core::limits::{REORDER_ALL_BYTES_MAX, REORDER_BYTES_MAX, REORDER_BYTES_MIN};
use gridlane_net::IdentityId;

/// The windows of all copies together.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Bytes that the windows may hold at the moment.
    lent_bytes: u64,
    /// Least windows above the smallest one, of copies that move.
    large_bytes: u64,
    /// Copies of each user that move.
    users: HashMap<IdentityId, u64>,
    /// The share of each copy of a user that moves; empty: to be computed.
    shares: HashMap<IdentityId, u64>,
}

/// The window of a copy, which is [given back](Windows::end).
#[derive(Debug)]
pub(crate) struct Window {
    user: IdentityId,
    least_bytes: u64,
    lent_bytes: u64,
    moves: bool,
}

impl Window {
    /// Bytes behind what the target has taken that may be asked for.
    pub(crate) fn bytes(&self) -> u64 {
        self.lent_bytes.max(self.least_bytes)
    }

    fn large_bytes(&self) -> u64 {
        large(self.least_bytes)
    }
}

fn large(least_bytes: u64) -> u64 {
    if least_bytes > REORDER_BYTES_MIN { least_bytes } else { 0 }
}

impl Windows {
    /// True if a copy that needs so much at least may begin. How large its pieces are does not matter: those with the largest
    /// would wait for ever behind others.
    pub(crate) fn has_room(&self, least_bytes: u64) -> bool {
        large(least_bytes) == 0 || self.large_bytes < REORDER_ALL_BYTES_MAX / 2
    }

    /// The window of a copy that begins.
    pub(crate) fn begin(&mut self, user: IdentityId, least_bytes: u64) -> Window {
        let least_bytes = least_bytes.max(REORDER_BYTES_MIN);
        let mut window = Window { user, least_bytes, lent_bytes: 0, moves: false };
        self.set_moving(&mut window, true);
        self.resize(&mut window, 0);
        window
    }

    /// Takes back the window of a copy that has ended.
    pub(crate) fn end(&mut self, mut window: Window) {
        self.set_moving(&mut window, false);
        self.lent_bytes -= window.lent_bytes;
    }

    /// Notes if a copy has a use for its window. `true`: others have more room now.
    pub(crate) fn set_moving(&mut self, window: &mut Window, moves: bool) -> bool {
        if std::mem::replace(&mut window.moves, moves) == moves {
            return false;
        }
        self.shares.clear();
        match moves {
            true => {
                self.large_bytes += window.large_bytes();
                *self.users.entry(window.user).or_default() += 1;
            }
            false => {
                self.large_bytes -= window.large_bytes();
                if let Some(copies) = self.users.get_mut(&window.user) {
                    *copies -= 1;
                    if *copies == 0 {
                        self.users.remove(&window.user);
                    }
                }
            }
        }
        !moves
    }

    /// Makes a window more, or less, as far as `held_bytes` of it, which are there or were asked for, let it.
    pub(crate) fn resize(&mut self, window: &mut Window, held_bytes: u64) {
        let before = window.lent_bytes;
        let (wanted, least) = match window.moves {
            true => (self.share(window.user).max(window.least_bytes), window.least_bytes),
            false if self.users.is_empty() => (before, 0),
            false => (0, 0),
        };
        let free = REORDER_ALL_BYTES_MAX.saturating_sub(self.lent_bytes);
        window.lent_bytes = match wanted < before {
            true => held_bytes.clamp(wanted, before),
            false => wanted.min(before + free).max(least),
        };
        self.lent_bytes = self.lent_bytes - before + window.lent_bytes;
    }

    fn share(&mut self, user: IdentityId) -> u64 {
        if self.shares.is_empty() {
            self.divide();
        }
        self.shares.get(&user).copied().unwrap_or(0)
    }

    /// Gives each user the same; what a user with few copies does not need goes to those with more.
    fn divide(&mut self) {
        let mut users: Vec<(IdentityId, u64)> =
            self.users.iter().map(|(&user, &copies)| (user, copies)).collect();
        users.sort_by_key(|(_, copies)| *copies);
        let (mut left_bytes, mut left_users) = (REORDER_ALL_BYTES_MAX, users.len() as u64);
        for (user, copies) in users {
            let share = (left_bytes / left_users / copies).min(REORDER_BYTES_MAX);
            self.shares.insert(user, share);
            left_bytes -= share * copies;
            left_users -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use gridlane_net::Identity;
    use proptest::prelude::*;

    use super::*;

    fn users(count: usize) -> Vec<IdentityId> {
        (0..count).map(|_| Identity::new(None).id()).collect()
    }

    fn settle(windows: &mut Windows, all: &mut [Window]) {
        // Those that have too much give it back, then the others take it.
        for _ in 0..2 {
            all.iter_mut().for_each(|window| windows.resize(window, 0));
        }
    }

    #[test]
    fn a_copy_that_is_alone_has_the_largest_window_at_once_and_so_have_four() {
        let mut windows = Windows::default();
        let user = users(1)[0];
        let four: Vec<Window> = (0..4).map(|_| windows.begin(user, 0)).collect();
        assert!(four.iter().all(|window| window.bytes() == REORDER_BYTES_MAX));
        let fifth = windows.begin(user, 0);
        assert_eq!(fifth.bytes(), REORDER_BYTES_MIN, "the others have it all for now");
        four.into_iter().chain([fifth]).for_each(|window| windows.end(window));
        assert_eq!((windows.lent_bytes, windows.users.len()), (0, 0));
    }

    #[test]
    fn a_window_shrinks_as_what_it_holds_goes() {
        let mut windows = Windows::default();
        let user = users(1)[0];
        let mut all: Vec<Window> = (0..4).map(|_| windows.begin(user, 0)).collect();
        all.extend((0..12).map(|_| windows.begin(user, 0)));
        let share = REORDER_ALL_BYTES_MAX / 16;
        windows.resize(&mut all[0], REORDER_BYTES_MAX);
        assert_eq!(all[0].bytes(), REORDER_BYTES_MAX, "it holds so much");
        windows.resize(&mut all[0], 2 * share);
        assert_eq!(all[0].bytes(), 2 * share);
        settle(&mut windows, &mut all);
        assert!(all.iter().all(|window| window.bytes() == share));
    }

    #[test]
    fn a_user_with_one_copy_has_as_much_as_one_with_a_hundred() {
        let mut windows = Windows::default();
        let both = users(2);
        let mut all: Vec<Window> = (0..100).map(|_| windows.begin(both[0], 0)).collect();
        all.push(windows.begin(both[1], 0));
        settle(&mut windows, &mut all);
        assert_eq!(all[100].bytes(), REORDER_BYTES_MAX);
        let of_others: u64 = all[..100].iter().map(Window::bytes).sum();
        assert!(
            of_others > REORDER_ALL_BYTES_MAX / 2 && of_others <= REORDER_ALL_BYTES_MAX - REORDER_BYTES_MAX
        );
    }

    #[test]
    fn a_silent_copy_has_what_it_holds_and_goes_on_with_the_least_at_once() {
        let mut windows = Windows::default();
        let user = users(1)[0];
        let piece_bytes = REORDER_BYTES_MAX / 2;
        let mut silent = windows.begin(user, piece_bytes);
        windows.set_moving(&mut silent, false);
        windows.resize(&mut silent, 1000);
        assert_eq!(silent.bytes(), REORDER_BYTES_MAX, "there is no other use for it");
        let mut all = vec![windows.begin(user, 0)];
        windows.resize(&mut silent, 1000);
        assert_eq!((silent.bytes(), windows.lent_bytes), (piece_bytes, REORDER_BYTES_MAX + 1000));
        all.extend((0..3).map(|_| windows.begin(user, 0)));
        assert!(all[..3].iter().all(|window| window.bytes() == REORDER_BYTES_MAX));
        windows.set_moving(&mut silent, true);
        windows.resize(&mut silent, 1000);
        assert_eq!(silent.lent_bytes, piece_bytes);
    }

    #[test]
    fn large_pieces_wait_for_room_and_small_windows_for_none() {
        let mut windows = Windows::default();
        let user = users(1)[0];
        let piece_bytes = REORDER_BYTES_MAX / 2;
        let mut large = Vec::new();
        while windows.has_room(piece_bytes) {
            large.push(windows.begin(user, piece_bytes));
        }
        assert_eq!(large.len() as u64, REORDER_ALL_BYTES_MAX / 2 / piece_bytes);
        assert!(windows.has_room(REORDER_BYTES_MIN));
        windows.end(large.remove(0));
        assert!(windows.has_room(piece_bytes));
    }

    proptest! {
        /// Every copy has its least window, whatever comes and goes. All together hold no more than the budget and the least
        /// windows, and when nothing is held each copy that moves has its share.
        #[test]
        fn windows_are_enough_and_bounded_and_fair(
            steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>(), 0_u64..=64, 0_usize..4), 1..200),
        ) {
            let users = users(4);
            let mut windows = Windows::default();
            let mut all: Vec<Window> = Vec::new();
            for (what, which, mebibytes, user) in steps {
                let bytes = mebibytes << 20;
                match what {
                    0 | 1 if windows.has_room(bytes / 16) => all.push(windows.begin(users[user], bytes / 16)),
                    2 if !all.is_empty() => windows.end(all.swap_remove(which.index(all.len()))),
                    3 if !all.is_empty() => {
                        let window = which.get_mut(&mut all);
                        let moves = !window.moves;
                        windows.set_moving(window, moves);
                        windows.resize(window, bytes);
                    }
                    _ if !all.is_empty() => windows.resize(which.get_mut(&mut all), bytes),
                    _ => {}
                }
                let lent: u64 = all.iter().map(|window| window.lent_bytes).sum();
                let least: u64 = all.iter().map(|window| window.least_bytes).sum();
                prop_assert_eq!(lent, windows.lent_bytes);
                prop_assert!(lent <= REORDER_ALL_BYTES_MAX + least);
                prop_assert!(all.iter().all(|window| window.bytes() >= REORDER_BYTES_MIN));
            }
            settle(&mut windows, &mut all);
            let is_used = all.iter().any(|window| window.moves);
            for user in users.into_iter().filter(|_| is_used) {
                let share = windows.share(user);
                let of_user = all.iter().filter(|window| window.user == user);
                for window in of_user {
                    let wanted = if window.moves { share.max(window.least_bytes) } else { 0 };
                    let lent = window.lent_bytes;
                    prop_assert!(lent == wanted || windows.lent_bytes >= REORDER_ALL_BYTES_MAX && lent >= window.least_bytes);
                }
            }
            all.drain(..).for_each(|window| windows.end(window));
            prop_assert_eq!((windows.lent_bytes, windows.large_bytes, windows.users.len()), (0, 0, 0));
        }
    }
}

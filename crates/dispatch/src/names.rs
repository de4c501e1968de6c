//! Names as numbers: each is kept once, as long as it is in use.

use std::collections::HashMap;
use std::sync::Arc;

/// Names that are in use.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<Arc<str>, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    name: Arc<str>,
    uses: u32,
}

impl Names {
    /// The number of a name, with one more use.
    pub(crate) fn take(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.by_name.get(name) {
            self.slots[number as usize].uses += 1;
            return number;
        }
        let name: Arc<str> = name.into();
        let slot = Slot { name: name.clone(), uses: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.by_name.insert(name, number);
        number
    }

    /// One use less; true if it was the last one.
    pub(crate) fn release(&mut self, number: u32) -> bool {
        let slot = &mut self.slots[number as usize];
        slot.uses -= 1;
        if slot.uses > 0 {
            return false;
        }
        self.by_name.remove(&slot.name);
        self.free.push(number);
        true
    }

    /// The name of a number that is in use.
    pub(crate) fn get(&self, number: u32) -> &Arc<str> {
        &self.slots[number as usize].name
    }

    /// The number of a name, if it is in use.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_as_long_as_it_is_used() {
        let mut names = Names::default();
        let (a, b) = (names.take("a"), names.take("b"));
        assert_eq!(names.take("a"), a);
        assert_eq!((names.release(a), names.find("a")), (false, Some(a)));
        assert_eq!((names.release(a), names.find("a")), (true, None));
        assert_eq!((names.take("c"), &**names.get(b)), (a, "b"), "the place of a name is used again");
    }
}

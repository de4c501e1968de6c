//! What every store has to do: for the tests of this crate, and of stores elsewhere.

use gridlane_core::Result;

use crate::store::{Kind, RecordId, Store};

/// Checks a store that is empty, and leaves it empty. `again` opens it anew, as a process does that comes after this one.
///
/// # Errors
/// What the store itself fails with, and in words what it does that it must not.
pub fn check<S: Store>(store: S, again: impl Fn(S) -> Result<S>) -> Result<std::result::Result<(), String>> {
    let id = |kind, name: &str| RecordId::new(kind, name);
    let (ada, job) = (id(Kind::Key, "ada")?, id(Kind::Token, "0b1c-JOB_2")?);
    let longest = id(Kind::Proxy, &"n".repeat(gridlane_core::limits::VAULT_NAME_BYTES_MAX))?;
    let every_byte: Vec<u8> = (0..=255).collect();
    let large = vec![0xa5; gridlane_core::limits::VAULT_RECORD_BYTES_MAX];

    let mut found: Vec<(&str, bool)> = Vec::new();
    found.push(("an empty store has no record", store.get(&ada)?.is_none()));
    found.push(("what is not there is not removed", !store.remove(&ada)?));
    for kind in Kind::ALL {
        found.push(("an empty store has no names", store.names(kind)?.is_empty()));
    }
    store.put(&ada, &every_byte)?;
    store.put(&id(Kind::Proxy, "ada")?, b"proxy")?;
    store.put(&job, b"")?;
    store.put(&longest, &large)?;
    found.push(("a record has the bytes that it was given", store.get(&ada)?.as_ref() == Some(&every_byte)));
    found.push(("an empty record is one", store.get(&job)? == Some(Vec::new())));
    found.push(("a large record is whole", store.get(&longest)?.as_ref() == Some(&large)));
    found.push(("kinds are apart", store.get(&id(Kind::Proxy, "ada")?)?.as_deref() == Some(&b"proxy"[..])));
    found.push(("another kind of the name is not there", store.get(&id(Kind::Token, "ada")?)?.is_none()));
    store.put(&ada, b"other")?;
    found.push(("a record takes the place of another", store.get(&ada)?.as_deref() == Some(&b"other"[..])));
    store.put(&id(Kind::Key, "Zoe")?, b"1")?;
    store.put(&id(Kind::Key, "bob")?, b"2")?;
    found.push(("names are in order", store.names(Kind::Key)? == ["Zoe", "ada", "bob"]));

    let store = again(store)?;
    found.push((
        "a store that is opened again has its records",
        store.get(&ada)?.as_deref() == Some(&b"other"[..]),
    ));
    found.push(("and their names", store.names(Kind::Key)? == ["Zoe", "ada", "bob"]));
    found.push(("what is there is removed", store.remove(&ada)?));
    found.push(("and is there no more", store.get(&ada)?.is_none()));
    found.push(("another kind of the name stays", store.remove(&id(Kind::Proxy, "ada")?)?));
    let store = again(store)?;
    found.push(("what was removed does not come back", store.names(Kind::Key)? == ["Zoe", "bob"]));
    for gone in [id(Kind::Key, "Zoe")?, id(Kind::Key, "bob")?, job, longest] {
        found.push(("what is there is removed", store.remove(&gone)?));
    }
    Ok(match found.iter().find(|(_, holds)| !holds) {
        Some((rule, _)) => Err(format!("it does not hold that {rule}")),
        None => Ok(()),
    })
}

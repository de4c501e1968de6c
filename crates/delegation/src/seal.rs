//! How a record is sealed: AES-256-GCM, under a key of its own.
//!
//! ```text
//! "GLV1" │ id of the secret, 8 │ salt, 32 │ nonce, 12 │ encrypted record │ tag, 16
//! └────────────── authenticated, with kind and name ──────────────────────────────┘
//! ```
//!
//! Kind and name stand nowhere in it. They are what the record is asked for by, so that one in the place of another does not
//! open.

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use ring::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce};
use ring::rand::SecureRandom;

use crate::secrets::{ID_BYTES, SALT_BYTES, Secrets};
use crate::store::RecordId;

/// Format and its version.
const MAGIC: &[u8; 4] = b"GLV1";
const HEADER_BYTES: usize = MAGIC.len() + ID_BYTES + SALT_BYTES + NONCE_LEN;

/// A record that was opened.
pub(crate) struct Opened {
    pub(crate) plain: Vec<u8>,
    /// True if the newest secret has sealed it.
    pub(crate) is_newest: bool,
}

/// Seals a record with the newest secret.
pub(crate) fn seal(
    secrets: &Secrets,
    id: &RecordId,
    plain: &[u8],
    random: &dyn SecureRandom,
) -> Result<Vec<u8>> {
    let failed = |what: &str| Error::new(ErrorKind::Other, format!("{id} could not be sealed: {what}"));
    if HEADER_BYTES + plain.len() + AES_256_GCM.tag_len() > limits::VAULT_RECORD_BYTES_MAX {
        return Err(failed("it is too long"));
    }
    let secret = secrets.newest();
    let (mut salt, mut nonce) = ([0; SALT_BYTES], [0; NONCE_LEN]);
    random.fill(&mut salt).map_err(|_| failed("there is no randomness"))?;
    random.fill(&mut nonce).map_err(|_| failed("there is no randomness"))?;
    let mut sealed = [&MAGIC[..], secret.id(), &salt, &nonce].concat();
    let mut body = plain.to_vec();
    let context = Aad::from(context(&sealed, id));
    secret
        .key(&salt)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), context, &mut body)
        .map_err(|_| failed("the cipher refused"))?;
    sealed.append(&mut body);
    Ok(sealed)
}

/// Opens a record. What was changed, or belongs to another name, gives an error that says so, and nothing else.
pub(crate) fn open(secrets: &Secrets, id: &RecordId, sealed: &[u8]) -> Result<Opened> {
    let wrong = |what: &str| {
        let hint =
            "take it away, and have the user lend the credential again; and find out who has changed it";
        let error = Error::new(ErrorKind::ChecksumMismatch, format!("{id} is not used: {what}"));
        error.fault(Fault::Local).hint(hint)
    };
    if sealed.get(..3) != Some(&MAGIC[..3]) {
        return Err(wrong("it is no sealed record"));
    }
    if sealed.get(3) != Some(&MAGIC[3]) {
        return Err(wrong("it is sealed in a way that this version does not know"));
    }
    let (header, body) = sealed.split_at_checked(HEADER_BYTES).ok_or_else(|| wrong("it is cut off"))?;
    let (secret_id, rest) = header[MAGIC.len()..].split_at(ID_BYTES);
    let (salt, nonce) = rest.split_at(SALT_BYTES);
    let Some(secret) = secrets.named(secret_id) else {
        return Err(wrong("it was sealed with a secret that is not among those of the site, or was changed")
            .hint("put the secret that was taken away back, behind the new one and a line ---"));
    };
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong("it is cut off"))?;
    let mut plain = body.to_vec();
    let opened = secret.key(salt)?.open_in_place(nonce, Aad::from(context(header, id)), &mut plain);
    let len = opened
        .map(|plain| plain.len())
        .map_err(|_| wrong("it was changed since it was sealed, or belongs elsewhere"))?;
    plain.truncate(len);
    Ok(Opened { plain, is_newest: secret_id == secrets.newest().id() })
}

/// The part that is authenticated beside the record itself.
fn context(header: &[u8], id: &RecordId) -> Vec<u8> {
    // Neither kinds nor names have a zero in them.
    [header, id.kind().name().as_bytes(), &[0], id.name().as_bytes()].concat()
}

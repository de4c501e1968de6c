//! The request of a third-party copy: a COPY, and what its fields say.
//!
//! What one of them does not say clearly is refused with 400: a wrong guess sends a token to the wrong server or replaces
//! a file. Fields that are not known are skipped.

use gridlane_core::error::ErrorKind;
use gridlane_core::{Secret, Url, limits};

use crate::header::{Headers, number, trim};
use crate::request::Rejection;
use crate::status::Status;
use crate::webdav::overwrites;

/// The field of an answer that tells that the server takes several sources: in the answer to OPTIONS how many, in that to
/// a COPY how many it uses.
pub const SOURCES_FIELD: &str = "Copy-Sources";

/// The way of the bytes, seen from the active server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It fetches.
    Pull,
    /// It uploads.
    Push,
}

/// The other side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The file there. No user's name is in it; its query may hold a token.
    pub url: Url,
    /// The fields that the requests to it carry, no two of one name.
    pub fields: Vec<Field>,
}

/// A field for a [`Remote`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, a token (RFC 9110, 5.1), spelled as most programs do: `Authorization`. Its first and all other letters
    /// behind hyphens are large, for the servers that compare names as they stand.
    pub name: String,
    /// Its value, without a control character.
    pub value: Secret,
}

/// A COPY from or to another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// The way of the bytes.
    pub direction: Direction,
    /// Of a pull the sources, at least one and at most [`limits::SOURCES_MAX`], the first one of which is HTTP; of a push
    /// its one target.
    pub remotes: Vec<Remote>,
    /// False if an existing target stays as it is, and the answer is 412.
    pub overwrite: bool,
    /// The copy fails when no checksum of the remote's can be compared. One that differs fails every copy.
    pub requires_checksum: bool,
    /// The number of streams that are wished for, from 1; `None` where that is left to the server: the field is absent, or
    /// 0, which davix and gfal2 send by default.
    pub streams: Option<u32>,
    /// The label of the data connections' flow, which goes to the remotes as `SciTag` as well.
    pub scitag: Option<u16>,
    /// What an archive behind the target is told (Base64 of JSON), of a pull. Of a push it is among the fields of the remote.
    pub archive_metadata: Option<String>,
    /// The client's names of its job, file and try, for the log.
    pub client_info: Option<String>,
    /// The remote's URL is signed for one method: there is to be no HEAD.
    pub no_head: bool,
}

impl CopyRequest {
    /// Reads the fields of a COPY. `None`: it is one within the server, for its `Destination` is a path. One that is the
    /// server's own URL is not told apart here: that takes the names of the server.
    ///
    /// The rejections are 400, and 501 for a URL with a scheme that copies do not have.
    pub fn parse(headers: &Headers) -> Result<Option<CopyRequest>, Rejection> {
        let (direction, urls) = match (headers.contains("source"), headers.contains("destination")) {
            (true, true) => {
                return Err(Rejection::bad_request("a COPY has a Source or a Destination, and not both"));
            }
            (false, false) => {
                return Err(Rejection::bad_request("the COPY has no Source and no Destination"));
            }
            (true, false) => (Direction::Pull, sources(headers)?),
            (false, true) => {
                let value = sole(headers, "destination", "Destination")?.unwrap_or_default();
                if value.starts_with('/') {
                    return Ok(None);
                }
                (Direction::Push, vec![remote_url(value, "Destination", Schemes::Http)?])
            }
        };
        check_credential(headers)?;
        let remotes = remotes(headers, direction, urls)?;
        let archive_metadata = match sole(headers, "archivemetadata", "ArchiveMetadata")? {
            // The name that gfal2 before 2.23 has for it.
            None => sole(headers, "transfermetadata", "TransferMetadata")?,
            metadata => metadata,
        };
        Ok(Some(CopyRequest {
            direction,
            remotes,
            overwrite: overwrites(headers)?,
            requires_checksum: boolean(headers, "RequireChecksumVerification")?.unwrap_or(false),
            streams: streams(headers)?,
            scitag: scitag(headers),
            archive_metadata: archive_metadata.filter(|_| direction == Direction::Pull).map(str::to_owned),
            client_info: headers.get("clientinfo").map(str::to_owned),
            no_head: headers.has_token("copy-flags", "nohead"),
        }))
    }
}

/// True if a COPY has a field that only third-party copies have: its client expects an answer of markers even when
/// the copy is within the server (davix takes a bare 201 for a failure).
pub fn is_third_party(headers: &Headers) -> bool {
    const NAMES: [&str; 8] = [
        "source",
        "credential",
        "x-number-of-streams",
        "requirechecksumverification",
        "secure-redirection",
        "x-no-delegate",
        "copy-header",
        "copy-flags",
    ];
    let is_one = |name: &str| {
        NAMES.contains(&name) || name.starts_with(TRANSFER_PREFIX) || name.starts_with(SOURCE_PREFIX)
    };
    headers.iter().any(|(name, _)| is_one(name)) || accepts_markers(headers)
}

/// Another program would ask for `*/*`.
fn accepts_markers(headers: &Headers) -> bool {
    let types = headers.list("accept").map(|element| trim(element.split(';').next().unwrap_or_default()));
    types.into_iter().any(|media_type| media_type.eq_ignore_ascii_case(super::MEDIA_TYPE))
}

/// `TransferHeaderNAME`: a field for the first remote.
const TRANSFER_PREFIX: &str = "transferheader";
/// `SourceHeader2NAME`: a field for the second source.
const SOURCE_PREFIX: &str = "sourceheader";

/// The schemes that a URL may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Schemes {
    Http,
    /// XRootD's as well.
    All,
}

fn sources(headers: &Headers) -> Result<Vec<Url>, Rejection> {
    if headers.all("source").count() > limits::SOURCES_MAX {
        let max = limits::SOURCES_MAX;
        return Err(Rejection::bad_request(format!("the request has more than {max} Sources")));
    }
    let schemes = |at: usize| if at == 0 { Schemes::Http } else { Schemes::All };
    headers.all("source").enumerate().map(|(at, value)| remote_url(value, "Source", schemes(at))).collect()
}

/// A URL, which is never repeated in a message: there may be a token in it.
fn remote_url(value: &str, field: &str, schemes: Schemes) -> Result<Url, Rejection> {
    let malformed = |text: &str| Err(Rejection::bad_request(format!("the {field} {text}")));
    if value.contains(|char: char| char.is_whitespace() || char.is_control() || char == '\\') {
        return malformed("has a character that no URL has");
    }
    if value.contains('#') {
        return malformed("has a fragment");
    }
    if value.len() > limits::METALINK_URL_BYTES_MAX {
        return malformed("is longer than any server takes");
    }
    if !value.contains("://") {
        return malformed("is not a complete URL");
    }
    let unknown = || {
        let more = if field == "Source" { "; root and roots are taken for further Sources" } else { "" };
        let text = format!("the {field} has a scheme other than http, https, dav and davs{more}");
        Rejection::new(Status::NOT_IMPLEMENTED, text)
    };
    let url = match Url::parse_absolute(value) {
        Ok(url) => url.without_credentials(),
        Err(error) if error.kind() == ErrorKind::Unsupported => return Err(unknown()),
        Err(_) => return malformed("is not a URL"),
    };
    let scheme = url.scheme();
    let is_known = scheme.is_http() || (scheme.is_root() && schemes == Schemes::All);
    if !is_known {
        return Err(unknown());
    }
    if url.host().is_empty() || url.port() == 0 {
        return malformed("names no server");
    }
    Ok(url)
}

/// The word `none` alone, as XRootD's servers: the credential for the remote comes with the request.
fn check_credential(headers: &Headers) -> Result<(), Rejection> {
    match sole(headers, "credential", "Credential")? {
        None => Ok(()),
        Some(value) if value.eq_ignore_ascii_case("none") => Ok(()),
        Some(_) => Err(Rejection::bad_request(
            "this server takes no delegated credential: send 'Credential: none', and a token for the other server in \
             TransferHeaderAuthorization",
        )),
    }
}

fn boolean(headers: &Headers, name: &str) -> Result<Option<bool>, Rejection> {
    match sole(headers, &name.to_ascii_lowercase(), name)? {
        None => Ok(None),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(Some(false)),
        Some(_) => Err(Rejection::bad_request(format!("the {name} is neither true nor false"))),
    }
}

fn streams(headers: &Headers) -> Result<Option<u32>, Rejection> {
    const NAME: &str = "X-Number-Of-Streams";
    let Some(value) = sole(headers, "x-number-of-streams", NAME)? else { return Ok(None) };
    let max = limits::COPY_STREAMS_MAX;
    let count = number(value).and_then(|count| u32::try_from(count).ok()).filter(|count| *count <= max);
    let count =
        count.ok_or_else(|| Rejection::bad_request(format!("the {NAME} is no number from 0 to {max}")))?;
    Ok((count > 0).then_some(count))
}

/// Six bits of activity, behind those of an experiment, both from 1 (scitags.org): other values say nothing.
fn scitag(headers: &Headers) -> Option<u16> {
    const MIN: u64 = 65;
    let value = headers.single("scitag").and_then(number).filter(|value| *value >= MIN)?;
    u16::try_from(value).ok()
}

/// The one value of a field; several different ones are refused.
fn sole<'a>(headers: &'a Headers, name: &'a str, shown: &str) -> Result<Option<&'a str>, Rejection> {
    let mut values = headers.all(name);
    let first = values.next();
    match values.next() {
        Some(_) => Err(Rejection::bad_request(format!("the request has more than one {shown}"))),
        None => Ok(first),
    }
}

/// The remotes with their fields: those of the first one are for all that are at the same server, and each further source
/// may have its own.
fn remotes(headers: &Headers, direction: Direction, urls: Vec<Url>) -> Result<Vec<Remote>, Rejection> {
    let mut own: Vec<Vec<Field>> = urls.iter().map(|_| Vec::new()).collect();
    let has_scitag = headers.contains("scitag");
    for (name, value) in headers.iter() {
        let (at, name, value) = if let Some(name) = name.strip_prefix(TRANSFER_PREFIX) {
            (0, name, value)
        } else if let Some(rest) = name.strip_prefix(SOURCE_PREFIX) {
            let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
            (source_index(&rest[..digits], direction, urls.len())?, &rest[digits..], value)
        } else if name == "copy-header" {
            let (name, value) = value
                .split_once(':')
                .ok_or(Rejection::bad_request("the Copy-Header has no colon behind a name"))?;
            (0, name, trim(value))
        } else {
            continue;
        };
        let field = Field::checked(name, value)?;
        // The copy's own counts, and goes to the remotes by itself.
        if !(has_scitag && field.name == "SciTag") {
            add(&mut own[at], field)?;
        }
    }
    let mut bytes = 0;
    let mut remotes = Vec::with_capacity(urls.len());
    for (at, url) in urls.into_iter().enumerate() {
        let mut fields = std::mem::take(&mut own[at]);
        let first: Option<&Remote> = remotes.first();
        if let Some(first) = first.filter(|first| first.url.same_endpoint(&url)) {
            let is_own = |name: &str| fields.iter().any(|field| field.name == name);
            let more: Vec<Field> =
                first.fields.iter().filter(|field| !is_own(&field.name)).cloned().collect();
            fields.extend(more);
        }
        bytes += fields.iter().map(Field::bytes).sum::<usize>();
        if bytes > limits::COPY_FIELDS_BYTES_MAX {
            return Err(Rejection::bad_request("the fields for all Sources are too many bytes"));
        }
        remotes.push(Remote { url, fields });
    }
    Ok(remotes)
}

/// The place of the source with this number, which counts from 1. The first one's fields have another name.
fn source_index(digits: &str, direction: Direction, count: usize) -> Result<usize, Rejection> {
    let number = Some(digits).filter(|digits| !digits.starts_with('0')).and_then(number);
    let number = number.and_then(|number| usize::try_from(number).ok());
    match number.filter(|number| direction == Direction::Pull && (2..=count).contains(number)) {
        Some(number) => Ok(number - 1),
        None => Err(Rejection::bad_request(
            "a SourceHeader has, in front of the field's name, the number of one of the request's Sources from the second on",
        )),
    }
}

/// Adds a field. The same one twice is one: clients repeat fields when they follow a redirect.
fn add(fields: &mut Vec<Field>, field: Field) -> Result<(), Rejection> {
    match fields.iter().find(|other| other.name == field.name) {
        None => fields.push(field),
        Some(other) if other.value == field.value => {}
        Some(_) => {
            let text = format!("the request has two values of {} for the same server", field.name);
            return Err(Rejection::bad_request(text));
        }
    }
    Ok(())
}

impl Field {
    fn checked(name: &str, value: &str) -> Result<Field, Rejection> {
        let name = name.to_ascii_lowercase();
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(Rejection::bad_request("a TransferHeader has no name of a field behind it"));
        }
        if REFUSED.contains(&name.as_str()) || name.starts_with("proxy-") {
            let text = format!("{} is not for a client to say to the other server", spelled(&name));
            return Err(Rejection::bad_request(text));
        }
        if value.contains(|char: char| char.is_control() && char != '\t') {
            let text = format!("the {} for the other server has a control character", spelled(&name));
            return Err(Rejection::bad_request(text));
        }
        let value = if name == "authorization" { with_spelled_scheme(value) } else { value.to_owned() };
        Ok(Field { name: spelled(&name), value: Secret::new(value) })
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.value.expose().len()
    }
}

/// Fields that frame a message, belong to a connection, or decide which bytes come: those are the active server's.
const REFUSED: [&str; 15] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "expect",
    "host",
    "http2-settings",
    "if-range",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A name as most programs write it.
fn spelled(name: &str) -> String {
    const WITHOUT_HYPHENS: [&str; 4] = ["SciTag", "ClientInfo", "ArchiveMetadata", "TransferMetadata"];
    if let Some(known) = WITHOUT_HYPHENS.iter().find(|known| known.eq_ignore_ascii_case(name)) {
        return (*known).to_owned();
    }
    let mut is_first = true;
    let letter = |char: char| {
        let shown = if is_first { char.to_ascii_uppercase() } else { char };
        is_first = char == '-';
        shown
    };
    name.chars().map(letter).collect()
}

/// A credential whose first word is spelled as every server reads it: scripts of the field send `bearer`.
fn with_spelled_scheme(value: &str) -> String {
    let Some((word, rest)) = value.split_once(' ') else { return value.to_owned() };
    match ["Bearer", "Basic"].iter().find(|known| known.eq_ignore_ascii_case(word)) {
        Some(known) => format!("{known} {}", trim(rest)),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests;

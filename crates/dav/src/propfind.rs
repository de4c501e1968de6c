//! The bodies of PROPFIND and PROPPATCH (RFC 4918, 9.1 and 9.2), as the server reads them and a client
//! writes them.
//!
//! The request asks for names; a name that is not known here is an answer of its own (404, or 403 where it
//! is to be changed) and no mistake. Elements that the specification does not have are skipped with all
//! that is in them (RFC 4918, 17); a body without a question is refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::limits;

use crate::date;
use crate::header::number;
use crate::property::{DAV, PropertyName};
use crate::request::Rejection;
use crate::status::Status;
use crate::timestamp;
use crate::xml::{Bounds, Name, Token, XmlReader};
use crate::xml_syntax::write_text;

/// The properties that a PROPFIND wants to know of every resource (RFC 4918, 9.1 and 14.20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropfindRequest {
    /// `allprop`: what the server tells unasked, and these.
    AllProp {
        /// The names in `include` (RFC 4918, 14.8).
        include: Vec<PropertyName>,
    },
    /// `propname`: the names of all properties it has.
    PropName,
    /// `prop`: these, each named once.
    Prop(Vec<PropertyName>),
}

impl PropfindRequest {
    /// Reads a body. An empty one asks for everything: what davix sends, and RFC 4918, 9.1 says.
    pub fn parse(body: &[u8]) -> Result<PropfindRequest, Rejection> {
        if body.is_empty() {
            return Ok(PropfindRequest::AllProp { include: Vec::new() });
        }
        let mut document = Document::new(body)?;
        document.root("propfind")?;
        let mut question = None;
        let mut include = None;
        while let Some(child) = document.child(|name| match (name.namespace, name.local) {
            (DAV, "allprop") => Child::AllProp,
            (DAV, "propname") => Child::PropName,
            (DAV, "prop") => Child::Prop,
            (DAV, "include") => Child::Include,
            _ => Child::Unknown,
        })? {
            let asked = match child {
                Child::Unknown => {
                    document.skip()?;
                    continue;
                }
                Child::Include => {
                    let mut names = Vec::new();
                    document.names(|name| add(&mut names, name))?;
                    if include.replace(names).is_some() {
                        return Err(Rejection::bad_request("the propfind has two elements 'include'"));
                    }
                    continue;
                }
                Child::AllProp => {
                    document.skip()?;
                    PropfindRequest::AllProp { include: Vec::new() }
                }
                Child::PropName => {
                    document.skip()?;
                    PropfindRequest::PropName
                }
                Child::Prop => {
                    let mut names = Vec::new();
                    document.names(|name| add(&mut names, name))?;
                    PropfindRequest::Prop(names)
                }
            };
            if question.replace(asked).is_some() {
                return Err(Rejection::bad_request("the propfind asks more than one question"));
            }
        }
        document.end()?;
        match (question, include) {
            (Some(PropfindRequest::AllProp { .. }), include) => {
                Ok(PropfindRequest::AllProp { include: include.unwrap_or_default() })
            }
            (Some(_), Some(_)) => Err(Rejection::bad_request("only an allprop may have an 'include'")),
            (Some(question), None) => Ok(question),
            (None, _) => {
                Err(Rejection::bad_request("the propfind has none of 'allprop', 'propname' and 'prop'"))
            }
        }
    }

    /// The body that asks this.
    pub fn to_xml(&self) -> String {
        let mut out = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\">".to_vec();
        let list = |out: &mut Vec<u8>, element: &str, names: &[PropertyName]| {
            out.extend_from_slice(format!("<D:{element}>").as_bytes());
            names.iter().for_each(|name| write_empty(out, name));
            out.extend_from_slice(format!("</D:{element}>").as_bytes());
        };
        match self {
            PropfindRequest::AllProp { include } => {
                out.extend_from_slice(b"<D:allprop/>");
                if !include.is_empty() {
                    list(&mut out, "include", include);
                }
            }
            PropfindRequest::PropName => out.extend_from_slice(b"<D:propname/>"),
            PropfindRequest::Prop(names) => list(&mut out, "prop", names),
        }
        out.extend_from_slice(b"</D:propfind>\n");
        String::from_utf8_lossy(&out).into_owned()
    }
}

enum Child {
    AllProp,
    PropName,
    Prop,
    Include,
    Unknown,
}

/// The properties that a PROPPATCH wants to change (RFC 4918, 9.2 and 14.19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProppatchRequest {
    /// In the order in which they are to be done (RFC 4918, 9.2); at least one.
    pub changes: Vec<PropertyChange>,
}

/// One change of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyChange {
    /// Which property.
    pub name: PropertyName,
    /// True if it is to be removed (14.23), and not set (14.26).
    pub removes: bool,
    /// The text that it is to be set to. Elements inside it are left out with all that is in them: no property
    /// that can be set has any.
    pub text: String,
}

impl PropertyChange {
    /// The moment to which it wants to set the time of a resource's last change, under any of the names that
    /// clients have for it: rclone sends seconds since 1970 as `DAV:lastmodified`, Windows a date as
    /// `Win32LastModifiedTime`. `None` when it is another property, or no time.
    pub fn modified(&self) -> Option<SystemTime> {
        let is_time = matches!(
            (self.name.namespace(), self.name.local()),
            (DAV, "lastmodified" | "getlastmodified")
                | ("urn:schemas-microsoft-com:", "Win32LastModifiedTime")
        );
        let text = self.text.trim();
        if !is_time || self.removes {
            return None;
        }
        match number(text) {
            Some(seconds) => UNIX_EPOCH
                .checked_add(Duration::from_secs(seconds))
                .filter(|time| date::whole_seconds(*time) == seconds),
            None => timestamp::parse(text),
        }
    }
}

impl ProppatchRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<ProppatchRequest, Rejection> {
        let mut document = Document::new(body)?;
        document.root("propertyupdate")?;
        let mut changes = Vec::new();
        while let Some(removes) = document.child(|name| match (name.namespace, name.local) {
            (DAV, "set") => Some(false),
            (DAV, "remove") => Some(true),
            _ => None,
        })? {
            let Some(removes) = removes else {
                document.skip()?;
                continue;
            };
            while let Some(is_prop) = document.child(|name| (name.namespace, name.local) == (DAV, "prop"))? {
                if !is_prop {
                    document.skip()?;
                    continue;
                }
                while let Some(name) =
                    document.child(|name| PropertyName::from_xml(name.namespace, name.local))?
                {
                    if changes.len() >= limits::DAV_REQUEST_PROPERTIES_MAX {
                        return Err(too_many());
                    }
                    changes.push(PropertyChange { name, removes, text: document.text()? });
                }
            }
        }
        document.end()?;
        match changes.is_empty() {
            true => Err(Rejection::bad_request("the propertyupdate changes no property")),
            false => Ok(ProppatchRequest { changes }),
        }
    }

    /// The properties it is about, each once.
    pub fn names(&self) -> Vec<&PropertyName> {
        let mut names: Vec<&PropertyName> = Vec::new();
        for change in &self.changes {
            if !names.contains(&&change.name) {
                names.push(&change.name);
            }
        }
        names
    }
}

fn add(names: &mut Vec<PropertyName>, name: PropertyName) -> Result<(), Rejection> {
    if names.contains(&name) {
        return Ok(());
    }
    if names.len() >= limits::DAV_REQUEST_PROPERTIES_MAX {
        return Err(too_many());
    }
    let bytes_of = |name: &PropertyName| name.namespace().len() + name.local().len();
    let bytes = names.iter().map(bytes_of).sum::<usize>() + bytes_of(&name);
    if bytes > limits::DAV_REQUEST_NAMES_BYTES_MAX {
        let max = limits::DAV_REQUEST_NAMES_BYTES_MAX;
        let message = format!("the properties of the request have names of more than {max} bytes");
        return Err(Rejection::new(Status::CONTENT_TOO_LARGE, message));
    }
    names.push(name);
    Ok(())
}

fn too_many() -> Rejection {
    let max = limits::DAV_REQUEST_PROPERTIES_MAX;
    Rejection::new(Status::CONTENT_TOO_LARGE, format!("the request names more than {max} properties"))
}

/// Appends an element of this name with nothing in it.
pub(crate) fn write_empty(out: &mut Vec<u8>, name: &PropertyName) {
    match (name.namespace(), name.local()) {
        (DAV, local) => out.extend_from_slice(format!("<D:{local}/>").as_bytes()),
        ("", local) => out.extend_from_slice(format!("<{local}/>").as_bytes()),
        (namespace, local) => {
            out.extend_from_slice(format!("<x:{local} xmlns:x=\"").as_bytes());
            write_text(out, namespace);
            out.extend_from_slice(b"\"/>");
        }
    }
}

/// A whole document, read from the outside to the inside.
struct Document(XmlReader);

impl Document {
    fn new(body: &[u8]) -> Result<Document, Rejection> {
        if body.len() > limits::DAV_REQUEST_BYTES_MAX {
            let max = limits::DAV_REQUEST_BYTES_MAX;
            let message = format!("the request has more than {max} bytes of XML");
            return Err(Rejection::new(Status::CONTENT_TOO_LARGE, message));
        }
        let mut xml = XmlReader::new(Bounds {
            depth_max: limits::DAV_REQUEST_DEPTH_MAX,
            elements_max: limits::DAV_REQUEST_ELEMENTS_MAX as u64,
            token_bytes_max: limits::DAV_REQUEST_BYTES_MAX,
        });
        xml.feed(body);
        Ok(Document(xml))
    }

    /// The next token; there must be one.
    fn next(&mut self) -> Result<Token<'_>, Rejection> {
        match self.0.next()? {
            Some(token) => Ok(token),
            None => Err(Rejection::bad_request("the XML ends in the middle")),
        }
    }

    /// Enters the outermost element, which must have this name.
    fn root(&mut self, local: &str) -> Result<(), Rejection> {
        match self.next()? {
            Token::Open(name, _) if (name.namespace, name.local) == (DAV, local) => Ok(()),
            _ => Err(Rejection::bad_request(format!("the XML is no {local:?} of WebDAV"))),
        }
    }

    /// Enters the next element inside the present one; `None`, and leaves that one, when there is none.
    fn child<T>(&mut self, name: impl Fn(Name<'_>) -> T) -> Result<Option<T>, Rejection> {
        loop {
            match self.next()? {
                Token::Open(child, _) => return Ok(Some(name(child))),
                Token::Close => return Ok(None),
                Token::Text(_) => {}
            }
        }
    }

    /// Leaves the present element.
    fn skip(&mut self) -> Result<(), Rejection> {
        let mut depth = 1u32;
        while depth > 0 {
            match self.next()? {
                Token::Open(..) => depth += 1,
                Token::Close => depth -= 1,
                Token::Text(_) => {}
            }
        }
        Ok(())
    }

    /// Takes the text that is directly in the present element, and leaves it.
    fn text(&mut self) -> Result<String, Rejection> {
        let mut text = String::new();
        let mut depth = 1u32;
        while depth > 0 {
            match self.next()? {
                Token::Open(..) => depth += 1,
                Token::Close => depth -= 1,
                Token::Text(piece) if depth == 1 => text.push_str(&piece),
                Token::Text(_) => {}
            }
        }
        Ok(text)
    }

    /// Takes the names of the elements inside the present one, and leaves it.
    fn names(
        &mut self,
        mut take: impl FnMut(PropertyName) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        while let Some(name) = self.child(|name| PropertyName::from_xml(name.namespace, name.local))? {
            self.skip()?;
            take(name)?;
        }
        Ok(())
    }

    /// Behind the outermost element.
    fn end(mut self) -> Result<(), Rejection> {
        // Comments and white space may follow, and no token.
        self.0.next()?;
        Ok(self.0.finish()?)
    }
}

#[cfg(test)]
mod tests;

//! A small document of XML as the texts in it, for answers that are nothing but a few named values.

use gridlane_core::Result;

use crate::xml::{Bounds, PIECE_BYTES, Token, XmlReader};

/// An element that has no other in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its local name behind those of the elements around it, the outermost first: `voms/error/code`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Bounds of such a document: elements inside each other, elements altogether, and bytes between two tags.
#[derive(Clone, Copy, Debug)]
pub struct LeafBounds {
    /// Elements inside each other.
    pub depth_max: usize,
    /// Elements altogether.
    pub elements_max: u64,
    /// Bytes of a tag, or of text between two tags.
    pub token_bytes_max: usize,
}

/// The elements without others in them, in their order. Attributes and namespaces are passed over, and so is text beside
/// elements.
///
/// # Errors
/// Of kind `Protocol`, when it is no XML or beyond the bounds.
pub fn leaves(document: &[u8], bounds: LeafBounds) -> Result<Vec<Leaf>> {
    let LeafBounds { depth_max, elements_max, token_bytes_max } = bounds;
    let mut xml = XmlReader::new(Bounds { depth_max, elements_max, token_bytes_max });
    let (mut leaves, mut path, mut text) = (Vec::new(), Vec::<String>::new(), String::new());
    // False behind the end of an element: the one around it is no leaf.
    let mut is_leaf = false;
    for piece in document.chunks(PIECE_BYTES) {
        xml.feed(piece);
        while let Some(token) = xml.next()? {
            match token {
                Token::Open(name, _) => {
                    path.push(name.local.to_owned());
                    text.clear();
                    is_leaf = true;
                }
                Token::Text(more) => text.push_str(&more),
                Token::Close => {
                    if is_leaf {
                        leaves.push(Leaf { path: path.join("/"), text: std::mem::take(&mut text) });
                    }
                    path.pop();
                    is_leaf = false;
                }
            }
        }
    }
    xml.finish()?;
    Ok(leaves)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: LeafBounds = LeafBounds { depth_max: 4, elements_max: 8, token_bytes_max: 100 };

    fn read(document: &str) -> Result<Vec<(String, String)>> {
        let found = leaves(document.as_bytes(), BOUNDS)?;
        Ok(found.into_iter().map(|leaf| (leaf.path, leaf.text)).collect())
    }

    #[test]
    fn texts_come_with_their_places() {
        let document = "<?xml version=\"1.0\" encoding = \"US-ASCII\"?><a>x<b q='1'>one &amp;\ntwo</b>y<c><d/></c></a>\n";
        let expected = [("a/b", "one &\ntwo"), ("a/c/d", "")];
        assert_eq!(
            read(document).unwrap(),
            expected.map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec()
        );
    }

    #[test]
    fn what_is_broken_or_too_much_is_refused() {
        let (deep, many, long) = (
            "<a><a><a><a><a/></a></a></a></a>".to_owned(),
            format!("<a>{}</a>", "<b/>".repeat(8)),
            format!("<a>{}</a>", "x".repeat(101)),
        );
        for document in ["", "<a>", "<a></b>", "<!DOCTYPE a><a/>", "a", &deep, &many, &long] {
            assert!(read(document).is_err(), "{document:?}");
        }
    }
}

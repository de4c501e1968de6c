//! Attribute certificates of VOMS, and the files beside them.

use gridlane_auth::gridmap::GridMap;
use gridlane_auth::voms::{self, VomsDir, VomsServer};
use gridlane_core::limits;

/// The value of a proxy's extension; and the same bytes as an `.lsc`, as a certificate of a server and as a grid-mapfile, as
/// addresses of servers and as what one of these answers.
pub(crate) fn voms(data: &[u8]) {
    if let Ok(claims) = voms::claims(data) {
        assert!(claims.len() <= limits::VOMS_CERTIFICATES_MAX);
        for claim in claims {
            assert!(!claim.vo.is_empty() && !claim.vo.contains('/') && !claim.host.contains(['/', '\0']));
            assert!(claim.fqans.len() <= limits::VOMS_FQANS_MAX);
            for fqan in claim.fqans {
                assert_eq!(fqan.vo(), claim.vo);
                let text = fqan.to_string();
                assert!(text.len() <= limits::VOMS_FQAN_BYTES_MAX);
                assert_eq!(text.parse().as_ref(), Ok(&fqan));
            }
        }
    }
    for path in ["atlas/voms.example.org.lsc", "atlas/voms.pem", "voms.pem"] {
        let (dir, warnings) = VomsDir::read([(path.to_owned(), data.to_vec())]);
        assert!(warnings.len() <= 1);
        assert!(!dir.is_empty() || !warnings.is_empty(), "{path} is of no use, and nothing is said of it");
    }
    let (map, warnings) = GridMap::read(data);
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(map.len() + warnings.len() <= lines);
    assert_eq!(map.user(""), None);
    for (dn, user) in map.iter() {
        assert!(dn.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{dn:?} is not as OpenSSL prints it");
        assert_eq!(map.user(dn), Some(user));
    }
    let (servers, warnings) = VomsServer::read_all(data);
    assert!(servers.len() + warnings.len() <= lines.min(limits::VOMSES_SERVERS_MAX + 1));
    for server in servers {
        assert!(server.port != 0 && !server.host.contains(['/', '@', '?', '#', '\0']), "{server:?}");
        assert!(!VomsServer::named(std::slice::from_ref(&server), &server.alias).is_empty());
    }
    match voms::read_answer(data) {
        Ok(answer) => {
            assert!(!answer.attribute_certificate.is_empty());
            assert!(answer.warnings.iter().all(|words| words.chars().count() <= limits::VOMS_WORDS_MAX));
        }
        Err(error) => assert!(!error.message().contains('\n'), "{error:?}"),
    }
    if let Some(end) = voms::document_end(data) {
        assert!(end <= data.len() && data[..end].ends_with(b">"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else what is changed in them would be tried with nothing.
    #[test]
    fn the_seeds_are_understood() {
        let seeds = crate::target("voms").all_seeds().inputs;
        let claims: Vec<_> = seeds[..2].iter().flat_map(|seed| voms::claims(seed).unwrap()).collect();
        let groups: Vec<String> = claims.iter().flat_map(|it| &it.fqans).map(ToString::to_string).collect();
        assert_eq!(groups, ["/testvo", "/testvo/prod/Role=manager", "/testvo"]);
        let read = |text: &[u8]| VomsDir::read([("testvo/h.lsc".to_owned(), text.to_vec())]).1;
        assert_eq!(read(&seeds[2]), [""; 0]);
        assert_eq!(GridMap::read(&seeds[3]).0.user("/DC=org/CN=robot"), Some("production"));
        assert_eq!(VomsServer::read_all(&seeds[4]).0.len(), 2);
        assert!(voms::read_answer(&seeds[5]).is_ok_and(|answer| answer.warnings == ["shorter"]));
        assert!(voms::read_answer(&seeds[6]).is_err_and(|error| error.message().contains("unknown")));
    }
}

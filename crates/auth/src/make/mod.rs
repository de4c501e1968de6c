//! Making credentials: certificates, proxies, revocation lists, attribute certificates.

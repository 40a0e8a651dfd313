// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proof of clients: tokens and certificates; and the names of this host that a request may have.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use subtle::ConstantTimeEq as _;

use crate::Error;

/// The fewest characters of a token: 16 random characters can't be guessed over a network.
const LEAST_TOKEN: usize = 16;
/// The most bytes of a file with a token.
const MOST_TOKEN: u64 = 4096;
/// Permissions that a file with a secret must not have: any for others, writing for the group.
const TOO_OPEN: u32 = 0o027;

/// A secret that a client must know.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Reads a token from the first line of a file.
    ///
    /// # Errors
    ///
    /// The file can't be read, others may read or write it, or it has no token of at least 16 characters.
    pub fn read(path: &Path) -> Result<Self, Error> {
        secret(path)?;
        let wrong = |why: &str| Error::Wrong(format!("{}: {why}", path.display()));
        if fs::metadata(path).is_ok_and(|file| file.len() > MOST_TOKEN) {
            return Err(wrong("longer than a token can be"));
        }
        let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < LEAST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong(
                "the first line is no token of at least 16 printable characters without spaces; make one with \
                 'openssl rand -hex 32'",
            ));
        }
        Ok(Self(token.to_owned()))
    }

    /// The header by which a client shows the token.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a request has the token: as a bearer token, or as the password of a browser's dialog (with any name). The time
    /// that the comparison takes does not depend on the token's characters.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let Some((scheme, given)) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '))
        else {
            return false;
        };
        let given = given.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(given.as_bytes());
        }
        scheme.eq_ignore_ascii_case("basic")
            && base64(given).is_some_and(|pair| {
                let password = pair.iter().position(|byte| *byte == b':').map(|colon| &pair[colon + 1..]);
                password.is_some_and(|password| self.is(password))
            })
    }

    fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

/// Decodes base64; `None`: it is none.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut word = 0_u32;
        for byte in group {
            word = word << 6 | u32::from(digit(*byte)?);
        }
        word <<= 6 * (4 - group.len());
        bytes.extend(&word.to_be_bytes()[1..group.len().max(1)]);
    }
    Some(bytes)
}

/// Refuses a file with a secret that other users can read or write.
pub(crate) fn secret(path: &Path) -> Result<(), Error> {
    let file = fs::metadata(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    if file.mode() & TOO_OPEN == 0 {
        return Ok(());
    }
    Err(Error::Wrong(format!(
        "{} has mode {:04o}, so that others can read or change the secret in it: chmod 600 {0}, and make a new secret",
        path.display(),
        file.mode() & 0o7777
    )))
}

/// The names that a request may call this host by. A page on another site could otherwise have a browser ask this host, by a
/// name of that site whose address it changes (DNS rebinding). An address is no such name.
pub fn host_is_known(headers: &HeaderMap, known: &[String]) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<IpAddr>().is_ok();
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        Some(_) => return false,
        None => host,
    };
    name.eq_ignore_ascii_case("localhost") || known.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The files of TLS, in PEM.
#[derive(Clone, Copy, Debug)]
pub struct TlsFiles<'a> {
    /// The certificate of this host, and those that lead to its root.
    pub cert: &'a Path,
    /// Its private key, which other users must not be able to read.
    pub key: &'a Path,
    /// The roots of the certificates that clients must have; `None`: clients need none.
    pub client_ca: Option<&'a Path>,
}

/// Reads the files of TLS.
///
/// # Errors
///
/// A file can't be read, or has no such content; others can read the key.
pub fn tls(files: TlsFiles<'_>) -> Result<Arc<rustls::ServerConfig>, Error> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| Error::Wrong(format!("{}: {why}", path.display()));
    secret(files.key)?;
    let certs = certificates(files.cert)?;
    let key = PrivateKeyDer::from_pem_file(files.key).map_err(|error| wrong(files.key, &error))?;
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(files.cert, &error))?;
    let builder = match files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).map_err(|error| wrong(path, &error))?;
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| wrong(path, &error))?)
        }
    };
    let mut config = builder.with_single_cert(certs, key).map_err(|error| wrong(files.cert, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::File {
        path: path.to_owned(),
        source: io::Error::other(error.to_string()),
    };
    let certs = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    let certs = certs.collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
    if certs.is_empty() { Err(failed(&"no certificate in PEM is in it")) } else { Ok(certs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: hyper::header::HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_token_is_known_by_all_its_characters() {
        let token = Token("0123456789abcdef".into());
        for (given, known) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef", true),
            ("Basic OjAxMjM0NTY3ODlhYmNkZWY=", true),
            ("Basic dG9wOjAxMjM0NTY3ODlhYmNkZWY=", true),
            ("Basic MDEyMzQ1Njc4OWFiY2RlZg==", false),
            ("Basic !", false),
            ("Bearer 0123456789abcdeF", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdef0", false),
            ("Bearer ", false),
            ("0123456789abcdef", false),
        ] {
            assert_eq!(token.is_in(&headers(AUTHORIZATION, given)), known, "{given}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")] {
            assert_eq!(base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(base64("Zm 8"), None);
    }

    #[test]
    fn hosts_are_addresses_or_names_that_were_given() {
        let known = ["top.example".to_owned()];
        for host in ["127.0.0.1", "10.0.0.1:80", "[::1]:9", "[::1]", "localhost", "LOCALHOST:9", "Top.Example:80"] {
            assert!(host_is_known(&headers(HOST, host), &known), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:x", "[::1"] {
            assert!(!host_is_known(&headers(HOST, host), &known), "{host}");
        }
        let mut two = headers(HOST, "localhost");
        two.append(HOST, "localhost".parse().unwrap());
        assert!(!host_is_known(&two, &known) && !host_is_known(&HeaderMap::new(), &known));
    }
}

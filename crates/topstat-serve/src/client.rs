// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of other hosts' `topstat serve`: the document of a table from each of them, now.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::Error;
use crate::access::{Token, certificates, secret};

/// How many hosts are asked at once.
pub const AT_ONCE: usize = 64;
/// How long the answer of a host may take: the server gives up after 5 s.
const ANSWER: Duration = Duration::from_secs(8);
/// The most bytes of a document: 1,024 rows with long paths have some 1 MB.
const MOST_BYTES: u64 = 16 << 20;
/// The most characters of a refusal that are shown.
const MOST_TOLD: usize = 200;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `https://web-1:9899`
    base: String,
    /// The host with its port: `web-1:9899`.
    host: String,
    /// No one on the network reads what is sent: it is encrypted, or stays on this host.
    private: bool,
}

impl Address {
    /// The host with its port.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address such as https://web-1:9899");
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let (Some(scheme @ ("http" | "https")), Some(host)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        let name = host.host();
        if name.is_empty() || host.as_str().contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_here = name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
        let base = format!("{scheme}://{host}");
        Ok(Self { base, host: host.as_str().to_owned(), private: scheme == "https" || is_here })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

/// The files by which servers and this client know each other, in PEM.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access<'a> {
    /// The token of the servers, in the first line. Other users must not be able to read it.
    pub token: Option<&'a Path>,
    /// The roots of the servers' certificates; `None`: the roots of the web.
    pub ca: Option<&'a Path>,
    /// The certificate of this client, and its key, which other users must not be able to read.
    pub cert: Option<(&'a Path, &'a Path)>,
}

/// Asks servers.
pub struct Client {
    agent: Agent,
    token: Option<Token>,
}

impl Client {
    /// A client with these files.
    ///
    /// # Errors
    ///
    /// A file can't be read, or has no such content; others can read a secret.
    pub fn new(access: Access<'_>) -> Result<Self, Error> {
        let token = access.token.map(Token::read).transpose()?;
        let der = |path| -> Result<Vec<_>, Error> {
            Ok(certificates(path)?.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect())
        };
        let mut tls = TlsConfig::builder();
        if let Some(path) = access.ca {
            tls = tls.root_certs(RootCerts::new_with_certs(&der(path)?));
        }
        if let Some((cert, key)) = access.cert {
            secret(key)?;
            let text = std::fs::read(key).map_err(|source| Error::File { path: key.to_owned(), source })?;
            let wrong = |error: ureq::Error| Error::Wrong(format!("{}: {error}", key.display()));
            let key = PrivateKey::from_pem(&text).map_err(wrong)?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&der(cert)?, key)));
        }
        let config = Agent::config_builder().timeout_global(Some(ANSWER)).max_redirects(0).http_status_as_error(false);
        let config = config.max_idle_connections(0).tls_config(tls.build()).build();
        Ok(Self { agent: Agent::new_with_config(config), token })
    }

    /// The document of a table (`net_cgroups/bps`) of a server.
    ///
    /// # Errors
    ///
    /// The server does not answer, or refuses; the text says why and what to do.
    pub fn table(&self, at: &Address, table: &str) -> Result<Vec<u8>, String> {
        let mut request = self.agent.get(format!("{}/api/v1/tables/{table}", at.base));
        if let Some(token) = &self.token {
            if !at.private {
                return Err("a token would cross the network in clear: use https, or a tunnel to localhost".to_owned());
            }
            request = request.header("Authorization", token.bearer());
        }
        let mut answer = request.call().map_err(|error| error.to_string())?;
        let body =
            answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec().map_err(|error| error.to_string())?;
        match answer.status().as_u16() {
            200 => Ok(body),
            401 => Err("the server wants its token: --token-file".to_owned()),
            status => {
                let why: String = String::from_utf8_lossy(&body).trim().chars().take(MOST_TOLD).collect();
                Err(format!("it answers {status}: {why}"))
            }
        }
    }

    /// Asks all these servers for a table, [`AT_ONCE`] at a time. `take` gets the document of each, or the reason why it is
    /// missing, as soon as it comes, and is called by several threads.
    pub fn tables(&self, all: &[Address], table: &str, take: impl Fn(&Address, Result<Vec<u8>, String>) + Sync) {
        let next = AtomicUsize::new(0);
        let ask = || {
            while let Some(at) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                take(at, self.table(at, table));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..AT_ONCE.min(all.len()) {
                // Where no more threads can be had, fewer ask.
                let _ = std::thread::Builder::new().spawn_scoped(scope, ask);
            }
            ask();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_nothing_else() {
        for (text, host, private) in [
            ("https://web-1:9899", "web-1:9899", true),
            ("https://web-1/", "web-1", true),
            ("http://127.0.0.1:9899", "127.0.0.1:9899", true),
            ("http://[::1]:9899", "[::1]:9899", true),
            ("http://localhost:9901", "localhost:9901", true),
            ("http://10.0.0.1:9899", "10.0.0.1:9899", false),
            ("http://localhost.example:9899", "localhost.example:9899", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host(), address.private), (host, private), "{text}");
        }
        for text in [
            "web-1:9899",
            "ftp://web-1",
            "https://",
            "https://web-1/page",
            "https://a@web-1",
            "https://web-1?x=1",
            "x y",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_never_crosses_a_network_in_clear() {
        let path = std::env::temp_dir().join(format!("topstat-client-token-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef0123\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let client = Client::new(Access { token: Some(&path), ..Access::default() });
        std::fs::remove_file(&path).unwrap();
        // The address is one for documentation, which no host has: nothing is asked.
        let refused = client.unwrap().table(&"http://192.0.2.1:9899".parse().unwrap(), "tasks/cpu").unwrap_err();
        assert!(refused.starts_with("a token would cross the network in clear"), "{refused}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tokens, names of the host, TLS.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use topstat_serve::client::{Access, Address, Client};
use topstat_serve::{Config, Listen, TlsFiles, Token};

use crate::model::{Model, Reply, Server};

const TOKEN: &str = "0123456789abcdef-secret";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-access-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_token_is_needed_over_tcp_alone() {
    let folder = Folder::new("token");
    let token = Token::read(&folder.file("token", &format!("{TOKEN}\n"), 0o600)).unwrap();
    let server = Server::with(true, |config| config.token = Some(token));
    for (headers, status) in [
        ("Host: localhost\r\n", 401),
        ("Host: localhost\r\nAuthorization: Bearer 0123456789abcdef-secre\r\n", 401),
        (&format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"), 200),
        (&format!("Host: 127.0.0.1:80\r\nAuthorization: Bearer {TOKEN}\r\n"), 200),
        (&format!("Host: evil.example\r\nAuthorization: Bearer {TOKEN}\r\n"), 421),
    ] {
        for path in ["/", "/metrics", "/api/v1/tables", "/none"] {
            let status = if path == "/none" && status == 200 { 404 } else { status };
            let reply = server.get_tcp(path, headers);
            assert_eq!(reply.status, status, "{path} {headers}");
            assert_eq!(reply.header("www-authenticate").is_some(), status == 401, "{reply:?}");
        }
    }
    assert_eq!(server.get("/api/v1/tables").status, 200, "the file's mode is enough for the socket");
    assert_eq!(fs::metadata(&server.unix).unwrap().mode() & 0o777, 0o660);
}

#[test]
fn a_name_that_is_not_known_gets_nothing() {
    let server = Server::with(true, |config| config.hosts = vec!["top.example".into()]);
    for (host, status) in [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("top.example", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ] {
        assert_eq!(server.get_tcp("/metrics", &format!("Host: {host}\r\n")).status, status, "{host}");
    }
    assert_eq!(server.get_tcp("/metrics", "").status, 421);
    assert_eq!(server.get_tcp("/metrics", "Host: localhost\r\nHost: evil.example\r\n").status, 421);
}

#[test]
fn every_answer_has_the_headers_of_safety() {
    let server = Server::start();
    for path in ["/", "/metrics", "/none", "/api/v1/tables", "/api/v1/tables/net_procs/bps?n=x"] {
        let reply = server.get(path);
        assert!(reply.header("content-security-policy").unwrap().starts_with("default-src 'none'; "), "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
}

fn refused(config: Config) -> String {
    let (_end, ending) = topstat_serve::End::new();
    topstat_serve::serve_until(config, Arc::new(Model::default()), ending).unwrap_err().to_string()
}

#[test]
fn a_network_reaches_nothing_without_proof() {
    let any = Listen::Tcp("0.0.0.0:0".parse().unwrap());
    let why = refused(Config { listen: vec![any], ..Config::default() });
    assert!(why.contains("can be reached by other hosts: give --token-file"), "{why}");
    assert!(refused(Config::default()).contains("no address"));
    let folder = Folder::new("refused");
    let read =
        |text: &str, mode: u32| Token::read(&folder.file("token", text, mode)).map(drop).unwrap_err().to_string();
    assert!(read(TOKEN, 0o644).contains("has mode 0644"));
    assert!(read(TOKEN, 0o620).contains("has mode 0620"));
    assert!(read("short", 0o600).contains("no token of at least 16"));
    assert!(read("a token with some spaces", 0o600).contains("no token of at least 16"));
    assert!(Token::read(&folder.0.join("none")).map(drop).unwrap_err().to_string().contains("cannot read"));
    let file = folder.file("file", "", 0o600);
    let on = |path: &Path| refused(Config { listen: vec![Listen::Unix(path.into(), 0o660)], ..Config::default() });
    assert!(on(&file).contains("cannot listen on") && file.exists());
}

#[test]
fn a_second_server_does_not_take_the_socket_and_a_dead_one_leaves_it() {
    let server = Server::start();
    let why = refused(Config { listen: vec![Listen::Unix(server.unix.clone(), 0o660)], ..Config::default() });
    assert!(why.contains("cannot listen on"), "{why}");
    assert_eq!(server.get("/healthz").status, 200);
    let folder = Folder::new("dead");
    let path = folder.0.join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let mut server = Server::with(false, |config| config.listen.push(Listen::Unix(path.clone(), 0o600)));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    server.stop();
    assert!(!path.exists(), "its socket is removed at the end");
}

/// Certificates in files: a root, the server's and a client's.
struct Pki {
    folder: Folder,
}

impl Pki {
    fn new() -> Self {
        let folder = Folder::new("tls");
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        folder.file("ca", &ca.pem(), 0o644);
        for name in ["localhost", "client"] {
            let key = KeyPair::generate().unwrap();
            let cert = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
            folder.file(&format!("{name}.cert"), &cert.pem(), 0o644);
            folder.file(&format!("{name}.key"), &key.serialize_pem(), 0o600);
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn certs(&self, name: &str) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(self.path(name)).unwrap().map(Result::unwrap).collect()
    }

    /// Gets a path over TLS, with the client's certificate or without.
    fn get(&self, server: &Server, certificate: bool) -> std::io::Result<Reply> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certs("ca").remove(0)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let config = if certificate {
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            builder.with_client_auth_cert(self.certs("client.cert"), key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let name = ServerName::try_from("localhost").unwrap();
        let client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = rustls::StreamOwned::new(client, std::net::TcpStream::connect(server.tcp.unwrap())?);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut reply = Vec::new();
        match stream.read_to_end(&mut reply) {
            Err(error) if reply.is_empty() => return Err(error),
            _ if reply.is_empty() => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        Ok(Reply::of(&reply))
    }
}

#[test]
fn a_client_shows_its_token_and_its_certificate() {
    let pki = Pki::new();
    let [cert, key, ca, own, own_key] =
        ["localhost.cert", "localhost.key", "ca", "client.cert", "client.key"].map(|name| pki.path(name));
    let secret = pki.folder.file("token", "0123456789abcdef0123\n", 0o600);
    let token = Token::read(&secret).unwrap();
    let tls = topstat_serve::access::tls(TlsFiles { cert: &cert, key: &key, client_ca: Some(&ca) }).unwrap();
    let server = Server::with(true, |config| {
        (config.tls, config.certificates, config.token) = (Some(tls), true, Some(token));
    });
    let at = |scheme: &str| format!("{scheme}://localhost:{}", server.tcp.unwrap().port()).parse::<Address>().unwrap();
    let all = Access { token: Some(&secret), ca: Some(&ca), cert: Some((&own, &own_key)) };
    let ask = |access, scheme: &str, table: &str| Client::new(access).unwrap().table(&at(scheme), table);
    let document: Value = serde_json::from_slice(&ask(all, "https", "tasks/cpu").unwrap()).unwrap();
    assert_eq!(document["sample"], "tasks");
    for (access, scheme, table, why) in [
        (all, "https", "tasks/nothing", "it answers 404: "),
        (all, "http", "tasks/cpu", ""),
        (Access { token: None, ..all }, "https", "tasks/cpu", "the server wants its token: --token-file"),
        (Access { cert: None, ..all }, "https", "tasks/cpu", ""),
        (Access { ca: None, ..all }, "https", "tasks/cpu", ""),
    ] {
        let refused = ask(access, scheme, table).unwrap_err();
        assert!(refused.starts_with(why), "{scheme} {table}: {refused}");
    }
    // Many servers are asked beside each other, each of them once.
    let nowhere: Address = "https://localhost:1".parse().unwrap();
    let hosts: Vec<_> = (0..200).map(|number| if number % 10 == 7 { nowhere.clone() } else { at("https") }).collect();
    let answers = Mutex::new((0, 0));
    Client::new(all).unwrap().tables(&hosts, "tasks/cpu", |at, answer| {
        assert_eq!(answer.is_err(), *at == nowhere, "{at}: {answer:?}");
        let mut answers = answers.lock().unwrap();
        *(if answer.is_ok() { &mut answers.0 } else { &mut answers.1 }) += 1;
    });
    assert_eq!(answers.into_inner().unwrap(), (180, 20));
    fs::set_permissions(&own_key, fs::Permissions::from_mode(0o644)).unwrap();
    let why = Client::new(all).map(drop).unwrap_err().to_string();
    assert!(why.contains("has mode 0644"), "{why}");
}

#[test]
fn tls_hides_and_certificates_prove() {
    let pki = Pki::new();
    let [cert, key, ca] = ["localhost.cert", "localhost.key", "ca"].map(|name| pki.path(name));
    let files = TlsFiles { cert: &cert, key: &key, client_ca: None };
    let tls = topstat_serve::access::tls(files).unwrap();
    let server = Server::with(true, |config| config.tls = Some(tls));
    assert_eq!(pki.get(&server, false).unwrap().status, 200);
    let plain = server.raw_tcp(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!plain.starts_with(b"HTTP"), "{plain:?}");
    assert_eq!(server.get("/healthz").status, 200, "the socket in the file system stays as it is");
    drop(server);
    let tls = topstat_serve::access::tls(TlsFiles { client_ca: Some(&ca), ..files }).unwrap();
    let server = Server::with(true, |config| (config.tls, config.certificates) = (Some(tls), true));
    assert_eq!(pki.get(&server, true).unwrap().status, 200);
    assert!(pki.get(&server, false).is_err(), "without a certificate");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let why = topstat_serve::access::tls(files).map(drop).unwrap_err().to_string();
    assert!(why.contains("has mode 0644"), "{why}");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer to each request.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use crate::query::Query;
use crate::server::App;
use crate::source::Fault;
use crate::{access, api, metrics, page, stream};

/// The body of an answer: all of it, or a stream.
pub type Body = Either<Full<Bytes>, Channel<Bytes, Infallible>>;

/// The parts of an answer that differ.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The content type.
    pub kind: &'static str,
    /// A tag of the content; `None`: no tag.
    pub tag: Option<String>,
    /// The content is compressed by gzip.
    pub packed: bool,
    /// The content.
    pub body: Body,
}

pub const JSON: &str = "application/json";

/// Headers of all answers. A page gets its scripts, styles and data from here alone, is in no frame, and its addresses go to no
/// other site.
const SAFE: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::CACHE_CONTROL, "private, no-cache"),
    (header::VARY, "accept, accept-encoding"),
];

impl Answer {
    /// An answer with a body.
    pub fn new(kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, kind, tag: None, packed: false, body: Either::Left(Full::new(body.into())) }
    }

    /// The answer with a tag, by which a client knows whether the content has changed.
    pub fn tagged(self, tag: impl Into<String>) -> Self {
        Self { tag: Some(tag.into()), ..self }
    }

    /// A document.
    pub fn json(document: &impl serde::Serialize) -> Self {
        let mut text = Vec::new();
        match topstat_model::json::line(document, &mut text) {
            Ok(()) => Self::new(JSON, text),
            Err(error) => Self::wrong(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    /// An error.
    pub fn wrong(status: StatusCode, why: &str) -> Self {
        Self { status, ..Self::json(&json!({ "error": why })) }
    }
}

impl From<Fault> for Answer {
    fn from(fault: Fault) -> Self {
        let status = match fault {
            Fault::Missing(_) => StatusCode::NOT_FOUND,
            Fault::Wrong(_) => StatusCode::BAD_REQUEST,
            Fault::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::wrong(status, &fault.to_string())
    }
}

/// Answers a request.
pub async fn answer(app: &Arc<App>, tcp: bool, request: Request<Incoming>) -> Response<Body> {
    let has_body = !request.body().is_end_stream();
    let (request, _) = request.into_parts();
    let mut response = match refused(app, tcp, &request.method, &request.headers, has_body) {
        Some(refused) => response(refused, &request.headers),
        None => {
            let query = Query::new(request.uri.query());
            let answer = route(app, &request, query).await.unwrap_or_else(Answer::from);
            response(answer, &request.headers)
        }
    };
    let status = response.status();
    let headers = response.headers_mut();
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if status == StatusCode::UNAUTHORIZED {
        // Browsers ask for a name and a password; the password is the token.
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"topstat\""));
    }
    if has_body {
        // The body is not read.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    app.counts.requests[usize::from(status.as_u16() / 100).min(5)].fetch_add(1, Ordering::Relaxed);
    response
}

/// Why a request is not looked at.
fn refused(app: &App, tcp: bool, method: &Method, headers: &HeaderMap, has_body: bool) -> Option<Answer> {
    let wrong = |status, why: &str| Some(Answer::wrong(status, why));
    if tcp && !access::host_is_known(headers, &app.config.hosts) {
        let why =
            "the name in Host is not known: ask by address or as localhost, or start topstat serve with --host NAME";
        return wrong(StatusCode::MISDIRECTED_REQUEST, why);
    }
    if tcp && app.config.token.as_ref().is_some_and(|token| !token.is_in(headers)) {
        let why = "a token is needed: Authorization: Bearer TOKEN, with the first line of the server's --token-file";
        return wrong(StatusCode::UNAUTHORIZED, why);
    }
    if method != Method::GET && method != Method::HEAD {
        return wrong(StatusCode::METHOD_NOT_ALLOWED, "nothing can be set here: only GET and HEAD are answered");
    }
    if has_body {
        return wrong(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here");
    }
    None
}

/// Finds what a path means.
async fn route(app: &Arc<App>, request: &hyper::http::request::Parts, query: Query) -> Result<Answer, Fault> {
    let path = request.uri.path();
    let parts: Vec<_> = path.strip_prefix("/api/v1/").unwrap_or_default().split('/').collect();
    match (path, &parts[..]) {
        ("/metrics", _) => {
            query.end()?;
            Ok(metrics::answer(app, &request.headers).await)
        }
        ("/healthz", _) => {
            query.end()?;
            let tables = app.live.tables().await?;
            Ok(Answer::json(&json!({ "tables": tables.len() })))
        }
        (_, ["tables"]) => api::tables(app, query).await,
        (_, ["tables", sample, table]) => api::table(app, &format!("{sample}/{table}"), query).await,
        (_, ["history", sample, table]) => api::history(app, &format!("{sample}/{table}"), query).await,
        (_, ["host"]) => {
            query.end()?;
            Ok(Answer::json(&app.live.host().await?))
        }
        (_, ["stream"]) => stream::answer(app, &request.method, query).await,
        (_, ["openapi.json"]) => Ok(Answer::new(JSON, &include_bytes!("openapi.json")[..])),
        _ => match page::file(path, packs(&request.headers)) {
            Some(file) => Ok(Answer { packed: file.packed, ..Answer::new(file.kind, file.bytes).tagged(file.tag) }),
            None => Err(Fault::Missing("there is nothing at this path; /api/v1/openapi.json has all paths".to_owned())),
        },
    }
}

/// Whether a client understands gzip.
fn packs(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut accepted = accepted.flat_map(|value| value.split(','));
    accepted
        .any(|one| one.trim() == "gzip" || one.trim().starts_with("gzip;") && !one.replace(' ', "").ends_with(";q=0"))
}

/// Makes the response; a client that has the content already gets none.
fn response(answer: Answer, headers: &HeaderMap) -> Response<Body> {
    let tag = answer.tag.as_ref().and_then(|tag| HeaderValue::from_str(&format!("\"{tag}\"")).ok());
    let known = tag.as_ref().is_some_and(|tag| {
        let given = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let mut given = given.flat_map(|value| value.split(',').map(|one| one.trim().trim_start_matches("W/")));
        tag.to_str().is_ok_and(|tag| given.any(|one| one == tag || one == "*"))
    });
    let mut response = if known && answer.status == StatusCode::OK {
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let mut response = Response::new(answer.body);
        *response.status_mut() = answer.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.kind));
        response
    };
    let headers = response.headers_mut();
    if answer.packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for (name, value) in SAFE {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(tag) = tag {
        headers.insert(header::ETAG, tag);
    }
    response
}

//! What every request must have and every answer gets, whatever it is about.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::Failure;
use crate::routes::Shared;

/// Script and style come from here alone, nothing is framed, no form goes elsewhere, and texts never become
/// HTML (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// The header that only scripts of the same origin can send without asking first.
const OWN: &str = "x-skewer";

/// Refuses requests for other hosts and, if they have effects, from other origins; adds headers to answers.
pub(crate) async fn guarded(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let refused = refusal(&shared.hosts, request.method(), request.headers());
    let mut response = match refused {
        Some(failure) => failure.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(CONTENT_SECURITY_POLICY, POLICY);
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(REFERRER_POLICY, "no-referrer");
    set(
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    set(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

fn refusal(hosts: &[String], method: &Method, headers: &HeaderMap) -> Option<Failure> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| is_served(hosts, host)) {
        return Some(Failure::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "this server is not {}: start it with --http-host to serve the name",
                host.unwrap_or("named in the request")
            ),
        ));
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let same_origin = headers.get(ORIGIN).is_none_or(|origin| {
        let origin = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"));
        origin.is_some_and(|(_, authority)| Some(authority) == host)
    });
    let same_site = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    if same_origin && same_site && text(OWN) == Some("1") {
        return None;
    }
    Some(Failure::new(
        StatusCode::FORBIDDEN,
        "only the page itself may send this: another site, or a program without the header X-Skewer, did",
    ))
}

/// Whether a `Host` header names this server. A page of another site that has its name resolve to this machine
/// (DNS rebinding) sends its own name.
fn is_served(hosts: &[String], host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host().trim_matches(['[', ']']);
    let is_loopback =
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || hosts.iter().any(|served| served.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(method: Method, headers: &[(&'static str, &'static str)]) -> Option<StatusCode> {
        let hosts = ["db.example".to_owned()];
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        refusal(&hosts, &method, &headers.collect()).map(|failure| failure.0)
    }

    #[test]
    fn only_names_of_this_server_are_served() {
        for host in [
            "localhost",
            "localhost:8432",
            "127.0.0.1:1",
            "[::1]:8432",
            "DB.example:80",
        ] {
            assert_eq!(refused(Method::GET, &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1:80",
            "",
            "a b",
        ] {
            let refused = refused(Method::GET, &[("host", host)]);
            assert_eq!(refused, Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        assert_eq!(
            refused(Method::GET, &[]),
            Some(StatusCode::MISDIRECTED_REQUEST)
        );
    }

    #[test]
    fn only_the_page_itself_has_effects() {
        let host = ("host", "localhost:8432");
        let own = ("x-skewer", "1");
        assert_eq!(refused(Method::POST, &[host, own]), None);
        assert_eq!(
            refused(
                Method::POST,
                &[host, own, ("origin", "http://localhost:8432")]
            ),
            None
        );
        for headers in [
            &[host][..],
            &[host, own, ("origin", "http://evil.example")],
            &[host, own, ("origin", "http://localhost:9")],
            &[host, own, ("origin", "null")],
            &[host, own, ("sec-fetch-site", "cross-site")],
            &[host, own, ("sec-fetch-site", "same-site")],
        ] {
            assert_eq!(
                refused(Method::POST, headers),
                Some(StatusCode::FORBIDDEN),
                "{headers:?}"
            );
        }
    }
}

//! The dashboard: static files at `/` of the HTTP port, which ask the admin API for everything.
//!
//! The files are in `assets/` and part of the program. They have no data of the node, so they need
//! no token. The policy of the page's content ([`POLICY`]) lets it load scripts and styles from
//! this node alone, and send requests to no other.

pub(crate) mod files;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sherwood_ports::http::{InPath, Problem};

use files::{FILES, File, find};

/// Content-Security-Policy of the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Answers with the page.
pub(crate) async fn page(headers: HeaderMap) -> Response {
    answer(&FILES[0], &headers)
}

/// Answers with a file of the page.
pub(crate) async fn file(InPath(name): InPath<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "the dashboard has no such file; open /");
    find(&name).map(|file| answer(file, &headers)).ok_or_else(unknown)
}

/// The file, or that the client has it already. Browsers keep it and ask each time whether it has
/// changed, since another version of the node has the same addresses.
fn answer(file: &'static File, headers: &HeaderMap) -> Response {
    let tag = file.tag();
    let has_it = headers.get_all(header::IF_NONE_MATCH).iter().any(|tags| {
        let is_tag =
            |one: &str| matches!(one.trim(), one if one == "*" || one.trim_start_matches("W/") == tag);
        tags.to_str().is_ok_and(|tags| tags.split(',').any(is_tag))
    });
    let mut response = if has_it {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Bytes::from_static(file.bytes).into_response()
    };
    let fixed = [
        (header::CONTENT_TYPE, file.media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let headers = response.headers_mut();
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).expect("hexadecimal digits in quotes"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_has_the_file_is_told_so() {
        let tag = FILES[0].tag();
        let status = |value: &str| {
            let headers = [(header::IF_NONE_MATCH, value.parse().unwrap())].into_iter().collect();
            answer(&FILES[0], &headers).status()
        };
        for same in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".to_owned()] {
            assert_eq!(status(&same), StatusCode::NOT_MODIFIED, "{same}");
        }
        for other in ["\"other\"", "", "W/"] {
            assert_eq!(status(other), StatusCode::OK, "{other}");
        }
    }
}

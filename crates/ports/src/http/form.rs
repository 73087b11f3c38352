//! The form of JSON answers: one line for programs, indented for people.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::Response;

const JSON: &[u8] = b"application/json";
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Marks an answer in one line that ends with a newline, so that its body need not be copied.
#[derive(Clone, Copy, Debug)]
pub struct EndsLine;

/// Ends JSON answers with a newline. They are indented if the query has `pretty`, or if the client
/// accepts plain text but not JSON; then they are plain text, too.
pub async fn form(request: Request, next: Next) -> Response {
    let plain = wants_plain(request.headers());
    let indented = plain || wants_indented(request.uri());
    let response = next.run(request).await;
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == JSON);
    let is_formed = !indented && response.extensions().get::<EndsLine>().is_some();
    if !is_json || is_formed {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // The node wrote the body, which is whole and bounded.
    let Ok(body) = to_bytes(body, usize::MAX).await else { return Response::from_parts(head, Body::empty()) };
    let mut text = if indented { indent(&body) } else { body.to_vec() };
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    head.headers.remove(CONTENT_LENGTH);
    if plain {
        head.headers.insert(CONTENT_TYPE, PLAIN);
    }
    Response::from_parts(head, Body::from(text))
}

fn wants_indented(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| part == "pretty" || part == "pretty=true"))
}

fn wants_plain(headers: &HeaderMap) -> bool {
    let accepts = |kind: &str| {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|one| one.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(kind))
    };
    accepts("text/plain") && !["application/json", "application/*", "*/*"].into_iter().any(accepts)
}

/// Indents a JSON text, with its keys in the same order.
fn indent(json: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(2 * json.len());
    let mut to = serde_json::Serializer::pretty(&mut text);
    match serde_transcode::transcode(&mut serde_json::Deserializer::from_slice(json), &mut to) {
        Ok(()) => text,
        Err(_) => json.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use axum::{Extension, Json, Router, middleware, routing::get};
    use serde_json::json;
    use tower_service::Service;

    use super::*;

    async fn answer(path: &str, accept: Option<&str>) -> (String, String) {
        let json = [(header::CONTENT_TYPE, "application/json")];
        let mut router = Router::new()
            .route("/json", get(async || Json(json!({"b": [1, 0.5], "a": {}}))))
            .route("/line", get(async move || (Extension(EndsLine), json, "{\"z\":1,\"a\":2}\n")))
            .route("/text", get(async || "ok"))
            .layer(middleware::from_fn(form));
        let mut request = Request::builder().uri(path);
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        let response = router.call(request.body(Body::empty()).unwrap()).await.unwrap();
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn json_ends_its_line_and_is_indented_on_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let body = |path, accept| runtime.block_on(answer(path, accept));
        let (json, plain) = ("application/json", "text/plain; charset=utf-8");
        let is = |kind: &str, text: &str| (kind.to_owned(), text.to_owned());
        assert_eq!(body("/json", None), is(json, "{\"a\":{},\"b\":[1,0.5]}\n"));
        assert_eq!(body("/line", Some("*/*")), is(json, "{\"z\":1,\"a\":2}\n"));
        let indented = "{\n  \"z\": 1,\n  \"a\": 2\n}\n";
        assert_eq!(body("/line?pretty", None), is(json, indented));
        assert_eq!(body("/line?a=1&pretty=true", Some("application/json, text/plain")), is(json, indented));
        assert_eq!(body("/line", Some("text/plain;q=0.9")), is(plain, indented));
        assert_eq!(body("/line", Some("Text/Plain")), is(plain, indented));
        assert_eq!(body("/text?pretty", None), is(plain, "ok"));
    }
}

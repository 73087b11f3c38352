//! Signatures of requests (AWS Signature Version 4).

use std::sync::Arc;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use sherwood_textfile::{Reader, Watched};

use super::options::AwsCredentials;
use crate::{Cause, OpenCause};

/// The credentials with which requests are signed, and the region and service that they are for.
pub(super) struct Signer {
    credentials: Watched<Credentials>,
    region: String,
    service: &'static str,
}

impl Signer {
    /// Reads the credentials from their `places`; files are read again when they change.
    pub(super) fn open(places: &AwsCredentials, region: &str) -> Result<Self, OpenCause> {
        let places = places.clone();
        Self::new(move |reader| places.read(reader), region, "dynamodb")
    }

    fn new(
        read: impl Fn(&mut Reader) -> Result<Credentials, OpenCause> + Send + Sync + 'static,
        region: &str,
        service: &'static str,
    ) -> Result<Self, OpenCause> {
        Ok(Self { credentials: Watched::open(read)?, region: region.to_owned(), service })
    }

    /// Returns the current credentials.
    pub(super) fn current(&self) -> Arc<Credentials> {
        self.credentials.current()
    }

    /// Returns the credentials to use instead of `refused`; none if they have not changed.
    pub(super) fn newer_than(&self, refused: &Arc<Credentials>) -> Option<Arc<Credentials>> {
        self.credentials.newer_than(refused)
    }

    /// Signs a request by `credentials` with this `body`, its host and all the headers that it has,
    /// at the time `now`, and adds the headers of the signature. AWS refuses a signature that is
    /// older than some minutes.
    ///
    /// # Errors
    /// When the request cannot be signed, which no request of ours should cause.
    pub(super) fn sign(
        &self,
        credentials: &Credentials,
        request: &mut Request<Full<Bytes>>,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), Cause> {
        let failed = |error: &dyn std::error::Error| Cause::Statement {
            detail: format!("the request cannot be signed: {error}"),
        };
        let identity = credentials.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(now)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| failed(&error))?
            .into();
        let url = request.uri().to_string();
        let headers = request.headers().iter();
        let headers = headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let method = request.method().as_str();
        let signable = SignableRequest::new(method, url, headers, SignableBody::Bytes(body));
        let signed = sign(signable.map_err(|error| failed(&error))?, &params);
        let (instructions, _) = signed.map_err(|error| failed(&error))?.into_parts();
        instructions.apply_to_request_http1x(request);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 2015-08-30T12:36:00Z, the time of AWS's published examples.
    fn time_of_examples() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160)
    }

    fn signed(
        service: &'static str,
        token: Option<&str>,
        url: &str,
        body: &'static str,
    ) -> Request<Full<Bytes>> {
        let mut credentials = Credentials::builder()
            .access_key_id("AKIDEXAMPLE")
            .secret_access_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
            .provider_name("test");
        credentials.set_session_token(token.map(str::to_owned));
        let credentials = credentials.build();
        let signer = Signer::new(move |_| Ok(credentials.clone()), "us-east-1", service).unwrap();
        let mut request = Request::post(url).body(Full::from(body)).unwrap();
        if service == "dynamodb" {
            let headers = request.headers_mut();
            headers.insert("content-type", "application/x-amz-json-1.0".parse().unwrap());
            headers.insert("x-amz-target", "DynamoDB_20120810.GetItem".parse().unwrap());
        }
        signer.sign(&signer.current(), &mut request, body.as_bytes(), time_of_examples()).unwrap();
        request
    }

    fn authorization(request: &Request<Full<Bytes>>) -> &str {
        request.headers()["authorization"].to_str().unwrap()
    }

    /// The examples `post-vanilla` and `post-sts-header-before` of AWS's test suite of signatures.
    #[test]
    fn published_examples_are_signed_as_published() {
        let plain = signed("service", None, "https://example.amazonaws.com/", "");
        assert_eq!(
            authorization(&plain),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
        let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
        let temporary = signed("service", Some(token), "https://example.amazonaws.com/", "");
        assert_eq!(temporary.headers()["x-amz-security-token"], token);
        assert!(!format!("{temporary:?}").contains(token), "it is not shown");
        assert!(authorization(&temporary).ends_with(
            "SignedHeaders=host;x-amz-date;x-amz-security-token, \
             Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
        ));
    }

    /// The expected signature was computed by the specification with Python's `hmac`.
    #[test]
    fn signature_of_a_request_covers_operation_host_port_and_body() {
        let body = r#"{"TableName":"orders"}"#;
        let request = signed("dynamodb", None, "http://127.0.0.1:8000/", body);
        assert_eq!(
            authorization(&request),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/dynamodb/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=b1a5339e09c613fbf9d1ddb63f2607808158a7a4c509177c0b2591614354a9e9"
        );
        let other = signed("dynamodb", None, "http://127.0.0.1:8001/", body);
        assert_ne!(authorization(&other), authorization(&request));
    }
}

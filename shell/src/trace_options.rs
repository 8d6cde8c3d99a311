//! Where `skewer serve` sends traces: an option of the command line, and the environment that programs with
//! OpenTelemetry have in common.

use std::env;
use std::path::PathBuf;

use skewer_web::TraceOptions;

use crate::error::ShellError;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// Where traces go: to `endpoint`, or to the one of the environment. `None` if there is neither.
///
/// # Errors
/// If the environment's headers are none.
pub fn trace_options(endpoint: Option<&str>) -> Result<Option<TraceOptions>, ShellError> {
    from(endpoint, |name| env::var(name).ok())
}

fn from(
    endpoint: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<TraceOptions>, ShellError> {
    // An empty variable is as good as none.
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let Some(endpoint) = endpoint.map(str::to_owned).or_else(|| variable(ENDPOINT)) else {
        return Ok(None);
    };
    let mut options = TraceOptions::new(endpoint.trim());
    options.certificate = variable(CERTIFICATE).map(PathBuf::from);
    if let Some(service) = variable(SERVICE) {
        options.service = service;
    }
    let headers = variable(HEADERS).unwrap_or_default();
    for pair in headers.split(',').filter(|pair| !pair.trim().is_empty()) {
        let header = pair
            .split_once('=')
            .and_then(|(name, value)| Some((name.trim().to_owned(), decoded(value.trim())?)));
        // The value may be a secret.
        options.headers.push(header.ok_or_else(|| {
            ShellError::Usage(format!("{HEADERS} is not a list as name=value,name=value"))
        })?);
    }
    Ok(Some(options))
}

/// A text without its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(
        endpoint: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Result<Option<TraceOptions>, ShellError> {
        from(endpoint, |name| {
            let mut pairs = environment.iter();
            let found = pairs.find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn the_option_comes_before_the_environment() {
        let environment = [
            (ENDPOINT, "http://collector:4318"),
            (SERVICE, "shop"),
            (HEADERS, "authorization=Bearer%20a%3D, x-team = data"),
        ];
        assert!(options(None, &[]).unwrap().is_none());
        assert!(options(None, &[(ENDPOINT, " ")]).unwrap().is_none());
        let of_environment = options(None, &environment).unwrap().unwrap();
        assert_eq!(of_environment.endpoint, "http://collector:4318");
        assert_eq!(of_environment.service, "shop");
        let headers = [("authorization", "Bearer a="), ("x-team", "data")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(of_environment.headers, headers);
        let given = options(Some("http://other:1"), &environment)
            .unwrap()
            .unwrap();
        assert_eq!(given.endpoint, "http://other:1");
        for wrong in ["secret", "a=%4", "a=%zz", "a=%ff"] {
            let error = options(Some("http://a"), &[(HEADERS, wrong)]).unwrap_err();
            assert!(!error.to_string().contains(wrong), "{error}");
        }
    }
}

//! Checks the token that changes need. It is read from a file for each change, so that it can be replaced while the daemon
//! runs, and it is never logged.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use orlop_sys::file;
use sha2::{Digest, Sha256};

use super::Refusal;

/// A shorter token could be guessed.
const SHORTEST: usize = 16;
const LONGEST: usize = 4096;
/// The answer to a wrong token is delayed by this.
const WRONG_TOKEN_DELAY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Checks the file; returns a warning if other users can read it.
    pub(super) fn check(&self) -> Result<Option<String>, String> {
        self.digest()?;
        let mode = std::fs::metadata(&self.path).map_or(0, |file| file.mode());
        Ok((mode & 0o004 != 0).then(|| {
            format!(
                "every user of this machine can read the token of the page in {}; remove that permission with \
                 `chmod o= FILE`",
                self.path.display()
            )
        }))
    }

    /// The digest of the token. Digests are compared, so that the time does not depend on the length or the contents.
    fn digest(&self) -> Result<[u8; 32], String> {
        let path = self.path.display();
        let read = file::read_small(&self.path, LONGEST)
            .map_err(|error| format!("cannot read the token in {path}: {}", error.cause()))?;
        let token = read.trim_ascii();
        match token.len() >= SHORTEST && token.iter().all(u8::is_ascii_graphic) {
            true => Ok(Sha256::digest(token).into()),
            false => Err(format!(
                "the token in {path} is not one line of at least {SHORTEST} letters, digits and signs; make \
                 one with `openssl rand -hex 32`"
            )),
        }
    }

    /// Reads the file on a blocking thread: its disk may hang, and the calls of CSI are answered on this one. `permit`
    /// is held until it is read, however long that takes, so that few threads wait for it.
    pub(super) async fn check_given<P: Send + 'static>(
        &self,
        headers: &HeaderMap,
        permit: P,
    ) -> Result<P, Refusal> {
        let file = self.clone();
        let reading = tokio::task::spawn_blocking(move || (file.digest(), permit));
        let (expected, permit) = reading.await.map_err(|error| {
            tracing::error!(%error, "the token of the page was not read");
            let why = "the request failed; see the log of the daemon";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why)
        })?;
        if is_given(headers, expected)? {
            return Ok(permit);
        }
        tokio::time::sleep(WRONG_TOKEN_DELAY).await;
        tracing::warn!("a change on the page was refused: its token is missing or wrong");
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong"))
    }
}

fn is_given(headers: &HeaderMap, expected: Result<[u8; 32], String>) -> Result<bool, Refusal> {
    let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.strip_prefix(b"Bearer ")).unwrap_or_default();
    let expected = expected.map_err(|why| {
        tracing::error!(
            why,
            "cannot check the token of a change on the page; the change is refused"
        );
        let why = "the daemon cannot read its token; see its log";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
    })?;
    Ok(is_same(&Sha256::digest(given.trim_ascii()).into(), &expected))
}

fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn file(contents: &str) -> (tempfile::TempDir, TokenFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, contents).unwrap();
        (directory, TokenFile::at(path))
    }

    fn given(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    fn accepts(token: &TokenFile, headers: &HeaderMap) -> Result<bool, Refusal> {
        is_given(headers, token.digest())
    }

    #[test]
    fn only_the_token_itself_is_accepted() {
        let (_directory, token) = file(&format!("{TOKEN}\n"));
        assert!(accepts(&token, &given(&format!("Bearer {TOKEN}"))).unwrap());
        let cut = &TOKEN[..31];
        for wrong in ["Bearer ", "Bearer x", TOKEN, &format!("Bearer {cut}"), "Basic eDp5"] {
            assert!(!accepts(&token, &given(wrong)).unwrap(), "{wrong}");
        }
        assert!(!accepts(&token, &HeaderMap::new()).unwrap());
    }

    #[test]
    fn a_token_can_be_replaced_while_the_daemon_runs() {
        let (directory, token) = file(TOKEN);
        let other = "another-token-of-some-length";
        std::fs::write(directory.path().join("token"), other).unwrap();
        assert!(accepts(&token, &given(&format!("Bearer {other}"))).unwrap());
        assert!(!accepts(&token, &given(&format!("Bearer {TOKEN}"))).unwrap());
        std::fs::remove_file(directory.path().join("token")).unwrap();
        let refusal = accepts(&token, &given(&format!("Bearer {other}"))).unwrap_err();
        assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn a_token_that_could_be_guessed_is_refused() {
        for bad in ["", "short", "two words of some length", "line one long\nline two long"] {
            let (_directory, token) = file(bad);
            let why = token.check().unwrap_err();
            assert!(why.contains("16") && (bad.is_empty() || !why.contains(bad)), "{why}");
        }
    }
}

//! Whether the daemon's own certificate holds, now and soon: its peers find out by refusing it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, RootCertStore};

/// Before the end of a certificate that was valid for at least twice as long.
const EXPIRY_WARNING: Duration = Duration::from_secs(3 * 24 * 60 * 60);

pub(super) struct Validity {
    /// The daemon's own first, then those between it and the CA.
    chain: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    logged: Mutex<Option<ValidityProblem>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValidityProblem {
    Expired,
    NotYetValid,
    ExpiresSoon,
}

impl fmt::Display for ValidityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => {
                "the certificate for peers, or its CA, has expired, so peers refuse this daemon; renew it"
            }
            Self::NotYetValid => {
                "the certificate for peers, or its CA, is not valid yet, so peers refuse this daemon; \
                 compare the clock of this node with that of the CA"
            }
            Self::ExpiresSoon => {
                "the certificate for peers, or its CA, expires within three days; renew it, or peers \
                 refuse this daemon"
            }
        })
    }
}

impl Validity {
    pub(super) fn new(chain: Vec<CertificateDer<'static>>, roots: Arc<RootCertStore>) -> Self {
        Self { chain, roots, logged: Mutex::default() }
    }

    pub(super) fn expiry(&self) -> Option<u64> {
        let of_one = |certificate: &CertificateDer<'_>| {
            let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
            u64::try_from(parsed.validity().not_after.timestamp()).ok()
        };
        self.chain.iter().filter_map(of_one).min()
    }

    fn check(&self, at: UnixTime) -> Result<(), rustls::Error> {
        let Some((own, between)) = self.chain.split_first() else { return Ok(()) };
        super::check_signed(own, between, &self.roots, at)
    }

    /// By the CA, whatever the time is.
    pub(super) fn check_signed(&self, now: UnixTime) -> Result<(), rustls::Error> {
        match self.check(now) {
            Err(error) if problem_of_time(&error).is_none() => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn is_refused(&self, now: UnixTime) -> bool {
        self.check(now).is_err()
    }

    pub(super) fn problem(&self, now: UnixTime) -> Option<ValidityProblem> {
        if let Err(error) = self.check(now) {
            return problem_of_time(&error);
        }
        let since = |duration| UnixTime::since_unix_epoch(duration);
        let seconds = Duration::from_secs(now.as_secs());
        let is_long_lived = self.check(since(seconds.saturating_sub(EXPIRY_WARNING))).is_ok();
        let ends = self.check(since(seconds + EXPIRY_WARNING)).is_err();
        (is_long_lived && ends).then_some(ValidityProblem::ExpiresSoon)
    }

    /// Once for each problem.
    pub(super) fn log_change(&self, now: UnixTime) {
        let problem = self.problem(now);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if *logged == problem {
            return;
        }
        *logged = problem;
        match problem {
            None => {}
            Some(soon @ ValidityProblem::ExpiresSoon) => tracing::warn!("{soon}"),
            Some(problem) => tracing::error!("{problem}"),
        }
    }
}

fn problem_of_time(error: &rustls::Error) -> Option<ValidityProblem> {
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    if matches!(error, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        return Some(ValidityProblem::Expired);
    }
    let is_early = matches!(
        error,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }
    );
    is_early.then_some(ValidityProblem::NotYetValid)
}

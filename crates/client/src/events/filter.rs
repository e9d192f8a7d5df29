//! Which events are shown.

use std::time::{Duration, SystemTime};

use orlop_csi::proto::monitor;

use super::EventsArguments;
use crate::failure::{Failure, Result};
use crate::session::Session;
use crate::{inventory, resolve};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, clap::ValueEnum)]
pub(super) enum Level {
    #[default]
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Ago(Duration),
    Time(SystemTime),
}

pub(super) fn since(text: &str) -> std::result::Result<Since, String> {
    let wrong = || {
        "it is neither a duration such as 90s, 10m, 2h or 1d nor a time such as 2026-11-18T11:43:01Z".to_owned()
    };
    if let Some(time) = orlop_csi::parse_time(text) {
        return Ok(Since::Time(time));
    }
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: u64 = text.strip_suffix(unit).unwrap_or_default().parse().map_err(|_| wrong())?;
    let seconds = count.checked_mul(seconds).ok_or_else(wrong)?;
    Ok(Since::Ago(Duration::from_secs(seconds)))
}

impl Since {
    fn time(self) -> SystemTime {
        match self {
            Self::Ago(duration) => {
                SystemTime::now().checked_sub(duration).unwrap_or(SystemTime::UNIX_EPOCH)
            }
            Self::Time(time) => time,
        }
    }
}

pub(super) struct Filter {
    since: Option<SystemTime>,
    level: Level,
    kinds: Vec<String>,
    /// Ids and names, each of which means the volume.
    volume: Option<Vec<String>>,
}

impl Filter {
    pub(super) async fn of(session: &Session, arguments: &EventsArguments) -> Result<Self> {
        let volume = match &arguments.volume {
            Some(given) => Some(names_of(session, given).await?),
            None => None,
        };
        Ok(Self {
            since: arguments.since.map(Since::time),
            level: arguments.level,
            kinds: arguments.kind.clone(),
            volume,
        })
    }

    pub(super) fn admits(&self, event: &monitor::Event) -> bool {
        let level = match event.level.as_str() {
            "error" => Level::Error,
            "warn" => Level::Warn,
            _ => Level::Info,
        };
        let time = event.time.and_then(|time| SystemTime::try_from(time).ok());
        let is_of = |names: &Vec<String>| {
            let fields =
                ["volume", "volume_name"].iter().filter_map(|name| event.fields.get(*name));
            fields.into_iter().any(|value| names.contains(value))
        };
        level >= self.level
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.since.is_none_or(|since| time.is_some_and(|time| time >= since))
            && self.volume.as_ref().is_none_or(is_of)
    }
}

/// For a deleted volume, only the given text is known.
async fn names_of(session: &Session, given: &str) -> Result<Vec<String>> {
    let mut names = vec![given.to_owned()];
    match resolve::volume(&session.plugin, given).await {
        Ok(id) => {
            let volume = inventory::volume(&session.plugin, &id).await;
            names.extend(volume.ok().and_then(|volume| volume.name));
            names.push(id);
        }
        Err(Failure::Refused(_)) => {}
        Err(failure) => return Err(failure),
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_time_is_given_as_a_duration_or_in_utc() {
        assert_eq!(since("90s"), Ok(Since::Ago(Duration::from_secs(90))));
        assert_eq!(since("2h"), Ok(Since::Ago(Duration::from_secs(7200))));
        assert_eq!(since("1d"), Ok(Since::Ago(Duration::from_secs(86_400))));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        assert_eq!(since("1970-01-01T00:00:01Z"), Ok(Since::Time(time)));
        for wrong in ["", "m", "10", "-5m", "5 m", "yesterday", "99999999999999999999d", "5mm"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_event_has_to_meet_every_condition() {
        let event = monitor::Event {
            sequence: 1,
            time: Some((SystemTime::UNIX_EPOCH + Duration::from_secs(50)).into()),
            level: "warn".to_owned(),
            kind: "call".to_owned(),
            fields: BTreeMap::from([("volume".to_owned(), "v-1".to_owned())]),
            ..Default::default()
        };
        let all = || Filter { since: None, level: Level::Info, kinds: Vec::new(), volume: None };
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert!(all().admits(&event));
        assert!(Filter { level: Level::Warn, ..all() }.admits(&event));
        assert!(!Filter { level: Level::Error, ..all() }.admits(&event));
        assert!(Filter { since: at(50), ..all() }.admits(&event));
        assert!(!Filter { since: at(51), ..all() }.admits(&event));
        assert!(!Filter { kinds: vec!["pool".to_owned()], ..all() }.admits(&event));
        let of = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect());
        assert!(Filter { volume: of(&["pvc-1", "v-1"]), ..all() }.admits(&event));
        assert!(!Filter { volume: of(&["v-11"]), ..all() }.admits(&event));
    }
}

//! How a thick volume of an lvm pool lies on the disks of its volume group, in the words of lvmraid(7).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::size::{Bytes, parse_size};

pub(super) const KEYS: [&str; 4] = ["raid", "mirrors", "stripes", "stripeSize"];

/// LVM takes more; no volume group here has as many disks.
const MOST_STRIPES: u32 = 64;
const MOST_MIRRORS: u32 = 9;
/// LVM takes no more than an extent, which is 4 MiB unless the volume group was made with another size.
const STRIPE_SIZES: std::ops::RangeInclusive<u64> = 4 << 10..=4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RaidLevel {
    Raid1,
    Raid5,
    Raid6,
    Raid10,
}

impl RaidLevel {
    pub const ALL: [Self; 4] = [Self::Raid1, Self::Raid5, Self::Raid6, Self::Raid10];

    /// As LVM calls the type of a logical volume.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raid1 => "raid1",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
            Self::Raid10 => "raid10",
        }
    }

    /// On how many disks different data lies at least.
    fn fewest_stripes(self) -> u32 {
        match self {
            Self::Raid1 => 1,
            Self::Raid5 | Self::Raid10 => 2,
            Self::Raid6 => 3,
        }
    }

    fn has_mirrors(self) -> bool {
        match self {
            Self::Raid1 | Self::Raid10 => true,
            Self::Raid5 | Self::Raid6 => false,
        }
    }
}

/// As it was asked for; what is absent has a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LvmLayout {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidLevel>,
    /// Copies beside the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<u32>,
    /// Disks with different data, without those for parity and copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripes: Option<u32>,
    /// In bytes, on one disk before the next follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe_size: Option<u64>,
}

impl LvmLayout {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "raid" => self.raid = Some(parse_raid(value)?),
            "mirrors" => self.mirrors = Some(parse_count(key, value, 1, MOST_MIRRORS)?),
            "stripes" => self.stripes = Some(parse_count(key, value, 1, MOST_STRIPES)?),
            _ => self.stripe_size = Some(parse_stripe_size(value)?),
        }
        Ok(())
    }

    /// The first of its keys that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            self.raid.is_some(),
            self.mirrors.is_some(),
            self.stripes.is_some(),
            self.stripe_size.is_some(),
        ];
        KEYS.into_iter().zip(given).find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }

    /// Do they fit together?
    pub fn check(&self) -> Result<()> {
        let refused = |reason: String| Err(Error::invalid("parameters", reason));
        if self.mirrors.is_some() && !self.raid.is_some_and(RaidLevel::has_mirrors) {
            return refused("mirrors is for raid: raid1 and raid: raid10".to_owned());
        }
        if self.raid == Some(RaidLevel::Raid1) && (self.stripes, self.stripe_size) != (None, None) {
            return refused(
                "stripes and stripeSize are not for raid: raid1; raid: raid10 has both copies and stripes".to_owned(),
            );
        }
        if let (Some(raid), Some(stripes)) = (self.raid, self.stripes)
            && stripes < raid.fewest_stripes()
        {
            let (raid, fewest) = (raid.as_str(), raid.fewest_stripes());
            return refused(format!("stripes: raid: {raid} needs at least {fewest}"));
        }
        if self.stripe_size.is_some() && self.raid.is_none() && self.stripes.is_none() {
            return refused(
                "stripeSize is for volumes with stripes: add stripes or raid".to_owned(),
            );
        }
        Ok(())
    }

    /// Disks with different data.
    pub fn data_disks(&self) -> u32 {
        let fewest = self.raid.map_or(1, RaidLevel::fewest_stripes);
        self.stripes.unwrap_or(fewest)
    }

    /// Disks that it takes in all.
    pub fn disks(&self) -> u32 {
        let data = self.data_disks();
        match self.raid {
            None => data,
            Some(RaidLevel::Raid1 | RaidLevel::Raid10) => data.saturating_mul(self.copies()),
            Some(RaidLevel::Raid5) => data.saturating_add(1),
            Some(RaidLevel::Raid6) => data.saturating_add(2),
        }
    }

    /// Beside the first, of a volume that has any.
    pub fn mirrors(&self) -> Option<u32> {
        let has_mirrors = self.raid.is_some_and(RaidLevel::has_mirrors);
        has_mirrors.then(|| self.mirrors.unwrap_or(1))
    }

    fn copies(&self) -> u32 {
        self.mirrors().unwrap_or(0).saturating_add(1)
    }
}

impl fmt::Display for LvmLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raid.map_or("no RAID", RaidLevel::as_str))?;
        if let Some(mirrors) = self.mirrors {
            write!(f, ", mirrors {mirrors}")?;
        }
        if let Some(stripes) = self.stripes {
            write!(f, ", stripes {stripes}")?;
        }
        if let Some(size) = self.stripe_size {
            write!(f, ", stripeSize {}", Bytes(size))?;
        }
        Ok(())
    }
}

fn parse_raid(value: &str) -> Result<RaidLevel> {
    let level = RaidLevel::ALL.into_iter().find(|level| level.as_str() == value);
    level.ok_or_else(|| {
        Error::invalid("parameters", "raid is none of raid1, raid5, raid6 and raid10")
    })
}

fn parse_count(key: &str, value: &str, least: u32, most: u32) -> Result<u32> {
    let is_number = value.bytes().all(|b| b.is_ascii_digit());
    let count = value.parse().ok().filter(|count| is_number && (least..=most).contains(count));
    count.ok_or_else(|| {
        Error::invalid("parameters", format!("{key} is not a whole number from {least} to {most}"))
    })
}

/// Peers write the unit, and LVM takes KiB for a bare number, so a bare number has two meanings and is refused.
fn parse_stripe_size(value: &str) -> Result<u64> {
    let has_unit = !value.bytes().all(|b| b.is_ascii_digit());
    let size = parse_size(value).filter(|size| has_unit && size.is_power_of_two());
    size.filter(|size| STRIPE_SIZES.contains(size)).ok_or_else(|| {
        Error::invalid(
            "parameters",
            "stripeSize is not a power of two from 4KiB to 4MiB with its unit, as in 64KiB",
        )
    })
}

#[cfg(test)]
mod tests;

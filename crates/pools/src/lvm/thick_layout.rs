//! How a logical volume lies on disks: what `lvcreate` is asked for, and what that takes.

use orlop_model::{LvmLayout, RaidLevel};

/// The type and its numbers, as arguments of `lvcreate`.
pub(super) fn arguments(layout: &LvmLayout) -> Vec<String> {
    let is_striped = layout.raid != Some(RaidLevel::Raid1) && layout.data_disks() > 1;
    let kind = match layout.raid {
        Some(raid) => raid.as_str(),
        None if is_striped => "striped",
        None => "linear",
    };
    let mut arguments = vec!["--type".to_owned(), kind.to_owned()];
    if is_striped {
        arguments.extend(["--stripes".to_owned(), layout.data_disks().to_string()]);
        if let Some(size) = layout.stripe_size {
            arguments.extend(["--stripesize".to_owned(), format!("{size}b")]);
        }
    }
    if let Some(mirrors) = layout.mirrors() {
        arguments.extend(["--mirrors".to_owned(), mirrors.to_string()]);
    }
    arguments
}

/// What so many bytes take of the volume group's extents, with copies, parity, and what LVM notes of each disk of a RAID.
pub(super) fn extents_for(layout: &LvmLayout, bytes: u64, extent: u64) -> u64 {
    let (data, disks) = (u64::from(layout.data_disks().max(1)), u64::from(layout.disks()));
    let on_each = bytes.div_ceil(extent.max(1)).div_ceil(data);
    let noted = u64::from(layout.raid.is_some());
    on_each.saturating_add(noted).saturating_mul(disks).saturating_mul(extent)
}

/// The largest for which [`extents_for`] is no more than that.
pub(super) fn bytes_in(layout: &LvmLayout, free: u64, extent: u64) -> u64 {
    let (data, disks) = (u64::from(layout.data_disks()), u64::from(layout.disks().max(1)));
    let on_each = free / extent.max(1) / disks;
    let noted = u64::from(layout.raid.is_some());
    on_each.saturating_sub(noted).saturating_mul(data).saturating_mul(extent)
}

#[cfg(test)]
mod tests;

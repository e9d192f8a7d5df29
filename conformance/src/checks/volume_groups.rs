//! Volume groups (VG).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::identity::capability::volume_group::Type::VolumeGroup;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Volume groups",
    service: Service::VolumeGroup,
    needs: &[Need::VolumeGroup(VolumeGroup)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];

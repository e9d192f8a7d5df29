//! Volume groups (VG).

mod broken;
mod life;
mod listing;
mod membership;
mod refusals;

pub(super) use broken::CHAPTER as BROKEN;
pub(super) use life::CHAPTER as LIFE;
pub(super) use listing::CHAPTER as LISTING;
pub(super) use membership::CHAPTER as MEMBERSHIP;
pub(super) use refusals::CHAPTER as REFUSALS;

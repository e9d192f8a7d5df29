//! Volumes as logical volumes of LVM: thin ones in a thin pool, thick ones beside it.
//!
//! `layout.rs` shows what is where. A volume and its record are born together: the record is in the tags of the logical
//! volume, which LVM changes in one commit of the volume group's metadata. `lv_state.rs` has the life of one.
//!
//! All is done by the command `lvm` (`commands.rs`), whose reports are parsed in `report.rs` and whose complaints become
//! errors in `failure.rs`. Records are JSON in the characters that a tag may have (`tag_text.rs`), in numbered pieces
//! with a checksum (`record_tags.rs`); docs/decisions/0063 has the reasons.
//!
//! The pool is made of components that own their state, each built on those before it (`open.rs`): `objects.rs` (logical
//! volumes and their records), `pool_records.rs` (groups), `catalogue.rs`, `capacity.rs`, `devices.rs`, and
//! `provisioner.rs`, which makes and removes things with all of them.

mod capacity;
mod catalogue;
mod commands;
mod device_mapper;
mod devices;
mod failure;
mod layout;
mod lv_state;
mod objects;
mod open;
mod pool_records;
mod provisioner;
mod record_tags;
mod report;
mod tag_text;
mod testbed;
mod tests;

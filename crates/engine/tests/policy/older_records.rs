//! Records of volumes on a shared pool that were restored from older copies.

use orlop_model::{Consistency, ControllerPublication, Error, Pool, ReaderState, VolumeRecord};

use crate::fixture::*;

const THERE: &str = "n2";

/// A record that was restored from an older copy says nothing of the node that writes.
#[test]
fn writer_that_the_record_does_not_know_keeps_others_out() {
    let (here, there) = Fixture::sharing();
    let id = here.create("v");
    here.pool().note_writer(&id, &node(HERE));
    let to_there = controller_publish(&id, THERE);
    refused!(there.engine.controller_publish(&to_there), Error::Precondition(_));
    // Nor if the older copy is from when the other node had it.
    let restored = ControllerPublication {
        read_only: false,
        capability: to_there.capability.clone(),
        leaving: false,
        reader: ReaderState::default(),
    };
    let publish = |record: &mut VolumeRecord| {
        record.published.insert(node(THERE), restored.clone());
        Ok(())
    };
    here.pool().catalogue().update_volume(&id, &mut { publish }).unwrap();
    refused!(there.engine.controller_publish(&to_there), Error::Precondition(_));
    let taken = there.engine.create_snapshot(&snapshot("s", &id)).unwrap();
    assert_eq!(taken.consistency, Consistency::Crash);

    there.engine.controller_unpublish(&id, Some(&node(HERE))).unwrap();
    assert_eq!(here.pool().fenced(), [(id.clone(), node(HERE))]);
    there.engine.controller_publish(&to_there).unwrap();
    there.stage(&id);
}

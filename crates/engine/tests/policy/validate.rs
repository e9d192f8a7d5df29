//! ValidateVolumeCapabilities.

use orlop_engine::request::{CreateVolume, Validate};
use orlop_model::AccessMode::*;
use orlop_model::{CapabilitySet, Error, FsType, NameDigest, VolumeId};

use crate::bench::*;

fn question(id: &VolumeId) -> Validate {
    Validate {
        volume: id.clone(),
        capabilities: only(mount(None, SingleNodeWriter)),
        context: map(&[]),
        parameters: None,
    }
}

fn is_confirmed(bench: &Bench, question: &Validate) -> bool {
    match bench.engine.validate(question).unwrap() {
        Ok(volume) => {
            assert_eq!(volume.record.id, question.volume);
            true
        }
        Err(reason) => {
            assert!(!reason.is_empty());
            false
        }
    }
}

#[test]
fn what_the_volume_was_made_for_is_confirmed() {
    let bench = Bench::new();
    let request =
        CreateVolume { parameters: parameters(&[("provisioning", "thick")]), ..volume("v") };
    let created = bench.engine.create_volume(&request).unwrap();
    let asked = question(&created.record.id);
    let confirmed = [
        asked.clone(),
        Validate {
            capabilities: only(mount(Some(FsType::Xfs), SingleNodeWriter)),
            ..asked.clone()
        },
        Validate { capabilities: only(mount(None, SingleNodeReaderOnly)), ..asked.clone() },
        Validate { context: created.context, ..asked.clone() },
        Validate { parameters: Some(request.parameters), ..asked },
    ];
    for question in confirmed {
        assert!(is_confirmed(&bench, &question), "{question:?}");
    }
}

#[test]
fn anything_else_is_not_and_the_reason_is_given() {
    let bench = Bench::new();
    let asked = question(&bench.create("v"));
    let one_good_one_bad = vec![mount(None, SingleNodeWriter), block(SingleNodeWriter)];
    let doubtful = [
        Validate { capabilities: CapabilitySet::new(one_good_one_bad).unwrap(), ..asked.clone() },
        Validate {
            capabilities: only(mount(Some(FsType::Ext4), SingleNodeWriter)),
            ..asked.clone()
        },
        Validate { capabilities: only(mount(None, MultiNodeMultiWriter)), ..asked.clone() },
        Validate { context: map(&[("pool", "another")]), ..asked.clone() },
        Validate { parameters: Some(parameters(&[("provisioning", "thick")])), ..asked },
    ];
    for question in doubtful {
        assert!(!is_confirmed(&bench, &question), "{question:?}");
    }
}

#[test]
fn an_unknown_volume_is_not_found() {
    let bench = Bench::new();
    let never = VolumeId::new(bench.create("v").pool().clone(), NameDigest::of_text("never made"));
    refused!(bench.engine.validate(&question(&never)), Error::NoSuchVolume(_));
}

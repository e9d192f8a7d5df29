//! ValidateVolumeCapabilities.

use orlop_engine::request::{CreateVolume, Validate};
use orlop_model::AccessMode::*;
use orlop_model::{CapabilitySet, Error, FsType, NameDigest, VolumeId};

use crate::fixture::*;

fn question(id: &VolumeId) -> Validate {
    Validate {
        volume: id.clone(),
        capabilities: only(mount(None, SingleNodeWriter)),
        context: map(&[]),
        parameters: None,
    }
}

fn is_confirmed(fixture: &Fixture, question: &Validate) -> bool {
    match fixture.engine.validate(question).unwrap() {
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
fn capability_of_the_volume_is_confirmed() {
    let fixture = Fixture::new();
    let request =
        CreateVolume { parameters: parameters(&[("provisioning", "thick")]), ..volume("v") };
    let created = fixture.engine.create_volume(&request).unwrap();
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
        assert!(is_confirmed(&fixture, &question), "{question:?}");
    }
}

#[test]
fn other_capability_is_denied_with_a_reason() {
    let fixture = Fixture::new();
    let asked = question(&fixture.create("v"));
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
        assert!(!is_confirmed(&fixture, &question), "{question:?}");
    }
}

#[test]
fn an_unknown_volume_is_not_found() {
    let fixture = Fixture::new();
    let never =
        VolumeId::new(fixture.create("v").pool().clone(), NameDigest::of_text("never made"));
    refused!(fixture.engine.validate(&question(&never)), Error::NoSuchVolume(_));
}

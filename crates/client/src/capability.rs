//! How a volume is to be used, on the wire.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::volume_capability::access_mode::Mode;
use orlop_csi::proto::csi::v1::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume,
};
use serde::{Deserialize, Serialize};

/// As the protocol has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModeName {
    #[default]
    SingleNodeWriter,
    SingleNodeReaderOnly,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
}

impl ModeName {
    fn wire(self) -> Mode {
        match self {
            Self::SingleNodeWriter => Mode::SingleNodeWriter,
            Self::SingleNodeReaderOnly => Mode::SingleNodeReaderOnly,
            Self::SingleNodeSingleWriter => Mode::SingleNodeSingleWriter,
            Self::SingleNodeMultiWriter => Mode::SingleNodeMultiWriter,
            Self::MultiNodeReaderOnly => Mode::MultiNodeReaderOnly,
            Self::MultiNodeSingleWriter => Mode::MultiNodeSingleWriter,
            Self::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
        }
    }
}

/// A raw device, or a filesystem; without a kind, the plugin's own choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Access {
    Block,
    Mount { fs: String, options: Vec<String> },
}

impl Access {
    pub(crate) fn mount(fs: Option<&str>) -> Self {
        Self::Mount { fs: fs.unwrap_or_default().to_owned(), options: Vec::new() }
    }

    pub(crate) fn is_block(&self) -> bool {
        matches!(self, Self::Block)
    }

    pub(crate) fn capability(&self, mode: ModeName) -> v1::VolumeCapability {
        let access = match self {
            Self::Block => AccessType::Block(BlockVolume {}),
            Self::Mount { fs, options } => AccessType::Mount(MountVolume {
                fs_type: fs.clone(),
                mount_flags: options.clone(),
                volume_mount_group: String::new(),
            }),
        };
        v1::VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.wire().into() }),
            access_type: Some(access),
        }
    }
}

//! Probes: claims of mechanism decided by doing it and looking, without a clock. One file for each
//! theme; what one finds on this kernel may differ from what another kernel does.

use serde::de::DeserializeOwned;
use thalweg_core::Unfit;

pub(super) mod alias;
pub(super) mod calls;
pub(super) mod splice_returns;
pub(super) mod vmsplice;

/// The parameters of the probe `name`.
fn read<With: DeserializeOwned>(name: &str, with: &toml::Table) -> Result<With, Unfit> {
    with.clone().try_into().map_err(|e: toml::de::Error| {
        Unfit::because(format!("parameters of probe {name}: {}", e.message()))
    })
}

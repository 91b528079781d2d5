//! Typed access to Cluster API objects, and discovery of what the API server serves.

mod discovery;
mod machines;
mod types;

pub(crate) use discovery::{DiscoveryError, KindResolver, served_api};
pub(crate) use machines::{Claimants, MachineIndex};
pub(crate) use types::{
    Child, Cluster, EXCLUDE_NODE_DRAINING, EXCLUDE_VOLUME_DETACH, Machine, ProviderObjectMeta, ServedApi,
    SharedResource,
};

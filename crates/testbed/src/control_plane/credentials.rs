//! Files that the servers read: certificates, the token file, the ServiceAccount key and the audit policy.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::options::User;
use super::{ADMIN, CLUSTER_API, CONTROLLER_MANAGER, KWOK, SCHEDULER, SIMULATED_PROVIDER, StartError, WORKLOAD_ADMIN};
use crate::certificates::Authority;

/// Users of every control plane with their groups. A user without a group has only the permissions that RBAC grants.
const BUILT_IN: [(&str, &str); 7] = [
    (ADMIN, "system:masters"),
    (WORKLOAD_ADMIN, "system:masters"),
    (CONTROLLER_MANAGER, ""),
    (SCHEDULER, ""),
    (CLUSTER_API, ""),
    (SIMULATED_PROVIDER, ""),
    (KWOK, ""),
];

const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// Paths of the files, and tokens by user.
pub(super) struct Credentials {
    pub(super) authority: Authority,
    pub(super) authority_file: PathBuf,
    pub(super) serving_certificate: PathBuf,
    pub(super) serving_key: PathBuf,
    pub(super) service_account_key: PathBuf,
    pub(super) service_account_public_key: PathBuf,
    pub(super) token_file: PathBuf,
    pub(super) audit_policy: PathBuf,
    pub(super) tokens: BTreeMap<String, String>,
}

impl Credentials {
    pub(super) fn write(directory: &Path, more_users: &[User]) -> Result<Self, StartError> {
        let authority = Authority::new("testbed authority")?;
        let serving = authority.server(&["kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"])?;
        let signing = rcgen::KeyPair::generate()?;
        let (tokens, token_file) = tokens(more_users).map_err(StartError::io(Path::new("/dev/urandom")))?;
        let file = |name: &str, content: String| {
            let path = directory.join(name);
            fs::write(&path, content).map_err(StartError::io(&path))?;
            Ok::<PathBuf, StartError>(path)
        };
        Ok(Self {
            authority_file: file("ca.crt", authority.pem())?,
            serving_certificate: file("apiserver.crt", serving.certificate)?,
            serving_key: file("apiserver.key", serving.key)?,
            service_account_key: file("service-account.key", signing.serialize_pem())?,
            service_account_public_key: file("service-account.pub", signing.public_key_pem())?,
            token_file: file("tokens.csv", token_file)?,
            audit_policy: file("audit-policy.yaml", AUDIT_POLICY.to_owned())?,
            authority,
            tokens,
        })
    }
}

fn tokens(more_users: &[User]) -> io::Result<(BTreeMap<String, String>, String)> {
    let built_in = BUILT_IN.iter().map(|(name, groups)| ((*name).to_owned(), (*groups).to_owned()));
    let users = built_in.chain(more_users.iter().map(|user| (user.name.clone(), user.groups.join(","))));
    let (mut tokens, mut file) = (BTreeMap::new(), String::new());
    for (name, groups) in users {
        let token = random_token()?;
        let groups = if groups.is_empty() { String::new() } else { format!(",\"{groups}\"") };
        writeln!(file, "{token},{name},{name}{groups}").expect("writing to a String cannot fail");
        tokens.insert(name, token);
    }
    Ok((tokens, file))
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

//! The kubeconfig Secret of a Cluster.
//!
//! A tenant may have written the Secret, so only settings that cannot be turned against the controller are accepted: server,
//! CA, token and client certificate, all inline. A plugin would run a program in the controller, a path would read one of its
//! files, a proxy would see its requests: each is rejected by name.

use std::time::Duration;

use http::Uri;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::{Api, Client, Config};

use crate::runtime::request::{Operation, RequestError, send, truncate};
use crate::runtime::workqueue::Key;

const SECRET_KEY: &str = "value";
/// A kubeconfig with certificates has a few kilobytes.
const MAX_KUBECONFIG: usize = 64 * 1024;
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Why there is no usable kubeconfig.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeconfigError {
    /// The management cluster did not respond, or failed: this says nothing about the Secret.
    #[error(transparent)]
    Unreadable(RequestError),
    #[error(
        "cannot read Secret {secret}: forbidden; bind ClusterRole 5spot-workload-access to the controller's \
         ServiceAccount, in namespace {} or in all namespaces",
        secret.namespace
    )]
    Forbidden {
        secret: Key,
        #[source]
        source: RequestError,
    },
    #[error("Secret {secret} does not exist, and --require-kubeconfig is set")]
    Required { secret: Key },
    #[error("Secret {secret} no longer exists")]
    Deleted { secret: Key },
    #[error("Secret {secret} has no key {SECRET_KEY:?}")]
    MissingKey { secret: Key },
    #[error("the kubeconfig in Secret {secret} is not usable: {source}")]
    Invalid {
        secret: Key,
        #[source]
        source: InvalidKubeconfig,
    },
}

/// Why a kubeconfig is not usable. The text quotes neither the kubeconfig nor its parser: it ends up in the status, which
/// more people can read than the Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidKubeconfig {
    #[error("{0} cannot be parsed")]
    Malformed(&'static str),
    #[error("it is larger than {} KiB", MAX_KUBECONFIG / 1024)]
    TooLarge,
    #[error("{0} is not allowed; only an inline server, CA, token and client certificate are accepted")]
    NotAllowed(&'static str),
    #[error("it has no {0}")]
    Missing(&'static str),
    #[error("server {0:?} is not an https URL")]
    NotHttps(String),
}

/// The Secret in which Cluster API stores the kubeconfig of a Cluster.
pub(super) fn secret_of(namespace: &str, cluster: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: format!("{cluster}-kubeconfig") }
}

/// Reads the kubeconfig from its Secret; `None` if the Secret does not exist.
pub(super) async fn read(management: &Client, secret: &Key) -> Result<Option<Vec<u8>>, KubeconfigError> {
    let secrets: Api<Secret> = Api::namespaced(management.clone(), &secret.namespace);
    let operation = Operation::new("read", format!("Secret {secret}"));
    match send(READ_TIMEOUT, operation, secrets.get(&secret.name)).await {
        Ok(found) => match found.data.unwrap_or_default().remove(SECRET_KEY) {
            Some(value) => Ok(Some(value.0)),
            None => Err(KubeconfigError::MissingKey { secret: secret.clone() }),
        },
        Err(error) if error.is_not_found() => Ok(None),
        Err(source) if source.is_forbidden() => Err(KubeconfigError::Forbidden { secret: secret.clone(), source }),
        Err(error) => Err(KubeconfigError::Unreadable(error)),
    }
}

/// The client configuration for the current context of a kubeconfig.
pub(super) async fn client_config(kubeconfig: &[u8]) -> Result<Config, InvalidKubeconfig> {
    if kubeconfig.len() > MAX_KUBECONFIG {
        return Err(InvalidKubeconfig::TooLarge);
    }
    // Anchors are of no use here, and a few of them can become millions of values.
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_anchors: 0 } };
    let parse = |text| serde_saphyr::from_str_with_options::<Kubeconfig>(text, options).ok();
    let parsed = std::str::from_utf8(kubeconfig).ok().and_then(parse);
    let Kubeconfig { contexts, clusters, auth_infos, current_context, .. } =
        parsed.ok_or(InvalidKubeconfig::Malformed("its text"))?;
    let current = current_context.ok_or(InvalidKubeconfig::Missing("current-context"))?;
    let context = contexts.into_iter().find(|it| it.name == current).and_then(|it| it.context);
    let context = context.ok_or(InvalidKubeconfig::Missing("context with the name of current-context"))?;
    let cluster = clusters.into_iter().find(|it| it.name == context.cluster).and_then(|it| it.cluster);
    let cluster = cluster.ok_or(InvalidKubeconfig::Missing("cluster with the name in its context"))?;
    let user = auth_infos.into_iter().find(|it| Some(&it.name) == context.user.as_ref()).and_then(|it| it.auth_info);
    let user = user.ok_or(InvalidKubeconfig::Missing("user with the name in its context"))?;
    let sanitized = kubeconfig_of(sanitize_cluster(cluster)?, sanitize_user(user)?);
    Config::from_custom_kubeconfig(sanitized, &KubeConfigOptions::default())
        .await
        .map_err(|_| InvalidKubeconfig::Malformed("its server, certificates or keys"))
}

fn sanitize_cluster(cluster: Cluster) -> Result<Cluster, InvalidKubeconfig> {
    let not_allowed = [
        (cluster.certificate_authority.is_some(), "certificate-authority (a path)"),
        (cluster.proxy_url.is_some(), "proxy-url"),
        (cluster.insecure_skip_tls_verify == Some(true), "insecure-skip-tls-verify"),
    ];
    reject_any(&not_allowed)?;
    let server = cluster.server.ok_or(InvalidKubeconfig::Missing("server"))?;
    let url: Uri = server.parse().map_err(|_| InvalidKubeconfig::Malformed("its server"))?;
    if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(InvalidKubeconfig::NotAllowed("a password in the URL of the server"));
    }
    if url.scheme_str() != Some("https") {
        return Err(InvalidKubeconfig::NotHttps(truncate(&server)));
    }
    Ok(Cluster {
        server: Some(server),
        certificate_authority_data: cluster.certificate_authority_data,
        tls_server_name: cluster.tls_server_name,
        ..Cluster::default()
    })
}

fn sanitize_user(user: AuthInfo) -> Result<AuthInfo, InvalidKubeconfig> {
    let not_allowed = [
        (user.exec.is_some(), "exec"),
        (user.auth_provider.is_some(), "auth-provider"),
        (user.token_file.is_some(), "tokenFile"),
        (user.client_certificate.is_some(), "client-certificate (a path)"),
        (user.client_key.is_some(), "client-key (a path)"),
        (user.impersonate.is_some() || user.impersonate_groups.is_some(), "impersonation"),
        (user.username.is_some() || user.password.is_some(), "a user name and password"),
    ];
    reject_any(&not_allowed)?;
    Ok(AuthInfo {
        token: user.token,
        client_certificate_data: user.client_certificate_data,
        client_key_data: user.client_key_data,
        ..AuthInfo::default()
    })
}

fn reject_any(not_allowed: &[(bool, &'static str)]) -> Result<(), InvalidKubeconfig> {
    let present = not_allowed.iter().find(|(present, _)| *present);
    present.map_or(Ok(()), |(_, setting)| Err(InvalidKubeconfig::NotAllowed(setting)))
}

/// A kubeconfig with only this cluster and user.
fn kubeconfig_of(cluster: Cluster, user: AuthInfo) -> Kubeconfig {
    let name = || "workload".to_owned();
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    Kubeconfig {
        current_context: Some(name()),
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        ..Kubeconfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "server: 'https://10.0.0.1:6443'";

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{{cluster}}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]\n"
        )
    }

    async fn rejected(kubeconfig: &str) -> InvalidKubeconfig {
        client_config(kubeconfig.as_bytes()).await.unwrap_err()
    }

    #[tokio::test]
    async fn inline_settings_are_accepted() {
        let config = client_config(kubeconfig(SERVER, "token: secret").as_bytes()).await.unwrap();
        assert_eq!(config.cluster_url, "https://10.0.0.1:6443/");
    }

    #[tokio::test]
    async fn error_does_not_quote_secrets() {
        let certificate = kubeconfig(&format!("{SERVER}, certificate-authority-data: '!secret!'"), "token: t");
        let password = kubeconfig("server: 'https://user:secret word@10.0.0.1'", "token: t");
        for text in [certificate.as_str(), password.as_str(), "users: [secret: : secret", "secret"] {
            let error = rejected(text).await.to_string();
            assert!(!error.contains("secret") && error.lines().count() == 1, "{error}");
        }
        assert!(matches!(client_config(b"\xff").await, Err(InvalidKubeconfig::Malformed(_))));
    }

    #[tokio::test]
    async fn large_nested_and_recursive_texts_are_rejected() {
        let large = kubeconfig(SERVER, &format!("token: {}", "a".repeat(MAX_KUBECONFIG)));
        assert_eq!(rejected(&large).await, InvalidKubeconfig::TooLarge);
        // Each line has ten times the elements of the one before.
        let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..40 {
            let elements = vec![format!("*a{}", level - 1); 10].join(", ");
            aliases = format!("{aliases}a{level}: &a{level} [{elements}]\n");
        }
        aliases.push_str("users: *a39\n");
        let nested = format!("extensions: {}{}", "[".repeat(20_000), "]".repeat(20_000));
        for text in [aliases, nested] {
            assert!(matches!(rejected(&text).await, InvalidKubeconfig::Malformed(_)));
        }
    }

    #[tokio::test]
    async fn unsafe_settings_are_rejected_by_name() {
        for (cluster, user, named) in [
            (SERVER.to_owned(), "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}", "exec"),
            (SERVER.to_owned(), "auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}", "auth-provider"),
            (SERVER.to_owned(), "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token", "tokenFile"),
            (SERVER.to_owned(), "client-certificate: /etc/passwd", "client-certificate"),
            (SERVER.to_owned(), "client-key: /etc/passwd", "client-key"),
            (SERVER.to_owned(), "as: admin", "impersonation"),
            (SERVER.to_owned(), "username: a, password: b", "password"),
            (format!("{SERVER}, proxy-url: 'http://evil'"), "token: t", "proxy-url"),
            (format!("{SERVER}, certificate-authority: /etc/passwd"), "token: t", "certificate-authority"),
            (format!("{SERVER}, insecure-skip-tls-verify: true"), "token: t", "insecure-skip-tls-verify"),
            ("server: 'http://10.0.0.1'".to_owned(), "token: t", "https"),
            ("server: 'https://user:word@10.0.0.1'".to_owned(), "token: t", "password"),
            ("tls-server-name: a".to_owned(), "token: t", "server"),
        ] {
            let error = rejected(&kubeconfig(&cluster, user)).await.to_string();
            assert!(error.contains(named), "{error}");
        }
        assert!(matches!(rejected("{").await, InvalidKubeconfig::Malformed(_)));
        assert!(matches!(rejected("{}").await, InvalidKubeconfig::Missing(_)));
    }
}

//! Reading a kubeconfig that somebody else wrote, perhaps a tenant: only what cannot be turned against the controller.
//!
//! Taken are the server, its CA, a token and a client certificate, all of them inline. A plugin would run a program here,
//! a path would read a file of the controller's, a proxy would see what is sent: each is refused, with its name.

use http::Uri;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};

/// Why a kubeconfig cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    // Without what the parser said: it quotes the text, which is a secret, and the status is for all to read.
    #[error("{0}")]
    Malformed(&'static str),
    #[error(
        "{0} is not allowed in the kubeconfig of a Cluster: only an inline server, CA, token and client certificate are"
    )]
    Forbidden(&'static str),
    #[error("it names no {0}")]
    Missing(&'static str),
    #[error("its server {0:?} is not an https URL")]
    NotHttps(String),
}

/// The configuration of a client for the current context of a kubeconfig.
pub(crate) async fn config(text: &str) -> Result<Config, Refusal> {
    let whole = Kubeconfig::from_yaml(text).map_err(|_| Refusal::Malformed("its text is not that of a kubeconfig"))?;
    let Kubeconfig { contexts, clusters, auth_infos, current_context, .. } = whole;
    let current = current_context.ok_or(Refusal::Missing("current context"))?;
    let context = contexts.into_iter().find(|it| it.name == current).and_then(|it| it.context);
    let context = context.ok_or(Refusal::Missing("context of the name that is current"))?;
    let cluster = clusters.into_iter().find(|it| it.name == context.cluster).and_then(|it| it.cluster);
    let cluster = cluster.ok_or(Refusal::Missing("cluster of the name in its context"))?;
    let user = auth_infos.into_iter().find(|it| Some(&it.name) == context.user.as_ref()).and_then(|it| it.auth_info);
    let user = user.ok_or(Refusal::Missing("user of the name in its context"))?;
    let safe = only(safe_cluster(cluster)?, safe_user(user)?);
    Config::from_custom_kubeconfig(safe, &KubeConfigOptions::default())
        .await
        .map_err(|_| Refusal::Malformed("its server, certificates or keys cannot be read"))
}

fn safe_cluster(cluster: Cluster) -> Result<Cluster, Refusal> {
    if cluster.certificate_authority.is_some() {
        return Err(Refusal::Forbidden("certificate-authority (a path)"));
    }
    if cluster.proxy_url.is_some() {
        return Err(Refusal::Forbidden("proxy-url"));
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(Refusal::Forbidden("insecure-skip-tls-verify"));
    }
    let server = cluster.server.ok_or(Refusal::Missing("server"))?;
    if server.parse::<Uri>().is_ok_and(|it| it.authority().is_some_and(|it| it.as_str().contains('@'))) {
        return Err(Refusal::Forbidden("a password in the server's URL"));
    }
    if server.parse::<Uri>().ok().and_then(|it| it.scheme_str().map(str::to_owned)).as_deref() != Some("https") {
        return Err(Refusal::NotHttps(server));
    }
    Ok(Cluster {
        server: Some(server),
        certificate_authority_data: cluster.certificate_authority_data,
        tls_server_name: cluster.tls_server_name,
        ..Cluster::default()
    })
}

fn safe_user(user: AuthInfo) -> Result<AuthInfo, Refusal> {
    let forbidden = [
        (user.exec.is_some(), "exec"),
        (user.auth_provider.is_some(), "auth-provider"),
        (user.token_file.is_some(), "tokenFile"),
        (user.client_certificate.is_some(), "client-certificate (a path)"),
        (user.client_key.is_some(), "client-key (a path)"),
        (user.impersonate.is_some() || user.impersonate_groups.is_some(), "impersonation"),
        (user.username.is_some() || user.password.is_some(), "a user name and password"),
    ];
    if let Some((_, what)) = forbidden.into_iter().find(|(found, _)| *found) {
        return Err(Refusal::Forbidden(what));
    }
    Ok(AuthInfo {
        token: user.token,
        client_certificate_data: user.client_certificate_data,
        client_key_data: user.client_key_data,
        ..AuthInfo::default()
    })
}

/// A kubeconfig with this cluster and this user, and nothing else.
fn only(cluster: Cluster, user: AuthInfo) -> Kubeconfig {
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

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{{cluster}}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn what_is_inline_is_taken() {
        let config = config(&kubeconfig("server: 'https://10.0.0.1:6443'", "token: secret")).await.unwrap();
        assert_eq!(config.cluster_url, "https://10.0.0.1:6443/");
    }

    #[tokio::test]
    async fn a_refusal_quotes_nothing_of_what_is_secret() {
        let broken = kubeconfig("server: 'https://10.0.0.1:6443', certificate-authority-data: '!secret!'", "token: t");
        for text in [broken.as_str(), "users: [secret: : secret", "secret"] {
            let refusal = config(text).await.unwrap_err().to_string();
            assert!(!refusal.contains("secret") && refusal.lines().count() == 1, "{refusal}");
        }
    }

    #[tokio::test]
    async fn whatever_runs_reads_or_diverts_is_refused_by_name() {
        let server = "server: 'https://10.0.0.1:6443'";
        for (cluster, user, named) in [
            (server.to_owned(), "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}", "exec"),
            (server.to_owned(), "auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}", "auth-provider"),
            (server.to_owned(), "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token", "tokenFile"),
            (server.to_owned(), "client-certificate: /etc/passwd", "client-certificate"),
            (server.to_owned(), "client-key: /etc/passwd", "client-key"),
            (server.to_owned(), "as: admin", "impersonation"),
            (server.to_owned(), "username: a, password: b", "password"),
            (format!("{server}, proxy-url: 'http://evil'"), "token: t", "proxy-url"),
            (format!("{server}, certificate-authority: /etc/passwd"), "token: t", "certificate-authority"),
            (format!("{server}, insecure-skip-tls-verify: true"), "token: t", "insecure-skip-tls-verify"),
            ("server: 'http://10.0.0.1'".to_owned(), "token: t", "https"),
            ("tls-server-name: a".to_owned(), "token: t", "server"),
        ] {
            let refusal = config(&kubeconfig(&cluster, user)).await.unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal}");
        }
        assert!(matches!(config("{").await, Err(Refusal::Malformed(_))));
        assert!(matches!(config("{}").await, Err(Refusal::Missing(_))));
    }
}

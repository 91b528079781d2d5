//! Formats of Kubernetes names, as the API server validates them.

/// A label value: at most 63 characters, alphanumeric at both ends, or empty.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// A qualified name `[prefix/]name`: the prefix is a DNS subdomain, the name is a non-empty label value.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

/// DNS labels separated by dots, at most 253 characters: the name of most objects.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// A DNS label: lower-case letters, digits and dashes, at most 63 characters. The name of a namespace.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label(text)
}

/// A version of an API such as `v1` or `v1beta2`. Anything else could become part of a request path.
pub fn is_version(text: &str) -> bool {
    let is_number = |it: &str| !it.is_empty() && it.chars().all(|c| c.is_ascii_digit());
    text.strip_prefix('v').is_some_and(|rest| {
        ["alpha", "beta"]
            .iter()
            .find_map(|stage| rest.split_once(stage))
            .map_or_else(|| is_number(rest), |(major, minor)| is_number(major) && is_number(minor))
    })
}

/// A kind: a DNS label in which letters of either case are allowed.
pub fn is_kind(text: &str) -> bool {
    is_dns_label(&text.to_ascii_lowercase())
}

fn is_label(text: &str) -> bool {
    let ends = |at: Option<char>| at.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}

/// Whether the prefix of `key` is `domain` or a subdomain of it.
pub fn belongs_to(key: &str, domain: &str) -> bool {
    key.split_once('/').is_some_and(|(prefix, _)| {
        prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn is_name_part(text: &str) -> bool {
    let ends = |at: Option<char>| at.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_kinds() {
        for good in ["v1", "v1beta1", "v2alpha10"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "1", "v", "vbeta1", "v1beta", "v1/clusterroles", "v1beta1/x", "v1gamma1"] {
            assert!(!is_version(bad), "{bad}");
        }
        for good in ["RemoteMachine", "K0sWorkerConfig"] {
            assert!(is_kind(good), "{good}");
        }
        for bad in ["", "Remote Machine", "a/b", "Ä", &"A".repeat(64)] {
            assert!(!is_kind(bad), "{bad}");
        }
    }

    #[test]
    fn prefix_belongs_to_its_domain_only() {
        assert!(belongs_to("kubernetes.io/x", "kubernetes.io"));
        assert!(belongs_to("node.kubernetes.io/x", "kubernetes.io"));
        assert!(!belongs_to("notkubernetes.io/x", "kubernetes.io"));
        assert!(!belongs_to("kubernetes.io", "kubernetes.io"));
    }

    #[test]
    fn limits() {
        assert!(is_qualified_name(&"a".repeat(63)));
        assert!(!is_qualified_name(&"a".repeat(64)));
        assert!(!is_qualified_name(""));
        assert!(!is_qualified_name("/name"));
        assert!(!is_qualified_name("a/b/c"));
        assert!(!is_qualified_name("UPPER.example/name"));
        assert!(is_label_value(""));
        assert!(!is_label_value("-a"));
        assert!(!is_dns_subdomain("a..b"));
        assert!(!is_dns_subdomain(""));
    }
}

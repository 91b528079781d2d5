use std::cell::Cell;

use proptest::prelude::*;

use super::*;

/// A process as `/proc` would show it.
struct Shown {
    comm: Option<Vec<u8>>,
    cmdline: Option<Vec<u8>>,
    cgroup: Option<String>,
    cgroup_was_read: Cell<bool>,
}

/// A process of the host with these arguments, named as the kernel would name it.
fn program(argv: &[&str]) -> Shown {
    let name = argv[0].rsplit('/').next().unwrap();
    let mut cmdline = argv.join("\0").into_bytes();
    cmdline.push(0);
    Shown {
        comm: Some(kept_of(name).to_vec()),
        cmdline: Some(cmdline),
        cgroup: Some("0::/user.slice\n".into()),
        cgroup_was_read: Cell::new(false),
    }
}

impl Shown {
    fn named(self, comm: &str) -> Self {
        Shown { comm: Some(comm.as_bytes().to_vec()), ..self }
    }
    fn in_group(self, cgroup: &str) -> Self {
        Shown { cgroup: Some(cgroup.into()), ..self }
    }
}

impl Subject for Shown {
    fn comm(&self) -> Option<Vec<u8>> {
        self.comm.clone()
    }
    fn cmdline(&self) -> Option<Vec<u8>> {
        self.cmdline.clone()
    }
    fn cgroup(&self) -> Option<String> {
        self.cgroup_was_read.set(true);
        self.cgroup.clone()
    }
}

fn commands(names: &[&str]) -> Patterns {
    Patterns { commands: names.iter().map(|&it| it.into()).collect(), ..Patterns::default() }
}

fn substrings(parts: &[&str]) -> Patterns {
    Patterns { argv_substrings: parts.iter().map(|&it| it.into()).collect(), ..Patterns::default() }
}

fn found(patterns: &Patterns, shown: &Shown) -> Option<(String, Source)> {
    patterns.find(shown, Ground::default()).map(|it| (it.matched, it.source))
}

#[test]
fn a_command_is_the_whole_name_in_its_own_case() {
    let java = commands(&["java"]);
    assert_eq!(found(&java, &program(&["/usr/bin/java", "-jar", "x"])), Some(("java".into(), Source::Comm)));
    for other in ["Java", "java-wrapper", "jav", "javac", "ajava"] {
        assert_eq!(found(&java, &program(&[other])), None, "{other}");
    }
    assert_eq!(found(&java, &program(&["/usr/bin/vi", "java"])), None, "an argument is not a name");
}

#[test]
fn a_long_name_is_found_by_what_the_kernel_keeps_and_its_arguments_confirm_it() {
    let long = commands(&["gnome-system-monitor"]);
    let it = Some(("gnome-system-monitor".to_owned(), Source::Comm));
    assert_eq!(found(&long, &program(&["/usr/bin/gnome-system-monitor"])), it);
    assert_eq!(found(&long, &program(&["gnome-system-mo"])), None, "another program of the same beginning");
    assert_eq!(found(&long, &program(&["/usr/bin/gnome-system-log"])), None);
    let script = program(&["/bin/sh", "-e", "/opt/gnome-system-monitor", "--all"]).named("gnome-system-mo");
    assert_eq!(found(&long, &script), it, "a script's first argument is its interpreter");
    let mut unread = program(&["gnome-system-monitor"]);
    unread.cmdline = None;
    assert_eq!(found(&long, &unread), it, "nothing contradicts it");
    unread.cmdline = Some(vec![0, 0]);
    assert_eq!(found(&long, &unread), it);
}

#[test]
fn fifteen_bytes_are_a_whole_name_and_bytes_are_what_counts() {
    assert!(found(&commands(&["exactly15-bytes"]), &program(&["exactly15-bytes"])).is_some());
    // The kernel cuts within a letter.
    let umlauts = "datenträgerprüfung";
    assert!(umlauts.len() > COMM_MAX && !umlauts.is_char_boundary(COMM_MAX));
    assert!(found(&commands(&[umlauts]), &program(&[umlauts])).is_some());
}

#[test]
fn a_substring_may_span_arguments_joined_by_spaces() {
    let idea = program(&["/opt/idea/bin/idea.sh", "-Xmx2g", "my project"]);
    for part in ["idea", "/opt/idea", "idea.sh -Xmx2g", "-Xmx2g my project"] {
        assert_eq!(found(&substrings(&[part]), &idea), Some((part.into(), Source::Cmdline)));
    }
    for part in ["IDEA", "my project ", "\0"] {
        assert_eq!(found(&substrings(&[part]), &idea), None, "{part:?}");
    }
}

#[test]
fn a_name_goes_before_a_part_of_the_arguments() {
    let both = Patterns { commands: vec!["idea".into()], argv_substrings: vec!["idea".into()] };
    assert_eq!(found(&both, &program(&["idea"])), Some(("idea".into(), Source::Comm)));
    assert_eq!(found(&both, &program(&["vi", "idea.txt"])), Some(("idea".into(), Source::Cmdline)));
    let either = commands(&["gnome-system-log", "gnome-system-monitor"]);
    assert_eq!(found(&either, &program(&["gnome-system-monitor"])).unwrap().0, "gnome-system-monitor");
}

#[test]
fn a_process_of_a_pod_is_none_of_ours_whatever_its_name() {
    let pod = "0::/kubepods.slice/kubepods-besteffort.slice/x.scope\n";
    for patterns in [commands(&["java"]), substrings(&["java"])] {
        assert!(found(&patterns, &program(&["java"])).is_some());
        assert_eq!(found(&patterns, &program(&["java"]).in_group(pod)), None);
    }
}

#[test]
fn what_has_gone_meanwhile_is_no_match() {
    let java = commands(&["java"]);
    assert_eq!(found(&java, &Shown { comm: None, ..program(&["java"]) }), None);
    assert_eq!(found(&java, &Shown { cgroup: None, ..program(&["java"]) }), None);
    assert_eq!(found(&substrings(&["java"]), &Shown { cmdline: None, ..program(&["java"]) }), None);
}

#[test]
fn the_cgroup_of_a_stranger_is_not_read() {
    let stranger = program(&["make", "-j32"]);
    assert_eq!(found(&Patterns { argv_substrings: vec!["idea".into()], ..commands(&["java"]) }, &stranger), None);
    assert!(!stranger.cgroup_was_read.get());
}

#[test]
fn nothing_asked_for_is_inert() {
    assert!(Patterns::default().is_empty());
    assert_eq!(found(&Patterns::default(), &program(&["java"])), None);
}

proptest! {
    #[test]
    fn a_program_is_found_by_its_own_name_and_by_any_part_of_its_line(
        name in "[^/\0]{1,40}", arguments in prop::collection::vec("[^\0]{1,20}", 0..4), cut in any::<(usize, usize)>(),
    ) {
        let argv: Vec<&str> = std::iter::once(name.as_str()).chain(arguments.iter().map(String::as_str)).collect();
        prop_assert_eq!(found(&commands(&[&name]), &program(&argv)), Some((name.clone(), Source::Comm)));
        let line: Vec<char> = argv.join(" ").chars().collect();
        let (from, until) = (cut.0 % line.len(), cut.1 % (line.len() + 1));
        if from < until && until <= line.len() {
            let part: String = line[from..until].iter().collect();
            prop_assert!(found(&substrings(&[&part]), &program(&argv)).is_some());
        }
    }

    #[test]
    fn another_name_is_never_found(name in "[a-z]{1,30}", other in "[a-z]{1,30}") {
        prop_assume!(name != other);
        prop_assert_eq!(found(&commands(&[&name]), &program(&[&other])), None);
    }

    #[test]
    fn bytes_of_any_kind_can_be_asked_about(
        comm in prop::collection::vec(any::<u8>(), 0..20), cmdline in prop::collection::vec(any::<u8>(), 0..200),
        pattern in ".{1,20}",
    ) {
        let shown = Shown { comm: Some(comm), cmdline: Some(cmdline), ..program(&["x"]) };
        let both = Patterns { commands: vec![pattern.clone()], argv_substrings: vec![pattern] };
        found(&both, &shown);
    }
}

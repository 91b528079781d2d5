use std::cell::RefCell;

use proptest::prelude::*;

use super::*;

/// A process as `/proc` would show it.
#[derive(Clone)]
struct FakeProcess {
    comm: Option<Vec<u8>>,
    cmdline: Option<Vec<u8>>,
    cgroup: Option<String>,
    parent: Option<Box<FakeProcess>>,
    is_kernel_thread: bool,
    read: RefCell<Vec<&'static str>>,
}

/// A process of the host with this command line, named as the kernel would name it.
fn process(argv: &[&str]) -> FakeProcess {
    let name = argv[0].rsplit('/').next().unwrap();
    let mut cmdline = argv.join("\0").into_bytes();
    cmdline.push(0);
    FakeProcess {
        comm: Some(truncate_to_comm(name).to_vec()),
        cmdline: Some(cmdline),
        cgroup: Some("0::/user.slice\n".into()),
        parent: None,
        is_kernel_thread: false,
        read: RefCell::default(),
    }
}

impl FakeProcess {
    fn with_comm(self, comm: &str) -> Self {
        FakeProcess { comm: Some(comm.as_bytes().to_vec()), ..self }
    }
    fn in_cgroup(self, cgroup: &str) -> Self {
        FakeProcess { cgroup: Some(cgroup.into()), ..self }
    }
    fn child_of(self, parent: FakeProcess) -> Self {
        FakeProcess { parent: Some(Box::new(parent)), ..self }
    }
}

impl ProcessInfo for FakeProcess {
    fn pid(&self) -> u32 {
        7
    }
    fn comm(&self) -> Option<Vec<u8>> {
        self.read.borrow_mut().push("comm");
        self.comm.clone()
    }
    fn cmdline(&self) -> Option<Vec<u8>> {
        self.read.borrow_mut().push("cmdline");
        self.cmdline.clone()
    }
    fn cgroup(&self) -> Option<String> {
        self.read.borrow_mut().push("cgroup");
        self.cgroup.clone()
    }
    fn parent(&self) -> Option<Self> {
        self.read.borrow_mut().push("parent");
        self.parent.as_deref().cloned()
    }
    fn is_kernel_thread(&self) -> bool {
        self.is_kernel_thread
    }
    fn is_root(&self) -> bool {
        true
    }
}

fn commands(names: &[&str]) -> Patterns {
    Patterns { commands: names.iter().map(|&name| name.into()).collect(), ..Patterns::default() }
}

fn substrings(substrings: &[&str]) -> Patterns {
    Patterns { argv_substrings: substrings.iter().map(|&it| it.into()).collect(), ..Patterns::default() }
}

fn find(patterns: &Patterns, process: &FakeProcess) -> Option<(String, MatchSource)> {
    Matcher::new(patterns.clone()).find(process, CgroupNamespace::default()).map(|found| (found.matched, found.source))
}

#[test]
fn command_matches_whole_name_case_sensitively() {
    let java = commands(&["java"]);
    assert_eq!(find(&java, &process(&["/usr/bin/java", "-jar", "x"])), Some(("java".into(), MatchSource::Comm)));
    for other in ["Java", "java-wrapper", "jav", "javac", "ajava"] {
        assert_eq!(find(&java, &process(&[other])), None, "{other}");
    }
    assert_eq!(find(&java, &process(&["/usr/bin/vi", "java"])), None, "an argument is not a name");
}

#[test]
fn truncated_name_must_be_confirmed_by_cmdline() {
    let long = commands(&["gnome-system-monitor"]);
    let matched = Some(("gnome-system-monitor".to_owned(), MatchSource::Comm));
    assert_eq!(find(&long, &process(&["/usr/bin/gnome-system-monitor"])), matched);
    assert_eq!(find(&long, &process(&["gnome-system-mo"])), None, "another program with the same prefix");
    assert_eq!(find(&long, &process(&["/usr/bin/gnome-system-log"])), None);
    let script = process(&["/bin/sh", "-e", "/opt/gnome-system-monitor", "--all"]).with_comm("gnome-system-mo");
    assert_eq!(find(&long, &script), matched, "the first argument of a script is its interpreter");
    let mut unreadable = process(&["gnome-system-monitor"]);
    unreadable.cmdline = None;
    assert_eq!(find(&long, &unreadable), matched, "no command line contradicts it");
    unreadable.cmdline = Some(vec![0, 0]);
    assert_eq!(find(&long, &unreadable), matched);
}

#[test]
fn name_length_is_counted_in_bytes() {
    assert!(find(&commands(&["exactly15-bytes"]), &process(&["exactly15-bytes"])).is_some());
    // The kernel truncates within a character.
    let umlauts = "datenträgerprüfung";
    assert!(umlauts.len() > MAX_COMM && !umlauts.is_char_boundary(MAX_COMM));
    assert!(find(&commands(&[umlauts]), &process(&[umlauts])).is_some());
}

#[test]
fn substring_spans_arguments_joined_by_spaces() {
    let idea = process(&["/opt/idea/bin/idea.sh", "-Xmx2g", "my project"]);
    for substring in ["idea", "/opt/idea", "idea.sh -Xmx2g", "-Xmx2g my project"] {
        assert_eq!(find(&substrings(&[substring]), &idea), Some((substring.into(), MatchSource::Cmdline)));
    }
    for substring in ["IDEA", "my project ", "\0"] {
        assert_eq!(find(&substrings(&[substring]), &idea), None, "{substring:?}");
    }
}

#[test]
fn command_takes_precedence_over_substring() {
    let both = Patterns { commands: vec!["idea".into()], argv_substrings: vec!["idea".into()] };
    assert_eq!(find(&both, &process(&["idea"])), Some(("idea".into(), MatchSource::Comm)));
    assert_eq!(find(&both, &process(&["vi", "idea.txt"])), Some(("idea".into(), MatchSource::Cmdline)));
    let either = commands(&["gnome-system-log", "gnome-system-monitor"]);
    assert_eq!(find(&either, &process(&["gnome-system-monitor"])).unwrap().0, "gnome-system-monitor");
}

#[test]
fn pod_process_never_matches() {
    let pod = "0::/kubepods.slice/kubepods-besteffort.slice/x.scope\n";
    for patterns in [commands(&["java"]), substrings(&["java"])] {
        assert!(find(&patterns, &process(&["java"])).is_some());
        assert_eq!(find(&patterns, &process(&["java"]).in_cgroup(pod)), None);
    }
}

#[test]
fn exited_process_does_not_match() {
    let java = commands(&["java"]);
    assert_eq!(find(&java, &FakeProcess { comm: None, ..process(&["java"]) }), None);
    assert_eq!(find(&java, &FakeProcess { cgroup: None, ..process(&["java"]) }), None);
    assert_eq!(find(&substrings(&["java"]), &FakeProcess { cgroup: None, ..process(&["java"]) }), None);
    assert_eq!(find(&substrings(&["java"]), &FakeProcess { cmdline: None, ..process(&["java"]) }), None);
}

/// Reading the command line of a pod's process may block, and takes long for a long one.
#[test]
fn command_line_of_a_pod_process_is_never_read() {
    let pod = "0::/kubepods/besteffort/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e\n";
    for patterns in [substrings(&["java"]), commands(&["gnome-system-monitor"]), commands(&["java"])] {
        for name in ["java", "gnome-system-monitor"] {
            let process = process(&[name]).in_cgroup(pod);
            assert_eq!(find(&patterns, &process), None);
            let read = process.read.borrow();
            assert!(!read.contains(&"cmdline") && !read.contains(&"parent"), "{read:?}");
        }
    }
}

#[test]
fn only_what_the_patterns_need_is_read() {
    let make = || process(&["make", "-j32"]);
    for (patterns, expected) in [
        (commands(&["java"]), vec!["comm"]),
        (commands(&["make"]), vec!["comm", "cgroup", "parent"]),
        (substrings(&["java"]), vec!["comm", "cgroup", "cmdline"]),
        (commands(&["gnome-system-monitor"]), vec!["comm"]),
    ] {
        let process = make();
        find(&patterns, &process);
        assert_eq!(*process.read.borrow(), expected);
    }
}

/// `runc` executes the pod's program after it has moved itself to the pod's cgroup.
#[test]
fn cgroup_is_read_again_after_a_match() {
    let process = process(&["vi", "java"]);
    assert!(find(&substrings(&["java"]), &process).is_some());
    let read = process.read.borrow();
    assert_eq!(read[..4], ["comm", "cgroup", "cmdline", "cgroup"]);
}

#[test]
fn program_of_the_container_stack_matches_by_name_only() {
    let mount = || process(&["mount", "-t", "tmpfs", "java"]).child_of(process(&["/usr/bin/kubelet"]));
    assert_eq!(find(&substrings(&["java"]), &mount()), None);
    assert_eq!(find(&commands(&["mount"]), &mount()), Some(("mount".into(), MatchSource::Comm)));
    let of_owner = process(&["mount", "java"]).child_of(process(&["/bin/sh"]));
    assert!(find(&substrings(&["java"]), &of_owner).is_some());
}

/// The kernel passes the host name of a pod that crashed to the handler of core dumps, which may run a debugger.
#[test]
fn program_that_the_kernel_started_does_not_match() {
    let kthreadd = FakeProcess { is_kernel_thread: true, ..process(&["kthreadd"]) };
    let handler = || process(&["/usr/lib/handler", "4711", "java-0"]).child_of(kthreadd.clone());
    let gdb = || process(&["gdb", "java-0"]).child_of(handler());
    for (patterns, process) in [
        (substrings(&["java"]), handler()),
        (commands(&["handler"]), handler()),
        (substrings(&["java"]), gdb()),
        (commands(&["gdb"]), gdb()),
    ] {
        assert_eq!(find(&patterns, &process), None);
        let of_owner = FakeProcess { parent: None, ..process }.child_of(super::tests::process(&["/bin/sh"]));
        assert!(find(&patterns, &of_owner).is_some());
    }
}

#[test]
fn leftmost_substring_is_reported() {
    let idea = process(&["/opt/idea/bin/java"]);
    assert_eq!(find(&substrings(&["java", "idea", "/opt"]), &idea).unwrap().0, "/opt");
    assert_eq!(find(&substrings(&["idea/bin", "idea"]), &idea).unwrap().0, "idea/bin", "the first of two at one place");
}

#[test]
fn empty_patterns_match_nothing() {
    assert!(Patterns::default().is_empty());
    assert_eq!(find(&Patterns::default(), &process(&["java"])), None);
}

proptest! {
    #[test]
    fn process_matches_its_own_name_and_any_part_of_its_cmdline(
        name in "[^/\0]{1,40}", arguments in prop::collection::vec("[^\0]{1,20}", 0..4), cut in any::<(usize, usize)>(),
    ) {
        let argv: Vec<&str> = std::iter::once(name.as_str()).chain(arguments.iter().map(String::as_str)).collect();
        prop_assert_eq!(find(&commands(&[&name]), &process(&argv)), Some((name.clone(), MatchSource::Comm)));
        let line: Vec<char> = argv.join(" ").chars().collect();
        let (from, until) = (cut.0 % line.len(), cut.1 % (line.len() + 1));
        if from < until && until <= line.len() {
            let substring: String = line[from..until].iter().collect();
            prop_assert!(find(&substrings(&[&substring]), &process(&argv)).is_some());
        }
    }

    #[test]
    fn different_name_never_matches(name in "[a-z]{1,30}", other in "[a-z]{1,30}") {
        prop_assume!(name != other);
        prop_assert_eq!(find(&commands(&[&name]), &process(&[&other])), None);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        comm in prop::collection::vec(any::<u8>(), 0..20), cmdline in prop::collection::vec(any::<u8>(), 0..200),
        pattern in ".{1,20}",
    ) {
        let arbitrary = FakeProcess { comm: Some(comm), cmdline: Some(cmdline), ..process(&["x"]) };
        let both = Patterns { commands: vec![pattern.clone()], argv_substrings: vec![pattern] };
        find(&both, &arbitrary);
    }
}

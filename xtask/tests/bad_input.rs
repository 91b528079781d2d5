//! Whatever a person gets wrong ends with exit code 2 and one clear line.

use std::process::Command;

#[test]
fn a_mistyped_command_ends_with_one_line_and_code_2() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "a subcommand is required: sandbox, test, gen, lint, bench"),
        (&["tset"], "a similar subcommand exists: 'test'"),
        (&["sandbox", "extra"], "unexpected argument 'extra'"),
        (&["test", "--cold", "name"], "'--cold' cannot be used with"),
        (&["gen", "--chekc"], "a similar argument exists: '--check'"),
        (&["bench", "extra"], "unexpected argument 'extra'"),
    ];
    for (arguments, words) in cases {
        let ran = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(arguments)
            .env("RUST_BACKTRACE", "1")
            .output()
            .expect("xtask starts");
        let told = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{arguments:?}: {told}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

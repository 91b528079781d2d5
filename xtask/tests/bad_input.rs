//! Invalid arguments end with exit code 2 and a one-line error.

use std::process::Command;

#[test]
fn invalid_arguments_end_with_one_line_and_code_2() {
    let cases: [(&[&str], &str); 7] = [
        (&[], "a subcommand is required: sandbox, test, gen, lint, bench"),
        (&["tset"], "a similar subcommand exists: 'test'"),
        (&["sandbox", "extra"], "unexpected argument 'extra'"),
        (&["test", "--cold", "name"], "'--cold' cannot be used with"),
        (&["gen", "--chekc"], "a similar argument exists: '--check'"),
        (&["bench", "flet"], "a similar value exists: 'fleet'"),
        (&["bench", "fleet", "extra"], "unexpected argument 'extra'"),
    ];
    for (arguments, expected) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(arguments)
            .env("RUST_BACKTRACE", "1")
            .output()
            .expect("xtask starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

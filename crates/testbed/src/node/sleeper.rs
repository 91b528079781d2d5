//! Sleeps until it is ended.

fn main() {
    loop {
        std::thread::park();
    }
}

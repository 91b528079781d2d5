//! Shards: which of several instances acts on which ScheduledMachine.
//!
//! Each object belongs to one shard. Without leader election, instance *n* holds shard *n*. With it, each shard has a Lease,
//! and [`lease`] decides which Leases an instance acquires, renews, requests and releases.

pub mod lease;

use sha2::{Digest as _, Sha256};

/// The shard of an object: the one with the highest hash of shard and object (rendezvous hashing), so that one more shard
/// takes an equal share from each of the others and moves nothing between them.
pub fn shard_of(namespace: &str, name: &str, count: u32) -> u32 {
    (0..count).max_by_key(|shard| weight(*shard, namespace, name)).unwrap_or_default()
}

/// Must stay the same in all versions: instances of two versions run at the same time during an update.
fn weight(shard: u32, namespace: &str, name: &str) -> [u8; 32] {
    Sha256::digest(format!("{shard}/{namespace}/{name}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(count: u32) -> Vec<u32> {
        (0..3000).map(|it| shard_of("team-a", &format!("desk-{it}"), count)).collect()
    }

    #[test]
    fn shards_are_of_similar_size() {
        for count in 1..=7 {
            let shards = shards(count);
            for shard in 0..count {
                let size = shards.iter().filter(|it| **it == shard).count();
                let expected = shards.len() / count as usize;
                assert!(
                    size.abs_diff(expected) < expected / 5,
                    "{size} of {} in shard {shard} of {count}",
                    shards.len()
                );
            }
        }
    }

    #[test]
    fn another_shard_takes_its_share_and_moves_nothing_else() {
        let (before, after) = (shards(3), shards(4));
        let moved: Vec<u32> = before.iter().zip(&after).filter(|(a, b)| a != b).map(|(_, b)| *b).collect();
        assert!(moved.iter().all(|shard| *shard == 3));
        assert!((600..900).contains(&moved.len()), "{} of {} moved", moved.len(), before.len());
    }

    /// A change would let instances of two versions act on the same object.
    #[test]
    fn shard_does_not_depend_on_the_version() {
        let shards: Vec<u32> = (0..16).map(|it| shard_of("team-a", &format!("desk-{it}"), 3)).collect();
        assert_eq!(shards, [0, 0, 0, 1, 0, 2, 1, 2, 2, 0, 0, 0, 2, 2, 2, 0]);
        assert_eq!(shard_of("team-a", "desk", 1), 0);
    }
}

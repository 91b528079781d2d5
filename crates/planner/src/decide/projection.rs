//! The reclaim agent on the Node: there while its owner may ask for the machine, and gone with everything that it needs
//! when they may not, or when the machine is on its way out for good.

use super::{Situation, reclaim};
use crate::observed::{Node, Orders, OurNode};
use crate::plan::Action;

/// Has the agent on the Node of a machine that stays, and takes it off one that does not.
pub(super) fn plan(situation: &Situation<'_>) -> Option<Action> {
    let machine = situation.seen.machine.ours()?;
    let stays = !machine.deleting && !reclaim::was_given_back(situation) && !reclaim::is_under_way(situation);
    match &situation.intent.orders {
        Some(orders) if stays => project(situation, orders),
        Some(_) | None => withdraw(situation),
    }
}

/// A spec that does not parse says nothing that anybody should act on; what was said before stands.
fn project(situation: &Situation<'_>, orders: &str) -> Option<Action> {
    let node = node(situation).filter(|_| situation.spec.is_ok())?;
    let told = match &node.agent.orders {
        Orders::Sought => return None,
        Orders::Told(told) => told == orders,
        Orders::None | Orders::Other => false,
    };
    (!told || !node.agent.labelled).then(|| Action::Project { orders: orders.to_owned() })
}

/// Takes the agent off the Node, if there is something of it.
pub(super) fn withdraw(situation: &Situation<'_>) -> Option<Action> {
    let agent = &node(situation)?.agent;
    let told = match agent.orders {
        Orders::Told(_) | Orders::Other => true,
        Orders::Sought | Orders::None => false,
    };
    (agent.labelled || told).then_some(Action::Unproject)
}

fn node<'a>(situation: &Situation<'a>) -> Option<&'a OurNode> {
    match &situation.seen.node {
        Node::Ours(node) => Some(node),
        Node::None | Node::Sought | Node::NotSeen | Node::Unreachable(_) => None,
    }
}

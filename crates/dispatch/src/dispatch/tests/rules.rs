//! Tests with rules that learn from the outcomes of calls, or act when attempts start.

use super::tier::{TOKENS, tier_of};
use super::*;
use crate::CopiesChoice;
use crate::rules::CallEnd;
use crate::rules::tests::Learning;

#[test]
fn starting_attempt_removes_the_queued_copies_of_its_fetch() {
    for balance in [BalanceChoice::PowerOfTwo, TOKENS] {
        let mut machine = tier_of(2, |o| {
            o.balance = balance;
            o.retry.burst = 0;
        });
        let (first, one) = call(&fetch(&mut machine, 0, &[("x", 1)]));
        let (second, _) = call(&fetch(&mut machine, 0, &[("y", 1)]));
        machine.replication = CopiesChoice::Tied { factor: 2 }.into();
        assert_eq!(fetch(&mut machine, 0, &[("a", 1)]), []);
        assert_eq!(machine.stats().calls, 4, "both copies wait");
        let (tied, at_replica) = call(&reply(&mut machine, 1, first, Reply::Ok(vec![None])));
        assert_eq!(at_replica, one);
        assert_eq!(calls(&reply(&mut machine, 2, second, Reply::Ok(vec![None]))), []);
        reply(&mut machine, 3, tied, Reply::Ok(vec![Some(1)]));
        assert_empty(&machine);
        // Where the first attempt starts at once, there is no copy.
        call(&fetch(&mut machine, 4, &[("b", 1)]));
        assert_eq!(machine.stats().calls, 1);
    }
}

#[test]
fn balancer_is_told_the_latency_and_outcome_of_each_call() {
    let mut machine = machine(2, |o| {
        o.balance = BalanceChoice::Tickets;
        o.retry.per_call_max = 0;
    });
    machine.balancer = AnyBalancer::Learning(Learning::default());
    for (replica, took, end) in
        [(0, 9, CallEnd::Answered), (1, 4, CallEnd::Answered), (1, 6, CallEnd::Failed)]
    {
        let now = 1_000 * u64::from(replica) + took;
        let (attempt, picked) = call(&fetch(&mut machine, now, &[("a", 1)]));
        assert_eq!(picked, ReplicaId(replica), "a replica without a latency, or the quickest");
        let answer = if end == CallEnd::Failed { failed(FailureKind::Reset) } else { Reply::Ok(vec![None]) };
        reply(&mut machine, now + took, attempt, answer);
    }
    call(&fetch(&mut machine, 3_000, &[("a", 1)]));
    wake(&mut machine, 3_100);
    let AnyBalancer::Learning(Learning { seen }) = &machine.balancer else { panic!("it was set") };
    let ends: Vec<_> = seen.iter().map(|(at, end)| (at.0, end.took.as_millis(), end.end)).collect();
    assert_eq!(
        ends,
        [
            (0, 9, CallEnd::Answered),
            (1, 4, CallEnd::Answered),
            (1, 6, CallEnd::Failed),
            (1, 100, CallEnd::Cancelled)
        ]
    );
}

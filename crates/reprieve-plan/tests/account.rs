//! Whatever happens to a fleet, no slot's time is counted twice, and no work is lost or done twice.

use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use reprieve_plan::Price;
use reprieve_plan::availability::Loss;
use reprieve_plan::fleet::{Bursts, Evictions, Mix, Model, Notice, Strategy, Swap, Upkeep, simulate};
use reprieve_plan::generated::Markov;
use reprieve_plan::lifetime::Lifetime;
use reprieve_plan::vm_state::EvictionPolicy;

const MINUTE_MS: u64 = 60_000;
const SPOT: Price = Price::from_nanos_per_hour(60_000_000);
const REGULAR: Price = Price::from_nanos_per_hour(240_000_000);

prop_compose! {
    fn models()(
        jobs_ms in prop::collection::vec(1..90 * MINUTE_MS, 1..40),
        checkpoint_ms in prop::option::of(1..20 * MINUTE_MS),
        save_ms in 0..MINUTE_MS,
        restore_ms in 0..MINUTE_MS,
        slots in 1_u32..4,
        boot_ms in 0..10 * MINUTE_MS,
        lease_ms in 0..MINUTE_MS,
        lead_ms in prop::option::of(0..MINUTE_MS),
        share in 0.0..=1.0,
        refused in 0.0..0.9,
        evictions in evictions(),
    ) -> Model {
        let mut model = Model::new(1, 1, SPOT, REGULAR);
        model.work.jobs_ms = jobs_ms;
        model.work.checkpoint_ms = checkpoint_ms.and_then(NonZeroU64::new);
        model.work.save_ms = save_ms;
        model.work.restore_ms = restore_ms;
        model.machines.slots = slots;
        model.machines.boot_ms = (boot_ms / 2, boot_ms);
        model.machines.lease_ms = lease_ms;
        model.market.notice = lead_ms.map(|lead_ms| Notice { lead_ms, share, blind_ms: lead_ms * 3 });
        model.market.refused = refused;
        model.market.evictions = evictions;
        model.limit_ms = 2_880 * MINUTE_MS;
        model
    }
}

fn evictions() -> impl proptest::strategy::Strategy<Value = Evictions> {
    prop_oneof![
        Just(Evictions::Each(Lifetime::Endless)),
        (1.0..600.0)
            .prop_map(|minutes| { Evictions::Each(Lifetime::Exponential { mean_ms: minutes * 60_000.0 }) }),
        (0.5..3.0, 1.0..600.0).prop_map(|(shape, minutes)| {
            Evictions::Each(Lifetime::Weibull { shape, scale_ms: minutes * 60_000.0 })
        }),
        (1..120 * MINUTE_MS, 1_u32..9).prop_map(|(after_ms, lost)| {
            Evictions::Together(Bursts::new(vec![Loss { after_ms, lost, of: 8 }]))
        }),
        (0.1..0.9, any::<u64>()).prop_map(|(available, seed)| {
            let chain = Markov { available, mean_up_ms: 60 * MINUTE_MS };
            Evictions::Capacity(chain.series(100 * 60 * MINUTE_MS, seed).times(8))
        }),
    ]
}

prop_compose! {
    fn strategies()(
        instances in 1_u32..9,
        base in 0_u32..4,
        percent_above in 0_u32..=100,
        kind in 0..4,
        swap in prop::option::of((1_u32..4, 1_u32..4)),
        delay_ms in 0..10 * MINUTE_MS,
    ) -> Strategy {
        let upkeep = match kind {
            0 => Upkeep::Nobody,
            1 => Upkeep::Restore { every_ms: delay_ms + 1, for_ms: 60 * MINUTE_MS },
            2 => Upkeep::Maintain { delay_ms },
            _ => Upkeep::Autoscale { delay_ms, lingers_ms: 10 * MINUTE_MS },
        };
        let policy = if kind < 2 { EvictionPolicy::Deallocate } else { EvictionPolicy::Delete };
        let swap =
            swap.map(|(after, instances)| Swap { after, instances, delay_ms, lingers_ms: delay_ms * 2 });
        let mix = Mix { base, percent_above };
        Strategy { upkeep, policy, swap, mix, ..Strategy::elastic(instances) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn time_is_kept_lost_or_overhead_and_work_is_kept_once(
        model in models(),
        strategy in strategies(),
        seed in any::<u64>(),
    ) {
        prop_assert_eq!((model.check(), strategy.check()), (Ok(()), Ok(())));
        let outcome = simulate(&model, &strategy, seed);
        let time = outcome.time;
        prop_assert_eq!(time.kept_ms + time.lost_ms + time.overhead_ms(), outcome.slot_ms);
        let work_ms: u64 = model.work.jobs_ms.iter().sum();
        let jobs = u32::try_from(model.work.jobs_ms.len()).unwrap();
        match outcome.finished_ms {
            Some(finished_ms) => {
                prop_assert!(finished_ms <= model.limit_ms);
                prop_assert_eq!((time.kept_ms, outcome.done), (work_ms, jobs));
            }
            None => prop_assert!(time.kept_ms < work_ms && outcome.done < jobs),
        }
        let spot_ms: u64 = outcome.hours.iter().map(|hour| hour.spot_ms).sum();
        let regular_ms: u64 = outcome.hours.iter().map(|hour| hour.regular_ms).sum();
        prop_assert_eq!((spot_ms + regular_ms) * u64::from(model.machines.slots), outcome.slot_ms);
        prop_assert_eq!(SPOT.cost(1, spot_ms), outcome.cost.spot);
        prop_assert_eq!(REGULAR.cost(1, regular_ms), outcome.cost.regular);
        prop_assert!(outcome.boot_evictions <= outcome.evictions);
    }
}

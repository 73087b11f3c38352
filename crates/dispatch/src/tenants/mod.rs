//! Rates of tenants: how much of a resource each tenant may use, and the queues of work that waits
//! for it.
//!
//! ```text
//!   TenantRates           a bucket for each tenant and one of the total, lending, the common rate
//!     ├─ TenantQueues     work waits before it starts, as its rate pays for it: reads and writes
//!     └─ TenantGate       work is charged afterwards, as a debt: network
//!          └─ DebtQueues  what waits until a debt is paid, in the order of arrival
//! ```

mod bounds;
mod debts;
mod error;
mod gate;
mod in_force;
mod queues;
mod rates;

pub(crate) use bounds::Bounds;
pub use debts::{DebtOptions, DebtPlace, DebtQueues, DebtWork, LOOK_AGAIN};
pub use error::TenantRefusal;
pub use gate::{Charged, TenantGate};
pub use in_force::{NodeRates, RatesInForce};
pub use queues::{Started, TenantQueueOptions, TenantQueues, WaitingId};
pub use rates::{Payer, TenantUse};

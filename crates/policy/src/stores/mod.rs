//! Management of replicated stores: layout and way to ask, chosen from the rate (Zoolander).
//!
//! Duplicates hide the moments in which a node is slow, and take load for it. Which layout is best
//! therefore changes with the rate: by day, and at night. The [`Manager`] predicts the service
//! level of each layout for the nodes at hand, with [`slo`](crate::slo), and changes the plan where
//! that gains more than the data that has to move is worth. It compares its predictions with the
//! measured levels, and changes nothing while they differ.

mod forecast;
mod layout;
mod manager;
mod options;
mod service_times;
mod slow_periods;
mod trial;
mod words;

pub use forecast::Forecast;
pub use layout::moved_ratio;
pub use manager::{Manager, StoreDecision};
pub use options::{ManagerAim, ManagerOptions};
pub use service_times::service_times;
pub use slow_periods::SlowPeriods;

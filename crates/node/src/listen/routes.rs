//! Routes of a listener's clients: from keys to the partitions of their tenants.

use std::collections::HashMap;

use sherwood_config::TenancySetup;
use sherwood_listener::{Routing, Target, UserRoutes};
use sherwood_model::{BackendId, TenantId};
use sherwood_ports::access::UserTenants;

use crate::core::Core;
use crate::setup::{ListenerSetup, RouteSetup};
use crate::start::StartError;

/// Returns the routes of clients whose user has none of its own: those of the listener's tenant, or
/// of the default tenant, and of tenants whose prefix a key has. Where only users tell the tenant,
/// there are none.
pub(super) fn routing(core: &Core, setup: &ListenerSetup) -> Result<Routing, StartError> {
    let Some(tenancy) = core.tenancy.as_deref() else { return of_tenant(core, setup, TenantId(0)) };
    if let Some(tenant) = setup.tenant {
        return of_tenant(core, setup, tenant);
    }
    if setup.auth_file.is_some() {
        // Before its login a client belongs to no tenant, so its bytes are no tenant's debt.
        return Ok(Routing::by_prefix(core.names.nobody(), [])?);
    }
    let tenant = core.names.default_tenant().unwrap_or(core.names.nobody());
    let mut routes = Vec::new();
    for (index, of) in tenancy.tenants.iter().enumerate() {
        let id = TenantId::from_index(index);
        if let Some(prefix) = &of.prefix {
            routes.extend(routes_of(core, setup, id, prefix)?);
        }
        if Some(id) == core.names.default_tenant() {
            routes.extend(routes_of(core, setup, id, "")?);
        }
    }
    Ok(Routing::by_prefix(tenant, routes)?)
}

/// Returns the routes of the users of each tenant, where only they tell the tenant.
pub(super) fn users(core: &Core, setup: &ListenerSetup) -> Result<UserRoutes, StartError> {
    let Some(tenancy) = core.tenancy.as_deref().filter(|_| setup.tenant.is_none()) else {
        return Ok(UserRoutes::default());
    };
    if setup.auth_file.is_none() {
        return Ok(UserRoutes::default());
    }
    let routing = |index| of_tenant(core, setup, TenantId::from_index(index));
    Ok(UserRoutes::new((0..tenancy.tenants.len()).map(routing).collect::<Result<Vec<_>, _>>()?))
}

/// Returns the tenants of the users in a listener's password file.
pub(super) fn user_tenants(tenancy: Option<&TenancySetup>, setup: &ListenerSetup) -> UserTenants {
    let listed = tenancy.map(listed).unwrap_or_default();
    match (setup.tenant, tenancy) {
        (Some(tenant), _) => UserTenants::One { tenant, listed },
        (None, None) => UserTenants::One { tenant: TenantId(0), listed },
        (None, Some(_)) => UserTenants::Listed(listed),
    }
}

fn listed(tenancy: &TenancySetup) -> HashMap<String, TenantId> {
    let tenants = tenancy.tenants.iter().enumerate();
    let users = tenants.flat_map(|(index, tenant)| {
        tenant.users.iter().map(move |user| (user.clone(), TenantId::from_index(index)))
    });
    users.collect()
}

fn of_tenant(core: &Core, setup: &ListenerSetup, tenant: TenantId) -> Result<Routing, StartError> {
    match &setup.route {
        RouteSetup::Backend(backend) => Ok(Routing::single(target(core, setup, tenant, *backend)?)),
        RouteSetup::Prefix(_) => Ok(Routing::by_prefix(tenant, routes_of(core, setup, tenant, "")?)?),
    }
}

/// Returns the routes to a tenant's partitions; its keys begin with `prefix`.
fn routes_of(
    core: &Core,
    setup: &ListenerSetup,
    tenant: TenantId,
    prefix: &str,
) -> Result<Vec<(String, Target)>, StartError> {
    let route = |(of_backend, backend): (&str, BackendId)| {
        Ok((format!("{prefix}{of_backend}"), target(core, setup, tenant, backend)?))
    };
    match &setup.route {
        RouteSetup::Backend(backend) => Ok(vec![route(("", *backend))?]),
        RouteSetup::Prefix(prefixes) => {
            prefixes.iter().map(|(prefix, backend)| route((prefix, *backend))).collect()
        }
    }
}

fn target(
    core: &Core,
    setup: &ListenerSetup,
    tenant: TenantId,
    backend: BackendId,
) -> Result<Target, StartError> {
    let partition = core.partition(tenant, backend);
    Ok(Target {
        partition: partition.ok_or_else(|| StartError::no_partition(core.names.backend(backend)))?,
        tenant,
        read_through: setup.read_through && core.backend(backend).is_some(),
        write_through: setup.write_through.is_some() && core.backend(backend).is_some(),
        shared: core.shared(backend).is_some(),
    })
}

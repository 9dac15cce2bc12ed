"""How hosts become one cluster on an etcd of its own: authority, certificates, tokens, and the way in.

The state directory of a host (QM_STATE_DIR) holds what its processes need to reach the store:

    access.json                     host, namespace, endpoints of the store
    tls/ca.crt                      the authority that everybody trusts
    tls/host.crt, host.key          this host; writes its own objects only
    tls/etcd-server.*, etcd-peer.*  where the host carries a member of etcd
    tls/leader.crt, leader.key      there as well: such a host may lead
    etcd/                           the member that runs here, and its data

What others call (nothing here imports gRPC or cryptography before it is used):

    access.read_access(directory) -> StoreAccess | None
        `.url` for the agent; `.leader_url` for a leader, "" where the host may not lead: it comes and goes, ask again
    bootstrap.bootstrap(directory, host, addresses, machine=…, namespace=…) -> StoreAccess
        the first host; repeated, as `qm up` does after a boot, it only starts the member
    keeping.keep_member(directory, machine)
        a coroutine for every agent's process, from before the store is opened: it starts the host's own member of
        etcd, again and again, and cures a full database; it needs no store
    client.join(directory, token, host=…, addresses=…) -> StoreAccess
    roles.standalone_agents(directory) -> [ServiceAgent]
        "etcd" and "certificates", for an agent's runtime
    roles.Standalone(access)
        for the leader's process: `.managers()`, first in the Orchestrator's list, and `.services()`, the endpoint for
        hosts that join, periodic backups, and what closes the connections of a term

docs/design/joining.md has the reasons.
"""

import { natsRights } from "../../sessions/log/jetstream/rights.ts";
import { accountConfig } from "../cluster/permissions.ts";
import { type NatsPlan, natsUser } from "./plan.ts";

/** The image of NATS servers. Versions before 2.14.6 can stop taking writes while they report health. */
export const natsImage = "nats:2.15-alpine";
/** Three, of which any two are enough. */
export const natsServers = 3;

/** The config of one server of three: it flushes before it acknowledges, and knows one user. */
export function serverConfig(
  plan: NatsPlan,
  { name, hosts, folder }: { name: string; hosts: readonly string[]; folder: string },
): string {
  const routes = hosts.map((host) => `nats-route://${host}:6222`);
  return `server_name: ${name}
listen: 0.0.0.0:4222
http: 0.0.0.0:8222
# An answer may have 1 MiB, and a record holds it beside its session.
max_payload: 8MB

jetstream {
  store_dir: ${folder}
  # By default servers acknowledge what is in their memory, and a power failure of two loses it.
  sync_interval: always
  max_memory_store: 64MB
  max_file_store: ${plan.storeGib}GB
}

cluster {
  name: flotilla
  listen: 0.0.0.0:6222
  routes: [${routes.join(", ")}]
}

# What pods may do, and nothing else: \`flotilla cluster permissions\` prints the same.
${accountConfig({ ...natsUser, rights: natsRights(plan) })}`;
}

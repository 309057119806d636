import { hostname, userInfo } from "node:os";
import process from "node:process";
import { hasCode } from "../base/errors.ts";
import { silentLogger } from "../base/log.ts";
import type { ConnectOptions, Flotilla } from "../runtime/connect.ts";
import type { StoredAgents } from "../sessions/agents/stored-agents.ts";
import type { TargetFlags } from "./flags.ts";
import type { ActingFor, Operations, SessionOperations } from "./remote.ts";
import { loadStoreSettings } from "./settings.ts";

type StoreOptions = Pick<ConnectOptions, "maxPayloadBytes" | "privateAgents">;
type TenantFlags = TargetFlags & { readonly tenant?: string | undefined };

/** The tenant where no flag, key or token names one. */
export const defaultTenant = "default";

/**
 * Runs a command through the server at `--url`, or else on the store. There it never creates a file and
 * never changes the schema: a wrong path must not become an empty store.
 */
export async function onTarget<Result>(
  { url, config, store }: TargetFlags,
  work: (operations: Operations) => Promise<Result>,
  { user, tenant, ...options }: StoreOptions & ActingFor = {},
): Promise<Result> {
  if (url !== undefined) {
    const { openRemote, remoteOperations } = await import("./remote.ts");
    const remote = openRemote(url, { user, tenant });
    try {
      return await work(remoteOperations(remote));
    } finally {
      remote.client.close();
    }
  }
  return onStore({ config, store }, work, options);
}

export async function onStore<Result>(
  flags: Omit<TargetFlags, "url">,
  work: (flotilla: Flotilla) => Promise<Result>,
  options: StoreOptions = {},
): Promise<Result> {
  const { canBeWritten } = await import("../runtime/data-folder.ts");
  const { connect } = await import("../runtime/connect.ts");
  const { actAs } = await import("../audit/actor.ts");
  const { store, dataDir, codec, nats, files } = await loadStoreSettings(flags);
  await using flotilla = connect(store, {
    ...options,
    ...(codec && { codec }),
    ...(nats && { nats }),
    ...(files && { files }),
    // A user who only reads may not have write permission there.
    dataDir: dataDir !== false && canBeWritten(dataDir) && dataDir,
    create: false,
    migrate: "check",
    // The command reports errors itself.
    log: silentLogger,
  });
  const actor = { kind: "cli", user: machineUser(), address: hostname() } as const;
  return await actAs(actor, () => work(flotilla));
}

/** The user that runs this process. In a container it may have no name. */
function machineUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.()}`;
  }
}

/** What is shown beside a command's answer, or `otherwise` where the key may not see it. */
export async function ifAllowed<Value>(asked: Promise<Value>, otherwise: Value): Promise<Value> {
  try {
    return await asked;
  } catch (error) {
    if (hasCode(error, "forbidden")) return otherwise;
    throw error;
  }
}

export async function onSessions<Result>(
  flags: TenantFlags,
  work: (sessions: SessionOperations, tenant: string) => Promise<Result>,
): Promise<Result> {
  const { tenant } = flags;
  const run = ({ sessionService }: Operations) => work(sessionService, tenant ?? defaultTenant);
  return onTarget(flags, run, { tenant });
}

export async function onAgents<Result>(
  flags: TenantFlags,
  work: (agents: StoredAgents, tenant: string) => Promise<Result>,
  options: { privateAgents?: boolean } = {},
): Promise<Result> {
  const { tenant } = flags;
  const run = ({ agents }: Operations) => work(agents, tenant ?? defaultTenant);
  return onTarget(flags, run, { ...options, tenant });
}

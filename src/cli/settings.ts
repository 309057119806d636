import process from "node:process";
import { FlotillaError } from "../base/errors.ts";
import type { FilesConfig } from "../files/files.ts";
import type { Config, PodSettings } from "../runtime/config.ts";
import type { Workable } from "../runtime/handlers.ts";
import type { QuotaConfig } from "../runtime/quota-config.ts";
import type { Store } from "../store/open.ts";
import { natsConfigIn } from "../bus/nats/config.ts";
import { loadConfig } from "./config-file.ts";
import { findDev } from "./dev-file.ts";
import type { ServerFlags, StoreFlags, TargetFlags } from "./flags.ts";
import { printNotice } from "./output.ts";

// A server knows its own limit; this one keeps a request within the size that servers read.
const maxSentBytes = 16 * 1024 * 1024;

/** The settings of a pod or server: flag over environment over config file over default. */
export async function loadSettings(flags: ServerFlags): Promise<PodSettings> {
  const config = await loadConfig(flags.config);
  const { slots, only, host, port, adminPort, dataDir } = flags;
  const store = await storeOf(flags, config);
  const apiKeys = keysFromEnvironment();
  const secret = process.env["FLOTILLA_TOKEN_SECRET"];
  const keys = process.env["FLOTILLA_KEYS"] as "store" | undefined;
  return resolved({
    ...config,
    ...natsOf(config),
    ...(store !== undefined && { store }),
    ...(slots !== undefined && { slots }),
    ...(only !== undefined && { only }),
    ...(dataDir !== undefined && { dataDir }),
    server: {
      ...config.server,
      ...(host !== undefined && { host }),
      ...(port !== undefined && { port }),
      ...(adminPort !== undefined && { adminPort }),
      ...(apiKeys && { apiKeys }),
      ...(keys && { keys }),
      ...(secret && { tokens: { ...config.server?.tokens, secret } }),
    },
  });
}

/**
 * What the config says by itself, for commands that write it down: variables of this process aren't those
 * of the pods that are meant.
 */
export async function loadOwnSettings({ config, store }: StoreFlags): Promise<PodSettings> {
  return resolved({ ...(await loadConfig(config)), ...(store && { store }) });
}

/** The store, for commands that need nothing else: the config is only loaded for it. */
export async function loadStore(flags: TargetFlags): Promise<Store> {
  return (await loadStoreSettings(flags)).store;
}

/**
 * The store, and the data folder of its pods on this machine where a config names one. A flag or its
 * variable names the store or the config; without both it is the store of the `flotilla dev` that runs in
 * this folder, before that of the config and DATABASE_URL: what `dev` runs with was chosen last.
 */
export async function loadStoreSettings(
  flags: TargetFlags,
): Promise<Pick<PodSettings, "store" | "dataDir" | "codec" | "nats"> & { files?: FilesConfig }> {
  if (flags.store) return { store: flags.store, dataDir: false, ...natsOf({}) };
  const dev = flags.config ? undefined : await findDev();
  const config = await loadConfig(flags.config ?? dev?.config);
  const named = dev?.store ?? (await storeOf(flags, config));
  const { store, dataDir, codec, nats } = await resolved({
    ...config,
    ...natsOf(config, process.env["FLOTILLA_NATS"] || dev?.nats),
    ...(named !== undefined && { store: named }),
  });
  const { files } = config;
  return {
    store,
    dataDir,
    ...(codec && { codec }),
    ...(nats && { nats }),
    ...(files && { files }),
  };
}

/** Whether changes are to be recorded, as a config says: that of the folder, unless a store alone is named. */
export async function loadChanges({ config, store }: TargetFlags): Promise<PodSettings["changes"]> {
  if (store && !config) return undefined;
  const path = config ?? (await findDev())?.config;
  return (await resolved(await loadConfig(path))).changes;
}

/** The quotas of a config, for commands on its store. */
export async function loadQuotas({ config, store }: TargetFlags): Promise<QuotaConfig | undefined> {
  if (store) return undefined;
  const path = config ?? (await findDev())?.config;
  return (await resolved(await loadConfig(path))).server?.quotas;
}

/**
 * The handlers of a config, for commands that validate input with their schemas. A server has its own, and
 * validates with those.
 */
export async function loadHandlers({
  url,
  config,
  store,
}: TargetFlags): Promise<
  Pick<PodSettings, "use" | "maxPayloadBytes"> & { workables: readonly Workable[] }
> {
  if (url !== undefined) return { use: [], workables: [], maxPayloadBytes: maxSentBytes };
  const { use, maxPayloadBytes } = await resolved(
    await loadConfig(config ?? (store ? undefined : (await findDev())?.config)),
  );
  const { workablesOf } = await import("../runtime/handlers.ts");
  return { use, maxPayloadBytes, workables: workablesOf(use) };
}

async function resolved(config: Config): Promise<PodSettings> {
  const { resolveConfig } = await import("../runtime/config.ts");
  return resolveConfig(config);
}

/**
 * DATABASE_URL is used only where neither flag, variable nor config names a store. Many programs have it
 * for another database, where Flotilla must not create tables.
 */
async function storeOf(flags: TargetFlags, config: Config): Promise<Store | undefined> {
  const named = flags.store || config.store;
  return named || (await withoutSchema(process.env["DATABASE_URL"])) || undefined;
}

/**
 * Drops the schema of DATABASE_URL, which is that of the application's own tables, as Prisma writes it.
 * Refuses a schema that holds Flotilla's tables: starting in another one would leave their data behind.
 */
async function withoutSchema(url = ""): Promise<string> {
  if (!/^postgres(ql)?:/i.test(url)) return url;
  const at = url.indexOf("?");
  const parameters = at < 0 ? [] : url.slice(at + 1).split("&");
  const kept = parameters.filter((each) => !/^schema(=|$)/.test(each));
  // It names the default.
  const isDefault = parameters.includes("schema=flotilla");
  if (kept.length === parameters.length || isDefault) return url;
  const { holdsOurs } = await import("../store/postgres/inspect.ts");
  if (await holdsOurs(url)) {
    throw new FlotillaError(
      "invalid_option",
      "the schema in DATABASE_URL holds tables of Flotilla, but only FLOTILLA_STORE can name a schema: set FLOTILLA_STORE to the same URL",
    );
  }
  printNotice(
    "ignoring the schema in DATABASE_URL, which is the application's: Flotilla's tables are in the schema flotilla (name another with --store or FLOTILLA_STORE)",
  );
  return url.slice(0, at) + (kept.length > 0 ? `?${kept.join("&")}` : "");
}

/** The variable names servers, and perhaps what they are used for; the rest is what the config says. */
function natsOf({ nats }: Config, text = process.env["FLOTILLA_NATS"]): Pick<Config, "nats"> {
  const named = natsConfigIn(text);
  if (named) return { nats: { ...nats, ...named } };
  return nats ? { nats } : {};
}

function keysFromEnvironment(): string[] | undefined {
  const keys = process.env["FLOTILLA_API_KEYS"]?.split(",").map((key) => key.trim());
  const nonEmpty = keys?.filter((key) => key !== "");
  // An empty variable must not remove the keys of the config.
  return nonEmpty?.length ? nonEmpty : undefined;
}

import process from "node:process";
import { FlotillaError } from "../base/errors.ts";
import type { Config, PodSettings } from "../runtime/config.ts";
import type { Workable } from "../runtime/handlers.ts";
import type { Store } from "../store/open.ts";
import { loadConfig } from "./config-file.ts";
import type { ServerFlags, StoreFlags } from "./flags.ts";
import { printNotice } from "./output.ts";

/** The settings of a pod or server: flag over environment over config file over default. */
export async function loadSettings(flags: ServerFlags): Promise<PodSettings> {
  const config = await loadConfig(flags.config);
  const { slots, only, host, port, adminPort, dataDir } = flags;
  const store = await storeOf(flags, config);
  const apiKeys = keysFromEnvironment();
  const secret = process.env["FLOTILLA_TOKEN_SECRET"];
  return resolved({
    ...config,
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
      ...(secret && { tokens: { ...config.server?.tokens, secret } }),
    },
  });
}

/** The store, for commands that need nothing else: the config is run only to learn it. */
export async function loadStore(flags: StoreFlags): Promise<Store> {
  return (await loadStoreSettings(flags)).store;
}

/** The store, and the folder that its pods on this machine have, as far as a config says so. */
export async function loadStoreSettings(
  flags: StoreFlags,
): Promise<{ store: Store; dataDir: string | false }> {
  if (flags.store) return { store: flags.store, dataDir: false };
  const config = await loadConfig(flags.config);
  const given = await storeOf(flags, config);
  const { store, dataDir } = await resolved({
    ...config,
    ...(given !== undefined && { store: given }),
  });
  return { store, dataDir };
}

/** The handlers of a config, for commands that check what is given by their schemas. */
export async function loadHandlers(
  given: string | undefined,
): Promise<Pick<PodSettings, "use" | "maxPayloadBytes"> & { workables: readonly Workable[] }> {
  const { use, maxPayloadBytes } = await resolved(await loadConfig(given));
  const { workablesOf } = await import("../runtime/handlers.ts");
  return { use, maxPayloadBytes, workables: workablesOf(use) };
}

async function resolved(config: Config): Promise<PodSettings> {
  const { resolveConfig } = await import("../runtime/config.ts");
  return resolveConfig(config);
}

/**
 * DATABASE_URL counts only where neither flag, variable nor config says which store: in many programs it is there for
 * something else, and tables of ours have no business in that.
 */
async function storeOf(flags: StoreFlags, config: Config): Promise<Store | undefined> {
  const given = flags.store || config.store;
  return given || (await withoutSchema(process.env["DATABASE_URL"])) || undefined;
}

/**
 * The schema in that variable is where the application's own tables are, as Prisma writes it. One that
 * holds our tables was meant for them: to begin in another would leave what is in it behind.
 */
async function withoutSchema(url = ""): Promise<string> {
  if (!/^postgres(ql)?:/i.test(url)) return url;
  const at = url.indexOf("?");
  const given = at < 0 ? [] : url.slice(at + 1).split("&");
  const kept = given.filter((each) => !/^schema(=|$)/.test(each));
  // What is used without it needn't be said.
  const isUsual = given.includes("schema=flotilla");
  if (kept.length === given.length || isUsual) return url;
  const { holdsOurs } = await import("../store/postgres/inspect.ts");
  if (await holdsOurs(url)) {
    throw new FlotillaError(
      "invalid_option",
      "the schema in DATABASE_URL holds tables of Flotilla, and a schema is taken from FLOTILLA_STORE alone: set FLOTILLA_STORE to the same URL",
    );
  }
  printNotice(
    "the schema in DATABASE_URL is the application's, and isn't used: Flotilla's tables are in the schema flotilla (name another with --store or FLOTILLA_STORE)",
  );
  return url.slice(0, at) + (kept.length > 0 ? `?${kept.join("&")}` : "");
}

function keysFromEnvironment(): string[] | undefined {
  const keys = process.env["FLOTILLA_API_KEYS"]?.split(",").map((key) => key.trim());
  const given = keys?.filter((key) => key !== "");
  // A variable that is set to nothing must not take away the keys of the config.
  return given?.length ? given : undefined;
}

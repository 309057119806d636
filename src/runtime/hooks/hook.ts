import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { checkNumber, checkOptions } from "../../base/options.ts";
import type { Part } from "../../protocol/message.ts";
import type { HookVerifier } from "./signatures.ts";

/** A delivery whose sender is known. */
export type HookDelivery = {
  /** The same when it is sent again. */
  readonly id: string;
  readonly body: Uint8Array;
  readonly text: string;
  /** The body as JSON. Where it is none, the delivery is refused. */
  json(): unknown;
  header(name: string): string | undefined;
  /** Ends with the time that the hook has. */
  readonly signal: AbortSignal;
};

/** What a delivery says, and in which session. */
export type HookMessage = {
  /** Default: a session of this delivery alone, which needs `agents`. */
  sessionId?: string;
  message: string | readonly Part[];
  /** Who says it. Default: the hook's name. */
  author?: string;
  /** The agents of the session, which is made if there is none of this id. */
  agents?: readonly string[];
  /** The members of a session that is made. */
  users?: readonly string[];
  /** The agent to ask, if the session has several. */
  to?: string;
  /** What the message is marked with. */
  metadata?: Json;
};

export type HookSettings = {
  /** Whose deliveries are taken: `standardWebhooks`, `githubSignature`, `stripeSignature`, `slackSignature`, or one's own. */
  verify: HookVerifier;
  /** Which session a delivery is for, and what it says there. Nothing: it is of no interest. */
  handle: (
    delivery: HookDelivery,
  ) => HookMessage | null | undefined | Promise<HookMessage | null | undefined>;
  /** Whose sessions these are. Default `default`. */
  tenant?: string;
  /** How large a delivery may be. Default 1 MiB. */
  maxBytes?: number;
  /** How long `handle` may take. Default 10,000. */
  timeoutMs?: number;
};

/** Deliveries of another service, at `POST /v1/hooks/<name>`. */
export type Hook = Readonly<Required<HookSettings>> & { readonly name: string };

const nameForm = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const defaultMaxBytes = 1024 * 1024;
const largestBytes = 25 * 1024 * 1024;
const defaultTimeoutMs = 10_000;

/**
 * Has deliveries of another service speak in sessions. The same delivery, sent twice, is one message: its id is
 * that of the message.
 */
export function hook(name: string, options: HookSettings): Hook {
  if (!nameForm.test(name))
    throw invalid(
      `a hook's name has lower-case letters, digits, _ and -, 64 at most, not ${JSON.stringify(name)}`,
    );
  checkOptions(`hook ${name}`, options, ["verify", "handle", "tenant", "maxBytes", "timeoutMs"]);
  const { verify, handle, tenant = "default" } = options;
  const { maxBytes = defaultMaxBytes, timeoutMs = defaultTimeoutMs } = options;
  if (typeof verify !== "function")
    throw invalid(
      `hook ${name} needs \`verify\`, or anyone could speak in your sessions: such as githubSignature({ secret })`,
    );
  if (typeof handle !== "function") throw invalid(`hook ${name}: handle must be a function`);
  if (typeof tenant !== "string" || tenant === "")
    throw invalid(`hook ${name}: tenant must be a non-empty string`);
  checkNumber(`hook ${name}: maxBytes`, maxBytes, { min: 1_024, max: largestBytes });
  checkNumber(`hook ${name}: timeoutMs`, timeoutMs, { min: 100, max: 60_000 });
  return { name, verify, handle, tenant, maxBytes, timeoutMs };
}

/** Refuses what isn't a list of hooks of different names. */
export function checkHooks(hooks: readonly Hook[]): void {
  const names = new Set<string>();
  for (const each of hooks) {
    if (typeof each !== "object" || each === null || !nameForm.test(each.name ?? ""))
      throw invalid("server.hooks must be a list of what `hook(name, { verify, handle })` returns");
    if (names.has(each.name)) throw invalid(`server.hooks has two of the name ${each.name}`);
    names.add(each.name);
  }
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}

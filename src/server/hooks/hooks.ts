import { createHash } from "node:crypto";
import type { MiddlewareHandler } from "hono";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { withTimeout } from "../../base/timeout.ts";
import type { Part } from "../../protocol/message.ts";
import type { Hook, HookDelivery, HookMessage } from "../../runtime/hooks/hook.ts";
import type { KnownDelivery } from "../../runtime/hooks/signatures.ts";
import type { CreateSession, SessionService } from "../../sessions/service.ts";
import type { Admission } from "../admission/admission.ts";
import { type TenantQuotas, whileAdmitted } from "../admission/tenant-quotas.ts";
import type { Caller } from "../auth/caller.ts";
import { parseBody, readRequestBody, route, type Route } from "../route.ts";
import { hookSpecs } from "./hooks.schema.ts";

export type HookRouteParts = {
  hooks: readonly Hook[];
  sessions: Pick<SessionService, "create" | "get" | "send">;
  quotas?: Pick<TenantQuotas, "session" | "write"> | undefined;
  clock: Clock;
  log: Logger;
};

/** The path of hooks, whose callers have signatures in place of credentials. */
export const hooksPath = "/v1/hooks/";

/** Admits deliveries by their addresses. What they may do is what their hook says. */
export function hookAdmission(hooks: readonly Hook[], { unknown }: Admission): MiddlewareHandler {
  const byName = new Map(hooks.map((each) => [each.name, callerOfHook(each)]));
  return (c, next) =>
    unknown(c, async () => {
      const caller = byName.get(c.req.path.slice(hooksPath.length));
      if (!caller) throw noHook();
      c.set("caller", caller);
      await next();
    });
}

/** A delivery as it came, with what its hook may do. */
type Received = Pick<HookDelivery, "body" | "header"> & { readonly caller: Caller };

/** What became of a delivery. */
type Delivered =
  | { readonly status: "answered"; readonly challenge: string }
  | { readonly status: "ignored" | "duplicate" | "stored" };

/**
 * Takes a delivery, and says it in a session. Its id is that of its message, so that one which is sent again,
 * also while it is taken elsewhere, is said once.
 */
export function createDeliveries({
  sessions,
  quotas,
  clock,
  log,
}: Omit<HookRouteParts, "hooks">): (hook: Hook, received: Received) => Promise<Delivered> {
  /** Makes the session if there is none of its id. */
  const open = async (tenant: string, session: CreateSession & { readonly sessionId: string }) => {
    try {
      await sessions.create(tenant, session);
    } catch (error) {
      if (!hasCode(error, "conflict")) throw error;
      // One whose agents have changed since it was made, unless it was deleted.
      await sessions.get(tenant, session.sessionId, { retries: true }).catch((unread: unknown) => {
        throw hasCode(unread, "not_found") ? error : unread;
      });
    }
  };

  const say = async (hook: Hook, caller: Caller, id: string, given: HookMessage) => {
    const { name, tenant } = hook;
    const messageId = `hook-${digestOf(name, id)}`;
    const { sessionId = messageId, message, agents, users = [], author = name, to } = given;
    if (agents !== undefined) {
      const admitted = quotas?.session(caller, sessionId);
      await whileAdmitted(admitted, () => open(tenant, { sessionId, agents, users }));
    } else if (given.sessionId === undefined) {
      throw new FlotillaError(
        "internal",
        `hook ${name} named neither a session nor \`agents\` for a new one`,
      );
    }
    const parts: readonly Part[] =
      typeof message === "string" ? [{ type: "text", text: message }] : message;
    const send = () =>
      sessions.send(tenant, sessionId, {
        id: messageId,
        author,
        parts,
        ...(to !== undefined && { to }),
        ...(given.metadata !== undefined && { metadata: given.metadata }),
      });
    return quotas
      ? whileAdmitted(quotas.write(caller, sessionId, { begins: true, id: messageId }), send)
      : send();
  };

  return async (hook, { caller, header, body }) => {
    const verified = await verify(hook, { header, body, nowMs: clock.now() }, { clock, log });
    if ("answer" in verified) return { status: "answered", challenge: verified.answer };
    const given = await handled(hook, { id: verified.id, body, header }, clock);
    if (!given) return { status: "ignored" };
    const { duplicate } = await say(hook, caller, verified.id, given);
    return { status: duplicate ? "duplicate" : "stored" };
  };
}

export function hookRoutes({ hooks: all, ...parts }: HookRouteParts): Route[] {
  const hooks = new Map(all.map((each) => [each.name, each]));
  const deliver = createDeliveries(parts);
  return [
    route(hookSpecs.deliver).to(async ({ params, caller, context }) => {
      const hook = hooks.get(params.name);
      if (!hook) throw noHook();
      const body = await readRequestBody(context, hook.maxBytes);
      const header = (name: string) => context.req.header(name);
      return { status: 200, body: await deliver(hook, { caller, header, body }) };
    }),
  ];
}

async function verify(
  { name, timeoutMs, verify: check }: Hook,
  request: Parameters<Hook["verify"]>[0],
  { clock, log }: Pick<HookRouteParts, "clock" | "log">,
): Promise<KnownDelivery> {
  let verified: KnownDelivery | undefined;
  const late = () => new Error(`it took longer than ${timeoutMs} ms`);
  try {
    const checked = (async () => check(request))();
    verified = await withTimeout(clock, timeoutMs, checked, late);
  } catch (error) {
    log.warn({ hook: name, error: messageOf(error) }, "a hook's verifier failed");
  }
  if (verified) return verified;
  throw new FlotillaError(
    "unauthorized",
    "the signature isn't right, or too old: check the secret of the hook and the clocks",
  );
}

/** What the hook makes of a delivery, in the time that it has. */
async function handled(
  { name, handle, timeoutMs }: Hook,
  { id, body, header }: Pick<HookDelivery, "id" | "body" | "header">,
  clock: Clock,
): Promise<HookMessage | null | undefined> {
  const ending = new AbortController();
  const text = Buffer.from(body).toString("utf8");
  const delivery: HookDelivery = {
    id,
    body,
    text,
    json: () => parseBody(body),
    header,
    signal: ending.signal,
  };
  const late = () =>
    new FlotillaError("unavailable", `hook ${name} took longer than ${timeoutMs} ms`);
  try {
    const given = (async () => handle(delivery))();
    return await withTimeout(clock, timeoutMs, given, late);
  } catch (error) {
    if (error instanceof FlotillaError) throw error;
    // The sender sends it again. What it sent is no part of an error.
    throw new FlotillaError("internal", `hook ${name} failed: ${messageOf(error)}`, {
      cause: error,
    });
  } finally {
    ending.abort();
  }
}

export function callerOfHook({ name, tenant }: Hook): Caller {
  return {
    kind: "server",
    tenant,
    keyId: `hook/${name}`,
    keyName: `hook ${name}`,
    verbs: new Set(),
  };
}

function noHook(): FlotillaError {
  return new FlotillaError("not_found", "there is no hook of this name: see `server.hooks`");
}

function digestOf(name: string, id: string): string {
  return createHash("sha256")
    .update(JSON.stringify([name, id]))
    .digest("hex")
    .slice(0, 40);
}

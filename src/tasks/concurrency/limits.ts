import { type ActParts, beginAct, writeAct } from "../../audit/act.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import { checkNumber, checkOptions, checkText } from "../../base/options.ts";
import { limitRange, maxKeyChars } from "../../protocol/task-options.ts";
import type { Row } from "../../store/database.ts";
import { untilKnown } from "../../store/retry.ts";
import { lockLimits, unblockUnchecked, unblock } from "../sql/concurrency.ts";
import {
  dropLimit,
  entryOfLimit,
  notableScopes,
  putLimit,
  readScopes,
  tenantCounts,
} from "../sql/limits.ts";
import { keyScope, queueScope, tenantOf } from "../sql/task-state.ts";

export { limitRange };

/** A concurrency limit and its current use. */
export type LimitState = {
  /** `key/<name>/<key>`, `queue/<queue>` or `tenant/<tenant>`. */
  readonly scope: string;
  /** How many may run at once; null if there is no limit. */
  readonly limit: number | null;
  /** Set by `limits.set`, which overrides the limit declared in code. */
  readonly byHand: boolean;
  readonly running: number;
  /** Tasks blocked by this scope. Tasks of a tenant at its limit are not blocked but stay ready. */
  readonly blocked: number;
};

export type TenantState = {
  readonly tenant: string;
  readonly limit: number | null;
  readonly running: number;
  /** Tasks that would run if the tenant had a free slot and a pod had capacity. */
  readonly ready: number;
  /** Tasks that wait for a free slot of their key. */
  readonly blocked: number;
};

export type Limits = {
  /**
   * Sets how many tasks of a scope may run at once in the whole fleet, over the limit declared in
   * code; null removes the override. Running tasks continue, even above the new limit. If an answer
   * is lost, the write is repeated and may overwrite a limit set in between.
   */
  set(scope: string, limit: number | null): Promise<void>;
  get(scope: string): Promise<LimitState>;
  /** The limits that were set, and those with blocked tasks. 1,000 at most. */
  list(): Promise<LimitState[]>;
  /** Tenants that have a limit, or running or waiting tasks. */
  tenants(): Promise<TenantState[]>;
};

/** How many tasks may run at once in the whole fleet. */
export type Concurrency<Input = any> = {
  /** 1 to 10,000. */
  readonly limit: number;
  /**
   * Derives the key from the input; tasks with equal keys count together. Without it, all tasks of
   * the name do.
   */
  readonly key?: (input: Input) => string;
};

/** A named queue: runs of all flows that name it count together. */
export type NamedQueue = {
  readonly name: string;
  /** How many may run at once in the whole fleet: 1 to 10,000. */
  readonly limit: number;
};

type LimitedTask = {
  readonly name: string;
  readonly concurrency: Concurrency | undefined;
  readonly queue?: NamedQueue | undefined;
  readonly input: unknown;
  /** The caller's key, which replaces the one derived from the input. */
  readonly concurrencyKey: string | undefined;
  readonly tenant: string;
};

// A transaction should not unblock more at once; the leader unblocks the rest.
const maxUnblocked = 500;
const scopePattern =
  /^(key\/[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}\/.{0,500}|queue\/[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}|tenant\/.{1,500})$/su;

/** Creates the operations on concurrency limits. */
export function createLimits(
  parts: ActParts & {
    /**
     * Called after a limit has changed, so that a pod in this process claims without waiting for a
     * notification.
     */
    onEnqueued?: () => void;
  },
): Limits {
  const { database, onEnqueued } = parts;

  const readStates = async (scopes: readonly string[]): Promise<LimitState[]> => {
    const wanted = scopes.map((scope) => ({ scope, tenant: tenantOf(scope) ?? null }));
    return (await database.read(readScopes(wanted))).map(toLimit);
  };

  return {
    async set(scope, limit) {
      checkScope(scope);
      if (limit !== null) checkNumber(`the limit of ${scope}`, limit, limitRange);
      const change = limit === null ? dropLimit(scope) : putLimit(scope, limit);
      // Without an override, blocked tasks are tried again, and the claiming pod applies the limit
      // declared in code.
      const unblocking = (limit === null ? unblockUnchecked : unblock)([scope], maxUnblocked);
      const act = await beginAct(parts, { action: "limits.set", subject: scope });
      await writeAct(
        parts,
        act,
        {
          statements: (_, entry) => [
            lockLimits([scope]),
            ...entryOfLimit(scope, limit, entry),
            change,
            unblocking,
          ],
          hasAnswer: false,
          notify: true,
        },
        untilKnown,
      );
      onEnqueued?.();
    },
    async get(scope) {
      checkScope(scope);
      return (await readStates([scope]))[0]!;
    },
    async list() {
      const scopes = await database.read(notableScopes());
      if (scopes.length === 0) return [];
      return readStates(scopes.map((row) => row["scope"] as string));
    },
    async tenants() {
      return toTenants(await database.read(tenantCounts()));
    },
  };
}

/** Validates the `concurrency` of a contract. */
export function checkConcurrency(what: string, concurrency: Concurrency): Concurrency {
  checkOptions(`${what}: concurrency`, concurrency, ["limit", "key"]);
  checkNumber(`${what}: concurrency.limit`, concurrency.limit, limitRange);
  if (concurrency.key === undefined || typeof concurrency.key === "function") return concurrency;
  throw new FlotillaError(
    "invalid_option",
    `${what}: concurrency.key must be a function that makes a key of the input`,
  );
}

/** The concurrency scope of a task: its key, its tenant, or both; undefined if it has none. */
export function concurrencyScopeOf(
  task: LimitedTask,
): { scope: string | null; limited: true } | undefined {
  const { name, concurrency, queue, concurrencyKey, tenant } = task;
  if (concurrencyKey !== undefined) {
    checkText("concurrencyKey", concurrencyKey, { max: maxKeyChars });
    return { scope: keyScope(name, concurrencyKey), limited: true };
  }
  // A flow in a queue counts against the queue's limit, together with all others of the queue.
  if (queue !== undefined) return { scope: queueScope(queue.name), limited: true };
  if (concurrency !== undefined)
    return { scope: keyScope(name, concurrencyKeyOf(task)), limited: true };
  return tenant === "default" ? undefined : { scope: null, limited: true };
}

function checkScope(scope: unknown): asserts scope is string {
  const isText = typeof scope === "string" && scope.isWellFormed() && !scope.includes("\u0000");
  if (!isText || !scopePattern.test(scope)) {
    throw new FlotillaError(
      "invalid_option",
      `a limit's scope must be \`tenant/<tenant>\`, \`queue/<queue>\` or \`key/<name>/<key>\`, not ${JSON.stringify(scope)?.slice(0, 80)}`,
    );
  }
  if (tenantOf(scope) === "default") {
    throw new FlotillaError(
      "invalid_option",
      "the tenant `default` can't have a limit, because it stands for tasks without a tenant: give tasks a tenant",
    );
  }
}

function toLimit(row: Row): LimitState {
  return {
    scope: row["scope"],
    limit: row["max_running"] === null ? null : Number(row["max_running"]),
    byHand: Number(row["by_hand"] ?? 0) === 1,
    running: Number(row["running"]),
    blocked: Number(row["blocked"]),
  };
}

function toTenants(counts: readonly Row[]): TenantState[] {
  const byTenant = new Map<string, { -readonly [Key in keyof TenantState]: TenantState[Key] }>();
  for (const row of counts) {
    const state = row["state"] as "blocked" | "limit" | "ready" | "running";
    const tenant = state === "limit" ? tenantOf(row["tenant"])! : (row["tenant"] as string);
    const none = { tenant, limit: null, running: 0, ready: 0, blocked: 0 };
    const of = byTenant.get(tenant) ?? none;
    of[state] = Number(row["tasks"]);
    byTenant.set(tenant, of);
  }
  return [...byTenant.values()].toSorted((one, other) => (one.tenant < other.tenant ? -1 : 1));
}

function concurrencyKeyOf({ name, concurrency, input }: LimitedTask): string {
  if (concurrency?.key === undefined) return "";
  let key: unknown;
  try {
    key = concurrency.key(input);
  } catch (error) {
    const message = `the key function of "${name}" threw: ${messageOf(error)}`;
    throw new FlotillaError("invalid_option", message, { cause: error });
  }
  return checkText(`what the key function of "${name}" makes`, key, { max: maxKeyChars });
}

/**
 * What clients ask for, one by one and many in a call, and what they were told: T1. What was answered is
 * there, what failed for certain isn't, and of a call that stores all or none either all are there or none.
 */
import { FlotillaError, hasCode, transientCodes } from "../../src/base/errors.ts";
import type { Tasks } from "../../src/tasks/tasks.ts";
import type { EnqueueOptions } from "../../src/tasks/enqueue/options.ts";
import type { Row } from "../../src/store/database.ts";
import type { World } from "./world.ts";

export type Outcome =
  | { readonly type: "open" }
  | { readonly type: "ok"; readonly taskId: string; readonly created: boolean }
  | { readonly type: "failed"; readonly code: string }
  | { readonly type: "unknown" };

/** A request of a client, and what the client was told. */
export type Request = {
  readonly op: number;
  readonly name: string;
  readonly key: string | undefined;
  /** The call that stores all of its requests or none. */
  readonly whole: number | undefined;
  outcome: Outcome;
};

/** A request with all that is sent for it. */
export type Asked = {
  readonly request: Request;
  readonly payload: { readonly op: number };
  readonly options: EnqueueOptions;
};

export type Requests = {
  readonly history: readonly Request[];
  /** Notes a request before it is made. */
  add(name: string, options?: { key?: string | undefined; whole?: number | undefined }): Request;
  /** Notes how a request has ended. Rejects with what no client expects. */
  settle(requests: readonly Request[], answer: Promise<readonly Outcome[]>): Promise<void>;
};

const expected = [...transientCodes, "conflict", "duplicate_key", "not_found"] as const;

export function createRequests({ scheduler }: World): Requests {
  const history: Request[] = [];
  return {
    history,
    add(name, { key, whole } = {}) {
      const op = history.length + 1;
      const request: Request = { op, name, key, whole, outcome: { type: "open" } };
      history.push(request);
      return request;
    },
    async settle(requests, answer) {
      let outcomes: readonly Outcome[];
      try {
        outcomes = await answer;
      } catch (error) {
        if (!hasCode(error, ...expected)) throw error;
        const { code } = error as FlotillaError;
        outcomes = requests.map(() => refused(code));
      }
      for (const [at, request] of requests.entries()) {
        request.outcome = outcomes[at]!;
        scheduler.note(`client #${request.op} ${request.name} ${request.outcome.type}`);
      }
    },
  };
}

function refused(code: string): Outcome {
  return code === "unknown_outcome" ? { type: "unknown" } : { type: "failed", code };
}

/** The three ways in, each with what its caller is told of every task. */
export const waysIn = {
  async one(tasks: Tasks, { request, payload, options }: Asked) {
    const { taskId, created } = await tasks.enqueue(request.name, payload, options);
    return [{ type: "ok", taskId, created }] as const;
  },
  /** All of one name, with the options of the first, and keys for all of them or for none. */
  async many(tasks: Tasks, all: readonly Asked[]) {
    const { key: _, concurrencyKey, ...options } = all[0]!.options;
    const keys = new Map(all.map(({ payload, request }) => [payload.op, request.key]));
    const keyed = all[0]!.request.key !== undefined;
    const keyOf = (payload: unknown) => keys.get((payload as Asked["payload"]).op)!;
    const made = await tasks.enqueueMany(
      all[0]!.request.name,
      all.map(({ payload }) => payload),
      {
        ...options,
        ...(concurrencyKey !== undefined && { concurrencyKey }),
        ...(keyed && { key: keyOf }),
      },
    );
    return made.map(({ taskId, created }) => ({ type: "ok", taskId, created }) as const);
  },
  async each(tasks: Tasks, all: readonly Asked[]) {
    const rows = all.map(({ request, payload, options }) => ({
      task: request.name,
      input: payload,
      options,
    }));
    const { outcomes } = await tasks.enqueueEach(rows);
    return outcomes.map((each) =>
      each.outcome === "rejected"
        ? refused(each.code)
        : ({ type: "ok", taskId: each.taskId, created: each.outcome === "created" } as const),
    );
  },
};

/** Holds what clients were told to the rows that there are when all is over. */
export function judgeRequests(
  { violate, count }: World,
  history: readonly Request[],
  rows: readonly { readonly op: number; readonly row: Row }[],
): void {
  const byId = new Map(rows.map(({ row }) => [row["task_id"] as string, row]));
  const byOp = new Map<number, string[]>();
  for (const { op, row } of rows) byOp.set(op, [...(byOp.get(op) ?? []), row["task_id"]]);
  const holders = new Map<string, string>();
  for (const { row } of rows) {
    if (row["unique_key"] !== null) {
      holders.set(`${row["name"]} ${row["unique_key"]}`, row["task_id"]);
    }
  }
  const told = new Map<string, string>();
  const wholes = new Map<number, Request[]>();
  for (const request of history) {
    const { op, name, key, whole, outcome } = request;
    const made = byOp.get(op) ?? [];
    const what = describe(request);
    if (whole !== undefined) wholes.set(whole, [...(wholes.get(whole) ?? []), request]);
    if (made.length > 1) violate("T1", `${what} made ${made.length} tasks`);
    switch (outcome.type) {
      case "ok": {
        const row = byId.get(outcome.taskId);
        if (row?.["name"] !== name) violate("T1", `${what} was stored for certain and isn't there`);
        if (outcome.created !== (made[0] === outcome.taskId)) {
          violate("T1", `${what} was told created: ${outcome.created}`);
        }
        if (key === undefined) break;
        const holder = told.get(`${name} ${key}`) ?? outcome.taskId;
        told.set(`${name} ${key}`, holder);
        if (holder !== outcome.taskId) violate("T1", `${what} has two tasks`);
        break;
      }
      case "failed":
        if (made.length > 0) violate("T1", `${what} failed for certain and is there`);
        if (outcome.code === "duplicate_key") count("request: duplicate refused");
        break;
      case "open":
        violate("T7", `${what} was never answered`);
        break;
      case "unknown":
        break;
    }
  }
  for (const together of wholes.values()) {
    const isMade = ({ op }: Request) => byOp.has(op);
    if (!together.some(isMade)) continue;
    const isThere = (request: Request) =>
      isMade(request) ||
      (request.key !== undefined && holders.has(`${request.name} ${request.key}`));
    const missing = together.find((request) => !isThere(request));
    if (missing) violate("T1", `${describe(missing)} isn't there, and others of its call are`);
  }
  const known = new Set(history.map(({ op }) => op));
  for (const op of byOp.keys()) if (!known.has(op)) violate("T1", `nobody asked for ${op}`);
}

function describe({ op, name, key }: Request): string {
  return `request ${op} (${name}${key === undefined ? "" : `, ${key}`})`;
}

import { systemClock } from "../base/clock.ts";
import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Client } from "../client/client.ts";
import type { Http } from "../client/http.ts";
import type { JsonValues } from "../store/json-values.ts";
import { whyOpen } from "../tasks/inspect/blocked-by.ts";
import { timeoutOf, type WaitOptions } from "../tasks/inspect/wait-for.ts";
import type { Task } from "../tasks/rows.ts";

/** The parameters of a request. */
export type RequestQuery = Record<string, string | number | undefined>;

/** Values of stored JSON as the parameters of a query, such as `payload.order.id`. */
export function valuesQuery(what: "payload" | "metadata", values: JsonValues): RequestQuery {
  const pairs = Object.entries(values);
  return Object.fromEntries(
    pairs.map(([path, value]) => [`${what}.${path}`, JSON.stringify(value)]),
  );
}

/** All items of a list of a server. */
export async function allPages<Item>(http: Http, path: string, field: string): Promise<Item[]> {
  const all: Item[] = [];
  for await (const page of pagesOf<Item>(http, path, field)) all.push(...page);
  return all;
}

/** The pages of a list of a server, one after the other. */
export async function* pagesOf<Item>(
  http: Http,
  path: string,
  field: string,
  query: RequestQuery = {},
): AsyncGenerator<readonly Item[]> {
  const seen = new Set<unknown>();
  for (let cursor: string | undefined; ;) {
    const page = await http<Record<string, unknown>>("GET", path, { query: { ...query, cursor } });
    const items = page[field];
    if (!Array.isArray(items)) {
      throw new FlotillaError("unavailable", `the server's answer to ${path} has no ${field}`);
    }
    yield items as Item[];
    const { next } = page as { next?: string | null };
    if (next === undefined || next === null) return;
    if (seen.has(next)) {
      const message = `the server repeats a page of ${path}, so there would be no end`;
      throw new FlotillaError("unavailable", message);
    }
    seen.add(next);
    cursor = next;
  }
}

/** The answer, or undefined where there is no such thing. */
export async function ifFound<Found>(request: Promise<Found>): Promise<Found | undefined> {
  try {
    return await request;
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  }
}

/** The answer to a cancel, which comes too late for what has ended. */
export async function unlessFinished<Status>(
  cancel: Promise<Status>,
): Promise<Status | "finished"> {
  try {
    return await cancel;
  } catch (error) {
    if (hasCode(error, "conflict")) return "finished";
    throw error;
  }
}

/** The task or run, once it has ended. */
export function whenEnded<View>(
  { tasks }: Client,
  taskId: string,
  { timeoutMs }: WaitOptions,
): Promise<View> {
  return new Promise<View>((resolve, reject) => {
    const watched = tasks.watch(taskId);
    const stop = watched.subscribe(() => {
      const { status, value, error } = watched.get();
      if (status === "ended") finish(() => resolve(value as View));
      else if (status === "gone") finish(() => reject(error!));
    });
    const timedOut = async (limitMs: number): Promise<void> => {
      const read = async () => (await tasks.get(taskId)) as unknown as Task;
      const why = await whyOpen(systemClock, read);
      finish(() => reject(timeoutOf(taskId, limitMs, why)));
    };
    const cancel =
      timeoutMs === undefined
        ? () => {}
        : systemClock.after(timeoutMs, () => void timedOut(timeoutMs));
    const finish = (settle: () => void): void => {
      stop();
      cancel();
      settle();
    };
  });
}

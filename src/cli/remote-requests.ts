import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Http } from "../client/http.ts";

/** The parameters of a request. */
export type RequestQuery = Record<string, string | number | undefined>;

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

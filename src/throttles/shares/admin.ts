import { FlotillaError } from "../../base/errors.ts";
import { checkNumber, checkOptions } from "../../base/options.ts";
import { fitPage } from "../../base/page.ts";
import type { Database } from "../../store/database.ts";
import { isStorable } from "../declaration.ts";
import { pin, readThrottle, readThrottles, type ThrottleView, unpin } from "./read.ts";
import type { Place } from "./sql.ts";

export type ThrottlePage = { readonly throttles: ThrottleView[]; readonly next: string | null };

export type ThrottleListOptions = {
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 100. */
  limit?: number;
};

export type ThrottleKey = {
  /** Which of its limits is meant, where it is keyed. */
  key?: string;
};

/** What the fleet knows of its throttles, and how it is set by hand. */
export type ThrottlesClient = {
  /** A page, in the order of their names and keys. */
  list(options?: ThrottleListOptions): Promise<ThrottlePage>;
  get(name: string, options?: ThrottleKey): Promise<ThrottleView | undefined>;
  /** Holds the limit of all pods where somebody says. Nothing is learned until it is unpinned. */
  pin(name: string, limit: number, options?: ThrottleKey): Promise<ThrottleView>;
  /** Lets the limit be learned again, from what was known before it was pinned. */
  unpin(name: string, options?: ThrottleKey): Promise<ThrottleView>;
};

const pinRange = { min: 0, max: 100_000 };

export function createThrottlesClient({ database }: { database: Database }): ThrottlesClient {
  return {
    async list(options = {}) {
      checkOptions("throttles.list", options, ["cursor", "limit"]);
      const { cursor, limit = 100 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const after = cursor === undefined ? undefined : placeOf(cursor);
      const found = await readThrottles(database, { limit: limit + 1, ...(after && { after }) });
      const page = fitPage(found.slice(0, limit), found.length > limit);
      return { throttles: page.items, next: page.hasMore ? cursorOf(page.items.at(-1)!) : null };
    },
    get: async (name, options) => readThrottle(database, placeFrom(name, options)),
    async pin(name, limit, options) {
      checkNumber("limit", limit, pinRange);
      const place = placeFrom(name, options);
      return (await pin(database, place, limit)) ?? missing(place);
    },
    async unpin(name, options) {
      const place = placeFrom(name, options);
      return (await unpin(database, place)) ?? missing(place);
    },
  };
}

function placeFrom(name: string, options: ThrottleKey = {}): Place {
  checkOptions("throttle", options, ["key"]);
  const { key = "" } = options;
  if (isText(name) && isText(key)) return { name, key };
  throw new FlotillaError(
    "invalid_option",
    "the name and the key of a throttle must be texts that a database can store",
  );
}

// Names and keys may hold anything, so none of them can stand between the two.
function cursorOf({ name, key }: Place): string {
  return Buffer.from(JSON.stringify([name, key])).toString("base64url");
}

function placeOf(cursor: string): Place {
  try {
    const [name, key] = JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown[];
    if (isText(name) && isText(key)) return { name, key };
  } catch {
    // Refused below.
  }
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}

function isText(value: unknown): value is string {
  return typeof value === "string" && isStorable(value);
}

/** It is known to the store from its first use on. */
function missing({ name, key }: Place): never {
  const shown = JSON.stringify(name.slice(0, 80));
  const of = key === "" ? "" : ` with the key ${JSON.stringify(key.slice(0, 80))}`;
  throw new FlotillaError("not_found", `no pod has used a throttle ${shown}${of} yet`);
}

import type { Clock } from "../base/clock.ts";
import { hasCode, storeAwayCodes } from "../base/errors.ts";
import type { SessionPage } from "./service.ts";

/**
 * The pages of lists that were read last, which are shown again while the database is away and its sessions go
 * on. Each says of what time it is.
 */
export type LastPages = {
  /** What `read` gives, or if that finds the database away, what it gave for the same query before. */
  read(query: object, read: () => Promise<SessionPage>): Promise<SessionPage>;
};

/** Of 1 MiB each at most. */
const maxPages = 16;
/** What is older would be taken for more than it is. */
export const maxShownAgeMs = 600_000;

export function createLastPages({ clock }: { clock: Clock }): LastPages {
  const pages = new Map<string, { readonly page: SessionPage; readonly readMs: number }>();

  const keep = (key: string, page: SessionPage, readMs: number): void => {
    // Moves it to the end, so that what was read longest ago is dropped first.
    pages.delete(key);
    pages.set(key, { page, readMs });
    if (pages.size > maxPages) pages.delete(pages.keys().next().value!);
  };

  return {
    async read(query, read) {
      const key = JSON.stringify(query);
      const readMs = clock.monotonic();
      try {
        const page = await read();
        keep(key, page, readMs);
        return page;
      } catch (error) {
        const last = pages.get(key);
        const isShown = hasCode(error, ...storeAwayCodes) && last;
        if (!isShown || readMs - last.readMs > maxShownAgeMs) throw error;
        return last.page;
      }
    },
  };
}

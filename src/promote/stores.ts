import { FlotillaError } from "../base/errors.ts";
import type { Database } from "../store/database.ts";
import { locateStore, openUnmigrated, type Store, withoutSecrets } from "../store/open.ts";
import { openReadOnly } from "../store/sqlite/inspect.ts";

/** The two stores of a promotion, open as they are, and as they may be shown. */
export type PromotionStores = {
  readonly source: Database;
  readonly target: Database;
  readonly from: string;
  readonly to: string;
  close(): Promise<void>;
};

/** Opens both stores, neither of which is looked at or changed, or throws if they can't be these two. */
export async function openStores(
  { from, to }: { from: Store; to: Store },
  { readOnly }: { readOnly: boolean },
): Promise<PromotionStores> {
  const path = checkedSource(from, to);
  const source = readOnly
    ? openReadOnly(path)
    : await openUnmigrated(from, { migrate: "check", create: false });
  try {
    const target = await openUnmigrated(to, { migrate: "check" });
    return {
      source,
      target,
      from: withoutSecrets(from),
      to: withoutSecrets(to),
      async close() {
        await source.close();
        await target.close();
      },
    };
  } catch (error) {
    await source.close();
    throw error;
  }
}

/** The file of the source. */
function checkedSource(from: Store, to: Store): string {
  const [source, target] = [locateStore(from), locateStore(to)];
  const refused = (why: string) => new FlotillaError("invalid_option", why);
  if (target.kind === "sqlite") {
    throw refused(
      source.kind === "sqlite" && source.path === target.path
        ? "the target is the source itself: name a database of Postgres, such as --to postgres://user@host/app"
        : `a store is promoted to Postgres, and ${JSON.stringify(withoutSecrets(to))} is a file: name a database, such as --to postgres://user@host/app`,
    );
  }
  if (source.kind === "sqlite") return source.path;
  const isSame = JSON.stringify(source.store) === JSON.stringify(target.store);
  throw refused(
    isSame
      ? "the target is the source itself: name the SQLite file to move with --from sqlite:<file>"
      : "only a SQLite store can be promoted, and the source is on Postgres already: name the file to move with --from sqlite:<file>",
  );
}

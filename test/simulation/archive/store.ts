/** A database behind a log: it is slow, away, loses answers, gets writes late, and is set back to what it was. */
import { type Clock, sleep } from "../../../src/base/clock.ts";
import { FlotillaError } from "../../../src/base/errors.ts";
import { between, fraction, type Random } from "../../../src/base/random.ts";
import type { Database, Row } from "../../../src/store/database.ts";
import {
  join,
  sql,
  type Statement,
  table,
  type TableName,
  type Value,
} from "../../../src/store/sql.ts";

export type SimulatedArchive = {
  /** The database, as one process reaches it. */
  connect(): Database;
  /** From now on things go wrong. */
  begin(): void;
  /** Nothing goes wrong any more. */
  end(): void;
  away(forMs: number): void;
  /** Restores what was there a while ago. */
  setBack(): Promise<void>;
};

/** All that a flush changes. */
export const archivedTables: readonly TableName[] = [
  "log_watermark",
  "archive_aside",
  "session",
  "session_user",
  "message",
  "turn_checkpoint",
  "step_journal",
  "turn",
];

type Backup = readonly (readonly [TableName, readonly Row[]])[];

const backupMs = 1_500;

export function simulateArchive(
  rows: Database,
  {
    clock,
    random,
    count,
    logs,
  }: { clock: Clock; random: Random; count: (what: string) => void; logs: number },
): SimulatedArchive {
  let isBad = false;
  let awayMs = -Infinity;
  let backup: Backup | undefined;
  const happens = (likely: number, what: string): boolean => {
    if (!isBad || fraction(random) >= likely) return false;
    count(what);
    return true;
  };
  const way = () => sleep(clock, between(random, 0, isBad ? 30 : 2));

  const copy = async (): Promise<Backup> =>
    Promise.all(
      archivedTables.map(
        async (name) => [name, await rows.read(sql`select * from ${table(name)}`)] as const,
      ),
    );
  const backUp = async (): Promise<void> => {
    if (!isBad) return;
    const copied = await copy();
    // A database that has never heard of a log isn't one of its backups.
    if (copied[0]![1].length === logs) backup = copied;
    clock.after(backupMs, () => void backUp());
  };

  const check = async (): Promise<void> => {
    await way();
    if (clock.monotonic() < awayMs) {
      count("fault: database away");
      throw new FlotillaError("store_unavailable", "the database is away");
    }
  };

  return {
    connect: () => ({
      ...rows,
      async read(statement, options) {
        await check();
        if (happens(0.03, "fault: database read failed")) {
          throw new FlotillaError("store_unavailable", "the read failed");
        }
        const found = await rows.read(statement, options);
        await way();
        return found;
      },
      async write(statements, options) {
        await check();
        if (happens(0.05, "fault: flush lost before")) throw lost();
        if (happens(0.05, "fault: flush late")) {
          clock.after(between(random, 100, 5_000), () => {
            // It may be refused by now, and its sender has long given up.
            void rows.write(statements, options).catch(() => count("late flush refused"));
          });
          throw lost();
        }
        const stored = await rows.write(statements, options);
        await way();
        if (happens(0.08, "fault: flush lost after")) throw lost();
        return stored;
      },
    }),
    begin() {
      isBad = true;
      void backUp();
    },
    end() {
      isBad = false;
      awayMs = -Infinity;
    },
    away(forMs) {
      awayMs = clock.monotonic() + forMs;
    },
    async setBack() {
      if (!backup) return;
      count("fault: database set back");
      await rows.write(
        backup.flatMap(([name, all]) => [
          sql`delete from ${table(name)}`,
          ...all.map((row) => insert(name, row)),
        ]),
      );
    },
  };
}

function insert(name: TableName, row: Row): Statement {
  const columns = Object.keys(row);
  const values = Object.values(row) as Value[];
  return sql`insert into ${table(name)} (${raw(columns.join(", "))})
    values (${join(
      values.map((value) => sql`${value}`),
      ", ",
    )})`;
}

/** Names of columns, which are those of the table itself. */
function raw(text: string): Statement {
  return sql(Object.assign([text], { raw: [text] }) as unknown as TemplateStringsArray);
}

function lost(): FlotillaError {
  return new FlotillaError("unknown_outcome", "the answer was lost");
}

import pg from "pg";
import { connect, type Flotilla } from "flotilla";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { openStore } from "../../src/store/open.ts";
import { walkBounds } from "../../src/store/walk.ts";

const rows = 50_000;
/** Beside the entries of a walk: the schema, the names of flows, and the rows of what was found. */
const aside = 1_000;
const aFew = 200;
/** So many tasks have failed, and as many wait for a signal or a time. */
const part = rows / 100;
/** What waits is read for the list and for whether that is all, each time from two indexes. */
const waiting = 2 * (2 * part) + aFew;

/** Every list that a page asks for, by filters that match nothing, with the rows that it may read. */
const lists: Record<string, [ask: (flotilla: Flotilla) => Promise<unknown>, mostRows: number]> = {
  "tasks of a name": [({ tasks }) => tasks.list({ name: "nothing" }), walkBounds.entries + aside],
  "tasks of a tenant": [
    ({ tasks }) => tasks.list({ tenant: "nothing" }),
    walkBounds.entries + aside,
  ],
  "completed tasks of a name": [
    ({ tasks }) => tasks.list({ name: "nothing", status: "completed" }),
    walkBounds.entries + aside,
  ],
  "failed tasks of a name": [
    ({ tasks }) => tasks.list({ name: "nothing", status: "failed" }),
    part + aside,
  ],
  "tasks of a key": [({ tasks }) => tasks.list({ name: "task-1", key: "nothing" }), aFew],
  "tasks of a session": [({ tasks }) => tasks.list({ session: "nothing" }), aFew],
  "tasks of a pod": [({ tasks }) => tasks.list({ pod: "nothing" }), aFew],
  "pending tasks of a name": [
    ({ tasks }) => tasks.list({ name: "nothing", status: "pending" }),
    part + aside,
  ],
  "runs at a transition": [
    ({ runs }) => runs.list({ flow: "order", at: "nothing" }),
    rows / 10 + aside,
  ],
  "runs of a tenant": [
    ({ runs }) => runs.list({ tenant: "nothing" }),
    // Each is found by the index of its flow, and then checked.
    2 * (rows / 10) + aside,
  ],
  "runs of a flow": [({ runs }) => runs.list({ flow: "nothing" }), aFew],
  "sessions of a user": [({ sessions }) => sessions.list({ user: "nothing" }), aFew],
  "approvals of a tenant": [(flotilla) => flotilla.approvals({ tenant: "nothing" }), waiting],
  "entries of an actor": [({ audit }) => audit.list({ actor: "user/nothing" }), aFew],
  "entries of a subject": [({ audit }) => audit.list({ subject: "nothing" }), aFew],
  "entries of an actor and an action": [
    ({ audit }) => audit.list({ actor: "key/ops", action: "keys.create" }),
    aFew,
  ],
  "counts of a subject": [({ series }) => series.read({ subject: "task:nothing" }), aFew],
  "the groups of failures": [
    ({ deadLetters }) => deadLetters.groups({ name: "nothing" }),
    // Its first reader makes an index of all that has failed.
    4 * part + aside,
  ],
};

/** What pages show of the fleet as a whole. */
const counts: typeof lists = {
  "the depth of every name": [({ tasks }) => tasks.depth(), 4 * part + aside],
  "counts by status": [({ tasks }) => tasks.stats(), 10_000 + 4 * part + aside],
  "counts of sessions": [(flotilla) => flotilla.sessionCounts(), rows / 10 + aside],
  "what waits for a person": [(flotilla) => flotilla.approvals(), waiting],
  "the newest entries": [({ audit }) => audit.list(), aFew],
  "the newest tasks": [({ tasks }) => tasks.list(), aside],
  "an hour of a subject": [({ series }) => series.read({ subject: "task:task-1" }), aFew],
};

describe(`of a store with ${rows} tasks`, () => {
  let made: Awaited<ReturnType<typeof temporaryDatabase>>;
  let client: pg.Client;

  beforeAll(async () => {
    made = await temporaryDatabase();
    await (await openStore(made.url)).close();
    client = new pg.Client(made.url);
    await client.connect();
    for (const text of fill) await client.query(text);
  });
  afterAll(async () => {
    await client.end();
    await made.remove();
  });

  /** The rows and the entries of indexes that all backends of this database have read so far. */
  const readSoFar = async (): Promise<number> => {
    // A backend adds what it has read when it ends.
    await until("the other connections are closed", async () => {
      const { rowCount } = await client.query(
        `select 1 from pg_stat_activity where datname = current_database()
           and pid <> pg_backend_pid() and backend_type = 'client backend'`,
      );
      return rowCount === 0;
    });
    const { rows: found } = await client.query<{ read: string }>(
      `select (select sum(seq_tup_read) from pg_stat_user_tables where schemaname = 'flotilla')
         + (select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'flotilla') as read`,
    );
    return Number(found[0]!.read);
  };

  test.each([...Object.entries(lists), ...Object.entries(counts)])(
    "a page reads no more than its bound for %s",
    async (_, [ask, mostRows]) => {
      const before = await readSoFar();
      const flotilla = connect(made.url);
      await ask(flotilla);
      await flotilla.close();
      const read = (await readSoFar()) - before;
      expect(read).toBeLessThanOrEqual(mostRows);
      expect(mostRows).toBeLessThan(rows);
    },
  );
});

const now = "(extract(epoch from now()) * 1000)::bigint";
const fill = [
  `insert into flotilla.task (name, tenant, status, parked, run_at, error)
    select 'task-' || n % 50, 'tenant-' || n % 20,
      case n % 100 when 0 then 'failed' when 1 then 'pending' else 'completed' end,
      case n % 100 when 1 then 1 else 0 end, ${now} + 86400000,
      case n % 100 when 0 then '{"code":"handler_failed","message":"the recipient is unknown"}' end
    from generate_series(1, ${rows}) n`,
  `insert into flotilla.task (name, status, parked, awaits, flow_version, cursor)
    select 'order', case n % 10 when 0 then 'pending' else 'completed' end,
      case n % 10 when 0 then 5 else 0 end, case n % 10 when 0 then 'approval' end, 1, 'approval'
    from generate_series(1, ${rows / 10}) n`,
  `insert into flotilla.session (session_id, tenant, log_id, last_offset, header, created_at, active_at)
    select 's' || n, 'default', n % 8, n, '{}', n, n from generate_series(1, ${rows / 10}) n`,
  `insert into flotilla.session_user (session_id, user_id)
    select 's' || n, 'u' || n % 100 from generate_series(1, ${rows / 10}) n`,
  `insert into flotilla.audit (id, at, actor, action, subject, outcome)
    select n::text, n, case when n % 10 < 9 then 'key/ops' else 'user/zoe' end,
      case when n % 2 = 0 then 'tasks.cancel' else 'tasks.retry' end, n::text, 'done'
    from generate_series(1, ${rows}) n`,
  `insert into flotilla.series (span, at, subject, pod, counts)
    select 60000, ${now} / 60000 * 60000 - minute * 60000, 'task:task-' || name, '', '{}'
    from generate_series(0, 1439) minute, generate_series(1, 30) name`,
  "analyze",
];

import { connect } from "../../src/index.ts";
import { openStore } from "../../src/store/open.ts";
import { sql, table } from "../../src/store/sql.ts";
import { playRole } from "../roles.ts";
import { median } from "../statistics.ts";

/** A process that fills an audit and reads pages of it. */
export type ReaderParams = {
  readonly url: string;
  readonly entries: number;
  readonly rounds: number;
  /** How often each page is read in a round. */
  readonly pages: number;
};

/** The median of one round, in milliseconds. */
export type PageTimes = {
  readonly first: number;
  readonly last: number;
  /** Of an actor with a tenth of all entries. */
  readonly actor: number;
  readonly subject: number;
  /** Of an actor with half of them, and an action that this actor has hardly ever done. */
  readonly rare: number;
};

const storedTogether = 50_000;
const beganMs = 1_700_000_000_000;
const rareActions = 20;

playRole(async ({ url, entries, rounds, pages }: ReaderParams): Promise<PageTimes[]> => {
  await using flotilla = connect(url);
  await flotilla.ping();
  const store = await openStore(url);
  const audit = table("audit");
  for (let from = 1; from <= entries; from += storedTogether) {
    const to = Math.min(entries, from + storedTogether - 1);
    await store.write([
      sql`insert into ${audit} (id, at, actor, key_name, role, address, action, subject, count, before,
          after, outcome, act_id)
        with recursive numbers(n) as (
          select cast(${from} as bigint) union all select n + 1 from numbers where n < ${to})
        select 'entry-' || cast(1000000000000 + n as text), ${beganMs} + n * 1000,
          case when n % 10 < 5 then 'key/web' when n % 10 < 9 then 'key/ops' else 'user/zoe' end,
          'web', 'operator', '10.0.0.1',
          case when n <= ${rareActions} then 'keys.create' when n % 2 = 0 then 'tasks.cancel'
            else 'tasks.retry' end,
          'task-' || cast(n as text), 1, '{"status":"failed"}', '{"status":"pending"}', 'done',
          'click-' || cast(n as text)
        from numbers`,
    ]);
  }
  await store.close();
  const last = `${beganMs + 51_000}.entry-${1_000_000_000_000 + 51}`;
  const reads: Readonly<Record<keyof PageTimes, () => Promise<{ entries: readonly unknown[] }>>> = {
    first: () => flotilla.audit.list(),
    last: () => flotilla.audit.list({ cursor: last }),
    actor: () => flotilla.audit.list({ actor: "user/zoe" }),
    subject: () => flotilla.audit.list({ subject: `task-${Math.floor(entries / 2)}` }),
    rare: () => flotilla.audit.list({ actor: "key/web", action: "keys.create" }),
  };
  const times: PageTimes[] = [];
  for (let round = 0; round < rounds; round++) {
    times.push({
      first: await timed(reads.first),
      last: await timed(reads.last),
      actor: await timed(reads.actor),
      subject: await timed(reads.subject),
      rare: await timed(reads.rare),
    });
  }
  return times;

  async function timed(read: () => Promise<{ entries: readonly unknown[] }>): Promise<number> {
    const taken: number[] = [];
    for (let at = 0; at < pages; at++) {
      const startedMs = performance.now();
      const { entries: found } = await read();
      taken.push(performance.now() - startedMs);
      if (found.length === 0) throw new Error("a page was empty");
    }
    return median(taken);
  }
});

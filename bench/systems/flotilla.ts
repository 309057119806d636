import pg from "pg";
import { silentLogger } from "../../src/base/log.ts";
import { connect, encryption, startPod, task } from "../../src/index.ts";
import { benchKeys, workName } from "../tasks/work.ts";
import type { Payload, System } from "./system.ts";
import { countingRows } from "./watch.ts";

type FlotillaSettings = { slots?: number; codec?: boolean; feed?: boolean };

const codecOf = ({ codec }: FlotillaSettings) =>
  codec ? { codec: encryption({ keys: benchKeys }) } : {};

/** Ourselves. Finished tasks stay in the table, with their result. */
export const system: System = {
  async prepare(url) {
    await using flotilla = connect(url);
    await flotilla.ping();
  },
  async producer(url, settings: FlotillaSettings = {}) {
    const flotilla = connect(url, codecOf(settings));
    await flotilla.ping();
    return {
      one: (payload) => flotilla.enqueue(workName, payload),
      bulk: (payloads) => flotilla.enqueueMany(workName, payloads),
      close: () => flotilla.close(),
    };
  },
  async work(url, settings: FlotillaSettings, run) {
    const { slots, feed } = settings;
    const noop = task<Payload>(workName, {}, ({ input }) => run(input));
    await startPod({
      store: url,
      use: [noop],
      log: silentLogger,
      ...codecOf(settings),
      ...(slots && { slots }),
      ...(feed && { changes: {} }),
    });
  },
  watch: (url) =>
    countingRows(url, "select count(*) from flotilla.task where status in ('pending', 'claimed')"),
  async addFinished(url, tasks) {
    const client = new pg.Client(url);
    await client.connect();
    await client.query(
      `insert into flotilla.task
         (name, status, payload, result, claimed_by, claim_token, run_at, created_at, last_update)
       select $1, 'completed', json_build_object('number', each, 'text', repeat('x', 80))::text, 'null',
         'earlier', 1, before.ms + each, before.ms + each, before.ms + each
       from generate_series(1, $2::bigint) each,
         (select floor(extract(epoch from now()) * 1000)::bigint - 86400000 as ms) before`,
      [workName, tasks],
    );
    await client.end();
  },
};

import { workName } from "../tasks/work.ts";
import { peer } from "./peer.ts";
import type { Payload, System } from "./system.ts";
import { countingRows } from "./watch.ts";

type Boss = {
  on(event: "error", listener: () => void): void;
  start(): Promise<unknown>;
  stop(options: object): Promise<void>;
  createQueue(name: string, options: object): Promise<void>;
  send(name: string, data: object): Promise<unknown>;
  insert(name: string, jobs: { data: object }[]): Promise<unknown>;
  work(
    name: string,
    options: object,
    handler: (jobs: { data: Payload }[]) => Promise<void>,
  ): Promise<unknown>;
};

type Library = { PgBoss: new (options: object) => Boss };

type BossSettings = { notify?: boolean; work?: object };

/** pg-boss. Finished jobs stay in the table; a batch succeeds or fails as a whole. */
export const system: System = {
  async prepare(url, { notify = false }: BossSettings) {
    const boss = await open(url, { useListenNotify: false });
    await boss.createQueue(workName, { notify });
    await boss.stop({ graceful: false });
  },
  async producer(url) {
    // A producer neither supervises nor schedules.
    const boss = await open(url, { supervise: false, schedule: false });
    return {
      one: (payload) => boss.send(workName, payload),
      bulk: (payloads) =>
        boss.insert(
          workName,
          payloads.map((data) => ({ data })),
        ),
      close: () => boss.stop({ graceful: false }),
    };
  },
  async work(url, { notify = false, work = {} }: BossSettings, run) {
    const boss = await open(url, { useListenNotify: notify });
    await boss.work(workName, work, async (jobs) => {
      const waits = jobs.map((job) => run(job.data));
      await Promise.all(waits.filter((wait) => wait !== undefined));
    });
  },
  watch: (url) => countingRows(url, "select count(*) from pgboss.job where state < 'completed'"),
};

async function open(url: string, options: object): Promise<Boss> {
  const { PgBoss } = await peer<Library>("pg-boss");
  const boss = new PgBoss({ connectionString: url, ...options });
  boss.on("error", () => {});
  await boss.start();
  return boss;
}

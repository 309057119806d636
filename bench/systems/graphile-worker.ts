import { workName } from "../tasks/work.ts";
import { peer } from "./peer.ts";
import type { Payload, System } from "./system.ts";
import { countingRows } from "./watch.ts";

type Utils = {
  migrate(): Promise<void>;
  addJob(name: string, payload: unknown): Promise<unknown>;
  addJobs(jobs: { identifier: string; payload: unknown }[]): Promise<unknown>;
  release(): Promise<void>;
};

type Library = {
  makeWorkerUtils(options: object): Promise<Utils>;
  run(options: object): Promise<unknown>;
  Logger: new (factory: () => () => void) => object;
};

type GraphileSettings = { worker?: object };

/** graphile-worker. Finished jobs are deleted. */
export const system: System = {
  async prepare(url) {
    const utils = await openUtils(url);
    await utils.migrate();
    await utils.release();
  },
  async producer(url) {
    const utils = await openUtils(url);
    return {
      one: (payload) => utils.addJob(workName, payload),
      bulk: (payloads) =>
        utils.addJobs(payloads.map((payload) => ({ identifier: workName, payload }))),
      close: () => utils.release(),
    };
  },
  async work(url, { worker = {} }: GraphileSettings, run) {
    const { run: start, Logger } = await peer<Library>("graphile-worker");
    await start({
      connectionString: url,
      logger: new Logger(() => () => {}),
      taskList: { [workName]: (payload: Payload) => run(payload) },
      preset: { worker },
    });
  },
  watch: (url) => countingRows(url, "select count(*) from graphile_worker._private_jobs"),
};

async function openUtils(url: string): Promise<Utils> {
  const { makeWorkerUtils, Logger } = await peer<Library>("graphile-worker");
  return makeWorkerUtils({ connectionString: url, logger: new Logger(() => () => {}) });
}

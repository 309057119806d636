import { playRole } from "../roles.ts";
import { loadSystem, type Settings, type SystemName } from "../systems/system.ts";
import { payload } from "../tasks/work.ts";

/** A process that fills an empty place with a backlog, by the system's own bulk call. */
export type FillerParams = {
  readonly system: SystemName;
  readonly settings: Settings;
  readonly url: string;
  readonly tasks: number;
  /** Finished tasks that lie there already. */
  readonly finished: number;
};

const bulkTasks = 1_000;

playRole(
  async ({ system: name, settings, url, tasks, finished }: FillerParams) => {
    const system = await loadSystem(name);
    await system.prepare(url, settings);
    if (finished > 0) await system.addFinished!(url, finished);
    const producer = await system.producer(url, settings);
    for (let stored = 0; stored < tasks; stored += bulkTasks) {
      const length = Math.min(bulkTasks, tasks - stored);
      await producer.bulk(Array.from({ length }, (_, at) => payload(stored + at)));
    }
    await producer.close();
  },
  { ends: "at once" },
);

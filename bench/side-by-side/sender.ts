import { setTimeout as wait } from "node:timers/promises";
import { playRole, sharedMs } from "../roles.ts";
import { loadSystem, type SystemName } from "../systems/system.ts";
import { payload } from "../tasks/work.ts";

/** A process that enqueues one task now and then, with the time at which it does. */
export type SenderParams = {
  readonly system: SystemName;
  readonly url: string;
  readonly tasks: number;
};

const everyMs = 20;

playRole(
  async ({ system: name, url, tasks }: SenderParams) => {
    const system = await loadSystem(name);
    const producer = await system.producer(url);
    for (let sent = 0; sent < tasks; sent++) {
      await wait(everyMs);
      await producer.one({ ...payload(sent), sentMs: sharedMs() });
    }
    await producer.close();
  },
  { ends: "at once" },
);

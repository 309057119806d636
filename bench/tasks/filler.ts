import { connect, encryption } from "../../src/index.ts";
import { playRole } from "../roles.ts";
import { benchKeys, payload, workName } from "./work.ts";

/** Fills a store with tasks in the fastest way: the first part at once, each other when asked to. */
export type FillerParams = {
  readonly store: string;
  readonly tasks: number;
  readonly parts: number;
  /** Spreads them over so many keys, of each of which one may run at a time. */
  readonly keys?: number;
  /** Whether what is stored is encrypted. */
  readonly codec?: boolean | undefined;
};

const bulkTasks = 1_000;

playRole(async ({ store, tasks, parts, keys, codec }: FillerParams, bench) => {
  await using flotilla = connect(store, codec ? { codec: encryption({ keys: benchKeys }) } : {});
  for (let part = 1; part <= parts; part++) {
    if (part > 1) await bench.heard("more");
    for (let stored = 0; stored < tasks; stored += bulkTasks) {
      const inputs = Array.from({ length: Math.min(bulkTasks, tasks - stored) }, (_, at) =>
        payload(stored + at),
      );
      const concurrencyKey = ({ number }: { number: number }) => `key-${number % (keys ?? 1)}`;
      await flotilla.enqueueMany(workName, inputs, keys === undefined ? {} : { concurrencyKey });
    }
  }
});

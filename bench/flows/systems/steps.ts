import { silentLogger } from "../../../src/base/log.ts";
import { startPod, task } from "../../../src/index.ts";
import type { Payload } from "../../systems/system.ts";
import { type FlowSystem, steps } from "./system.ts";

type FlotillaSettings = { slots?: number };

/** Ourselves: a task whose steps are named in its code. */
export const system: FlowSystem = {
  async open(url, { slots }: FlotillaSettings, entered) {
    const bench = task<Payload, Payload, void>("bench", {}, async ({ input, step }) => {
      for (let at = 0; at < steps; at++) {
        await step(`step-${at}`, () => entered(input.number, at));
      }
    });
    const pod = await startPod({
      store: url,
      use: [bench],
      log: silentLogger,
      ...(slots && { slots }),
    });
    return {
      start: (payload) => pod.enqueue(bench, payload),
      finish: async (payload) => pod.waitFor(await pod.enqueue(bench, payload)),
    };
  },
};

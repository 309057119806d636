import { silentLogger } from "../../../src/base/log.ts";
import { flow, startPod } from "../../../src/index.ts";
import type { Payload } from "../../systems/system.ts";
import { type FlowSystem, steps } from "./system.ts";

type FlotillaSettings = { slots?: number };

/** Ourselves: a pod, which starts runs as any producer would. */
export const system: FlowSystem = {
  async open(url, { slots }: FlotillaSettings, entered) {
    const step = (at: number) => (context: { input: Payload }) => entered(context.input.number, at);
    let chain = flow<Payload>("bench", { version: 1 }).to("step-0", step(0));
    for (let at = 1; at < steps; at++) chain = chain.to(`step-${at}`, step(at));
    const bench = chain.end();
    const pod = await startPod({
      store: url,
      use: [bench],
      log: silentLogger,
      ...(slots && { slots }),
    });
    return {
      start: (payload) => pod.runs.start(bench, payload),
      finish: async (payload) => pod.runs.wait(await pod.runs.start(bench, payload)),
    };
  },
};

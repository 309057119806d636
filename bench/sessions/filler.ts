import { silentLogger } from "../../src/base/log.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { playRole } from "../roles.ts";
import { parts } from "./frames.ts";

/** Fills a store with sessions that have one message each. */
export type FillerParams = { readonly store: string; readonly sessions: number };

const atOnce = 200;

playRole(
  async ({ store, sessions }: FillerParams) => {
    const pod = await startPod({ store, log: silentLogger, dataDir: false });
    const service = pod.sessionService!;
    let next = 0;
    const lane = async () => {
      while (next < sessions) {
        const sessionId = `kept-${next++}`;
        await service.create("default", { sessionId, users: ["ada"] });
        await service.send("default", sessionId, { author: "ada", parts });
      }
    };
    await Promise.all(Array.from({ length: atOnce }, lane));
    await pod.stop();
  },
  { ends: "at once" },
);

import type { PodProcess } from "./pod-handle.ts";

/** Does what a supervisor does: a pod that ends is replaced, so that there are always so many. */
export function keepAlive(count: number, start: () => Promise<PodProcess>) {
  let stopping = false;
  const keep = async (): Promise<void> => {
    while (!stopping) {
      const pod = await start();
      await Promise.race([pod.exited, stopped]);
    }
  };
  let stop = () => {};
  const stopped = new Promise<void>((resolve) => {
    stop = resolve;
  });
  const kept = Array.from({ length: count }, keep);
  return {
    async stop() {
      stopping = true;
      stop();
      await Promise.all(kept);
    },
  };
}

import { workName } from "../tasks/work.ts";
import { peer } from "./peer.ts";
import type { Payload, System } from "./system.ts";

type Queue = {
  waitUntilReady(): Promise<unknown>;
  add(name: string, data: object): Promise<unknown>;
  addBulk(jobs: { name: string; data: object }[]): Promise<unknown>;
  getJobCounts(...states: string[]): Promise<Record<string, number>>;
  close(): Promise<void>;
};

type Library = {
  Queue: new (name: string, options: object) => Queue;
  Worker: new (
    name: string,
    handler: (job: { data: Payload }) => Promise<void>,
    options: object,
  ) => { on(event: "error", listener: () => void): void; waitUntilReady(): Promise<unknown> };
};

type BullSettings = { worker?: object };

/** BullMQ on Redis. Finished jobs are kept, as is its default. */
export const system: System = {
  // A queue is there as soon as something is in it.
  async prepare() {},
  async producer(url) {
    const queue = await open(url);
    return {
      one: (payload) => queue.add(workName, payload),
      bulk: (payloads) => queue.addBulk(payloads.map((data) => ({ name: workName, data }))),
      close: () => queue.close(),
    };
  },
  async work(url, { worker = {} }: BullSettings, run) {
    const { Worker } = await peer<Library>("bullmq");
    const made = new Worker(workName, async ({ data }) => run(data), {
      connection: connectionOf(url, null),
      ...worker,
    });
    made.on("error", () => {});
    await made.waitUntilReady();
  },
  async watch(url) {
    const queue = await open(url);
    return {
      async unfinished() {
        const counts = await queue.getJobCounts("wait", "active", "delayed", "prioritized");
        return Object.values(counts).reduce((sum, count) => sum + count, 0);
      },
      close: () => queue.close(),
    };
  },
};

async function open(url: string): Promise<Queue> {
  const { Queue } = await peer<Library>("bullmq");
  const queue = new Queue(workName, { connection: connectionOf(url) });
  await queue.waitUntilReady();
  return queue;
}

/** Workers must wait for Redis without end, says BullMQ. */
function connectionOf(url: string, maxRetriesPerRequest?: null) {
  const { hostname: host, port } = new URL(url);
  return {
    host,
    port: Number(port),
    ...(maxRetriesPerRequest === null && { maxRetriesPerRequest }),
  };
}

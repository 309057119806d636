import { readFileSync } from "node:fs";
import pg from "pg";
import { peer } from "../../systems/peer.ts";
import type { Payload } from "../../systems/system.ts";
import { type FlowSystem, steps } from "./system.ts";

type Context = { step<Result>(name: string, run: () => Promise<Result>): Promise<Result> };

type Library = {
  Absurd: new (options: { db: pg.Pool; queueName: string; log: Console }) => {
    registerTask(
      options: { name: string },
      handler: (payload: Payload, context: Context) => Promise<null>,
    ): void;
    createQueue(): Promise<void>;
    spawn(name: string, payload: Payload): Promise<{ taskID: string }>;
    awaitTaskResult(taskID: string): Promise<unknown>;
    startWorker(options: { concurrency: number; pollInterval: number }): Promise<unknown>;
  };
};

type AbsurdSettings = { schema?: string; connections?: number; atOnce?: number };

/** Absurd: procedures in the database, and a worker that polls. Its package has no schema. */
export const system: FlowSystem = {
  async open(url, { schema = "", connections = 20, atOnce = 1_000 }: AbsurdSettings, entered) {
    const { Absurd } = await peer<Library>("absurd-sdk");
    const db = new pg.Pool({ connectionString: url, max: connections });
    const { rows } = await db.query("select 1 from pg_namespace where nspname = 'absurd'");
    if (rows.length === 0) await db.query(readFileSync(schema, "utf8"));
    const quiet = Object.assign(Object.create(console) as Console, {
      log() {},
      info() {},
      warn() {},
    });
    const absurd = new Absurd({ db, queueName: "bench", log: quiet });
    absurd.registerTask({ name: "bench" }, async ({ number }, context) => {
      for (let at = 0; at < steps; at++) {
        await context.step(`step-${at}`, async () => {
          await entered(number, at);
          return null;
        });
      }
      return null;
    });
    await absurd.createQueue();
    // It looks for tasks again at once while there are some, so that this is the wait of an idle one.
    await absurd.startWorker({ concurrency: atOnce, pollInterval: 0.01 });
    return {
      start: (payload) => absurd.spawn("bench", payload),
      finish: async (payload) =>
        absurd.awaitTaskResult((await absurd.spawn("bench", payload)).taskID),
    };
  },
};

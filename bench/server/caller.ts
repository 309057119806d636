import { Pool } from "undici";
import { playRole } from "../roles.ts";

/** A process that asks a server for the same again and again, on some connections at once. */
export type CallerParams = {
  readonly url: string;
  readonly key: string;
  readonly taskIds: readonly string[];
  readonly asks: "task" | "page";
  readonly atOnce: number;
  readonly warmMs: number;
  readonly runMs: number;
};

export type Called = { readonly requests: number; readonly wallMs: number };

playRole(async (params: CallerParams, bench): Promise<Called> => {
  const { url, key, taskIds, asks, atOnce, warmMs, runMs } = params;
  const pool = new Pool(url, { connections: atOnce, pipelining: 1 });
  const headers = { Authorization: `Bearer ${key}` };
  let requests = 0;
  let asked = 0;
  const ask = async (): Promise<void> => {
    const taskId = taskIds[asked++ % taskIds.length]!;
    const path = asks === "task" ? `/v1/tasks/${taskId}` : "/v1/tasks?limit=50";
    const { statusCode, body } = await pool.request({ method: "GET", path, headers });
    const text = await body.text();
    if (statusCode !== 200) throw new Error(`${path}: ${statusCode} ${text}`);
    requests++;
  };
  const during = async (ms: number): Promise<number> => {
    requests = 0;
    const startedMs = performance.now();
    const lane = async () => {
      while (performance.now() - startedMs < ms) await ask();
    };
    await Promise.all(Array.from({ length: atOnce }, lane));
    return performance.now() - startedMs;
  };
  await during(warmMs);
  bench.tell("warm");
  const wallMs = await during(runMs);
  await pool.close();
  return { requests, wallMs };
});

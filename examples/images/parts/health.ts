import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export type CheckResult = { readonly name: string; readonly problem: string | null };
export type Health = { readonly isHealthy: boolean; readonly checks: readonly CheckResult[] };

/** Throws, or gives a problem, where something is wrong. */
export type Check = () => Promise<string | null | void> | string | null | void;

export type HealthChecker = { readonly check: () => Promise<Health> };

export type HealthOptions = {
  /** How long all of it may take: a disk that hangs is as bad as one that fails. */
  readonly timeoutMs?: number;
};

export function createHealthChecker(
  checks: Readonly<Record<string, Check>>,
  { timeoutMs = 10_000 }: HealthOptions = {},
): HealthChecker {
  let running: Promise<Health> | undefined;
  const checkAll = async (): Promise<Health> => {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<string>((resolve) => {
      timer = setTimeout(() => resolve(`no answer in ${timeoutMs} ms`), timeoutMs);
    });
    const results = Object.entries(checks).map(async ([name, check]): Promise<CheckResult> => {
      const found = (async () => (await check()) ?? null)().catch(textOf);
      return { name, problem: await Promise.race([found, late]) };
    });
    const all = await Promise.all(results);
    clearTimeout(timer);
    return { isHealthy: all.every(({ problem }) => problem === null), checks: all };
  };
  return {
    // Whoever asks while it is being looked at gets the same answer.
    check: () => (running ??= checkAll().finally(() => (running = undefined))),
  };
}

export type HealthServer = AsyncDisposable & { readonly url: string };

/** For whoever watches from outside: 200, or 503 and what is wrong. */
export async function serveHealth(health: HealthChecker): Promise<HealthServer> {
  const server = createServer((request, response) => {
    if (request.url !== "/health") return void response.writeHead(404).end();
    void health.check().then((found) => {
      response.writeHead(found.isHealthy ? 200 : 503, { "content-type": "application/json" });
      response.end(JSON.stringify(found));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/health`,
    async [Symbol.asyncDispose]() {
      await new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      });
    },
  };
}

function textOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

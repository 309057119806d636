import type { TestProject } from "vitest/node";
import { type PostgresServer, startPostgres } from "./server.ts";

declare module "vitest" {
  // oxlint-disable-next-line typescript/consistent-type-definitions
  interface ProvidedContext {
    postgresUrl: string;
  }
}

// There is no power cut on this machine, and a server that is merely killed loses nothing by it.
const settings = { fsync: "off", full_page_writes: "off" };

type Shared = { readonly server: Promise<PostgresServer>; users: number };
const run = globalThis as { flotillaPostgres?: Shared };

/** One server for all suites of a run; each opens databases of its own on it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const shared = (run.flotillaPostgres ??= { server: startPostgres({ settings }), users: 0 });
  shared.users++;
  const server = await shared.server;
  project.provide("postgresUrl", server.url);
  return async () => {
    if (--shared.users > 0) return;
    delete run.flotillaPostgres;
    await server.stop();
  };
}

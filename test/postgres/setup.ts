import type { TestProject } from "vitest/node";
import { startPostgres } from "./server.ts";

declare module "vitest" {
  // oxlint-disable-next-line typescript/consistent-type-definitions
  interface ProvidedContext {
    postgresUrl: string;
  }
}

// Nobody pulls the plug of this machine, and a server that is merely killed loses nothing by it.
const settings = { fsync: "off", full_page_writes: "off" };

/** One server for all suites of a run; each opens databases of its own on it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startPostgres({ settings });
  project.provide("postgresUrl", server.url);
  return server.stop;
}

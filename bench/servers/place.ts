import { copyFileSync, existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { cpuMsOf } from "./cpu.ts";
import type { Server } from "./server.ts";

/** Where a system keeps its data: a server that was started for this run alone, or a file. */
export type Place = Pick<Server, "about" | "fresh" | "filled" | "drop" | "busiest" | "stop"> & {
  /** What the server has used so far, where there is one and the system tells. */
  cpuMs(): number | undefined;
};

export function placeOn(server: Server): Place {
  return { ...server, cpuMs: () => cpuMsOf(server.pid) };
}

/** Files in a folder that somebody else removes. */
export function sqlitePlace(folder: string): Place {
  const templates = new Map<string, string>();
  let made = 0;
  const next = () => join(folder, `bench_${++made}.db`);
  // What was committed may still be in the log of a process that was killed.
  const parts = ["", "-wal"];
  return {
    about: "SQLite (WAL, synchronous=FULL)",
    fresh: () => Promise.resolve(`sqlite:${next()}`),
    async filled(key, fill) {
      let template = templates.get(key);
      if (!template) {
        template = next();
        await fill(`sqlite:${template}`);
        templates.set(key, template);
      }
      const copy = next();
      for (const part of parts) {
        if (existsSync(template + part)) copyFileSync(template + part, copy + part);
      }
      return `sqlite:${copy}`;
    },
    drop(url) {
      const path = url.slice("sqlite:".length);
      for (const part of [...parts, "-shm"]) rmSync(path + part, { force: true });
      return Promise.resolve();
    },
    cpuMs: () => undefined,
    stop: () => Promise.resolve(),
  };
}

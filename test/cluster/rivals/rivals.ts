import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { built } from "../../built.ts";
import { type Cluster, places, podNode } from "../cluster.ts";
import { openLogReader } from "../log-reader.ts";
import { rivalVacuity } from "./checkers.ts";
import type { Note, RivalEvidence } from "./evidence.ts";
import type { RivalGiven } from "./rival-process.ts";
import { deployment } from "./streams.ts";

/** Processes that contend for logs on the servers of a cluster, one on the node of each pod. */
export type Rivals = {
  /** What hasn't happened to them so far, and should. */
  lacks(): string[];
  /** Ends them, once each has said what it knows, and reads what became of their logs. */
  gather(): Promise<RivalEvidence>;
  kill(): void;
};

const script = fileURLToPath(new URL("./rival-process.ts", import.meta.url));
const startMs = 90_000;

export async function startRivals(cluster: Cluster, seed: number): Promise<Rivals> {
  const { network, fleet, urlsAt } = cluster;
  const started = places.map(async (at) => {
    const name = `r${at + 1}`;
    const given: RivalGiven = {
      name,
      servers: urlsAt[at]!,
      notesPath: join(fleet.folder, `${name}.notes`),
      seed: seed + at,
    };
    const [program, ...args] = [
      ...network.under(podNode(at)),
      process.execPath,
      built.program(script),
      JSON.stringify(given),
    ];
    const child = spawn(program!, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    const exited = once(child, "exit");
    await Promise.race([
      once(child, "message", { signal: AbortSignal.timeout(startMs) }),
      exited.then(() => Promise.reject(new Error(`${name} ended before it began`))),
    ]);
    return { child, exited };
  });
  const rivals: { child: ChildProcess; exited: Promise<unknown> }[] = await Promise.all(started);
  const kill = () => rivals.forEach(({ child }) => child.kill("SIGKILL"));
  process.once("exit", kill);
  return {
    lacks: () => rivalVacuity({ notes: readNotes(fleet.folder) }),
    kill,
    async gather() {
      for (const { child } of rivals) child.kill("SIGTERM");
      await Promise.all(rivals.map(({ exited }) => exited));
      process.off("exit", kill);
      const reader = await openLogReader(cluster.nats, deployment.namespace);
      try {
        const replicas = await reader.replicas();
        const first = replicas.filter(({ server }) => server === replicas[0]!.server);
        const stored = first.map(({ log, stored: messages }) => ({ log, messages }));
        return { notes: readNotes(fleet.folder), stored, replicas };
      } finally {
        await reader.close();
      }
    },
  };
}

function readNotes(folder: string): Note[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".notes"));
  return files.flatMap((name) => {
    const lines = readFileSync(join(folder, name), "utf8").split("\n");
    // What follows the last line break is empty, or a line that a kill has torn.
    lines.pop();
    return lines.map((line) => JSON.parse(line) as Note);
  });
}

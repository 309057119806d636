import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Fleet } from "../fleet.ts";
import type { PodProcess } from "../pod-handle.ts";
import { until } from "../until.ts";

export type AgentsGiven = {
  /** The places at which agents wait until the process is told to open, by their labels. */
  readonly stops?: Readonly<Record<string, string>>;
  /** How long agents take from each place to the next. Default 0. */
  readonly paceMs?: number;
  /** The second release has another prompt, and a step more before its agent. Default 1. */
  readonly release?: 1 | 2;
};

/** What a process tells of an agent. */
export type AgentReport = {
  readonly pod: number;
  readonly label: string;
  readonly place: string;
  /** The key of the step that begins here. */
  readonly begins?: string;
  /** The key that a tool has done its effect under. */
  readonly effect?: string;
};

/** The place of an attempt that is over, however it ended. */
export const attemptOver = "the attempt is over";

/** What all processes have told, one after the other. */
export function readAgentReports(folder: string): AgentReport[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".agents"));
  return files.flatMap((name) => {
    const lines = readFileSync(join(folder, name), "utf8").split("\n");
    // What follows the last line break is empty, or the line that a kill has torn.
    lines.pop();
    return lines.map((line) => JSON.parse(line) as AgentReport);
  });
}

const script = fileURLToPath(new URL("./agent-process.ts", import.meta.url));
const limits = { heartbeatMs: 100, deadAfterMs: 1_000 };
export const fleetMs = 180_000;

/** A step that was stored, by its agent and key. */
export type StoredSteps = ReadonlySet<string>;

/** Durable agents as tasks of a fleet's store, and the processes that run them. */
export type AgentScene = {
  /** Starts a process with all agents. */
  start(given?: AgentsGiven): Promise<PodProcess>;
  /** Enqueues an agent for each label. */
  enqueue(labels: readonly string[]): Promise<void>;
  /** Waits until all agents have ended, and gives what each has come to, by its label. */
  ended(): Promise<Map<string, string>>;
  hasOpen(): Promise<boolean>;
  /** The labels of agents that haven't ended. */
  openLabels(): Promise<Set<string>>;
  stored(): Promise<StoredSteps>;
  /** Waits until nothing is on its way to the store any more. */
  settled(): Promise<StoredSteps>;
  /** All rows that the store has of agents. */
  rows(): Promise<string>;
  reports(): AgentReport[];
};

export function agentsOn(fleet: Fleet): AgentScene {
  const labels = new Map<string, string>();
  const labelOf = (taskId: unknown) => labels.get(taskId as string)!;
  const openRows = () =>
    fleet.sql("select task_id from flotilla_task where status in ('pending', 'claimed')");
  const stored = async () => {
    const rows = await fleet.sql("select owner_id, key from flotilla_step_journal");
    return new Set(rows.map((row) => `${labelOf(row["owner_id"])} ${row["key"]}`));
  };
  const hasOpen = async () => (await openRows()).length > 0;
  const taskRows = () =>
    fleet.sql("select task_id, status, result, error from flotilla_task order by task_id");
  return {
    start: (given = {}) =>
      fleet.start({ script, given, config: { ...limits, dataDir: join(fleet.folder, "data") } }),
    async enqueue(all) {
      for (const label of all) {
        labels.set((await fleet.flotilla.enqueue("agent", { label })).taskId, label);
      }
    },
    async ended() {
      await until("all agents have ended", async () => !(await hasOpen()), fleetMs);
      return new Map(
        (await taskRows()).map((row) => [
          labelOf(row["task_id"]),
          JSON.stringify([row["status"], row["result"], row["error"]]),
        ]),
      );
    },
    hasOpen,
    openLabels: async () => new Set((await openRows()).map((row) => labelOf(row["task_id"]))),
    stored,
    async settled() {
      let before = await stored();
      await until("nothing is stored any more", async () => {
        const now = await stored();
        const same = now.size === before.size;
        before = now;
        return same;
      });
      return before;
    },
    async rows() {
      const steps = await fleet.sql(
        "select owner_id, key, seq, token, kind, value from flotilla_step_journal order by owner_id, key",
      );
      return JSON.stringify([await taskRows(), steps]);
    },
    reports: () => readAgentReports(fleet.folder),
  };
}

import type { Command } from "commander";
import { systemClock } from "../../base/clock.ts";
import type { PodInfo } from "../../runtime/connect.ts";
import { onTarget } from "../connect.ts";
import { type TargetFlags, withJson, withTarget } from "../flags.ts";
import { ago, columns, oneLine, paint, print, printJson } from "../output.ts";

export function podsCommand(program: Command): void {
  withJson(withTarget(program.command("pods").description("list the pods of this store"))).action(
    async (flags: TargetFlags & { json?: true }) => {
      const pods = await onTarget(flags, (flotilla) => flotilla.pods());
      if (flags.json) return printJson({ pods });
      if (pods.length === 0) return print("no pods");
      const nowMs = systemClock.now();
      const heading = [
        "id",
        "status",
        "started",
        "last beat",
        "held",
        "lag",
        "memory",
        "where",
        "tasks",
        "claims no more because",
      ];
      const rows = pods.map(
        ({ podId, status, birthMs, lastHeartbeatMs, pulse, metadata, state }) => [
          oneLine(podId, 100),
          paint(status === "up" ? "green" : "gray", oneLine(status, 40)),
          `${ago(nowMs, birthMs)} ago`,
          `${ago(nowMs, lastHeartbeatMs)} ago`,
          ...(status === "up" ? load(pulse) : ["", "", ""]),
          oneLine(`${text(metadata["host"])} (${text(metadata["pid"])})`, 60),
          oneLine(names(metadata), 60),
          status === "up" ? oneLine(why(state), 100) : "",
        ],
      );
      print(columns([heading.map((each) => paint("dim", each)), ...rows]));
    },
  );
}

/** How many tasks it holds, how late its event loop is, and its memory. */
function load(pulse: PodInfo["pulse"]): string[] {
  if (!pulse) return ["", "", ""];
  const { held, lagMs, memoryBytes } = pulse;
  const memory = memoryBytes === null ? "" : `${Math.round(memoryBytes / 2 ** 20)} MiB`;
  return [String(held), `${lagMs} ms`, memory];
}

function why(state: PodInfo["state"]): string {
  return state?.reasons.map((reason) => reason.text).join("; ") ?? "";
}

function text(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : "?";
}

/** Shows flows with their versions, because a pod claims no runs that a later version has advanced. */
function names({ names: all, flows }: PodInfo["metadata"]): string {
  const versions = new Map(Object.entries(flows ?? {}));
  const named = (name: string) => (versions.has(name) ? `${name} (${versions.get(name)})` : name);
  return Array.isArray(all) ? all.map(String).map(named).join(", ") : "";
}

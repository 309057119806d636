import type { Command } from "commander";
import { systemClock } from "../../base/clock.ts";
import type { PodInfo } from "../../runtime/pods.ts";
import { onTarget } from "../connect.ts";
import { listsByDefault, type TargetFlags, withJson, withTarget } from "../flags.ts";
import { ago, columns, oneLine, paint, print, printJson } from "../output.ts";

type Flags = TargetFlags & { json?: true };

export function podsCommand(program: Command): void {
  const pods = program.command("pods").description("list the pods of this store, and drain them");
  const listing = withJson(withTarget(pods.command("list", { isDefault: true })));
  listing.description("list the pods of this store").action(list);
  listsByDefault(pods, listing);
  withJson(
    withTarget(
      pods
        .command("drain <pod>")
        .description("let a pod take no more work; what it has begun goes on"),
    ),
  ).action(async (podId: string, flags: Flags) => {
    const pod = await onTarget(flags, (flotilla) => flotilla.drainPod(podId));
    if (flags.json) return printJson(pod);
    print(
      `pod ${oneLine(podId, 100)} takes no more work; \`flotilla pods\` shows when it has drained`,
    );
  });
  withJson(
    withTarget(pods.command("undrain <pod>").description("let a drained pod take work again")),
  ).action(async (podId: string, flags: Flags) => {
    const pod = await onTarget(flags, (flotilla) => flotilla.undrainPod(podId));
    if (flags.json) return printJson(pod);
    print(`pod ${oneLine(podId, 100)} takes work again`);
  });
}

async function list(flags: Flags): Promise<void> {
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
    ({ podId, status, leads, birthMs, lastHeartbeatMs, pulse, metadata, state, drain }) => [
      oneLine(podId, 100),
      paint(status === "up" ? "green" : "gray", oneLine(leads ? `${status}, leads` : status, 40)),
      `${ago(nowMs, birthMs)} ago`,
      `${ago(nowMs, lastHeartbeatMs)} ago`,
      ...(status === "up" ? load(pulse) : ["", "", ""]),
      oneLine(`${text(metadata["host"])} (${text(metadata["pid"])})`, 60),
      oneLine(names(metadata), 60),
      status === "up" ? oneLine(why(state, drain), 100) : "",
    ],
  );
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
}

/** How many tasks it holds, how late its event loop is, and its memory. */
function load(pulse: PodInfo["pulse"]): string[] {
  if (!pulse) return ["", "", ""];
  const { held, lagMs, memoryBytes } = pulse;
  const memory = memoryBytes === null ? "" : `${Math.round(memoryBytes / 2 ** 20)} MiB`;
  return [String(held), `${lagMs} ms`, memory];
}

/** A pod that has not read yet that it is to drain gives other reasons, or none. */
function why(state: PodInfo["state"], drain: PodInfo["drain"]): string {
  const reasons = state?.reasons.map((reason) => reason.text) ?? [];
  const isReported = state?.drain !== undefined || !drain;
  return (isReported ? reasons : ["draining", ...reasons]).join("; ");
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

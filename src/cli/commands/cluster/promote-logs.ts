import { systemClock } from "../../../base/clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import type {
  MovedLogs,
  MoveLogsParts,
  MovePlan,
  MoveProgress,
} from "../../../promote/logs/move-logs.ts";
import { print, printJson } from "../../output.ts";
import { plural, startProgressBar } from "../../progress.ts";
import { loadSettings } from "../../settings.ts";
import { withServers } from "./with-servers.ts";
import type { PromoteFlags } from "../promote.ts";

type Place = "nats" | "postgres";

const others = ["from", "logs", "wait", "undo"] as const;

/** Moves the logs of sessions of the config's store to NATS, or back, while its pods run. */
export async function runPromoteLogs(to: Place, flags: PromoteFlags): Promise<void> {
  const other = others.find((name) => flags[name] !== undefined);
  if (other !== undefined) {
    throw invalid(
      `--${other} is for a move from SQLite to Postgres: \`flotilla promote --to ${to}\` moves the logs of sessions of one store, while its pods run`,
    );
  }
  const { moveLogs, planMove } = await import("../../../promote/logs/move-logs.ts");
  const progress = startProgressBar();
  const startedMs = systemClock.monotonic();
  try {
    await withParts(to, flags, async (parts) => {
      if (flags.dryRun) return showPlan(to, await planMove(parts), flags);
      const moved = await moveLogs({
        ...parts,
        onProgress: (each) => progress.show(lineOf(each)),
      });
      progress.end();
      showMoved(to, moved, { durationMs: systemClock.monotonic() - startedMs }, flags);
    });
  } finally {
    progress.end();
  }
}

async function withParts(
  to: Place,
  flags: PromoteFlags,
  act: (parts: MoveLogsParts) => Promise<void>,
): Promise<void> {
  const settings = await loadSettings(flags);
  const { store, sessions } = settings;
  const { locateStore } = await import("../../../store/open.ts");
  if (locateStore(store).kind !== "postgres") {
    throw invalid(
      "the store is a SQLite file, whose logs stay in it: move it to Postgres first, by `flotilla promote --to postgres://user@host/app`",
    );
  }
  const { openMovingLogs } = await import("../../../runtime/logs/stream-logs.ts");
  const { logsFor } = await import("../../../runtime/config.ts");
  await withServers(settings, { without: needsNats }, async (servers) => {
    const { database, nats, text, processId } = servers;
    const { streamLog, deployment } = await openMovingLogs(servers);
    const { readSecret } = await import("../../../bus/secret.ts");
    const secrets = { readSecret: () => readSecret(database), text };
    const bus = nats.connectBus(`promotion-${processId}`, secrets);
    try {
      await act({
        ...servers,
        bus,
        stream: streamLog,
        clusterId: deployment.clusterId,
        to: to === "nats" ? "nats" : "sql",
        logs: sessions === false ? logsFor(store) : sessions.logs,
      });
    } finally {
      await bus.close();
    }
  });
}

function showPlan(to: Place, plan: MovePlan, { json }: PromoteFlags): void {
  const { step, logs, pods } = plan;
  if (json) return printJson({ ...plan, to });
  if (step === "already")
    return print(`the logs are ${whereOf(to)} already: nothing is to be done`);
  print(`would move ${plural(logs, "log")} of sessions ${whither(to)}, while pods run`);
  if (step !== "prepare" && step !== "close") print("an earlier start of it is to be finished");
  print(
    pods.length === 0
      ? "no pod is up: the next ones that start take the logs there"
      : `${plural(pods.length, "pod")} follow them: ${pods.join(", ")}`,
  );
  print(
    to === "nats"
      ? "sessions wait while the logs change hands, usually a second or two; clients keep their place"
      : "sessions wait until the database has all of their logs, usually a few seconds; clients keep their place",
  );
}

function showMoved(
  to: Place,
  { logs, already }: MovedLogs,
  { durationMs }: { durationMs: number },
  { json }: PromoteFlags,
): void {
  if (json) return printJson({ to, logs, already, durationMs: Math.round(durationMs) });
  print(
    already
      ? `the logs are ${whereOf(to)} already: ${plural(logs, "log")}`
      : `moved ${plural(logs, "log")} of sessions ${whither(to)} in ${(durationMs / 1_000).toFixed(1)} s`,
  );
  if (to === "postgres")
    print(
      'where a config says `use: "all"`, set it to "bus": a pod that starts with it is refused',
    );
}

const steps: Readonly<Record<MoveProgress["step"], string>> = {
  prepare: "making streams, and having pods open them",
  move: "moving the place of logs",
  open: "having pods take the streams",
  close: "closing the streams",
  empty: "archiving what the database lacks",
  finish: "finishing",
  already: "finishing",
};

function lineOf({ step }: MoveProgress): string {
  return steps[step];
}

const whereOf = (to: Place) => (to === "nats" ? "on NATS" : "in Postgres");
const whither = (to: Place) => (to === "nats" ? "to NATS" : "back to Postgres");

function needsNats(): FlotillaError {
  return invalid(
    'logs of sessions are moved to NATS and back by the `nats` of the pods: start all pods with `nats: { servers, monitor, use: "bus" }`, and give this command their config',
  );
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}

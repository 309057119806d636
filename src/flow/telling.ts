import { messageOf } from "../base/errors.ts";
import type { DriveParts } from "../queue/drive.ts";
import type { Running } from "../queue/run.ts";
import type { Decision, SetAside } from "./decision.ts";
import type { HistoryEvent } from "./history.ts";
import type { Machine } from "./machine.ts";
import type { Run } from "./run.ts";
import type { Attempt } from "./run-context.ts";

export type Telling = ReturnType<typeof telling>;

type Stored = Extract<Decision, { run: Run }>;

/** Says what becomes of a run, once that is stored: to those who count, and in the log. */
export function telling(machine: Machine, running: Running, parts: DriveParts) {
  const { claim } = running;
  const { log, onEvent } = parts;
  const flow = machine.name;
  const fields = {
    run_id: claim.taskId,
    flow,
    run_version: machine.version,
    token: claim.token,
    pod: parts.podId,
  };

  const one = (event: HistoryEvent, { tookMs, nowMs }: { tookMs: number; nowMs: number }) => {
    switch (event.type) {
      case "complete": {
        const { transition, attempt, startedAtMs } = event;
        const took = Math.max(0, nowMs - startedAtMs);
        onEvent({ type: "transition", flow, transition, outcome: "completed", tookMs: took });
        log.debug({ ...fields, transition, attempt, took_ms: took }, "a transition completed");
        return;
      }
      case "error": {
        const { transition, attempt, error, retryAtMs } = event;
        const outcome = retryAtMs === null ? "failed" : "retry";
        onEvent({ type: "transition", flow, transition, outcome, tookMs });
        const about = { ...fields, transition, attempt, code: error.code, error: error.message };
        log.warn(
          about,
          retryAtMs === null ? "a transition failed" : "a transition will be retried",
        );
        return;
      }
      case "cancel": {
        const { transition } = event;
        onEvent({ type: "transition", flow, transition, outcome: "cancelled", tookMs });
        log.info({ ...fields, transition }, "the run was cancelled");
        return;
      }
      case "park": {
        const { transition } = event;
        onEvent({ type: "transition", flow, transition, outcome: "parked", tookMs });
        log.debug({ ...fields, transition, for: event.waiting?.for ?? "time" }, "the run waits");
        return;
      }
      case "finish": {
        const { status } = event;
        const took = Math.max(0, nowMs - claim.run!.createdAtMs);
        onEvent({ type: "run_ended", flow, status, tookMs: took });
        log.info({ ...fields, status, took_ms: took }, "the run has ended");
        return;
      }
      case "start":
      case "move":
      case "set_aside":
      case "resume":
      case "pod_died":
      case "retried":
      case "redriven":
        return;
    }
  };

  return {
    claimed(_run: Run): void {},
    /** The trace that the run belongs to, if that has to be stored. */
    trace: (): string | null => null,
    attempting: <Result>(_attempt: Attempt, run: () => Result): Result => run(),
    stored({ events }: Stored, tookMs: number, nowMs: number): void {
      for (const event of events) one(event, { tookMs, nowMs });
    },
    setAside({ reason, message }: SetAside): void {
      log.error({ ...fields, reason, error: message }, "the run was set aside: it can't be read");
    },
    refused(error: unknown): void {
      log.error({ ...fields, error: messageOf(error) }, "the store refused what became of a run");
    },
    broken(error: unknown): void {
      log.error(
        { ...fields, error: messageOf(error) },
        "a run couldn't be driven; trying again later",
      );
    },
  };
}

import type { RunView } from "../../flows/rows.ts";
import { ago, oneLine, paint } from "../output.ts";

const statusStyles = {
  open: "cyan",
  completed: "green",
  failed: "red",
  cancelled: "gray",
} as const;

export function paintRunStatus(status: RunView["status"]): string {
  return paint(statusStyles[status], status);
}

/** What a run does right now, and what keeps it from going on. */
export function doingText(run: RunView, nowMs: number): string {
  return [whatItDoes(run, nowMs), ...heldUp(run)].filter((each) => each !== "").join(", ");
}

/** Whoever reads `no worker` of a run that a later version has advanced must know which version is missing. */
export function noWorkerText(version: number): string {
  return version > 0 ? `no worker for version ${version}` : "no worker";
}

function heldUp({ noWorker, paused, version, cancelRequested, intent }: RunView): string[] {
  return [
    ...(paused ? ["paused"] : []),
    ...(noWorker ? [noWorkerText(version)] : []),
    ...(cancelRequested && intent === null ? ["asked to cancel"] : []),
  ];
}

function whatItDoes({ doing }: RunView, nowMs: number): string {
  switch (doing?.type) {
    case undefined:
      return "";
    case "running":
      return `running for ${ago(nowMs, doing.sinceMs)} on ${doing.podId}`;
    case "ready":
      return "ready to run";
    case "retrying":
      return `tried again ${until(nowMs, doing.atMs)}`;
    case "delayed":
      return `starts ${until(nowMs, doing.untilMs)}`;
    case "sleeping":
      return `sleeps, wakes ${until(nowMs, doing.untilMs)}`;
    case "waiting_for_signal": {
      const most = doing.untilMs === null ? "" : `, until ${time(doing.untilMs)} at most`;
      const since = `for ${ago(nowMs, doing.sinceMs)}`;
      return `waits for the signal ${oneLine(doing.name, 100)} ${since}${most}`;
    }
    case "waiting_for_children":
      return `waits for its children for ${ago(nowMs, doing.sinceMs)}`;
    case "waiting_for_others":
      return "waits for those it runs after";
    case "waiting_for_room":
      return `waits for room${doing.scope === null ? "" : ` in ${oneLine(doing.scope, 100)}`}`;
    case "set_aside":
      return `set aside by version ${doing.byVersion}: ${oneLine(doing.message, 300)}`;
  }
}

function until(nowMs: number, atMs: number): string {
  return atMs <= nowMs ? "now" : `in ${ago(atMs, nowMs)}, at ${time(atMs)}`;
}

export function time(atMs: number): string {
  return new Date(atMs).toISOString();
}

/** How long something took, as people say it. */
export function took(ms: number): string {
  if (ms < 10_000) return `${Math.max(0, Math.round(ms))} ms`;
  return ago(ms, 0);
}

export function json(value: unknown): string {
  return oneLine(JSON.stringify(value), 1_000);
}

import type { HistoryEntry } from "../../flows/rows.ts";
import { columns, oneLine, paint } from "../output.ts";
import { json, time, took } from "./runs-text.ts";

type Fields = Readonly<Record<string, unknown>>;

/** What happened to a run, one line each: when, what, where, which attempt, how long it took, and what came of it. */
export function historyLines(history: readonly HistoryEntry[]): string {
  return columns(history.map(toCells));
}

function toCells(entry: HistoryEntry): string[] {
  const { atMs, type, attempt, podId, transition, startedAtMs } = entry;
  return [
    paint("dim", `  ${time(atMs)}`),
    paintType(type),
    transition === null ? "" : oneLine(transition, 100),
    attempt === null ? "" : `attempt ${attempt}`,
    startedAtMs === null ? "" : took(atMs - startedAtMs),
    [
      ...whatItSays(type, (entry.detail ?? {}) as Fields),
      ...(podId === null ? [] : [paint("dim", `on ${podId}`)]),
    ].join("  "),
  ];
}

function paintType(type: string): string {
  const shown = oneLine(type, 40);
  if (type === "error" || type === "set_aside" || type === "pod_died") return paint("red", shown);
  const isCancel = type === "cancel" || type === "cancel_requested" || type === "given_up";
  return isCancel ? paint("yellow", shown) : shown;
}

function whatItSays(type: string, detail: Fields): string[] {
  const { next, version } = detail;
  const onward = typeof next === "string" && next !== "$end" ? [`→ ${oneLine(next, 100)}`] : [];
  switch (type) {
    case "start":
      return [`version ${json(version)}`, ...onward];
    case "move":
      return [
        `version ${json(version)}`,
        `${text(detail["why"])} ${text(detail["from"])}`,
        ...onward,
      ];
    case "complete":
      return [...(detail["set"] ? [json(detail["set"])] : []), ...ending(detail), ...onward];
    case "error":
      return [errorText(detail["error"]), ...retried(detail), ...ending(detail)];
    case "park":
      return [...parkedFor(detail), ...(detail["message"] ? [text(detail["message"])] : [])];
    case "cancel":
      return [...reasonOf(detail["intent"]), ...onward];
    case "finish":
      return [text(detail["status"])];
    case "set_aside":
      return [`by version ${json(detail["byVersion"])}`, text(detail["message"])];
    case "cancel_requested":
      return [];
    case "given_up":
      return ["cancelled as it was, without its finalizers"];
    case "resume":
      return [`as version ${json(version)}`];
    case "retried":
    case "redriven":
      return ["started over from where it stopped"];
    default:
      return Object.keys(detail).length === 0 ? [] : [json(detail)];
  }
}

/** A handoff, an abort: what ends the run earlier than its last transition. */
function ending(detail: Fields): string[] {
  const { type } = (detail["intent"] ?? {}) as Fields;
  return typeof type === "string" && type !== "completed" ? [`the run is ${type}`] : [];
}

function retried({ retryAtMs }: Fields): string[] {
  return typeof retryAtMs === "number" ? [`tried again at ${time(retryAtMs)}`] : [];
}

function parkedFor({ waiting, untilMs }: Fields): string[] {
  const what = ((waiting ?? {}) as Fields)["for"];
  return [
    ...(typeof what === "string" ? [`waits for ${what === "sleep" ? "a time" : what}`] : []),
    ...(typeof untilMs === "number" ? [`until ${time(untilMs)}`] : []),
  ];
}

function reasonOf(intent: unknown): string[] {
  const { reason } = (intent ?? {}) as Fields;
  return typeof reason === "string" ? [text(reason)] : [];
}

export function errorText(error: unknown): string {
  const { code, message, by } = (error ?? {}) as Fields;
  const whose = by === "user" || by === "system" ? ` by the ${by}` : "";
  return `${text(code)}${whose}: ${text(message)}`;
}

function text(value: unknown): string {
  return oneLine(typeof value === "string" ? value : (JSON.stringify(value) ?? ""), 500);
}

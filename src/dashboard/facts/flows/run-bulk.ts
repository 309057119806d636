import type { RunBulk, RunBulkRequest, RunQuery } from "../../asks/flows.ts";
import { boundedText, counted, exactCount } from "../spans.ts";

export type RunBulkAction = RunBulkRequest["action"];

const words: Readonly<Record<RunBulkAction, { readonly doing: string; readonly done: string }>> = {
  cancel: { doing: "Cancelling", done: "cancelled" },
  retry: { doing: "Starting over", done: "started over" },
  signal: { doing: "Signalling", done: "signalled" },
  resume: { doing: "Resuming", done: "resumed" },
};

/** The acts on all runs that match what the list shows. */
export function runBulkActions({ status, version }: RunQuery): readonly RunBulkAction[] {
  // An act has no filter by version, and would be for the runs of all of them.
  if (version !== undefined) return [];
  switch (status) {
    case undefined:
    case "open":
      return ["signal", "resume", "cancel"];
    case "setAside":
      return ["resume", "cancel"];
    case "failed":
    case "cancelled":
      return ["retry"];
    case "completed":
      return [];
  }
}

/** The filter of an act on what the list shows. */
export function bulkFilter(
  flow: string,
  { at, status, tenant }: RunQuery,
): RunBulkRequest["filter"] {
  return {
    name: flow,
    ...(at !== undefined && { at }),
    ...(tenant !== undefined && { tenant }),
    ...(status === "setAside" && { setAside: true }),
    ...((status === "failed" || status === "cancelled") && { status }),
  };
}

/** How far an act on many has got, or what came of it. */
export function bulkSentence(bulk: RunBulk): string {
  const { action, state, matched, isExact, done, skipped, refused } = bulk;
  const { doing, done: past } = words[action as RunBulkAction] ?? { doing: action, done: "done" };
  const rest = [
    ...(skipped > 0 ? [`${exactCount(skipped)} had changed meanwhile`] : []),
    ...(refused > 0 ? [`${exactCount(refused)} refused`] : []),
  ];
  const also = rest.length === 0 ? "" : `, ${rest.join(", ")}`;
  if (state === "running") {
    const all = isExact ? counted(matched, "run") : boundedText(matched, "run");
    return `${doing} ${all}: ${exactCount(done)} ${past}${also}.`;
  }
  const end = `${counted(done, "run")} ${past}${also}.`;
  return state === "stopped" ? `Stopped: ${end}` : `Done: ${end}`;
}

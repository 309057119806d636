import type { RunFacts } from "../../asks/flows.ts";
import type { Remark } from "../remark.ts";
import { durationText } from "../spans.ts";

/** What a run does or waits for, or how it ended, in a few words; undefined where its status says all. */
export function runRemark(run: RunFacts, nowMs: number): Remark | undefined {
  const plain = (text: string) => ({ text, isWrong: false });
  const wrong = (text: string) => ({ text, isWrong: true });
  const { doing, error, version } = run;
  const left = (atMs: number) => durationText(atMs - nowMs);
  if (run.status === "failed") return wrong(error?.message ?? "");
  if (run.status === "cancelled") return error ? plain(error.message) : undefined;
  if (doing === null) return undefined;
  if (doing.type === "set_aside") return wrong(`set aside: ${doing.message}`);
  if (run.noWorker)
    return wrong(
      version === 0
        ? "no live pod has its flow"
        : `no live pod has version ${version} or a later one`,
    );
  if (run.paused) return plain("its flow is paused");
  const ending = run.intent === null ? "" : `, ending as ${run.intent}`;
  const now = () => {
    switch (doing.type) {
      case "running":
        return run.attempt > 1 ? `runs, attempt ${run.attempt}` : "runs";
      case "ready":
        return "waits for a pod";
      case "retrying": {
        const why = error ? ` after ${error.message}` : "";
        return doing.atMs > nowMs ? `retries in ${left(doing.atMs)}${why}` : `retries now${why}`;
      }
      case "delayed":
        return `begins in ${left(doing.untilMs)}`;
      case "sleeping":
        return doing.untilMs > nowMs ? `sleeps for ${left(doing.untilMs)} more` : "wakes up";
      case "waiting_for_signal":
        return doing.untilMs === null || doing.untilMs <= nowMs
          ? `waits for the signal ${doing.name}`
          : `waits for the signal ${doing.name}, at most ${left(doing.untilMs)} more`;
      case "waiting_for_children":
        return "waits for the runs that it has started";
      case "waiting_for_others":
        return "waits for others to end";
      case "waiting_for_room":
        return doing.scope === null ? "waits at a limit" : `waits at the limit ${doing.scope}`;
    }
  };
  const stopping = run.cancelRequested && run.intent === null ? ", is asked to stop" : "";
  return plain(now() + ending + stopping);
}

/** What may be done to a run as it is. */
export type PossibleRunActs = {
  readonly signal: boolean;
  readonly resume: boolean;
  /** It can be handed to an earlier version. */
  readonly resumeAs: boolean;
  readonly cancel: boolean;
};

export function possibleRunActs(run: RunFacts): PossibleRunActs {
  const isOpen = run.status === "open";
  const isAside = run.doing?.type === "set_aside";
  return {
    signal: isOpen && run.intent === null,
    resume: isAside || run.status === "failed" || run.status === "cancelled",
    resumeAs: isAside || (isOpen && run.noWorker && run.version > 0),
    cancel: isOpen && run.intent === null && !run.cancelRequested,
  };
}

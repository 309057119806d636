import { isTurn, type SessionState } from "../../protocol/message.ts";
import { type Header, sessionStateOf, permitWaitsOf } from "../conversation/header.ts";

/** What clients see of a session's header, with the fields that order two views. */
export type HeaderView = {
  readonly incarnation: string;
  readonly lastSeq: number;
  readonly epoch: number;
  /** The attempt of the current work; 0 if there is none, or during a debounce. */
  readonly attempt: number;
  /** The pod that makes the answer. */
  readonly runner: string | null;
  /** How often the attempt began or ended waiting for a permit. Absent from pods of earlier releases. */
  readonly waits?: number;
  readonly state: SessionState;
  readonly deleted: boolean;
};

export function headerViewOf(header: Header, incarnation: string): HeaderView {
  const { lastSeq, epoch, work, status } = header;
  return {
    incarnation,
    lastSeq,
    epoch,
    attempt: work?.attempt ?? 0,
    runner: work?.runner ?? null,
    waits: work?.type === "turn" ? permitWaitsOf(work) : 0,
    state: sessionStateOf(header),
    deleted: status === "deleted",
  };
}

/**
 * True when `next` is the later of two headers of one log. Headers arrive by several ways, late and
 * repeated. So this compares only what never falls: seqs, then epochs, then the end of an epoch, then
 * attempts.
 */
export function isLater(next: HeaderView, than: HeaderView): boolean {
  if (next.deleted !== than.deleted) return next.deleted;
  if (next.lastSeq !== than.lastSeq) return next.lastSeq > than.lastSeq;
  if (next.epoch !== than.epoch) return next.epoch > than.epoch;
  const hasEnded = next.state.state === "idle";
  if (hasEnded !== (than.state.state === "idle")) return hasEnded;
  if (next.attempt !== than.attempt) return next.attempt > than.attempt;
  return stepsOf(next) > stepsOf(than);
}

export function sameState(one: HeaderView, other: HeaderView): boolean {
  const [a, b] = [one.state, other.state];
  if (a.state !== b.state) return false;
  if (a.state === "idle" || b.state === "idle") return true;
  if (a.epoch !== b.epoch) return false;
  if (!isTurn(a) || !isTurn(b)) return true;
  return a.attempt === b.attempt && a.upToSeq === b.upToSeq && a.stopping === b.stopping;
}

/** The turn whose answer may be shown; undefined if none is being made. */
export function turnOf(view: HeaderView): { epoch: number; attempt: number } | undefined {
  const { state } = view;
  return isTurn(state) && state.attempt > 0 ? state : undefined;
}

/**
 * Within one attempt a runner is assigned at most once, a stop happens at most once, and the count of
 * waits and the last message that was heard only rise.
 */
function stepsOf({ runner, waits = 0, state }: HeaderView): number {
  const { stopping = false, upToSeq = 0 } = isTurn(state) ? state : {};
  return (runner === null ? 0 : 1) + waits + upToSeq + (stopping ? 1 : 0);
}

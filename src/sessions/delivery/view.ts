import { isTurn, type SessionState } from "../../protocol/message.ts";
import { type Header, sessionStateOf, permitWaitsOf } from "../conversation/header.ts";

/** What the clients of a session are told of its header, and what puts two of them in order. */
export type HeaderView = {
  readonly incarnation: string;
  readonly lastSeq: number;
  readonly epoch: number;
  /** Of the work under way; 0 where there is none, or a debounce. */
  readonly attempt: number;
  /** The pod that makes the answer. */
  readonly runner: string | null;
  /** How often the attempt has begun or ended to wait for a permit. Pods of earlier releases don't say it. */
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
 * Whether `next` is the later of two headers of one log. They come by several ways, late and twice, so
 * this is told by what only ever rises: seqs, epochs, within an epoch its end, within work its attempt.
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

/**
 * Within one attempt a runner is named at most once, a stop is asked for at most once, and what counts its
 * waits rises.
 */
function stepsOf({ runner, waits = 0, state }: HeaderView): number {
  const isStopping = isTurn(state) && state.stopping;
  return (runner === null ? 0 : 1) + waits + (isStopping ? 1 : 0);
}

export function sameState(one: HeaderView, other: HeaderView): boolean {
  const [a, b] = [one.state, other.state];
  if (a.state !== b.state) return false;
  if (a.state === "idle" || b.state === "idle") return true;
  if (a.epoch !== b.epoch) return false;
  if (!isTurn(a) || !isTurn(b)) return true;
  return a.attempt === b.attempt && a.upToSeq === b.upToSeq && a.stopping === b.stopping;
}

/** The turn whose answer may be shown, undefined where none is being made. */
export function turnOf(view: HeaderView): { epoch: number; attempt: number } | undefined {
  const { state } = view;
  return isTurn(state) && state.attempt > 0 ? state : undefined;
}

import { FlotillaError } from "../../base/errors.ts";
import type { MetaState } from "../../sessions/log/jetstream/streams.ts";
import type { LogMove, MoveTarget } from "./sql.ts";

/** What is known of the logs of a store before anything is done. */
export type MoveFacts = {
  readonly place: "sql" | "nats";
  /** What the streams say; undefined where there are none in this namespace. */
  readonly meta: MetaState | undefined;
  /** The last promotion of logs, if there was one. */
  readonly move: Pick<LogMove, "to" | "state"> | undefined;
};

/**
 * What comes next. To streams: `prepare` makes them and moves the place, after which `open` has pods take
 * them. Back: `close` has pods leave them, after which `empty` archives the rest and moves the place.
 */
export type MoveStep = "prepare" | "open" | "close" | "empty" | "finish" | "already";

/** Whether pods have still to say that they can follow. Later they are on their way, and that is what ends it. */
export function begins(step: MoveStep): boolean {
  return step === "prepare" || step === "close";
}

/**
 * Decides how a promotion of logs goes on, from what earlier runs have left. The place is the one thing that
 * says where the logs are; the streams say whether pods take them.
 */
export function decideMove(to: MoveTarget, { place, meta, move }: MoveFacts): MoveStep {
  const isOpen = move?.state === "copying";
  if (isOpen && move.to !== to) {
    const isChanged = move.to === "nats" ? place === "nats" || meta === "live" : meta !== "live";
    // It has changed nothing yet that pods see.
    if (isChanged) throw unfinished(move.to);
  }
  if (place === to && meta === (to === "nats" ? "live" : "closed")) {
    return isOpen && move.to === to ? "finish" : "already";
  }
  if (to === "nats") {
    if (place === "sql" && meta !== "live" && meta !== "prepared") return "prepare";
    if (place === "nats" && meta === "moving" && isOpen) return "open";
  } else {
    if (place === "sql" && meta !== "live") return isOpen && move.to === to ? "finish" : "already";
    if (meta === "live") return "close";
    if (meta === "closed" && isOpen) return "empty";
  }
  throw differ({ place, meta });
}

function unfinished(to: MoveTarget): FlotillaError {
  return new FlotillaError(
    "conflict",
    `the logs are on their way to ${to === "nats" ? "NATS" : "Postgres"}: finish that first, by \`flotilla promote --to ${to === "nats" ? "nats" : "postgres"}\``,
  );
}

function differ({ place, meta }: Pick<MoveFacts, "place" | "meta">): FlotillaError {
  return new FlotillaError("conflict", whyOf({ place, meta }));
}

function whyOf({ place, meta }: Pick<MoveFacts, "place" | "meta">): string {
  if (place === "nats" && meta === undefined)
    return "the logs are on NATS, and there are none in this namespace of these servers: give this command the `nats` of the pods, or, if they are the same, restore what the servers have lost";
  if (place === "nats" && meta === "prepared")
    return "the streams of these logs aren't all made: start a pod, which does that, and then this again";
  if (place === "nats")
    return "the database says that the logs are on NATS, and not that they were to be moved, and the streams say that they are being moved: one of the two was restored from a back-up of another time, so restore both from the same time";
  return "the database says that the logs are in it, and the streams that pods take them there: the database was restored from a back-up of before they were moved, so restore both from the same time; or this namespace is in use, so set nats.namespace to one that is free";
}

export function takenOver(): FlotillaError {
  return new FlotillaError(
    "conflict",
    "another `flotilla promote` has taken this promotion over, because this one was silent for too long: let that one finish",
  );
}

export function isHeldBy(move: LogMove | undefined): FlotillaError {
  const seconds = Math.max(1, Math.ceil((move?.heldMs ?? 0) / 1_000));
  return new FlotillaError(
    "conflict",
    `another \`flotilla promote\` is moving these logs: let it finish, or, if it was killed, try again in ${seconds} s`,
  );
}

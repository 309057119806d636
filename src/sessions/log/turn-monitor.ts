import type { Clock } from "../../base/clock.ts";
import { hasCode, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Command, SessionEffect, Reply } from "../conversation/command.ts";
import type { Header, Work } from "../conversation/header.ts";
import type { WorkId } from "../runner.ts";

/**
 * Sees to it that the work of a log's sessions is done: it tells runners to start until they name their
 * work, and gives up on those that name it no more. It only asks; what becomes of the work is decided in
 * the log, so that asking in vain or twice does no harm.
 */
export type TurnMonitor = {
  /** What a session has under way now. */
  watch(header: Header): void;
  perform(sessionId: string, effect: SessionEffect): void;
  /** A runner says that it is at it. */
  confirm(works: readonly WorkId[]): void;
  close(): void;
};

export type TurnMonitorParts = {
  clock: Clock;
  log: Logger;
  start: (runner: string, header: Header) => void;
  abort: (runner: string, which: WorkId, keep: boolean) => void;
  submit: (header: Header, command: Command) => Promise<unknown>;
  /** What was stored of a turn last. */
  checkpoint: (which: WorkId) => Promise<Reply | undefined>;
  debounceMs: (tenant: string, agent: string) => number;
  /** Whether a pod's process is known to have ended: nobody need wait for its word. */
  isGone: (podId: string) => boolean;
};

type WatchedWork = {
  header: Header;
  /** When its runner was heard of last, or when it was told to somebody. */
  heardMs: number;
  sentMs: number;
  isConfirmed: boolean;
  stoppingMs: number | undefined;
  noRunnerSinceMs: number | undefined;
  /** Something is being asked about it. */
  isSubmitting: boolean;
  cancelDebounce: () => void;
};

const pollMs = 250;
/** A look that comes later than this: the process stood still, and nobody's silence counts. */
const gapMs = 1_500;
const repeatMs = 1_000;
/** How long a runner may say nothing before another one starts over. */
const lostMs = 5_000;
/** How long a runner that was told to stop has for bringing what it has. */
const stopMs = 5_000;
/** How long a turn waits for a pod that can make it, before it fails visibly. */
const maxNoRunnerMs = 60_000;

export function createTurnMonitor(parts: TurnMonitorParts): TurnMonitor {
  const { clock, log } = parts;
  const watched = new Map<string, WatchedWork>();
  let cancel: (() => void) | undefined;
  let armedMs = 0;
  let closed = false;

  const poll = (): void => {
    cancel = undefined;
    const nowMs = clock.monotonic();
    // What runners have said meanwhile hasn't been read yet.
    if (nowMs - armedMs >= gapMs) for (const each of watched.values()) each.heardMs = nowMs;
    for (const each of watched.values()) check(each);
    arm();
  };
  const arm = (): void => {
    if (closed || cancel || watched.size === 0) return;
    armedMs = clock.monotonic();
    cancel = clock.after(pollMs, poll);
  };

  const check = (each: WatchedWork): void => {
    const { header } = each;
    const work = header.work;
    if (!work || work.attempt === 0 || each.isSubmitting) return;
    const nowMs = clock.monotonic();
    const { epoch, attempt } = work;
    const which = { sessionId: header.sessionId, epoch, attempt };
    if (each.stoppingMs !== undefined && nowMs - each.stoppingMs >= stopMs) {
      each.stoppingMs = nowMs;
      submit(each, async () => ({
        type: "stop_expired",
        epoch,
        ...withCheckpoint(await parts.checkpoint(which)),
      }));
    } else if (work.runner === null) {
      if (nowMs - each.heardMs < repeatMs) return;
      each.heardMs = nowMs;
      each.noRunnerSinceMs ??= nowMs;
      const late = nowMs - each.noRunnerSinceMs >= maxNoRunnerMs;
      submit(each, async () => {
        if (late) return noRunnerCommand(header);
        // One that is being stopped ends with what its last runner has left.
        const left = isStopping(work) ? await parts.checkpoint(which) : undefined;
        return { type: "work_lost", epoch, attempt, ...withCheckpoint(left) };
      });
    } else if (nowMs - each.heardMs >= lostMs || parts.isGone(work.runner)) {
      each.heardMs = nowMs;
      log.warn({ session: header.sessionId, runner: work.runner }, "a runner was lost");
      submit(each, async () => ({
        type: "work_lost",
        epoch,
        attempt,
        ...withCheckpoint(await parts.checkpoint(which)),
      }));
    } else if (!each.isConfirmed && nowMs - each.sentMs >= repeatMs) {
      each.sentMs = nowMs;
      parts.start(work.runner, header);
    }
  };

  const submit = (each: WatchedWork, command: () => Promise<Command>): void => {
    each.isSubmitting = true;
    const { header } = each;
    void command()
      .then((made) => parts.submit(header, made))
      .catch((error: unknown) => {
        // Others have the log, or the store is away: whoever has it by then asks again.
        if (!hasCode(error, "not_owner")) {
          log.warn({ session: header.sessionId, error: messageOf(error) }, "work wasn't settled");
        }
      })
      .finally(() => {
        each.isSubmitting = false;
      });
  };

  const debounce = (each: WatchedWork, upToSeq: number): void => {
    const { header } = each;
    const work = header.work;
    if (work?.type !== "turn" || work.attempt !== 0) return;
    each.cancelDebounce();
    each.cancelDebounce = clock.after(parts.debounceMs(header.tenant, work.agent), () => {
      const again = (): Promise<unknown> =>
        parts.submit(header, { type: "debounced", epoch: work.epoch, upToSeq });
      void again().catch((error: unknown) => {
        if (closed || hasCode(error, "not_owner")) return;
        each.cancelDebounce = clock.after(repeatMs, () => debounce(each, upToSeq));
      });
    });
  };

  return {
    watch(header) {
      const { sessionId, work } = header;
      const before = watched.get(sessionId);
      if (!work) {
        before?.cancelDebounce();
        watched.delete(sessionId);
        return;
      }
      const nowMs = clock.monotonic();
      const stoppingMs = isStopping(work) ? nowMs : undefined;
      const had = before?.header.work;
      if (before && had && had.epoch === work.epoch && had.attempt === work.attempt) {
        const other = had.runner !== work.runner;
        before.header = header;
        before.stoppingMs ??= stoppingMs;
        if (other) Object.assign(before, { isConfirmed: false, sentMs: -Infinity, heardMs: nowMs });
        return;
      }
      before?.cancelDebounce();
      watched.set(sessionId, {
        header,
        heardMs: nowMs,
        sentMs: -Infinity,
        isConfirmed: false,
        stoppingMs,
        noRunnerSinceMs: had?.epoch === work.epoch ? before?.noRunnerSinceMs : undefined,
        isSubmitting: false,
        cancelDebounce: () => {},
      });
      if (work.type === "turn" && work.attempt === 0) {
        debounce(watched.get(sessionId)!, work.upToSeq);
      }
      arm();
    },
    perform(sessionId, effect) {
      const each = watched.get(sessionId);
      switch (effect.type) {
        case "abort_turn": {
          const { runner, epoch, attempt, keep } = effect;
          return parts.abort(runner, { sessionId, epoch, attempt }, keep);
        }
        case "debounce":
          return each && debounce(each, effect.upToSeq);
        case "start_turn":
        case "start_compaction": {
          const work = each?.header.work;
          // A later command of the same record may have ended it already.
          if (!each || work?.epoch !== effect.epoch || work.attempt !== effect.attempt) return;
          if (work.runner === null) return;
          each.sentMs = clock.monotonic();
          return parts.start(work.runner, each.header);
        }
      }
    },
    confirm(works) {
      for (const { sessionId, epoch, attempt } of works) {
        const each = watched.get(sessionId);
        const work = each?.header.work;
        if (!each || work?.epoch !== epoch || work.attempt !== attempt) continue;
        each.isConfirmed = true;
        each.heardMs = clock.monotonic();
        each.noRunnerSinceMs = undefined;
      }
    },
    close() {
      closed = true;
      cancel?.();
      for (const each of watched.values()) each.cancelDebounce();
      watched.clear();
    },
  };
}

function isStopping(work: Work): boolean {
  return work.type === "turn" && work.stopping;
}

function withCheckpoint(checkpoint: Reply | undefined): { checkpoint?: Reply } {
  return checkpoint ? { checkpoint } : {};
}

/** No pod that is up can do it, and none came. */
function noRunnerCommand({ work }: Header): Command {
  const { epoch, attempt, agent } = work!;
  const error = {
    code: "unavailable",
    message: `no pod that is up has the agent "${agent}"`,
  };
  if (work!.type === "compaction") return { type: "compaction_failed", epoch, attempt, error };
  const reply: Reply = { outcome: "failed", parts: [], tokens: 0, error };
  return { type: "turn_finished", epoch, attempt, reply };
}

import type { Clock } from "../../base/clock.ts";
import { hasCode, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Command, SessionEffect, Reply } from "../conversation/command.ts";
import type { Header, Work } from "../conversation/header.ts";
import type { WorkId } from "../runner.ts";

/**
 * Makes sure that the work of a log's sessions is done. It sends a start to the runner until the runner
 * confirms it, and gives up on a runner that stops confirming. It only submits commands. The log decides
 * what becomes of the work, so a repeated or late command does no harm.
 */
export type TurnMonitor = {
  /** Follows the work in a session's latest header. */
  watch(header: Header): void;
  perform(sessionId: string, effect: SessionEffect): void;
  /** A runner reports the work that it has in progress. */
  confirm(works: readonly WorkId[]): void;
  close(): void;
};

export type TurnMonitorParts = {
  clock: Clock;
  log: Logger;
  start: (runner: string, header: Header) => void;
  abort: (runner: string, which: WorkId, keep: boolean) => void;
  submit: (header: Header, command: Command) => Promise<unknown>;
  /** The last stored checkpoint of a turn. */
  checkpoint: (which: WorkId) => Promise<Reply | undefined>;
  debounceMs: (tenant: string, agent: string) => number;
  /** True when a pod's process is known to have ended, so that its silence need not be waited out. */
  isGone: (podId: string) => boolean;
  /** The previous owner of the log, if it fell silent, and since when: a turn that it runs is as silent. */
  silent?: SilentOwner | undefined;
};

export type SilentOwner = { readonly podId: string; readonly sinceMs: number };

type WatchedWork = {
  header: Header;
  /** When the runner last confirmed, or when the work was assigned to it. */
  heardMs: number;
  sentMs: number;
  isConfirmed: boolean;
  stoppingMs: number | undefined;
  noRunnerSinceMs: number | undefined;
  /** A command about this work is in flight. */
  isSubmitting: boolean;
  cancelDebounce: () => void;
};

const pollMs = 250;
/** After a longer gap between two polls this process stood still, so no runner counts as silent. */
const gapMs = 1_500;
const repeatMs = 1_000;
/** How long a runner may stay silent before another one starts over. */
const lostMs = 5_000;
/** How long a runner has to return its partial answer after a stop. */
const stopMs = 5_000;
/** How long a turn waits for a pod that has its agent before it fails. */
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
    // Confirmations that arrived meanwhile have not been read yet.
    if (nowMs - armedMs >= gapMs) for (const each of watched.values()) each.heardMs = nowMs;
    for (const each of watched.values()) check(each);
    arm();
  };
  const arm = (delayMs = pollMs): void => {
    if (closed || cancel || watched.size === 0) return;
    armedMs = clock.monotonic();
    cancel = clock.after(delayMs, poll);
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
        // A turn that is being stopped ends with the last runner's checkpoint.
        const lastCheckpoint = isStopping(work) ? await parts.checkpoint(which) : undefined;
        return { type: "work_lost", epoch, attempt, ...withCheckpoint(lastCheckpoint) };
      });
    } else if (nowMs - each.heardMs >= lostMs || parts.isGone(work.runner)) {
      each.heardMs = nowMs;
      log.warn({ session: header.sessionId, runner: work.runner }, "turn runner lost");
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
        // `not_owner` is expected: the next owner of the log submits the command again.
        if (!hasCode(error, "not_owner")) {
          log.warn(
            { session: header.sessionId, error: messageOf(error) },
            "turn command failed, retrying",
          );
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
        if (hasCode(error, "not_owner") || watched.get(header.sessionId) !== each) return;
        each.cancelDebounce = clock.after(repeatMs, () => debounce(each, upToSeq));
      });
    });
  };

  return {
    watch(header) {
      // A record whose answer came after its log was given up: the next owner watches what it has begun.
      if (closed) return;
      const { sessionId, work } = header;
      const before = watched.get(sessionId);
      if (!work) {
        before?.cancelDebounce();
        watched.delete(sessionId);
        return;
      }
      const nowMs = clock.monotonic();
      const stoppingMs = isStopping(work) ? nowMs : undefined;
      const previous = before?.header.work;
      if (
        before &&
        previous &&
        previous.epoch === work.epoch &&
        previous.attempt === work.attempt
      ) {
        const other = previous.runner !== work.runner;
        before.header = header;
        before.stoppingMs ??= stoppingMs;
        if (other) Object.assign(before, { isConfirmed: false, sentMs: -Infinity, heardMs: nowMs });
        return;
      }
      before?.cancelDebounce();
      const { runner } = work;
      const isSilent = runner !== null && runner === parts.silent?.podId;
      watched.set(sessionId, {
        header,
        heardMs: isSilent ? parts.silent!.sinceMs : nowMs,
        sentMs: -Infinity,
        isConfirmed: false,
        stoppingMs,
        noRunnerSinceMs: previous?.epoch === work.epoch ? before?.noRunnerSinceMs : undefined,
        isSubmitting: false,
        cancelDebounce: () => {},
      });
      if (work.type === "turn" && work.attempt === 0) {
        debounce(watched.get(sessionId)!, work.upToSeq);
      }
      arm(runner !== null && parts.isGone(runner) ? 0 : pollMs);
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
          // A later command in the same record may have ended the work already.
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

/** No live pod has the agent, and none appeared in time. */
function noRunnerCommand({ work }: Header): Command {
  const { epoch, attempt, agent } = work!;
  const error = {
    code: "unavailable",
    message: `no pod that is up has the agent "${agent}": start one that defines it`,
  };
  if (work!.type === "compaction") return { type: "compaction_failed", epoch, attempt, error };
  const reply: Reply = { outcome: "failed", parts: [], tokens: 0, error };
  return { type: "turn_finished", epoch, attempt, reply };
}

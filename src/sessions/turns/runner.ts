import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import { runWithOrigin } from "../../pods/unhandled-errors.ts";
import type { Header } from "../conversation/header.ts";
import type { Runner, WorkId } from "../runner.ts";
import type { Answer } from "./answer.ts";
import { runCompaction } from "./compaction.ts";
import { createAgentNetwork } from "./network.ts";
import { type Control, createControl, type RunnerParts } from "./parts.ts";
import { runTurn, reportToOwner } from "./turn.ts";

type RunningWork = {
  readonly name: WorkId;
  readonly tenant: string;
  readonly control: Control;
  answer: Answer | undefined;
  /** False while it waits for others to end. */
  begun: boolean;
  ended: Promise<void>;
};

/** Of so many sessions it is remembered which work was the last here, as letters may come late. */
const maxPast = 10_000;
/** Releasing work is a courtesy: without it, it is missed a moment later. */
const releaseMs = 2_000;

const minAloneMs = 5_000;
const maxAloneMs = 60_000;

/**
 * How long a suspect is alone: long enough for what ends a pod at once, and four times as long with each
 * further attempt for what takes its time, so that many suspects don't wait for each other for hours.
 */
export function aloneMs(attempt: number): number {
  return Math.min(maxAloneMs, minAloneMs * 4 ** Math.min(10, Math.max(0, attempt - 3)));
}

/** What makes answers and summaries on a pod. */
export function createRunner(runnerParts: RunnerParts): Runner {
  const { podId, clock, log, network = createAgentNetwork() } = runnerParts;
  const parts = { ...runnerParts, network };
  const bySession = new Map<string, RunningWork>();
  const past = new Map<string, WorkId>();
  const slots = createTurnSlots(runnerParts.maxTurns ?? Infinity, clock);
  let stopping = false;

  const remember = (name: WorkId): void => {
    const last = past.get(name.sessionId);
    if (last && !isAfter(name, last)) return;
    past.delete(name.sessionId);
    past.set(name.sessionId, name);
    if (past.size > maxPast) past.delete(past.keys().next().value!);
  };

  const start = (header: Header): void => {
    const { sessionId, tenant, work } = header;
    if (!work || work.runner !== podId || work.attempt === 0) return;
    const name = { sessionId, epoch: work.epoch, attempt: work.attempt };
    const had = bySession.get(sessionId);
    const lasts = [had?.name, past.get(sessionId)];
    if (lasts.some((last) => last && !isAfter(name, last))) return;
    if (stopping) {
      remember(name);
      void release({ name, tenant });
      return;
    }
    had?.control.end({ keep: false });
    const control = createControl();
    const running: RunningWork = {
      name,
      tenant,
      control,
      answer: undefined,
      begun: false,
      ended: Promise.resolve(),
    };
    bySession.set(sessionId, running);
    const show = (answer: Answer) => void (running.answer = answer);
    const begin = async (begun: () => void) => {
      running.begun = true;
      // A suspect among tasks may end the pod as well.
      if (work.alone)
        await reportBegun(running, { beside: runnerParts.runsSuspectTask?.() ?? false });
      begun();
      const { sessionId: session, ...numbers } = name;
      const fields = { session, agent: work.agent, ...numbers, pod: podId };
      return runWithOrigin({ by: "agent", fields, log }, () =>
        work.type === "turn"
          ? runTurn(parts, header, work, { control, show })
          : runCompaction(parts, header, work, control),
      );
    };
    const suspect = work.alone && {
      aloneMs: aloneMs(work.attempt),
      // Stored before others begin: one of them may end the pod at once, and the suspect isn't to blame.
      onOver: () => reportBegun(running, { beside: true }).catch(() => {}),
    };
    running.ended = slots
      .run({ tenant, signal: control.signal, suspect }, begin)
      .catch((error: unknown) => log.error({ session: sessionId, error }, "a turn broke down"))
      .finally(() => {
        remember(name);
        if (bySession.get(sessionId) === running) bySession.delete(sessionId);
      });
  };

  /** Stored before it begins, since afterwards the pod may be gone. */
  const reportBegun = async (
    { name, tenant, control }: RunningWork,
    { beside }: { beside: boolean },
  ): Promise<void> => {
    const { sessionId, epoch, attempt } = name;
    if (control.signal.aborted) return;
    try {
      const command = { type: "work_begun", epoch, attempt, ...(beside && { beside }) } as const;
      const result = await reportToOwner(parts, { sessionId, tenant }, command, control.signal);
      if (result.done === false) control.end({ keep: false });
    } catch (error) {
      // An owner of an earlier release doesn't know it, and counts every loss.
      if (control.signal.aborted || hasCode(error, "unsupported")) return;
      throw error;
    }
  };

  const release = async ({ name, tenant }: Pick<RunningWork, "name" | "tenant">): Promise<void> => {
    const { sessionId, epoch, attempt } = name;
    const command = { type: "turn_released", epoch, attempt } as const;
    const limit = new AbortController();
    const cancel = clock.after(releaseMs, () => limit.abort());
    await reportToOwner(parts, { sessionId, tenant }, command, limit.signal).catch(() => {});
    cancel();
  };

  return {
    start,

    abort(which, { keep }) {
      const running = bySession.get(which.sessionId);
      if (running && isSame(running.name, which)) running.control.end({ keep });
      // One that hasn't been heard of yet needn't begin any more.
      else if (!keep) remember(which);
    },

    running: () => [...bySession.values()].map(({ name }) => name),

    get waiting() {
      return slots.waiting;
    },
    get hasSuspect() {
      return slots.hasSuspect;
    },

    snapshot(sessionId) {
      const running = bySession.get(sessionId);
      if (!running || (running.control.signal.aborted && !running.control.kept)) return undefined;
      return running.answer?.snapshot();
    },

    async stop({ waitMs }) {
      stopping = true;
      // What hasn't begun here can begin elsewhere at once.
      const unbegun = [...bySession.values()].filter(({ begun }) => !begun);
      for (const { control } of unbegun) control.end({ keep: false });
      await Promise.all(unbegun.map(release));
      const all = () => Promise.all([...bySession.values()].map(({ ended }) => ended));
      await within(waitMs, all());
      const left = [...bySession.values()];
      for (const { control } of left) control.end({ keep: false });
      await Promise.all(left.map(release));
      await within(releaseMs, all());
      await network.close();
    },
  };

  function within(limitMs: number, promise: Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.after(limitMs, resolve);
      void promise.finally(() => {
        cancel();
        resolve();
      });
    });
  }
}

function isSame(one: WorkId, other: WorkId): boolean {
  return one.epoch === other.epoch && one.attempt === other.attempt;
}

function isAfter(one: WorkId, other: WorkId): boolean {
  return one.epoch > other.epoch || (one.epoch === other.epoch && one.attempt > other.attempt);
}

/**
 * Lets so much be under way at once. What waits is let in as soon as something ends: tenants in turns,
 * and of each tenant in the order of asking, so that nobody who asks for much keeps others out.
 *
 * A suspect is work that pods were lost under. It comes in when nothing else has begun for a while, and
 * the gate is closed for as long after it: a pod that is lost in that time was most likely ended by it.
 * Those that came to the closed gate go before the next suspect.
 */
type TurnSlots = {
  readonly waiting: number;
  /** A suspect is in its time alone, or about to begin it. */
  readonly hasSuspect: boolean;
  /** Does it once there is room, or at once where its signal fires: then it has only to end itself. */
  run<Result>(request: SlotRequest, work: (begun: () => void) => Promise<Result>): Promise<Result>;
};

type SlotRequest = {
  tenant: string;
  signal: AbortSignal;
  suspect?: Suspect | undefined;
};

export type Suspect = {
  /** How long nothing else begins before it and, from the call of `begun`, after it. */
  readonly aloneMs: number;
  /** It has lived for so long. Others begin beside it once this has resolved. Never rejects. */
  readonly onOver: () => Promise<void>;
};

export function createTurnSlots(maxTurns: number, clock: Clock): TurnSlots {
  /** In the order in which tenants are served next. */
  const queues = new Map<string, Set<() => void>>();
  const suspects = new Map<() => void, Suspect>();
  let underWay = 0;
  let waiting = 0;
  /** When something began last. */
  let begunMs = -Infinity;
  /** How many others are let in before the gate closes for the next suspect. */
  let aheadOfSuspect = 0;
  /** The suspect that the gate is closed behind. */
  let aloneSuspect: Suspect | undefined;
  let cancelTimer = () => {};

  const remove = (tenant: string, enter: () => void): void => {
    const queue = queues.get(tenant);
    if (!queue?.delete(enter)) return;
    waiting--;
    if (queue.size === 0) queues.delete(tenant);
  };

  const takeNext = (): (() => void) | undefined => {
    const next = queues.entries().next().value;
    if (!next) return undefined;
    const [tenant, queue] = next;
    const enter = queue.values().next().value!;
    remove(tenant, enter);
    // It goes behind all others that wait.
    if (queues.delete(tenant)) queues.set(tenant, queue);
    return enter;
  };

  const occupySlot = (): void => {
    underWay++;
    begunMs = clock.monotonic();
  };

  const setTimer = (delayMs: number, act: () => void): void => {
    cancelTimer();
    cancelTimer = clock.after(delayMs, act);
  };

  const admit = (): void => {
    if (aloneSuspect) return;
    cancelTimer();
    while (underWay < maxTurns) {
      const next = suspects.entries().next().value;
      if (next && (aheadOfSuspect === 0 || waiting === 0)) {
        const [enter, suspect] = next;
        const leftMs = underWay === 0 ? 0 : begunMs + suspect.aloneMs - clock.monotonic();
        if (leftMs > 0) return setTimer(leftMs, admit);
        suspects.delete(enter);
        aloneSuspect = suspect;
        occupySlot();
        return enter();
      }
      const enter = takeNext();
      if (!enter) return;
      aheadOfSuspect = Math.max(0, aheadOfSuspect - 1);
      occupySlot();
      enter();
    }
  };

  const reopen = (suspect: Suspect): void => {
    if (aloneSuspect !== suspect) return;
    aloneSuspect = undefined;
    aheadOfSuspect = waiting;
    admit();
  };

  /** Whether it has a place: not where its signal has fired before there was one. */
  const enter = ({ tenant, signal, suspect }: SlotRequest): Promise<boolean> =>
    new Promise((resolve) => {
      const settle = (hasSlot: boolean) => {
        signal.removeEventListener("abort", onAbort);
        resolve(hasSlot);
      };
      const enter = () => settle(true);
      const onAbort = () => {
        if (!suspects.delete(enter)) remove(tenant, enter);
        settle(false);
        admit();
      };
      signal.addEventListener("abort", onAbort, { once: true });
      if (suspect) {
        if (suspects.size === 0 && !aloneSuspect) aheadOfSuspect = waiting;
        suspects.set(enter, suspect);
      } else {
        const queue = queues.get(tenant) ?? new Set();
        queues.set(tenant, queue.add(enter));
        waiting++;
      }
      admit();
    });

  return {
    get waiting() {
      return waiting + suspects.size;
    },
    get hasSuspect() {
      return aloneSuspect !== undefined;
    },
    async run(request, work) {
      const { signal, suspect } = request;
      const ignore = () => {};
      if (signal.aborted) return work(ignore);
      const isClosed = aloneSuspect !== undefined || suspects.size > 0 || waiting > 0;
      if (!suspect && !isClosed && underWay < maxTurns) occupySlot();
      else if (!(await enter(request))) return work(ignore);
      const begun = () => {
        if (!suspect || aloneSuspect !== suspect) return;
        begunMs = clock.monotonic();
        setTimer(suspect.aloneMs, () => void suspect.onOver().then(() => reopen(suspect)));
      };
      try {
        return await work(begun);
      } finally {
        underWay--;
        if (suspect && aloneSuspect === suspect) reopen(suspect);
        else admit();
      }
    },
  };
}

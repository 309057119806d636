import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import { settledWithin } from "../../base/timeout.ts";
import { runWithOrigin } from "../../pods/unhandled-errors.ts";
import type { Header } from "../conversation/header.ts";
import type { Runner, WorkId } from "../runner.ts";
import type { Answer } from "./answer.ts";
import { runCompaction } from "./compaction.ts";
import { createAgentNetwork } from "./network.ts";
import { type Control, createControl, type RunnerParts } from "./parts.ts";
import { reportToOwner } from "./report.ts";
import { runTurn } from "./turn.ts";

type RunningWork = {
  readonly name: WorkId;
  readonly tenant: string;
  readonly control: Control;
  answer: Answer | undefined;
  /** Stores what another attempt can go on with. */
  save: (() => Promise<void>) | undefined;
  /** False while it waits for a slot. */
  begun: boolean;
  ended: Promise<void>;
};

/** For how many sessions the last work is remembered, because envelopes may arrive late. */
const maxPast = 10_000;
/** How long to try to release work. Without a release, the owner notices the loss a moment later. */
const releaseMs = 2_000;

const minAloneMs = 5_000;
const maxAloneMs = 60_000;

/** Creates the runner of a pod, which makes answers and summaries. */
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
    const current = bySession.get(sessionId);
    const lasts = [current?.name, past.get(sessionId)];
    if (lasts.some((last) => last && !isAfter(name, last))) return;
    if (stopping) {
      remember(name);
      void release({ name, tenant });
      return;
    }
    current?.control.end({ keep: false });
    const receivedMs = clock.monotonic();
    const control = createControl();
    const running: RunningWork = {
      name,
      tenant,
      control,
      answer: undefined,
      save: undefined,
      begun: false,
      ended: Promise.resolve(),
    };
    bySession.set(sessionId, running);
    const show = (answer: Answer, save: () => Promise<void>) =>
      void Object.assign(running, { answer, save });
    const begin = async (begun: () => void) => {
      running.begun = true;
      // A suspect task on this pod may kill it as well.
      if (work.alone)
        await reportBegun(running, { beside: runnerParts.runsSuspectTask?.() ?? false });
      begun();
      const { sessionId: session, ...numbers } = name;
      const fields = { session, tenant, agent: work.agent, ...numbers, pod: podId };
      const from = { id: session, what: "session" } as const;
      await runWithOrigin({ by: "agent", from, fields, log }, () =>
        work.type === "turn"
          ? runTurn(parts, header, work, { control, show, receivedMs })
          : runCompaction(parts, header, work, control),
      );
      if (control.handedOver) await release(running);
    };
    const suspect = work.alone && {
      aloneMs: aloneMs(work.attempt),
      // Stored before other work begins, because that work may kill the pod, and then the suspect is not to
      // blame.
      onOver: () => reportBegun(running, { beside: true }).catch(() => {}),
    };
    running.ended = slots
      .run({ tenant, signal: control.signal, suspect }, begin)
      .catch((error: unknown) => log.error({ session: sessionId, error }, "turn crashed"))
      .finally(() => {
        remember(name);
        if (bySession.get(sessionId) === running) bySession.delete(sessionId);
      });
  };

  /** Stored before the work begins, because the pod may be gone afterwards. */
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
      // An owner of an earlier release does not know the command, and counts every loss.
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
      // Work that has not arrived yet need not begin any more.
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

    async stop({ waitMs, drainMs = 0 }) {
      stopping = true;
      const leave = () => {
        for (const { control } of bySession.values()) control.leave();
      };
      if (drainMs === 0) leave();
      // Work that has not begun here can begin on another pod at once.
      const unbegun = [...bySession.values()].filter(({ begun }) => !begun);
      for (const { control } of unbegun) control.end({ keep: false });
      await Promise.all(unbegun.map(release));
      const all = () => Promise.all([...bySession.values()].map(({ ended }) => ended));
      if (drainMs > 0) await settledWithin(clock, drainMs, all());
      leave();
      await settledWithin(clock, waitMs, all());
      const left = [...bySession.values()];
      for (const { control } of left) control.end({ keep: false });
      // No word is sent any more, so that none is missing in what another pod goes on with.
      const saved = (each: RunningWork) =>
        settledWithin(clock, releaseMs, Promise.resolve(each.save?.()));
      await Promise.all(left.map((each) => saved(each).then(() => release(each))));
      await settledWithin(clock, releaseMs, all());
      await network.close();
    },
  };
}

/**
 * How long a suspect runs alone: long enough for work that kills a pod at once, and four times as long
 * with each further attempt for work that takes its time. The first times are short, because suspects wait
 * for each other.
 */
export function aloneMs(attempt: number): number {
  return Math.min(maxAloneMs, minAloneMs * 4 ** Math.min(10, Math.max(0, attempt - 3)));
}

function isSame(one: WorkId, other: WorkId): boolean {
  return one.epoch === other.epoch && one.attempt === other.attempt;
}

function isAfter(one: WorkId, other: WorkId): boolean {
  return one.epoch > other.epoch || (one.epoch === other.epoch && one.attempt > other.attempt);
}

/**
 * Limits how many turns run at once. A waiting turn gets a slot as soon as one is free: tenants take
 * turns, and each tenant's turns keep their order, so that a busy tenant cannot keep others out.
 *
 * A suspect is work that was lost with its pods. It gets a slot when no other work has begun for a while,
 * and no other work begins for as long after it: if the pod is lost in that time, the suspect most likely
 * killed it. Turns that waited meanwhile go before the next suspect.
 */
type TurnSlots = {
  readonly waiting: number;
  /** True when a suspect runs alone or is about to. */
  readonly hasSuspect: boolean;
  /** Runs the work once a slot is free, or at once if its signal fires: the work then only has to end. */
  run<Result>(request: SlotRequest, work: (begun: () => void) => Promise<Result>): Promise<Result>;
};

type SlotRequest = {
  tenant: string;
  signal: AbortSignal;
  suspect?: Suspect | undefined;
};

export type Suspect = {
  /** How long no other work begins before it and, from the call of `begun`, after it. */
  readonly aloneMs: number;
  /** The suspect has survived that time. Other work begins once this has resolved. Never rejects. */
  readonly onOver: () => Promise<void>;
};

export function createTurnSlots(maxTurns: number, clock: Clock): TurnSlots {
  /** In the order in which tenants get the next slot. */
  const queues = new Map<string, Set<() => void>>();
  const suspects = new Map<() => void, Suspect>();
  let underWay = 0;
  let waiting = 0;
  /** When work last began. */
  let begunMs = -Infinity;
  /** How many other turns get a slot before the next suspect. */
  let aheadOfSuspect = 0;
  /** The suspect that runs alone now. */
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
    // The tenant goes to the end of the order.
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

  /** Resolves with true when it has a slot, with false if its signal fires before. */
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

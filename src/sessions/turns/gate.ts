import type { Clock } from "../../base/clock.ts";

/**
 * Lets so much be under way at once. What waits is let in as soon as something ends: tenants in turns,
 * and of each tenant in the order of asking, so that nobody who asks for much keeps others out.
 *
 * A suspect is work that pods were lost under. It comes in when nothing else has begun for a while, and
 * the gate is closed for as long after it: a pod that is lost in that time was most likely ended by it.
 * Those that came to the closed gate go before the next suspect.
 */
export type Gate = {
  readonly waiting: number;
  /** A suspect is in its time alone, or about to begin it. */
  readonly hasSuspect: boolean;
  /** Does it once there is room, or at once where its signal fires: then it has only to end itself. */
  within<Result>(asked: Asked, work: (begun: () => void) => Promise<Result>): Promise<Result>;
};

type Asked = {
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

export function createGate(most: number, clock: Clock): Gate {
  /** In the order in which tenants are served next. */
  const queues = new Map<string, Set<() => void>>();
  const suspects = new Map<() => void, Suspect>();
  let underWay = 0;
  let waiting = 0;
  /** When something began last. */
  let begunMs = -Infinity;
  /** How many others are let in before the gate closes for the next suspect. */
  let before = 0;
  /** The suspect that the gate is closed behind. */
  let present: Suspect | undefined;
  let cancelTimer = () => {};

  const remove = (tenant: string, come: () => void): void => {
    const queue = queues.get(tenant);
    if (!queue?.delete(come)) return;
    waiting--;
    if (queue.size === 0) queues.delete(tenant);
  };

  const takeNext = (): (() => void) | undefined => {
    const next = queues.entries().next().value;
    if (!next) return undefined;
    const [tenant, queue] = next;
    const come = queue.values().next().value!;
    remove(tenant, come);
    // It goes behind all others that wait.
    if (queues.delete(tenant)) queues.set(tenant, queue);
    return come;
  };

  const letIn = (): void => {
    underWay++;
    begunMs = clock.monotonic();
  };

  const setTimer = (delayMs: number, act: () => void): void => {
    cancelTimer();
    cancelTimer = clock.after(delayMs, act);
  };

  const admit = (): void => {
    if (present) return;
    cancelTimer();
    while (underWay < most) {
      const next = suspects.entries().next().value;
      if (next && (before === 0 || waiting === 0)) {
        const [come, suspect] = next;
        const leftMs = underWay === 0 ? 0 : begunMs + suspect.aloneMs - clock.monotonic();
        if (leftMs > 0) return setTimer(leftMs, admit);
        suspects.delete(come);
        present = suspect;
        letIn();
        return come();
      }
      const come = takeNext();
      if (!come) return;
      before = Math.max(0, before - 1);
      letIn();
      come();
    }
  };

  const open = (suspect: Suspect): void => {
    if (present !== suspect) return;
    present = undefined;
    before = waiting;
    admit();
  };

  /** Whether it has a place: not where its signal has fired before there was one. */
  const enter = ({ tenant, signal, suspect }: Asked): Promise<boolean> =>
    new Promise((resolve) => {
      const settle = (hasPlace: boolean) => {
        signal.removeEventListener("abort", onAbort);
        resolve(hasPlace);
      };
      const come = () => settle(true);
      const onAbort = () => {
        if (!suspects.delete(come)) remove(tenant, come);
        settle(false);
        admit();
      };
      signal.addEventListener("abort", onAbort, { once: true });
      if (suspect) {
        if (suspects.size === 0 && !present) before = waiting;
        suspects.set(come, suspect);
      } else {
        const queue = queues.get(tenant) ?? new Set();
        queues.set(tenant, queue.add(come));
        waiting++;
      }
      admit();
    });

  return {
    get waiting() {
      return waiting + suspects.size;
    },
    get hasSuspect() {
      return present !== undefined;
    },
    async within(asked, work) {
      const { signal, suspect } = asked;
      const ignore = () => {};
      if (signal.aborted) return work(ignore);
      const isShut = present !== undefined || suspects.size > 0 || waiting > 0;
      if (!suspect && !isShut && underWay < most) letIn();
      else if (!(await enter(asked))) return work(ignore);
      const begun = () => {
        if (!suspect || present !== suspect) return;
        begunMs = clock.monotonic();
        setTimer(suspect.aloneMs, () => void suspect.onOver().then(() => open(suspect)));
      };
      try {
        return await work(begun);
      } finally {
        underWay--;
        if (suspect && present === suspect) open(suspect);
        else admit();
      }
    },
  };
}

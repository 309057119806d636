import type { Clock } from "../../base/clock.ts";

/**
 * Lets so much be under way at once. What waits is let in as soon as something ends: tenants in turns,
 * and of each tenant in the order of asking, so that nobody who asks for much keeps others out.
 *
 * What has to be alone closes the gate: what is under way ends, it comes in, and the gate opens again when
 * it has ended. Those that came to the closed gate go before the next that has to be alone.
 */
export type Gate = {
  readonly waiting: number;
  /** Does it once there is room, or at once where its signal fires: then it has only to end itself. */
  within<Result>(
    asked: { tenant: string; signal: AbortSignal; alone?: boolean },
    work: () => Promise<Result>,
  ): Promise<Result>;
};

/**
 * How long the gate is closed at most. Answers may take far longer, and one must not keep all others of a
 * pod waiting: then it comes in beside what is still under way, or goes on beside what comes.
 */
export const closedMs = 60_000;

export function createGate(most: number, clock: Clock): Gate {
  /** In the order in which tenants are served next. */
  const queues = new Map<string, Set<() => void>>();
  const toBeAlone = new Set<() => void>();
  let underWay = 0;
  let waiting = 0;
  /** How many others are let in before the gate closes for the next that has to be alone. */
  let before = 0;
  /** One that has to be alone is under way. */
  let hasOne = false;
  /** Opens the gate, where it is closed. */
  let open: (() => void) | undefined;

  const remove = (tenant: string, come: () => void): boolean => {
    const queue = queues.get(tenant);
    if (!queue?.delete(come)) return false;
    waiting--;
    if (queue.size === 0) queues.delete(tenant);
    return true;
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

  const letOneAlone = (): void => {
    const come = toBeAlone.values().next().value;
    if (!come) return;
    toBeAlone.delete(come);
    hasOne = true;
    underWay++;
    come();
  };

  const close = (): void => {
    const cancel = clock.after(closedMs, () => {
      open?.();
      if (!hasOne) letOneAlone();
      admit();
    });
    open = () => {
      cancel();
      open = undefined;
    };
  };

  const admit = (): void => {
    for (;;) {
      if (!open && !hasOne && toBeAlone.size > 0 && (before === 0 || waiting === 0)) close();
      if (open) {
        if (toBeAlone.size === 0 && !hasOne) open();
        else if (underWay === 0) return letOneAlone();
        else return;
      }
      const come = underWay < most ? takeNext() : undefined;
      if (!come) return;
      before = Math.max(0, before - 1);
      underWay++;
      come();
    }
  };

  /** Whether it has a place: not where its signal has fired before there was one. */
  const enter = (tenant: string, signal: AbortSignal, alone: boolean): Promise<boolean> =>
    new Promise((resolve) => {
      const settle = (hasPlace: boolean) => {
        signal.removeEventListener("abort", onAbort);
        resolve(hasPlace);
      };
      const come = () => settle(true);
      const onAbort = () => {
        if (!toBeAlone.delete(come)) remove(tenant, come);
        settle(false);
        admit();
      };
      signal.addEventListener("abort", onAbort, { once: true });
      if (alone) {
        if (toBeAlone.size === 0 && !hasOne) before = waiting;
        toBeAlone.add(come);
      } else {
        const queue = queues.get(tenant) ?? new Set();
        queues.set(tenant, queue.add(come));
        waiting++;
      }
      admit();
    });

  const leave = (alone: boolean): void => {
    underWay--;
    if (alone) {
      hasOne = false;
      open?.();
      before = waiting;
    }
    admit();
  };

  return {
    get waiting() {
      return waiting + toBeAlone.size;
    },
    async within({ tenant, signal, alone = false }, work) {
      if (signal.aborted) return work();
      const isFree = !alone && !open && waiting === 0 && underWay < most;
      if (isFree) underWay++;
      else if (!(await enter(tenant, signal, alone))) return work();
      try {
        return await work();
      } finally {
        leave(alone);
      }
    },
  };
}

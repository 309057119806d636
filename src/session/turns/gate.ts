/**
 * Lets so much be under way at once. What waits is let in as soon as something ends: tenants in turns,
 * and of each tenant in the order of asking, so that nobody who asks for much keeps others out.
 */
export type Gate = {
  readonly waiting: number;
  /** Does it once there is room, or at once where its signal fires: then it has only to end itself. */
  within<Result>(tenant: string, signal: AbortSignal, work: () => Promise<Result>): Promise<Result>;
};

export function createGate(most: number): Gate {
  /** In the order in which tenants are served next. */
  const queues = new Map<string, Set<() => void>>();
  let underWay = 0;
  let waiting = 0;

  const remove = (tenant: string, enter: () => void): void => {
    const queue = queues.get(tenant);
    if (!queue?.delete(enter)) return;
    waiting--;
    if (queue.size === 0) queues.delete(tenant);
  };

  /** Whoever waits takes the place over, so that nobody comes in between. */
  const letNext = (): void => {
    const next = queues.entries().next().value;
    if (!next) return void underWay--;
    const [tenant, queue] = next;
    const enter = queue.values().next().value!;
    remove(tenant, enter);
    // It goes behind all others that wait.
    if (queues.delete(tenant)) queues.set(tenant, queue);
    enter();
  };

  /** Whether it has a place: not where its signal has fired before there was one. */
  const enter = (tenant: string, signal: AbortSignal): Promise<boolean> =>
    new Promise((resolve) => {
      const settle = (hasPlace: boolean) => {
        signal.removeEventListener("abort", onAbort);
        resolve(hasPlace);
      };
      const come = () => settle(true);
      const onAbort = () => {
        remove(tenant, come);
        settle(false);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      const queue = queues.get(tenant) ?? new Set();
      queues.set(tenant, queue.add(come));
      waiting++;
    });

  return {
    get waiting() {
      return waiting;
    },
    async within(tenant, signal, work) {
      if (signal.aborted) return work();
      if (underWay < most) underWay++;
      else if (!(await enter(tenant, signal))) return work();
      try {
        return await work();
      } finally {
        letNext();
      }
    },
  };
}

/**
 * Virtual time. Everything that happens in a simulation is an event here, and events happen one at
 * a time, in the order of their moments. Between two events every promise that can settle does, so
 * a run depends on nothing but its seed.
 */
export type Scheduler = {
  /** True time, in milliseconds since the run began. No part of the simulation can see it. */
  readonly nowMs: number;
  /** Lets something happen later. The function it returns takes that back. */
  after(delayMs: number, happen: () => void): () => void;
  /** Lets events happen until there are none, or the condition holds. */
  runUntil(done: () => boolean): Promise<void>;
  /** Notes what happened. The notes of two runs of a seed are the same. */
  note(line: string): void;
  readonly trace: Trace;
};

export type Trace = { readonly lines: readonly string[]; hash(): string };

type Event = { readonly atMs: number; readonly order: number; happen: (() => void) | undefined };

export function createScheduler({ keepTrace }: { keepTrace: boolean }): Scheduler {
  const heap: Event[] = [];
  const lines: string[] = [];
  let nowMs = 0;
  let order = 0;
  let hash = 0x811c9dc5;

  const earlier = (a: Event, b: Event) =>
    a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
  const push = (event: Event) => {
    let at = heap.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!earlier(event, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  };
  const pop = (): Event | undefined => {
    const first = heap[0];
    const last = heap.pop();
    if (heap.length === 0 || !last) return first;
    let at = 0;
    for (;;) {
      let child = at * 2 + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && earlier(heap[child + 1]!, heap[child]!)) child++;
      if (!earlier(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  };

  return {
    get nowMs() {
      return nowMs;
    },
    after(delayMs, happen) {
      const event: Event = { atMs: nowMs + Math.max(0, delayMs), order: order++, happen };
      push(event);
      return () => {
        event.happen = undefined;
      };
    },
    runUntil: (done) =>
      new Promise((resolve, reject) => {
        // A tick is taken only when no microtask is left, and costs a fraction of a real timer.
        const next = () => process.nextTick(step);
        const step = () => {
          try {
            if (done()) return resolve();
            let event = pop();
            while (event && !event.happen) event = pop();
            if (!event) return resolve();
            nowMs = event.atMs;
            event.happen!();
          } catch (error) {
            return reject(error as Error);
          }
          queueMicrotask(next);
        };
        next();
      }),
    note(line) {
      const text = `${nowMs.toFixed(3)} ${line}`;
      if (keepTrace) lines.push(text);
      for (let at = 0; at < text.length; at++) {
        hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
      }
    },
    trace: { lines, hash: () => (hash >>> 0).toString(16).padStart(8, "0") },
  };
}

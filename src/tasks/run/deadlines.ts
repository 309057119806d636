import type { Clock } from "../../base/clock.ts";

/**
 * One timer for many deadlines, because a timer per task would cost more than a short task does.
 * `act` is called with what is due; it sets later deadlines by calling `watch` again.
 */
export function createDeadlines<Item extends { readonly actAtMs: number }>(
  clock: Clock,
  items: () => Iterable<Item>,
  act: (item: Item) => void,
) {
  let armedMs = Infinity;
  let cancel: (() => void) | undefined;

  const fire = () => {
    armedMs = Infinity;
    cancel = undefined;
    const nowMs = clock.monotonic();
    for (const item of items()) if (item.actAtMs <= nowMs) act(item);
    let nextMs = Infinity;
    for (const item of items()) nextMs = Math.min(nextMs, item.actAtMs);
    if (nextMs < Infinity) watch(nextMs);
  };
  const watch = (atMs: number) => {
    if (atMs >= armedMs) return;
    armedMs = atMs;
    cancel?.();
    cancel = clock.after(Math.max(0, atMs - clock.monotonic()), fire);
  };
  return { watch, stop: () => cancel?.() };
}

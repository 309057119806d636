/**
 * Calls back at the end of this turn of the event loop, all that were asked for at once. Thousands of
 * connections that got something in one turn share one callback.
 */
export function createTurn(): (callback: () => void) => void {
  let waiting: (() => void)[] = [];
  const run = () => {
    const due = waiting;
    waiting = [];
    for (const each of due) each();
  };
  return (callback) => {
    if (waiting.push(callback) === 1) setImmediate(run);
  };
}

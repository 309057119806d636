/** The same with a `stop` that happens once, however often it is asked for, also by `await using`. */
export function stoppable<Made extends AsyncDisposable & { stop(): Promise<void> }>(
  made: Made,
  stop: () => Promise<void>,
): Made {
  let stopped: Promise<void> | undefined;
  const once = () => (stopped ??= stop());
  return Object.defineProperties({} as Made, {
    ...Object.getOwnPropertyDescriptors(made),
    stop: { value: once, enumerable: true },
    [Symbol.asyncDispose]: { value: once },
  });
}

/** What `handoff` gives, to be returned: the run ends here, successfully. */
export type HandedOff<Output = unknown> = {
  readonly [handedOff]: true;
  readonly output: Output;
};

// Known by everybody, so that it is understood where a program has this package twice.
const handedOff: unique symbol = Symbol.for("flotilla.handed_off") as never;

export type Handoff = {
  readonly handoff: (output: unknown) => HandedOff;
  /** Whether it was called. To call it and return something else is a mistake that nobody would see. */
  readonly called: () => boolean;
};

/** One for each attempt. */
export function createHandoff(): Handoff {
  let called = false;
  return {
    handoff(output) {
      called = true;
      return { [handedOff]: true, output };
    },
    called: () => called,
  };
}

export function isHandedOff(value: unknown): value is HandedOff {
  return typeof value === "object" && value !== null && handedOff in value;
}

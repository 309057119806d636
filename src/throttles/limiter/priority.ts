/** Priorities of calls, the most urgent first. */
export const priorities = ["control", "interactive", "retry", "batch"] as const;

export type Priority = (typeof priorities)[number];

/** How many permits only calls of a priority may take. */
export type Reserve = { readonly [priority in Priority]?: number };

export type PerPriority = Record<Priority, number>;

export const zeroPerPriority = (): PerPriority => ({
  control: 0,
  interactive: 0,
  retry: 0,
  batch: 0,
});

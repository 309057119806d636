/** As a store's URL takes them. */
export type Timeouts = {
  connectTimeoutMs?: number;
  answerTimeoutMs?: number;
  lockTimeoutMs?: number;
};

export function withTimeouts(store: string, timeouts: Timeouts): string {
  const url = new URL(store);
  for (const [name, ms] of Object.entries(timeouts)) url.searchParams.set(name, String(ms));
  return url.href;
}

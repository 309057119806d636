/**
 * Which pod should have which log, computed alike everywhere: each log goes to the pod that its hash
 * likes best, unless that one has its fair part already. It speaks only for logs that are free, and for
 * handing over; pods that disagree about who is alive cost time, never safety.
 */
export function placeLogs(logs: number, pods: readonly string[]): string[] {
  const fair = Math.floor(logs / Math.max(1, pods.length));
  // So many pods have one more than the others; none is left without.
  let more = logs - fair * pods.length;
  const held = new Map<string, number>();
  return Array.from({ length: logs }, (_, logId) => {
    const hasCapacity = (podId: string): boolean =>
      (held.get(podId) ?? 0) < (more > 0 ? fair + 1 : fair);
    const chosen = rankPods(logId, pods).find(hasCapacity)!;
    const count = (held.get(chosen) ?? 0) + 1;
    held.set(chosen, count);
    if (count > fair) more--;
    return chosen;
  });
}

/** Pods in the order in which they should try for a log. */
export function rankPods(logId: number, pods: readonly string[]): string[] {
  return pods
    .map((podId) => ({ podId, score: hash(`${logId} ${podId}`) }))
    .toSorted((a, b) => b.score - a.score || (a.podId < b.podId ? -1 : 1))
    .map(({ podId }) => podId);
}

function hash(text: string): number {
  let mixed = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) {
    mixed = Math.imul(mixed ^ text.charCodeAt(at), 0x01000193);
  }
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}

/** How many groups the sessions of a store are spread over. It is never changed: logs are made of them. */
export const sessionGroups = 256;

/** The group of a session: the same on every pod, in every version, for ever. */
export function sessionGroupOf(sessionId: string): number {
  let hash = 0x811c9dc5;
  // FNV-1a over UTF-16 units, both bytes of each, so that every character counts.
  for (let at = 0; at < sessionId.length; at++) {
    const unit = sessionId.charCodeAt(at);
    hash = Math.imul(hash ^ (unit & 0xff), 0x01000193);
    hash = Math.imul(hash ^ (unit >>> 8), 0x01000193);
  }
  // FNV leaves ids that differ in their last character close together; murmur's last step spreads them.
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) % sessionGroups;
}

/** The log of a session, where there are so many. */
export function logOf(sessionId: string, logs: number): number {
  return sessionGroupOf(sessionId) % logs;
}

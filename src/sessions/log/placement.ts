/**
 * Assigns each log to a pod, with the same result on every pod: the pod that ranks first by hash, unless
 * it has its fair share already. It only guides taking free logs and handing logs over. Pods that disagree
 * on who is alive cost time, never safety.
 */
export function placeLogs(logs: number, pods: readonly string[]): string[] {
  const fair = Math.floor(logs / Math.max(1, pods.length));
  // This many pods get one log more than the others, so that every log has a pod.
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

/** Pods in the order in which they try to take a log. */
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

/**
 * How many groups the sessions of a store are spread over. Never changes, because logs consist of groups.
 */
export const sessionGroups = 256;

/** The group of a session: the same on every pod and in every release. */
export function sessionGroupOf(sessionId: string): number {
  let hash = 0x811c9dc5;
  // FNV-1a over UTF-16 units, both bytes of each, so that every character counts.
  for (let at = 0; at < sessionId.length; at++) {
    const unit = sessionId.charCodeAt(at);
    hash = Math.imul(hash ^ (unit & 0xff), 0x01000193);
    hash = Math.imul(hash ^ (unit >>> 8), 0x01000193);
  }
  // FNV keeps ids that differ in their last character close together. Murmur's final step spreads them.
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) % sessionGroups;
}

/** The log of a session, out of `logs`. */
export function logOf(sessionId: string, logs: number): number {
  return logs === 1 ? 0 : sessionGroupOf(sessionId) % logs;
}

/** How many groups the sessions of a store are spread over. It is never changed: logs are made of them. */
export const groups = 256;

/** The group of a session: the same on every pod, in every version, for ever. */
export function groupOf(sessionId: string): number {
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
  return ((hash ^ (hash >>> 16)) >>> 0) % groups;
}

/** The log of a session, where there are so many. */
export function logOf(sessionId: string, logs: number): number {
  return groupOf(sessionId) % logs;
}
